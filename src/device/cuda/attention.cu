/* attention.cu: softmax(scale q k') v, without the matrix of all scores in memory.
 *
 * In bf16 the two products run on the tensor cores.  A warp has 16 queries; the warps of a block
 * share keys and values, which pass through shared memory KEYS at a time, the next ones while these
 * are used.  Scores and sums stay in registers: what a lane holds of a product's result is what it
 * needs as the first operand of the next product.  Rescaling to the largest score so far is as in
 * "FlashAttention" (Dao et al., 2022).  fp32, rows that are not aligned and odd heads take a kernel
 * of plain loops. */
#include "device/cuda/tensor.cuh"
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

/* ---- on the tensor cores --------------------------------------------------------------------- */

enum { TILE = 16, KEYS = 64, LEAST_WARPS = 4, MOST_WARPS = 9 };

/* D: d rounded up to a multiple of 16; what is beyond d is zero. */
template <int D> struct layout {
    enum {
        ROW = D + 8,       /* of a key in shared memory: rows that follow each other start in
                              different banks */
        PART = KEYS * ROW, /* the keys, or the values, of one stage */
        STAGE = 2 * PART,
        BYTES = 2 * STAGE * (int)sizeof(bf16)
    };
};

/* Keys and values from `from` on into shared memory, later. */
template <int D>
static __device__ inline void fetch(const attention_shape &s, const bf16 *k, const bf16 *v,
                                    int from, bf16 *to) {
    enum { CHUNKS = D / 8 };
    for (int i = threadIdx.x; i < KEYS * CHUNKS; i += blockDim.x) {
        int b = i / CHUNKS, j = i % CHUNKS * 8;
        bool there = from + b < s.keys && j < s.d;
        size_t at = there ? (size_t)(from + b) * s.k_row + j : 0;
        bf16 *place = to + b * layout<D>::ROW + j;
        copy_begin(place, k + at, there);
        copy_begin(place + layout<D>::PART, v + at, there);
    }
    copy_group();
}

/* The queries of a warp as operands: rows first .. first+15. */
template <int D>
static __device__ inline void take_queries(const attention_shape &s, const bf16 *q, int first,
                                           uint32_t (&own)[D / TILE][4]) {
    int group = lane() / 4, pair = lane() % 4;
#pragma unroll
    for (int t = 0; t < D / TILE; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int a = first + group + i % 2 * 8, j = t * TILE + pair * 2 + i / 2 * 8;
            own[t][i] =
                a < s.queries && j < s.d ? *(const uint32_t *)(q + (size_t)a * s.q_row + j) : 0;
        }
}

/* The largest, or the sum, over the four lanes that share rows. */
static __device__ inline float most_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
static __device__ inline float sum_of_row(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* What a warp knows of its 16 queries; [2]: this lane's rows group and group + 8. */
template <int D> struct state {
    uint32_t own[D / TILE][4];
    float sum[D / 8][4];     /* of weights times values */
    float most[2], total[2]; /* the largest score so far; this lane's share of the weights */
};

/* Scores with the keys of a stage, of which `left` are there (WHOLE: all). */
template <int D, bool WHOLE>
static __device__ inline void score(const state<D> &w, const bf16 *keys, int left,
                                    float (&p)[KEYS / 8][4]) {
    int row = lane() % 8 + lane() / 16 * 8, column = lane() / 8 % 2 * 8, pair = lane() % 4;
#pragma unroll
    for (int b = 0; b < KEYS / TILE; b++) {
#pragma unroll
        for (int i = 0; i < 4; i++) p[2 * b][i] = p[2 * b + 1][i] = 0;
        if (WHOLE || b * TILE < left) {
#pragma unroll
            for (int t = 0; t < D / TILE; t++) {
                uint32_t k[4]; /* 16 keys, 16 values of each */
                tensor_load(k, keys + (b * TILE + row) * layout<D>::ROW + t * TILE + column);
                tensor_multiply(p[2 * b], w.own[t], k[0], k[1]);
                tensor_multiply(p[2 * b + 1], w.own[t], k[2], k[3]);
            }
        }
        if (!WHOLE)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (b * TILE + i / 4 * 8 + pair * 2 + i % 2 >= left)
                    p[2 * b + i / 4][i % 4] = -INFINITY;
    }
}

/* From scores to weights, and everything so far rescaled to the largest score.  scale: in powers of
 * two. */
template <int D>
static __device__ inline void weigh(state<D> &w, float scale, float (&p)[KEYS / 8][4]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = w.most[r], total = 0;
#pragma unroll
        for (int b = 0; b < KEYS / 8; b++) most = fmaxf(most, fmaxf(p[b][2 * r], p[b][2 * r + 1]));
        most = most_of_row(most);
        float keep = power_of_two((w.most[r] - most) * scale); /* 0 at first */
        w.most[r] = most;
#pragma unroll
        for (int b = 0; b < KEYS / 8; b++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++)
                total += p[b][i] = power_of_two(p[b][i] * scale - most * scale);
        w.total[r] = w.total[r] * keep + total;
#pragma unroll
        for (int j = 0; j < D / 8; j++) w.sum[j][2 * r] *= keep, w.sum[j][2 * r + 1] *= keep;
    }
}

template <int D, bool WHOLE>
static __device__ inline void gather(state<D> &w, const bf16 *values, int left,
                                     const float (&p)[KEYS / 8][4]) {
    int row = lane() % 16, column = lane() / 16 * 8;
#pragma unroll
    for (int b = 0; b < KEYS / TILE; b++) {
        if (!WHOLE && b * TILE >= left) continue;
        uint32_t weight[4] = {pack(p[2 * b][0], p[2 * b][1]), pack(p[2 * b][2], p[2 * b][3]),
                              pack(p[2 * b + 1][0], p[2 * b + 1][1]),
                              pack(p[2 * b + 1][2], p[2 * b + 1][3])};
#pragma unroll
        for (int t = 0; t < D / TILE; t++) {
            uint32_t v[4]; /* 16 keys, 16 values of each */
            tensor_load_turned(v, values + (b * TILE + row) * layout<D>::ROW + t * TILE + column);
            tensor_multiply(w.sum[2 * t], weight, v[0], v[1]);
            tensor_multiply(w.sum[2 * t + 1], weight, v[2], v[3]);
        }
    }
}

template <int D, bool WHOLE>
static __device__ inline void use(state<D> &w, const bf16 *stage, int left, float scale) {
    float p[KEYS / 8][4];
    score<D, WHOLE>(w, stage, left, p);
    weigh<D>(w, scale, p);
    gather<D, WHOLE>(w, stage + layout<D>::PART, left, p);
}

template <int D>
static __global__ void __launch_bounds__(MOST_WARPS *WARP)
    attention_tensor(attention_shape s, const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out) {
    extern __shared__ uint4 stages[];
    bf16 *stage = (bf16 *)stages;
    int warps = blockDim.x / WARP, group = lane() / 4, pair = lane() % 4;
    int first = (blockIdx.x * warps + threadIdx.x / WARP) * TILE;
    size_t head = (size_t)blockIdx.y * s.d, image = blockIdx.z;
    float scale = s.scale * 1.44269504f; /* e^x = 2^(x log2 e) */
    state<D> w;
    k += image * s.k_image + head, v += image * s.k_image + head;
    fetch<D>(s, k, v, 0, stage);
    take_queries<D>(s, q + image * s.q_image + head, first, w.own);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) w.sum[j][i] = 0;
    w.most[0] = w.most[1] = -INFINITY, w.total[0] = w.total[1] = 0;
    for (int from = 0, at = 0; from < s.keys; from += KEYS, at ^= 1) {
        int left = s.keys - from;
        if (left > KEYS) {
            fetch<D>(s, k, v, from + KEYS, stage + (at ^ 1) * layout<D>::STAGE);
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        const bf16 *now = stage + at * layout<D>::STAGE;
        if (first < s.queries) { /* else the warp only fetches */
            if (left >= KEYS)
                use<D, true>(w, now, left, scale);
            else
                use<D, false>(w, now, left, scale);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int a = first + group + r * 8;
        float share = 1 / sum_of_row(w.total[r]);
        if (a >= s.queries) continue;
        bf16 *to = out + image * s.o_image + (size_t)a * s.o_row + head;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (j * 8 < s.d)
                *(uint32_t *)(to + j * 8 + pair * 2) =
                    pack(w.sum[j][2 * r] * share, w.sum[j][2 * r + 1] * share);
    }
}

template <int D>
static int attend(device *dev, const attention_shape *s, const act *q, const act *k, const act *v,
                  act *out) {
    /* as few warps without queries as possible: 257 queries are two blocks of nine warps */
    int tiles = (s->queries + TILE - 1) / TILE, blocks = (tiles + MOST_WARPS - 1) / MOST_WARPS;
    int warps = (tiles + blocks - 1) / blocks;
    if (warps < LEAST_WARPS) warps = LEAST_WARPS;
    int rc = allow_shared(attention_tensor<D>, layout<D>::BYTES);
    if (rc < 0) return rc;
    launch(dev, attention_tensor<D>, dim3((unsigned)blocks, (unsigned)s->heads, (unsigned)s->n),
           warps * WARP, layout<D>::BYTES, *s, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v,
           (bf16 *)out);
    return launched("attention");
}

/* Copies are of 16 bytes, queries and results of 4. */
static bool is_aligned(const attention_shape *s, const act *q, const act *k, const act *v,
                       const act *out) {
    size_t rows = s->k_row | s->k_image, pairs = s->q_row | s->q_image | s->o_row | s->o_image;
    return rows % 8 == 0 && pairs % 2 == 0 && ((uintptr_t)k | (uintptr_t)v) % 16 == 0 &&
           ((uintptr_t)q | (uintptr_t)out) % 4 == 0;
}

/* ---- plain loops ----------------------------------------------------------------------------- */

enum { QUERIES = 128, PLAIN_KEYS = 32, CHUNK = 8 };

/* A thread has a query: it and the sums stay in registers.  Keys and values pass through shared
 * memory, PLAIN_KEYS at a time; after CHUNK scores the largest so far is known, and the sums are rescaled
 * to it.  D: d rounded up; what is beyond d is zero. */
template <typename T, int D>
static __global__ void __launch_bounds__(QUERIES)
    attention_plain(attention_shape s, const T *q, const T *k, const T *v, T *out) {
    extern __shared__ float shared[];
    float *key = shared, *value = shared + PLAIN_KEYS * D;
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
    for (int from = 0; from < s.keys; from += PLAIN_KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < PLAIN_KEYS * D; i += QUERIES) {
            int b = from + i / D, j = i % D;
            bool in = b < s.keys && j < s.d;
            key[i] = in ? to_float(keys[b * s.k_row + j]) : 0;
            value[i] = in ? to_float(values[b * s.k_row + j]) : 0;
        }
        __syncthreads();
        for (int b = 0; b < PLAIN_KEYS && from + b < s.keys; b += CHUNK) {
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
static int attend_plain(device *dev, const attention_shape *s, const act *q, const act *k,
                        const act *v, act *out) {
    dim3 grid(blocks_for((size_t)s->queries, QUERIES), (unsigned)s->heads, (unsigned)s->n);
    launch(dev, attention_plain<T, D>, grid, QUERIES, 2 * PLAIN_KEYS * D * sizeof(float), *s,
           (const T *)q, (const T *)k, (const T *)v, (T *)out);
    return launched("attention");
}

static int cuda_attention(device *dev, const attention_shape *s, const act *q, const act *k,
                          const act *v, act *out, void *work) {
    (void)work;
    bool half = dev->type == ACT_BF16;
    if (s->d > 128)
        return fail(CONR_EDEVICE,
                    "attention: heads of %d values are more than 128; use --device cpu", s->d);
    if (half && s->d % 8 == 0 && s->scale > 0 && is_aligned(s, q, k, v, out))
        return s->d <= 32   ? attend<32>(dev, s, q, k, v, out)
               : s->d <= 64 ? attend<64>(dev, s, q, k, v, out)
               : s->d <= 80 ? attend<80>(dev, s, q, k, v, out)
               : s->d <= 96 ? attend<96>(dev, s, q, k, v, out)
                            : attend<128>(dev, s, q, k, v, out);
    if (s->d <= 64)
        return half ? attend_plain<bf16, 64>(dev, s, q, k, v, out)
                    : attend_plain<float, 64>(dev, s, q, k, v, out);
    return half ? attend_plain<bf16, 128>(dev, s, q, k, v, out)
                : attend_plain<float, 128>(dev, s, q, k, v, out);
}

extern "C" void cuda_attention_ops(device_ops *op) {
    op->attention_bytes = cuda_attention_bytes;
    op->attention = cuda_attention;
}
