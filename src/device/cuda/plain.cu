/* plain.cu: convolutions of any shape as loops, for what no library takes: mostly odd numbers of
 * channels in bf16.  Sums are in fp32 and in a fixed order. */
#include "device/cuda/vector.cuh"

enum { THREADS = 256 };

typedef struct geometry {
    int n, h, w, ci, co, k, stride, pad, oh, ow;
} geometry;

static geometry geometry_of(const conv_plan *p) {
    const conv_shape *s = &p->s;
    return geometry{s->n, s->h, s->w, s->ci, s->co, s->k, s->stride, s->pad, p->oh, p->ow};
}

template <typename T>
static __global__ void forward(geometry g, size_t total, const T *x, const float *w,
                               const float *bias, T *y) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int o = (int)(i % g.co), ox = (int)(i / g.co % g.ow), oy = (int)(i / g.co / g.ow % g.oh);
    size_t image = i / g.co / g.ow / g.oh;
    float sum = bias ? bias[o] : 0;
    for (int ky = 0; ky < g.k; ky++)
        for (int kx = 0; kx < g.k; kx++) {
            int iy = oy * g.stride - g.pad + ky, ix = ox * g.stride - g.pad + kx;
            if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
            const T *from = x + ((image * g.h + iy) * g.w + ix) * g.ci;
            const float *by = w + (((size_t)o * g.k + ky) * g.k + kx) * g.ci;
            for (int c = 0; c < g.ci; c++) sum += to_float(from[c]) * by[c];
        }
    from_float(sum, &y[i]);
}

template <typename T>
static __global__ void back_data(geometry g, size_t total, const T *dy, const float *w, bool add,
                                 T *dx) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int c = (int)(i % g.ci), ix = (int)(i / g.ci % g.w), iy = (int)(i / g.ci / g.w % g.h);
    size_t image = i / g.ci / g.w / g.h;
    float sum = add ? to_float(dx[i]) : 0;
    for (int ky = 0; ky < g.k; ky++)
        for (int kx = 0; kx < g.k; kx++) {
            int y = iy + g.pad - ky, x = ix + g.pad - kx;
            if (y < 0 || x < 0 || y % g.stride || x % g.stride) continue;
            y /= g.stride, x /= g.stride;
            if (y >= g.oh || x >= g.ow) continue;
            const T *d = dy + ((image * g.oh + y) * g.ow + x) * g.co;
            const float *by = w + ((size_t)ky * g.k + kx) * g.ci + c;
            for (int o = 0; o < g.co; o++) sum += to_float(d[o]) * by[(size_t)o * g.k * g.k * g.ci];
        }
    from_float(sum, &dx[i]);
}

/* One block per weight: every thread sums its pixels, then the sums are added as a tree. */
template <typename T>
static __global__ void back_filter(geometry g, const T *x, const T *dy, bool add, float *dw) {
    __shared__ float part[THREADS];
    size_t i = blockIdx.x, pixels = (size_t)g.n * g.oh * g.ow;
    int c = (int)(i % g.ci), kx = (int)(i / g.ci % g.k), ky = (int)(i / g.ci / g.k % g.k);
    int o = (int)(i / g.ci / g.k / g.k);
    float sum = 0;
    for (size_t p = threadIdx.x; p < pixels; p += THREADS) {
        int ox = (int)(p % g.ow), oy = (int)(p / g.ow % g.oh);
        int iy = oy * g.stride - g.pad + ky, ix = ox * g.stride - g.pad + kx;
        if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
        size_t from = ((p / g.ow / g.oh * g.h + iy) * g.w + ix) * g.ci + c;
        sum += to_float(dy[p * g.co + o]) * to_float(x[from]);
    }
    part[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) dw[i] = (add ? dw[i] : 0) + part[0];
}

extern "C" int cuda_plain_forward(device *dev, const conv_plan *p, const act *x, const float *w,
                                  const float *bias, act *y) {
    geometry g = geometry_of(p);
    size_t total = (size_t)g.n * g.oh * g.ow * g.co;
    if (dev->type == ACT_BF16)
        launch(dev, forward<bf16>, blocks_for(total, THREADS), THREADS, 0, g, total,
               (const bf16 *)x, w, bias, (bf16 *)y);
    else
        launch(dev, forward<float>, blocks_for(total, THREADS), THREADS, 0, g, total,
               (const float *)x, w, bias, (float *)y);
    return launched("conv_forward");
}

extern "C" int cuda_plain_back_data(device *dev, const conv_plan *p, const act *dy, const float *w,
                                    bool add, act *dx) {
    geometry g = geometry_of(p);
    size_t total = (size_t)g.n * g.h * g.w * g.ci;
    if (dev->type == ACT_BF16)
        launch(dev, back_data<bf16>, blocks_for(total, THREADS), THREADS, 0, g, total,
               (const bf16 *)dy, w, add, (bf16 *)dx);
    else
        launch(dev, back_data<float>, blocks_for(total, THREADS), THREADS, 0, g, total,
               (const float *)dy, w, add, (float *)dx);
    return launched("conv_back_data");
}

extern "C" int cuda_plain_back_filter(device *dev, const conv_plan *p, const act *x, const act *dy,
                                      bool add, float *dw) {
    geometry g = geometry_of(p);
    unsigned weights = (unsigned)((size_t)g.co * g.k * g.k * g.ci);
    if (dev->type == ACT_BF16)
        launch(dev, back_filter<bf16>, weights, THREADS, 0, g, (const bf16 *)x, (const bf16 *)dy,
               add, dw);
    else
        launch(dev, back_filter<float>, weights, THREADS, 0, g, (const float *)x, (const float *)dy,
               add, dw);
    return launched("conv_back_filter");
}
