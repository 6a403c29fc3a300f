/* large_kmeans.c: the best of several runs on a large set. */
#include "clusters/large.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Distances of an iteration from which on it pays; chosen, not measured. */
static const int64_t LARGE = (int64_t)1 << 26;

bool large_is(int64_t n, int K) { return n * K >= LARGE; }

/* The sum of the distances (cosine) or their squares, over all ranks. */
static int total_of(const shard *s, const float *distances, double *out) {
    int rc = 0, rows;
    float most = 0;
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++) most = fmaxf(most, distances[i]);
    TRY(shard_max(s, &most));
    double least = most > 0 ? most : 1, by;
    if (!s->by) least *= most > 0 ? most : 1;
    frexp((double)s->total, &rows);
    by = ldexp(1, 61 - rows) / least;
    for (int i = 0; i < s->n; i++) {
        double x = distances[i];
        sum += llrint((s->by ? x : x * x) * by);
    }
    TRY(shard_sum(s, &sum, 1));
    *out = (double)sum / by;
done:
    return rc;
}

/* A run from seeds, or from the caller's centroids. */
static int run_once(const shard *s, const conr_kmeans_options *o, int run, float *rough,
                    double *mean, double *objective, kmeans_recorder *r) {
    int rc = 0;
    bool seeded = run < o->restarts;
    TRY(device_report(s->dev, "k-means", run, o->restarts + (o->start != NULL)));
    if (seeded)
        TRY(large_start(s, o->clusters, o->seed, run, rough, mean));
    else
        for (size_t i = 0; i < (size_t)o->clusters * s->d; i++)
            mean[i] = ((double)o->start[i] - s->shift[i % s->d]) * s->unit;
    TRY(large_run(s, o, run, seeded ? rough : NULL, false, mean, objective, kmeans_record, r));
    rc = r->failed;
done:
    return rc;
}

int large_kmeans(device *dev, ranks *over, const float *features, int n, int d,
                 const conr_kmeans_options *o, float *centroids, int32_t *labels,
                 conr_kmeans_history *history) {
    int rc = 0, best_run = 0;
    double least = INFINITY;
    size_t size = (size_t)o->clusters * d;
    shard s = {0};
    kmeans_recorder r = {.to = history};
    float *rough = NULL, *distances = NULL;
    double *mean = memory_new("k-means", size, sizeof *mean);
    TRY(mean ? 0 : CONR_ENOMEM);
    TRY(shard_open(dev, over, features, n, d, o->metric, &s));
    if (o->clusters > s.total)
        TRY(fail(CONR_EINVAL, "clusters: %d are more than the %lld rows; give at most %lld",
                 o->clusters, (long long)s.total, (long long)s.total));
    rough = memory_new("k-means", 2 * (size_t)large_coarse(o->clusters) * d, sizeof *rough);
    TRY(rough ? 0 : CONR_ENOMEM);
    for (int run = 0; run < o->restarts + (o->start != NULL); run++) {
        double objective;
        TRY(run_once(&s, o, run, rough, mean, &objective, &r));
        if (!(objective < least)) continue;
        least = objective, best_run = run;
        for (size_t i = 0; i < size; i++) centroids[i] = large_centroid(&s, mean[i], (int)(i % d));
    }
    free(mean), free(rough), mean = NULL, rough = NULL;
    distances = memory_new("k-means", (size_t)n, sizeof *distances);
    TRY(distances ? 0 : CONR_ENOMEM);
    TRY(assign_features(dev, features, n, d, o->metric, centroids, o->clusters, labels, distances));
    if (history) {
        history->run = best_run;
        for (int i = 0; i < history->steps; i++)
            history->step[i].objective /= (double)s.unit * s.unit;
        TRY(total_of(&s, distances, &history->objective));
    }
done:
    shard_free(&s);
    free(mean), free(rough), free(distances);
    return rc;
}

/* Gives all labels to all ranks, whose rows begin at starts [ranks+1]. */
static int share_labels(ranks *over, const int64_t *starts, int32_t *labels) {
    int rc = 0;
    for (int r = 0; r < over->count; r++)
        TRY(ranks_broadcast_from(over, r, labels + starts[r],
                                 (size_t)(starts[r + 1] - starts[r]) * sizeof *labels));
done:
    return rc;
}

int large_spread(device *dev, ranks *over, const float *features, int n, int d,
                 const conr_kmeans_options *o, float *centroids, int32_t *labels,
                 conr_kmeans_history *history) {
    int rc = 0, ranks = over ? over->count : 1;
    int64_t mine = n, *starts = memory_new("k-means", (size_t)ranks + 1, sizeof *starts);
    TRY(starts ? 0 : CONR_ENOMEM);
    starts[0] = 0, starts[1] = n;
    if (over) TRY(ranks_all_gather(over, &mine, sizeof mine, starts + 1));
    for (int r = 0; r < ranks; r++) starts[r + 1] += starts[r];
    TRY(large_kmeans(dev, over, features, n, d, o, centroids,
                     labels + starts[over ? over->rank : 0], history));
    if (over) TRY(share_labels(over, starts, labels));
done:
    free(starts);
    return rc;
}

int large_whole(device *dev, ranks *over, const float *features, int n, int d,
                const conr_kmeans_options *o, float *centroids, int32_t *labels,
                conr_kmeans_history *history) {
    int rank = over ? over->rank : 0, ranks = over ? over->count : 1;
    int64_t first = (int64_t)n * rank / ranks, last = (int64_t)n * (rank + 1) / ranks;
    return large_spread(dev, over, features + first * d, (int)(last - first), d, o, centroids,
                        labels, history);
}
