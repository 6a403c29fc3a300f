/* ranks.h: the second seam, between the processes of one training.
 *
 * A rank is one process with one device; all ranks do the same steps, each on its part of the
 * batch.  With one process every call is a no-op (or a copy), so callers never ask.  mpirun or srun
 * launches the processes; MPI and, between GPUs, NCCL carry the data.  Only this folder knows of
 * either.
 *
 * Why N ranks give the result of one: features are gathered, so each rank computes the loss of the
 * whole batch; gradients of the weights are averaged by ranks_mean.  The backward pass of a rank
 * sees only its part of the batch, so the average would be N times too small: ranks_gather_back
 * supplies the factor N.
 *
 * If a rank exits with a code other than 0, all ranks are stopped, unless they had agreed to stop
 * (ranks_any).  So a rank that fails just returns its error and need not inform the others. */
#ifndef CONR_RANKS_H
#define CONR_RANKS_H

#include "device/device.h"

typedef struct ranks {
    int rank, count;
    int local, locals; /* the same among the ranks of this machine */
    bool talks;        /* communication takes place: there are other ranks, or CONR_ONE_RANK=1 makes
                          one rank talk to itself, to test MPI and NCCL with a single GPU */
    void *own;         /* the implementation's; NULL: all ranks of the launch */
} ranks;

/* Finds this process's rank and the number of ranks.  May be called again; what it starts ends with
 * the process. */
int ranks_open(ranks *r);
/* Splits the ranks into groups of `size` consecutive ones, and gives this rank's group; size
 * divides count.  All ranks call it together. */
int ranks_part(const ranks *r, int size, ranks *out);
void ranks_close(ranks *r);

/* ---- device memory; queued like the operations of the device ---- */

int ranks_sum(ranks *r, device *dev, float *x, size_t n); /* in place, the same bits on all ranks */
int ranks_mean(ranks *r, device *dev, float *x, size_t n); /* likewise */
/* The mean in the background: x is ready after the end, which waits for all that were begun. */
int ranks_mean_begin(ranks *r, device *dev, float *x, size_t n);
int ranks_mean_end(ranks *r, device *dev);
/* all: [count][bytes], the parts in rank order.  With one rank, all may be mine. */
int ranks_gather(ranks *r, device *dev, const void *mine, size_t bytes, void *all);
/* The gradient of gather, see above: d_mine = count * d_all[rank], n floats. */
int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine);

/* ---- host memory; done on return ---- */

int ranks_broadcast(ranks *r, void *x, size_t bytes);               /* from rank 0 to all */
int ranks_broadcast_from(ranks *r, int who, void *x, size_t bytes); /* from rank `who` to all */
int ranks_all_gather(ranks *r, const void *mine, size_t bytes, void *all); /* all: [count][bytes] */
int ranks_sum_ints(ranks *r, int64_t *x, size_t n);                        /* in place */
/* Whether any rank says yes.  Ranks that stop because of it end normally, whatever their exit
 * code. */
int ranks_any(ranks *r, bool yes, bool *any);

/* Seconds spent in these calls so far.  On the host, wall time; on a GPU, the time its queue was
 * blocked, and only for calls made while watching was on (it takes moments in the queue, so such
 * calls cannot be recorded).  Waits for the watched calls. */
typedef struct ranks_times {
    double all, mean; /* mean: of these, in ranks_mean_* */
} ranks_times;
ranks_times ranks_time(void);
void ranks_watch(bool on);

/* ---- what the implementations share (ranks.c) ---- */

/* The number of processes according to the launcher's environment variables; 1 without a
 * launcher. */
int ranks_launched(void);
bool ranks_one_talks(void); /* CONR_ONE_RANK */

#endif
