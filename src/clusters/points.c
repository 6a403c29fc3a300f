/* points.c: prepares rows for k-means, and holds the inner step of every assignment. */
#include "clusters/points.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_ints __attribute__((vector_size(16), aligned(4), may_alias));

void points_free(points *p) {
    free(p->x), free(p->wide), free(p->square), free(p->shift);
    *p = (points){0};
}

static void shift_row(const points *p, const float *from, float *to, float *square) {
    double squares = 0;
    for (int j = 0; j < p->d; j++) {
        to[j] = from[j] - p->shift[j];
        squares += (double)to[j] * to[j];
    }
    *square = (float)squares;
}

static void shift_rows(device *dev, const float *features, points *p) {
    int d = p->d;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < p->n; i++)
        shift_row(p, features + (size_t)i * d, p->x + (size_t)i * d, p->square + i);
}

void points_rows(const points *p, const float *rows, int count, float *x, float *square) {
    size_t d = (size_t)p->d;
    if (p->metric == CONR_COSINE) rows_normalize(1, rows, count, p->d, x, NULL);
    for (int i = 0; i < count; i++) {
        if (p->metric == CONR_COSINE)
            square[i] = 2;
        else
            shift_row(p, rows + i * d, x + i * d, square + i);
    }
}

/* The variance, averaged over the columns, and the sum of squares.  Threads split the columns, so
 * that each sum has one order. */
static int measure(const device *dev, points *p) {
    int d = p->d, n = p->n, width = ((d + dev->threads - 1) / dev->threads + 15) / 16 * 16;
    double *sum = calloc((size_t)d * 2, sizeof *sum), all = 0, variance = 0;
    if (!sum) return fail_memory("k-means", 16.0 * d);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int j0 = 0; j0 < d; j0 += width) {
        int j1 = j0 + width < d ? j0 + width : d;
        for (int i = 0; i < n; i++)
            for (int j = j0; j < j1; j++) {
                double x = p->x[(size_t)i * d + j];
                sum[j] += x;
                sum[d + j] += x * x;
            }
    }
    for (int j = 0; j < d; j++) {
        double mean = sum[j] / n;
        all += sum[d + j];
        variance += sum[d + j] / n - mean * mean;
    }
    p->variance = variance > 0 ? variance / d : 0;
    p->squares = p->metric == CONR_COSINE ? n : all;
    free(sum);
    return 0;
}

void points_middle(const float *rows, int64_t n, int d, float *out) {
    for (int j = 0; j < d; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += rows[i * d + j];
        out[j] = (float)(sum / (double)n);
    }
}

int points_overflow(int64_t row) {
    return fail(CONR_ENUMBER,
                "features: the squared length of row %lld overflows a float; scale the features "
                "down",
                (long long)row);
}

int points_make(device *dev, const float *features, int n, int d, conr_metric metric,
                const float *shift, points *out) {
    const gemm_kernel *g = gemm_kernel_best();
    int rc = 0;
    *out = (points){.n = n, .d = d, .metric = metric, .kernel = g};
    size_t rounded = (size_t)(n + g->nr - 1) / g->nr * g->nr;
    out->x = memory_new("k-means", (size_t)n * d, sizeof *out->x);
    out->wide = memory_new("k-means", gemm_panels_size(n, d, g->nr), sizeof *out->wide);
    out->square = memory_new("k-means", rounded, sizeof *out->square);
    out->shift = memory_new("k-means", (size_t)d, sizeof *out->shift);
    TRY(out->x && out->wide && out->square && out->shift ? 0 : CONR_ENOMEM);
    if (metric == CONR_COSINE) {
        memset(out->shift, 0, (size_t)d * sizeof *out->shift);
        rows_normalize(dev->threads, features, n, d, out->x, out->square);
        for (size_t i = 0; i < rounded; i++) out->square[i] = 2;
    } else {
        memcpy(out->shift, shift, (size_t)d * sizeof *out->shift);
        shift_rows(dev, features, out);
        for (size_t i = (size_t)n; i < rounded; i++) out->square[i] = 0;
        for (int i = 0; i < n; i++)
            if (!isfinite(out->square[i])) TRY(points_overflow(i));
    }
    gemm_pack_all(out->x, n, d, g->nr, dev->threads, out->wide);
    TRY(measure(dev, out));
done:
    if (rc < 0) points_free(out);
    return rc;
}

float points_center(const points *p, const float *centroid, float *w) {
    double squares = 0;
    for (int j = 0; j < p->d; j++) {
        w[j] = centroid[j] - p->shift[j];
        squares += (double)w[j] * w[j];
    }
    if (p->metric == CONR_EUCLIDEAN) return (float)(squares / 2);
    double by = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = 0; j < p->d; j++) w[j] = (float)(w[j] * by);
    return 0;
}

void points_best_clear(const points *p, points_best *best) {
    for (int c = 0; c < p->kernel->nr; c++) {
        best->score[c] = best->next[c] = -INFINITY;
        best->slot[c] = -1;
    }
}

/* mask ? yes : no, element by element */
static inline four choose(four_ints mask, four yes, four no) {
    return (four)((mask & (four_ints)yes) | (~mask & (four_ints)no));
}

void points_offer(const points *p, const float *dots, const float *half, int slot, int count,
                  points_best *best) {
    int nr = p->kernel->nr;
    for (int c = 0; c < nr; c += 4) {
        four top = *(four *)(best->score + c), next = *(four *)(best->next + c);
        four_ints at = *(four_ints *)(best->slot + c);
        for (int r = 0; r < count; r++) {
            four score = *(const four *)(dots + r * nr + c) - half[r];
            four_ints higher = score > top;
            four_ints between = ~higher & (score > next);
            next = choose(higher, top, choose(between, score, next));
            top = choose(higher, score, top);
            at = (higher & (slot + r)) | (~higher & at);
        }
        *(four *)(best->score + c) = top;
        *(four *)(best->next + c) = next;
        *(four_ints *)(best->slot + c) = at;
    }
}
