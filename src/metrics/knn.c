/* knn.c: accuracy of classification by the k nearest neighbors: how well features that were learned
 * without labels separate the classes.  Similarities (cosine) come from blocks of dot products of
 * some queries with all rows, by the device's gemm; or, for lists, from the device's own search. */
#include "metrics/knn.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 }; /* queries at a time */

/* The k most similar of n rows, the most similar first; row `without` and unlabeled rows are left
 * out.  labels: [n] or NULL; similar: [n]; id: [k].  Returns how many there are. */
static int nearest(const int64_t *labels, int64_t n, int k, const float *similar, int64_t without,
                   int32_t *id) {
    int count = 0;
    for (int64_t j = 0; j < n; j++) {
        if (j == without || (labels && labels[j] == -1)) continue;
        if (count == k && !(similar[j] > similar[id[count - 1]])) continue;
        int at = count < k ? count++ : k - 1;
        for (; at > 0 && similar[j] > similar[id[at - 1]]; at--) id[at] = id[at - 1];
        id[at] = (int32_t)j;
    }
    return count;
}

/* The class with the largest sum of exp((similarity - 1) / temperature).  -1: no votes.
 * similar: of voter a its element a, or id[a] if by_id. */
static int64_t vote(const int64_t *labels, const int32_t *id, int count, const float *similar,
                    bool by_id, double temperature) {
    int64_t winner = -1;
    double most = 0;
    for (int a = 0; a < count; a++) {
        int64_t label = labels[id[a]];
        double sum = 0;
        for (int b = 0; b < count; b++)
            if (labels[id[b]] == label) sum += exp((similar[by_id ? id[b] : b] - 1) / temperature);
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
            int32_t *id = ids + (size_t)r * k;
            const float *similar = dots + r * n;
            int voters = nearest(labels, n, k, similar, leave_one_out ? i0 + r : -1, id);
            int64_t won = vote(labels, id, voters, similar, true, temperature);
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

/* ---- lists ----------------------------------------------------------------------------------- */

/* By blocks of dot products on the host. */
static int search_host(conr *c, const float *features, int64_t n, int64_t d, knn_lists *l) {
    int rc = 0, k = l->k;
    device *dev = c->host;
    float *base = memory_new("k-NN", (size_t)(n * d), sizeof *base);
    float *rows = memory_new("k-NN", (size_t)(BLOCK * d), sizeof *rows);
    float *dots = memory_new("k-NN", (size_t)BLOCK * n, sizeof *dots);
    float *sizes = memory_new("k-NN", (size_t)n, sizeof *sizes);
    TRY(base && rows && dots && sizes ? 0 : CONR_ENOMEM);
    TRY(dev->op.rows_normalize(dev, features, (int)n, (int)d, base, sizes));
    for (int64_t i0 = 0; i0 < l->count; i0 += BLOCK) {
        int count = l->count - i0 < BLOCK ? (int)(l->count - i0) : BLOCK;
        for (int r = 0; r < count; r++)
            memcpy(rows + r * d, base + l->row[i0 + r] * d, (size_t)d * sizeof *rows);
        TRY(dev->op.gemm(dev, false, true, count, (int)n, (int)d, 1, rows, (int)d, base, (int)d, 0,
                         dots, (int)n));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
        for (int r = 0; r < count; r++) {
            size_t at = (size_t)(i0 + r) * k;
            nearest(NULL, n, k, dots + r * n, l->row[i0 + r], l->id + at);
            for (int e = 0; e < k; e++) l->similar[at + e] = dots[r * n + l->id[at + e]];
        }
        TRY(device_report(dev, "nearest neighbors", i0 + count, l->count));
    }
done:
    free(base), free(rows), free(dots), free(sizes);
    return rc;
}

/* By the device's own search, which takes the rows that are asked from the front. */
static int search_device(conr *c, const float *features, int64_t n, int64_t d, knn_lists *l) {
    int rc = 0, width = l->k + 1; /* the row itself comes first */
    device *dev = c->dev;
    size_t listed = (size_t)l->count * width;
    void *f = NULL, *near = NULL, *values = NULL;
    float *sorted = memory_new("k-NN", (size_t)(n * d), sizeof *sorted);
    int32_t *place = memory_new("k-NN", (size_t)n, sizeof *place); /* [n]: the row at each place */
    int32_t *id = memory_new("k-NN", listed, sizeof *id);
    float *similar = memory_new("k-NN", listed, sizeof *similar);
    int64_t asked = 0, rest = l->count;
    TRY(sorted && place && id && similar ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = asked < l->count && l->row[asked] == i ? asked++ : rest++;
        place[at] = (int32_t)i;
        memcpy(sorted + at * d, features + i * d, (size_t)d * sizeof *sorted);
    }
    TRY(dev->op.alloc(dev, (size_t)(n * d) * sizeof(float), &f));
    TRY(dev->op.alloc(dev, listed * sizeof *id, &near));
    TRY(dev->op.alloc(dev, listed * sizeof *similar, &values));
    TRY(dev->op.put(dev, f, sorted, (size_t)(n * d) * sizeof(float)));
    TRY(dev->op.rows_normalize(dev, f, (int)n, (int)d, f, NULL));
    TRY(dev->op.search(dev, f, (int)n, (int)d, 0, (int)l->count, width, near, values));
    TRY(dev->op.get(dev, id, near, listed * sizeof *id));
    TRY(dev->op.get(dev, similar, values, listed * sizeof *similar));
    for (int64_t i = 0; i < l->count; i++)
        for (int e = 0; e < l->k; e++) {
            l->id[i * l->k + e] = place[id[i * width + e + 1]];
            l->similar[i * l->k + e] = similar[i * width + e + 1];
        }
done:
    dev->op.free(dev, f), dev->op.free(dev, near), dev->op.free(dev, values);
    free(sorted), free(place), free(id), free(similar);
    return rc;
}

int knn_search(conr *c, const float *features, int64_t n, int64_t d, int k, int64_t all,
               int64_t sample, knn_lists *out) {
    int rc = 0;
    *out = (knn_lists){.count = n <= all ? n : sample, .k = k < n ? k : (int)n - 1};
    TRY(numbers_check("features", features, n, d));
    size_t listed = (size_t)out->count * out->k;
    out->row = memory_new("k-NN", (size_t)out->count, sizeof *out->row);
    out->id = memory_new("k-NN", listed + 1, sizeof *out->id);
    out->similar = memory_new("k-NN", listed + 1, sizeof *out->similar);
    TRY(out->row && out->id && out->similar ? 0 : CONR_ENOMEM);
    for (int64_t q = 0; q < out->count; q++) out->row[q] = q * n / out->count;
    if (out->k == 0) goto done;
    TRY(c->dev->op.search ? search_device(c, features, n, d, out)
                          : search_host(c, features, n, d, out));
done:
    if (rc < 0) knn_free(out);
    return rc;
}

void knn_free(knn_lists *l) {
    free(l->row), free(l->id), free(l->similar);
    *l = (knn_lists){0};
}

double knn_lists_accuracy(const knn_lists *l, const int64_t *labels, double temperature) {
    int64_t right = 0;
    for (int64_t i = 0; i < l->count; i++)
        right += labels[l->row[i]] ==
                 vote(labels, l->id + i * l->k, l->k, l->similar + i * l->k, false, temperature);
    return l->k ? (double)right / (double)l->count : NAN;
}

int knn_lists_agreement(const knn_lists *l, const int32_t *label, int K, double *agreement,
                        double *modularity) {
    int64_t *ends = memory_new("k-NN", (size_t)K, sizeof *ends), within = 0;
    double edges = (double)l->count * l->k, squares = 0;
    if (!ends) return CONR_ENOMEM;
    memset(ends, 0, (size_t)K * sizeof *ends);
    for (int64_t i = 0; i < l->count; i++)
        for (int e = 0; e < l->k; e++) {
            int32_t from = label[l->row[i]], to = label[l->id[i * l->k + e]];
            within += from == to;
            ends[from]++, ends[to]++;
        }
    for (int c = 0; c < K; c++) squares += (double)ends[c] * (double)ends[c];
    free(ends);
    *agreement = edges > 0 ? (double)within / edges : NAN;
    *modularity = edges > 0 ? (double)within / edges - squares / (4 * edges * edges) : NAN;
    return 0;
}
