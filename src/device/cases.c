/* cases.c: the case list, and how each operation is set up, run and compared. */
#include "device/cases.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list -------------------------------------------------------------------------------- */

/* All three directions of one convolution. */
#define CONV(check, time, h, w, ci, co, k, stride, groups, variant)                                \
    {CASE_CONV_FORWARD, check, time, h, w, ci, co, k, stride, groups, variant},                    \
        {CASE_CONV_BACK_DATA, check, time, h, w, ci, co, k, stride, groups, variant}, {            \
        CASE_CONV_BACK_FILTER, check, time, h, w, ci, co, k, stride, groups, variant               \
    }
#define NORM(check, time, h, w, c, groups, variant)                                                \
    {CASE_NORM_FORWARD, check, time, h, w, c, c, 0, 0, groups, variant}, {                         \
        CASE_NORM_BACKWARD, check, time, h, w, c, c, 0, 0, groups, variant                         \
    }
#define POOL(op, check, time, h, w, c, variant)                                                    \
    {op, check, time, h, w, c, c, 0, 0, 1, variant}, {                                             \
        op##_BACK, check, time, h, w, c, c, 0, 0, 1, variant                                       \
    }
#define GEMM(m, n, k, variant)                                                                     \
    { CASE_GEMM, m, m, 1, 1, n, k, 0, 0, 1, variant }
#define ROWS(check, time, d)                                                                       \
    {CASE_ROWS, check, time, 1, 1, d, d, 0, 0, 1, 0}, {                                            \
        CASE_ROWS_BACK, check, time, 1, 1, d, d, 0, 0, 1, 0                                        \
    }
/* k neighbors, and the queue's rows */
#define LOSS(op, n, d, k, queue, variant)                                                          \
    { op, n, n, 1, 1, d, k, queue, 0, 1, variant }

const op_case case_list[] = {
    /* CIFAR ResNet-18 */
    CONV(2, 32, 32, 32, 3, 64, 3, 1, 2, 0),
    CONV(2, 32, 32, 32, 64, 64, 3, 1, 2, 0),
    CONV(2, 32, 32, 32, 64, 128, 3, 2, 2, 0),
    CONV(2, 32, 32, 32, 64, 128, 1, 2, 2, 0),
    CONV(2, 32, 16, 16, 128, 128, 3, 1, 1, 0),
    CONV(2, 32, 16, 16, 128, 256, 3, 2, 1, 0),
    CONV(2, 32, 16, 16, 128, 256, 1, 2, 1, 0),
    CONV(2, 32, 8, 8, 256, 256, 3, 1, 1, 0),
    CONV(1, 32, 8, 8, 256, 512, 3, 2, 1, 0),
    CONV(2, 32, 8, 8, 256, 512, 1, 2, 1, 0),
    CONV(1, 32, 4, 4, 512, 512, 3, 1, 1, 0),
    /* heads */
    CONV(4, 64, 1, 1, 512, 4096, 1, 1, 2, 1),
    CONV(4, 64, 1, 1, 4096, 256, 1, 1, 2, 1),
    /* ImageNet stem, the demo's net */
    CONV(1, 8, 96, 96, 3, 64, 7, 2, 1, 0),
    CONV(2, 256, 28, 28, 1, 16, 3, 2, 2, 0),
    CONV(2, 256, 14, 14, 16, 16, 3, 1, 2, 0),
    CONV(2, 256, 14, 14, 16, 32, 3, 2, 2, 0),
    CONV(2, 256, 7, 7, 32, 32, 3, 1, 2, 0),
    CONV(2, 256, 4, 4, 64, 64, 3, 1, 2, 0),
    /* odd ones */
    CONV(3, 6, 33, 47, 3, 10, 3, 1, 3, 0),
    CONV(2, 6, 17, 24, 5, 7, 3, 1, 1, 2),
    CONV(4, 6, 9, 7, 13, 9, 3, 2, 2, 2),
    CONV(1, 6, 5, 5, 7, 3, 1, 1, 1, 3),
    CONV(2, 6, 4, 6, 64, 72, 3, 1, 2, 2),
    CONV(3, 6, 32, 32, 64, 64, 3, 1, 3, 2),
    CONV(1, 1, 3, 3, 65, 67, 3, 1, 1, 0),
    CONV(2, 8, 37, 45, 16, 20, 3, 1, 2, 2), /* more tiles than Winograd takes at once */
    CONV(4, 8, 30, 31, 36, 16, 3, 1, 1, 0),
    CONV(2, 2, 16, 16, 1, 1, 7, 2, 2, 0),
    CONV(6, 6, 4, 2, 3, 5, 7, 2, 1, 2),   /* a panel of pixels spans many rows of the map */
    CONV(2, 2, 9, 6, 12, 20, 3, 1, 1, 2), /* a panel of channels spans taps */
    CONV(2, 6, 9, 8, 16, 20, 3, 1, 2, 1), /* a bias where Winograd is taken */
    CONV(2, 6, 9, 8, 20, 16, 3, 2, 1, 1),
    /* Winograd's edges, with tiles enough for them: two, three, one outputs in the last tile */
    CONV(10, 10, 14, 14, 16, 16, 3, 1, 2, 0),
    CONV(15, 15, 15, 10, 20, 16, 3, 1, 3, 2),
    CONV(36, 36, 7, 7, 16, 24, 3, 1, 2, 2),
    CONV(39, 39, 5, 13, 16, 16, 3, 1, 1, 0),
    CONV(36, 36, 14, 14, 16, 32, 3, 2, 2, 0),
    CONV(18, 18, 13, 29, 20, 16, 3, 2, 3, 2),
    /* its tiles of six and four outputs: both, sixes alone, two fours, many channels */
    CONV(10, 10, 16, 10, 36, 32, 3, 1, 2, 2),
    CONV(10, 10, 18, 12, 32, 40, 3, 1, 1, 1),
    CONV(6, 6, 14, 32, 32, 32, 3, 1, 3, 0),
    CONV(20, 20, 12, 10, 80, 80, 3, 1, 2, 2),
    /* stems: pixels 1, 2, 3 and 6 numbers apart, outputs that fill no panel, one and many bands */
    CONV(2, 6, 13, 11, 1, 20, 3, 1, 2, 0),
    CONV(1, 6, 70, 83, 1, 17, 3, 2, 1, 2),
    CONV(2, 6, 41, 35, 3, 24, 5, 1, 2, 0),
    CONV(3, 6, 15, 21, 3, 33, 3, 2, 3, 2),
    CONV(2, 6, 9, 10, 3, 16, 1, 1, 1, 0), /* no padding */
    CONV(2, 6, 8, 9, 3, 7, 2, 2, 1, 1),   /* a bias */
    CONV(2, 6, 5, 1, 3, 8, 3, 2, 2, 0),   /* a map one pixel wide */
    CONV(1, 1, 3, 600, 1, 5, 3, 1, 1, 0), /* a row that is more than a band */
    CONV(2, 6, 21, 18, 3, 10, 7, 1, 2, 2),
    CONV(2, 6, 12, 17, 1, 10, 6, 2, 1, 0),
    CONV(2, 6, 7, 8, 3, 10, 1, 2, 1, 0), /* pixels that no output sees */
    CONV(2, 6, 8, 7, 3, 12, 1, 2, 1, 2),

    NORM(4, 32, 32, 32, 64, 2, 0),
    NORM(4, 32, 32, 32, 64, 2, 1),
    NORM(4, 32, 16, 16, 128, 2, 2),
    NORM(4, 32, 4, 4, 512, 1, 1),
    NORM(8, 64, 1, 1, 4096, 2, 0),
    NORM(8, 64, 1, 1, 512, 2, 3),
    NORM(6, 6, 5, 3, 13, 3, 2),

    POOL(CASE_MAX_POOL, 2, 16, 48, 48, 64, 0),
    POOL(CASE_MAX_POOL, 3, 3, 9, 13, 5, 0),
    POOL(CASE_MAX_POOL, 2, 2, 8, 37, 70, 1), /* more than the CPU's gradient takes at once */
    POOL(CASE_MAX_POOL, 2, 2, 1, 2, 3, 1),
    POOL(CASE_MEAN_POOL, 4, 32, 4, 4, 512, 0),
    POOL(CASE_MEAN_POOL, 3, 3, 5, 3, 7, 0),

    GEMM(256, 256, 256, 2),
    GEMM(1024, 1024, 256, 2),
    GEMM(97, 65, 131, 0),
    GEMM(33, 70, 19, 1),
    GEMM(5, 300, 64, 3),
    GEMM(1000, 10, 256, 2),
    GEMM(1, 1, 1, 0),

    ROWS(64, 4096, 256),
    ROWS(5, 5, 7),
    {CASE_TOP_K, 256, 1024, 1, 1, 1024, 10, 0, 0, 1, 1},
    {CASE_TOP_K, 7, 7, 1, 1, 9, 9, 0, 0, 1, 0},
    {CASE_SGD, 1001, 4000000, 1, 1, 1, 1, 0, 0, 1, 0},
    {CASE_SGD, 1001, 4000000, 1, 1, 1, 1, 0, 0, 1, 1},
    {CASE_AVERAGE, 1001, 4000000, 1, 1, 1, 1, 0, 0, 1, 0},
    {CASE_ROWS_TAKE, 256, 4096, 1, 1, 256, 60000, 0, 0, 1, 0},
    {CASE_ROWS_TAKE, 7, 7, 1, 1, 3, 5, 0, 0, 1, 0},
    {CASE_RING_PUT, 256, 256, 1, 1, 128, 4096, 0, 0, 1, 0},
    {CASE_RING_PUT, 5, 5, 1, 1, 3, 7, 0, 0, 1, 0},
    LOSS(CASE_PULL, 256, 256, 10, 0, 3),
    LOSS(CASE_PULL, 256, 256, 1, 0, 0),
    LOSS(CASE_PULL, 5, 7, 3, 0, 1),
    LOSS(CASE_CONTRAST, 128, 128, 10, 4096, 3),
    LOSS(CASE_CONTRAST, 128, 128, 1, 4096, 0),
    LOSS(CASE_CONTRAST, 5, 7, 3, 11, 2),
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 10, 0, 0, 1, 0},
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 1, 0, 0, 1, 0},
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 10, 0, 0, 1, 3},
    {CASE_BOUNDARY, 9, 9, 1, 1, 5, 3, 0, 0, 1, 1},
};
const int case_count = sizeof case_list / sizeof *case_list;

static const char *const names[] = {
    [CASE_CONV_FORWARD] = "conv_forward",
    [CASE_CONV_BACK_DATA] = "conv_back_data",
    [CASE_CONV_BACK_FILTER] = "conv_back_filter",
    [CASE_NORM_FORWARD] = "norm_forward",
    [CASE_NORM_BACKWARD] = "norm_backward",
    [CASE_MAX_POOL] = "max_pool",
    [CASE_MAX_POOL_BACK] = "max_pool_back",
    [CASE_MEAN_POOL] = "mean_pool",
    [CASE_MEAN_POOL_BACK] = "mean_pool_back",
    [CASE_GEMM] = "gemm",
    [CASE_ROWS] = "rows_normalize",
    [CASE_ROWS_BACK] = "rows_normalize_back",
    [CASE_TOP_K] = "top_k",
    [CASE_SGD] = "sgd",
    [CASE_ROWS_TAKE] = "rows_take",
    [CASE_RING_PUT] = "ring_put",
    [CASE_PULL] = "pull",
    [CASE_CONTRAST] = "contrast",
    [CASE_BOUNDARY] = "boundary",
    [CASE_AVERAGE] = "average",
};

const char *case_name(const op_case *c) { return names[c->op]; }

static bool is_conv(const op_case *c) { return c->op <= CASE_CONV_BACK_FILTER; }

/* Operations on activations come first in the list. */
static bool has_acts(const op_case *c) { return c->op <= CASE_MEAN_POOL_BACK; }

static int out_side(const op_case *c, int side) {
    return (side + 2 * (c->k / 2) - c->k) / c->stride + 1;
}

void case_shape_text(const op_case *c, int n, char *out, size_t size) {
    static const char *const norm[] = {"", " + residual", " + shortcut", " relu alone"};
    static const char *const gemm[] = {"A B", "A' B", "A B'", "A' B'"};
    switch (c->op) {
    case CASE_CONV_FORWARD:
    case CASE_CONV_BACK_DATA:
    case CASE_CONV_BACK_FILTER:
        snprintf(out, size, "%dx%dx%dx%d -> %d, %dx%d%s%s%s", n, c->h, c->w, c->ci, c->co, c->k,
                 c->k, c->stride > 1 ? " /2" : "", c->variant & 1 ? " bias" : "",
                 c->variant & 2 ? " add" : "");
        break;
    case CASE_NORM_FORWARD:
    case CASE_NORM_BACKWARD:
        snprintf(out, size, "%dx%dx%dx%d%s", n, c->h, c->w, c->ci, norm[c->variant]);
        break;
    case CASE_MAX_POOL:
    case CASE_MAX_POOL_BACK:
    case CASE_MEAN_POOL:
    case CASE_MEAN_POOL_BACK:
        snprintf(out, size, "%dx%dx%dx%d%s", n, c->h, c->w, c->ci, c->variant ? " with ties" : "");
        break;
    case CASE_GEMM: snprintf(out, size, "%dx%dx%d %s", n, c->ci, c->co, gemm[c->variant]); break;
    case CASE_TOP_K: snprintf(out, size, "%d of %dx%d", c->co, n, c->ci); break;
    case CASE_SGD: snprintf(out, size, "%d, average %s", n, c->variant ? "first" : "last"); break;
    case CASE_AVERAGE: snprintf(out, size, "%d", n); break;
    case CASE_ROWS_TAKE: snprintf(out, size, "%dx%d of %d", n, c->ci, c->co); break;
    case CASE_RING_PUT: snprintf(out, size, "%dx%d into %d", n, c->ci, c->co); break;
    case CASE_PULL:
        snprintf(out, size, "%dx%d, k %d%s", n, c->ci, c->co, c->variant & 2 ? ", filtered" : "");
        break;
    case CASE_CONTRAST:
        snprintf(out, size, "%dx%d, k %d, queue %d%s", n, c->ci, c->co, c->k,
                 c->variant & 2 ? ", filtered" : "");
        break;
    case CASE_BOUNDARY:
        snprintf(out, size, "%dx%d, K %d%s", n, c->ci, c->co, c->variant & 1 ? ", ties" : "");
        break;
    default: snprintf(out, size, "%dx%d", n, c->ci); break;
    }
}

double case_flops(const op_case *c, int n) {
    if (is_conv(c))
        return 2.0 * n * out_side(c, c->h) * out_side(c, c->w) * c->co * c->k * c->k * c->ci;
    if (c->op == CASE_CONTRAST) return 4.0 * n * c->ci * c->k;
    return c->op == CASE_GEMM ? 2.0 * n * c->ci * c->co : 0;
}

double case_bytes(const op_case *c, int n) {
    double map = (double)n * c->h * c->w * c->ci, rows = (double)n * c->ci;
    double touches = 0; /* of floats */
    switch (c->op) {
    case CASE_CONV_FORWARD:
    case CASE_CONV_BACK_DATA:
    case CASE_CONV_BACK_FILTER:
        touches = map + (double)n * out_side(c, c->h) * out_side(c, c->w) * c->co +
                  (double)c->co * c->k * c->k * c->ci;
        break;
    case CASE_NORM_FORWARD: touches = map * (c->variant == 1 || c->variant == 2 ? 3 : 2); break;
    case CASE_NORM_BACKWARD: touches = map * (c->variant == 3 ? 3 : c->variant ? 7 : 5); break;
    case CASE_MAX_POOL: touches = 1.25 * map; break;
    case CASE_MAX_POOL_BACK: touches = 2.25 * map; break;
    case CASE_MEAN_POOL:
    case CASE_MEAN_POOL_BACK: touches = map + rows; break;
    case CASE_GEMM: touches = (double)n * c->co + (double)c->ci * c->co + rows; break;
    case CASE_ROWS: touches = 2 * rows; break;
    case CASE_ROWS_BACK: touches = 3 * rows; break;
    case CASE_SGD: touches = 7.0 * n; break;
    case CASE_AVERAGE: touches = 3.0 * n; break;
    case CASE_ROWS_TAKE:
    case CASE_RING_PUT: touches = 2 * rows; break;
    case CASE_PULL: touches = 3 * rows; break;
    case CASE_CONTRAST: touches = 3 * rows + (double)c->k * c->ci + 3.0 * n * c->k; break;
    default: touches = rows; break;
    }
    return touches * sizeof(float);
}

double case_bound(const op_case *c, int n, act_type type) {
    if (type == ACT_BF16 && has_acts(c))
        return 5e-3;   /* measured 1e-3 to 3e-3: up to three roundings */
    double length = 1; /* of the longest sum */
    if (c->op == CASE_CONV_FORWARD) length = (double)c->k * c->k * c->ci;
    if (c->op == CASE_CONV_BACK_DATA) length = (double)c->k * c->k * c->co;
    if (c->op == CASE_CONV_BACK_FILTER) length = (double)n * c->h * c->w;
    if (c->op == CASE_GEMM) length = c->co;
    if (c->op == CASE_CONTRAST) length = (double)c->k * c->ci;
    if (c->op == CASE_NORM_BACKWARD) length = (double)n * c->h * c->w;
    /* A random walk of roundings is 6e-8 sqrt(length) of the signal at worst; the factor leaves
     * room for Winograd's transforms (measured 2e-6 to 5e-6). */
    return is_conv(c) ? 1e-5 + 6e-8 * sqrt(length) : 2e-6 + 6e-8 * sqrt(length);
}

/* ---- setting up ------------------------------------------------------------------------------ */

enum { SLOTS = 24, OUTPUTS = 6 };

typedef struct output {
    void *p;
    size_t count;
    bool is_act;
} output;

struct trial {
    device *dev;
    op_case c;
    int n;
    void *slot[SLOTS]; /* all device memory, to be freed */
    int n_slots;
    act_type type;  /* that the inputs are rounded to */
    uint32_t drawn; /* tensors drawn so far: each has its own stream */
    output out[OUTPUTS];
    int n_outputs;
    size_t out_count[OUTPUTS];
    float *fetched; /* host */

    conv_plan *plan;
    void *work;
    float *w, *bias, *dw, *dbias, *shift, *sums;
    act *x, *y, *z, *dx, *dy, *extra;
    norm_shape shape;
    normed main, shortcut;
    float *gamma, *beta, *dgamma, *dbeta, *running, *stat, *stat2, *finished;
    float *a, *b, *cc, *v, *average;
    float *queue, *logits, *loss;
    int32_t *ids, *label;
    step_values *at;
};

static int slot(trial *t, size_t bytes, void **out) {
    ASSERT(t->n_slots < SLOTS);
    int rc = t->dev->op.alloc(t->dev, bytes, out);
    if (rc == 0) t->slot[t->n_slots++] = *out;
    return rc;
}

/* The nearest bf16: the upper half of a float's bits, ties to even.  Numbers alone, no NaN. */
static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Device floats with normal numbers of this size about this mean. */
static int floats_of(trial *t, size_t count, double size, double mean, float **out) {
    int rc = 0;
    float *host = memory_new("case", count, sizeof *host);
    if (!host) return CONR_ENOMEM;
    rng r = rng_at(20, 0, t->drawn++, RNG_TEST);
    for (size_t i = 0; i < count; i++) host[i] = (float)(mean + size * rng_normal(&r));
    bool rounded = t->type == ACT_BF16 && has_acts(&t->c) && !isnan(mean);
    for (size_t i = 0; rounded && i < count; i++) host[i] = to_bf16(host[i]);
    TRY(slot(t, count * sizeof **out, (void **)out));
    TRY(t->dev->op.put(t->dev, *out, host, count * sizeof **out));
done:
    free(host);
    return rc;
}

/* Device activations likewise. */
static int acts_of(trial *t, size_t count, double size, act **out) {
    int rc = 0;
    float *drawn = NULL;
    TRY(floats_of(t, count, size, 0, &drawn));
    TRY(slot(t, count * t->dev->act_size, (void **)out));
    TRY(t->dev->op.act_from(t->dev, drawn, count, *out));
    TRY(t->dev->op.sync(t->dev));
    t->dev->op.free(t->dev, drawn); /* slot n_slots-2 */
    t->slot[t->n_slots - 2] = t->slot[t->n_slots - 1];
    t->n_slots--;
done:
    return rc;
}

static void is_output(trial *t, void *p, size_t count, bool is_act) {
    ASSERT(t->n_outputs < OUTPUTS);
    t->out[t->n_outputs++] = (output){p, count, is_act};
}

/* Output memory full of NaN, so that what is not written shows. */
static int result_floats(trial *t, size_t count, float **out) {
    int rc = floats_of(t, count, 0, NAN, out);
    if (rc == 0) is_output(t, *out, count, false);
    return rc;
}

static int result_acts(trial *t, size_t count, act **out) {
    int rc = 0;
    float *nan = NULL;
    TRY(floats_of(t, count, 0, NAN, &nan));
    TRY(slot(t, count * t->dev->act_size, (void **)out));
    TRY(t->dev->op.act_from(t->dev, nan, count, *out));
    TRY(t->dev->op.sync(t->dev));
    is_output(t, *out, count, true);
done:
    return rc;
}

static int open_conv(trial *t) {
    int rc = 0;
    const op_case *c = &t->c;
    bool add = c->variant & 2, bias = c->variant & 1;
    conv_shape s = {t->n, c->h, c->w, c->ci, c->co, c->k, c->stride, c->k / 2, c->groups};
    TRY(t->dev->op.conv_plan_new(t->dev, &s, &t->plan));
    TRY(slot(t, t->plan->workspace, &t->work));
    size_t xs = (size_t)t->n * c->h * c->w * c->ci;
    size_t ys = (size_t)t->n * t->plan->oh * t->plan->ow * c->co;
    size_t ws = (size_t)c->co * c->k * c->k * c->ci;
    double w_size = 1 / sqrt((double)c->k * c->k * c->ci);
    switch (c->op) {
    case CASE_CONV_FORWARD:
        TRY(acts_of(t, xs, 1, &t->x));
        TRY(floats_of(t, ws, w_size, 0, &t->w));
        if (bias) TRY(floats_of(t, c->co, 1, 0, &t->bias));
        TRY(floats_of(t, c->co, 0.1, 0, &t->shift));
        TRY(result_acts(t, ys, &t->y));
        TRY(result_floats(t, 2 * (size_t)c->groups * c->co, &t->sums));
        break;
    case CASE_CONV_BACK_DATA:
        TRY(acts_of(t, ys, 1, &t->dy));
        TRY(floats_of(t, ws, w_size, 0, &t->w));
        if (add) {
            TRY(acts_of(t, xs, 1, &t->dx));
            is_output(t, t->dx, xs, true);
        } else {
            TRY(result_acts(t, xs, &t->dx));
        }
        break;
    default:
        TRY(acts_of(t, xs, 1, &t->x));
        TRY(acts_of(t, ys, 1, &t->dy));
        if (add) {
            TRY(floats_of(t, ws, 1, 0, &t->dw));
            is_output(t, t->dw, ws, false);
            if (bias) TRY(floats_of(t, c->co, 1, 0, &t->dbias));
            if (bias) is_output(t, t->dbias, c->co, false);
        } else {
            TRY(result_floats(t, ws, &t->dw));
            if (bias) TRY(result_floats(t, c->co, &t->dbias));
        }
    }
done:
    return rc;
}

static int run_conv(trial *t) {
    device *dev = t->dev;
    bool add = t->c.variant & 2;
    if (t->c.op == CASE_CONV_FORWARD)
        return dev->op.conv_forward(dev, t->plan, t->x, t->w, t->bias, t->y, t->shift, t->sums,
                                    t->work);
    if (t->c.op == CASE_CONV_BACK_DATA)
        return dev->op.conv_back_data(dev, t->plan, t->dy, t->w, add, t->dx, t->work);
    return dev->op.conv_back_filter(dev, t->plan, t->x, t->dy, add, t->dw, t->dbias, t->work);
}

/* Running statistics: mean as drawn, variance positive. */
static int running_of(trial *t, int c, float **out) {
    return floats_of(t, 2 * (size_t)c, 0.05, 1, out);
}

/* Statistics as norm_finish would give them for y ~ N(0,1): about 0 and 1. */
static int stat_of(trial *t, int c, float **out) {
    int rc = 0;
    float *running;
    TRY(running_of(t, c, &running));
    TRY(slot(t, 2 * (size_t)t->c.groups * c * sizeof **out, (void **)out));
    for (int g = 0; g < t->c.groups; g++)
        TRY(t->dev->op.norm_from_running(t->dev, c, running, *out + 2 * (size_t)g * c));
done:
    return rc;
}

static int open_norm(trial *t) {
    int rc = 0, c = t->c.ci, groups = t->c.groups;
    size_t count = (size_t)t->n * t->c.h * t->c.w * c;
    bool forward = t->c.op == CASE_NORM_FORWARD, norm = t->c.variant != 3;
    bool adds = t->c.variant == 1 || t->c.variant == 2;
    t->shape = (norm_shape){t->n, t->c.h * t->c.w, c, groups};
    TRY(acts_of(t, count, 1, &t->y));
    t->main.y = t->y;
    if (norm) {
        TRY(floats_of(t, c, 0.1, 1, &t->gamma));
        TRY(floats_of(t, c, 0.1, 0, &t->beta));
        TRY(stat_of(t, c, &t->stat));
        t->main = (normed){t->y, t->stat, t->gamma, t->beta};
    }
    if (adds) TRY(acts_of(t, count, 1, &t->extra));
    if (forward) {
        TRY(result_acts(t, count, &t->z));
        if (t->c.variant == 2) {
            TRY(stat_of(t, c, &t->stat2));
            t->shortcut = (normed){t->extra, t->stat2, t->gamma, t->beta};
        }
        if (!norm) goto done;
        TRY(running_of(t, c, &t->running));
        is_output(t, t->running, 2 * (size_t)c, false);
        /* mean 1/2 and variance 1/4 about the shift */
        TRY(floats_of(t, 2 * (size_t)groups * c, 1, 0.5 * (double)count / c / groups, &t->sums));
        TRY(result_floats(t, 2 * (size_t)groups * c, &t->finished));
    } else {
        TRY(acts_of(t, count, 1, &t->dy));
        TRY(result_acts(t, count, &t->dx));
        if (adds) TRY(result_acts(t, count, &t->z));
        if (!norm) goto done;
        TRY(result_floats(t, 2 * (size_t)groups * c, &t->sums));
        TRY(result_floats(t, c, &t->dgamma));
        TRY(result_floats(t, c, &t->dbeta));
    }
done:
    return rc;
}

/* With a residual or shortcut the sign comes from z (here: extra), and the masked gradient goes on
 * to what was added, so it is an output of its own; else the mask is recomputed. */
static int run_norm(trial *t) {
    int rc = 0;
    device *dev = t->dev;
    bool norm = t->c.variant != 3, adds = t->c.variant == 1 || t->c.variant == 2;
    double count = (double)t->n / t->c.groups * t->c.h * t->c.w;
    if (t->c.op == CASE_NORM_FORWARD) {
        if (norm)
            TRY(dev->op.norm_finish(dev, t->c.ci, t->c.groups, 1, count, t->sums, 0.1f, t->running,
                                    t->finished));
        return dev->op.norm_apply(dev, &t->shape, &t->main, t->c.variant == 2 ? &t->shortcut : NULL,
                                  t->c.variant == 1 ? t->extra : NULL, true, t->z);
    }
    if (!norm)
        return dev->op.norm_back_sums(dev, &t->shape, &t->main, NULL, true, t->dy, false, NULL,
                                      NULL, NULL, t->dx);
    TRY(dev->op.norm_back_sums(dev, &t->shape, &t->main, adds ? t->extra : NULL, true, t->dy, false,
                               t->sums, t->dgamma, t->dbeta, adds ? t->z : NULL));
    TRY(dev->op.norm_back_apply(dev, &t->shape, &t->main, NULL, !adds, adds ? t->z : t->dy, t->sums,
                                count, t->dx));
done:
    return rc;
}

static int open_pool(trial *t) {
    int rc = 0;
    const op_case *c = &t->c;
    bool max = c->op == CASE_MAX_POOL || c->op == CASE_MAX_POOL_BACK;
    bool back = c->op == CASE_MAX_POOL_BACK || c->op == CASE_MEAN_POOL_BACK;
    size_t xs = (size_t)t->n * c->h * c->w * c->ci;
    size_t ys = (size_t)t->n * c->ci * (max ? (size_t)((c->h + 1) / 2) * ((c->w + 1) / 2) : 1);
    TRY(acts_of(t, xs, 1, &t->x));
    if (c->variant) { /* behind a ReLU many maxima are zeros side by side */
        norm_shape all = {t->n, c->h * c->w, c->ci, 1};
        TRY(t->dev->op.norm_apply(t->dev, &all, &(normed){.y = t->x}, NULL, NULL, true, t->x));
    }
    if (back) {
        TRY(acts_of(t, ys, 1, &t->dy));
        TRY(result_acts(t, xs, &t->dx));
    } else {
        TRY(result_acts(t, ys, &t->y));
    }
done:
    return rc;
}

static int run_pool(trial *t) {
    device *dev = t->dev;
    pool_shape s = {t->n, t->c.h, t->c.w, t->c.ci};
    switch (t->c.op) {
    case CASE_MAX_POOL: return dev->op.max_pool(dev, &s, t->x, t->y);
    case CASE_MAX_POOL_BACK: return dev->op.max_pool_back(dev, &s, t->x, t->dy, t->dx);
    case CASE_MEAN_POOL: return dev->op.mean_pool(dev, &s, t->x, t->y);
    default: return dev->op.mean_pool_back(dev, &s, t->dy, t->dx);
    }
}

/* Random whole numbers from low to high - 1. */
static int ints_of(trial *t, size_t count, int low, int high, int32_t **out) {
    int rc = 0;
    int32_t *host = memory_new("case", count, sizeof *host);
    if (!host) return CONR_ENOMEM;
    rng r = rng_at(20, 1, t->drawn++, RNG_TEST);
    for (size_t i = 0; i < count; i++)
        host[i] = low + (int32_t)rng_below(&r, (uint32_t)(high - low));
    TRY(slot(t, count * sizeof *host, (void **)out));
    TRY(t->dev->op.put(t->dev, *out, host, count * sizeof *host));
    TRY(t->dev->op.sync(t->dev));
done:
    free(host);
    return rc;
}

/* Three quarters of the rows pass the filter; the ring is about to wrap around. */
static int step_of(trial *t) {
    int rc = 0;
    step_values at = {.lr = {0.01f, 0.1f}, .momentum = 0.9f, .decay = 5e-4f, .average = 0.99f};
    at.keep = t->n * 3 / 4;
    at.step = t->c.op == CASE_RING_PUT ? (uint32_t)(t->c.co / t->n) : 3;
    TRY(slot(t, sizeof at, (void **)&t->at));
    TRY(t->dev->op.put(t->dev, t->at, &at, sizeof at));
    TRY(t->dev->op.sync(t->dev));
done:
    return rc;
}

static int open_rows(trial *t) {
    int rc = 0, ci = t->c.ci, co = t->c.co;
    size_t n = (size_t)t->n, size = n * ci;
    switch (t->c.op) {
    case CASE_GEMM: /* [n,co] x [co,ci] */
        TRY(floats_of(t, n * co, 1, 0, &t->a));
        TRY(floats_of(t, (size_t)ci * co, 1, 0, &t->b));
        TRY(result_floats(t, size, &t->cc));
        break;
    case CASE_ROWS:
        TRY(floats_of(t, size, 3, 0, &t->a));
        TRY(result_floats(t, size, &t->b));
        TRY(result_floats(t, n, &t->cc));
        break;
    case CASE_ROWS_BACK:
        TRY(floats_of(t, size, 1 / sqrt(ci), 0, &t->a));
        TRY(floats_of(t, n, 0.1, 2, &t->b));
        TRY(floats_of(t, size, 1, 0, &t->cc));
        TRY(result_floats(t, size, &t->v));
        break;
    case CASE_TOP_K: /* only values are compared: equal numbers may come in any order elsewhere */
        TRY(floats_of(t, size, 1, 0, &t->a));
        TRY(slot(t, n * co * sizeof *t->ids, (void **)&t->ids));
        TRY(result_floats(t, n * co, &t->cc));
        break;
    default:
        TRY(floats_of(t, n, 1, 0, &t->w));
        TRY(floats_of(t, n, 1, 0, &t->average));
        is_output(t, t->average, n, false);
        TRY(step_of(t));
        if (t->c.op == CASE_AVERAGE) break;
        TRY(floats_of(t, n, 1, 0, &t->dw));
        TRY(floats_of(t, n, 1, 0, &t->v));
        is_output(t, t->w, n, false);
        is_output(t, t->v, n, false);
    }
done:
    return rc;
}

static int run_rows(trial *t) {
    device *dev = t->dev;
    int n = t->n, ci = t->c.ci, co = t->c.co;
    bool ta = t->c.variant & 1, tb = t->c.variant & 2;
    switch (t->c.op) {
    case CASE_GEMM:
        return dev->op.gemm(dev, ta, tb, n, ci, co, 1, t->a, ta ? n : co, t->b, tb ? co : ci, 0,
                            t->cc, ci);
    case CASE_ROWS: return dev->op.rows_normalize(dev, t->a, n, ci, t->b, t->cc);
    case CASE_ROWS_BACK: return dev->op.rows_normalize_back(dev, t->a, t->b, t->cc, n, ci, t->v);
    case CASE_TOP_K:
        return dev->op.top_k(dev, t->a, n, ci, ci, t->c.variant && n <= ci ? 0 : -1, co, t->ids,
                             t->cc);
    case CASE_AVERAGE: return dev->op.average(dev, t->at, (size_t)n, t->w, t->average);
    default:
        return dev->op.sgd(dev, t->at, 1, t->c.variant, 1, (size_t)n, t->w, t->dw, t->v,
                           t->average);
    }
}

/* ---- losses, and what goes with them --------------------------------------------------------- */

/* Unit rows, each `times` times. */
static int unit_rows(trial *t, int n, int d, int times, float **out) {
    int rc = 0;
    float *drawn, *norm;
    int32_t *ids;
    TRY(floats_of(t, (size_t)n * d, 1, 0, &drawn));
    TRY(floats_of(t, (size_t)n, 0, 0, &norm));
    TRY(slot(t, (size_t)n * d * sizeof **out, (void **)out));
    TRY(t->dev->op.rows_normalize(t->dev, drawn, n, d, *out, norm));
    if (times > 1) {
        TRY(ints_of(t, (size_t)n, 0, n / times, &ids));
        TRY(t->dev->op.copy(t->dev, drawn, *out, (size_t)n * d * sizeof **out));
        TRY(t->dev->op.rows_take(t->dev, drawn, (size_t)d * sizeof **out, ids, n, *out));
    }
    TRY(t->dev->op.sync(t->dev));
done:
    return rc;
}

/* Weights of the rows: some zero, as the filter gives them. */
static int weights_of(trial *t) {
    int rc = 0;
    float *host = memory_new("case", (size_t)t->n, sizeof *host);
    if (!host) return CONR_ENOMEM;
    for (int i = 0; i < t->n; i++) host[i] = i % 5 == 2 ? 0 : 1.25f / (float)t->n;
    TRY(slot(t, (size_t)t->n * sizeof *host, (void **)&t->w));
    TRY(t->dev->op.put(t->dev, t->w, host, (size_t)t->n * sizeof *host));
    TRY(t->dev->op.sync(t->dev));
done:
    free(host);
    return rc;
}

static int open_loss(trial *t) {
    int rc = 0, n = t->n, d = t->c.ci, co = t->c.co;
    size_t size = (size_t)n * d;
    switch (t->c.op) {
    case CASE_ROWS_TAKE:
        TRY(floats_of(t, (size_t)co * d, 1, 0, &t->a));
        TRY(ints_of(t, (size_t)n, 0, co, &t->ids));
        TRY(result_floats(t, size, &t->b));
        break;
    case CASE_RING_PUT:
        TRY(step_of(t));
        TRY(floats_of(t, size, 1, 0, &t->a));
        TRY(floats_of(t, (size_t)co * d, 1, 0, &t->b));
        is_output(t, t->b, (size_t)co * d, false);
        break;
    case CASE_BOUNDARY:
        TRY(step_of(t));
        TRY(unit_rows(t, n, d, t->c.variant & 1 ? 3 : 1, &t->a));
        TRY(floats_of(t, (size_t)co * d, 0.5 / sqrt(d), 0, &t->b));
        TRY(ints_of(t, (size_t)n, 0, 3 * n, &t->ids));
        TRY(ints_of(t, 3 * (size_t)n, 0, co, &t->label));
        TRY(result_floats(t, (size_t)n, &t->cc));
        TRY(result_floats(t, (size_t)n, &t->v));
        break;
    default: /* pull, contrast */
        TRY(unit_rows(t, n, d, 1, &t->a));
        TRY(unit_rows(t, n, d, 1, &t->b));
        if (t->c.variant & 1) TRY(ints_of(t, (size_t)n * co, 0, n, &t->ids));
        if (t->c.variant & 2) TRY(weights_of(t));
        TRY(floats_of(t, 1, 0, 0, &t->loss));
        is_output(t, t->loss, 1, false);
        TRY(result_floats(t, size, &t->cc));
        if (t->c.op == CASE_PULL) break;
        TRY(unit_rows(t, t->c.k, d, 1, &t->queue));
        TRY(floats_of(t, (size_t)n * t->c.k, 0, 0, &t->logits));
    }
done:
    return rc;
}

static int run_loss(trial *t) {
    device *dev = t->dev;
    int n = t->n, d = t->c.ci, co = t->c.co, k = t->ids ? co : 1;
    switch (t->c.op) {
    case CASE_ROWS_TAKE:
        return dev->op.rows_take(dev, t->a, (size_t)d * sizeof *t->a, t->ids, n, t->b);
    case CASE_RING_PUT: return dev->op.ring_put(dev, t->at, t->a, n, d, t->b, co);
    case CASE_PULL:
        return dev->op.pull(dev, t->a, t->b, n, d, t->ids, k, t->w, 0.5f, t->loss, t->cc);
    case CASE_CONTRAST:
        return dev->op.contrast(dev, t->a, t->b, n, d, t->ids, k, t->w, 0.5f, t->queue, t->c.k,
                                0.1f, t->logits, t->loss, t->cc);
    default:
        return dev->op.boundary(dev, t->at, t->a, n, d, t->ids, t->label, t->b, co,
                                t->c.variant & 2, t->cc, t->v);
    }
}

static bool is_norm(const op_case *c) {
    return c->op == CASE_NORM_FORWARD || c->op == CASE_NORM_BACKWARD;
}

static bool is_pool(const op_case *c) {
    return c->op >= CASE_MAX_POOL && c->op <= CASE_MEAN_POOL_BACK;
}

static bool is_loss(const op_case *c) { return c->op >= CASE_ROWS_TAKE && c->op <= CASE_BOUNDARY; }

int trial_new(device *dev, const op_case *c, int n, trial **out) {
    return trial_new_as(dev, dev->type, c, n, out);
}

int trial_new_as(device *dev, act_type type, const op_case *c, int n, trial **out) {
    trial *t = *out = calloc(1, sizeof *t);
    if (!t) return fail_memory("case", sizeof *t);
    t->dev = dev;
    t->type = type;
    t->c = *c;
    t->n = n;
    int rc = is_conv(c)   ? open_conv(t)
             : is_norm(c) ? open_norm(t)
             : is_pool(c) ? open_pool(t)
             : is_loss(c) ? open_loss(t)
                          : open_rows(t);
    if (rc < 0) {
        trial_free(t);
        *out = NULL;
    }
    return rc;
}

void trial_free(trial *t) {
    if (!t) return;
    if (t->plan) t->dev->op.conv_plan_free(t->dev, t->plan);
    for (int i = 0; i < t->n_slots; i++) t->dev->op.free(t->dev, t->slot[i]);
    free(t->fetched);
    free(t);
}

int trial_run(trial *t) {
    return is_conv(&t->c)   ? run_conv(t)
           : is_norm(&t->c) ? run_norm(t)
           : is_pool(&t->c) ? run_pool(t)
           : is_loss(&t->c) ? run_loss(t)
                            : run_rows(t);
}

/* ---- comparing ------------------------------------------------------------------------------- */

int trial_outputs(trial *t, int *n, const float **values, const size_t **counts) {
    int rc = 0;
    size_t total = 0, at = 0, largest = 0;
    for (int i = 0; i < t->n_outputs; i++) {
        total += t->out_count[i] = t->out[i].count;
        if (t->out[i].count > largest) largest = t->out[i].count;
    }
    free(t->fetched);
    t->fetched = memory_new("case", total, sizeof *t->fetched);
    void *staging = NULL; /* device floats, for activations */
    if (!t->fetched) return CONR_ENOMEM;
    TRY(t->dev->op.alloc(t->dev, largest * sizeof(float), &staging));
    for (int i = 0; i < t->n_outputs; at += t->out[i++].count) {
        const output *o = &t->out[i];
        if (o->is_act) TRY(t->dev->op.act_to(t->dev, o->p, o->count, staging));
        TRY(t->dev->op.get(t->dev, t->fetched + at, o->is_act ? staging : o->p,
                           o->count * sizeof(float)));
    }
    *n = t->n_outputs;
    *values = t->fetched;
    *counts = t->out_count;
done:
    t->dev->op.free(t->dev, staging);
    return rc;
}

int trial_compare(trial *got, trial *want, double *error) {
    int rc = 0, n, m;
    const float *a, *b;
    const size_t *counts, *others;
    TRY(trial_outputs(got, &n, &a, &counts));
    TRY(trial_outputs(want, &m, &b, &others));
    ASSERT(n == m);
    *error = 0;
    for (int i = 0; i < n; a += counts[i], b += counts[i], i++) {
        double difference = 0, size = 0;
        ASSERT(counts[i] == others[i]);
        for (size_t j = 0; j < counts[i]; j++) {
            double e = (double)a[j] - b[j];
            difference += e * e;
            size += (double)b[j] * b[j];
        }
        double relative = sqrt(difference / (size > 0 ? size : 1));
        if (!(relative <= *error)) *error = isnan(relative) ? INFINITY : relative;
    }
done:
    return rc;
}
