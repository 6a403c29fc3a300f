/* large_start.c: centers to start from, for a large set.
 *
 * Greedy k-means++ takes K passes over the rows.  Here a sample is first divided coarsely, then each
 * part by k-means of its own, with a share of the centers that is its share of the rows: about
 * sqrt(K) comparisons a row in place of K.  Every rank does the same work on the same sample. */
#include "clusters/large.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    A_CENTER = 24,       /* rows of the sample */
    A_ROUGH_CENTER = 64, /* rows of the sample that the coarse centers are found from */
    ROUGH_STEPS = 10,
    FINE_STEPS = 5,
    SAMPLE_STEPS = 14
};

int large_coarse(int K) { return (int)ceil(sqrt(K)); }

float large_centroid(const shard *s, double mean, int j) {
    return (float)(mean / s->unit + s->shift[j]);
}

/* k-means of one run on rows [n,d] in the space of the shard; mean: [K,d]. */
static int divide(const shard *s, const float *rows, int n, int K, uint64_t seed, int run,
                  int steps, double *mean) {
    int rc = 0, d = s->d;
    double objective;
    points p = {0};
    conr_kmeans_options o = conr_kmeans_defaults();
    float *none = calloc((size_t)d, sizeof *none);
    int32_t *chosen = memory_new("k-means", (size_t)K, sizeof *chosen);
    if (!none) TRY(fail_memory("k-means", 4.0 * d));
    TRY(chosen ? 0 : CONR_ENOMEM);
    o.clusters = K, o.metric = s->metric, o.iterations = steps;
    TRY(points_make(s->dev, rows, n, d, s->metric, none, &p));
    TRY(seeding_choose(s->dev, &p, K, run, 1, seed, chosen));
    for (int c = 0; c < K; c++)
        for (int j = 0; j < d; j++) mean[(size_t)c * d + j] = p.x[(size_t)chosen[c] * d + j];
    TRY(lloyd_run(s->dev, &p, &o, run, mean, &objective, NULL, NULL));
done:
    points_free(&p);
    free(none), free(chosen);
    return rc;
}

/* Sorts the rows of the sample by their coarse center.  sorted: [count,d]; end: [G], the first row
 * after each part. */
static int sort_sample(const shard *s, const float *sample, int count, const float *rough, int G,
                       float *sorted, int *end) {
    int rc = 0;
    size_t d = (size_t)s->d;
    int32_t *label = memory_new("k-means", (size_t)count, sizeof *label);
    TRY(label ? 0 : CONR_ENOMEM);
    TRY(assign_features(s->dev, sample, count, s->d, s->metric, rough, G, label, NULL));
    memset(end, 0, (size_t)G * sizeof *end);
    for (int i = 0; i < count; i++) end[label[i]]++;
    for (int g = 0, at = 0; g < G; g++) {
        int size = end[g];
        end[g] = at, at += size;
    }
    for (int i = 0; i < count; i++)
        memcpy(sorted + end[label[i]]++ * d, sample + i * d, d * sizeof *sorted);
done:
    free(label);
    return rc;
}

/* Divides the parts, each by its share of the centers: those that its rows take the count past. */
static int divide_parts(const shard *s, const float *sorted, const int *end, int G, int count,
                        int K, uint64_t seed, int run, double *mean) {
    int failed = 0;
#pragma omp parallel for num_threads(s->dev->threads) schedule(dynamic)
    for (int g = 0; g < G; g++) {
        int first = g ? end[g - 1] : 0, n = end[g] - first;
        int64_t from = (int64_t)first * K / count, to = (int64_t)end[g] * K / count;
        if (to == from) continue;
        int rc = divide(s, sorted + (size_t)first * s->d, n, (int)(to - from), seed,
                        (run + 1) * G + g, FINE_STEPS, mean + from * s->d);
#pragma omp critical
        failed = rc < failed ? rc : failed;
    }
    /* the message is the other thread's */
    return failed ? fail(failed, "k-means: out of memory; close other programs") : 0;
}

/* Runs on the sample alone [n,d]: cheap, and here centers can jump between its parts. */
static int mend(const shard *s, const float *sample, int n, int K, uint64_t seed, int run,
                const float *rough, double *mean) {
    int rc = 0, d = s->d;
    size_t size = (size_t)large_coarse(K) * d;
    double objective;
    shard part = {0};
    conr_kmeans_options o = conr_kmeans_defaults();
    float *both = memory_new("k-means", 2 * size, sizeof *both); /* rough, for the part */
    TRY(both ? 0 : CONR_ENOMEM);
    o.clusters = K, o.metric = s->metric, o.iterations = SAMPLE_STEPS,
    o.seed = seed + (uint64_t)run;
    TRY(shard_open(s->dev, NULL, sample, n, d, s->metric, &part));
    for (size_t i = 0; i < (size_t)K * d; i++) mean[i] = (mean[i] - part.shift[i % d]) * part.unit;
    for (size_t i = 0; i < size; i++) {
        both[i] = (rough[i] - part.shift[i % d]) * part.unit;
        both[size + i] = rough[i];
    }
    TRY(large_run(&part, &o, run, both, true, mean, &objective, NULL, NULL));
    for (size_t i = 0; i < (size_t)K * d; i++) mean[i] = mean[i] / part.unit + part.shift[i % d];
done:
    shard_free(&part);
    free(both);
    return rc;
}

int large_start(const shard *s, int K, uint64_t seed, int run, float *rough, double *mean) {
    int rc = 0, G = large_coarse(K), d = s->d;
    int64_t count = s->total < (int64_t)A_CENTER * K ? s->total : (int64_t)A_CENTER * K;
    int64_t few = count < (int64_t)A_ROUGH_CENTER * G ? count : (int64_t)A_ROUGH_CENTER * G;
    size_t size = (size_t)(count * d);
    float *sample = memory_new("k-means", size, sizeof *sample);
    float *sorted = memory_new("k-means", size, sizeof *sorted);
    int *end = memory_new("k-means", (size_t)G, sizeof *end);
    TRY(sample && sorted && end ? 0 : CONR_ENOMEM);
    TRY(shard_sample(s, count, seed, run, sample));
    for (int64_t i = 0; i < few; i++)
        memcpy(sorted + i * d, sample + i * count / few * d, (size_t)d * sizeof *sorted);
    TRY(divide(s, sorted, (int)few, G, seed, run, ROUGH_STEPS, mean)); /* K >= G */
    for (size_t i = 0; i < (size_t)G * d; i++) {
        rough[i] = (float)mean[i];
        rough[(size_t)G * d + i] = large_centroid(s, mean[i], (int)(i % d));
    }
    TRY(sort_sample(s, sample, (int)count, rough, G, sorted, end));
    TRY(divide_parts(s, sorted, end, G, (int)count, K, seed, run, mean));
    TRY(mend(s, sample, (int)count, K, seed, run, rough, mean));
done:
    free(sample), free(sorted), free(end);
    return rc;
}
