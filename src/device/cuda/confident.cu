/* confident.cu: the choice of confident rows on the GPU (device.h has the definition,
 * ref_prototypes.c the plain version).
 *
 *     similar  the products of all pairs (neighbors.cu)
 *     agree    r_i of each row: a row's neighbors need not be sorted, since those before the first
 *              with another label are those that rank above it
 *     choose   k, and the rows that are kept; one block */
#include "device/confident.h"
#include "device/cuda/warp.cuh"

enum { WARPS = BLOCK / WARP, CHOOSE = 1024 };

/* A block a row. */
static __global__ void agree(confident_room r, int n, const int32_t *__restrict__ ids,
                             const int32_t *__restrict__ label, int most) {
    __shared__ rank_key best[WARPS];
    __shared__ int count[WARPS];
    int i = blockIdx.x, own = label[ids[i]], warp = threadIdx.x / WARP;
    const float *s = r.product + (size_t)i * n;
    rank_key other = 0; /* the best with another label; 0: there is none */
    for (int j = threadIdx.x; j < n; j += BLOCK) {
        rank_key key = rank_of(s[j], j);
        if (label[ids[j]] != own && key > other) other = key;
    }
    other = warp_max(other);
    if (lane() == 0) best[warp] = other;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) other = best[w] > other ? best[w] : other;
    int above = 0;
    for (int j = threadIdx.x; j < n; j += BLOCK)
        above += j != i && label[ids[j]] == own && rank_of(s[j], j) > other;
    above = __reduce_add_sync(ALL_LANES, above);
    if (lane() == 0) count[warp] = above;
    __syncthreads();
    if (threadIdx.x > 0) return;
    above = 0;
    for (int w = 0; w < WARPS; w++) above += count[w];
    r.agree[i] = above < most ? above : most;
}

static __global__ void choose(confident_room r, int n, const int32_t *__restrict__ ids,
                              const int32_t *__restrict__ label, int most, int32_t *kept) {
    __shared__ int count[CONFIDENT_MOST + 1], k; /* rows with this r */
    for (int x = threadIdx.x; x <= most; x += CHOOSE) count[x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += CHOOSE) atomicAdd(&count[r.agree[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        long long most_yet = -1;
        for (int x = most, left = 0; x >= 1; x--) {
            left += count[x];
            if ((long long)x * left >= most_yet) most_yet = (long long)x * left, k = x;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += CHOOSE) kept[i] = r.agree[i] >= k ? label[ids[i]] : -1;
}

static int confident(device *dev, const float *f, int n, int d, const int32_t *ids,
                     const int32_t *label, int most, void *work, int32_t *kept) {
    confident_room r;
    cudaStream_t stream = stream_of(dev);
    if (n < 1) return 0;
    confident_plan(n, work, &r);
    cuda_similar(dev, f, n, d, r.product);
    agree<<<n, BLOCK, 0, stream>>>(r, n, ids, label, most);
    choose<<<1, CHOOSE, 0, stream>>>(r, n, ids, label, most, kept);
    return launched("confident");
}

void cuda_confident_ops(device_ops *op) { op->confident = confident; }
