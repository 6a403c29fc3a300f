/* conv.c: convolutions on the GPU: who computes what.
 *
 * A 1x1 convolution is a matrix product, of every second pixel if it is strided.  The stem and
 * narrow layers have kernels of their own (stem.cu, conv64.cu).  Everything else goes to cuDNN
 * (conv_engine.c, conv_choose.c), and what no engine takes runs as plain loops (plain.cu). */
#include "device/cuda/conv.h"

#include "base/status.h"

#include <stdlib.h>

enum { DNN_WORK = 64 << 20 }; /* bytes of workspace that any engine may ask for */

/* ---- plans ----------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static int cuda_conv_plan_new(device *dev, const conv_shape *s, conv_plan **out) {
    ASSERT(s->groups > 0 && s->n % s->groups == 0);
    cuda_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return fail_memory("convolution", sizeof *p);
    p->p = (conv_plan){.s = *s,
                       .oh = (s->h + 2 * s->pad - s->k) / s->stride + 1,
                       .ow = (s->w + 2 * s->pad - s->k) / s->stride + 1};
    /* bf16 products want rows that start on 16 bytes */
    p->product = s->k == 1 && s->pad == 0 && (!is_bf16(dev) || (s->ci % 8 == 0 && s->co % 8 == 0));
    p->stem = cuda_stem_takes(dev, s);
    p->narrow = cuda_conv64_takes(dev, s);
    size_t x = (size_t)s->n * s->h * s->w * s->ci * dev->act_size;
    size_t picked = (size_t)s->n * p->p.oh * p->p.ow * s->ci * dev->act_size;
    size_t dw = (size_t)s->co * s->k * s->k * s->ci * sizeof(float);
    if (p->product) {
        p->side = s->stride > 1 ? round_up(picked) : 0;
        p->p.workspace = p->side;
    } else {
        /* with odd channels also space for copies of x padded to eight */
        size_t padded = s->ci % 8 ? x / (size_t)s->ci * (8 * (size_t)((s->ci + 7) / 8)) : 0;
        p->side = round_up(x > dw ? x : dw);
        p->work = DNN_WORK + 2 * padded;
        p->p.workspace = p->side + p->work;
    }
    *out = &p->p;
    return 0;
}

static void cuda_conv_plan_free(device *dev, conv_plan *p) {
    (void)dev;
    free(p);
}

/* ---- the three directions -------------------------------------------------------------------- */

static tensors tensors_of(const cuda_plan *p, const void *a, const void *b, void *result,
                          void *work) {
    return (tensors){a, b, result, work, (char *)work + p->side};
}

/* Weights as the convolution wants them. */
static int weights_of(device *dev, const float *w, const void **out) {
    *out = w;
    return is_bf16(dev) ? cuda_weights(dev, w, (void **)out) : 0;
}

static cudaDataType_t act_kind(const device *dev) {
    return is_bf16(dev) ? CUDA_R_16BF : CUDA_R_32F;
}

/* The input pixels under a 1x1 filter: x itself or, strided, picked into the workspace. */
static int picked_of(device *dev, const cuda_plan *p, const act *x, void *work, const act **out) {
    *out = p->p.s.stride > 1 ? work : x;
    return p->p.s.stride > 1 ? cuda_pick_pixels(dev, &p->p, x, work) : 0;
}

static size_t pixels_of(const conv_plan *p) { return (size_t)p->s.n * p->oh * p->ow; }

static int product_forward(device *dev, const cuda_plan *p, const act *x, const float *w,
                           const float *bias, act *y, void *work) {
    int rc = 0, ci = p->p.s.ci, co = p->p.s.co;
    cudaDataType_t kind = act_kind(dev);
    const void *weights, *biases = NULL;
    const act *in;
    TRY(weights_of(dev, w, &weights));
    if (bias) TRY(weights_of(dev, bias, &biases));
    TRY(picked_of(dev, p, x, work, &in));
    matmul_shape m = {false, true, (int)pixels_of(&p->p), co, ci, ci, ci, co, kind, kind, kind};
    TRY(cuda_matmul(dev, &m, 1, in, weights, 0, y, biases));
done:
    return rc;
}

static int forward(device *dev, const conv_plan *plan, const act *x, const float *w,
                   const float *bias, act *y, const float *shift, float *sums,
                   const norm_rest *rest, void *work) {
    int rc = 0;
    cuda_plan *p = (cuda_plan *)plan;
    const conv_shape *s = &plan->s;
    if (p->stem && !bias) return cuda_stem_forward(dev, plan, x, w, y, shift, rest, sums);
    if (p->product) {
        TRY(product_forward(dev, p, x, w, bias, y, work));
    } else {
        engine *e;
        const void *weights;
        TRY(weights_of(dev, w, &weights));
        if (p->narrow && !bias)
            return cuda_conv64(dev, plan, x, weights, false, false, y, shift, rest, sums);
        tensors t = tensors_of(p, x, weights, y, work);
        TRY(engine_for(dev, p, FORWARD, false, &t, &e));
        TRY(e->plan ? engine_run(dev, plan, e, false, &t)
                    : cuda_plain_forward(dev, plan, x, w, NULL, y));
        if (bias) TRY(cuda_add_bias(dev, y, pixels_of(plan), s->co, bias));
    }
    if (sums)
        TRY(cuda_group_sums(dev, &(norm_shape){s->n, plan->oh * plan->ow, s->co, s->groups}, y,
                            shift, rest, sums));
done:
    return rc;
}

static int cuda_conv_forward(device *dev, const conv_plan *plan, const act *x, const float *w,
                             const float *bias, act *y, const float *shift, float *sums,
                             void *work) {
    return forward(dev, plan, x, w, bias, y, shift, sums, NULL, work);
}

static int cuda_conv_forward_finish(device *dev, const conv_plan *plan, const act *x,
                                    const float *w, const float *bias, act *y, float *sums,
                                    const norm_rest *rest, void *work) {
    return forward(dev, plan, x, w, bias, y, rest->running, sums, rest, work);
}

static int cuda_conv_back_data(device *dev, const conv_plan *plan, const act *dy, const float *w,
                               bool add, act *dx, void *work) {
    int rc = 0, ci = plan->s.ci, co = plan->s.co;
    cuda_plan *p = (cuda_plan *)plan;
    bool strided = plan->s.stride > 1;
    const void *weights;
    TRY(weights_of(dev, w, &weights));
    if (p->product) {
        cudaDataType_t kind = act_kind(dev);
        matmul_shape m = {false, false, (int)pixels_of(plan), ci, co, co, ci, ci, kind, kind, kind};
        TRY(cuda_matmul(dev, &m, 1, dy, weights, add && !strided ? 1 : 0,
                        strided ? work : (void *)dx, NULL));
        if (strided) TRY(cuda_spread_pixels(dev, plan, work, add, dx));
        goto done;
    }
    if (p->narrow) return cuda_conv64(dev, plan, dy, weights, true, add, dx, NULL, NULL, NULL);
    engine *e;
    tensors t = tensors_of(p, dy, weights, dx, work);
    TRY(engine_for(dev, p, BACK_DATA, add, &t, &e));
    TRY(e->plan ? engine_run(dev, plan, e, add, &t)
                : cuda_plain_back_data(dev, plan, dy, w, add, dx));
done:
    return rc;
}

static int cuda_conv_back_filter(device *dev, const conv_plan *plan, const act *x, const act *dy,
                                 bool add, float *dw, float *dbias, void *work) {
    int rc = 0, ci = plan->s.ci, co = plan->s.co;
    cuda_plan *p = (cuda_plan *)plan;
    if (p->stem) {
        TRY(cuda_stem_back_filter(dev, plan, x, dy, add, dw));
    } else if (p->product) {
        const act *in;
        TRY(picked_of(dev, p, x, work, &in));
        matmul_shape m = {true, false,         co,         ci,        (int)pixels_of(plan), co, ci,
                          ci,   act_kind(dev), CUDA_R_32F, CUDA_R_32F};
        TRY(cuda_matmul(dev, &m, 1, dy, in, add ? 1 : 0, dw, NULL));
    } else {
        engine *e;
        tensors t = tensors_of(p, x, dy, dw, work), timed = t;
        if (add) timed.result = t.side; /* timings must not change what is added to */
        TRY(engine_for(dev, p, BACK_FILTER, false, &timed, &e));
        TRY(e->plan ? engine_run(dev, plan, e, add, &t)
                    : cuda_plain_back_filter(dev, plan, x, dy, add, dw));
    }
    if (dbias) TRY(cuda_column_sums(dev, dy, pixels_of(plan), co, add, dbias));
done:
    return rc;
}

/* A dense layer is a product and a pass over its result; rows that bf16 products do not take go the
 * slow way. */
static int cuda_dense(device *dev, const dense_shape *s, const act *x, const float *w,
                      const float *bias, const float *scale, const act *residual, act *y) {
    int rc = 0;
    if (s->m == 0) return 0;
    if (is_bf16(dev) && (s->ci % 8 || s->co % 8)) {
        conv_plan p = {.s = {s->m, 1, 1, s->ci, s->co, 1, 1, 0, 1}, .oh = 1, .ow = 1};
        TRY(cuda_plain_forward(dev, &p, x, w, NULL, y));
    } else {
        cudaDataType_t kind = act_kind(dev);
        const void *weights;
        TRY(weights_of(dev, w, &weights));
        matmul_shape m = {false, true, s->m, s->co, s->ci, s->ci, s->ci, s->co, kind, kind, kind};
        TRY(cuda_matmul(dev, &m, 1, x, weights, 0, y, NULL));
    }
    TRY(cuda_dense_finish(dev, s, bias, scale, residual, y));
done:
    return rc;
}

void cuda_conv_ops(device_ops *op) {
    op->dense = cuda_dense;
    op->conv_plan_new = cuda_conv_plan_new;
    op->conv_plan_free = cuda_conv_plan_free;
    op->conv_forward = cuda_conv_forward;
    op->conv_forward_finish = cuda_conv_forward_finish;
    op->conv_back_data = cuda_conv_back_data;
    op->conv_back_filter = cuda_conv_back_filter;
}
