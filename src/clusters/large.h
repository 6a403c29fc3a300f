/* large.h: k-means of many rows with many centers.
 *
 * Past LARGE distances an iteration, comparing every row with every center is what takes the time.
 * Here a row is compared with the centers next to its own only, which are nearly always those that
 * matter, and with all of them once, at the end.  The start is found from a sample, on two levels.
 * Rows may be spread over ranks: the result has the same bits for any number of them. */
#ifndef CONR_LARGE_H
#define CONR_LARGE_H

#include "clusters/kmeans.h"
#include "clusters/shard.h"

/* Whether n rows and K centers are a case for it. */
bool large_is(int64_t n, int K);

/* conr_kmeans on host memory, with a share of the rows on each rank of `over` (NULL: all are here).
 * features, labels: [n,d], [n], of this rank.  centroids and history are the same on all ranks. */
int large_kmeans(device *dev, ranks *over, const float *features, int n, int d,
                 const conr_kmeans_options *o, float *centroids, int32_t *labels,
                 conr_kmeans_history *history);

/* The same with the labels of all ranks on every rank. */
int large_spread(device *dev, ranks *over, const float *features, int n, int d,
                 const conr_kmeans_options *o, float *centroids, int32_t *labels,
                 conr_kmeans_history *history);

/* The same for ranks that hold all rows, each: they share the work, and all get all labels. */
int large_whole(device *dev, ranks *over, const float *features, int n, int d,
                const conr_kmeans_options *o, float *centroids, int32_t *labels,
                conr_kmeans_history *history);

/* ---- its parts ---- */

int large_coarse(int K); /* centers of the first level */

/* Centers for a run: K plain means in the space of the shard, mean: [K,d].  rough:
 * [2,large_coarse(K),d], the first level, in the space of the shard and as users see centroids. */
int large_start(const shard *s, int K, uint64_t seed, int run, float *rough, double *mean);

/* One run from `mean` [K,d], which it leaves at its result.  rough: as above, or NULL: then the
 * first assignment compares each row with all centers.  *objective: of the last step, in the units
 * of the shard.  mend: in early steps, centers also move from where they are hardly missed to where
 * they gain more; only for a shard that holds all rows. */
int large_run(const shard *s, const conr_kmeans_options *o, int run, const float *rough, bool mend,
              double *mean, double *objective, lloyd_on_step *on_step, void *user);

/* A mean in the space of the shard, as users see it. */
float large_centroid(const shard *s, double mean, int j);

#endif
