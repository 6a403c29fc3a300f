/* prototypes.cu: on the GPU, what works on the clusters of a batch: prototype scattering (device.h
 * has the definitions, ref_prototypes.c the plain versions), the noise by which positives are
 * sampled, and pulling rows of one label together.
 *
 *     find       which clusters the batch has, and their slots; one block
 *     add_up     the sums of each cluster's rows and keys, in the order of rows
 *     scale      the sums to length 1
 *     share      all pairs of prototypes, and the softmax of each row
 *     gradients  of the sums
 *     spread     the gradients to the rows; the loss
 *
 * How many clusters there are is known to the device alone, so grids are made for the most there
 * can be, and blocks without a cluster leave.  All sums are in double and in a fixed order. */
#include "device/cuda/vector.cuh"
#include "device/cuda/warp.cuh"
#include "device/prototypes.h"

enum { WARPS = BLOCK / WARP, FIND = 1024 };

/* In ascending order over a block: how many threads before this one have `set`; and in all. */
template <int WIDTH> static __device__ inline int place_of(bool set, int *before, int *all) {
    unsigned mask = __ballot_sync(ALL_LANES, set);
    __syncthreads(); /* before may still be read */
    if (lane() == 0) before[threadIdx.x / WARP] = __popc(mask);
    __syncthreads();
    int place = __popc(mask & ((1u << lane()) - 1));
    *all = 0;
    for (int w = 0; w < WIDTH / WARP; w++) {
        if (w < (int)(threadIdx.x / WARP)) place += before[w];
        *all += before[w];
    }
    return place;
}

static __global__ void find(prototypes_room r, const int32_t *ids, const int32_t *label) {
    __shared__ int before[FIND / WARP];
    int found = 0, all;
    for (int c = threadIdx.x; c < r.K; c += FIND) r.place[c] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < r.n; i += FIND) {
        int of = label[ids ? ids[i] : i];
        if (of >= 0) r.place[of] = 0;
    }
    __syncthreads();
    for (int c0 = 0; c0 < r.K; c0 += FIND) {
        int c = c0 + (int)threadIdx.x;
        bool here = c < r.K && r.place[c] == 0;
        int place = found + place_of<FIND>(here, before, &all);
        if (here) r.place[c] = place;
        found += all;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < r.n; i += FIND) {
        int of = label[ids ? ids[i] : i];
        r.slot[i] = of < 0 ? -1 : r.place[of];
    }
    if (threadIdx.x == 0) *r.present = found;
}

/* Block (cluster, rows or keys, columns): a thread has a column.  size: how many were added. */
static __global__ void add_up(prototypes_room r, const float *__restrict__ rows,
                              const float *__restrict__ key) {
    __shared__ int32_t member[BLOCK];
    __shared__ int before[WARPS];
    int c = blockIdx.x, j = blockIdx.z * BLOCK + threadIdx.x, count, all = 0;
    const float *x = blockIdx.y ? key : rows;
    if (c >= *r.present) return;
    double sum = 0;
    for (int i0 = 0; i0 < r.n; i0 += BLOCK) {
        int i = i0 + (int)threadIdx.x;
        bool ours = i < r.n && r.slot[i] == c;
        int place = place_of<BLOCK>(ours, before, &count);
        if (ours) member[place] = i;
        all += count;
        __syncthreads();
        if (j < r.d)
#pragma unroll 8
            for (int e = 0; e < count; e++) sum += x[(size_t)member[e] * r.d + j];
    }
    if (j < r.d) r.unit[((size_t)blockIdx.y * r.most + c) * r.d + j] = sum;
    if (j == 0) r.size[(size_t)blockIdx.y * r.most + c] = all;
}

static __global__ void scale(prototypes_room r) {
    __shared__ double part[WARPS];
    int c = blockIdx.x;
    if (c >= *r.present) return;
    size_t at = (size_t)blockIdx.y * r.most + c;
    double *unit = r.unit + at * r.d, square = 0;
    for (int j = threadIdx.x; j < r.d; j += BLOCK) square += unit[j] * unit[j];
    double size = sqrt(block_sum(square, part));
    for (int j = threadIdx.x; j < r.d; j += BLOCK) unit[j] = size > 0 ? unit[j] / size : 0;
    if (threadIdx.x == 0) r.size[at] = size;
}

/* Row c of the shares: a warp takes the pair of c and another. */
static __global__ void share(prototypes_room r, double temperature) {
    __shared__ double part[WARPS];
    int c = blockIdx.x, m = *r.present, d = r.d;
    if (c >= m) return;
    const double *own = r.unit + (size_t)c * d, *key = own + (size_t)r.most * d;
    double *p = r.share + (size_t)c * r.most;
    for (int e = threadIdx.x / WARP; e < m; e += WARPS) {
        const double *other = e == c ? key : r.unit + (size_t)e * d;
        double sum = 0;
        for (int j = lane(); j < d; j += WARP) sum = fma(own[j], other[j], sum);
        sum = warp_sum(sum);
        if (lane() == 0) p[e] = sum / temperature;
    }
    __syncthreads();
    double top = -INFINITY;
    for (int e = lane(); e < m; e += WARP) top = fmax(top, p[e]);
    for (int by = WARP / 2; by > 0; by /= 2) top = fmax(top, __shfl_xor_sync(ALL_LANES, top, by));
    double own_logit = p[c], sum = 0;
    for (int e = threadIdx.x; e < m; e += BLOCK) sum += exp(p[e] - top);
    sum = block_sum(sum, part); /* all have read p before any writes it */
    for (int e = threadIdx.x; e < m; e += BLOCK) p[e] = exp(p[e] - top) / sum - (e == c);
    if (threadIdx.x == 0) r.value[c] = top + log(sum) - own_logit;
}

static __global__ void gradients(prototypes_room r, double temperature, double factor) {
    __shared__ double part[WARPS], by[BLOCK];
    int c = blockIdx.x, m = *r.present, d = r.d;
    if (c >= m) return;
    const double *own = r.unit + (size_t)c * d, *key = own + (size_t)r.most * d;
    double *g = r.gradient + (size_t)c * d, along = 0;
    const double *p = r.share + (size_t)c * r.most;
    for (int j0 = 0; j0 < d; j0 += BLOCK) {
        int j = j0 + (int)threadIdx.x;
        double sum = j < d ? p[c] * key[j] : 0;
        for (int e0 = 0; e0 < m; e0 += BLOCK) {
            int e = e0 + (int)threadIdx.x, count = m - e0 < BLOCK ? m - e0 : BLOCK;
            __syncthreads();
            if (e < m) by[threadIdx.x] = e == c ? 0 : p[e] + r.share[(size_t)e * r.most + c];
            __syncthreads();
            if (j < d)
#pragma unroll 8
                for (int x = 0; x < count; x++)
                    sum = fma(by[x], r.unit[(size_t)(e0 + x) * d + j], sum);
        }
        if (j < d) g[j] = sum, along = fma(sum, own[j], along);
    }
    along = block_sum(along, part);
    double times = r.size[c] > 0 ? factor / m / temperature / r.size[c] : 0;
    for (int j = threadIdx.x; j < d; j += BLOCK) g[j] = times * (g[j] - along * own[j]);
}

/* A block a row; the first also adds up the loss. */
static __global__ void spread(prototypes_room r, double factor, float *loss, float *drows) {
    __shared__ double part[WARPS];
    int i = blockIdx.x, m = *r.present, slot = r.slot[i];
    bool takes_part = m >= 2 && slot >= 0;
    const double *g = r.gradient + (takes_part ? (size_t)slot * r.d : 0);
    for (int j = threadIdx.x; j < r.d; j += BLOCK)
        drows[(size_t)i * r.d + j] = takes_part ? (float)g[j] : 0;
    if (i > 0 || m < 2) return;
    double sum = 0;
    for (int c = threadIdx.x; c < m; c += BLOCK) sum += r.value[c];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) *loss = (float)(*loss + factor * sum / m);
}

static int prototypes(device *dev, const float *rows, const float *key, int n, int d,
                      const int32_t *ids, const int32_t *label, int K, float temperature,
                      float factor, void *work, float *loss, float *drows) {
    prototypes_room r;
    cudaStream_t stream = stream_of(dev);
    if (n < 1) return 0;
    prototypes_plan(n, d, K, work, &r);
    unsigned most = (unsigned)r.most;
    find<<<1, FIND, 0, stream>>>(r, ids, label);
    add_up<<<dim3(most, 2, blocks_for(d, BLOCK)), BLOCK, 0, stream>>>(r, rows, key);
    scale<<<dim3(most, 2), BLOCK, 0, stream>>>(r);
    share<<<most, BLOCK, 0, stream>>>(r, temperature);
    gradients<<<most, BLOCK, 0, stream>>>(r, temperature, factor);
    spread<<<n, BLOCK, 0, stream>>>(r, factor, loss, drows);
    return launched("prototypes");
}

/* ---- rows of one label ----------------------------------------------------------------------- */

/* The product of the sums of a cluster's rows and keys, over the number of pairs. */
static __global__ void multiply(prototypes_room r) {
    __shared__ double part[WARPS];
    int c = blockIdx.x;
    if (c >= *r.present) return;
    const double *rows = r.unit + (size_t)c * r.d, *keys = rows + (size_t)r.most * r.d;
    double sum = 0;
    for (int j = threadIdx.x; j < r.d; j += BLOCK) sum = fma(rows[j], keys[j], sum);
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) r.value[c] = sum / (r.size[c] * r.size[c]);
}

/* A block a row; the first also adds up the loss. */
static __global__ void add_pull(prototypes_room r, double factor, float *loss, float *dq) {
    __shared__ double part[WARPS];
    int i = blockIdx.x, m = *r.present, slot = r.slot[i];
    if (slot >= 0) {
        const double *keys = r.unit + ((size_t)r.most + slot) * r.d;
        double by = -factor / m / (r.size[slot] * r.size[slot]);
        float *to = dq + (size_t)i * r.d;
        for (int j = threadIdx.x; j < r.d; j += BLOCK) to[j] = (float)(to[j] + by * keys[j]);
    }
    if (i > 0 || m == 0) return;
    double sum = 0;
    for (int c = threadIdx.x; c < m; c += BLOCK) sum += r.value[c];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) *loss = (float)(*loss - factor * sum / m);
}

static int pull_alike(device *dev, const float *q, const float *key, int n, int d,
                      const int32_t *label, int K, float factor, void *work, float *loss,
                      float *dq) {
    prototypes_room r;
    cudaStream_t stream = stream_of(dev);
    if (n < 1) return 0;
    prototypes_plan(n, d, K, work, &r);
    unsigned most = (unsigned)r.most;
    find<<<1, FIND, 0, stream>>>(r, NULL, label);
    add_up<<<dim3(most, 2, blocks_for(d, BLOCK)), BLOCK, 0, stream>>>(r, q, key);
    multiply<<<most, BLOCK, 0, stream>>>(r);
    add_pull<<<n, BLOCK, 0, stream>>>(r, factor, loss, dq);
    return launched("pull_alike");
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* A thread has four columns of a row. */
template <typename T>
static __global__ void add_noise(const step_values *at, uint64_t seed, float sigma, int first,
                                 int d, size_t total, T *x) {
    size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    int blocks = (d + 3) / 4;
    if (i >= total) return;
    size_t row = i / blocks;
    int block = (int)(i % blocks);
    float by[4];
    noise_at(seed, at->step, (uint32_t)(first + (int)row), (uint32_t)block, by);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int j = block * 4 + e;
        if (j >= d) break;
        T *to = x + row * d + j;
        from_float(to_float(*to) + sigma * by[e], to);
    }
}

static int noise(device *dev, const step_values *at, uint64_t seed, float sigma, int first, int n,
                 int d, act *x) {
    size_t total = (size_t)n * ((d + 3) / 4);
    if (total == 0) return 0;
    if (dev->type == ACT_BF16)
        add_noise<bf16><<<blocks_for(total, BLOCK), BLOCK, 0, stream_of(dev)>>>(
            at, seed, sigma, first, d, total, (bf16 *)x);
    else
        add_noise<float><<<blocks_for(total, BLOCK), BLOCK, 0, stream_of(dev)>>>(
            at, seed, sigma, first, d, total, (float *)x);
    return launched("noise");
}

void cuda_prototype_ops(device_ops *op) {
    op->prototypes = prototypes;
    op->noise = noise;
    op->pull_alike = pull_alike;
}
