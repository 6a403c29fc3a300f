/* assign.c: the nearest centroid of each row. */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "clusters/scale.h"
#include "context/context.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Rows go by blocks of panels, each against one tile of centroids after the other: a block stays in
 * the second-level cache while all centroids pass by, and the features are never copied whole. */
enum { BLOCK = 192 << 10, MOST_PANELS = 32 };

typedef struct assignment {
    points p;        /* d, metric, kernel, shift */
    int K, slots;    /* slots: centroids in whole panels of mr */
    int panels;      /* of a block */
    float *w, *tall; /* [slots,d]: the centroids, and their panels */
    float *half;     /* [slots] */
    float *scratch;  /* [threads, scratch_size] */
    size_t scratch_size;
} assignment;

/* The distance by the metric of a row and its centroid, both as points.h has them. */
static float distance_of(const points *p, const float *x, const float *w) {
    double sum = 0;
    for (int j = 0; j < p->d; j++)
        sum += p->metric == CONR_COSINE ? (double)x[j] * w[j]
                                        : ((double)x[j] - w[j]) * ((double)x[j] - w[j]);
    return (float)(p->metric == CONR_COSINE ? 1 - sum : sqrt(sum));
}

/* Labels and distances (or NULL) of `count` rows, at most a block.  Returns the first row whose
 * square is not finite, or count. */
static int assign_block(const assignment *a, const float *rows, int count, float *scratch,
                        int32_t *labels, float *distances) {
    const gemm_kernel *g = a->p.kernel;
    int d = a->p.d, most = a->panels * g->nr, bad = count;
    float *x = scratch, *wide = x + (size_t)most * d, *square = wide + (size_t)most * d;
    float *score = square + most, *next = score + most, tile[GEMM_TILE];
    int32_t *slot = (int32_t *)(next + most);
    points_rows(&a->p, rows, count, x, square);
    gemm_pack_all(x, count, d, g->nr, 1, wide);
    for (int i = count - 1; i >= 0; i--)
        if (!isfinite(square[i])) bad = i;
    for (int i = 0; i < count; i += g->nr)
        points_best_clear(&a->p, &(points_best){score + i, next + i, slot + i});
    for (int c = 0; c < a->slots; c += g->mr)
        for (int i = 0; i < count; i += g->nr) {
            points_best best = {score + i, next + i, slot + i};
            gemm_tile(g, d, a->tall + (size_t)c * d, wide + (size_t)i * d, tile);
            points_offer(&a->p, tile, a->half + c, c, g->mr, &best);
        }
    for (int i = 0; i < count; i++) {
        labels[i] = slot[i] < 0 ? 0 : slot[i]; /* none: the row is bad */
        if (distances)
            distances[i] = distance_of(&a->p, x + (size_t)i * d, a->w + (size_t)labels[i] * d);
    }
    return bad;
}

/* centroids: [K,d], as users see them. */
static int assignment_new(const device *dev, const float *centroids, assignment *a) {
    const gemm_kernel *g = a->p.kernel;
    size_t slots = (size_t)((a->K + g->mr - 1) / g->mr * g->mr), d = (size_t)a->p.d;
    a->slots = (int)slots;
    a->panels = (int)(BLOCK / (d * g->nr * sizeof(float)));
    a->panels = a->panels < 1 ? 1 : a->panels > MOST_PANELS ? MOST_PANELS : a->panels;
    a->scratch_size = ((size_t)a->panels * g->nr * (2 * d + 4) + 15) / 16 * 16;
    a->w = memory_new("k-means", slots * d, sizeof *a->w);
    a->tall = memory_new("k-means", slots * d, sizeof *a->tall);
    a->half = memory_new("k-means", slots, sizeof *a->half);
    a->p.shift = memory_new("k-means", d, sizeof *a->p.shift);
    a->scratch = memory_new("k-means", a->scratch_size * dev->threads, sizeof *a->scratch);
    if (!(a->w && a->tall && a->half && a->p.shift && a->scratch)) return CONR_ENOMEM;
    memset(a->w, 0, slots * d * sizeof *a->w);
    for (size_t c = 0; c < slots; c++) a->half[c] = INFINITY;
    /* the mean of the centroids: so a row's label depends only on that row and on them */
    if (a->p.metric == CONR_COSINE)
        memset(a->p.shift, 0, d * sizeof *a->p.shift);
    else
        points_middle(centroids, a->K, a->p.d, a->p.shift);
    for (int c = 0; c < a->K; c++)
        a->half[c] = points_center(&a->p, centroids + c * d, a->w + c * d);
    gemm_pack_all(a->w, a->slots, a->p.d, g->mr, dev->threads, a->tall);
    return 0;
}

int assign_features(device *dev, const float *features, int n, int d, conr_metric metric,
                    const float *centroids, int K, int32_t *labels, float *distances) {
    int rc = 0, bad = n;
    assignment a = {.p = {.d = d, .metric = metric, .kernel = gemm_kernel_best()}, .K = K};
    TRY(assignment_new(dev, centroids, &a));
    int64_t block = (int64_t)a.panels * a.p.kernel->nr;
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic) reduction(min : bad)
    for (int64_t i = 0; i < n; i += block) {
        int count = n - i < block ? (int)(n - i) : (int)block;
        int at = assign_block(&a, features + i * d, count,
                              a.scratch + a.scratch_size * omp_get_thread_num(), labels + i,
                              distances ? distances + i : NULL);
        if (at < count && (int)i + at < bad) bad = (int)i + at;
    }
    if (bad < n) TRY(points_overflow(bad));
done:
    free(a.w), free(a.tall), free(a.half), free(a.p.shift), free(a.scratch);
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
