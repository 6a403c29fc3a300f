/* knn.h: the nearest neighbors (by cosine) of rows of a set, found once for all that is said about
 * them. */
#ifndef CONR_KNN_H
#define CONR_KNN_H

#include "conr.h"

typedef struct knn_lists {
    int64_t count;  /* rows that have a list */
    int k;          /* neighbors of each; 0: the set has one row */
    int64_t *row;   /* [count], ascending */
    int32_t *id;    /* [count,k], the most similar first; never the row itself */
    float *similar; /* [count,k]: their cosines */
} knn_lists;

/* The k nearest among all n rows, k cut to n-1: of every row, or, if there are more than `all`, of
 * `sample` evenly spaced ones.  features: [n,d], host.  Released by knn_free. */
int knn_search(conr *c, const float *features, int64_t n, int64_t d, int k, int64_t all,
               int64_t sample, knn_lists *out);
void knn_free(knn_lists *l); /* a zeroed struct is fine */

/* As conr_knn_accuracy, from lists.  labels: [n], none of them -1. */
double knn_lists_accuracy(const knn_lists *l, const int64_t *labels, double temperature);

/* How well clusters agree with the neighbors, which are the edges of a graph.  label: [n], in
 * 0 .. K-1; NaN without edges.
 *   *agreement   the share of edges that stay within a cluster
 *   *modularity  that, less the share that the sizes of the clusters explain: the sum over clusters
 *                of the square of their fraction of all ends of edges */
int knn_lists_agreement(const knn_lists *l, const int32_t *label, int K, double *agreement,
                        double *modularity);

#endif
