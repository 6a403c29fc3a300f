/* nccl_none.c: gpu.h in a build without NCCL: every call fails. */
#include "ranks/gpu.h"

#include "base/status.h"

static int none(void) {
    return fail(CONR_EDEVICE,
                "cuda: this build has no NCCL, which connects the GPUs of several ranks; "
                "build with CUDA and NCCL, or use --device cpu");
}

int ranks_gpu_id(unsigned char id[RANKS_GPU_ID]) {
    (void)id;
    return none();
}

int ranks_gpu_new(device *dev, const unsigned char id[RANKS_GPU_ID], int rank, int count,
                  ranks_gpu **out) {
    (void)dev, (void)id, (void)rank, (void)count;
    *out = NULL;
    return none();
}

void ranks_gpu_free(ranks_gpu *g) { (void)g; }

int ranks_gpu_sum(ranks_gpu *g, device *dev, float *x, size_t n, bool mean) {
    (void)g, (void)dev, (void)x, (void)n, (void)mean;
    return none();
}

int ranks_gpu_mean_begin(ranks_gpu *g, device *dev, float *x, size_t n) {
    (void)g, (void)dev, (void)x, (void)n;
    return none();
}

int ranks_gpu_mean_end(ranks_gpu *g, device *dev) {
    (void)g, (void)dev;
    return none();
}

int ranks_gpu_gather(ranks_gpu *g, device *dev, const void *mine, size_t bytes, void *all) {
    (void)g, (void)dev, (void)mine, (void)bytes, (void)all;
    return none();
}

int ranks_gpu_scale(device *dev, const float *from, size_t n, float factor, float *to) {
    (void)dev, (void)from, (void)n, (void)factor, (void)to;
    return none();
}
