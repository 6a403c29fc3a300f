/* graph.h: a weighted graph of rows and its normalized cut.
 *
 * With W the weights, symmetric and without loops, and D the diagonal of their row sums, the K
 * leading eigenvectors of
 *
 *     M = D^-1/2 W D^-1/2
 *
 * are where the K clusters of the smallest normalized cut would be, were they allowed to be real
 * numbers (Shi & Malik 2000).  Each row of the eigenvectors is scaled to length 1, and k-means
 * clusters these rows (Ng, Jordan & Weiss 2002).  Memory grows with the edges; no [n,n] matrix. */
#ifndef CONR_GRAPH_H
#define CONR_GRAPH_H

#include "context/context.h"

typedef struct graph {
    int n;
    size_t *start; /* [n+1]: the edges of row i are start[i] .. start[i+1]-1 */
    int32_t *to;   /* ascending in each row */
    float *weight; /* above zero; all three owned */
} graph;

/* W = (A + A^T)/2 without its diagonal, from lists of affinities A.  ids, affinity: [n,k]; entries
 * that are not above zero are no edges. */
int graph_make(const int32_t *ids, const float *affinity, int n, int k, graph *out);
void graph_free(graph *g); /* a zeroed struct is fine */

/* Joins the connected components of g by a few edges between similar rows, so that there is one:
 * the cut of each is then small, but not arbitrary among others that are zero.  A component below
 * `small` rows (a group of copies, an isolated row) is joined by all its rows, so that it is cut off
 * last.  features: [n,d].  Returns the number of components that there were, or a
 * CONR_E* code. */
int graph_join(device *dev, const float *features, int d, int small, graph *g);

/* The `count` <= n largest eigenvalues of M and their eigenvectors, by filtered subspace iteration.
 * vectors: [n,count]; values: [count], descending.  A row without edges has a zero in each vector
 * but its own. */
int graph_vectors(device *dev, const graph *g, int count, uint64_t seed, float *vectors,
                  double *values);

/* The graph of features [n,d], n > 1, checked, for a cut into about K clusters: lists, graph_make and
 * graph_join. */
int graph_of(conr *c, const float *features, int n, int d, const conr_neighbors_options *near,
             int K, graph *out);

/* Labels of the normalized cut into K parts, 1 <= K <= n; labels: [n]. */
int graph_cut(conr *c, const graph *g, int K, uint64_t seed, int32_t *labels);

/* share of the weight within clusters - resolution * sum over clusters of (share of the ends)^2.
 * labels: [n], in 0 .. K-1 */
int graph_modularity(const graph *g, const int32_t *labels, int K, double resolution, double *out);

#endif
