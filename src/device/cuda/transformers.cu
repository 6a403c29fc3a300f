/* transformers.cu: what a transformer needs besides matrix products and attention: the end of a dense
 * layer, layer norm, and the rows that it starts from. */
#include "device/cuda/vector.cuh"
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

static int grid_for(device *dev, size_t items) {
    size_t blocks = (items + BLOCK - 1) / BLOCK, most = (size_t)cuda_processors(dev) * 16;
    return (int)(blocks < most ? (blocks ? blocks : 1) : most);
}

#define EACH(i, n)                                                                                 \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                        \
         i += (size_t)gridDim.x * blockDim.x)

/* ---- the end of a dense layer ---------------------------------------------------------------- */

static __device__ inline float after(int then, float x) {
    switch (then) {
    case DENSE_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case DENSE_GELU_QUICK: return x / (1 + expf(-1.702f * x));
    case DENSE_GELU_TANH: return x / (1 + expf(-1.59576912f * (x + 0.044715f * x * x * x)));
    default: return x;
    }
}

template <typename T, int V>
static __global__ void finish(size_t total, int c, int then, const float *bias, const float *scale,
                              const T *residual, T *y) {
    EACH(i, total) {
        int column = (int)(i * V % c);
        float x[V], more[V] = {0};
        floats<T, V>(load<T, V>(y + i * V), x);
        if (residual) floats<T, V>(load<T, V>(residual + i * V), more);
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = more[j] + (scale ? scale[column + j] : 1) *
                                 after(then, x[j] + (bias ? bias[column + j] : 0));
        store<T, V>(y + i * V, x);
    }
}

extern "C" int cuda_dense_finish(device *dev, const dense_shape *s, const float *bias,
                                 const float *scale, const act *residual, act *y) {
    size_t count = (size_t)s->m * s->co;
    if (!count || (!bias && !scale && !residual && s->then == DENSE_PLAIN)) return 0;
#define FINISH(T, V)                                                                               \
    launch(dev, finish<T, V>, grid_for(dev, count / V), BLOCK, 0, count / V, s->co, (int)s->then,  \
           bias, scale, (const T *)residual, (T *)y)
    BY_TYPE(dev, s->co, FINISH);
#undef FINISH
    return launched("dense layer");
}

/* ---- layer norm ------------------------------------------------------------------------------ */

static __device__ inline float warp_total(float x) {
    for (int by = WARP / 2; by > 0; by /= 2) x += __shfl_xor_sync(ALL_LANES, x, by);
    return x;
}

/* A warp has a row. */
template <typename T, int V>
static __global__ void layer_norm(int n, int d, float eps, const T *x, const float *gamma,
                                  const float *beta, T *y) {
    int row = warp_row(), step = WARP * V;
    if (row >= n) return;
    const T *in = x + (size_t)row * d;
    T *out = y + (size_t)row * d;
    float sum = 0, squares = 0, v[V];
    for (int j = lane() * V; j < d; j += step) {
        floats<T, V>(load<T, V>(in + j), v);
#pragma unroll
        for (int k = 0; k < V; k++) sum += v[k];
    }
    float mean = warp_total(sum) / d;
    for (int j = lane() * V; j < d; j += step) {
        floats<T, V>(load<T, V>(in + j), v);
#pragma unroll
        for (int k = 0; k < V; k++) squares += (v[k] - mean) * (v[k] - mean);
    }
    float invstd = rsqrtf(warp_total(squares) / d + eps);
    for (int j = lane() * V; j < d; j += step) {
        floats<T, V>(load<T, V>(in + j), v);
#pragma unroll
        for (int k = 0; k < V; k++) v[k] = (v[k] - mean) * invstd * gamma[j + k] + beta[j + k];
        store<T, V>(out + j, v);
    }
}

static int cuda_layer_norm(device *dev, int n, int d, float eps, const act *x, const float *gamma,
                           const float *beta, act *y) {
    if (n == 0) return 0;
#define NORM(T, V)                                                                                 \
    launch(dev, layer_norm<T, V>, blocks_for((size_t)n, ROWS), ROW_BLOCK, 0, n, d, eps,            \
           (const T *)x, gamma, beta, (T *)y)
    BY_TYPE(dev, d, NORM);
#undef NORM
    return launched("layer norm");
}

/* ---- the rows that it starts from ------------------------------------------------------------ */

template <typename T>
static __global__ void tokens(size_t total, int extra, int m, int d, const T *x, const float *first,
                              const float *place, T *out) {
    size_t rows = (size_t)(extra + m);
    EACH(i, total) {
        int j = (int)(i % d), row = (int)(i / d % rows);
        size_t image = i / d / rows, at = (size_t)(row - extra) * d + j;
        float v =
            row < extra ? first[(size_t)row * d + j] : to_float(x[image * m * d + at]) + place[at];
        from_float(v, &out[i]);
    }
}

static int cuda_tokens(device *dev, int n, int extra, int m, int d, const act *x,
                       const float *first, const float *place, act *out) {
    size_t total = (size_t)n * (size_t)(extra + m) * (size_t)d;
    if (dev->type == ACT_BF16)
        launch(dev, tokens<bf16>, grid_for(dev, total), BLOCK, 0, total, extra, m, d,
               (const bf16 *)x, first, place, (bf16 *)out);
    else
        launch(dev, tokens<float>, grid_for(dev, total), BLOCK, 0, total, extra, m, d,
               (const float *)x, first, place, (float *)out);
    return launched("tokens");
}

extern "C" void cuda_transformer_ops(device_ops *op) {
    op->layer_norm = cuda_layer_norm;
    cuda_attention_ops(op);
    op->tokens = cuda_tokens;
}
