/* ref_test.c: every operation of the reference against PyTorch and NumPy (golden/ops.safetensors,
 * computed there in double; here sums are double and results float, so 1e-6 is generous), and the
 * gradients once more by finite differences.  Batch norm may err by 5e-5: its sums are stored as
 * floats about the running mean, which in these cases lies up to 22 deviations off, and a rounding
 * of 6e-8 grows by the square of that. */
#include "base/memory.h"
#include "base/tensors.h"
#include "base/test_help.h"
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BOUND = 1e-6, NORM_BOUND = 5e-5;
static tensors golden;
static device *dev;

static int open_all(void **state) {
    (void)state;
    assert_ok(tensors_open(golden_path("ops.safetensors"), &golden));
    assert_ok(device_open("ref", 0, &dev));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    tensors_close(&golden);
    device_close(dev);
    return 0;
}

/* ---- golden tensors, and memory that ends with the test -------------------------------------- */

static arena memory;

static int free_memory(void **state) {
    (void)state;
    arena_free(&memory);
    return 0;
}

static const char *full_name(const char *kind, int i, const char *name) {
    static char text[96];
    snprintf(text, sizeof text, "%s.%d.%s", kind, i, name);
    return text;
}

static bool has(const char *kind, int i, const char *name) {
    return tensors_find(&golden, full_name(kind, i, name)) != NULL;
}

static float *take(const char *kind, int i, const char *name, size_t *count) {
    const tensor *t = tensors_find(&golden, full_name(kind, i, name));
    if (!t) fail_msg("golden file lacks %s", full_name(kind, i, name));
    float *out = arena_alloc(&memory, (t->count + 1) * sizeof *out);
    assert_ok(tensors_floats(&golden, t, out));
    if (count) *count = t->count;
    return out;
}

static float *fresh(size_t count) { /* full of NaN: what is not written shows */
    float *out = arena_alloc(&memory, (count + 1) * sizeof *out);
    for (size_t i = 0; i < count; i++) out[i] = NAN;
    return out;
}

/* Integers of a golden tensor, which are small enough for floats. */
static int *take_ints(const char *kind, int i, const char *name) {
    size_t n;
    float *x = take(kind, i, name, &n);
    int *out = arena_alloc(&memory, n * sizeof *out);
    for (size_t j = 0; j < n; j++) out[j] = (int)x[j];
    return out;
}

static void check(const char *kind, int i, const char *name, const float *got) {
    size_t n;
    float *want = take(kind, i, name, &n);
    assert_close(full_name(kind, i, name), got, want, n, strcmp(kind, "norm") ? BOUND : NORM_BOUND);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void convolutions(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("conv", i, "x"); i++, cases++) {
        int *s = take_ints("conv", i, "shape");
        conv_shape shape = {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], 1};
        conv_plan *plan;
        assert_ok(dev->op.conv_plan_new(dev, &shape, &plan));
        void *work = arena_alloc(&memory, plan->workspace);
        size_t xs, ws, ys;
        float *x = take("conv", i, "x", &xs), *w = take("conv", i, "w", &ws);
        float *bias = s[8] ? take("conv", i, "bias", NULL) : NULL;
        float *dy = take("conv", i, "dy", &ys);
        float *y = fresh(ys), *dx = fresh(xs), *dw = fresh(ws), *db = s[8] ? fresh(s[4]) : NULL;

        assert_ok(dev->op.conv_forward(dev, plan, (act *)x, w, bias, (act *)y, NULL, NULL, work));
        check("conv", i, "y", y);
        assert_ok(dev->op.conv_back_data(dev, plan, (act *)dy, w, false, (act *)dx, work));
        check("conv", i, "dx", dx);
        assert_ok(dev->op.conv_back_filter(dev, plan, (act *)x, (act *)dy, false, dw, db, work));
        check("conv", i, "dw", dw);
        if (db) check("conv", i, "dbias", db);

        /* once more, adding: twice the gradient */
        assert_ok(dev->op.conv_back_data(dev, plan, (act *)dy, w, true, (act *)dx, work));
        assert_ok(dev->op.conv_back_filter(dev, plan, (act *)x, (act *)dy, true, dw, db, work));
        for (size_t j = 0; j < xs; j++) dx[j] /= 2;
        for (size_t j = 0; j < ws; j++) dw[j] /= 2;
        check("conv", i, "dx", dx);
        check("conv", i, "dw", dw);
        dev->op.conv_plan_free(dev, plan);
    }
    assert_int_equal(cases, 8);
}

/* Sums per group, by the 1x1 convolution with the identity. */
static float *sums_of(const float *y, int n, int h, int w, int c, int groups, const float *shift) {
    conv_plan *plan;
    conv_shape s = {n, h, w, c, c, 1, 1, 0, groups};
    float *identity = arena_alloc(&memory, (size_t)c * c * sizeof *identity);
    float *copy = fresh((size_t)n * h * w * c), *sums = fresh(2 * (size_t)groups * c);
    for (int j = 0; j < c; j++) identity[j * c + j] = 1;
    assert_ok(dev->op.conv_plan_new(dev, &s, &plan));
    void *work = arena_alloc(&memory, plan->workspace);
    assert_ok(dev->op.conv_forward(dev, plan, (const act *)y, identity, NULL, (act *)copy, shift,
                                   sums, work));
    dev->op.conv_plan_free(dev, plan);
    return sums;
}

typedef struct operand {
    normed v;
    float *stat, *running;
} operand;

/* One normalized tensor of a case: statistics out of the batch, running ones moved; suffix "" or
 * "2". */
static operand normalize(int i, const int *s, const char *suffix) {
    int n = s[0], h = s[1], w = s[2], c = s[3], groups = s[4];
    char name[32];
    operand o;
#define NAMED(text) (snprintf(name, sizeof name, text "%s", suffix), name)
    float *y = take("norm", i, NAMED("y"), NULL);
    o.v = (normed){.y = (act *)y};
    o.v.gamma = take("norm", i, NAMED("gamma"), NULL);
    o.v.beta = take("norm", i, NAMED("beta"), NULL);
    o.running = fresh(2 * (size_t)c);
    memcpy(o.running, take("norm", i, NAMED("running_mean"), NULL), (size_t)c * sizeof(float));
    memcpy(o.running + c, take("norm", i, NAMED("running_var"), NULL), (size_t)c * sizeof(float));
    o.stat = fresh(2 * (size_t)groups * c);
    o.v.stat = o.stat;
    float *sums = sums_of(y, n, h, w, c, groups, o.running);
    double count = (double)n / groups * h * w;
    assert_ok(dev->op.norm_finish(dev, c, groups, groups, count, sums, 0.1f, o.running, o.stat));
    snprintf(name, sizeof name, "running_mean%s_after", suffix);
    check("norm", i, name, o.running);
    snprintf(name, sizeof name, "running_var%s_after", suffix);
    check("norm", i, name, o.running + c);
    float *mean = take("norm", i, NAMED("mean"), NULL);
    float *invstd = take("norm", i, NAMED("invstd"), NULL);
#undef NAMED
    for (int g = 0; g < groups; g++) {
        assert_close("mean", o.stat + 2 * g * c, mean + g * c, c, NORM_BOUND);
        assert_close("invstd", o.stat + (2 * g + 1) * c, invstd + g * c, c, NORM_BOUND);
    }
    return o;
}

static void batch_norm(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("norm", i, "y"); i++, cases++) {
        int *s = take_ints("norm", i, "shape");
        int c = s[3], groups = s[4], relu = s[5], kind = s[6];
        norm_shape shape = {s[0], s[1] * s[2], c, groups};
        size_t count = (size_t)shape.n * shape.hw * c;
        double per_group = (double)shape.n / groups * shape.hw;
        operand y = normalize(i, s, ""), second = {0};
        if (kind == 2) second = normalize(i, s, "2");
        float *residual = kind == 1 ? take("norm", i, "residual", NULL) : NULL;
        float *z = fresh(count), *dy = fresh(count), *d = fresh(count);
        float *sums = fresh(2 * (size_t)groups * c), *dgamma = fresh(c), *dbeta = fresh(c);
        float *dz = take("norm", i, "dz", NULL);

        assert_ok(dev->op.norm_apply(dev, &shape, &y.v, kind == 2 ? &second.v : NULL,
                                     (act *)residual, relu, (act *)z));
        check("norm", i, "z", z);

        assert_ok(dev->op.norm_back_sums(dev, &shape, &y.v, kind ? (act *)z : NULL, relu, (act *)dz,
                                         false, sums, dgamma, dbeta, (act *)d));
        check("norm", i, "dgamma", dgamma);
        check("norm", i, "dbeta", dbeta);
        if (kind == 1) check("norm", i, "dresidual", d);
        assert_ok(dev->op.norm_back_apply(dev, &shape, &y.v, NULL, false, (act *)d, sums, per_group,
                                          (act *)dy));
        check("norm", i, "dy", dy);
        if (!kind) { /* the mask recomputed in the second half gives the same */
            assert_ok(dev->op.norm_back_apply(dev, &shape, &y.v, NULL, relu, (act *)dz, sums,
                                              per_group, (act *)d));
            assert_memory_equal(d, dy, count * sizeof *d);
        }
        if (kind == 2) {
            assert_ok(dev->op.norm_back_sums(dev, &shape, &second.v, NULL, false, (act *)d, false,
                                             sums, dgamma, dbeta, NULL));
            check("norm", i, "dgamma2", dgamma);
            check("norm", i, "dbeta2", dbeta);
            assert_ok(dev->op.norm_back_apply(dev, &shape, &second.v, NULL, false, (act *)d, sums,
                                              per_group, (act *)dy));
            check("norm", i, "dy2", dy);
        }

        /* evaluation, by the running statistics before the batch */
        operand *both[] = {&y, &second};
        for (int k = 0; k < (kind == 2 ? 2 : 1); k++) {
            const char *mean = k ? "running_mean2" : "running_mean";
            const char *var = k ? "running_var2" : "running_var";
            memcpy(both[k]->running, take("norm", i, mean, NULL), (size_t)c * sizeof(float));
            memcpy(both[k]->running + c, take("norm", i, var, NULL), (size_t)c * sizeof(float));
            assert_ok(dev->op.norm_from_running(dev, c, both[k]->running, both[k]->stat));
        }
        norm_shape one = {shape.n, shape.hw, c, 1};
        assert_ok(dev->op.norm_apply(dev, &one, &y.v, kind == 2 ? &second.v : NULL, (act *)residual,
                                     relu, (act *)z));
        check("norm", i, "eval", z);
    }
    assert_int_equal(cases, 6);
}

/* Passes of several groups: the running statistics take the mean over a pass's groups, once. */
static void running_statistics_by_pass(void **state) {
    (void)state;
    float sums[4][2][1] = {{{4}, {10}}, {{8}, {26}}, {{0}, {4}}, {{-4}, {12}}};
    float running[2] = {0, 1}, stat[4][2][1];
    double count = 4, unbiased = count / (count - 1);
    assert_ok(
        dev->op.norm_finish(dev, 1, 4, 2, count, &sums[0][0][0], 0.1f, running, &stat[0][0][0]));
    /* means 1, 2 | 0, -1; variances 10/4-1 = 1.5, 26/4-4 = 2.5 | 1, 12/4-1 = 2 */
    double mean = 0.1 * 1.5, var = 0.9 + 0.1 * 2 * unbiased;
    mean = 0.9 * mean + 0.1 * -0.5, var = 0.9 * var + 0.1 * 1.5 * unbiased;
    assert_true(fabs(running[0] - mean) < 1e-6 && fabs(running[1] - var) < 1e-6);
    float before[2] = {running[0], running[1]};
    assert_ok(dev->op.norm_finish(dev, 1, 4, 2, count, &sums[0][0][0], 0, running, &stat[0][0][0]));
    assert_memory_equal(before, running, sizeof before); /* momentum 0: a second look */
}

static void pools(void **state) {
    (void)state;
    int cases = 0;
    for (int kind = 0; kind < 2; kind++) {
        const char *name = kind ? "mean_pool" : "max_pool";
        for (int i = 0; has(name, i, "x"); i++, cases++) {
            int *s = take_ints(name, i, "shape");
            pool_shape shape = {s[0], s[1], s[2], s[3]};
            size_t xs, ys;
            float *x = take(name, i, "x", &xs), *dy = take(name, i, "dy", &ys);
            float *y = fresh(ys), *dx = fresh(xs);
            if (kind) {
                assert_ok(dev->op.mean_pool(dev, &shape, (act *)x, (act *)y));
                assert_ok(dev->op.mean_pool_back(dev, &shape, (act *)dy, (act *)dx));
            } else {
                assert_ok(dev->op.max_pool(dev, &shape, (act *)x, (act *)y));
                assert_ok(dev->op.max_pool_back(dev, &shape, (act *)x, (act *)dy, (act *)dx));
            }
            check(name, i, "y", y);
            check(name, i, "dx", dx);
        }
    }
    assert_int_equal(cases, 5);
}

static void rows(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("rows", i, "x"); i++, cases++) {
        int *s = take_ints("rows", i, "shape"), n = s[0], d = s[1];
        float *x = take("rows", i, "x", NULL), *dout = take("rows", i, "dout", NULL);
        float *out = fresh((size_t)n * d), *norm = fresh(n), *dx = fresh((size_t)n * d);
        assert_ok(dev->op.rows_normalize(dev, x, n, d, out, norm));
        check("rows", i, "out", out);
        assert_ok(dev->op.rows_normalize_back(dev, out, norm, dout, n, d, dx));
        check("rows", i, "dx", dx);
    }
    assert_int_equal(cases, 2);
}

static void sgd(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("sgd", i, "w"); i++, cases++) {
        size_t n;
        float *w = take("sgd", i, "w", &n), *dw = take("sgd", i, "dw", NULL);
        float *v = take("sgd", i, "v", NULL), *average = take("sgd", i, "avg", NULL);
        float *s = take("sgd", i, "scalars", NULL);
        int *before = take_ints("sgd", i, "before");
        step_values at = {.lr = {0, s[0]}, .momentum = s[1], .decay = s[2], .average = s[3]};
        for (size_t j = 0; j < n; j++) dw[j] *= 4; /* undone by the scale */
        assert_ok(dev->op.sgd(dev, &at, 1, before[0], 0.25f, n, w, dw, v, average));
        check("sgd", i, "w_after", w);
        check("sgd", i, "v_after", v);
        check("sgd", i, "avg_after", average);
    }
    assert_int_equal(cases, 2);
}

static void choices(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("top_k", i, "s"); i++, cases++) {
        const tensor *t = tensors_find(&golden, full_name("top_k", i, "s"));
        int n = (int)t->dim[0], m = (int)t->dim[1];
        int k = take_ints("top_k", i, "k")[0], self = take_ints("top_k", i, "self")[0];
        int *want = take_ints("top_k", i, "ids");
        float *s = take("top_k", i, "s", NULL), *values = fresh((size_t)n * k);
        int32_t *ids = arena_alloc(&memory, (size_t)n * k * sizeof *ids);
        assert_ok(dev->op.top_k(dev, s, n, m, m, self, k, ids, values));
        for (int j = 0; j < n * k; j++) {
            assert_int_equal(ids[j], want[j]);
            assert_true(values[j] == s[j / k * m + ids[j]]);
        }
    }
    for (int i = 0; has("argmin", i, "s"); i++, cases++) {
        const tensor *t = tensors_find(&golden, full_name("argmin", i, "s"));
        int n = (int)t->dim[0], m = (int)t->dim[1], *want = take_ints("argmin", i, "ids");
        float *values = fresh(n);
        int32_t *ids = arena_alloc(&memory, (size_t)n * sizeof *ids);
        assert_ok(dev->op.argmin(dev, take("argmin", i, "s", NULL), n, m, m, ids, values));
        for (int j = 0; j < n; j++) assert_int_equal(ids[j], want[j]);
        check("argmin", i, "values", values);
    }
    for (int i = 0; has("sums_by_label", i, "x"); i++, cases++) {
        const tensor *t = tensors_find(&golden, full_name("sums_by_label", i, "x"));
        int n = (int)t->dim[0], d = (int)t->dim[1], K = take_ints("sums_by_label", i, "K")[0];
        int *label = take_ints("sums_by_label", i, "label");
        int *want = take_ints("sums_by_label", i, "counts");
        float *sums = fresh((size_t)K * d);
        int32_t *counts = arena_alloc(&memory, (size_t)K * sizeof *counts);
        assert_ok(dev->op.sums_by_label(dev, take("sums_by_label", i, "x", NULL), n, d, label, K,
                                        sums, counts));
        check("sums_by_label", i, "sums", sums);
        for (int j = 0; j < K; j++) assert_int_equal(counts[j], want[j]);
    }
    assert_true(cases >= 5);
}

static void gemm(void **state) {
    (void)state;
    int cases = 0;
    for (int i = 0; has("gemm", i, "a"); i++, cases++) {
        int *s = take_ints("gemm", i, "shape"), ta = s[0], tb = s[1], m = s[2], n = s[3], k = s[4];
        float *scalars = take("gemm", i, "scalars", NULL), *c = take("gemm", i, "c0", NULL);
        assert_ok(dev->op.gemm(dev, ta, tb, m, n, k, scalars[0], take("gemm", i, "a", NULL),
                               ta ? m : k, take("gemm", i, "b", NULL), tb ? k : n, scalars[1], c,
                               n));
        check("gemm", i, "c", c);
    }
    assert_int_equal(cases, 4);
}

/* ---- finite differences ---------------------------------------------------------------------- */

/* f = sum of y * t over a small convolution + norm + ReLU; its gradient by the operations against
 * (f(x+h) - f(x-h)) / 2h for some of the inputs. */
typedef struct chain {
    conv_plan *plan;
    float *x, *w, *gamma, *beta, *t;
    float *y, *z, *stat, *sums;
    void *work;
    norm_shape shape;
} chain;

static double chain_value(chain *c) {
    float running[2 * 4] = {0};
    double sum = 0;
    normed v = {(act *)c->y, c->stat, c->gamma, c->beta};
    assert_ok(dev->op.conv_forward(dev, c->plan, (act *)c->x, c->w, NULL, (act *)c->y, running,
                                   c->sums, c->work));
    assert_ok(dev->op.norm_finish(dev, 4, 2, 2, (double)c->shape.n / 2 * c->shape.hw, c->sums, 0,
                                  running, c->stat));
    assert_ok(dev->op.norm_apply(dev, &c->shape, &v, NULL, NULL, true, (act *)c->z));
    for (int i = 0; i < c->shape.n * c->shape.hw * 4; i++) sum += (double)c->z[i] * c->t[i];
    return sum;
}

static void finite_differences(void **state) {
    (void)state;
    conv_shape s = {4, 5, 6, 3, 4, 3, 2, 1, 2};
    chain c;
    assert_ok(dev->op.conv_plan_new(dev, &s, &c.plan));
    int xs = 4 * 5 * 6 * 3, ws = 4 * 9 * 3, ys = 4 * c.plan->oh * c.plan->ow * 4;
    c.work = arena_alloc(&memory, c.plan->workspace);
    c.shape = (norm_shape){4, c.plan->oh * c.plan->ow, 4, 2};
    c.x = fresh(xs), c.w = fresh(ws), c.gamma = fresh(4), c.beta = fresh(4), c.t = fresh(ys);
    c.y = fresh(ys), c.z = fresh(ys), c.stat = fresh(16), c.sums = fresh(16);
    for (int i = 0; i < xs; i++) c.x[i] = sinf(1.7f * (float)i);
    for (int i = 0; i < ws; i++) c.w[i] = cosf(2.3f * (float)i);
    for (int i = 0; i < ys; i++) c.t[i] = sinf(3.1f * (float)i + 1);
    for (int i = 0; i < 4; i++) c.gamma[i] = 1 + 0.1f * (float)i, c.beta[i] = 0.3f;
    chain_value(&c);

    float *dx = fresh(xs), *dw = fresh(ws), *dgamma = fresh(4), *dbeta = fresh(4), *dy = fresh(ys);
    float *sums = fresh(16);
    normed v = {(act *)c.y, c.stat, c.gamma, c.beta};
    assert_ok(dev->op.norm_back_sums(dev, &c.shape, &v, NULL, true, (act *)c.t, false, sums, dgamma,
                                     dbeta, NULL));
    assert_ok(dev->op.norm_back_apply(dev, &c.shape, &v, NULL, true, (act *)c.t, sums,
                                      2.0 * c.shape.hw, (act *)dy));
    assert_ok(dev->op.conv_back_data(dev, c.plan, (act *)dy, c.w, false, (act *)dx, c.work));
    assert_ok(
        dev->op.conv_back_filter(dev, c.plan, (act *)c.x, (act *)dy, false, dw, NULL, c.work));

    struct {
        const char *name;
        float *value, *gradient;
        int n;
    } part[] = {{"x", c.x, dx, xs},
                {"w", c.w, dw, ws},
                {"gamma", c.gamma, dgamma, 4},
                {"beta", c.beta, dbeta, 4}};
    for (int k = 0; k < 4; k++) {
        float numeric[256], analytic[256];
        int n = 0;
        for (int i = 0; i < part[k].n && n < 256; i += 1 + part[k].n / 60, n++) {
            float old = part[k].value[i], h = 1e-3f;
            part[k].value[i] = old + h;
            double up = chain_value(&c);
            part[k].value[i] = old - h;
            double down = chain_value(&c);
            part[k].value[i] = old;
            numeric[n] = (float)((up - down) / (2 * h));
            analytic[n] = part[k].gradient[i];
        }
        /* the step crosses a few ReLU kinks and y is float: 1 % of the gradient's norm */
        assert_close(part[k].name, numeric, analytic, n, 1e-2);
    }
    dev->op.conv_plan_free(dev, c.plan);
}

/* ---- losses ---------------------------------------------------------------------------------- */

enum { LOSS_N = 6, LOSS_D = 5, LOSS_K = 3, LOSS_QUEUE = 7 };

typedef struct half_batch {
    float q[LOSS_N * LOSS_D], key[LOSS_N * LOSS_D], queue[LOSS_QUEUE * LOSS_D];
    float weight[LOSS_N], logits[LOSS_N * LOSS_QUEUE], dq[LOSS_N * LOSS_D];
    int32_t near[LOSS_N * LOSS_K];
} half_batch;

static half_batch half_batch_make(void) {
    half_batch h = {0};
    for (int i = 0; i < LOSS_N * LOSS_D; i++)
        h.q[i] = sinf(1.3f * (float)i), h.key[i] = cosf(2.1f * (float)i);
    for (int i = 0; i < LOSS_QUEUE * LOSS_D; i++) h.queue[i] = sinf(0.7f * (float)i + 1);
    for (int i = 0; i < LOSS_N; i++) h.weight[i] = i == 2 ? 0 : 0.1f + 0.05f * (float)i;
    for (int i = 0; i < LOSS_N * LOSS_K; i++) h.near[i] = (i * 5 + i / 4) % LOSS_N;
    return h;
}

/* The definition of device.h in double, written the naive way.  temperature 0: pull. */
static double loss_value(const half_batch *h, bool listed, bool weighted, double temperature) {
    double value = 0;
    int k = listed ? LOSS_K : 1;
    for (int i = 0; i < LOSS_N; i++)
        for (int e = 0; e < k; e++) {
            int other = listed ? h->near[i * k + e] : i;
            double s = 0, others = 0, w = weighted ? h->weight[i] : 1.0 / LOSS_N;
            for (int j = 0; j < LOSS_D; j++)
                s += (double)h->q[i * LOSS_D + j] * h->key[other * LOSS_D + j];
            for (int m = 0; temperature > 0 && m < LOSS_QUEUE; m++) {
                double l = 0;
                for (int j = 0; j < LOSS_D; j++)
                    l += (double)h->q[i * LOSS_D + j] * h->queue[m * LOSS_D + j];
                others += exp(l / temperature);
            }
            value -=
                w / k *
                (temperature > 0 ? log(exp(s / temperature) / (exp(s / temperature) + others)) : s);
        }
    return value;
}

/* Value by the definition, gradient by its finite differences. */
static void losses(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        bool listed = variant & 1, weighted = variant & 2, contrast = variant & 4;
        float temperature = 0.5f, factor = 0.25f, loss = 10;
        half_batch h = half_batch_make();
        const int32_t *near = listed ? h.near : NULL;
        const float *weight = weighted ? h.weight : NULL;
        double t = contrast ? temperature : 0;
        int k = listed ? LOSS_K : 1;
        if (contrast)
            assert_ok(dev->op.contrast(dev, h.q, h.key, LOSS_N, LOSS_D, near, k, weight, factor,
                                       h.queue, LOSS_QUEUE, temperature, h.logits, &loss, h.dq));
        else
            assert_ok(dev->op.pull(dev, h.q, h.key, LOSS_N, LOSS_D, near, k, weight, factor, &loss,
                                   h.dq));
        double want = 10 + factor * loss_value(&h, listed, weighted, t);
        assert_true(fabs(loss - want) < 2e-6);
        float numeric[LOSS_N * LOSS_D];
        for (int i = 0; i < LOSS_N * LOSS_D; i++) {
            float old = h.q[i], step = 1e-3f;
            h.q[i] = old + step;
            double up = loss_value(&h, listed, weighted, t), above = h.q[i];
            h.q[i] = old - step;
            double down = loss_value(&h, listed, weighted, t);
            numeric[i] = (float)(factor * (up - down) / (above - h.q[i]));
            h.q[i] = old;
        }
        /* the value is in double: what is left is the third derivative, step^2/6 of it */
        assert_close("dq", h.dq, numeric, LOSS_N * LOSS_D, 1e-5);
    }
}

/* Logits of hundreds: the exponentials themselves would overflow. */
static void contrast_is_stable(void **state) {
    (void)state;
    float q[2] = {1, 0}, key[2] = {1, 0}, queue[4] = {0.5f, 0, -1, 0}, logits[2], loss = 0, dq[2];
    assert_ok(
        dev->op.contrast(dev, q, key, 1, 2, NULL, 1, NULL, 1, queue, 2, 1e-3f, logits, &loss, dq));
    assert_true(loss == 0 && dq[0] == 0 && dq[1] == 0); /* e^1000 against e^500 */
    key[0] = -1, loss = 0;
    assert_ok(
        dev->op.contrast(dev, q, key, 1, 2, NULL, 1, NULL, 1, queue, 2, 1e-3f, logits, &loss, dq));
    assert_true(fabsf(loss - 1500) < 1e-3f); /* log(e^500 / e^-1000) */
    assert_true(fabsf(dq[0] - 1500) < 1e-3f && dq[1] == 0);
}

/* Points on a line, centroids at 0 and 4 (and 100): every ratio can be done by hand. */
static void boundary_filter(void **state) {
    (void)state;
    float f[] = {0, 1, 2, 3, 1, 2.5f}, centroids[] = {0, 4, 100}, ratio[6], weight[6];
    int32_t ids[] = {3, 0, 5, 1, 0, 4}, label[] = {0, 1, 7, 0, 0, 0};
    /* labels 0 0 0 1 0 0; inside 0 1 2 1 1 2.5, outside 4 3 2 3 3 1.5 */
    float want[] = {0, 1 - 2.0f / 3, 1, 1 - 2.0f / 3, 1 - 2.0f / 3, 1.4f};
    const struct { int keep, kept; } rows[] = {{1, 1}, {2, 4}, {3, 4}, {4, 4}, {5, 5}, {6, 6}};
    for (int r = 0; r < 6; r++)
        for (int over = 0; over < 2; over++) {
            step_values at = {.keep = rows[r].keep};
            float sigma = r == 0 ? 0 : r < 4 ? 0.5f : r == 4 ? 1.1f : 2;
            assert_ok(
                dev->op.boundary(dev, &at, f, 6, 1, ids, label, centroids, 3, over, ratio, weight));
            for (int i = 0; i < 6; i++) {
                float each = 1.0f / (float)(over ? 6 : rows[r].kept);
                assert_true(fabsf(ratio[i] - want[i]) < 1e-6f);
                assert_true(weight[i] == (want[i] <= sigma ? each : 0));
            }
        }

    /* one cluster: nothing lies between; all tie */
    step_values at = {.keep = 2};
    int32_t zero[6] = {0};
    assert_ok(dev->op.boundary(dev, &at, f, 6, 1, zero, zero, centroids, 1, false, ratio, weight));
    for (int i = 0; i < 6; i++) assert_true(ratio[i] == 0 && weight[i] == 1.0f / 6);

    /* two clusters on one spot, and the point on it */
    float same[] = {1, 1}, point = 1;
    at.keep = 1;
    assert_ok(dev->op.boundary(dev, &at, &point, 1, 1, zero, zero, same, 2, false, ratio, weight));
    assert_true(ratio[0] == 1 && weight[0] == 1);
}

static void rows_and_rings(void **state) {
    (void)state;
    const char from[] = "abcdef";
    char to[9] = {0};
    int32_t ids[] = {2, 0, 2, 1};
    assert_ok(dev->op.rows_take(dev, from, 2, ids, 4, to));
    assert_string_equal(to, "efabefcd");

    float ring[5] = {0}, rows[] = {1, 2, 3};
    step_values at = {.step = 1, .average = 0.75f};
    assert_ok(dev->op.ring_put(dev, &at, rows, 3, 1, ring, 5)); /* 3 4 0 */
    float want[] = {3, 0, 0, 1, 2};
    assert_memory_equal(ring, want, sizeof want);
    at.step = 4000000000u; /* times 3 is beyond 32 bits; 12e9 mod 5 = 0 */
    assert_ok(dev->op.ring_put(dev, &at, rows, 3, 1, ring, 5));
    float again[] = {1, 2, 3, 1, 2};
    assert_memory_equal(ring, again, sizeof again);

    float w[] = {4, 8}, average[] = {0, 4};
    assert_ok(dev->op.average(dev, &at, 2, w, average));
    assert_true(average[0] == 1 && average[1] == 5);
}

static void refuses_devices(void **state) {
    (void)state;
    device *none;
    assert_fails(CONR_EINVAL, "no such device", device_open("gpu", 0, &none));
    assert_null(none);
    assert_fails(CONR_EINVAL, "threads: -1", device_open("cpu", -1, &none));
    assert_fails(CONR_EDEVICE, "no CUDA", device_open("cuda:0", 0, &none));
    void *p;
    assert_fails(CONR_ENOMEM, "not enough memory", dev->op.alloc(dev, SIZE_MAX, &p));
    assert_fails(CONR_ENOMEM, "not enough memory", dev->op.alloc(dev, (size_t)1 << 60, &p));
}

int main(void) {
#define GOLDEN_TEST(f) cmocka_unit_test_teardown(f, free_memory)
    const struct CMUnitTest tests[] = {
        GOLDEN_TEST(convolutions),
        GOLDEN_TEST(batch_norm),
        GOLDEN_TEST(running_statistics_by_pass),
        GOLDEN_TEST(pools),
        GOLDEN_TEST(rows),
        GOLDEN_TEST(sgd),
        GOLDEN_TEST(choices),
        GOLDEN_TEST(gemm),
        GOLDEN_TEST(finite_differences),
        GOLDEN_TEST(losses),
        GOLDEN_TEST(contrast_is_stable),
        GOLDEN_TEST(boundary_filter),
        GOLDEN_TEST(rows_and_rings),
        GOLDEN_TEST(refuses_devices),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
