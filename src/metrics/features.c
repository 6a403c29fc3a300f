/* features.c: scores that look at features: silhouette, and k-nearest-neighbor accuracy.
 *
 * Both go through blocks of dot products of some rows with all rows, by the device's gemm. */
#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXACT = 20000,  /* rows up to which the silhouette looks at all of them */
    SAMPLE = 10000, /* and how many it takes beyond that */
    BLOCK = 256     /* rows at a time */
};

/* Rows ready to be multiplied: scaled to length 1, or moved to their middle (it saves digits).
 * out: [n,d]; squares: [n], |out|^2 */
static int prepare(device *dev, const float *x, int64_t n, int64_t d, conr_metric metric,
                   float *out, float *squares) {
    if (metric == CONR_COSINE) return dev->op.rows_normalize(dev, x, (int)n, (int)d, out, squares);
    for (int64_t j = 0; j < d; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[i * d + j];
        float middle = (float)(sum / (double)n);
        for (int64_t i = 0; i < n; i++) out[i * d + j] = x[i * d + j] - middle;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++) sum += (double)out[i * d + j] * out[i * d + j];
        squares[i] = (float)sum;
    }
    return 0;
}

/* ---- silhouette ------------------------------------------------------------------------------ */

typedef struct silhouette {
    int64_t n, d;
    conr_metric metric;
    int clusters;
    float *x;       /* [n,d], ordered by cluster */
    float *squares; /* [n] */
    int64_t *start; /* [clusters+1]: rows of a cluster */
    int32_t *where; /* [n]: cluster of each row */
} silhouette;

/* The silhouette of row i, given its dot products with all rows. */
static double of_row(const silhouette *s, int64_t i, const float *dots) {
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

/* Orders the rows by label; fills start and where. */
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

/* The sum over `used` rows: all, or a sample.  Rows of a block are gathered, since a sample lies
 * anywhere. */
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
        for (int r = 0; r < count; r++) value[r] = of_row(s, row[r], dots + r * s->n);
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

/* ---- k nearest neighbors --------------------------------------------------------------------- */

typedef struct votes {
    const int64_t *labels; /* [n] */
    int64_t n;
    int k;
    double temperature;
} votes;

/* The class that the k most similar of the n rows vote for, row `without` left out; -1 when nobody
 * votes.  similar: [n]; id, weight: [k], for the k best so far. */
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
    bool alone = query == NULL;
    if (alone) query = features, query_labels = labels, n_query = n;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if ((rc = numbers_check("query", query, n_query, d)) < 0) return rc;
    if (k < 1 || !(temperature > 0))
        return fail(CONR_EINVAL, "k = %d, temperature = %g; give at least 1 and more than 0", k,
                    temperature);
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
            int64_t won = vote(&v, dots + r * n, alone ? i0 + r : -1, ids + (size_t)r * k);
            right += won == query_labels[i0 + r];
            asked++;
        }
    }
    if (!asked) TRY(fail(CONR_EINVAL, "k-NN: all queries are unlabeled; give some true labels"));
    *accuracy = (double)right / (double)asked;
done:
    free(base), free(rows), free(dots), free(sizes), free(ids);
    return rc;
}
