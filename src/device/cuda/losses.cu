/* losses.cu: the losses of a half batch and their gradients; device.h has the formulas. */
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

/* The half batch of a loss, as in device.h. */
typedef struct half_batch {
    const float *q, *key;
    int n, d;
    const int32_t *near_ids;
    int k;
    const float *weight;
    float factor;
} half_batch;

static __device__ inline const float *near_row(const half_batch &h, int i, int e) {
    return h.key + (size_t)(h.near_ids ? h.near_ids[(size_t)i * h.k + e] : i) * h.d;
}

static __device__ inline double weight_of(const half_batch &h, int i) {
    return (double)h.factor * (h.weight ? h.weight[i] : 1.0 / h.n) / h.k;
}

/* Element j of the gradient of row i. */
static __device__ inline float pulled(const half_batch &h, int i, int j, double each) {
    float sum = 0;
#pragma unroll 10
    for (int e = 0; e < h.k; e++) sum += __ldg(near_row(h, i, e) + j);
    return (float)(each * sum);
}

/* One block per row: its gradient, but with its value (q . dq, as the loss is linear in q) in
 * place of the first element. */
static __global__ void pull_rows(half_batch h, float *__restrict__ dq) {
    __shared__ double part[BLOCK / WARP];
    int i = blockIdx.x;
    double each = -weight_of(h, i), value = 0;
    for (int j = threadIdx.x; j < h.d; j += BLOCK) {
        float x = pulled(h, i, j, each);
        value += (double)x * h.q[(size_t)i * h.d + j];
        if (j > 0) dq[(size_t)i * h.d + j] = x;
    }
    value = block_sum(value, part);
    if (threadIdx.x == 0) dq[(size_t)i * h.d] = (float)value;
}

/* Adds up the values and writes the first elements in their places.  One block. */
static __global__ void pull_finish(half_batch h, float *dq, float *loss) {
    __shared__ double part[WARP];
    double sum = 0;
    for (int i = threadIdx.x; i < h.n; i += blockDim.x) {
        float first = pulled(h, i, 0, -weight_of(h, i));
        sum += dq[(size_t)i * h.d];
        dq[(size_t)i * h.d] = first;
    }
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) *loss = (float)(*loss + sum);
}

static int pull(device *dev, const float *q, const float *key, int n, int d,
                const int32_t *near_ids, int k, const float *weight, float factor, float *loss,
                float *dq) {
    if (n < 1) return 0;
    half_batch h = {q, key, n, d, near_ids, k, weight, factor};
    pull_rows<<<n, BLOCK, 0, stream_of(dev)>>>(h, dq);
    pull_finish<<<1, n <= 256 ? 256 : 1024, 0, stream_of(dev)>>>(h, dq, loss);
    return launched("pull");
}

/* One block per row; logits: [n,size].  The first launch writes the value of the row into the
 * first element of its row of dq, where add_first finds it.  The second overwrites the logits
 * with the weights of the rows of the queue, and writes the part of the gradient that comes from
 * the keys. */
static __global__ void contrast_rows(half_batch h, float temperature, int size, bool value_only,
                                     float *logits, float *dq) {
    __shared__ double part[BLOCK / WARP];
    int i = blockIdx.x;
    float *l = logits + (size_t)i * size, *to = dq + (size_t)i * h.d;
    const float *own = h.q + (size_t)i * h.d;
    double each = weight_of(h, i), value = 0, all_away = 0, sum = 0;
    float most = -INFINITY;
    for (int m = threadIdx.x; m < size; m += BLOCK) most = fmaxf(most, l[m]);
    for (int by = WARP / 2; by > 0; by /= 2)
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, by));
    if (lane() == 0) part[threadIdx.x / WARP] = most;
    __syncthreads();
    for (int w = 0; w < BLOCK / WARP; w++) most = fmaxf(most, (float)part[w]);
    for (int m = threadIdx.x; m < size; m += BLOCK) sum += (double)expf(l[m] - most);
    sum = block_sum(sum, part);
    double log_sum = most + log(sum);
    if (!value_only)
        for (int j = threadIdx.x; j < h.d; j += BLOCK) to[j] = 0;
    for (int e = 0; e < h.k; e++) {
        const float *other = near_row(h, i, e);
        double s = 0;
        for (int j = threadIdx.x; j < h.d; j += BLOCK) s += (double)own[j] * other[j];
        double u = log_sum - block_sum(s, part) / temperature, away = 1 / (1 + exp(-u));
        value += each * (u > 0 ? u + log1p(exp(-u)) : log1p(exp(u)));
        all_away += away;
        if (value_only) continue;
        for (int j = threadIdx.x; j < h.d; j += BLOCK)
            to[j] -= (float)(each / temperature * away * other[j]);
    }
    if (value_only) {
        if (threadIdx.x == 0) to[0] = (float)value;
        return;
    }
    float by = (float)(each / temperature * all_away / sum);
    for (int m = threadIdx.x; m < size; m += BLOCK) l[m] = by * expf(l[m] - most);
}

/* loss += sum over i of x[i * stride].  One block. */
static __global__ void add_first(const float *x, int n, int stride, float *loss) {
    __shared__ double part[WARP];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[(size_t)i * stride];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) *loss = (float)(*loss + sum);
}

static int contrast(device *dev, const float *q, const float *key, int n, int d,
                    const int32_t *near_ids, int k, const float *weight, float factor,
                    const float *queue, int size, float temperature, float *logits, float *loss,
                    float *dq) {
    int rc = 0;
    half_batch h = {q, key, n, d, near_ids, k, weight, factor};
    if (n < 1) return 0;
    TRY(dev->op.gemm(dev, false, true, n, size, d, 1 / temperature, q, d, queue, d, 0, logits,
                     size));
    contrast_rows<<<n, BLOCK, 0, stream_of(dev)>>>(h, temperature, size, true, logits, dq);
    add_first<<<1, BLOCK, 0, stream_of(dev)>>>(dq, n, d, loss);
    contrast_rows<<<n, BLOCK, 0, stream_of(dev)>>>(h, temperature, size, false, logits, dq);
    TRY(launched("contrast"));
    TRY(dev->op.gemm(dev, false, false, n, d, size, 1, logits, size, queue, d, 1, dq, d));
done:
    return rc;
}

void cuda_loss_ops(device_ops *op) {
    op->pull = pull;
    op->contrast = contrast;
}
