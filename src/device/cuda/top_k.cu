/* top_k.cu: the k best of each row, and of each row of F F^T over a whole set. */
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

/* One warp per row, the row in registers. */
template <int PER>
static __global__ void top_short(const float *s, int n, int m, int ld, int self, int k,
                                 int32_t *ids, float *values) {
    int i = warp_row();
    if (i >= n) return;
    int own = self < 0 ? -1 : self + i;
    s += (size_t)i * ld;
    rank_key key[PER], best = load_keys(s, m, own, key);
    float own_value = own >= 0 ? s[own] : 0;
    for (int at = 0; at < k; at++) {
        rank_key won = take_max(key, best);
        bool is_own = won == OWN_KEY && own >= 0;
        if (lane() != 0) continue;
        ids[(size_t)i * k + at] = is_own ? own : rank_column(won);
        if (values) values[(size_t)i * k + at] = is_own ? own_value : rank_value(won);
    }
}

/* One block per row of any length: each round finds the best that ranks below the one before. */
static __global__ void top_long(const float *s, int m, int ld, int self, int k, int32_t *ids,
                                float *values) {
    __shared__ rank_key part[BLOCK / WARP];
    int i = blockIdx.x, own = self < 0 ? -1 : self + i;
    rank_key before = OWN_KEY;
    s += (size_t)i * ld;
    for (int at = 0; at < k; at++) {
        int j = own;
        if (at > 0 || own < 0) {
            rank_key best = 0;
            for (int c = threadIdx.x; c < m; c += BLOCK) {
                rank_key key = rank_of(s[c], c);
                if (c != own && key < before && key > best) best = key;
            }
            best = warp_max(best);
            __syncthreads();
            if (lane() == 0) part[threadIdx.x / WARP] = best;
            __syncthreads();
            for (int w = 0; w < BLOCK / WARP; w++) best = part[w] > best ? part[w] : best;
            before = best;
            j = rank_column(best);
        }
        if (threadIdx.x != 0) continue;
        ids[(size_t)i * k + at] = j;
        if (values) values[(size_t)i * k + at] = s[j];
    }
}

/* One block per row of any length, which is read once: what beats the k-th best so far is
 * collected in shared memory, and when that is full only the k best stay.  All keys are
 * different, so the order in which they arrive does not matter. */
enum { STREAM_BLOCK = 128, EACH = 8, FULL = 2 * STREAM_BLOCK * EACH, STREAM_K = 512 };

static __device__ rank_key block_max(rank_key best, rank_key *part) {
    best = warp_max(best);
    __syncthreads();
    if (lane() == 0) part[threadIdx.x / WARP] = best;
    __syncthreads();
    for (int w = 0; w < STREAM_BLOCK / WARP; w++) best = part[w] > best ? part[w] : best;
    return best;
}

/* Moves the k best of kept[count] to the front; returns their number, min(count, k). */
static __device__ int keep_best(rank_key *kept, int count, int k, rank_key *top, rank_key *part) {
    int left = count < k ? count : k;
    for (int at = 0; at < left; at++) {
        rank_key best = 0;
        int place = -1;
        for (int p = threadIdx.x; p < count; p += STREAM_BLOCK)
            if (kept[p] > best) best = kept[p], place = p;
        rank_key won = block_max(best, part);
        if (best == won) kept[place] = 0, top[at] = won;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < left; p += STREAM_BLOCK) kept[p] = top[p];
    __syncthreads();
    return left;
}

static __global__ void top_stream(const float *__restrict__ s, int m, int ld, int self, int k,
                                  int32_t *ids, float *values) {
    __shared__ rank_key kept[FULL], top[STREAM_K], part[STREAM_BLOCK / WARP];
    __shared__ int count;
    int i = blockIdx.x, own = self < 0 ? -1 : self + i, wanted = own < 0 ? k : k - 1;
    rank_key least = 0;
    s += (size_t)i * ld, ids += (size_t)i * k;
    if (values) values += (size_t)i * k;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int c0 = 0; c0 < m && wanted > 0; c0 += STREAM_BLOCK * EACH) {
        float x[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int c = c0 + e * STREAM_BLOCK + threadIdx.x;
            x[e] = c < m ? s[c] : 0;
        }
        float to_beat = least ? rank_value(least) : -INFINITY;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int c = c0 + e * STREAM_BLOCK + threadIdx.x;
            if (x[e] < to_beat || c >= m || c == own) continue;
            rank_key key = rank_of(x[e], c);
            if (key > least) kept[atomicAdd(&count, 1)] = key;
        }
        __syncthreads();
        int now = count;
        __syncthreads();
        if (now <= FULL - STREAM_BLOCK * EACH && c0 > 0) continue; /* the next ones still fit */
        now = keep_best(kept, now, wanted, top, part);
        if (now == wanted) least = kept[wanted - 1];
        if (threadIdx.x == 0) count = now;
        __syncthreads();
    }
    if (wanted > 0) keep_best(kept, count, wanted, top, part);
    for (int at = threadIdx.x; at < k; at += STREAM_BLOCK) {
        int j = own >= 0 ? (at == 0 ? own : rank_column(kept[at - 1])) : rank_column(kept[at]);
        ids[at] = j;
        if (values) values[at] = s[j];
    }
}

int cuda_top_k(device *dev, const float *s, int n, int m, int ld, int self, int k, int32_t *ids,
               float *values) {
    if (n < 1 || k < 1) return 0;
    if (m <= IN_REGISTERS)
        BY_WIDTH(m, top_short,
                 <<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream_of(dev)>>>(s, n, m, ld, self, k, ids,
                                                                         values));
    else if (k <= STREAM_K)
        top_stream<<<n, STREAM_BLOCK, 0, stream_of(dev)>>>(s, m, ld, self, k, ids, values);
    else
        top_long<<<n, BLOCK, 0, stream_of(dev)>>>(s, m, ld, self, k, ids, values);
    return launched("top_k");
}

/* ---- search over a whole set ----------------------------------------------------------------- */

enum { SEARCH_MOST = 1 << 28 }; /* elements of F F^T at a time */

static __global__ void set_column(float *x, int n, int stride, float value) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) x[(size_t)i * stride] = value;
}

static int search(device *dev, const float *f, int n, int d, int first, int rows, int k,
                  int32_t *ids, float *values) {
    int rc = 0, most = SEARCH_MOST / n < 1 ? 1 : SEARCH_MOST / n;
    void *s = NULL;
    most = most < rows ? most : rows;
    if (rows < 1) return 0;
    TRY(dev->op.alloc(dev, (size_t)most * n * sizeof(float), &s));
    for (int i = 0; i < rows; i += most) {
        int count = rows - i < most ? rows - i : most;
        TRY(dev->op.gemm(dev, false, true, count, n, d, 1, f + (size_t)(first + i) * d, d, f, d, 0,
                         (float *)s, n));
        TRY(cuda_top_k(dev, (float *)s, count, n, n, first + i, k, ids + (size_t)i * k,
                       values + (size_t)i * k));
    }
    set_column<<<blocks_for(rows, BLOCK), BLOCK, 0, stream_of(dev)>>>(values, rows, k, 1);
    TRY(launched("search"));
    TRY(dev->op.sync(dev));
done:
    dev->op.free(dev, s);
    return rc;
}

void cuda_choice_ops(device_ops *op) {
    op->top_k = cuda_top_k;
    op->search = search;
}
