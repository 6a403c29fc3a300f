/* assign.c: the nearest centroid of each row. */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "clusters/scale.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* labels and distances (or NULL) of the points; centroids: [K,d], as users see them. */
static int assign(const device *dev, const points *p, const float *centroids, int K,
                  int32_t *labels, float *distances) {
    int rc = 0, d = p->d, mr = p->kernel->mr, nr = p->kernel->nr;
    int slots = (K + mr - 1) / mr * mr;
    float *w = memory_new("k-means", (size_t)slots * d, sizeof *w);
    float *tall = memory_new("k-means", (size_t)slots * d, sizeof *tall);
    float *half = memory_new("k-means", (size_t)slots, sizeof *half);
    TRY(w && tall && half ? 0 : CONR_ENOMEM);
    memset(w, 0, (size_t)slots * d * sizeof *w);
    for (int c = 0; c < slots; c++) half[c] = INFINITY;
    for (int c = 0; c < K; c++)
        half[c] = points_center(p, centroids + (size_t)c * d, w + (size_t)c * d);
    gemm_pack_all(w, slots, d, mr, 1, tall);
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 8)
    for (int i = 0; i < p->n; i += nr) {
        float score[GEMM_NR], next[GEMM_NR], tile[GEMM_TILE];
        int32_t slot[GEMM_NR];
        points_best best = {score, next, slot};
        points_best_clear(p, &best);
        for (int c = 0; c < slots; c += mr) {
            gemm_tile(p->kernel, d, tall + (size_t)c * d, p->wide + (size_t)i * d, tile);
            points_offer(p, tile, half + c, c, mr, &best);
        }
        for (int r = 0; r < nr && i + r < p->n; r++) {
            const float *x = p->x + (size_t)(i + r) * d, *center = w + (size_t)slot[r] * d;
            double sum = 0;
            labels[i + r] = slot[r];
            if (!distances) continue;
            for (int j = 0; j < d; j++)
                sum += p->metric == CONR_COSINE
                           ? (double)x[j] * center[j]
                           : ((double)x[j] - center[j]) * ((double)x[j] - center[j]);
            distances[i + r] = (float)(p->metric == CONR_COSINE ? 1 - sum : sqrt(sum));
        }
    }
done:
    free(w), free(tall), free(half);
    return rc;
}

int assign_features(device *dev, const float *features, int n, int d, conr_metric metric,
                    const float *centroids, int K, int32_t *labels, float *distances) {
    points p = {0};
    float *shift = memory_new("k-means", (size_t)d, sizeof *shift);
    int rc = shift ? 0 : CONR_ENOMEM;
    TRY(rc);
    /* the mean of the centroids: so a row's label depends only on that row and on them */
    points_middle(centroids, K, d, shift);
    TRY(points_make(dev, features, n, d, metric, shift, &p));
    TRY(assign(dev, &p, centroids, K, labels, distances));
done:
    points_free(&p);
    free(shift);
    return rc;
}

/* The same after scaling tiny values. */
static int assign_scaled(device *dev, const float *features, int n, int d, conr_metric metric,
                         const float *centroids, int K, int32_t *labels, float *distances) {
    int rc = 0;
    float by = metric == CONR_EUCLIDEAN ? scale_for(features, n, centroids, K, d) : 1;
    if (by == 1)
        return assign_features(dev, features, n, d, metric, centroids, K, labels, distances);
    float *x = scale_copy(features, (int64_t)n * d, by);
    float *w = scale_copy(centroids, (int64_t)K * d, by);
    TRY(x && w ? 0 : CONR_ENOMEM);
    TRY(assign_features(dev, x, n, d, metric, w, K, labels, distances));
    for (int i = 0; distances && i < n; i++) distances[i] /= by;
done:
    free(x), free(w);
    return rc;
}

int conr_assign(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                const float *centroids, int K, int32_t *labels, float *distances) {
    int rc, there = ARRAYS_ON_DEVICE(c, features, centroids, labels, distances);
    if (there < 0) return there;
    if (there) {
        if ((rc = numbers_check_shape("features", features, n, d)) < 0) return rc;
        if ((rc = numbers_check_shape("centroids", centroids, K, d)) < 0) return rc;
        return c->dev->op.assign(c->dev, features, (int)n, (int)d, metric, centroids, K, labels,
                                 distances);
    }
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if ((rc = numbers_check("centroids", centroids, K, d)) < 0) return rc;
    return assign_scaled(c->host, features, (int)n, (int)d, metric, centroids, K, labels,
                         distances);
}
