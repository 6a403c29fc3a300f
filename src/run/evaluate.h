/* evaluate.h: the state of a training: scores if labels are known, and signs of trouble. */
#ifndef CONR_EVALUATE_H
#define CONR_EVALUATE_H

#include "conr.h"

typedef struct evaluation {
    conr_scores scores; /* with labels */
    double knn;         /* 20-nearest-neighbor accuracy, with labels; NaN without */
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

/* The text of warning i = 0, 1, ..., freed by the caller; NULL: no more. */
char *evaluation_warning(const evaluation *e, int64_t n, int K, int i);

#endif
