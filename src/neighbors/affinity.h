/* affinity.h: the arithmetic that the dense and the sparse algorithm share, bit for bit. */
#ifndef CONR_AFFINITY_H
#define CONR_AFFINITY_H

#include "conr.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct affinity_edge {
    int32_t to;
    float weight; /* max(S_ij,0)^alpha; 1 for the row itself, even if the row is zero */
} affinity_edge;

/* The length that the lists of S must have for every step: N(i) is filled up from the first k. */
static inline int affinity_width(const conr_neighbors_options *o) {
    int width = o->k > o->k1 ? o->k : o->k1;
    return width > o->k2 ? width : o->k2;
}

/* The edges of row i in ascending order of `to`.  ids, values: the row's list of S, the row itself
 * first; edge: [k2]. */
static inline void affinity_edges(const int32_t *ids, const float *values,
                                  const conr_neighbors_options *o, affinity_edge *edge) {
    for (int n = 0; n < o->k2; n++) {
        float s = values[n] > 0 ? values[n] : 0;
        float weight = n == 0 ? 1 : o->alpha == 2 ? s * s : (float)pow(s, o->alpha);
        int at = n;
        for (; at > 0 && edge[at - 1].to > ids[n]; at--) edge[at] = edge[at - 1];
        edge[at] = (affinity_edge){ids[n], weight};
    }
}

/* h = sum / |sum|: [count].  The sums are rounded first, so that their squares are exact. */
static inline void affinity_unit(const double *sum, size_t count, float *h) {
    double squares = 0;
    for (size_t c = 0; c < count; c++) {
        h[c] = (float)sum[c];
        squares += (double)h[c] * h[c];
    }
    double size = sqrt(squares);
    for (size_t c = 0; c < count; c++) h[c] = size > 0 ? (float)(h[c] / size) : 0;
}

#endif
