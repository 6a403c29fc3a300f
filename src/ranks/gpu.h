/* gpu.h: what mpi.c needs of NCCL: collectives on the memory of a CUDA device.  Calls are queued on
 * the stream of the device and may be recorded.  Implemented by nccl.c or, in a build without NCCL,
 * by nccl_none.c, which fails. */
#ifndef CONR_RANKS_GPU_H
#define CONR_RANKS_GPU_H

#include "device/device.h"

enum { RANKS_GPU_ID = 128 };

typedef struct ranks_gpu ranks_gpu;

int ranks_gpu_id(unsigned char id[RANKS_GPU_ID]); /* made by one rank, broadcast to all */
int ranks_gpu_new(device *dev, const unsigned char id[RANKS_GPU_ID], int rank, int count,
                  ranks_gpu **out);
void ranks_gpu_free(ranks_gpu *g); /* NULL is fine */

int ranks_gpu_sum(ranks_gpu *g, device *dev, float *x, size_t n, bool mean);
/* On a stream of its own, after what is queued now; end: the device's stream waits for it. */
int ranks_gpu_mean_begin(ranks_gpu *g, device *dev, float *x, size_t n);
int ranks_gpu_mean_end(ranks_gpu *g, device *dev);
int ranks_gpu_gather(ranks_gpu *g, device *dev, const void *mine, size_t bytes, void *all);
int ranks_gpu_scale(device *dev, const float *from, size_t n, float factor, float *to);

#endif
