/* few.cuh: products of many rows with a few centers on tensor cores, left in registers.
 *
 * Tensor cores take TF32, with 11 bits of mantissa.  A float is split into two such values, high
 * and low, and three of the four products are taken: the missing one is 2^-22 of the result, as
 * little as the rounding of a float.
 *
 * A block has FEW_ROWS rows and 8 * TILES centers; a warp has 32 of the rows in two tiles of 16.
 * The depth advances by 16, two steps of the instruction (m16n8k8) at once, in an order in which
 * the four values that a thread contributes are adjacent in memory: its k = q and q + 4 of step
 * s are the values 4 q + 2 s and 4 q + 2 s + 1 of the sixteen, where q is the lane modulo 4. */
#ifndef CONR_FEW_CUH
#define CONR_FEW_CUH

#include "device/cuda/warp.cuh"

#include <cuda_pipeline.h>

enum {
    FEW_THREADS = 256,
    FEW_ROWS = 256,
    FEW_DEPTH = 16,
    FEW_TILES = 7,
    FEW_STAGES = 5,
    FEW_STAGE_BYTES = FEW_STAGES * FEW_ROWS * FEW_DEPTH * sizeof(float)
};

typedef struct halves {
    uint32_t high, low;
} halves;

static __device__ inline uint32_t rounded(float x) {
    uint32_t out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(x));
    return out;
}

static __device__ inline halves halves_of(float x) {
    halves out;
    out.high = rounded(x);
    out.low = rounded(x - __uint_as_float(out.high));
    return out;
}

static __device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The row of half `half` of tile t (0: c[0] and c[1], 1: c[2] and c[3]), and the center of c[0] and
 * c[2] of a tile; the center of c[1] and c[3] is the next. */
static __device__ inline int few_row(int t, int half) {
    return (int)threadIdx.x / WARP * 32 + 16 * t + 8 * half + (int)threadIdx.x % WARP / 4;
}
static __device__ inline int few_center(int tile) { return 8 * tile + (int)threadIdx.x % 4 * 2; }

/* Starts to copy the rows of one step of the depth, [FEW_ROWS][FEW_DEPTH].  This is done
 * FEW_STAGES - 1 steps ahead: that much must be in flight to keep memory busy.  Each warp copies
 * the rows it will read. */
static __device__ inline void few_ask(const float *x, int n, int d, int first, int depth,
                                      float4 *stage) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    if (depth < d)
#pragma unroll
        for (int p = 0; p < 4; p++) {
            int row = warp * 32 + p * 8 + lane / 4;
            int i = min(first + row, n - 1); /* past the end: never read */
            __pipeline_memcpy_async(&stage[row * 4 + lane % 4],
                                    x + (size_t)i * d + depth + lane % 4 * 4, sizeof(float4));
        }
    __pipeline_commit();
}

/* The centers of one step, [8 TILES][FEW_DEPTH]: this thread has elements threadIdx.x + 256 p. */
template <int TILES>
static __device__ inline void few_fetch(const float *w, int d, int centers, int depth,
                                        float (&to)[(TILES + 1) / 2]) {
#pragma unroll
    for (int p = 0; p < (TILES + 1) / 2; p++) {
        int at = p * FEW_THREADS + (int)threadIdx.x, c = at / FEW_DEPTH;
        to[p] = c < centers && depth < d ? w[(size_t)c * d + depth + at % FEW_DEPTH] : 0;
    }
}

/* Stores them in the order in which the lanes of a warp read them: [step][tile][lane], high and low
 * of k = q, then of q + 4. */
template <int TILES>
static __device__ inline void few_spread(const float (&from)[(TILES + 1) / 2],
                                         uint4 (*b)[TILES][WARP]) {
#pragma unroll
    for (int p = 0; p < (TILES + 1) / 2; p++) {
        int at = p * FEW_THREADS + (int)threadIdx.x, c = at / FEW_DEPTH, j = at % FEW_DEPTH;
        if (c >= 8 * TILES) break;
        halves v = halves_of(from[p]);
        uint2 *to = (uint2 *)&b[j / 2 % 2][c / 8][c % 8 * 4 + j / 4];
        to[j % 2] = make_uint2(v.high, v.low);
    }
}

template <int TILES>
static __device__ inline void few_multiply(const float4 *stage, const uint4 (*b)[TILES][WARP],
                                           float (&c)[2][TILES][4]) {
    float4 x[2][2]; /* [tile][half] */
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            x[t][half] = stage[few_row(t, half) * 4 + (int)threadIdx.x % 4];
#pragma unroll
    for (int s = 0; s < 2; s++) {
        uint32_t high[2][4], low[2][4];
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float4 &v = x[t][half];
                halves one = halves_of(s ? v.z : v.x), two = halves_of(s ? v.w : v.y);
                high[t][half] = one.high, high[t][2 + half] = two.high;
                low[t][half] = one.low, low[t][2 + half] = two.low;
            }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint4 v = b[s][tile][threadIdx.x % WARP];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                multiply_add(c[t][tile], low[t], v.x, v.z);
                multiply_add(c[t][tile], high[t], v.y, v.w);
                multiply_add(c[t][tile], high[t], v.x, v.z);
            }
        }
    }
}

/* c[tile of rows][tile of centers][4]: products of rows first .. first + FEW_ROWS - 1 of x [n,d]
 * with the centers w [centers,d]; d is a multiple of FEW_DEPTH, x and w are 16-byte aligned;
 * stages: FEW_STAGE_BYTES of shared memory. */
template <int TILES>
static __device__ inline void few_products(const float *x, int n, int d, int first, const float *w,
                                           int centers, float4 *stages, float (&c)[2][TILES][4]) {
    __shared__ uint4 b[2][2][TILES][WARP];
    enum { STAGE = FEW_ROWS * FEW_DEPTH / 4 };
    float next[(TILES + 1) / 2];
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[t][tile][i] = 0;
    few_fetch<TILES>(w, d, centers, 0, next);
    for (int s = 0; s < FEW_STAGES - 1; s++)
        few_ask(x, n, d, first, s * FEW_DEPTH, stages + s * STAGE);
    int now = 0, ask = FEW_STAGES - 1;
    for (int depth = 0, turn = 0; depth < d; depth += FEW_DEPTH, turn ^= 1) {
        few_spread<TILES>(next, b[turn]);
        __pipeline_wait_prior(FEW_STAGES - 2);
        __syncthreads(); /* b[turn] and this stage are ready; those of the last step are free */
        few_ask(x, n, d, first, depth + (FEW_STAGES - 1) * FEW_DEPTH, stages + ask * STAGE);
        few_fetch<TILES>(w, d, centers, depth + FEW_DEPTH, next);
        few_multiply<TILES>(stages + now * STAGE, b[turn], c);
        now = now + 1 == FEW_STAGES ? 0 : now + 1;
        ask = ask + 1 == FEW_STAGES ? 0 : ask + 1;
    }
}

#endif
