/* kmeans_lloyd.cu: Lloyd's iterations of all runs: assignment (kmeans_assign.cu), means, and the
 * decision which runs have ended. */
#include "device/cuda/kmeans.cuh"

#include "base/status.h"

#include <stdlib.h>

enum {
    LOOK = 4,                /* iterations between two looks of the host */
    SUM_SHARED = 200 * 1024, /* bytes of sums in shared memory, at most */
    SUM_HALF = 110 * 1024    /* the same, if two blocks are to share an SM */
};

/* The first means of a run: its seeds, or the given centroids (start: [K,d]). */
static __global__ void first_means(km m, int seeded, const float *start) {
    int run = blockIdx.x / m.K, c = blockIdx.x % m.K;
    double *to = m.mean + (size_t)blockIdx.x * m.d;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        to[j] = run < seeded ? (double)m.x[(size_t)m.chosen[blockIdx.x] * m.d + j]
                             : (double)start[(size_t)c * m.d + j] - (m.shift ? m.shift[j] : 0);
}

static __global__ void place_active(km m) {
    __shared__ double part[WARP];
    int slot = blockIdx.x / m.K, c = blockIdx.x % m.K;
    place(m, m.mean + ((size_t)m.active[slot] * m.K + c) * m.d, blockIdx.x, part);
}

/* Sums of the rows of each cluster over one part of the rows (x), for some columns (y) and some
 * runs (z): `columns` threads, one per column, sums in shared memory [runs][K][columns]. */
enum { SUM_ROWS = 32, SUM_RUNS = 11, SUM_LABELS = 12, AHEAD = 8 };

/* The column of this thread in AHEAD rows from i on. */
static __device__ inline void fetch_ahead(const km &m, int i, int end, int j, float (&x)[AHEAD]) {
#pragma unroll
    for (int r = 0; r < AHEAD; r++)
        x[r] = i + r < end && j < m.d ? __ldg(&m.x[(size_t)(i + r) * m.d + j]) : 0;
}

static __global__ void sum_rows(km m, int actives, int columns, int runs_each) {
    extern __shared__ float sum[];
    int slot0 = blockIdx.z * runs_each, t = threadIdx.x, j = blockIdx.y * columns + t;
    int runs = actives - slot0 < runs_each ? actives - slot0 : runs_each;
    int32_t *labels = (int32_t *)(sum + (size_t)runs_each * m.K * columns); /* [SUM_ROWS][12] */
    int begin = (int)((int64_t)m.n * blockIdx.x / PARTS);
    int end = (int)((int64_t)m.n * (blockIdx.x + 1) / PARTS);
    float x[AHEAD], next[AHEAD];
    fetch_ahead(m, begin, end, j, next);
    for (int p = t; p < runs * m.K * columns; p += columns) sum[p] = 0;
    for (int i0 = begin; i0 < end; i0 += SUM_ROWS) {
        int rows = end - i0 < SUM_ROWS ? end - i0 : SUM_ROWS;
        __syncthreads();
        for (int p = t; p < rows * runs; p += columns) {
            int s = p / rows, r = p % rows, run = m.active[slot0 + s];
            labels[r * SUM_LABELS + s] = (s * m.K + m.label[(size_t)run * m.n + i0 + r]) * columns;
        }
        __syncthreads();
        for (int r0 = 0; r0 < rows; r0 += AHEAD) {
#pragma unroll
            for (int r = 0; r < AHEAD; r++) x[r] = next[r];
            fetch_ahead(m, i0 + r0 + AHEAD, end, j, next);
#pragma unroll
            for (int r = 0; r < AHEAD; r++) {
                if (r0 + r >= rows) break;
                /* different runs, so different places: read all before the first is written */
                float old[SUM_RUNS];
                int at[SUM_LABELS];
#pragma unroll
                for (int s = 0; s < SUM_LABELS; s += 4)
                    if (s < runs) {
                        int4 four = *(const int4 *)&labels[(r0 + r) * SUM_LABELS + s];
                        at[s] = four.x + t, at[s + 1] = four.y + t;
                        at[s + 2] = four.z + t, at[s + 3] = four.w + t;
                    }
#pragma unroll
                for (int s = 0; s < SUM_RUNS; s++)
                    if (s < runs) old[s] = sum[at[s]];
#pragma unroll
                for (int s = 0; s < SUM_RUNS; s++)
                    if (s < runs) sum[at[s]] = old[s] + x[r];
            }
        }
    }
    __syncthreads();
    for (int p = 0; p < runs * m.K; p++)
        if (j < m.d)
            m.part[(((size_t)blockIdx.x * actives + slot0) * m.K + p) * m.d + j] =
                sum[p * columns + t];
}

/* Decides whether a run has ended, and clears its counts for the next step; by one warp. */
static __device__ void judge(const km &m, int run, int iteration, int iterations,
                             double tolerance) {
    int lane = threadIdx.x;
    double shift = 0, gain = 0, shares = 0;
    for (int c = lane; c < m.K; c += WARP) {
        size_t at = (size_t)run * m.K + c;
        double share = (double)m.count[at] / m.n;
        shift += __ldcg(&m.shifted[2 * at]), gain += __ldcg(&m.shifted[2 * at + 1]);
        shares += share * share;
        m.count[at] = 0;
    }
    shift = warp_sum(shift), gain = warp_sum(gain), shares = warp_sum(shares);
    if (lane != 0) return;
    const double *totals = m.columns + (size_t)PARTS * 2 * m.d;
    double objective = (m.cosine ? (double)m.n : totals[1]) - gain;
    int32_t *behind = m.count + (size_t)m.runs * m.K;
    int moved = behind[run], refilled = behind[m.runs + run];
    behind[run] = behind[m.runs + run] = 0;
    objective = objective > 0 ? objective : 0;
    m.objective[run] = objective;
    m.record[(size_t)run * iterations + iteration - 1] =
        step_record{objective, shares * m.K, moved, refilled};
    if ((!refilled && (moved == 0 || shift <= tolerance * totals[0])) || iteration == iterations)
        m.done[run] = iteration;
}

/* The mean of a cluster from the sums of all parts, and its center.  The last block of a run
 * judges. Reading the parts is what takes time: SPLIT threads per column share them. */
enum { SPLIT = 4 };
static __global__ void __launch_bounds__(SPLIT *BLOCK)
    update(km m, int actives, int iteration, int iterations, double tolerance) {
    __shared__ double part[WARP], split[SPLIT][BLOCK];
    int slot = blockIdx.x / m.K, c = blockIdx.x % m.K, run = m.active[slot];
    if (m.done[run]) return;
    size_t at = (size_t)run * m.K + c;
    int count = m.count[at], t = threadIdx.x % BLOCK, q = threadIdx.x / BLOCK;
    double *mean = m.mean + at * m.d, shift = 0, squares = 0;
    for (int j0 = 0; count && j0 < m.d; j0 += BLOCK) {
        int j = j0 + t;
        double sum = 0;
        if (j < m.d) {
#pragma unroll 16
            for (int p = 0; p < PARTS / SPLIT; p++) {
                size_t from = (size_t)(q * (PARTS / SPLIT) + p) * actives * m.K + blockIdx.x;
                sum += m.part[from * m.d + j];
            }
        }
        __syncthreads(); /* split has been read */
        split[q][t] = sum;
        __syncthreads();
        if (q != 0 || j >= m.d) continue;
        for (int s = 1; s < SPLIT; s++) sum += split[s][t];
        double to = sum / count;
        shift += (to - mean[j]) * (to - mean[j]);
        squares += sum * sum;
        mean[j] = to;
    }
    shift = block_sum(shift, part);
    squares = block_sum(squares, part);
    if (threadIdx.x == 0) {
        m.shifted[2 * at] = shift;
        m.shifted[2 * at + 1] = !count ? 0 : m.cosine ? sqrt(squares) : squares / count;
    }
    place(m, mean, blockIdx.x, part);
    if (is_last(&m.ticket[2 * run + 1], m.K) && threadIdx.x < WARP)
        judge(m, run, iteration, iterations, tolerance);
}

/* ---- all runs -------------------------------------------------------------------------------- */

/* How sum_rows is launched: columns per block, and runs per block at most. */
typedef struct sum_plan {
    int columns, runs;
} sum_plan;

static size_t sum_bytes(const km &m, int columns, int runs) {
    return ((size_t)runs * m.K * columns + SUM_ROWS * SUM_LABELS) * sizeof(float);
}

static int plan_sums(const km &m, sum_plan *p) {
    int columns = 256, runs = 1;
    while (columns > 8 && (size_t)m.K * columns * sizeof(float) > SUM_HALF) columns /= 2;
    while (columns > 32 && columns / 2 >= m.d) columns /= 2;
    while (runs < SUM_RUNS && sum_bytes(m, columns, runs + 1) <= SUM_HALF) runs++;
    if (sum_bytes(m, columns, 1) > SUM_SHARED)
        return fail(CONR_EDEVICE,
                    "cuda, k-means: %d clusters do not fit into shared memory; use fewer, or "
                    "--device cpu",
                    m.K);
    *p = sum_plan{columns, runs};
    return allow_shared(sum_rows, SUM_SHARED);
}

/* One iteration of the runs in the first `actives` slots. */
static int iterate(device *dev, const km &m, int actives, int iteration, const sum_plan &p,
                   const conr_kmeans_options *o, unsigned *asked) {
    int rc = 0, groups = (actives + p.runs - 1) / p.runs,
        runs_each = (actives + groups - 1) / groups;
    cudaStream_t stream = stream_of(dev);
    dim3 grid(PARTS, blocks_for(m.d, p.columns), blocks_for(actives, runs_each));
    TRY(kmeans_assign(dev, m, actives, asked));
    sum_rows<<<grid, p.columns, sum_bytes(m, p.columns, runs_each), stream>>>(m, actives, p.columns,
                                                                              runs_each);
    update<<<actives * m.K, SPLIT * BLOCK, 0, stream>>>(m, actives, iteration, o->iterations,
                                                        o->tolerance);
    TRY(launched("k-means"));
done:
    return rc;
}

static int begin(device *dev, const km &m, int seeded, const float *start) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    size_t labels = (size_t)m.runs * m.n * sizeof *m.label;
    first_means<<<m.runs * m.K, 64, 0, stream>>>(m, seeded, start);
    TRY(launched("k-means"));
    TRY(cuda_check((int)cudaMemsetAsync(m.label, 0xff, labels, stream), "k-means")); /* no label */
    TRY(cuda_check((int)cudaMemsetAsync(m.done, 0, m.runs * sizeof *m.done, stream), "k-means"));
done:
    return rc;
}

int kmeans_lloyd(device *dev, const km &m, const conr_kmeans_options *o, int seeded,
                 const float *start, int32_t *ended) {
    int rc = 0, actives = m.runs;
    unsigned asked = 0;
    bool packed = false;
    sum_plan plan;
    size_t bytes = (size_t)m.runs * sizeof(int32_t);
    int32_t *active = (int32_t *)malloc(bytes); /* the runs that still move, packed */
    if (!active) return fail_memory("k-means", (double)bytes);
    for (int r = 0; r < m.runs; r++) active[r] = r;
    TRY(begin(dev, m, seeded, start));
    TRY(plan_sums(m, &plan));
    for (int iteration = 1; actives > 0; iteration++) {
        if (!packed) {
            TRY(dev->op.put(dev, m.active, active, actives * sizeof *active));
            place_active<<<actives * m.K, BLOCK, 0, stream_of(dev)>>>(m);
            packed = true;
        }
        TRY(iterate(dev, m, actives, iteration, plan, o, &asked));
        if (iteration % LOOK && iteration != o->iterations) continue;
        TRY(dev->op.get(dev, ended, m.done, m.runs * sizeof *ended));
        int left = 0;
        for (int s = 0; s < actives; s++)
            if (!ended[active[s]]) active[left++] = active[s];
        packed = left == actives;
        actives = left;
    }
done:
    free(active);
    return rc;
}
