/* tsne.h: a map: points in the plane whose neighbors are those of the features.
 *
 * t-SNE (van der Maaten and Hinton, 2008) with repulsion by Barnes and Hut's tree (van der Maaten,
 * 2014), started from the two principal components, early exaggeration 12, learning rate n / 12
 * (Belkina et al., 2019). */
#ifndef CONR_TSNE_H
#define CONR_TSNE_H

#include <stdint.h>

typedef struct tsne_options {
    double perplexity; /* about how many neighbors a point has; cut to what n allows */
    int iterations;    /* the first third of them exaggerated */
    uint64_t seed;
    int threads;
    /* called now and then; nonzero ends it with CONR_ESTOPPED.  May be NULL. */
    int (*tell)(int done, int total, void *user);
    void *user;
} tsne_options;

tsne_options tsne_defaults(void); /* perplexity 30, 750 iterations, seed 1, one thread */

/* How many nearest neighbors tsne() wants of each of n points, the point itself included. */
int tsne_width(int n, double perplexity);

/* f: [n,d]; near: [n,k] the nearest of each row, itself first.  xy: [n,2], centered, the larger
 * side of their box from -1 to 1.  The same bits for any number of threads. */
int tsne(const float *f, int n, int d, const int32_t *near, int k, const tsne_options *o,
         float *xy);

#endif
