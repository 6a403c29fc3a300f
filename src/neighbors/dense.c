/* dense.c: contextually affinitive neighbors by plain matrices [n,n]: neighbors.h line by line. */
#include "neighbors/neighbors.h"

#include "base/memory.h"
#include "base/status.h"
#include "neighbors/affinity.h"

#include <stdlib.h>
#include <string.h>

/* A = (R + R^T)/2 of the first k1 of each list.  ids: [n,width] */
static void adjacency(const int32_t *ids, int n, int width, int k1, float *a) {
    memset(a, 0, (size_t)n * n * sizeof *a);
    for (int i = 0; i < n; i++)
        for (int at = 0; at < k1; at++) {
            int j = ids[(size_t)i * width + at];
            a[(size_t)i * n + j] += 0.5f;
            a[(size_t)j * n + i] += 0.5f;
        }
}

/* A <- A + A^T */
static void symmetrize(float *a, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            float sum = a[(size_t)i * n + j] + a[(size_t)j * n + i];
            a[(size_t)i * n + j] = a[(size_t)j * n + i] = sum;
        }
}

/* Row i of the next H.  a: [n,n]; edge: [k2], of row i; sum: [n]; h: [n] */
static void propagate(const float *a, int n, const affinity_edge *edge, int k2, double *sum,
                      float *h) {
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int e = 0; e < k2; e++) {
        const float *from = a + (size_t)edge[e].to * n;
        for (int c = 0; c < n; c++) sum[c] += (double)edge[e].weight * from[c];
    }
    affinity_unit(sum, (size_t)n, h);
}

/* Row i of H H^T.  across: H^T [n,n], so that the innermost loop runs along memory; sum: [n] */
static void similarities(const float *h, const float *across, int n, double *sum, float *out) {
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int c = 0; c < n; c++)
        for (int j = 0; h[c] != 0 && j < n; j++) sum[j] += (double)h[c] * across[(size_t)c * n + j];
    for (int j = 0; j < n; j++) out[j] = (float)sum[j];
}

static void transpose(const float *a, int n, float *out) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) out[(size_t)j * n + i] = a[(size_t)i * n + j];
}

/* The list of row i: from the ranking of H H^T while above zero, then from the ranking of S. */
static void fill(const int32_t *ranked, const float *values, const int32_t *by_s, int k,
                 int32_t *out) {
    int found = 1;
    out[0] = by_s[0];
    for (; found < k && values[found] > 0; found++) out[found] = ranked[found];
    int affine = found;
    for (int at = 1; found < k; at++) {
        bool listed = false;
        for (int e = 0; e < affine; e++) listed |= out[e] == by_s[at];
        if (!listed) out[found++] = by_s[at];
    }
}

int neighbors_dense(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids) {
    int rc = 0, width = affinity_width(o);
    size_t square = (size_t)n * n, lists = (size_t)n * width;
    float *s = memory_new("neighbors", square, sizeof *s);
    float *a = memory_new("neighbors", square, sizeof *a);
    float *h = memory_new("neighbors", square, sizeof *h);
    float *values = memory_new("neighbors", lists, sizeof *values);
    int32_t *by_s = memory_new("neighbors", lists, sizeof *by_s);
    double *sum = memory_new("neighbors", (size_t)n, sizeof *sum);
    affinity_edge *edge = memory_new("neighbors", (size_t)o->k2, sizeof *edge);
    TRY(s && a && h && values && by_s && sum && edge ? 0 : CONR_ENOMEM);

    TRY(dev->op.gemm(dev, false, true, n, n, d, 1, f, d, f, d, 0, s, n));
    if (o->local) {
        TRY(dev->op.top_k(dev, s, n, n, n, 0, o->k, ids, NULL));
        goto done;
    }
    TRY(dev->op.top_k(dev, s, n, n, n, 0, width, by_s, values));
    adjacency(by_s, n, width, o->k1, a);
    for (int layer = 0; layer < o->layers; layer++) {
        if (layer > 0 && o->resymmetrize) symmetrize(a, n);
        for (int i = 0; i < n; i++) {
            affinity_edges(by_s + (size_t)i * width, values + (size_t)i * width, o, edge);
            propagate(a, n, edge, o->k2, sum, h + (size_t)i * n);
        }
        float *old = a;
        a = h, h = old;
    }
    transpose(a, n, h);
    for (int i = 0; i < n; i++) similarities(a + (size_t)i * n, h, n, sum, s + (size_t)i * n);
    TRY(dev->op.top_k(dev, s, n, n, n, 0, o->k, ids, values));
    for (int i = 0; i < n; i++) {
        int32_t *list = ids + (size_t)i * o->k;
        fill(list, values + (size_t)i * o->k, by_s + (size_t)i * width, o->k, list);
    }
done:
    free(s), free(a), free(h), free(values), free(by_s), free(sum), free(edge);
    return rc;
}
