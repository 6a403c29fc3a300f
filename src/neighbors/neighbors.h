/* neighbors.h: features -> lists of contextually affinitive neighbors (the paper's section 3.2).
 *
 *     S = F F^T of unit rows;  R = 0/1, each row's k1 best of S;  A = (R + R^T)/2
 *     H = A;  layers times:  h_i <- sum over j in top-k2(i) of max(S_ij,0)^alpha h_j, then |h_i| =
 * 1 (before every layer but the first, if resymmetrize: H <- H + H^T) N(i) = the k best of row i of
 * H H^T; where fewer than k are above zero, filled up from S
 *
 * Two routes with the same result to the last bit.  Every number that is kept (S, weights, H, H
 * H^T) is a float; every sum is in double, in ascending order of its index, and rounded once.  A
 * product of two floats is exact in double, so neither fused multiply-adds nor skipped zeros
 * matter. */
#ifndef CONR_NEIGHBORS_H
#define CONR_NEIGHBORS_H

#include "conr.h"
#include "ranks/ranks.h"

/* f: [n,d], unit rows or zero.  o: k, k1, k2 between 1 and n.  ids: [n,k]. */

/* Plain matrices [n,n], by the device's table.  The definition; for a batch. */
int neighbors_dense(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids);
/* Rows of a few dozen entries; beyond WHOLE_ROWS (whole.h) memory grows with n, not with n^2.  For
 * any n.  over: ranks that share the search, or NULL. */
int neighbors_sparse(device *dev, ranks *over, const float *f, int n, int d,
                     const conr_neighbors_options *o, int32_t *ids);
/* What follows the search: by_s, values: [n,width], the best of S as search_nearest gives them,
 * width at least k, k1 and k2; host memory. */
int neighbors_from_lists(device *dev, const int32_t *by_s, const float *values, int n, int width,
                         const conr_neighbors_options *o, int32_t *ids);

/* By the fastest route that the device has: an operation of its own where the table has one (f, ids
 * and work are device memory then, work as large as neighbors_bytes says), else one of the above
 * (memory of the host; work is not read). */
int neighbors_batch(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids, void *work);

#endif
