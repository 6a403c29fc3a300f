/* tsne.h: a map of features: points in the plane that keep their neighbors.
 *
 * t-SNE (van der Maaten and Hinton, 2008) with repulsion by the Barnes-Hut tree (van der Maaten,
 * 2014), started from the two principal components, early exaggeration 12, learning rate n / 12
 * (Belkina et al., 2019). */
#ifndef CONR_TSNE_H
#define CONR_TSNE_H

#include <stdint.h>

typedef struct tsne_options {
    double perplexity; /* effective number of neighbors of a point; reduced if n is small */
    int iterations;    /* the first third with early exaggeration */
    uint64_t seed;
    int threads;
    /* called every few iterations; nonzero stops with CONR_ESTOPPED.  May be NULL. */
    int (*progress)(int done, int total, void *user);
    void *user;
} tsne_options;

tsne_options tsne_defaults(void); /* perplexity 30, 750 iterations, seed 1, one thread */

/* How many nearest neighbors of each of n points tsne() needs, the point itself included. */
int tsne_width(int n, double perplexity);

/* f: [n,d]; near: [n,k] the nearest neighbors of each row, itself first.  xy: [n,2], centered, the
 * larger side of their box from -1 to 1.  The same bits for any number of threads. */
int tsne(const float *f, int n, int d, const int32_t *near, int k, const tsne_options *o,
         float *xy);

/* P as rows of a sparse, symmetric matrix. */
typedef struct tsne_similar {
    int64_t *first; /* [n+1] */
    int32_t *id;
    float *value;
} tsne_similar;

/* (P + P^T) / 2n from p [n,m], the similarities of each row to its neighbors near [n,1+m], the row
 * itself first.  *out: released by tsne_similar_free, also after a failure. */
int tsne_symmetrize(const int32_t *near, const float *p, int n, int m, tsne_similar *out);
void tsne_similar_free(tsne_similar *s);

#endif
