/* boundary.cu: the boundary filter: ratios of distances to centroids, and the rows it keeps. */
#include "device/cuda/warp.cuh"

#include <math.h>

/* One block per row, one warp per centroid.  ids NULL: row i is image i. */
static __global__ void ratios(const float *__restrict__ f, int d, const int32_t *__restrict__ ids,
                              const int32_t *__restrict__ label,
                              const float *__restrict__ centroids, int K,
                              float *__restrict__ ratio) {
    __shared__ double own_d2, other[BLOCK / WARP];
    int i = blockIdx.x, own = label[ids ? ids[i] : i], warp = threadIdx.x / WARP;
    double nearest = INFINITY;
    f += (size_t)i * d;
    if (threadIdx.x == 0) own_d2 = 0;
    __syncthreads();
    for (int c = warp; c < K; c += BLOCK / WARP) {
        const float *center = centroids + (size_t)c * d;
        double sum = 0;
#pragma unroll 8
        for (int j = lane(); j < d; j += WARP) {
            double step = (double)f[j] - center[j];
            sum += step * step;
        }
        sum = warp_sum(sum);
        if (c == own)
            own_d2 = sum;
        else if (sum < nearest)
            nearest = sum;
    }
    if (lane() == 0) other[warp] = nearest;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 0; w < BLOCK / WARP; w++) nearest = other[w] < nearest ? other[w] : nearest;
    double inside = sqrt(own_d2), larger;
    nearest = sqrt(nearest);
    larger = inside > nearest ? inside : nearest;
    ratio[i] = own < 0 || own >= K ? NAN
               : isinf(nearest)    ? 0
               : larger > 0        ? (float)(1 - (nearest - inside) / larger)
                                   : 1;
}

/* The weights of a batch, by one block: each thread counts the ratios that do not exceed its
 * own. */
enum { COUNTED = 1024 };

static __global__ void filter_short(const step_values *at, const float *ratio, int n,
                                    bool over_batch, float *weight) {
    __shared__ __align__(16) float all[COUNTED];
    __shared__ uint32_t least;
    __shared__ int kept;
    int i = threadIdx.x, below = 0, keep = at->keep > n ? n : at->keep;
    all[i] = i < n ? ratio[i] : INFINITY;
    if (i == 0) least = 0x7f800000u, kept = n;
    __syncthreads();
    float own = all[i];
#pragma unroll 8
    for (int j = 0; j < (int)blockDim.x; j += 4) {
        float4 x = *(const float4 *)(all + j);
        below += (x.x <= own) + (x.y <= own) + (x.z <= own) + (x.w <= own);
    }
    bool enough =
        i < n && below >= keep; /* ratios are not negative: their bits are ordered as they are */
    uint32_t bits = __reduce_min_sync(ALL_LANES, enough ? __float_as_uint(own) : 0x7f800000u);
    if (lane() == 0) atomicMin(&least, bits);
    __syncthreads();
    float sigma = __uint_as_float(least);
    if (i < n && own == sigma) kept = below; /* each writes the same */
    __syncthreads();
    if (i < n) weight[i] = own <= sigma ? 1.0f / (float)(over_batch ? n : kept) : 0;
}

/* The element at place `left` (0 .. n-1) of x [n] in ascending order, in every thread of a block
 * of at least 256: a radix select, byte by byte from the highest, on bits ordered as the values
 * are. */
static __device__ float number_at(const float *x, int n, int left) {
    __shared__ int count[256];
    __shared__ uint32_t chosen;
    __shared__ int place;
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) count[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            uint32_t bits = (uint32_t)(rank_of(x[i], 0) >> 32);
            if ((bits & mask) == prefix) atomicAdd(&count[bits >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < WARP) { /* eight bins per lane */
            int before = 0, own = 0;
            for (int b = 0; b < 8; b++) own += count[8 * threadIdx.x + b];
            int upto = own;
            for (int by = 1; by < WARP; by *= 2) {
                int other = __shfl_up_sync(ALL_LANES, upto, by);
                if ((int)threadIdx.x >= by) upto += other;
            }
            before = upto - own;
            if (left >= before && left < upto) {
                int b = 8 * threadIdx.x;
                while (left >= before + count[b]) before += count[b++];
                chosen = (uint32_t)b, place = left - before;
            }
        }
        __syncthreads();
        prefix |= chosen << shift, mask |= 255u << shift;
        left = place;
        __syncthreads();
    }
    return rank_value((rank_key)prefix << 32);
}

/* filter_short for any number of rows. */
static __global__ void filter(const step_values *at, const float *ratio, int n, bool over_batch,
                              float *weight) {
    __shared__ int kept;
    if (threadIdx.x == 0) kept = 0; /* number_at synchronizes */
    float sigma = number_at(ratio, n, (at->keep < 1 ? 1 : at->keep > n ? n : at->keep) - 1);
    int mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine += ratio[i] <= sigma;
    atomicAdd(&kept, mine);
    __syncthreads();
    float each = 1.0f / (float)(over_batch ? n : kept);
    for (int i = threadIdx.x; i < n; i += blockDim.x) weight[i] = ratio[i] <= sigma ? each : 0;
}

static int boundary(device *dev, const step_values *at, const float *f, int n, int d,
                    const int32_t *ids, const int32_t *label, const float *centroids, int K,
                    bool over_batch, float *ratio, float *weight) {
    if (n < 1) return 0;
    ratios<<<n, BLOCK, 0, stream_of(dev)>>>(f, d, ids, label, centroids, K, ratio);
    if (n <= COUNTED)
        filter_short<<<1, blocks_for(n, WARP) * WARP, 0, stream_of(dev)>>>(at, ratio, n, over_batch,
                                                                           weight);
    else
        filter<<<1, 1024, 0, stream_of(dev)>>>(at, ratio, n, over_batch, weight);
    return launched("boundary");
}

static int boundary_ratio(device *dev, const float *f, int n, int d, const int32_t *label,
                          const float *centroids, int K, float *ratio) {
    if (n < 1) return 0;
    ratios<<<n, BLOCK, 0, stream_of(dev)>>>(f, d, NULL, label, centroids, K, ratio);
    return launched("boundary_ratio");
}

static __global__ void keep_smallest(const float *ratio, int n, int keep, unsigned char *kept) {
    float sigma = number_at(ratio, n, keep - 1);
    if (isnan(sigma)) sigma = INFINITY; /* NaN ranks last: all others are kept */
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = ratio[i] <= sigma;
}

static int boundary_keep(device *dev, const float *ratio, int n, int keep, unsigned char *kept) {
    if (n < 1) return 0;
    keep_smallest<<<1, n <= 256 ? 256 : 1024, 0, stream_of(dev)>>>(ratio, n, keep, kept);
    return launched("boundary_keep");
}

void cuda_boundary_ops(device_ops *op) {
    op->boundary = boundary;
    op->boundary_ratio = boundary_ratio;
    op->boundary_keep = boundary_keep;
}
