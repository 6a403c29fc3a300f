/* evaluate.h: the state of a training: scores if labels are known, and signs of trouble. */
#ifndef CONR_EVALUATE_H
#define CONR_EVALUATE_H

#include "conr.h"

typedef struct evaluation {
    conr_scores scores; /* with labels */
    double knn;         /* 20-nearest-neighbor accuracy, with labels; NaN without */
    double agreement;   /* share of the 20 nearest neighbors in the same cluster */
    double modularity;  /* of the clusters on the graph of these neighbors; both NaN for one row */
    double silhouette;  /* NaN with labels (slower, and says less) or with one cluster */
    double stability;   /* share of images in the same cluster as last time; NaN the first time */
    double deviation;   /* of the unit features: sqrt(1 - |mean|^2); 0: all are equal */
    int64_t smallest, largest; /* cluster sizes, in images */
    int64_t done_step;         /* set by the caller: at which step */
} evaluation;

/* features: [n,d] unit rows; label: [n], K clusters; truth: [n] or NULL; previous: [n] labels of
 * the previous clustering, or NULL. */
int evaluation_make(conr *c, const float *features, int64_t n, int d, const int32_t *label, int K,
                    const int64_t *truth, const int32_t *previous, uint64_t seed, evaluation *out);

/* How much higher, as a fraction of the lowest objective, the next one is among the runs of k-means
 * that ended in another optimum.  tried: [n] final objectives.  NaN: all ended in the same one. */
double evaluation_gap(const float *tried, int n);

/* The text of warning i = 0, 1, ..., freed by the caller; NULL: no more. */
char *evaluation_warning(const evaluation *e, int64_t n, int K, int i);

#endif
