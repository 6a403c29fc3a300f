/* graph_assign.c: labels of new rows, by a vote of the nearest of those that were clustered. */
#include "conr.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    VOTERS = 10,    /* the nearest rows, at most */
    QUERIES = 256,  /* compared at a time, */
    COLUMNS = 16384 /* with this many rows: similarities in memory do not grow with n */
};

typedef struct nearest { /* of one query: by descending similarity, then ascending row */
    int count;
    int32_t row[VOTERS];
    float similar[VOTERS];
} nearest;

static void offer(nearest *v, int32_t row, float similar) {
    if (v->count == VOTERS && !(similar > v->similar[VOTERS - 1])) return;
    int at = v->count < VOTERS ? v->count++ : VOTERS - 1;
    for (; at > 0 && similar > v->similar[at - 1]; at--)
        v->similar[at] = v->similar[at - 1], v->row[at] = v->row[at - 1];
    v->similar[at] = similar, v->row[at] = row;
}

/* The label with the largest sum of similarities; of equal ones, that of the nearer row.  If none
 * is similar at all, the label of the nearest row. */
static int32_t vote(const nearest *v, const int32_t *labels) {
    int32_t winner = labels[v->row[0]];
    double most = 0;
    for (int a = 0; a < v->count; a++) {
        double sum = 0;
        for (int b = 0; b < v->count; b++)
            if (labels[v->row[b]] == labels[v->row[a]] && v->similar[b] > 0) sum += v->similar[b];
        if (sum > most) most = sum, winner = labels[v->row[a]];
    }
    return winner;
}

int conr_graph_assign(conr *c, const float *features, const int32_t *labels, int64_t n, int64_t d,
                      int K, const float *query, int64_t m, int32_t *out) {
    int rc = 0;
    device *dev = c->host;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if ((rc = numbers_check("query", query, m, d)) < 0) return rc;
    for (int64_t i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= K)
            return fail(CONR_EINVAL, "labels: row %lld has %d; give 0 to %d", (long long)i,
                        labels[i], K - 1);
    int width = n < COLUMNS ? (int)n : COLUMNS;
    float *base = memory_new("vote", (size_t)width * d + width, sizeof *base);
    float *rows = memory_new("vote", (size_t)(m * d + m), sizeof *rows);
    float *dots = memory_new("vote", (size_t)QUERIES * width, sizeof *dots);
    nearest *votes = calloc((size_t)m, sizeof *votes);
    TRY(base && rows && dots ? 0 : CONR_ENOMEM);
    TRY(votes ? 0 : fail_memory("vote", (double)m * sizeof *votes));
    TRY(dev->op.rows_normalize(dev, query, (int)m, (int)d, rows, rows + m * d));
    for (int64_t j0 = 0; j0 < n; j0 += width) {
        int columns = n - j0 < width ? (int)(n - j0) : width;
        TRY(dev->op.rows_normalize(dev, features + j0 * d, columns, (int)d, base,
                                   base + (size_t)width * d));
        for (int64_t i0 = 0; i0 < m; i0 += QUERIES) {
            int count = m - i0 < QUERIES ? (int)(m - i0) : QUERIES;
            TRY(dev->op.gemm(dev, false, true, count, columns, (int)d, 1, rows + i0 * d, (int)d,
                             base, (int)d, 0, dots, columns));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
            for (int r = 0; r < count; r++)
                for (int j = 0; j < columns; j++)
                    offer(&votes[i0 + r], (int32_t)(j0 + j), dots[(size_t)r * columns + j]);
        }
        TRY(device_report(dev, "vote", j0 + columns, n));
    }
    for (int64_t i = 0; i < m; i++) out[i] = vote(&votes[i], labels);
done:
    free(base), free(rows), free(dots), free(votes);
    return rc;
}
