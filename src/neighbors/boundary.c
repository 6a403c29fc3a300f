/* boundary.c: the boundary filter (the paper's section 3.3): the boundary ratio of rows, and which
 * rows a training step keeps. */
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "context/context.h"
#include "kernels/rows.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* f: [d]; centroid: [K,d] */
static float ratio_of(const float *f, const float *centroid, int d, int K, int own) {
    double inside = 0, nearest = INFINITY;
    for (int c = 0; c < K; c++) {
        double sum = 0;
        for (int j = 0; j < d; j++) {
            double step = (double)f[j] - centroid[(size_t)c * d + j];
            sum += step * step;
        }
        if (c == own)
            inside = sqrt(sum);
        else if (sum < nearest)
            nearest = sum;
    }
    nearest = sqrt(nearest);
    double larger = inside > nearest ? inside : nearest;
    if (isinf(nearest)) return 0;
    return larger > 0 ? (float)(1 - (nearest - inside) / larger) : 1;
}

/* All arrays in device memory; asynchronous. */
static int boundary_device(device *dev, const float *features, int n, int d, conr_metric metric,
                           const float *centroids, int K, const int32_t *labels,
                           bool normalize_centroids, float *ratio) {
    int rc = 0;
    size_t at = 0;
    void *work = NULL;
    size_t centers = span(&at, normalize_centroids ? (size_t)K * d : 0, sizeof(float));
    size_t unit = span(&at, metric == CONR_COSINE ? (size_t)n * d : 0, sizeof(float));
    if (at) TRY(dev->op.work(dev, at * sizeof(float), &work));
    if (normalize_centroids) {
        TRY(dev->op.rows_normalize(dev, centroids, K, d, (float *)work + centers, NULL));
        centroids = (float *)work + centers;
    }
    if (metric == CONR_COSINE) {
        TRY(dev->op.rows_normalize(dev, features, n, d, (float *)work + unit, NULL));
        features = (float *)work + unit;
    }
    TRY(dev->op.boundary_ratio(dev, features, n, d, labels, centroids, K, ratio));
done:
    return rc;
}

int conr_boundary(conr *c, const float *features, int64_t rows, int64_t width, conr_metric metric,
                  const float *centroids, int K, const int32_t *labels, int normalize_centroids,
                  float *ratio) {
    int rc = 0, there = ARRAYS_ON_DEVICE(c, features, centroids, labels, ratio);
    if (there < 0) return there;
    if (there) {
        if ((rc = numbers_check_shape("features", features, rows, width)) < 0) return rc;
        if ((rc = numbers_check_shape("centroids", centroids, K, width)) < 0) return rc;
        return boundary_device(c->dev, features, (int)rows, (int)width, metric, centroids, K,
                               labels, normalize_centroids, ratio);
    }
    if ((rc = numbers_check("features", features, rows, width)) < 0) return rc;
    if ((rc = numbers_check("centroids", centroids, K, width)) < 0) return rc;
    int n = (int)rows, d = (int)width;
    for (int i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= K)
            return fail(CONR_EINVAL, "labels: row %d has %d, not 0 to %d; assign the rows first", i,
                        labels[i], K - 1);
    float *unit = NULL, *sizes = NULL, *centers = NULL;
    sizes = memory_new("boundary", (size_t)(n > K ? n : K), sizeof *sizes);
    centers = memory_new("boundary", (size_t)K * d, sizeof *centers);
    TRY(sizes && centers ? 0 : CONR_ENOMEM);
    memcpy(centers, centroids, (size_t)K * d * sizeof *centers);
    if (normalize_centroids) rows_normalize(c->host->threads, centroids, K, d, centers, sizes);
    if (metric == CONR_COSINE) {
        unit = memory_new("boundary", (size_t)n * d, sizeof *unit);
        TRY(unit ? 0 : CONR_ENOMEM);
        rows_normalize(c->host->threads, features, n, d, unit, sizes);
        features = unit;
    }
#pragma omp parallel for num_threads(c->host->threads) schedule(static)
    for (int i = 0; i < n; i++)
        ratio[i] = ratio_of(features + (size_t)i * d, centers, d, K, labels[i]);
done:
    free(unit), free(sizes), free(centers);
    return rc;
}

static int by_value(const void *a, const void *b) {
    float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

/* The number of rows to keep, ties not counted; at least one. */
static int64_t allowed(int64_t n, double fraction) {
    if (n < 1) return fail(CONR_EINVAL, "boundary: no rows; give at least one");
    if (!(fraction >= 0 && fraction <= 1))
        return fail(CONR_EINVAL, "boundary: fraction %g; give a number from 0 to 1", fraction);
    /* n * fraction may be a hair below the whole number that is meant, as in 100 * 0.29 */
    int64_t count = (int64_t)floor((double)n * fraction + 1e-9);
    return count > 1 ? count : 1;
}

int64_t conr_boundary_keep(const float *ratio, int64_t n, double fraction, unsigned char *kept,
                           float *sigma) {
    int64_t count = allowed(n, fraction), left = 0;
    if (count < 0) return count;
    float *sorted = memory_new("boundary", (size_t)n, sizeof *sorted);
    if (!sorted) return CONR_ENOMEM;
    memcpy(sorted, ratio, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    float most = sorted[count - 1];
    for (int64_t i = 0; i < n; i++) left += kept[i] = ratio[i] <= most;
    if (sigma) *sigma = most;
    free(sorted);
    return left;
}

int conr_boundary_filter(conr *c, const float *ratio, int64_t n, double fraction,
                         unsigned char *kept) {
    int there = ARRAYS_ON_DEVICE(c, ratio, kept);
    int64_t count = there < 0 ? there : allowed(n, fraction);
    if (count < 0) return (int)count;
    if (there && n > INT_MAX)
        return fail(CONR_EINVAL, "boundary: %lld rows are too many; give fewer", (long long)n);
    if (there) return c->dev->op.boundary_keep(c->dev, ratio, (int)n, (int)count, kept);
    count = conr_boundary_keep(ratio, n, fraction, kept, NULL);
    return count < 0 ? (int)count : 0;
}

double conr_boundary_fraction(double first, int epoch, int relax_epochs) {
    if (relax_epochs <= 0 || epoch >= relax_epochs) return 1;
    return first + (1 - first) * (epoch > 0 ? epoch : 0) / relax_epochs;
}
