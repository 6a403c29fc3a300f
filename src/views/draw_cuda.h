/* draw_cuda.h: draws for a batch on the GPU. */
#ifndef CONR_DRAW_CUDA_H
#define CONR_DRAW_CUDA_H

#include "views/draw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = draw_view(policy, seed, epoch, image[i], view, width, height), i < n, queued on a
 * cudaStream_t.  image, out: device memory.  Returns a cudaError_t, 0 for success. */
int draw_views_cuda(const draw_policy *policy, uint64_t seed, uint32_t epoch, const uint32_t *image,
                    int n, uint32_t view, int width, int height, draw *out, void *stream);

#ifdef __cplusplus
}
#endif
#endif
