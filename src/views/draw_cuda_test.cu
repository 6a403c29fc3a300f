/* draw_cuda_test.cu: draws on the GPU equal those on the CPU, bit for bit.  views.cu includes
 * draw_body.h inside a larger kernel; here it is the whole kernel, so that the draws themselves
 * can be compared.  Compiled without fused multiply-add, as views.cu is.  Needs a GPU: make
 * test-cuda. */
#include "views/draw.h"
#include "views/draw_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int e_ = (int)(call);                                                                      \
        if (e_) return printf("%s: %s\n", #call, cudaGetErrorString((cudaError_t)e_)), 1;          \
    } while (0)

static __global__ void draw_kernel(draw_policy policy, uint64_t seed, uint32_t epoch,
                                   const uint32_t *image, int n, uint32_t view, int width,
                                   int height, draw *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = draw_make(&policy, seed, epoch, image[i], view, width, height);
}

int main(void) {
    const int n = 200000, threads = 128;
    static const int sizes[][2] = {{32, 32}, {500, 375}, {3000, 30}, {96, 96}};
    uint32_t *image = (uint32_t *)malloc(n * sizeof *image), *image_on = NULL;
    draw *got = (draw *)malloc(n * sizeof *got), *on = NULL;
    draw_policy p = draw_policy_default();
    long differ = 0;
    p.blur = 0.5f;
    p.solarize = 0.1f;
    for (int i = 0; i < n; i++) image[i] = (uint32_t)i * 7 + 3;
    CHECK(cudaMalloc((void **)&image_on, n * sizeof *image));
    CHECK(cudaMalloc((void **)&on, n * sizeof *on));
    CHECK(cudaMemcpy(image_on, image, n * sizeof *image, cudaMemcpyHostToDevice));
    for (int s = 0; s < 4; s++)
        for (uint32_t view = 0; view < 2; view++) {
            int w = sizes[s][0], h = sizes[s][1];
            CHECK(cudaMemset(on, 0xff, n * sizeof *on));
            draw_kernel<<<(n + threads - 1) / threads, threads>>>(p, 0x123456789abcull, 17,
                                                                  image_on, n, view, w, h, on);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(got, on, n * sizeof *on, cudaMemcpyDeviceToHost));
            for (int i = 0; i < n; i++) {
                draw want = draw_view(&p, 0x123456789abcull, 17, image[i], view, w, h);
                differ += memcmp(&want, &got[i], sizeof want) != 0;
            }
        }
    printf("%d draws, %ld differ\n", 8 * n, differ);
    return differ != 0;
}
