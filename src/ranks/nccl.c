/* nccl.c: collectives between GPUs, over NCCL. */
#include "ranks/gpu.h"

#include "base/status.h"
#include "device/cuda/own.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

struct ranks_gpu {
    int index; /* of the GPU */
    ncclComm_t comm;
    cudaStream_t side; /* for gradients, in parallel with the backward pass */
    cudaEvent_t ready, done;
    bool pending;
};

static int checked(ncclResult_t result, const char *what) {
    if (result == ncclSuccess) return 0;
    return fail(
        CONR_EDEVICE,
        "NCCL, %s: %s (%s); set NCCL_DEBUG=WARN for details, and give each rank its own GPU", what,
        ncclGetErrorString(result), ncclGetLastError(NULL));
}
#define NCCL(call) checked(nccl##call, "nccl" #call)
#define CUDA(call) cuda_check((int)cuda##call, "cuda" #call)

int ranks_gpu_id(unsigned char id[RANKS_GPU_ID]) {
    ncclUniqueId drawn;
    _Static_assert(sizeof drawn == RANKS_GPU_ID, "NCCL's id has another size");
    int rc = NCCL(GetUniqueId(&drawn));
    if (rc == 0) memcpy(id, &drawn, sizeof drawn);
    return rc;
}

int ranks_gpu_new(device *dev, const unsigned char id[RANKS_GPU_ID], int rank, int count,
                  ranks_gpu **out) {
    int rc = 0;
    ncclUniqueId shared;
    ranks_gpu *g = *out = calloc(1, sizeof *g);
    if (!g) return fail_memory("ranks", sizeof *g);
    g->index = own_of(dev)->index;
    memcpy(&shared, id, sizeof shared);
    TRY(CUDA(SetDevice(g->index)));
    TRY(NCCL(CommInitRank(&g->comm, count, shared, rank)));
    TRY(CUDA(StreamCreateWithFlags(&g->side, cudaStreamNonBlocking)));
    TRY(CUDA(EventCreateWithFlags(&g->ready, cudaEventDisableTiming)));
    TRY(CUDA(EventCreateWithFlags(&g->done, cudaEventDisableTiming)));
done:
    if (rc < 0) ranks_gpu_free(g), *out = NULL;
    return rc;
}

void ranks_gpu_free(ranks_gpu *g) {
    if (!g) return;
    cudaSetDevice(g->index);
    if (g->comm) ncclCommDestroy(g->comm);
    if (g->side) cudaStreamDestroy(g->side);
    if (g->ready) cudaEventDestroy(g->ready);
    if (g->done) cudaEventDestroy(g->done);
    free(g);
}

int ranks_gpu_sum(ranks_gpu *g, device *dev, float *x, size_t n, bool mean) {
    return NCCL(
        AllReduce(x, x, n, ncclFloat, mean ? ncclAvg : ncclSum, g->comm, own_of(dev)->stream));
}

/* One communicator serves both streams: events order its collectives, and the batch statistics that
 * the backward pass sums meanwhile wait for the bucket before them.  The order is the same on all
 * ranks, as NCCL requires. */
int ranks_gpu_mean_begin(ranks_gpu *g, device *dev, float *x, size_t n) {
    int rc = 0;
    TRY(CUDA(EventRecord(g->ready, own_of(dev)->stream)));
    TRY(CUDA(StreamWaitEvent(g->side, g->ready, 0)));
    TRY(NCCL(AllReduce(x, x, n, ncclFloat, ncclAvg, g->comm, g->side)));
    g->pending = true;
done:
    return rc;
}

int ranks_gpu_mean_end(ranks_gpu *g, device *dev) {
    int rc = 0;
    if (!g->pending) return 0;
    g->pending = false;
    TRY(CUDA(EventRecord(g->done, g->side)));
    TRY(CUDA(StreamWaitEvent(own_of(dev)->stream, g->done, 0)));
done:
    return rc;
}

int ranks_gpu_gather(ranks_gpu *g, device *dev, const void *mine, size_t bytes, void *all) {
    return NCCL(AllGather(mine, all, bytes, ncclUint8, g->comm, own_of(dev)->stream));
}

int ranks_gpu_scale(device *dev, const float *from, size_t n, float factor, float *to) {
    return cuda_scale(dev, from, n, factor, to);
}
