/* transformers.cu: what a transformer needs besides matrix products: the end of a dense layer, layer
 * norm, attention, and the rows that it starts from. */
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

/* ---- attention ------------------------------------------------------------------------------- */

enum { QUERIES = 128, KEYS = 32, CHUNK = 8 };

/* A thread has a query: it and the sums stay in registers.  Keys and values pass through shared
 * memory, KEYS at a time; after CHUNK scores the largest so far is known, and the sums are rescaled
 * to it.  D: d rounded up; what is beyond d is zero. */
template <typename T, int D>
static __global__ void __launch_bounds__(QUERIES)
    attention(attention_shape s, const T *q, const T *k, const T *v, T *out) {
    extern __shared__ float shared[];
    float *key = shared, *value = shared + KEYS * D;
    int a = blockIdx.x * QUERIES + threadIdx.x;
    size_t head = (size_t)blockIdx.y * s.d, image = blockIdx.z;
    const T *keys = k + image * s.k_image + head, *values = v + image * s.k_image + head;
    float own[D], sum[D], most = -INFINITY, total = 0;
#pragma unroll
    for (int j = 0; j < D; j++) {
        bool in = a < s.queries && j < s.d;
        own[j] = in ? s.scale * to_float(q[image * s.q_image + a * s.q_row + head + j]) : 0;
        sum[j] = 0;
    }
    for (int from = 0; from < s.keys; from += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * D; i += QUERIES) {
            int b = from + i / D, j = i % D;
            bool in = b < s.keys && j < s.d;
            key[i] = in ? to_float(keys[b * s.k_row + j]) : 0;
            value[i] = in ? to_float(values[b * s.k_row + j]) : 0;
        }
        __syncthreads();
        for (int b = 0; b < KEYS && from + b < s.keys; b += CHUNK) {
            float p[CHUNK], now = most;
#pragma unroll
            for (int c = 0; c < CHUNK; c++) {
                p[c] = 0;
#pragma unroll
                for (int j = 0; j < D; j++) p[c] += own[j] * key[(b + c) * D + j];
                if (from + b + c >= s.keys) p[c] = -INFINITY;
                now = fmaxf(now, p[c]);
            }
            float keep = expf(most - now); /* 0 at first */
            most = now;
            total *= keep;
#pragma unroll
            for (int j = 0; j < D; j++) sum[j] *= keep;
#pragma unroll
            for (int c = 0; c < CHUNK; c++) {
                float e = expf(p[c] - most);
                total += e;
#pragma unroll
                for (int j = 0; j < D; j++) sum[j] += e * value[(b + c) * D + j];
            }
        }
    }
    if (a >= s.queries) return;
    T *to = out + image * s.o_image + a * s.o_row + head;
#pragma unroll
    for (int j = 0; j < D; j++)
        if (j < s.d) from_float(sum[j] / total, &to[j]);
}

/* It needs none; a block of no bytes would be odd. */
static size_t cuda_attention_bytes(device *dev, const attention_shape *s) {
    (void)dev, (void)s;
    return 256;
}

template <typename T, int D>
static int attend(device *dev, const attention_shape *s, const act *q, const act *k, const act *v,
                  act *out) {
    dim3 grid(blocks_for((size_t)s->queries, QUERIES), (unsigned)s->heads, (unsigned)s->n);
    launch(dev, attention<T, D>, grid, QUERIES, 2 * KEYS * D * sizeof(float), *s, (const T *)q,
           (const T *)k, (const T *)v, (T *)out);
    return launched("attention");
}

static int cuda_attention(device *dev, const attention_shape *s, const act *q, const act *k,
                          const act *v, act *out, void *work) {
    (void)work;
    bool half = dev->type == ACT_BF16;
    if (s->d > 128)
        return fail(CONR_EDEVICE,
                    "attention: heads of %d values are more than 128; use --device cpu", s->d);
    if (s->d <= 64)
        return half ? attend<bf16, 64>(dev, s, q, k, v, out)
                    : attend<float, 64>(dev, s, q, k, v, out);
    return half ? attend<bf16, 128>(dev, s, q, k, v, out)
                : attend<float, 128>(dev, s, q, k, v, out);
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
    op->attention_bytes = cuda_attention_bytes;
    op->attention = cuda_attention;
    op->tokens = cuda_tokens;
}
