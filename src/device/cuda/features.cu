/* features.cu: rows of features, choices among them, the losses and the boundary filter.
 *
 * Small work, so what counts is the number of launches and that many SMs take part.  A row belongs
 * to a warp; sums are in double and end in a butterfly or a block's sum of fixed order, so the same
 * bits come again.  Nothing is allocated: where a sum over rows needs a place for the rows' parts,
 * an output that is written later lends it. */
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

/* Threads of a block; of one whose warps have a row each: small, so that a batch of 256 rows is on
 * every SM. */
enum { BLOCK = 256, ROW_BLOCK = 64, ROWS = ROW_BLOCK / WARP };

static __device__ inline int lane() { return threadIdx.x % WARP; }
static __device__ inline int warp_row() { return blockIdx.x * ROWS + threadIdx.x / WARP; }

/* ---- rows ------------------------------------------------------------------------------------ */

static __global__ void normalize(const float *x, int n, int d, float *out, float *norm) {
    int i = warp_row();
    if (i >= n) return;
    x += (size_t)i * d, out += (size_t)i * d;
    double squares = 0;
    for (int j = lane(); j < d; j += WARP) squares += (double)x[j] * x[j];
    double size = sqrt(warp_sum(squares)), by = size > 0 ? 1 / size : 0;
    for (int j = lane(); j < d; j += WARP) out[j] = (float)(x[j] * by);
    if (norm && lane() == 0) norm[i] = (float)size;
}

static int rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm) {
    if (n < 1) return 0;
    normalize<<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream_of(dev)>>>(x, n, d, out, norm);
    return launched("rows_normalize");
}

static __global__ void normalize_back(const float *out, const float *norm, const float *dout, int n,
                                      int d, float *dx) {
    int i = warp_row();
    if (i >= n) return;
    out += (size_t)i * d, dout += (size_t)i * d, dx += (size_t)i * d;
    double along = 0, by = norm[i] > 0 ? 1.0 / norm[i] : 0;
    for (int j = lane(); j < d; j += WARP) along += (double)out[j] * dout[j];
    along = warp_sum(along);
    for (int j = lane(); j < d; j += WARP) dx[j] = (float)((dout[j] - along * out[j]) * by);
}

static int rows_normalize_back(device *dev, const float *out, const float *norm, const float *dout,
                               int n, int d, float *dx) {
    if (n < 1) return 0;
    normalize_back<<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream_of(dev)>>>(out, norm, dout, n, d,
                                                                          dx);
    return launched("rows_normalize_back");
}

/* width: words of a row */
template <typename word>
static __global__ void take(const word *from, size_t width, const int32_t *ids, size_t count,
                            word *to) {
    size_t at = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at < count) to[at] = from[(size_t)ids[at / width] * width + at % width];
}

template <typename word>
static void take_launch(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                        void *to) {
    size_t width = row_bytes / sizeof(word), count = width * (size_t)n;
    take<<<blocks_for(count, BLOCK), BLOCK, 0, stream_of(dev)>>>((const word *)from, width, ids,
                                                                 count, (word *)to);
}

static int rows_take(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                     void *to) {
    if (n < 1 || row_bytes == 0) return 0;
    size_t all = (size_t)from | (size_t)to | row_bytes;
    if (all % 16 == 0)
        take_launch<uint4>(dev, from, row_bytes, ids, n, to);
    else if (all % 4 == 0)
        take_launch<uint32_t>(dev, from, row_bytes, ids, n, to);
    else
        take_launch<unsigned char>(dev, from, row_bytes, ids, n, to);
    return launched("rows_take");
}

static __global__ void put_in_ring(const step_values *at, const float *rows, int n, int d,
                                   float *ring, int size) {
    size_t p = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (p >= (size_t)n * d) return;
    uint64_t row = ((uint64_t)at->step * (uint64_t)n + p / d) % (uint64_t)size;
    ring[row * d + p % d] = rows[p];
}

static int ring_put(device *dev, const step_values *at, const float *rows, int n, int d,
                    float *ring, int size) {
    if (n < 1 || d < 1) return 0;
    put_in_ring<<<blocks_for((size_t)n * d, BLOCK), BLOCK, 0, stream_of(dev)>>>(at, rows, n, d,
                                                                                ring, size);
    return launched("ring_put");
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* A warp a row, the row in registers. */
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

/* A block a row of any length: each round looks for the best behind the one before. */
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

/* A block a row of any length, which is read once: what beats the k-th best so far is collected in
 * shared memory, and when that is full only the k best of it stay.  Keys are all different, so the
 * order in which they come does not matter. */
enum { STREAM_BLOCK = 128, EACH = 8, FULL = 2 * STREAM_BLOCK * EACH, STREAM_K = 512 };

static __device__ rank_key block_max(rank_key best, rank_key *part) {
    best = warp_max(best);
    __syncthreads();
    if (lane() == 0) part[threadIdx.x / WARP] = best;
    __syncthreads();
    for (int w = 0; w < STREAM_BLOCK / WARP; w++) best = part[w] > best ? part[w] : best;
    return best;
}

/* The k best of kept[count] to its front; returns how many there are. */
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
        if (now <= FULL - STREAM_BLOCK * EACH && c0 > 0) continue; /* the next ones have room */
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

/* ---- the nearest of a whole set -------------------------------------------------------------- */

enum { SEARCH_NUMBERS = 1 << 28 }; /* of S at a time */

static __global__ void set_column(float *x, int n, int stride, float value) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) x[(size_t)i * stride] = value;
}

static int search(device *dev, const float *f, int n, int d, int first, int rows, int k,
                  int32_t *ids, float *values) {
    int rc = 0, most = SEARCH_NUMBERS / n < 1 ? 1 : SEARCH_NUMBERS / n;
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

/* ---- losses ---------------------------------------------------------------------------------- */

/* The half batch of a loss, as device.h has it. */
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

/* Number j of the gradient of row i. */
static __device__ inline float pulled(const half_batch &h, int i, int j, double each) {
    float sum = 0;
#pragma unroll 10
    for (int e = 0; e < h.k; e++) sum += __ldg(near_row(h, i, e) + j);
    return (float)(each * sum);
}

/* A block a row: its gradient, but its value (q . dq, as the loss is linear in q) in place of the
 * first number. */
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

/* Adds up the values and puts the first numbers in their places.  One block. */
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

/* ref.c has the formula.  A block a row; logits: [n,size].  First its value into the first number
 * of its row of dq, from where add_first takes it; then, in a second launch, the weights of the
 * queue's rows over the logits and the keys' part of the gradient. */
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

/* ---- the boundary filter --------------------------------------------------------------------- */

/* A block a row, a warp a centroid.  ids NULL: row i is image i. */
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

/* The weights of a batch, by one block: a thread counts how many do not exceed its ratio. */
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
    bool enough = i < n && below >= keep; /* ratios are not negative: their bits have their order */
    uint32_t bits = __reduce_min_sync(ALL_LANES, enough ? __float_as_uint(own) : 0x7f800000u);
    if (lane() == 0) atomicMin(&least, bits);
    __syncthreads();
    float sigma = __uint_as_float(least);
    if (i < n && own == sigma) kept = below; /* the same number from each */
    __syncthreads();
    if (i < n) weight[i] = own <= sigma ? 1.0f / (float)(over_batch ? n : kept) : 0;
}

/* The number at place `left` (0 .. n-1) of x [n] in ascending order, in every thread of a block of
 * at least 256: found byte by byte, from the highest, of bits that have the numbers' order. */
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
        if (threadIdx.x < WARP) { /* eight bins a lane */
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

/* The same for any number of rows. */
static __global__ void filter(const step_values *at, const float *ratio, int n, bool over_batch,
                              float *weight) {
    __shared__ int kept;
    if (threadIdx.x == 0) kept = 0; /* number_at lets nobody pass before */
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
    if (isnan(sigma)) sigma = INFINITY; /* they rank last: all others are wanted */
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = ratio[i] <= sigma;
}

static int boundary_keep(device *dev, const float *ratio, int n, int keep, unsigned char *kept) {
    if (n < 1) return 0;
    keep_smallest<<<1, n <= 256 ? 256 : 1024, 0, stream_of(dev)>>>(ratio, n, keep, kept);
    return launched("boundary_keep");
}

extern "C" void cuda_feature_ops(device_ops *op) {
    op->rows_normalize = rows_normalize;
    op->rows_normalize_back = rows_normalize_back;
    op->rows_take = rows_take;
    op->ring_put = ring_put;
    op->top_k = cuda_top_k;
    op->search = search;
    op->pull = pull;
    op->contrast = contrast;
    op->boundary = boundary;
    op->boundary_ratio = boundary_ratio;
    op->boundary_keep = boundary_keep;
    cuda_neighbor_ops(op);
    cuda_view_ops(op);
    cuda_kmeans_ops(op);
}
