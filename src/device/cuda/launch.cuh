/* launch.cuh: queueing kernels and checking that it worked. */
#ifndef CONR_LAUNCH_CUH
#define CONR_LAUNCH_CUH

#include "device/cuda/cuda.h"

#include <cuda_runtime.h>

static inline cudaStream_t stream_of(device *dev) { return (cudaStream_t)cuda_stream(dev); }

/* Queues a kernel; launched() reports whether that succeeded. */
template <typename... P, typename... A>
static void launch(device *dev, void (*kernel)(P...), dim3 grid, int threads, size_t shared,
                   A... arguments) {
    kernel<<<grid, threads, shared, stream_of(dev)>>>(P(arguments)...);
}

static inline int launched(const char *what) { return cuda_check((int)cudaGetLastError(), what); }

/* A kernel must ask for more than 48 KB of dynamic shared memory before it is launched. */
template <typename... P> static int allow_shared(void (*kernel)(P...), size_t bytes) {
    return cuda_check(
        (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "shared memory");
}

static inline unsigned blocks_for(size_t count, int per_block) {
    return (unsigned)((count + (size_t)per_block - 1) / (size_t)per_block);
}

#endif
