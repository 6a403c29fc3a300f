/* neighbors.h: features -> lists of contextually affinitive neighbors (the paper's section 3.2).
 *
 *     S = F F^T                    of unit rows
 *     R_ij = 1 if j is among the k1 best of row i of S, else 0
 *     A = (R + R^T)/2
 *     H = A
 *     `layers` times:
 *         H <- H + H^T             if resymmetrize, before every layer but the first
 *         h_i <- sum over j in top-k2(i) of max(S_ij,0)^alpha h_j
 *         h_i <- h_i / |h_i|
 *     N(i) = the k best of row i of H H^T; if fewer than k are above zero, filled up from S
 *
 * There are two algorithms, dense and sparse, with the same result to the last bit.  Every value
 * that is stored (S, weights, H, H H^T) is a float; every sum is in double, in ascending order of
 * its index, and rounded once.  A product of two floats is exact in double, so neither fused
 * multiply-adds nor skipped zeros matter. */
#ifndef CONR_NEIGHBORS_H
#define CONR_NEIGHBORS_H

#include "conr.h"
#include "context/context.h"

/* f: [n,d], unit rows or zero.  o: k, k1, k2 between 1 and n.  ids: [n,k]. */

/* Plain matrices [n,n], by operations of the device.  The definition; for a batch. */
int neighbors_dense(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids);
/* Rows of a few dozen entries; beyond WHOLE_ROWS (whole.h) memory grows with n, not with n^2.  For
 * any n.  over: ranks that share the search, or NULL. */
int neighbors_sparse(device *dev, ranks *over, const float *f, int n, int d,
                     const conr_neighbors_options *o, int32_t *ids);
/* All that follows the search.  by_s, values: [n,width], the best of S as search_nearest gives
 * them, width at least k, k1 and k2; host memory.  affinity: [n,k] or NULL, as below. */
int neighbors_from_lists(device *dev, const int32_t *by_s, const float *values, int n, int width,
                         const conr_neighbors_options *o, int32_t *ids, float *affinity);

/* The lists of conr_neighbors with their values: H H^T, in [0,1], 0 where a list was filled up; or
 * max(S, 0) if o->local.  The row itself comes first and has 1.  features: [n,d], any finite rows
 * in host memory, checked; ids, affinity: [n,k], host memory; o as the caller gave it, k, k1 and k2
 * not above n.  A GPU searches if the set is large. */
int neighbors_affinities(conr *c, const float *features, int n, int d,
                         const conr_neighbors_options *o, int32_t *ids, float *affinity);

/* By the fastest algorithm for the device: its own operation if it has one (then f, ids and work
 * are device memory, and work has neighbors_bytes), else one of the above (then all are host
 * memory, and work is not used). */
int neighbors_batch(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids, void *work);

#endif
