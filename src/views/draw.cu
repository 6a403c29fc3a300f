/* draw.cu: the draws on the GPU, from the same source as on the CPU.  Compiled without fused
 * multiply-add, so both give the same bits. */
#include "views/draw_cuda.h"

#include "views/draw_body.h"

static __global__ void draw_kernel(draw_policy policy, uint64_t seed, uint32_t epoch,
                                   const uint32_t *image, int n, uint32_t view, int width,
                                   int height, draw *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = draw_make(&policy, seed, epoch, image[i], view, width, height);
}

extern "C" int draw_views_cuda(const draw_policy *policy, uint64_t seed, uint32_t epoch,
                               const uint32_t *image, int n, uint32_t view, int width, int height,
                               draw *out, void *stream) {
    const int threads = 128;
    draw_kernel<<<(n + threads - 1) / threads, threads, 0, (cudaStream_t)stream>>>(
        *policy, seed, epoch, image, n, view, width, height, out);
    return (int)cudaGetLastError();
}
