/* baseline.h: what a training is worth: clusters of the built-in descriptor beside its own.
 *
 * Labels decide where there are some.  Without, values of different feature spaces cannot be
 * compared: any smooth map of the images has neighbors that share their cluster, and clusters that
 * are stable, whatever they mean.  But what is real about the images shows in both spaces, and what
 * is an artifact of one does not show in the other.  So each clustering is looked up among the
 * neighbors in the other space, beyond chance (`confirmed`), and the one that is confirmed less
 * loses.  docs/training.md has the values of good and bad trainings. */
#ifndef CONR_RUN_BASELINE_H
#define CONR_RUN_BASELINE_H

#include "context/context.h"
#include "images/store.h"

/* A training's clusters of the images in a store. */
typedef struct trained {
    const store *images; /* [n], or NULL: */
    const source *read;  /* [n], to be read now */
    const float *features;
    int d;
    const int32_t *label; /* [n], 0 .. K-1 */
    int K;
    const int64_t *truth; /* [n], or NULL: no labels */
    uint64_t seed;
} trained;

/* Describes and clusters a sample of the images.  out->images is 0 if there are too few of them for
 * K clusters. */
int baseline_make(conr *c, const trained *t, conr_baseline *out);

/* Whether the descriptor's clusters are better than the training's: with labels by the mean of NMI,
 * ACC and ARI, without by `confirmed`, and then only if by more than a tenth. */
bool baseline_wins(const conr_baseline *b);

/* The second of these, whether there are labels or not. */
bool baseline_confirms(const conr_baseline *b);

/* The warning if it is, freed by the caller; NULL: it is not. */
char *baseline_warning(const conr_baseline *b);

/* About how long baseline_make takes, for a training with a time budget. */
double baseline_seconds(int64_t n, int d, int K, int threads);

#endif
