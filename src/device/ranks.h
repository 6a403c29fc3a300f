/* ranks.h: the second seam, between the processes of one training.
 *
 * A rank is one process with one device; all do the same steps on their part of the batch.  With
 * one process every call is a no-op (or a copy), so callers never ask.  Memory is the device's, and
 * calls are queued with its operations.
 *
 * How N ranks come to equal one: features are gathered, so each rank computes the loss of the whole
 * batch; gradients of the weights are averaged by ranks_mean.  A rank's own backward pass sees only
 * its part of the batch, so the average would be N times too small: ranks_gather_back carries that
 * factor N. */
#ifndef CONR_RANKS_H
#define CONR_RANKS_H

#include "device/device.h"

typedef struct ranks {
    int rank, count;
    void *own; /* the implementation's */
} ranks;

int ranks_open(ranks *r); /* finds out who and how many we are */
void ranks_close(ranks *r);

int ranks_sum(ranks *r, device *dev, float *x, size_t n);  /* in place, same bits on all ranks */
int ranks_mean(ranks *r, device *dev, float *x, size_t n); /* likewise */
/* all: [count][n], the parts in the order of ranks */
int ranks_gather(ranks *r, device *dev, const float *mine, size_t n, float *all);
/* The gradient of gather: d_mine = count * d_all[rank], see above. */
int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine);
int ranks_broadcast(ranks *r, device *dev, float *x, size_t n); /* from rank 0 */
int ranks_barrier(ranks *r);

#endif
