/* conv.c: plans, the choice of the algorithm, and sums by blocks. */
#include "device/cpu/conv.h"

#include "base/status.h"
#include "kernels/quad.h"

#include <stdlib.h>
#include <string.h>

/* ---- sums by blocks -------------------------------------------------------------------------- */

conv_blocks conv_blocks_make(int groups, int per_group, int size) {
    int in_group = (per_group + size - 1) / size;
    return (conv_blocks){.per_group = per_group, .size = size, .blocks = groups * in_group};
}

void conv_block_range(const conv_blocks *k, int b, int *first, int *last) {
    int in_group = (k->per_group + k->size - 1) / k->size;
    int group = b / in_group, start = b % in_group * k->size;
    int end = start + k->size < k->per_group ? start + k->size : k->per_group;
    *first = group * k->per_group + start;
    *last = group * k->per_group + end;
}

void conv_fold_sums(const conv_blocks *k, int groups, int c, const float *partial, float *sums,
                    int threads) {
    int in_group = k->blocks / groups;
#pragma omp parallel for num_threads(threads) schedule(static) if (k->blocks * c > 1 << 15)
    for (int j = 0; j < 2 * c; j++)
        for (int g = 0; g < groups; g++) {
            double sum = 0;
            for (int b = 0; b < in_group; b++)
                sum += partial[(size_t)(g * in_group + b) * 2 * c + j];
            sums[(size_t)g * 2 * c + j] = (float)sum;
        }
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool winograd_wanted(void) {
    const char *wish = getenv("CONR_WINOGRAD");
    return !wish || strcmp(wish, "0");
}

int cpu_conv_plan_new(device *dev, const conv_shape *s, conv_plan **out) {
    ASSERT(s->groups > 0 && s->n % s->groups == 0);
    cpu_plan *p = calloc(1, sizeof *p);
    *out = (conv_plan *)p;
    if (!p) return fail_memory("convolution", sizeof *p);
    p->base = (conv_plan){.s = *s,
                          .oh = (s->h + 2 * s->pad - s->k) / s->stride + 1,
                          .ow = (s->w + 2 * s->pad - s->k) / s->stride + 1};
    p->g = gemm_kernel_conv();
    p->threads = dev->threads;
    p->winograd = winograd_wanted() && winograd_fits(p);
    p->stem = !p->winograd && stem_fits(p);
    size_t floats = p->winograd ? winograd_workspace(p) + (size_t)s->co : direct_workspace(p);
    if (p->stem) floats = most(floats, stem_workspace(p));
    p->base.workspace = sizeof(float) * floats;
    return 0;
}

/* ---- the entries of the table ---------------------------------------------------------------- */

/* The sums of y about shift - bias are those of y + bias about shift. */
static void winograd_with_bias(const cpu_plan *p, const float *x, const float *w, const float *bias,
                               float *y, const float *shift, float *sums, float *work) {
    int co = p->base.s.co;
    size_t pixels = (size_t)p->base.s.n * p->base.oh * p->base.ow;
    float *about = work + p->base.workspace / sizeof *work - co; /* at its end: [co] */
    if (bias && sums)
        for (int j = 0; j < co; j++) about[j] = shift[j] - bias[j];
    winograd_forward(p, x, w, y, bias ? about : shift, sums, work);
    if (!bias) return;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t i = 0; i < pixels; i++)
        for (int j = 0; j < co; j++) y[i * (size_t)co + (size_t)j] += bias[j];
}

int cpu_conv_forward(device *dev, const conv_plan *plan, const act *x, const float *w,
                     const float *bias, act *y, const float *shift, float *sums, void *work) {
    (void)dev;
    const cpu_plan *p = (const cpu_plan *)plan;
    if (p->winograd)
        winograd_with_bias(p, (const float *)x, w, bias, (float *)y, shift, sums, work);
    else if (p->stem && !bias)
        stem_forward(p, (const float *)x, w, (float *)y, shift, sums, work);
    else
        direct_forward(p, (const float *)x, w, bias, (float *)y, shift, sums, work);
    return 0;
}

int cpu_conv_back_data(device *dev, const conv_plan *plan, const act *dy, const float *w, bool add,
                       act *dx, void *work) {
    (void)dev;
    const cpu_plan *p = (const cpu_plan *)plan;
    if (p->winograd)
        winograd_back_data(p, (const float *)dy, w, add, (float *)dx, work);
    else if (p->stem)
        stem_back_data(p, (const float *)dy, w, add, (float *)dx, work);
    else
        direct_back_data(p, (const float *)dy, w, add, (float *)dx, work);
    return 0;
}

/* dbias = (add ? dbias : 0) + column sums of dy [rows,co] */
static void column_sums(const float *dy, size_t rows, int co, bool add, float *dbias, int threads) {
    enum { BLOCK = 64 };
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int first = 0; first < co; first += BLOCK) {
        int n = co - first < BLOCK ? co - first : BLOCK;
        double sum[BLOCK] = {0};
        for (size_t r = 0; r < rows; r++)
            for (int j = 0; j < n; j++) sum[j] += dy[r * co + first + j];
        for (int j = 0; j < n; j++)
            dbias[first + j] = (float)(sum[j] + (add ? dbias[first + j] : 0));
    }
}

int cpu_conv_back_filter(device *dev, const conv_plan *plan, const act *x, const act *dy, bool add,
                         float *dw, float *dbias, void *work) {
    (void)dev;
    const cpu_plan *p = (const cpu_plan *)plan;
    const conv_shape *s = &plan->s;
    if (p->winograd)
        winograd_back_filter(p, (const float *)x, (const float *)dy, add, dw, work);
    else if (p->stem)
        stem_back_filter(p, (const float *)x, (const float *)dy, add, dw, work);
    else
        direct_back_filter(p, (const float *)x, (const float *)dy, add, dw, work);
    if (dbias)
        column_sums((const float *)dy, (size_t)s->n * plan->oh * plan->ow, s->co, add, dbias,
                    p->threads);
    return 0;
}
