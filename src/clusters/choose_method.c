/* choose_method.c: k-means or the cut of the graph, by what needs no labels.
 *
 * The cut nearly always keeps more neighbors together than k-means: it is what a cut is for.  When
 * it is the worse of the two all the same, it has put two classes into one large cluster and spent
 * the clusters that were left on corners of others; where it is better, k-means has done so.  So
 * the score of a clustering is
 *
 *     - log((share of neighbors in another cluster + LEAST) * K * share of the largest cluster)
 *
 * and the cut must win by LEAD.  docs/choosing-k.md has the sets that this was tried on. */
#include "clusters/graph.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "neighbors/neighbors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 6000, /* rows that are used, at most */
    NEAREST = 20,  /* neighbors of each row, but */
    FEW = 50,      /* at most one per FEW rows */
    RESTARTS = 5,  /* of k-means */
    MOST = 1000    /* clusters, as in conr_graph */
};

#define LEAST 0.01 /* differences far below it mean nothing */
#define LEAD  0.1

/* ids: [n,k], each row itself first; labels: [n], in 0 .. K-1; sizes: [K], scratch */
static double score_of(const int32_t *ids, int n, int k, const int32_t *labels, int K,
                       int64_t *sizes) {
    int64_t same = 0, most = 0;
    memset(sizes, 0, (size_t)K * sizeof *sizes);
    for (int i = 0; i < n; i++) {
        sizes[labels[i]]++;
        for (int e = 1; e < k; e++) same += labels[i] == labels[ids[(size_t)i * k + e]];
    }
    for (int c = 0; c < K; c++) most = sizes[c] > most ? sizes[c] : most;
    double apart = 1 - (double)same / ((double)n * (k - 1));
    return -log((apart + LEAST) * K * (double)most / n);
}

/* Clusters the rows [n,d] in both ways. */
static int compare(conr *c, const float *rows, int n, int d, int K, uint64_t seed,
                   double score[2]) {
    int rc = 0, near = n / FEW < 1 ? 1 : n / FEW < NEAREST ? n / FEW : NEAREST, k = near + 1;
    graph g = {0};
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_neighbors_options plain = conr_neighbors_defaults();
    conr_neighbors_options shared = conr_graph_defaults().neighbors;
    size_t lists = (size_t)n * k;
    int32_t *ids = memory_new("clusters", lists, sizeof *ids);
    float *values = memory_new("clusters", lists, sizeof *values);
    float *centroids = memory_new("clusters", (size_t)K * d, sizeof *centroids);
    int32_t *labels = memory_new("clusters", (size_t)n, sizeof *labels);
    int64_t *sizes = memory_new("clusters", (size_t)K, sizeof *sizes);
    TRY(ids && values && centroids && labels && sizes ? 0 : CONR_ENOMEM);
    plain.local = 1, plain.k = k;
    TRY(neighbors_affinities(c, rows, n, d, &plain, ids, values));
    o.clusters = K, o.restarts = RESTARTS, o.seed = seed;
    TRY(conr_kmeans(c, rows, n, d, &o, centroids, labels, NULL));
    score[0] = score_of(ids, n, k, labels, K, sizes);
    TRY(graph_of(c, rows, n, d, &shared, K, &g));
    TRY(graph_cut(c, &g, K, seed, labels));
    score[1] = score_of(ids, n, k, labels, K, sizes) - LEAD;
done:
    graph_free(&g);
    free(ids), free(values), free(centroids), free(labels), free(sizes);
    return rc;
}

int conr_choose_method(conr *c, const float *features, int64_t n, int64_t d, int K, uint64_t seed,
                       int *use_graph, double score[2]) {
    int rc = 0, rows = n < SAMPLE ? (int)n : SAMPLE;
    double found[2] = {-INFINITY, -INFINITY};
    float *sample = NULL;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    if (K < 1 || K > n)
        return fail(CONR_EINVAL, "clusters: %d of %lld rows; give 1 to %lld", K, (long long)n,
                    (long long)n);
    conr alone = *c;
    alone.together = false; /* only one rank may be calling */
    *use_graph = 0;
    if (K <= rows / 2 && K <= MOST) {
        rng_order order = rng_order_make(seed, 0, (uint32_t)n);
        sample = memory_new("clusters", (size_t)rows * (size_t)d, sizeof *sample);
        TRY(sample ? 0 : CONR_ENOMEM);
        for (int i = 0; i < rows; i++)
            memcpy(sample + (size_t)i * (size_t)d,
                   features + rng_order_at(&order, (uint32_t)i) * (size_t)d,
                   (size_t)d * sizeof *sample);
        TRY(compare(&alone, sample, rows, (int)d, K, seed, found));
        *use_graph = found[1] > found[0];
    }
    if (score) score[0] = found[0], score[1] = found[1];
done:
    free(sample);
    return rc;
}
