/* features.c: the benchmarks of everything that works on features: neighborhoods, k-means, scores.
 * They call the public functions, as a program would. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { D = 256, CENTERS = 30 };

/* n rows of D floats around CENTERS centers of unequal weight; owned by the caller. */
static float *draw_features(const conr *c, int n) {
    float *x = memory_new("bench", (size_t)n * D, sizeof *x);
    float *center = memory_new("bench", (size_t)CENTERS * D, sizeof *center);
    if (x && center) {
        rng r = rng_at(1, 0, 0, RNG_TEST);
        for (int i = 0; i < CENTERS * D; i++) center[i] = (float)rng_normal(&r);
#pragma omp parallel for num_threads(c->host->threads) schedule(static)
        for (int i = 0; i < n; i++) {
            rng own = rng_at(1, 1, (uint32_t)i, RNG_TEST);
            int k = (int)(CENTERS * sqrtf(rng_float(&own)));
            for (int j = 0; j < D; j++)
                x[(size_t)i * D + j] = center[k * D + j] + 1.5f * (float)rng_normal(&own);
        }
    }
    free(center);
    return x;
}

/* The fastest of `repeat` searches for the neighborhoods of n rows. */
static int time_neighbors(conr *c, int n, int repeat, double *best) {
    conr_neighbors_options o = conr_neighbors_defaults();
    int rc = 0;
    o.recall = 1; /* what the share of the peak is about */
    float *x = draw_features(c, n);
    int32_t *ids = memory_new("bench", (size_t)n * o.k, sizeof *ids);
    TRY(x && ids ? 0 : CONR_ENOMEM);
    *best = INFINITY;
    for (int r = 0; r < repeat; r++) {
        double start = clock_now();
        TRY(conr_neighbors(c, x, n, D, &o, ids));
        double seconds = clock_now() - start;
        if (seconds < *best) *best = seconds;
    }
done:
    free(x), free(ids);
    return rc;
}

int conr_bench_neighbors(conr *c, int quick, conr_on_bench *on_row, void *user) {
    static const struct { int n, repeat; } cases[] = {{256, 100}, {1024, 30}, {60000, 1}};
    double peak, copies, seconds;
    int rc = conr_bench_peaks(c, &peak, &copies);
    for (int i = 0; rc >= 0 && i < 3 - (quick != 0); i++) {
        char shape[64];
        double n = cases[i].n, flops = n * n * D;
        if ((rc = time_neighbors(c, cases[i].n, cases[i].repeat, &seconds)) < 0) break;
        snprintf(shape, sizeof shape, "%dx%d, k1 = 10, k2 = 2", cases[i].n, (int)D);
        conr_bench_row row = {.op = "neighbors",
                              .shape = shape,
                              .seconds = seconds,
                              .flops = flops,
                              .bytes = n * D * 4,
                              .share = flops / seconds / peak,
                              .error = -1};
        on_row(&row, user);
    }
    return rc;
}

static int time_kmeans(conr *c, const float *x, int n, int K, double *seconds) {
    conr_kmeans_options o = conr_kmeans_defaults();
    int rc = 0;
    float *centroids = memory_new("bench", (size_t)K * D, sizeof *centroids);
    int32_t *labels = memory_new("bench", (size_t)n, sizeof *labels);
    TRY(centroids && labels ? 0 : CONR_ENOMEM);
    o.clusters = K;
    double start = clock_now();
    TRY(conr_kmeans(c, x, n, D, &o, centroids, labels, NULL));
    *seconds = clock_now() - start;
done:
    free(centroids), free(labels);
    return rc;
}

/* Scores of 20,000 samples in K clusters and K classes, half of them right. */
static int time_scores(int K, double *best) {
    enum { N = 20000 };
    static int64_t truth[N], pred[N];
    conr_scores scores;
    rng r = rng_at(2, 0, 0, RNG_TEST);
    *best = INFINITY;
    for (int i = 0; i < N; i++) {
        truth[i] = rng_below(&r, (uint32_t)K);
        pred[i] = rng_below(&r, 2) ? (truth[i] * 7 + 3) % K : rng_below(&r, (uint32_t)K);
    }
    for (int repeat = 0; repeat < 20; repeat++) {
        double start = clock_now();
        int rc = conr_metrics(truth, pred, N, &scores);
        double seconds = clock_now() - start;
        if (rc < 0) return rc;
        if (seconds < *best) *best = seconds;
    }
    return 0;
}

int conr_bench_kmeans(conr *c, int quick, conr_on_bench *on_row, void *user) {
    int rc = 0, n = quick ? 6000 : 60000;
    double seconds;
    float *x = draw_features(c, n);
    TRY(x ? 0 : CONR_ENOMEM);
    for (int K = 10; K <= 200; K *= 20) {
        char shape[64];
        TRY(time_kmeans(c, x, n, K, &seconds));
        snprintf(shape, sizeof shape, "%dx%d, K = %d, 10 restarts", n, (int)D, K);
        conr_bench_row row = {
            .op = "kmeans", .shape = shape, .seconds = seconds, .bytes = 4.0 * n * D, .error = -1};
        on_row(&row, user);
    }
    TRY(time_scores(200, &seconds));
    conr_bench_row row = {.op = "scores",
                          .shape = "20000 labels, 200 x 200",
                          .seconds = seconds,
                          .bytes = 16.0 * 20000,
                          .error = -1};
    on_row(&row, user);
done:
    free(x);
    return rc;
}
