/* graph.c: clusters of the graph of contextual affinities. */
#include "clusters/graph.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "neighbors/neighbors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 1000, /* clusters: the time of small matrices grows with their cube */
    SMALL = 20   /* a component below 1/SMALL of a mean cluster is not worth one */
};

conr_graph_options conr_graph_defaults(void) {
    conr_graph_options o = {.clusters = 10, .neighbors = conr_neighbors_defaults(), .seed = 1};
    o.neighbors.k = 30, o.neighbors.k1 = 20, o.neighbors.k2 = 1, o.neighbors.layers = 1;
    return o;
}

/* Rows of the eigenvectors, each of length 1. */
static void unit_rows(float *x, int n, int K) {
    for (int i = 0; i < n; i++) {
        double squares = 0;
        float *row = x + (size_t)i * K;
        for (int j = 0; j < K; j++) squares += (double)row[j] * row[j];
        double by = squares > 0 ? 1 / sqrt(squares) : 0;
        for (int j = 0; j < K; j++) row[j] = (float)(row[j] * by);
    }
}

int graph_cut(conr *c, const graph *g, int K, uint64_t seed, int32_t *labels) {
    int rc = 0, n = g->n;
    float *rows = NULL, *centroids = NULL;
    double *values = NULL;
    if (K == 1 || K == n) {
        for (int i = 0; i < n; i++) labels[i] = K == 1 ? 0 : i;
        return 0;
    }
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.seed = seed;
    rows = memory_new("graph", (size_t)n * K, sizeof *rows);
    centroids = memory_new("graph", (size_t)K * K, sizeof *centroids);
    values = memory_new("graph", (size_t)K, sizeof *values);
    TRY(rows && centroids && values ? 0 : CONR_ENOMEM);
    TRY(graph_vectors(c->host, g, K, seed, rows, values));
    unit_rows(rows, n, K);
    TRY(conr_kmeans(c, rows, n, K, &o, centroids, labels, NULL));
done:
    free(rows), free(centroids), free(values);
    return rc;
}

int graph_of(conr *c, const float *features, int n, int d, const conr_neighbors_options *near,
             int K, graph *out) {
    int rc = 0, small = n / SMALL / K;
    conr_neighbors_options o = *near;
    o.k = o.k < n ? o.k : n, o.k1 = o.k1 < n ? o.k1 : n, o.k2 = o.k2 < n ? o.k2 : n;
    if (o.k < 2)
        return fail(CONR_EINVAL, "k: %d neighbors, itself included; give at least 2", near->k);
    size_t lists = (size_t)n * o.k;
    int32_t *ids = memory_new("graph", lists, sizeof *ids);
    float *affinity = memory_new("graph", lists, sizeof *affinity);
    TRY(ids && affinity ? 0 : CONR_ENOMEM);
    TRY(neighbors_affinities(c, features, n, d, &o, ids, affinity));
    TRY(graph_make(ids, affinity, n, o.k, out));
    TRY(graph_join(c->host, features, d, small < 2 ? 2 : small, out));
    rc = 0;
done:
    if (rc < 0) graph_free(out);
    free(ids), free(affinity);
    return rc;
}

int conr_graph(conr *c, const float *features, int64_t n, int64_t d, const conr_graph_options *o,
               int32_t *labels) {
    int rc = 0;
    graph g = {0};
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if (o->clusters < 1 || o->clusters > n)
        return fail(CONR_EINVAL, "clusters: %d of %lld rows; give 1 to %lld", o->clusters,
                    (long long)n, (long long)n);
    if (o->clusters > MOST && o->clusters < n)
        return fail(CONR_EINVAL, "clusters: %d by the graph; give at most %d, or use k-means",
                    o->clusters, MOST);
    if (n == 1) return labels[0] = 0, 0;
    TRY(graph_of(c, features, (int)n, (int)d, &o->neighbors, o->clusters, &g));
    TRY(graph_cut(c, &g, o->clusters, o->seed, labels));
done:
    graph_free(&g);
    return rc;
}
