/* kmeans.c: the public call: k-means as the best of several runs.
 *
 * Every call exists in two forms: for arrays in host memory and for arrays in device memory.  The
 * runs themselves are made by the host code (kmeans_host; seeding.c, lloyd.c, swap.c) or by the
 * device's own operation (kmeans_device), whichever the device has.  Long because both share the
 * bookkeeping of runs over ranks. */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "clusters/large.h"
#include "clusters/scale.h"
#include "context/context.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

conr_kmeans_options conr_kmeans_defaults(void) {
    return (conr_kmeans_options){
        .metric = CONR_COSINE, .restarts = 10, .iterations = 300, .tolerance = 1e-4, .seed = 1};
}

static int check_options(const conr_kmeans_options *o, int64_t n) {
    if (o->clusters < 1) return fail(CONR_EINVAL, "clusters: %d; give at least 1", o->clusters);
    if (o->clusters > n)
        return fail(CONR_EINVAL, "clusters: %d are more than the %lld rows; give at most %lld",
                    o->clusters, (long long)n, (long long)n);
    if (o->metric != CONR_COSINE && o->metric != CONR_EUCLIDEAN)
        return fail(CONR_EINVAL, "metric: %d is unknown; give cosine or euclidean", (int)o->metric);
    if (o->restarts < 0 || (o->restarts == 0 && !o->start))
        return fail(CONR_EINVAL, "restarts: %d; give at least 1", o->restarts);
    if (o->iterations < 1)
        return fail(CONR_EINVAL, "iterations: %d; give at least 1", o->iterations);
    if (!(o->tolerance >= 0))
        return fail(CONR_EINVAL, "tolerance: %g; give a number >= 0", o->tolerance);
    return 0;
}

/* ---- the best of several runs ---------------------------------------------------------------- */

void kmeans_record(const conr_kmeans_step *step, void *user) {
    kmeans_recorder *r = user;
    if (!r->to || r->failed) return;
    if (r->to->steps == r->room) {
        int room = r->room ? 2 * r->room : 64;
        conr_kmeans_step *more = realloc(r->to->step, (size_t)room * sizeof *more);
        if (!more) {
            r->failed = fail_memory("k-means", (double)room * sizeof *more);
            return;
        }
        r->to->step = more;
        r->room = room;
    }
    r->to->step[r->to->steps++] = *step;
}

void conr_kmeans_history_free(conr_kmeans_history *h) {
    free(h->step);
    *h = (conr_kmeans_history){0};
}

static int by_run(const void *a, const void *b) {
    const conr_kmeans_step *left = a, *right = b;
    int runs = (left->run > right->run) - (left->run < right->run);
    return runs ? runs : left->iteration - right->iteration;
}

/* Gathers the steps of the runs of all ranks on every rank. */
static int share_history(ranks *over, kmeans_recorder *r) {
    int rc = 0, most = 0, steps = 0;
    size_t count = (size_t)over->count;
    int *counts = memory_new("k-means", count, sizeof *counts);
    conr_kmeans_step *all = NULL, *mine = NULL;
    TRY(counts ? 0 : CONR_ENOMEM);
    TRY(ranks_all_gather(over, &r->to->steps, sizeof *counts, counts));
    for (size_t i = 0; i < count; i++) most = counts[i] > most ? counts[i] : most;
    all = memory_new("k-means", count * (size_t)most + 1, sizeof *all);
    mine = memory_new("k-means", (size_t)most + 1, sizeof *mine);
    TRY(all && mine ? 0 : CONR_ENOMEM);
    memset(mine, 0, ((size_t)most + 1) * sizeof *mine);
    if (r->to->steps) memcpy(mine, r->to->step, (size_t)r->to->steps * sizeof *mine);
    TRY(ranks_all_gather(over, mine, (size_t)most * sizeof *mine, all));
    for (size_t i = 0; i < count; i++) {
        memmove(all + steps, all + i * (size_t)most, (size_t)counts[i] * sizeof *all);
        steps += counts[i];
    }
    qsort(all, (size_t)steps, sizeof *all, by_run);
    free(r->to->step);
    r->to->step = all, r->to->steps = r->room = steps;
    all = NULL;
done:
    free(counts), free(all), free(mine);
    return rc;
}

/* After the runs from seeds, a third as many start from the best so far with one center moved: they
 * find a better result more often than fresh seeds do, in fewer steps.  None if only one run is
 * wanted. */
static int swaps_of(const conr_kmeans_options *o) {
    return o->restarts > 1 && o->clusters > 1 ? (o->restarts + 2) / 3 : 0;
}

/* The runs of one rank: an equal share of those from seeds; the last rank also makes the run from
 * the caller's centroids. */
typedef struct share {
    int first, count; /* from seeds */
    bool start;
} share;

static share share_of(const ranks *over, const conr_kmeans_options *o) {
    int rank = over ? over->rank : 0, ranks = over ? over->count : 1;
    int first = (int)((int64_t)rank * o->restarts / ranks);
    return (share){.first = first,
                   .count = (int)((int64_t)(rank + 1) * o->restarts / ranks) - first,
                   .start = o->start && rank == ranks - 1};
}

/* A run and its objective; INFINITY: none was made. */
typedef struct outcome {
    double objective;
    int run, unused;
} outcome;

/* The outcomes of all ranks; all: [ranks]. */
static int share_outcomes(ranks *over, const outcome *mine, outcome *all) {
    if (over) return ranks_all_gather(over, mine, sizeof *mine, all);
    *all = *mine;
    return 0;
}

/* The rank with the lowest objective; among equals, the one with the earliest run. */
static int least_of(const outcome *all, int ranks) {
    int who = 0;
    for (int r = 1; r < ranks; r++)
        if (all[r].objective < all[who].objective ||
            (all[r].objective == all[who].objective && all[r].run < all[who].run))
            who = r;
    return who;
}

/* The state of k-means on points. */
typedef struct work {
    device *dev;
    ranks *over; /* that share the runs, or NULL */
    const points *p;
    const conr_kmeans_options *o;
    kmeans_recorder *r;
    size_t size;         /* K d */
    double *mean;        /* [K,d]: of the current run */
    double *best;        /* [K,d]: of the best so far, on every rank */
    outcome least, *all; /* the best so far; [ranks] */
} work;

static int run_one(work *w, int run, double *objective) {
    int rc = lloyd_run(w->dev, w->p, w->o, run, w->mean, objective, kmeans_record, w->r);
    return rc < 0 ? rc : w->r->failed;
}

/* Makes this rank's runs from seeds and from the caller's centroids, then finds the best of all
 * ranks. */
static int run_starts(work *w) {
    int rc = 0, K = w->o->clusters, d = w->p->d;
    share own = share_of(w->over, w->o);
    int32_t *chosen = memory_new("k-means", (size_t)(own.count + 1) * K, sizeof *chosen);
    TRY(chosen ? 0 : CONR_ENOMEM);
    TRY(seeding_choose(w->dev, w->p, K, own.first, own.count, w->o->seed, chosen));
    for (int i = 0; i < own.count + own.start; i++) {
        double objective;
        bool seeded = i < own.count;
        for (size_t at = 0; at < w->size; at++) {
            size_t c = at / d, j = at % d;
            w->mean[at] = seeded ? w->p->x[(size_t)chosen[(size_t)i * K + c] * d + j]
                                 : (double)w->o->start[at] - w->p->shift[j];
        }
        TRY(device_report(w->dev, "k-means", i, own.count + own.start + swaps_of(w->o)));
        TRY(run_one(w, own.first + i, &objective));
        if (objective < w->least.objective) {
            w->least = (outcome){objective, own.first + i, 0};
            memcpy(w->best, w->mean, w->size * sizeof *w->best);
        }
    }
    TRY(share_outcomes(w->over, &w->least, w->all));
    int who = least_of(w->all, w->over ? w->over->count : 1);
    w->least = w->all[who];
    if (w->over) TRY(ranks_broadcast_from(w->over, who, w->best, w->size * sizeof *w->best));
done:
    free(chosen);
    return rc;
}

/* Runs from the best result with one center moved, one after the other.  Ranks make one each at the
 * same time; runs after the first that improves the result are discarded, so that the number of
 * ranks changes nothing. */
static int run_swaps(work *w) {
    int rc = 0, swaps = swaps_of(w->o), failed = 0;
    int rank = w->over ? w->over->rank : 0, ranks = w->over ? w->over->count : 1;
    for (int i = 0; i < swaps;) {
        int turn = i + rank, better = 0, steps = w->r->to ? w->r->to->steps : 0;
        outcome mine = {INFINITY, w->o->restarts + 1 + turn, 0};
        TRY(device_report(w->dev, "k-means", w->o->restarts + i, w->o->restarts + swaps));
        if (turn < swaps) {
            memcpy(w->mean, w->best, w->size * sizeof *w->mean);
            TRY(swap_center(w->dev, w->p, w->o->clusters, w->o->seed, turn, failed + rank,
                            w->mean));
            TRY(run_one(w, mine.run, &mine.objective));
        }
        TRY(share_outcomes(w->over, &mine, w->all));
        while (better < ranks && !(w->all[better].objective < w->least.objective)) better++;
        if (better < rank && w->r->to) w->r->to->steps = steps;
        i += better < ranks ? better + 1 : ranks;
        failed = better < ranks ? 0 : failed + ranks;
        if (better == ranks) continue;
        w->least = w->all[better];
        if (better == rank) memcpy(w->best, w->mean, w->size * sizeof *w->best);
        if (w->over) TRY(ranks_broadcast_from(w->over, better, w->best, w->size * sizeof *w->best));
    }
done:
    return rc;
}

/* All runs; best: [K,d] means in the space of p. */
static int run_all(device *dev, ranks *over, const points *p, const conr_kmeans_options *o,
                   kmeans_recorder *r, double *best, int *best_run) {
    int rc = 0;
    work w = {.dev = dev, .over = over, .p = p, .o = o, .r = r, .best = best};
    w.size = (size_t)o->clusters * p->d;
    w.least = (outcome){INFINITY, INT_MAX, 0};
    w.mean = memory_new("k-means", w.size, sizeof *w.mean);
    w.all = memory_new("k-means", over ? (size_t)over->count : 1, sizeof *w.all);
    TRY(w.mean && w.all ? 0 : CONR_ENOMEM);
    TRY(run_starts(&w));
    TRY(run_swaps(&w));
    if (over && r->to) TRY(share_history(over, r));
    *best_run = w.least.run;
done:
    free(w.mean), free(w.all);
    return rc;
}

/* All runs, by the host code, on host memory; centroids: [K,d], as users see them. */
static int kmeans_host(device *dev, ranks *over, const float *features, int n, int d,
                       const conr_kmeans_options *o, float *centroids,
                       conr_kmeans_history *history) {
    int rc = 0, best_run = 0;
    points p = {0};
    kmeans_recorder r = {.to = history};
    double *best = memory_new("k-means", (size_t)o->clusters * d, sizeof *best);
    float *shift = memory_new("k-means", (size_t)d, sizeof *shift);
    TRY(best && shift ? 0 : CONR_ENOMEM);
    points_middle(features, n, d, shift);
    TRY(points_make(dev, features, n, d, o->metric, shift, &p));
    TRY(run_all(dev, over, &p, o, &r, best, &best_run));
    for (size_t at = 0; at < (size_t)o->clusters * d; at++)
        centroids[at] = (float)(best[at] + p.shift[at % d]);
    if (history) history->run = best_run;
done:
    points_free(&p);
    free(best), free(shift);
    return rc;
}

/* Broadcasts bytes of device memory from rank `who`. */
static int broadcast_device(device *dev, ranks *over, int who, void *x, size_t bytes) {
    int rc = 0;
    void *host = memory_new("k-means", bytes, 1);
    TRY(host ? 0 : CONR_ENOMEM);
    if (over->rank == who) TRY(dev->op.get(dev, host, x, bytes));
    TRY(ranks_broadcast_from(over, who, host, bytes));
    if (over->rank != who) TRY(dev->op.put(dev, x, host, bytes));
    TRY(dev->op.sync(dev));
done:
    free(host);
    return rc;
}

/* All runs, by the device's own operation, on device memory.  The caller frees history. */
static int kmeans_device(device *dev, ranks *over, const float *features, int n, int d,
                         const conr_kmeans_options *o, float *centroids, int32_t *labels,
                         conr_kmeans_history *history) {
    int rc = 0;
    share own = share_of(over, o);
    conr_kmeans_options part = *o;
    kmeans_recorder r = {.to = history};
    outcome *all = NULL;
    part.restarts = own.count;
    if (!own.start) part.start = NULL;
    *history = (conr_kmeans_history){.objective = INFINITY, .run = INT_MAX};
    if (own.count || own.start)
        TRY(dev->op.kmeans(dev, features, n, d, &part, own.first, centroids, labels, history));
    if (!over) goto done;
    outcome mine = {history->objective, history->run, 0};
    all = memory_new("k-means", (size_t)over->count, sizeof *all);
    TRY(all ? 0 : CONR_ENOMEM);
    TRY(share_outcomes(over, &mine, all));
    TRY(share_history(over, &r));
    int who = least_of(all, over->count);
    history->objective = all[who].objective, history->run = all[who].run;
    TRY(broadcast_device(dev, over, who, centroids, (size_t)o->clusters * d * sizeof *centroids));
    TRY(broadcast_device(dev, over, who, labels, (size_t)n * sizeof *labels));
done:
    free(all);
    return rc;
}

/* The same for features and centroids in host memory, which are copied. */
static int kmeans_device_copied(device *dev, ranks *over, const float *features, int n, int d,
                                const conr_kmeans_options *o, float *centroids,
                                conr_kmeans_history *history) {
    int rc = 0;
    conr_kmeans_history found = {0};
    size_t size = (size_t)n * d * sizeof(float), result = (size_t)o->clusters * d * sizeof(float);
    void *x = NULL, *means = NULL, *labels = NULL;
    TRY(dev->op.alloc(dev, size, &x));
    TRY(dev->op.alloc(dev, result, &means));
    TRY(dev->op.alloc(dev, (size_t)n * sizeof(int32_t), &labels));
    TRY(dev->op.put(dev, x, features, size));
    TRY(kmeans_device(dev, over, x, n, d, o, means, labels, &found));
    TRY(dev->op.get(dev, centroids, means, result));
done:
    dev->op.free(dev, x), dev->op.free(dev, means), dev->op.free(dev, labels);
    if (rc == 0 && history)
        *history = found;
    else
        conr_kmeans_history_free(&found);
    return rc;
}

/* Runs on host memory or on the device; labels and the objective are the host's. */
static int kmeans_ordinary(conr *c, ranks *over, const float *features, int n, int d,
                           const conr_kmeans_options *o, float *centroids, int32_t *labels,
                           conr_kmeans_history *history) {
    int rc = 0;
    float *distances = NULL;
    if (!c->dev->op.kmeans && large_is(n, o->clusters)) {
        TRY(large_whole(c->host, over, features, n, d, o, centroids, labels, history));
        goto done;
    }
    distances = memory_new("k-means", (size_t)n, sizeof *distances);
    TRY(distances ? 0 : CONR_ENOMEM);
    TRY(c->dev->op.kmeans
            ? kmeans_device_copied(c->dev, over, features, n, d, o, centroids, history)
            : kmeans_host(c->host, over, features, n, d, o, centroids, history));
    /* always on the host, as conr_assign does it, so that both give the same labels */
    TRY(assign_features(c->host, features, n, d, o->metric, centroids, o->clusters, labels,
                        distances));
    if (history) {
        history->objective = 0;
        for (int i = 0; i < n; i++)
            history->objective +=
                o->metric == CONR_COSINE ? distances[i] : (double)distances[i] * distances[i];
    }
done:
    if (rc < 0 && history) conr_kmeans_history_free(history);
    free(distances);
    return rc;
}

/* The history in the units of the features. */
static void unscale_history(conr_kmeans_history *h, float by) {
    double squared = (double)by * by;
    h->objective /= squared;
    for (int i = 0; i < h->steps; i++) h->step[i].objective /= squared;
}

/* kmeans_ordinary on features so small that they have to be multiplied by `by`. */
static int kmeans_scaled(conr *c, ranks *over, const float *features, int n, int d, float by,
                         const conr_kmeans_options *options, float *centroids, int32_t *labels,
                         conr_kmeans_history *history) {
    int rc = 0;
    int64_t size = (int64_t)options->clusters * d;
    conr_kmeans_options o = *options;
    float *x = scale_copy(features, (int64_t)n * d, by), *start = NULL;
    TRY(x ? 0 : CONR_ENOMEM);
    if (o.start) {
        o.start = start = scale_copy(o.start, size, by);
        TRY(start ? 0 : CONR_ENOMEM);
    }
    TRY(kmeans_ordinary(c, over, x, n, d, &o, centroids, labels, history));
    for (int64_t i = 0; i < size; i++) centroids[i] /= by;
    if (history) unscale_history(history, by);
done:
    free(x), free(start);
    return rc;
}

/* conr_kmeans for arrays in host memory. */
static int kmeans_host_arrays(conr *c, ranks *over, const float *features, int64_t rows,
                              int64_t width, const conr_kmeans_options *o, float *centroids,
                              int32_t *labels, conr_kmeans_history *history) {
    int rc = 0;
    if (history) *history = (conr_kmeans_history){0};
    if ((rc = numbers_check("features", features, rows, width)) < 0) return rc;
    if ((rc = check_options(o, rows)) < 0) return rc;
    if (o->start && (rc = numbers_check("start", o->start, o->clusters, width)) < 0) return rc;
    int n = (int)rows, d = (int)width, starts = o->start ? o->clusters : 0;
    float by = o->metric == CONR_EUCLIDEAN ? scale_for(features, n, o->start, starts, d) : 1;
    return by == 1 ? kmeans_ordinary(c, over, features, n, d, o, centroids, labels, history)
                   : kmeans_scaled(c, over, features, n, d, by, o, centroids, labels, history);
}

int kmeans_on_device(conr *c, ranks *over, const float *features, int64_t n, int d,
                     const conr_kmeans_options *o, float *centroids, int32_t *labels,
                     conr_kmeans_history *history) {
    int rc = 0;
    device *dev = c->dev;
    size_t size = (size_t)o->clusters * d * sizeof *centroids, list = (size_t)n * sizeof *labels;
    void *means = NULL, *on = NULL;
    if (!dev->op.kmeans) { /* then its memory is host memory */
        TRY(kmeans_host_arrays(c, over, features, n, d, o, centroids, labels, history));
    } else {
        *history = (conr_kmeans_history){0};
        TRY(check_options(o, n));
        TRY(dev->op.alloc(dev, size, &means));
        TRY(dev->op.alloc(dev, list, &on));
        TRY(kmeans_device(dev, over, features, (int)n, d, o, means, on, history));
        TRY(dev->op.get(dev, centroids, means, size));
        TRY(dev->op.get(dev, labels, on, list));
    }
    if (!isfinite(history->objective))
        TRY(fail(CONR_EINVAL, "features: some are NaN or infinite; lower the lr"));
done:
    dev->op.free(dev, means), dev->op.free(dev, on);
    if (rc < 0) conr_kmeans_history_free(history);
    return rc;
}

/* kmeans_device on features so small that they have to be multiplied by `by`: rare enough to take
 * the way through host memory. */
static int kmeans_device_scaled(conr *c, const float *features, int n, int d, float by,
                                const conr_kmeans_options *options, float *centroids,
                                int32_t *labels, conr_kmeans_history *history) {
    int rc = 0;
    device *dev = c->dev;
    size_t count = (size_t)n * d, size = (size_t)options->clusters * d;
    conr_kmeans_options o = *options;
    void *on = NULL;
    float *x = memory_new("k-means", count, sizeof *x), *start = NULL;
    float *means = memory_new("k-means", size, sizeof *means);
    TRY(x && means ? 0 : CONR_ENOMEM);
    if (o.start) {
        o.start = start = scale_copy(o.start, (int64_t)size, by);
        TRY(start ? 0 : CONR_ENOMEM);
    }
    TRY(dev->op.get(dev, x, features, count * sizeof *x));
    for (size_t i = 0; i < count; i++) x[i] *= by;
    TRY(dev->op.alloc(dev, count * sizeof *x, &on));
    TRY(dev->op.put(dev, on, x, count * sizeof *x));
    TRY(kmeans_device(dev, context_together(c), on, n, d, &o, centroids, labels, history));
    TRY(dev->op.get(dev, means, centroids, size * sizeof *means));
    for (size_t i = 0; i < size; i++) means[i] /= by;
    TRY(dev->op.put(dev, centroids, means, size * sizeof *means));
    TRY(dev->op.sync(dev));
    unscale_history(history, by);
done:
    dev->op.free(dev, on);
    free(x), free(start), free(means);
    return rc;
}

/* conr_kmeans for arrays in device memory; o->start may be in host or device memory. */
static int kmeans_device_arrays(conr *c, const float *features, int n, int d,
                                const conr_kmeans_options *options, float *centroids,
                                int32_t *labels, conr_kmeans_history *history) {
    int rc = 0;
    device *dev = c->dev;
    conr_kmeans_options o = *options;
    conr_kmeans_history found = {0};
    float *start = NULL, by = 1;
    TRY(check_options(&o, n));
    if (o.start && (rc = ARRAYS_ON_DEVICE(c, o.start)) > 0) {
        size_t count = (size_t)o.clusters * d;
        start = memory_new("k-means", count, sizeof *start);
        TRY(start ? 0 : CONR_ENOMEM);
        TRY(dev->op.get(dev, start, o.start, count * sizeof *start));
        o.start = start;
    }
    TRY(rc);
    if (o.start) TRY(numbers_check("start", o.start, o.clusters, d));
    if (o.metric == CONR_EUCLIDEAN)
        TRY(scale_for_device(dev, features, n, o.start, o.start ? o.clusters : 0, d, &by));
    TRY(by == 1
            ? kmeans_device(dev, context_together(c), features, n, d, &o, centroids, labels, &found)
            : kmeans_device_scaled(c, features, n, d, by, &o, centroids, labels, &found));
    if (!isfinite(found.objective))
        TRY(fail(CONR_ENUMBER, "features: some are NaN or infinite; remove those rows first"));
    /* as conr_assign does it, so that both give the same labels */
    TRY(dev->op.assign(dev, features, n, d, o.metric, centroids, o.clusters, labels, NULL));
done:
    free(start);
    if (rc == 0 && history)
        *history = found;
    else
        conr_kmeans_history_free(&found);
    return rc;
}

int conr_kmeans(conr *c, const float *features, int64_t rows, int64_t width,
                const conr_kmeans_options *o, float *centroids, int32_t *labels,
                conr_kmeans_history *history) {
    int rc = 0, there = ARRAYS_ON_DEVICE(c, features, centroids, labels);
    if (history) *history = (conr_kmeans_history){0};
    if (there < 0) return there;
    if (there) {
        if ((rc = numbers_check_shape("features", features, rows, width)) < 0) return rc;
        return kmeans_device_arrays(c, features, (int)rows, (int)width, o, centroids, labels,
                                    history);
    }
    return kmeans_host_arrays(c, context_together(c), features, rows, width, o, centroids, labels,
                              history);
}

int conr_kmeans_is_large(const conr *c, int64_t n, int K) {
    return !c->dev->op.kmeans && large_is(n, K);
}

/* A power of two for all ranks, if the rows of all are tiny. */
static int share_scale(ranks *over, float *by) {
    int rc = 0;
    if (!over) return 0;
    float *all = memory_new("k-means", (size_t)over->count, sizeof *all);
    TRY(all ? 0 : CONR_ENOMEM);
    TRY(ranks_all_gather(over, by, sizeof *by, all));
    for (int r = 0; r < over->count; r++) *by = fminf(*by, all[r]);
done:
    free(all);
    return rc;
}

int conr_kmeans_shard(conr *c, const float *features, int64_t rows, int64_t width,
                      const conr_kmeans_options *options, float *centroids, int32_t *labels,
                      conr_kmeans_history *history) {
    int rc = 0;
    ranks *over = c->ranks.count > 1 || c->ranks.talks ? &c->ranks : NULL;
    conr_kmeans_options o = *options;
    float by = 1, *x = NULL, *start = NULL;
    int64_t size = (int64_t)o.clusters * width;
    if (history) *history = (conr_kmeans_history){0};
    TRY(numbers_check("features", features, rows, width));
    TRY(check_options(&o, INT64_MAX));
    if (o.start) TRY(numbers_check("start", o.start, o.clusters, width));
    if (o.metric == CONR_EUCLIDEAN)
        by = scale_for(features, rows, o.start, o.start ? o.clusters : 0, width);
    TRY(share_scale(over, &by));
    if (by != 1) {
        x = scale_copy(features, rows * width, by);
        if (o.start) o.start = start = scale_copy(o.start, size, by);
        TRY(x && (start || !o.start) ? 0 : CONR_ENOMEM);
    }
    TRY(large_spread(c->host, over, x ? x : features, (int)rows, (int)width, &o, centroids, labels,
                     history));
    for (int64_t i = 0; by != 1 && i < size; i++) centroids[i] /= by;
    if (history) unscale_history(history, by);
done:
    if (rc < 0 && history) conr_kmeans_history_free(history);
    free(x), free(start);
    return rc;
}
