/* evaluate.h: how a training stands: scores where labels are known, and signs of trouble. */
#ifndef CONR_EVALUATE_H
#define CONR_EVALUATE_H

#include "conr.h"

typedef struct evaluation {
    conr_scores scores; /* with labels */
    double knn;         /* 20-nearest-neighbor accuracy, with labels; NaN without */
    double silhouette;  /* NaN with labels (it costs time and says less) or with one cluster */
    double stability;   /* share of images whose cluster is that of the last time; NaN at first */
    double deviation;   /* of the unit features: sqrt(1 - |mean|^2); 0: all are one */
    int64_t smallest, largest; /* clusters, images */
    int64_t done_step;         /* the caller's: at which step */
} evaluation;

/* features: [n,d] unit rows; label: [n], K clusters; truth: [n] or NULL; previous: [n] labels of
 * the last time, or NULL. */
int evaluation_make(conr *c, const float *features, int64_t n, int d, const int32_t *label, int K,
                    const int64_t *truth, const int32_t *previous, uint64_t seed, evaluation *out);

/* Warning i = 0, 1, ... in words, freed by the caller; NULL: no more. */
char *evaluation_warning(const evaluation *e, int64_t n, int K, int i);

#endif
