/* warp.cuh: what the kernels on rows share: sums in a fixed order, and keys that rank values. */
#ifndef CONR_WARP_CUH
#define CONR_WARP_CUH

#include "device/cuda/launch.cuh"

#include <stdint.h>

/* Threads of a block; and of one whose warps have a row each, which is small so that a batch of 256
 * rows reaches every SM. */
enum { WARP = 32, BLOCK = 256, ROW_BLOCK = 64, ROWS = ROW_BLOCK / WARP };
#define ALL_LANES 0xffffffffu

static __device__ inline int lane() { return threadIdx.x % WARP; }
static __device__ inline int warp_row() { return blockIdx.x * ROWS + threadIdx.x / WARP; }

static __device__ inline double warp_sum(double x) { /* the same bits in every lane */
    for (int by = WARP / 2; by > 0; by /= 2) x += __shfl_xor_sync(ALL_LANES, x, by);
    return x;
}

/* The sum over a block, in every thread.  part: shared, one element per warp. */
static __device__ inline double block_sum(double x, double *part) {
    int warps = (blockDim.x + WARP - 1) / WARP;
    x = warp_sum(x);
    __syncthreads(); /* part may still be read from the last sum */
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    double all = 0;
    for (int w = 0; w < warps; w++) all += part[w];
    return all;
}

/* A value and its column in one key: the larger key has the larger value, then the lower column. */
typedef unsigned long long rank_key;
#define OWN_KEY 0xffffffffffffffffull /* of the row itself: above all others */

static __device__ inline rank_key rank_of(float value, int column) {
    uint32_t bits = __float_as_uint(value + 0.0f); /* -0 becomes 0: they tie */
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (rank_key)bits << 32 |
           (0xfffffffeu - (uint32_t)column); /* never OWN_KEY, not even for NaN */
}

static __device__ inline int rank_column(rank_key key) {
    return (int)(0xfffffffeu - (uint32_t)key);
}

static __device__ inline float rank_value(rank_key key) {
    uint32_t bits = (uint32_t)(key >> 32);
    return __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

/* The largest key of a warp, in every lane. */
static __device__ inline rank_key warp_max(rank_key key) {
    uint32_t high = (uint32_t)(key >> 32), top = __reduce_max_sync(ALL_LANES, high);
    uint32_t low = __reduce_max_sync(ALL_LANES, high == top ? (uint32_t)key : 0);
    return (rank_key)top << 32 | low;
}

/* Takes the largest of 32 * PER keys out of the registers of a warp; best: the largest of this
 * lane. */
template <int PER>
static __device__ inline rank_key take_max(rank_key (&key)[PER], rank_key &best) {
    rank_key won = warp_max(best);
    if (best == won) {
        best = 0;
#pragma unroll
        for (int p = 0; p < PER; p++) {
            if (key[p] == won) key[p] = 0;
            best = key[p] > best ? key[p] : best;
        }
    }
    return won;
}

/* A row of m <= 32 * PER values into the registers of a warp; column `own` ranks first. */
template <int PER>
static __device__ inline rank_key load_keys(const float *s, int m, int own, rank_key (&key)[PER]) {
    rank_key best = 0;
#pragma unroll
    for (int p = 0; p < PER; p++) {
        int j = p * WARP + (int)(threadIdx.x % WARP);
        key[p] = j < m ? (j == own ? OWN_KEY : rank_of(s[j], j)) : 0;
        best = key[p] > best ? key[p] : best;
    }
    return best;
}

/* The largest row whose keys fit into registers. */
enum { IN_REGISTERS = 1024 };

/* Calls F<PER>(...) with the smallest PER for which a warp holds m values. */
#define BY_WIDTH(m, F, ...)                                                                        \
    do {                                                                                           \
        if ((m) <= 128)                                                                            \
            F<4> __VA_ARGS__;                                                                      \
        else if ((m) <= 256)                                                                       \
            F<8> __VA_ARGS__;                                                                      \
        else if ((m) <= 512)                                                                       \
            F<16> __VA_ARGS__;                                                                     \
        else                                                                                       \
            F<32> __VA_ARGS__;                                                                     \
    } while (0)

/* Each fills its part of the table. */
void cuda_choice_ops(device_ops *op);
void cuda_loss_ops(device_ops *op);
void cuda_boundary_ops(device_ops *op);
void cuda_neighbor_ops(device_ops *op);
void cuda_view_ops(device_ops *op);
void cuda_kmeans_ops(device_ops *op);
void cuda_prototype_ops(device_ops *op);
void cuda_confident_ops(device_ops *op);

/* S = F F^T in fp32, as in neighbors.cu; launched() tells whether it was queued.  s: [n,n] */
void cuda_similar(device *dev, const float *f, int n, int d, float *s);

/* device_ops.top_k, for others to build on */
int cuda_top_k(device *dev, const float *s, int n, int m, int ld, int self, int k, int32_t *ids,
               float *values);

#endif
