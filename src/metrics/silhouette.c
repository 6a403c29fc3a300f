/* silhouette.c: the mean silhouette (Rousseeuw 1987): (b - a) / max(a, b), where a is the mean
 * distance of a row to its own cluster, b to the nearest other one.
 *
 * Distances come from blocks of dot products of some rows with all rows, by the device's gemm. */
#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXACT = 20000,  /* from this many rows on, the mean is over a sample */
    SAMPLE = 10000, /* of this many */
    BLOCK = 256     /* rows at a time */
};

/* Rows ready for dot products: scaled to length 1 (cosine), or centered, which loses fewer digits
 * (Euclidean).  out: [n,d]; squares: [n], |out|^2 (Euclidean only) */
static int prepare(device *dev, const float *x, int64_t n, int64_t d, conr_metric metric,
                   float *out, float *squares) {
    if (metric == CONR_COSINE) return dev->op.rows_normalize(dev, x, (int)n, (int)d, out, squares);
    for (int64_t j = 0; j < d; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[i * d + j];
        float mean = (float)(sum / (double)n);
        for (int64_t i = 0; i < n; i++) out[i * d + j] = x[i * d + j] - mean;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++) sum += (double)out[i * d + j] * out[i * d + j];
        squares[i] = (float)sum;
    }
    return 0;
}

typedef struct silhouette {
    int64_t n, d;
    conr_metric metric;
    int clusters;
    float *x;       /* [n,d], ordered by cluster */
    float *squares; /* [n] */
    int64_t *start; /* [clusters+1]: first row of each cluster */
    int32_t *where; /* [n]: cluster of each row */
} silhouette;

/* The silhouette of row i, given its dot products with all rows; 0 for a cluster of one. */
static double row_silhouette(const silhouette *s, int64_t i, const float *dots) {
    double own = 0, other = INFINITY;
    for (int c = 0; c < s->clusters; c++) {
        double sum = 0;
        int64_t count = s->start[c + 1] - s->start[c];
        for (int64_t j = s->start[c]; j < s->start[c + 1]; j++) {
            float d2 = s->squares[i] + s->squares[j] - 2 * dots[j];
            float d = s->metric == CONR_COSINE ? 1 - dots[j] : sqrtf(d2 > 0 ? d2 : 0);
            sum += j == i ? 0 : d;
        }
        if (c != s->where[i])
            other = sum / (double)count < other ? sum / (double)count : other;
        else if (count == 1)
            return 0;
        else
            own = sum / (double)(count - 1);
    }
    double larger = own > other ? own : other;
    return larger > 0 ? (other - own) / larger : 0;
}

static int by_label(const void *a, const void *b) {
    const int64_t *left = a, *right = b; /* {label, row} */
    if (left[0] != right[0]) return left[0] < right[0] ? -1 : 1;
    return (left[1] > right[1]) - (left[1] < right[1]);
}

/* Sorts the rows by label; fills start and where. */
static int order_rows(const float *x, const int32_t *labels, silhouette *s, float *ordered) {
    int64_t(*key)[2] = memory_new("silhouette", (size_t)s->n, sizeof *key);
    if (!key) return CONR_ENOMEM;
    for (int64_t i = 0; i < s->n; i++) key[i][0] = labels[i], key[i][1] = i;
    qsort(key, (size_t)s->n, sizeof *key, by_label);
    for (int64_t i = 0; i < s->n; i++) {
        if (i == 0 || key[i][0] != key[i - 1][0]) s->start[s->clusters++] = i;
        s->where[i] = s->clusters - 1;
        memcpy(ordered + i * s->d, x + key[i][1] * s->d, (size_t)s->d * sizeof *x);
    }
    s->start[s->clusters] = s->n;
    free(key);
    return 0;
}

/* The sum over `used` rows: all, or a sample.  Rows of a block are copied together, since those of
 * a sample are scattered. */
static int sum_rows(device *dev, const silhouette *s, int64_t used, uint64_t seed, double *sum) {
    int rc = 0;
    rng_order order = rng_order_make(seed, 0, (uint32_t)s->n);
    float *rows = memory_new("silhouette", (size_t)BLOCK * s->d, sizeof *rows);
    float *dots = memory_new("silhouette", (size_t)BLOCK * s->n, sizeof *dots);
    double value[BLOCK];
    int64_t row[BLOCK];
    TRY(rows && dots ? 0 : CONR_ENOMEM);
    *sum = 0;
    for (int64_t i0 = 0; i0 < used; i0 += BLOCK) {
        int count = used - i0 < BLOCK ? (int)(used - i0) : BLOCK;
        for (int r = 0; r < count; r++) {
            row[r] = used == s->n ? i0 + r : rng_order_at(&order, (uint32_t)(i0 + r));
            memcpy(rows + r * s->d, s->x + row[r] * s->d, (size_t)s->d * sizeof *rows);
        }
        TRY(dev->op.gemm(dev, false, true, count, (int)s->n, (int)s->d, 1, rows, (int)s->d, s->x,
                         (int)s->d, 0, dots, (int)s->n));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
        for (int r = 0; r < count; r++) value[r] = row_silhouette(s, row[r], dots + r * s->n);
        for (int r = 0; r < count; r++) *sum += value[r];
    }
done:
    free(rows), free(dots);
    return rc;
}

int conr_silhouette(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                    const int32_t *labels, uint64_t seed, double *mean, int64_t *used) {
    int rc = 0;
    silhouette s = {.n = n, .d = d, .metric = metric};
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    float *ordered = memory_new("silhouette", (size_t)(n * d), sizeof *ordered);
    s.x = memory_new("silhouette", (size_t)(n * d), sizeof *s.x);
    s.squares = memory_new("silhouette", (size_t)n, sizeof *s.squares);
    s.start = memory_new("silhouette", (size_t)n + 1, sizeof *s.start);
    s.where = memory_new("silhouette", (size_t)n, sizeof *s.where);
    TRY(ordered && s.x && s.squares && s.start && s.where ? 0 : CONR_ENOMEM);
    TRY(order_rows(features, labels, &s, ordered));
    if (s.clusters < 2)
        TRY(fail(CONR_EINVAL, "silhouette: all rows have one label; give at least two clusters"));
    TRY(prepare(c->host, ordered, n, d, metric, s.x, s.squares));
    int64_t rows = n < EXACT ? n : SAMPLE;
    double sum;
    TRY(sum_rows(c->host, &s, rows, seed, &sum));
    *mean = sum / (double)rows;
    if (used) *used = rows;
done:
    free(ordered), free(s.x), free(s.squares), free(s.start), free(s.where);
    return rc;
}
