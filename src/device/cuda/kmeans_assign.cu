/* kmeans_assign.cu: one iteration's first half: every row to the nearest center of every run that
 * still moves, clusters counted, empty ones refilled. */
#include "device/cuda/few.cuh"
#include "device/cuda/kmeans.cuh"

#include "base/status.h"

enum { COUNT_SHARED = 512 }; /* up to this many clusters are counted in shared memory first */

/* Each empty cluster takes the row farthest from its center, out of a cluster of two or more.  By
 * one block. */
static __device__ void refill(const km &m, int run) {
    __shared__ rank_key part[BLOCK / WARP];
    int32_t *count = m.count + (size_t)run * m.K, *label = m.label + (size_t)run * m.n;
    float *own = m.own + (size_t)run * m.n;
    int refilled = 0;
    for (int c = 0; c < m.K; c++) {
        if (__ldcg(&count[c])) continue;
        rank_key best = 0;
        for (int i = threadIdx.x; i < m.n; i += BLOCK) {
            float away = __ldcg(&own[i]);
            if (away > 0 && __ldcg(&count[__ldcg(&label[i])]) > 1) {
                rank_key key = rank_of(away, i);
                best = key > best ? key : best;
            }
        }
        best = warp_max(best);
        __syncthreads();
        if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = best;
        __syncthreads();
        for (int w = 0; w < BLOCK / WARP; w++) best = part[w] > best ? part[w] : best;
        if (best == 0) break; /* fewer distinct rows than clusters */
        if (threadIdx.x == 0) {
            int i = rank_column(best), from = __ldcg(&label[i]);
            __stcg(&count[from], __ldcg(&count[from]) - 1);
            __stcg(&count[c], 1), __stcg(&label[i], c), __stcg(&own[i], 0.0f);
        }
        refilled++;
        __syncthreads();
    }
    if (threadIdx.x == 0) m.count[(size_t)m.runs * m.K + m.runs + run] = refilled;
}

/* Rows to their nearest centers, from m.dots; blockIdx.y: the slot.  The last block of a run
 * refills empty clusters. */
static __global__ void assign(km m, int first, int rows) {
    __shared__ int moved, counts[COUNT_SHARED];
    int run = m.active[blockIdx.y], r = blockIdx.x * BLOCK + threadIdx.x, i = first + r;
    if (m.done[run]) return;
    if (threadIdx.x == 0) moved = 0;
    bool few = m.K <= COUNT_SHARED;
    int32_t *count = m.count + (size_t)run * m.K;
    for (int k = threadIdx.x; few && k < m.K; k += BLOCK) counts[k] = 0;
    __syncthreads();
    if (r < rows) {
        const float *dot = m.dots + (size_t)blockIdx.y * m.K * rows + r;
        const float *half = m.half + blockIdx.y * m.K;
        float best = -INFINITY;
        int c = 0;
#pragma unroll 10
        for (int k = 0; k < m.K; k++) {
            float score = dot[(size_t)k * rows] - half[k];
            if (score > best) best = score, c = k;
        }
        float square = square_at(m, i), d2 = square - 2 * best;
        size_t at = (size_t)run * m.n + i;
        m.own[at] = d2 < slack(square, half[c]) ? 0 : d2;
        bool changed = m.label[at] != c;
        m.label[at] = c;
        atomicAdd(few ? &counts[c] : &count[c], 1); /* integers: any order */
        if (changed) atomicAdd(&moved, 1);
    }
    __syncthreads();
    for (int k = threadIdx.x; few && k < m.K; k += BLOCK)
        if (counts[k]) atomicAdd(&count[k], counts[k]);
    if (threadIdx.x == 0 && moved) atomicAdd(&m.count[(size_t)m.runs * m.K + run], moved);
    if (is_last(&m.ticket[2 * run], m.blocks)) refill(m, run);
}

/* The better of two scores, then the lower center. */
static __device__ inline void keep_better(float score, int c, float &best, int &at) {
    if (score > best || (score == best && c < at)) best = score, at = c;
}

/* As assign, but makes the products itself: rows of block y by the centers of `runs_each` slots
 * of block x.  The four lanes that have the products of a row compare theirs.  Rounding is
 * coarser than that of a sum of floats, as tensor cores truncate; hence 8 * slack. */
template <int TILES>
static __global__ void __launch_bounds__(FEW_THREADS, 2)
    assign_few(km m, int actives, int runs_each) {
    extern __shared__ float4 stages[];
    __shared__ int moved[8 * TILES], counts[8 * TILES], run_of[8 * TILES]; /* -1: it has ended */
    float c[2][TILES][4];
    int slot0 = blockIdx.x * runs_each, first = blockIdx.y * FEW_ROWS, t0 = threadIdx.x;
    int runs = min(runs_each, actives - slot0), centers = runs * m.K;
    if (t0 < 8 * TILES) moved[t0] = counts[t0] = 0;
    if (t0 < runs) {
        int run = m.active[slot0 + t0];
        run_of[t0] = m.done[run] ? -1 : run;
    }
    few_products<TILES>(m.x, m.n, m.d, first, m.w + (size_t)slot0 * m.K * m.d, centers, stages, c);
    const float *half_of = m.half + slot0 * m.K;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int at = few_center(tile) + e % 2;
            float half = at < centers ? half_of[at] : 0;
            c[0][tile][e] -= half, c[1][tile][e] -= half;
        }
    for (int s = 0; s < runs; s++) {
        int run = run_of[s], before[2][2];
        if (run < 0) continue;
#pragma unroll
        for (int t = 0; t < 2; t++) /* requested now, used later */
#pragma unroll
            for (int half = 0; half < 2; half++)
                before[t][half] =
                    m.label[(size_t)run * m.n + min(first + few_row(t, half), m.n - 1)];
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float best = -INFINITY;
                int at = 0;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int k = few_center(tile) + e - s * m.K;
                        if (k >= 0 && k < m.K) keep_better(c[t][tile][2 * half + e], k, best, at);
                    }
                for (int by = 1; by < 4; by *= 2) {
                    float score = __shfl_xor_sync(ALL_LANES, best, by);
                    keep_better(score, __shfl_xor_sync(ALL_LANES, at, by), best, at);
                }
                int i = first + few_row(t, half);
                if (t0 % 4 != 0 || i >= m.n) continue;
                float square = square_at(m, i), d2 = square - 2 * best;
                size_t place = (size_t)run * m.n + i;
                m.own[place] = d2 < 8 * slack(square, half_of[s * m.K + at]) ? 0 : d2;
                if (before[t][half] != at) { /* integers: any order */
                    atomicAdd(&moved[s], 1);
                    m.label[place] = at;
                }
                atomicAdd(&counts[s * m.K + at], 1);
            }
    }
    __syncthreads();
    int run = t0 < centers ? run_of[t0 / m.K] : -1;
    int32_t *count = m.count + (size_t)max(run, 0) * m.K + t0 % m.K;
    if (run >= 0 && counts[t0]) atomicAdd(count, counts[t0]);
    if (t0 < runs && moved[t0]) atomicAdd(&m.count[(size_t)m.runs * m.K + run_of[t0]], moved[t0]);
    if (!is_last(&m.ticket[2 * m.active[slot0]], gridDim.y)) return;
    if (!__syncthreads_or(run >= 0 && !__ldcg(count))) return;
    for (int s = 0; s < runs; s++)
        if (run_of[s] >= 0) refill(m, run_of[s]);
}

/* ---- launching ------------------------------------------------------------------------------- */

static bool few_takes(const km &m) {
    return m.K <= 8 * FEW_TILES && m.d % FEW_DEPTH == 0 && blocks_for(m.n, FEW_ROWS) <= 65535;
}

static int launch_few(device *dev, const km &m, int actives, unsigned *asked) {
    int rc = 0, most = 8 * FEW_TILES / m.K, groups = (actives + most - 1) / most;
    int runs_each = (actives + groups - 1) / groups, tiles = (runs_each * m.K + 7) / 8;
    dim3 grid(groups, blocks_for(m.n, FEW_ROWS));
    switch (tiles) {
#define CASE(TILES)                                                                                \
    case TILES:                                                                                    \
        if (!(*asked >> TILES & 1)) TRY(allow_shared(assign_few<TILES>, FEW_STAGE_BYTES));         \
        assign_few<TILES>                                                                          \
            <<<grid, FEW_THREADS, FEW_STAGE_BYTES, stream_of(dev)>>>(m, actives, runs_each);       \
        break
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
#undef CASE
    }
    *asked |= 1u << tiles;
    TRY(launched("k-means"));
done:
    return rc;
}

int kmeans_assign(device *dev, const km &m, int actives, unsigned *asked) {
    int rc = 0, centers = actives * m.K, most = kmeans_rows_at_once(m, centers);
    if (few_takes(m)) {
        TRY(launch_few(dev, m, actives, asked));
        goto done;
    }
    for (int first = 0; first < m.n; first += most) {
        int rows = m.n - first < most ? m.n - first : most;
        TRY(kmeans_multiply(dev, m, centers, first, rows));
        dim3 grid(blocks_for(rows, BLOCK), actives);
        assign<<<grid, BLOCK, 0, stream_of(dev)>>>(m, first, rows);
    }
    TRY(launched("k-means"));
done:
    return rc;
}
