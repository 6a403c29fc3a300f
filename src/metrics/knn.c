/* knn.c: accuracy of classification by the k nearest neighbors: how well features that were learned
 * without labels separate the classes.  Similarities (cosine) come from blocks of dot products of
 * some queries with all rows, by the device's gemm. */
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 256 }; /* queries at a time */

typedef struct votes {
    const int64_t *labels; /* [n] */
    int64_t n;
    int k;
    double temperature;
} votes;

/* The class that wins the vote of the k most similar of the n rows, each vote weighted by
 * exp((similarity - 1) / temperature); row `without` and unlabeled rows do not vote.  -1: no votes.
 * similar: [n]; id: [k], room for the k most similar so far */
static int64_t vote(const votes *v, const float *similar, int64_t without, int32_t *id) {
    int count = 0;
    for (int64_t j = 0; j < v->n; j++) {
        if (j == without || v->labels[j] == -1) continue;
        if (count == v->k && !(similar[j] > similar[id[count - 1]])) continue;
        int at = count < v->k ? count++ : v->k - 1;
        for (; at > 0 && similar[j] > similar[id[at - 1]]; at--) id[at] = id[at - 1];
        id[at] = (int32_t)j;
    }
    int64_t winner = -1;
    double most = 0;
    for (int a = 0; a < count; a++) {
        int64_t label = v->labels[id[a]];
        double sum = 0;
        for (int b = 0; b < count; b++)
            if (v->labels[id[b]] == label) sum += exp((similar[id[b]] - 1) / v->temperature);
        if (sum > most || (sum == most && label < winner)) most = sum, winner = label;
    }
    return winner;
}

int conr_knn_accuracy(conr *c, const float *features, const int64_t *labels, int64_t n,
                      const float *query, const int64_t *query_labels, int64_t n_query, int64_t d,
                      int k, double temperature, double *accuracy) {
    int rc = 0;
    bool leave_one_out = query == NULL;
    if (leave_one_out) query = features, query_labels = labels, n_query = n;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if ((rc = numbers_check("query", query, n_query, d)) < 0) return rc;
    if (k < 1 || !(temperature > 0))
        return fail(CONR_EINVAL,
                    "k-NN: k = %d, temperature = %g; k must be at least 1, the temperature above 0",
                    k, temperature);
    if (k > n) k = (int)n;
    device *dev = c->host;
    votes v = {labels, n, k, temperature};
    float *base = memory_new("k-NN", (size_t)(n * d), sizeof *base);
    float *rows = memory_new("k-NN", (size_t)(BLOCK * d), sizeof *rows);
    float *dots = memory_new("k-NN", (size_t)BLOCK * n, sizeof *dots);
    float *sizes = memory_new("k-NN", (size_t)(n > BLOCK ? n : BLOCK), sizeof *sizes);
    int32_t *ids = memory_new("k-NN", (size_t)BLOCK * k, sizeof *ids);
    int64_t right = 0, asked = 0;
    TRY(base && rows && dots && sizes && ids ? 0 : CONR_ENOMEM);
    TRY(dev->op.rows_normalize(dev, features, (int)n, (int)d, base, sizes));
    for (int64_t i0 = 0; i0 < n_query; i0 += BLOCK) {
        int count = n_query - i0 < BLOCK ? (int)(n_query - i0) : BLOCK;
        TRY(dev->op.rows_normalize(dev, query + i0 * d, count, (int)d, rows, sizes));
        TRY(dev->op.gemm(dev, false, true, count, (int)n, (int)d, 1, rows, (int)d, base, (int)d, 0,
                         dots, (int)n));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic) reduction(+ : right, asked)
        for (int r = 0; r < count; r++) {
            if (query_labels[i0 + r] == -1) continue;
            int64_t won = vote(&v, dots + r * n, leave_one_out ? i0 + r : -1, ids + (size_t)r * k);
            right += won == query_labels[i0 + r];
            asked++;
        }
    }
    if (!asked) TRY(fail(CONR_EINVAL, "k-NN: no query has a label; give some true labels"));
    *accuracy = (double)right / (double)asked;
done:
    free(base), free(rows), free(dots), free(sizes), free(ids);
    return rc;
}
