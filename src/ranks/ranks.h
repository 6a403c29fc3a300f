/* ranks.h: the second seam, between the processes of one training.
 *
 * A rank is one process with one device; all do the same steps on their part of the batch.  With
 * one process every call is a no-op (or a copy), so callers never ask.  Launch is mpirun's or
 * srun's, transport MPI's and, between GPUs, NCCL's: no file but ranks_*.c knows of either.
 *
 * How N ranks come to equal one: features are gathered, so each rank computes the loss of the whole
 * batch; gradients of the weights are averaged by ranks_mean.  A rank's own backward pass sees only
 * its part of the batch, so the average would be N times too small: ranks_gather_back carries that
 * factor N.
 *
 * A rank that ends with another exit code than 0 ends all of them, unless they had agreed to stop
 * (ranks_any): whoever fails returns an error as always, and need not tell the others. */
#ifndef CONR_RANKS_H
#define CONR_RANKS_H

#include "device/device.h"

typedef struct ranks {
    int rank, count;
    int local, locals; /* the same among the ranks of this machine */
    bool talks;        /* calls are made: there are others, or CONR_ONE_RANK=1 has one rank talk to
                          itself, to try MPI and NCCL where there is one GPU */
    void *own;         /* the implementation's; NULL: every rank there is */
} ranks;

/* Finds out who and how many we are.  May be called again; what it starts ends with the process. */
int ranks_open(ranks *r);
/* The `size` neighbors of this rank, itself included, as ranks of their own; size divides count.
 * All call it together. */
int ranks_part(const ranks *r, int size, ranks *out);
void ranks_close(ranks *r);

/* ---- device memory, queued with the device's operations ---- */

int ranks_sum(ranks *r, device *dev, float *x, size_t n);  /* in place, same bits on all ranks */
int ranks_mean(ranks *r, device *dev, float *x, size_t n); /* likewise */
/* The same on the way: x may be used after the end, which waits for all that were begun. */
int ranks_mean_begin(ranks *r, device *dev, float *x, size_t n);
int ranks_mean_end(ranks *r, device *dev);
/* all: [count][bytes], the parts in the order of ranks.  With one rank all may be mine. */
int ranks_gather(ranks *r, device *dev, const void *mine, size_t bytes, void *all);
/* The gradient of gather: d_mine = count * d_all[rank], n numbers, see above. */
int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine);

/* ---- host memory, at once ---- */

int ranks_broadcast(ranks *r, void *x, size_t bytes);               /* from rank 0 to all */
int ranks_broadcast_from(ranks *r, int who, void *x, size_t bytes); /* from any one of them */
int ranks_all_gather(ranks *r, const void *mine, size_t bytes, void *all); /* all: [count][bytes] */
/* Whether any rank says yes.  To stop by this is to end well, whatever the exit code. */
int ranks_any(ranks *r, bool yes, bool *any);

/* Seconds spent in these calls so far, and of them in ranks_mean_*: the host's; on a GPU those that
 * its queue was kept waiting, and only of calls made while they were watched (which takes moments
 * of the queue, and cannot be recorded).  Waits for the watched ones. */
typedef struct ranks_times {
    double all, mean;
} ranks_times;
ranks_times ranks_time(void);
void ranks_watch(bool on);

/* ---- what the implementations share (ranks.c) ---- */

/* How many processes a launcher says it has started, by its environment; 1: none is there. */
int ranks_launched(void);
bool ranks_one_talks(void); /* CONR_ONE_RANK */

#endif
