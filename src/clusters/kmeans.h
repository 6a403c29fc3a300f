/* kmeans.h: the parts of k-means: seeding, one run, and the search for a better start. */
#ifndef CONR_KMEANS_H
#define CONR_KMEANS_H

#include "clusters/points.h"
#include "ranks/ranks.h"

/* Greedy k-means++ (Arthur & Vassilvitskii 2007): the first center is a row drawn evenly; each next
 * one is the best of 2 + ln K rows drawn in proportion to their d2 to the nearest center so far.
 * chosen: [runs,K], rows of p: of the runs from `first` on.  Run r depends on seed and r alone. */
int seeding_choose(device *dev, const points *p, int K, int first, int runs, uint64_t seed,
                   int32_t *chosen);

/* Moves one of `mean` ([K,d], K > 1, as lloyd_run leaves it): the center that its rows would miss
 * least goes to a row of another cluster, the one with the rank-th largest objective, drawn in
 * proportion to d2.  Depends on seed and round. */
int swap_center(device *dev, const points *p, int K, uint64_t seed, int round, int rank,
                double *mean);

typedef void lloyd_on_step(const conr_kmeans_step *step, void *user);

/* One run of Lloyd's iteration from `mean` ([K,d], in the space of p: shifted, not scaled), which
 * it leaves at its result.  *objective: of the last step. */
int lloyd_run(device *dev, const points *p, const conr_kmeans_options *o, int run, double *mean,
              double *objective, lloyd_on_step *on_step, void *user);

/* conr_kmeans on features in the device's memory; the rest is the host's.  over: ranks that share
 * the runs, or NULL.  On a device with its own
 * k-means labels are that one's: a row between two centroids may go to either. */
int kmeans_on_device(conr *c, ranks *over, const float *features, int64_t n, int d,
                     const conr_kmeans_options *o, float *centroids, int32_t *labels,
                     conr_kmeans_history *history);

#endif
