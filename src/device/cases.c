/* cases.c: the list of cases, and what is known of each before it runs: its name, its shape in
 * words, how much it computes and moves, how far it may be off. */
#include "device/cases.h"

#include <math.h>
#include <stdio.h>

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
#define DENSE(check, time, ci, co, variant)                                                        \
    { CASE_DENSE, check, time, 1, 1, ci, co, 0, 0, 1, variant }
/* n images of `queries` and `keys` rows, heads of d values */
#define ATTENTION(check, time, queries, keys, heads, d, variant)                                   \
    { CASE_ATTENTION, check, time, queries, keys, d, heads, 0, 0, 1, variant }
/* k neighbors; queue: its rows */
#define LOSS(op, n, d, k, queue, variant)                                                          \
    { op, n, n, 1, 1, d, k, queue, 0, 1, variant }

/* images of up to h x w pixels, view 0, 1 or 2, short side */
#define VIEWS(check, time, h, w, c, size, view, side, variant)                                     \
    { CASE_VIEWS, check, time, h, w, c, size, view, side, 1, variant }

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
    /* bottlenecks; smaller maps than at 224 pixels, because ref is slow */
    CONV(1, 32, 56, 56, 64, 64, 1, 1, 1, 0),
    CONV(1, 32, 7, 7, 1024, 256, 1, 1, 1, 0),
    CONV(1, 32, 4, 4, 512, 2048, 1, 1, 1, 0),
    /* projector and predictor */
    CONV(4, 64, 1, 1, 512, 4096, 1, 1, 2, 1),
    CONV(4, 64, 1, 1, 4096, 256, 1, 1, 2, 1),
    /* the ImageNet stem, and the network of the demo */
    CONV(1, 8, 96, 96, 3, 64, 7, 2, 1, 0),
    CONV(2, 256, 28, 28, 1, 16, 3, 2, 2, 0),
    CONV(2, 256, 14, 14, 16, 16, 3, 1, 2, 0),
    CONV(2, 256, 14, 14, 16, 32, 3, 2, 2, 0),
    CONV(2, 256, 7, 7, 32, 32, 3, 1, 2, 0),
    CONV(2, 256, 4, 4, 64, 64, 3, 1, 2, 0),
    /* odd shapes */
    CONV(3, 6, 33, 47, 3, 10, 3, 1, 3, 0),
    CONV(2, 6, 17, 24, 5, 7, 3, 1, 1, 2),
    CONV(4, 6, 9, 7, 13, 9, 3, 2, 2, 2),
    CONV(1, 6, 5, 5, 7, 3, 1, 1, 1, 3),
    CONV(2, 6, 4, 6, 64, 72, 3, 1, 2, 2),
    CONV(3, 6, 32, 32, 64, 64, 3, 1, 3, 2),
    CONV(1, 1, 3, 3, 65, 67, 3, 1, 1, 0),
    CONV(2, 8, 37, 45, 16, 20, 3, 1, 2, 2), /* more tiles than a Winograd block holds */
    CONV(4, 8, 30, 31, 36, 16, 3, 1, 1, 0),
    CONV(2, 2, 16, 16, 1, 1, 7, 2, 2, 0),
    CONV(6, 6, 4, 2, 3, 5, 7, 2, 1, 2),   /* a panel of pixels spans many rows of the map */
    CONV(2, 2, 9, 6, 12, 20, 3, 1, 1, 2), /* a panel of channels spans taps */
    CONV(2, 6, 9, 8, 16, 20, 3, 1, 2, 1), /* a bias with Winograd */
    CONV(2, 6, 9, 8, 20, 16, 3, 2, 1, 1),
    /* stride 2 at the border: one side odd; a last row or column that no output sees, or one does */
    CONV(2, 6, 10, 15, 20, 24, 3, 2, 2, 2),
    CONV(2, 6, 9, 12, 20, 16, 1, 2, 1, 0),
    CONV(3, 6, 8, 7, 16, 24, 1, 2, 3, 2),
    CONV(2, 6, 15, 18, 20, 8, 7, 2, 1, 0),
    /* Winograd edges, with enough tiles to have them: two, three, one outputs in the last tile */
    CONV(10, 10, 14, 14, 16, 16, 3, 1, 2, 0),
    CONV(15, 15, 15, 10, 20, 16, 3, 1, 3, 2),
    CONV(36, 36, 7, 7, 16, 24, 3, 1, 2, 2),
    CONV(39, 39, 5, 13, 16, 16, 3, 1, 1, 0),
    CONV(36, 36, 14, 14, 16, 32, 3, 2, 2, 0),
    CONV(18, 18, 13, 29, 20, 16, 3, 2, 3, 2),
    /* Winograd tiles of six and four outputs: both, only sixes, two fours, many channels */
    CONV(10, 10, 16, 10, 36, 32, 3, 1, 2, 2),
    CONV(10, 10, 18, 12, 32, 40, 3, 1, 1, 1),
    CONV(6, 6, 14, 32, 32, 32, 3, 1, 3, 0),
    CONV(20, 20, 12, 10, 80, 80, 3, 1, 2, 2),
    /* stems: pixels 1, 2, 3 and 6 floats apart, outputs that fill no panel, one band and many */
    CONV(2, 6, 13, 11, 1, 20, 3, 1, 2, 0),
    CONV(1, 6, 70, 83, 1, 17, 3, 2, 1, 2),
    CONV(2, 6, 41, 35, 3, 24, 5, 1, 2, 0),
    CONV(3, 6, 15, 21, 3, 33, 3, 2, 3, 2),
    CONV(2, 6, 9, 10, 3, 16, 1, 1, 1, 0), /* no padding */
    CONV(2, 6, 8, 9, 3, 7, 2, 2, 1, 1),   /* a bias */
    CONV(2, 6, 5, 1, 3, 8, 3, 2, 2, 0),   /* a map one pixel wide */
    CONV(1, 1, 3, 600, 1, 5, 3, 1, 1, 0), /* a row longer than a band */
    CONV(2, 6, 21, 18, 3, 10, 7, 1, 2, 2),
    CONV(2, 6, 12, 17, 1, 10, 6, 2, 1, 0),
    CONV(2, 6, 7, 8, 3, 10, 1, 2, 1, 0), /* pixels that no output sees */
    CONV(2, 6, 8, 7, 3, 12, 1, 2, 1, 2),

    NORM(4, 32, 32, 32, 64, 2, 0),
    NORM(4, 32, 32, 32, 64, 2, 1),
    NORM(4, 32, 16, 16, 128, 2, 2),
    NORM(4, 32, 4, 4, 512, 1, 1),
    NORM(4, 32, 7, 7, 2048, 1, 2),
    NORM(8, 64, 1, 1, 4096, 2, 0),
    NORM(8, 64, 1, 1, 512, 2, 3),
    NORM(6, 6, 5, 3, 13, 3, 2),

    POOL(CASE_MAX_POOL, 2, 16, 48, 48, 64, 0),
    POOL(CASE_MAX_POOL, 3, 3, 9, 13, 5, 0),
    POOL(CASE_MAX_POOL, 2, 2, 8, 37, 70, 1), /* more than one tile of the CPU gradient */
    POOL(CASE_MAX_POOL, 2, 2, 1, 2, 3, 1),
    POOL(CASE_MEAN_POOL, 4, 32, 4, 4, 512, 0),
    POOL(CASE_MEAN_POOL, 4, 32, 7, 7, 2048, 0),
    POOL(CASE_MEAN_POOL, 3, 3, 5, 3, 7, 0),

    /* ViT-S/14 at 224 pixels, then odd shapes */
    DENSE(64, 8224, 384, 1152, 0),
    DENSE(64, 8224, 384, 384, 4),
    DENSE(64, 8224, 384, 1536, 1),
    DENSE(64, 8224, 1536, 384, 4),
    DENSE(33, 33, 588, 70, 2),
    DENSE(50, 50, 40, 37, 3),
    DENSE(13, 13, 300, 5, 7),
    DENSE(1, 1, 1, 1, 5),
    {CASE_LAYER_NORM, 64, 8224, 1, 1, 384, 384, 0, 0, 1, 0},
    {CASE_LAYER_NORM, 5, 5, 1, 1, 37, 37, 0, 0, 1, 0},
    {CASE_LAYER_NORM, 3, 3, 1, 1, 2, 2, 0, 0, 1, 0},
    ATTENTION(1, 32, 257, 257, 6, 64, 2),
    ATTENTION(1, 32, 197, 197, 2, 64, 2),
    ATTENTION(2, 32, 261, 261, 1, 64, 2),
    ATTENTION(2, 32, 50, 50, 3, 64, 2),
    ATTENTION(1, 1, 64, 128, 2, 64, 2), /* whole tiles only */
    ATTENTION(1, 1, 300, 63, 1, 32, 2),
    ATTENTION(1, 1, 33, 65, 2, 24, 2), /* heads that fill no tile */
    ATTENTION(2, 2, 47, 150, 2, 72, 2),
    ATTENTION(1, 1, 70, 81, 1, 96, 2),
    ATTENTION(1, 1, 145, 130, 1, 128, 2),
    ATTENTION(2, 2, 1, 196, 3, 64, 3),
    ATTENTION(3, 3, 1, 257, 2, 64, 2),
    ATTENTION(1, 1, 57, 57, 6, 64, 0), /* rows that start anywhere */
    ATTENTION(1, 8, 50, 50, 2, 72, 0),
    ATTENTION(2, 2, 1, 196, 3, 64, 1), /* pooling */
    ATTENTION(3, 3, 1, 65, 2, 32, 0),  /* the last block, of which one row is needed */
    ATTENTION(1, 1, 13, 700, 1, 16, 0),
    ATTENTION(2, 2, 3, 1, 2, 7, 0),
    ATTENTION(1, 1, 37, 29, 1, 5, 0),
    {CASE_TOKENS, 3, 32, 256, 1, 384, 5, 0, 0, 1, 0},
    {CASE_TOKENS, 2, 2, 7, 1, 13, 0, 0, 0, 1, 0},

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
    /* K in the place of k */
    LOSS(CASE_PROTOTYPES, 256, 256, 10, 0, 0),
    LOSS(CASE_PROTOTYPES, 512, 256, 200, 0, 0), /* some of them absent */
    LOSS(CASE_PROTOTYPES, 9, 300, 1000, 0, 0),  /* most; more columns than a block has threads */
    LOSS(CASE_PROTOTYPES, 300, 5, 1100, 0, 0),
    LOSS(CASE_PROTOTYPES, 16, 7, 1, 0, 0), /* nothing to scatter */
    LOSS(CASE_PROTOTYPES, 256, 256, 10, 0, 1),
    LOSS(CASE_PROTOTYPES, 70, 300, 90, 0, 1),
    LOSS(CASE_PROTOTYPES, 4, 5, 2, 0, 1),
    LOSS(CASE_PULL_ALIKE, 256, 256, 10, 0, 0),
    LOSS(CASE_PULL_ALIKE, 9, 300, 1000, 0, 0),
    LOSS(CASE_PULL_ALIKE, 600, 5, 3, 0, 0),
    LOSS(CASE_PULL_ALIKE, 1, 5, 1, 0, 0), /* the row takes no part */
    /* the most neighbors in the place of a queue */
    LOSS(CASE_CONFIDENT, 256, 256, 10, 50, 0),
    LOSS(CASE_CONFIDENT, 512, 256, 10, 50, 0),
    LOSS(CASE_CONFIDENT, 300, 17, 2, 1000, 0),
    LOSS(CASE_CONFIDENT, 1100, 8, 3, 5, 0), /* more rows than a block has threads */
    LOSS(CASE_CONFIDENT, 33, 7, 1, 50, 0),  /* no other label */
    LOSS(CASE_CONFIDENT, 1, 3, 4, 50, 0),   /* no neighbor */
    {CASE_NOISE, 64, 1024, 1, 1, 256, 256, 0, 0, 1, 0},
    {CASE_NOISE, 5, 5, 1, 1, 7, 7, 0, 0, 1, 0},
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 10, 0, 0, 1, 0},
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 1, 0, 0, 1, 0},
    {CASE_BOUNDARY, 256, 256, 1, 1, 256, 10, 0, 0, 1, 3},
    {CASE_BOUNDARY, 9, 9, 1, 1, 5, 3, 0, 0, 1, 1},

    /* views: CIFAR-10, gray digits, photographs at 96 and 224 pixels, stages 1 and 2 */
    VIEWS(24, 256, 32, 32, 3, 32, 0, 0, 4),
    VIEWS(24, 256, 32, 32, 3, 32, 1, 0, 4 | 8),
    VIEWS(24, 256, 28, 28, 1, 28, 0, 0, 4),
    VIEWS(24, 256, 64, 64, 3, 64, 0, 0, 4),
    VIEWS(6, 256, 96, 96, 3, 96, 0, 0, 4),
    VIEWS(24, 256, 150, 150, 3, 96, 0, 0, 0),
    VIEWS(8, 256, 290, 380, 3, 96, 1, 0, 8), /* boxes too large for shared memory */
    VIEWS(4, 256, 300, 340, 3, 224, 0, 0, 1),
    VIEWS(4, 256, 300, 340, 3, 224, 1, 0, 8),
    VIEWS(24, 256, 32, 32, 3, 32, 0, 0, 1 | 2 | 4),
    VIEWS(24, 256, 90, 70, 3, 96, 0, 0, 1 | 2), /* all smaller than the view */
    VIEWS(24, 256, 30, 31, 3, 32, 0, 0, 0),     /* all smaller, and few pixels */
    VIEWS(24, 256, 45, 50, 1, 32, 1, 0, 3),
    /* odd ones: a pixel or a few, long and narrow, much reduced */
    VIEWS(24, 24, 7, 5, 3, 3, 0, 0, 3),
    VIEWS(24, 24, 9, 9, 1, 1, 0, 0, 1),
    VIEWS(24, 24, 1, 40, 3, 16, 0, 0, 1),
    VIEWS(24, 24, 400, 3, 3, 17, 1, 0, 0),
    VIEWS(6, 6, 900, 700, 3, 20, 0, 0, 3),
    VIEWS(6, 6, 900, 700, 1, 33, 1, 0, 8),
    /* without randomness: as it is, squashed, short side and center */
    VIEWS(24, 512, 32, 32, 3, 32, 2, 0, 4),
    VIEWS(24, 512, 150, 150, 3, 96, 2, 0, 0),
    VIEWS(4, 512, 300, 340, 3, 224, 2, 256, 0),
    VIEWS(8, 256, 290, 380, 3, 96, 2, 96, 0),
    VIEWS(24, 24, 45, 50, 1, 32, 2, 40, 0),
    VIEWS(24, 24, 48, 48, 3, 32, 2, 48, 4), /* only cut out */
    VIEWS(24, 24, 49, 49, 3, 32, 2, 49, 4), /* with an odd rest */
    VIEWS(24, 24, 1, 40, 3, 16, 2, 0, 0),
    VIEWS(24, 24, 400, 3, 3, 17, 2, 20, 0),
    VIEWS(3, 3, 20, 3000, 3, 16, 2, 0, 4), /* more weights than shared memory holds */
};
const int case_count = sizeof case_list / sizeof *case_list;

/* ---- about a case ---------------------------------------------------------------------------- */

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
    [CASE_NOISE] = "noise",
    [CASE_VIEWS] = "views",
    [CASE_DENSE] = "dense",
    [CASE_LAYER_NORM] = "layer_norm",
    [CASE_ATTENTION] = "attention",
    [CASE_TOKENS] = "tokens",
    [CASE_GEMM] = "gemm",
    [CASE_ROWS] = "rows_normalize",
    [CASE_ROWS_BACK] = "rows_normalize_back",
    [CASE_TOP_K] = "top_k",
    [CASE_SGD] = "sgd",
    [CASE_ROWS_TAKE] = "rows_take",
    [CASE_RING_PUT] = "ring_put",
    [CASE_PULL] = "pull",
    [CASE_CONTRAST] = "contrast",
    [CASE_PROTOTYPES] = "prototypes",
    [CASE_PULL_ALIKE] = "pull_alike",
    [CASE_CONFIDENT] = "confident",
    [CASE_BOUNDARY] = "boundary",
    [CASE_AVERAGE] = "average",
};

const char *case_name(const op_case *c) { return names[c->op]; }

static bool is_conv(const op_case *c) { return c->op <= CASE_CONV_BACK_FILTER; }

bool case_has_acts(const op_case *c) { return c->op <= CASE_TOKENS; }

static int out_side(const op_case *c, int side) {
    return (side + 2 * (c->k / 2) - c->k) / c->stride + 1;
}

void case_shape_text(const op_case *c, int n, char *out, size_t size) {
    static const char *const norm[] = {"", " + residual", " + shortcut", " relu only"};
    static const char *const gelu[] = {"", " gelu", " quick gelu", " tanh gelu"};
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
    case CASE_DENSE:
        snprintf(out, size, "%dx%d -> %d%s%s", n, c->ci, c->co, gelu[c->variant & 3],
                 c->variant & 4 ? " + residual" : "");
        break;
    case CASE_ATTENTION:
        snprintf(out, size, "%dx%d of %d, %d heads of %d%s", n, c->h, c->w, c->co, c->ci,
                 c->variant & 1 ? ", one query" : "");
        break;
    case CASE_TOKENS: snprintf(out, size, "%dx%d+%dx%d", n, c->co, c->h, c->ci); break;
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
    case CASE_PROTOTYPES:
        snprintf(out, size, "%dx%d, K %d%s", n, c->ci, c->co, c->variant & 1 ? ", filtered" : "");
        break;
    case CASE_PULL_ALIKE: snprintf(out, size, "%dx%d, K %d", n, c->ci, c->co); break;
    case CASE_CONFIDENT: snprintf(out, size, "%dx%d, K %d, k to %d", n, c->ci, c->co, c->k); break;
    case CASE_VIEWS:
        snprintf(out, size, "%dx%s%dx%dx%d -> %d, %s%s%s", n, c->variant & 4 ? "" : "to ", c->h,
                 c->w, c->ci, c->co,
                 c->k == 2 ? "plain"
                 : c->k    ? "b"
                           : "a",
                 c->variant & 1 ? " blur" : "", c->stride ? " center" : "");
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
    if (c->op == CASE_ATTENTION) return 4.0 * n * c->h * c->w * c->ci * c->co;
    return c->op == CASE_GEMM || c->op == CASE_DENSE ? 2.0 * n * c->ci * c->co : 0;
}

double case_bytes(const op_case *c, int n) {
    double map = (double)n * c->h * c->w * c->ci, rows = (double)n * c->ci;
    double touches = 0; /* floats read or written */
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
    case CASE_LAYER_NORM: touches = 2 * rows; break;
    case CASE_ATTENTION: touches = 2.0 * n * (c->h + c->w) * c->ci * c->co; break;
    case CASE_TOKENS: touches = 2.0 * n * (c->h + c->co) * c->ci; break;
    case CASE_DENSE:
        touches = (double)c->ci * c->co + rows + (double)n * c->co * (c->variant & 4 ? 2 : 1);
        break;
    case CASE_GEMM: touches = (double)n * c->co + (double)c->ci * c->co + rows; break;
    case CASE_ROWS: touches = 2 * rows; break;
    case CASE_ROWS_BACK: touches = 3 * rows; break;
    case CASE_SGD: touches = 7.0 * n; break;
    case CASE_AVERAGE: touches = 3.0 * n; break;
    case CASE_ROWS_TAKE:
    case CASE_RING_PUT: touches = 2 * rows; break;
    case CASE_PULL:
    case CASE_PROTOTYPES: touches = 3 * rows; break;
    case CASE_PULL_ALIKE: touches = 4 * rows; break;
    case CASE_CONFIDENT: touches = 5 * rows + 2.0 * n * n; break;
    case CASE_NOISE: touches = 2 * rows; break;
    case CASE_VIEWS: touches = (double)n * c->co * c->co * c->ci + map / sizeof(float); break;
    case CASE_CONTRAST: touches = 3 * rows + (double)c->k * c->ci + 3.0 * n * c->k; break;
    default: touches = rows; break;
    }
    return touches * sizeof(float);
}

double case_bound(const op_case *c, int n, act_type type) {
    if (type == ACT_BF16 && case_has_acts(c))
        return 5e-3; /* measured 1e-3 to 3e-3: up to three roundings */
    /* rounding of a few weights and of the mean, with values up to 3 deviations from 0; a pixel
     * that is one place off is seen at 1e-2 */
    if (c->op == CASE_VIEWS) return 1e-5;
    double length = 1; /* of the longest sum */
    if (c->op == CASE_CONV_FORWARD) length = (double)c->k * c->k * c->ci;
    if (c->op == CASE_CONV_BACK_DATA) length = (double)c->k * c->k * c->co;
    if (c->op == CASE_CONV_BACK_FILTER) length = (double)n * c->h * c->w;
    if (c->op == CASE_GEMM) length = c->co;
    if (c->op == CASE_DENSE) length = c->ci;
    if (c->op == CASE_ATTENTION) length = c->w + c->ci;
    if (c->op == CASE_CONTRAST) length = (double)c->k * c->ci;
    if (c->op == CASE_NORM_BACKWARD) length = (double)n * c->h * c->w;
    /* A random walk of roundings is at most 6e-8 sqrt(length) of the signal; the constant leaves
     * room for the transforms of Winograd (measured 2e-6 to 5e-6). */
    return is_conv(c) ? 1e-5 + 6e-8 * sqrt(length) : 2e-6 + 6e-8 * sqrt(length);
}
