/* refine.c: a head trained with the method's loss on frozen features. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- options --------------------------------------------------------------------------------- */

conr_refine_options conr_refine_defaults(void) {
    return (conr_refine_options){.batch = 256,
                                 .hidden = 512,
                                 .dropout = 0.1,
                                 .average = 0.99,
                                 .lr = 0.05,
                                 .keep = 0.8,
                                 .seed = 1,
                                 .neighbors = conr_neighbors_defaults()};
}

static int check_int(const char *name, int value, int low, int high) {
    if (value >= low && value <= high) return 0;
    return fail(CONR_EINVAL, "refine: %s is %d; give %d to %d", name, value, low, high);
}

static int check_number(const char *name, double value, double low, double high) {
    if (value >= low && value <= high) return 0;
    return fail(CONR_EINVAL, "refine: %s is %g; give %g to %g", name, value, low, high);
}

static int check_options(const conr_refine_options *o, int64_t n) {
    int rc = 0;
    TRY(check_int("clusters", o->clusters, 0, n < INT32_MAX ? (int)n : INT32_MAX));
    TRY(check_int("epochs", o->epochs, 0, 1000000));
    TRY(check_int("batch", o->batch, 2, 1 << 16));
    TRY(check_int("hidden", o->hidden, 1, 1 << 16));
    TRY(check_int("width", o->width, 0, 1 << 16));
    TRY(check_number("dropout", o->dropout, 0, 0.99));
    TRY(check_number("average", o->average, 0, 1));
    TRY(check_number("lr", o->lr, 0, 100));
    TRY(check_number("keep", o->keep, 0, 1));
done:
    return rc;
}

/* Enough epochs for about STEPS steps: a small set is seen more often. */
static int epochs_for(int64_t n, int batch) {
    enum { STEPS = 300, LEAST = 3, MOST = 100 };
    int64_t per = n / batch > 0 ? n / batch : 1, epochs = (STEPS + per - 1) / per;
    return (int)(epochs < LEAST ? LEAST : epochs > MOST ? MOST : epochs);
}

/* ---- schedule -------------------------------------------------------------------------------- */

/* Learning rate: up to lr over the first tenth of the steps, then along a cosine to 0.  The average
 * of the target goes to 1 along a cosine. */
static step_values values_at(const conr_refine_options *o, int64_t step, int64_t total) {
    double part = (double)step / (double)total, fall = (1 + cos(PI * part)) / 2;
    double rise = fmin(1, (double)(step + 1) / fmax(1, 0.1 * (double)total));
    float lr = (float)(o->lr * rise * fall);
    return (step_values){.lr = {lr, lr},
                         .momentum = 0.9f,
                         .decay = 5e-4f,
                         .average = (float)(1 - (1 - o->average) * fall),
                         .step = (uint32_t)step};
}

/* ---- the boundary filter --------------------------------------------------------------------- */

/* The clusters of the head's output, and the rows that the filter keeps.  Host memory. */
typedef struct filter {
    float *features, *centroids, *ratio; /* [n,d], [K,d], [n] */
    int32_t *label;                      /* [n] */
    unsigned char *kept;                 /* [n] */
    bool clustered;
} filter;

static int filter_open(int64_t n, int d, int K, filter *f) {
    f->kept = memory_new("filter", (size_t)n, 1);
    if (!f->kept) return CONR_ENOMEM;
    memset(f->kept, 1, (size_t)n);
    if (!K) return 0;
    f->features = memory_new("refined features", (size_t)n * d, sizeof *f->features);
    f->centroids = memory_new("centroids", (size_t)K * d, sizeof *f->centroids);
    f->ratio = memory_new("filter", (size_t)n, sizeof *f->ratio);
    f->label = memory_new("labels", (size_t)n, sizeof *f->label);
    return f->features && f->centroids && f->ratio && f->label ? 0 : CONR_ENOMEM;
}

static void filter_close(filter *f) {
    free(f->features), free(f->centroids), free(f->ratio), free(f->label), free(f->kept);
}

/* After the first time, k-means has the clusters of the last time as one more start. */
static int filter_update(conr *c, filter *f, int64_t n, int d, int K, double fraction,
                         uint64_t seed) {
    enum { RESTARTS = 4 };
    int rc = 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K;
    o.seed = seed;
    o.restarts = f->clustered ? 1 : RESTARTS;
    float *start = NULL;
    if (f->clustered) {
        size_t bytes = (size_t)K * d * sizeof *start;
        start = memory_new("centroids", bytes, 1);
        TRY(start ? 0 : CONR_ENOMEM);
        memcpy(start, f->centroids, bytes);
        o.start = start;
    }
    TRY(conr_kmeans(c, f->features, n, d, &o, f->centroids, f->label, NULL));
    TRY(conr_boundary(c, f->features, n, d, CONR_COSINE, f->centroids, K, f->label, 0, f->ratio));
    int64_t left = conr_boundary_keep(f->ratio, n, fraction, f->kept, NULL);
    TRY(left < 0 ? (int)left : 0);
    f->clustered = true;
done:
    free(start);
    return rc;
}

/* ---- training -------------------------------------------------------------------------------- */

/* One epoch: every row once in a random order, except the few that do not fill a batch. */
static int epoch(refiner *r, const refine_draw *v, const conr_refine_options *o,
                 const unsigned char *kept, int number, int32_t *row, float *weight) {
    int rc = 0, B = r->n;
    int64_t steps = v->n / B, total = steps * o->epochs;
    rng_order order = rng_order_make(o->seed, (uint32_t)number, (uint32_t)v->n);
    for (int64_t s = 0; s < steps; s++) {
        int64_t at = number * steps + s;
        int count = 0;
        TRY(device_report(r->dev, "refining", at, total));
        for (int i = 0; i < B; i++) {
            row[i] = (int32_t)rng_order_at(&order, (uint32_t)(s * B + i));
            count += kept[row[i]];
        }
        for (int i = 0; i < B; i++) weight[i] = kept[row[i]] ? 1.0f / (float)count : 0;
        step_values values = values_at(o, at, total);
        refine_views(v, (uint32_t)at, row, B, r->host);
        TRY(refiner_step(r, &values, weight));
    }
done:
    return rc;
}

/* The head is the target's projector with the statistics of its own passes. */
static int take_head(refiner *r, conr_head *h) {
    int rc = 0;
    device *dev = r->dev;
    TRY(dev->op.get(dev, h->w, r->target_w, h->net.n_weights * sizeof *h->w));
    TRY(dev->op.get(dev, h->running, r->target_running, h->net.n_running * sizeof *h->running));
    for (size_t i = 0; i < h->net.n_weights; i++)
        if (!isfinite(h->w[i]))
            TRY(fail(CONR_ENUMBER, "refine: the training diverged; use a smaller learning rate"));
done:
    return rc;
}

/* The head is that of the epoch whose clusters agree best with the neighborhoods; without clusters,
 * that of the last. */
static int train(conr *c, const refine_draw *v, const conr_refine_options *o, conr_head *h) {
    int rc = 0, d = o->width, B = o->batch, K = o->clusters;
    double best = -INFINITY;
    refiner r = {0};
    embedder e = {0};
    filter f = {0};
    int32_t *row = memory_new("rows", (size_t)B, sizeof *row);
    float *weight = memory_new("rows", (size_t)B, sizeof *weight);
    TRY(row && weight ? 0 : CONR_ENOMEM);
    TRY(filter_open(v->n, d, K, &f));
    TRY(refiner_open(c->dev, v->d, o->hidden, d, B, o->seed, v->deviation, &r));
    TRY(embedder_open(c->dev, &r.net, v->n, &e));
    for (int at = 0; at <= o->epochs; at++) {
        if (K) {
            parameters target = {r.target_w, r.target_running};
            double keep = conr_boundary_fraction(o->keep, at, o->epochs - 1), score;
            TRY(embedder_run(&e, &target, v->x, v->n, f.features));
            TRY(filter_update(c, &f, v->n, d, K, keep, o->seed));
            score = agreement(v->ids, v->k, f.label, v->n, K);
            if (score > best) TRY(take_head(&r, h));
            best = fmax(best, score);
        }
        if (at < o->epochs) TRY(epoch(&r, v, o, f.kept, at, row, weight));
    }
    if (!K) TRY(take_head(&r, h));
done:
    filter_close(&f);
    embedder_close(&e);
    refiner_close(&r);
    free(row), free(weight);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Rows that the choice of the geometry looks at: all, or a sample.  x: [n,p], ids: [n,k]. */
static int choose_geometry(conr *c, const float *x, const int32_t *ids, int64_t n, int k,
                           const conr_refine_options *o, principal *s) {
    enum { MOST = 16384 };
    int rc = 0, p = s->p, r = 0;
    float *map = memory_new("geometry", (size_t)(p + 1) * p, sizeof *map), *some = NULL;
    int32_t *lists = NULL;
    TRY(map ? 0 : CONR_ENOMEM);
    if (n > MOST && o->clusters <= MOST) {
        some = memory_new("geometry", (size_t)MOST * p, sizeof *some);
        lists = memory_new("geometry", (size_t)MOST * k, sizeof *lists);
        TRY(some && lists ? 0 : CONR_ENOMEM);
        for (int64_t i = 0; i < MOST; i++)
            memcpy(some + i * p, x + i * n / MOST * p, (size_t)p * sizeof *some);
        TRY(conr_neighbors(c, some, MOST, p, &o->neighbors, lists));
        x = some, ids = lists, n = MOST;
    }
    TRY(geometry_choose(c, x, n, p, s->deviation, ids, k, o->clusters <= n ? o->clusters : 0,
                        o->seed, map, map + (size_t)p * p, &r));
    TRY(principal_map(c->host, map, r, map + (size_t)p * p, s));
done:
    free(map), free(some), free(lists);
    return rc;
}

int conr_refine(conr *c, const float *features, int64_t n, int64_t d,
                const conr_refine_options *options, conr_head **out) {
    int rc = 0;
    conr_refine_options o = *options;
    conr_head *h = NULL;
    principal s = {0};
    float *x = NULL;
    int32_t *ids = NULL;
    *out = NULL;
    TRY(numbers_check("features", features, n, d));
    if (n < 2) TRY(fail(CONR_EINVAL, "refine: one row; give at least two"));
    TRY(check_options(&o, n));
    if (o.batch > n) o.batch = (int)n;
    if (!o.epochs) o.epochs = epochs_for(n, o.batch);
    if (o.neighbors.k > n) o.neighbors.k = (int)n;
    int k = o.neighbors.k > 0 ? o.neighbors.k : 1;
    TRY(principal_measure(c->host, features, n, (int)d, o.seed, &s));
    x = memory_new("components", (size_t)n * s.p, sizeof *x);
    ids = memory_new("neighbors", (size_t)n * k, sizeof *ids);
    TRY(x && ids ? 0 : CONR_ENOMEM);
    TRY(principal_rows(c->host, &s, features, n, false, x));
    TRY(conr_neighbors(c, x, n, s.p, &o.neighbors, ids));
    TRY(choose_geometry(c, x, ids, n, k, &o, &s));
    TRY(principal_rows(c->host, &s, features, n, true, x));
    if (!o.width) o.width = s.p;
    TRY(head_new(&s, o.hidden, o.width, &h));
    refine_draw v = {.x = x,
                     .ids = ids,
                     .n = n,
                     .d = h->principal.p,
                     .k = k,
                     .threads = c->host->threads,
                     .dropout = o.dropout,
                     .deviation = h->principal.deviation,
                     .seed = o.seed};
    TRY(train(c, &v, &o, h));
    *out = h;
    h = NULL;
done:
    conr_head_close(h);
    principal_free(&s);
    free(x);
    free(ids);
    return rc;
}
