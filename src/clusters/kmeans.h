/* kmeans.h: the parts of k-means: seeding, one run, the search for a better start, assignment. */
#ifndef CONR_KMEANS_H
#define CONR_KMEANS_H

#include "clusters/points.h"
#include "ranks/ranks.h"

/* Greedy k-means++ (Arthur & Vassilvitskii 2007): the first center is a row drawn evenly; each next
 * one is the best of 2 + ln K rows drawn in proportion to their d2 to the nearest center so far.
 * chosen: [runs,K], rows of p, for the runs from `first` on.  Run r depends only on seed and r. */
int seeding_choose(device *dev, const points *p, int K, int first, int runs, uint64_t seed,
                   int32_t *chosen);

/* Moves one of the centers in `mean` ([K,d], K > 1, as lloyd_run leaves it): the one whose loss
 * would cost its rows least moves to a row of another cluster, the one with the rank-th largest
 * objective.  That row is drawn in proportion to d2.  Depends on seed and round. */
int swap_center(device *dev, const points *p, int K, uint64_t seed, int round, int rank,
                double *mean);

typedef void lloyd_on_step(const conr_kmeans_step *step, void *user);

/* One run of Lloyd's iteration from `mean` ([K,d], in the space of p: shifted, not scaled), which
 * it leaves at its result.  *objective: of the last step. */
int lloyd_run(device *dev, const points *p, const conr_kmeans_options *o, int run, double *mean,
              double *objective, lloyd_on_step *on_step, void *user);

/* Collects steps for the caller's history; a lloyd_on_step. */
typedef struct kmeans_recorder {
    conr_kmeans_history *to; /* NULL: not wanted */
    int room;
    int failed; /* the status of the last call that failed, or 0 */
} kmeans_recorder;
void kmeans_record(const conr_kmeans_step *step, void *recorder);

/* The nearest of centroids [K,d], as users see them, and the distance to it (NULL: not wanted), for
 * host memory.  The values are ordinary: see scale.h. */
int assign_features(device *dev, const float *features, int n, int d, conr_metric metric,
                    const float *centroids, int K, int32_t *labels, float *distances);

/* conr_kmeans on features in device memory; all other arrays are in host memory.  over: ranks that
 * share the runs, or NULL.  If the device has a k-means of its own, the labels are the ones that
 * it found: a row halfway between two centroids may belong to either. */
int kmeans_on_device(conr *c, ranks *over, const float *features, int64_t n, int d,
                     const conr_kmeans_options *o, float *centroids, int32_t *labels,
                     conr_kmeans_history *history);

#endif
