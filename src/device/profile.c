/* profile.c: the timed entries, and the time spent in each kind. */
#include "device/profile.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

const char *const profile_names[PROFILE_KINDS] = {
    [PROFILE_CONV_FORWARD] = "convolution, forward",
    [PROFILE_CONV_BACK_DATA] = "convolution, data gradient",
    [PROFILE_CONV_BACK_FILTER] = "convolution, filter gradient",
    [PROFILE_NORM_FORWARD] = "norm + ReLU, forward",
    [PROFILE_NORM_BACKWARD] = "norm + ReLU, backward",
    [PROFILE_POOL] = "pools",
    [PROFILE_ROWS] = "rows of features",
    [PROFILE_SGD] = "weights",
    [PROFILE_LOSS] = "loss + boundary filter",
    [PROFILE_NEIGHBORS] = "neighborhoods",
    [PROFILE_VIEWS] = "views",
};

static device_ops real; /* the table of the one device that is watched */
static device *watched;
static double spent[PROFILE_KINDS];

/* On a device with moments: what was queued between which two of them; read at the end. */
typedef struct stretch {
    profile_kind kind;
    void *from, *to;
} stretch;
static stretch *stretches;
static size_t n_stretches, room;

/* Starts a stretch if the device has moments, else the clock. */
static int begin(device *dev, profile_kind kind, double *before) {
    if (!real.moment) {
        *before = clock_now();
        return 0;
    }
    if (n_stretches == room) {
        stretch *more = realloc(stretches, (2 * room + 256) * sizeof *more);
        if (!more) return fail_memory("profile", (double)room);
        stretches = more;
        room = 2 * room + 256;
    }
    stretches[n_stretches] = (stretch){.kind = kind};
    return real.moment(dev, &stretches[n_stretches++].from);
}

static int end(device *dev, profile_kind kind, double before) {
    if (real.moment) return real.moment(dev, &stretches[n_stretches - 1].to);
    int rc = real.sync(dev);
    spent[kind] += clock_now() - before;
    return rc;
}

/* A timed entry: the same parameters, around a call of the real one. */
#define TIMED(kind, entry, PARAMETERS, ARGUMENTS)                                                  \
    static int timed_##entry PARAMETERS {                                                          \
        double before = 0;                                                                         \
        int rc = begin(dev, kind, &before);                                                        \
        if (rc == 0) rc = real.entry ARGUMENTS;                                                    \
        return rc < 0 ? rc : end(dev, kind, before);                                               \
    }

TIMED(PROFILE_CONV_FORWARD, conv_forward,
      (device * dev, const conv_plan *p, const act *x, const float *w, const float *bias, act *y,
       const float *shift, float *sums, void *work),
      (dev, p, x, w, bias, y, shift, sums, work))
TIMED(PROFILE_CONV_FORWARD, conv_forward_finish,
      (device * dev, const conv_plan *p, const act *x, const float *w, const float *bias, act *y,
       float *sums, const norm_rest *rest, void *work),
      (dev, p, x, w, bias, y, sums, rest, work))
TIMED(PROFILE_CONV_BACK_DATA, conv_back_data,
      (device * dev, const conv_plan *p, const act *dy, const float *w, bool add, act *dx,
       void *work),
      (dev, p, dy, w, add, dx, work))
TIMED(PROFILE_CONV_BACK_FILTER, conv_back_filter,
      (device * dev, const conv_plan *p, const act *x, const act *dy, bool add, float *dw,
       float *dbias, void *work),
      (dev, p, x, dy, add, dw, dbias, work))
TIMED(PROFILE_NORM_FORWARD, norm_finish,
      (device * dev, int c, int groups, int passes, double count, const float *sums, float momentum,
       float *running, float *stat),
      (dev, c, groups, passes, count, sums, momentum, running, stat))
TIMED(PROFILE_NORM_FORWARD, norm_apply,
      (device * dev, const norm_shape *s, const normed *y, const normed *shortcut,
       const act *residual, bool relu, act *z),
      (dev, s, y, shortcut, residual, relu, z))
TIMED(PROFILE_NORM_BACKWARD, norm_back_sums,
      (device * dev, const norm_shape *s, const normed *y, const act *z, bool relu, const act *dz,
       bool add, float *sums, float *dgamma, float *dbeta, act *d_out),
      (dev, s, y, z, relu, dz, add, sums, dgamma, dbeta, d_out))
TIMED(PROFILE_NORM_BACKWARD, norm_back_apply,
      (device * dev, const norm_shape *s, const normed *y, const act *z, bool relu, const act *dz,
       const float *sums, double count, act *dy),
      (dev, s, y, z, relu, dz, sums, count, dy))
TIMED(PROFILE_POOL, max_pool, (device * dev, const pool_shape *s, const act *x, act *y),
      (dev, s, x, y))
TIMED(PROFILE_POOL, max_pool_back,
      (device * dev, const pool_shape *s, const act *x, const act *dy, act *dx),
      (dev, s, x, dy, dx))
TIMED(PROFILE_POOL, mean_pool, (device * dev, const pool_shape *s, const act *x, act *y),
      (dev, s, x, y))
TIMED(PROFILE_POOL, mean_pool_back, (device * dev, const pool_shape *s, const act *dy, act *dx),
      (dev, s, dy, dx))
TIMED(PROFILE_ROWS, rows_normalize,
      (device * dev, const float *x, int n, int d, float *out, float *norm),
      (dev, x, n, d, out, norm))
TIMED(PROFILE_ROWS, rows_normalize_back,
      (device * dev, const float *out, const float *norm, const float *dout, int n, int d,
       float *dx),
      (dev, out, norm, dout, n, d, dx))
TIMED(PROFILE_SGD, sgd,
      (device * dev, const step_values *at, int which, bool average_first, float scale, size_t n,
       float *w, const float *dw, float *v, float *average),
      (dev, at, which, average_first, scale, n, w, dw, v, average))
TIMED(PROFILE_LOSS, pull,
      (device * dev, const float *q, const float *key, int n, int d, const int32_t *near, int k,
       const float *weight, float factor, float *loss, float *dq),
      (dev, q, key, n, d, near, k, weight, factor, loss, dq))
TIMED(PROFILE_LOSS, boundary,
      (device * dev, const step_values *at, const float *f, int n, int d, const int32_t *ids,
       const int32_t *label, const float *centroids, int K, bool over_batch, float *ratio,
       float *weight),
      (dev, at, f, n, d, ids, label, centroids, K, over_batch, ratio, weight))
TIMED(PROFILE_NEIGHBORS, neighbors,
      (device * dev, const float *f, int n, int d, const conr_neighbors_options *o, int32_t *ids,
       void *work),
      (dev, f, n, d, o, ids, work))
TIMED(PROFILE_VIEWS, views,
      (device * dev, const step_values *at, const struct views_job *job,
       const struct views_row *rows, int n, int view, act *out),
      (dev, at, job, rows, n, view, out))
TIMED(PROFILE_VIEWS, act_from, (device * dev, const float *x, size_t count, act *out),
      (dev, x, count, out))

void profile_start(device *dev) {
    ASSERT(!watched);
    watched = dev;
    real = dev->op;
    memset(spent, 0, sizeof spent);
#define PUT(entry) dev->op.entry = timed_##entry
    PUT(conv_forward), PUT(conv_back_data), PUT(conv_back_filter);
    if (real.conv_forward_finish) PUT(conv_forward_finish);
    PUT(norm_finish), PUT(norm_apply), PUT(norm_back_sums), PUT(norm_back_apply);
    PUT(max_pool), PUT(max_pool_back), PUT(mean_pool), PUT(mean_pool_back);
    PUT(rows_normalize), PUT(rows_normalize_back), PUT(sgd), PUT(pull), PUT(boundary);
    PUT(act_from);
    if (real.neighbors) PUT(neighbors);
    PUT(views);
#undef PUT
}

void profile_stop(device *dev, double seconds[PROFILE_KINDS]) {
    ASSERT(watched == dev);
    dev->op = real;
    for (size_t i = 0; i < n_stretches; i++) {
        double took;
        const stretch *s = &stretches[i];
        if (s->to && real.seconds(dev, s->from, s->to, &took) == 0) spent[s->kind] += took;
    }
    free(stretches);
    stretches = NULL;
    n_stretches = room = 0;
    watched = NULL;
    memcpy(seconds, spent, sizeof spent);
}
