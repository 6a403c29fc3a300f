/* kmeans.cu: k-means on features that lie in device memory; src/clusters has the definition.
 *
 * All runs go side by side: a step compares the centers of every run that is still moving with all
 * rows, by tensor cores (few.cuh) where they can, else in one matrix product, [centers, rows], so
 * that threads along a row of it are neighbors in memory.  What is a choice (seeds, empty clusters,
 * when to stop) is made on the device; the host looks every few steps which runs are left and packs
 * their centers.
 *
 * The bits differ from the CPU's (sums in another order), and are the same again for the same seed:
 * sums are taken in a fixed order, counts are whole numbers. */
#include "device/cuda/few.cuh"
#include "device/cuda/warp.cuh"

extern "C" {
#include "base/rng.h"
}

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 256,
    PARTS = 256, /* of the rows, in sums over them */
    LOOK = 4,    /* iterations between two looks of the host */
    MAX_TRIALS = 32,
    COUNT_HERE = 512,        /* clusters that are counted in shared memory first */
    SUM_SHARED = 200 * 1024, /* bytes of sums at most; where two blocks share an SM: */
    SUM_HERE = 110 * 1024,
    DOTS_MOST = 1 << 28,  /* numbers of a matrix product; more rows take several */
    ASSIGN_MOST = 1 << 24 /* likewise, and of the rows made ready for it, when rows are assigned */
};

/* What one iteration of one run leaves for the history. */
typedef struct step_record {
    double objective, imbalance;
    int32_t moved, refilled;
} step_record;

typedef struct km {
    int n, d, K, runs, trials, blocks; /* blocks: of BLOCK rows */
    bool cosine;
    const float *x;      /* [n,d]: unit rows, or rows less the shift */
    float *square;       /* [n], of points.h; NULL: 2 for all */
    float *shift;        /* [d]; NULL: none */
    double *columns;     /* [PARTS][2][d], then [2] = variance, squares */
    float *dots;         /* [centers, rows] */
    float *w, *half;     /* [centers,d], [centers] */
    double *mean;        /* [runs][K][d] */
    int32_t *label;      /* [runs][n] */
    float *own;          /* [runs][n]: d2 to the own center */
    int32_t *count;      /* [runs][K], behind it moved [runs], refilled [runs] */
    float *part;         /* [PARTS][active][K][d] sums of rows */
    double *shifted;     /* [runs][K][2]: squared shift, and what the objective loses */
    int32_t *active;     /* [runs]: which run a slot has */
    int32_t *done;       /* [runs]: iterations it took, 0: not yet */
    int32_t *ticket;     /* [runs][2]: blocks that have finished; zero between launches */
    step_record *record; /* [runs][iterations] */
    double *objective;   /* [runs] */
    /* seeding */
    float *d2[2];    /* [runs*trials][n] each */
    double *d2_part; /* [runs*trials][blocks] */
    int32_t *row[2]; /* [runs*trials]: this step's candidates, and the next one's */
    int32_t *best;   /* [runs]: the candidate that was taken last */
    int32_t *chosen; /* [runs][K] */
    rng *random;     /* [runs] */
} km;

static __device__ inline float slack(float square, float half) {
    return 2e-6f * (square + 2 * half);
}

static __device__ inline float square_at(const km &m, int i) { return m.square ? m.square[i] : 2; }

/* ---- rows made ready ------------------------------------------------------------------------- */

/* Sums and sums of squares of the columns over one part of the rows. */
static __global__ void column_parts(const float *x, int n, int d, double *columns) {
    int first = (int)((int64_t)n * blockIdx.x / PARTS);
    int last = (int)((int64_t)n * (blockIdx.x + 1) / PARTS);
    double *to = columns + (size_t)blockIdx.x * 2 * d;
    for (int j = threadIdx.x; j < d; j += BLOCK) {
        double sum = 0, squares = 0;
#pragma unroll 8
        for (int i = first; i < last; i++) {
            double v = x[(size_t)i * d + j];
            sum += v, squares += v * v;
        }
        to[j] = sum, to[d + j] = squares;
    }
}

/* The columns' means as the shift (or NULL); mean variance and sum of squares.  One block. */
static __global__ void column_totals(double *columns, int n, int d, float *shift) {
    __shared__ double part[WARP];
    double variance = 0, all = 0;
    for (int j = threadIdx.x; j < d; j += BLOCK) {
        double sum = 0, squares = 0;
        for (int p = 0; p < PARTS; p++) {
            sum += columns[(size_t)p * 2 * d + j];
            squares += columns[((size_t)p * 2 + 1) * d + j];
        }
        double mean = sum / n;
        if (shift) shift[j] = (float)mean;
        variance += squares / n - mean * mean, all += squares;
    }
    variance = block_sum(variance, part);
    all = block_sum(all, part);
    if (threadIdx.x != 0) return;
    columns[(size_t)PARTS * 2 * d] = variance > 0 ? variance / d : 0;
    columns[(size_t)PARTS * 2 * d + 1] = all;
}

static __global__ void shift_rows(const float *from, int n, int d, const float *shift, float *to,
                                  float *square) {
    int i = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
    if (i >= n) return;
    double squares = 0;
    for (int j = threadIdx.x % WARP; j < d; j += WARP) {
        float x = from[(size_t)i * d + j] - shift[j];
        to[(size_t)i * d + j] = x;
        squares += (double)x * x;
    }
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0) square[i] = (float)squares;
}

/* ---- products -------------------------------------------------------------------------------- */

/* dots[c][i - first] = <w_c, x_i> of the rows from `first` on. */
static int multiply(device *dev, const km &m, int centers, int first, int rows) {
    return dev->op.gemm(dev, false, true, centers, rows, m.d, 1, m.w, m.d,
                        m.x + (size_t)first * m.d, m.d, 0, m.dots, rows);
}

static int rows_at_once(const km &m, int centers) {
    int rows = DOTS_MOST / (centers > 0 ? centers : 1) / BLOCK * BLOCK;
    rows = rows < BLOCK ? BLOCK : rows;
    return rows < m.n ? rows : m.n;
}

/* ---- greedy k-means++ ------------------------------------------------------------------------ */

static __global__ void gather(km m, int parity) {
    int c = blockIdx.x, i = m.row[parity][c];
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        m.w[(size_t)c * m.d + j] = m.x[(size_t)i * m.d + j];
    if (threadIdx.x == 0) m.half[c] = m.cosine ? 0 : m.square[i] / 2;
}

/* d2 of the rows, were candidate blockIdx.y taken, and its sum over a block of them. */
static __global__ void candidate_distances(km m, int first, int rows, int per_run, int parity,
                                           bool fresh) {
    __shared__ double part[BLOCK / WARP];
    int c = blockIdx.y, r = blockIdx.x * BLOCK + threadIdx.x, run = c / per_run;
    int i = first + r;
    double value = 0;
    if (r < rows) {
        float square = square_at(m, i), half = m.half[c];
        float d2 = square - 2 * (m.dots[(size_t)c * rows + r] - half);
        if (d2 < slack(square, half)) d2 = 0; /* the same point, but for rounding */
        if (!fresh) d2 = fminf(d2, m.d2[!parity][(size_t)m.best[run] * m.n + i]);
        m.d2[parity][(size_t)c * m.n + i] = d2;
        value = d2;
    }
    value = block_sum(value, part);
    if (threadIdx.x == 0) m.d2_part[(size_t)c * m.blocks + first / BLOCK + blockIdx.x] = value;
}

static __device__ inline double warp_scan(double x) { /* sums up to each lane, itself included */
    int lane = threadIdx.x % WARP;
    for (int by = 1; by < WARP; by *= 2) {
        double other = __shfl_up_sync(ALL_LANES, x, by);
        if (lane >= by) x += other;
    }
    return x;
}

/* The place in x [count] where the sum of the numbers so far passes `at`, by one warp; *before: the
 * sum in front of it.  count where it never does. */
template <typename T>
static __device__ int find_place(const T *x, int count, double at, double *before) {
    double sum = 0;
    for (int p = 0; p < count; p += WARP) {
        int lane = threadIdx.x % WARP;
        double own = p + lane < count ? (double)x[p + lane] : 0, upto = sum + warp_scan(own);
        unsigned hit = __ballot_sync(ALL_LANES, own > 0 && at < upto);
        if (hit) {
            int first = __ffs(hit) - 1;
            *before = __shfl_sync(ALL_LANES, upto - own, first);
            return p + first;
        }
        sum = __shfl_sync(ALL_LANES, upto, WARP - 1);
    }
    *before = sum;
    return count;
}

/* The last row with d2 > 0 before `end`, or else the first behind it; by one warp. */
static __device__ int last_apart(const float *d2, int n, int end) {
    int lane = threadIdx.x % WARP;
    for (int p = (end - 1) / WARP * WARP; p >= 0; p -= WARP) {
        unsigned hit = __ballot_sync(ALL_LANES, p + lane < end && d2[p + lane] > 0);
        if (hit) return p + 31 - __clz(hit);
    }
    for (int p = end / WARP * WARP; p < n; p += WARP) {
        unsigned hit = __ballot_sync(ALL_LANES, p + lane < n && d2[p + lane] > 0);
        if (hit) return p + __ffs(hit) - 1;
    }
    return 0;
}

/* The best candidate of run blockIdx.x becomes center `step`, and the next candidates are drawn: a
 * warp each. */
static __global__ void choose(km m, int step, int per_run, int parity) {
    __shared__ double total[MAX_TRIALS], at[MAX_TRIALS];
    __shared__ int taken;
    int run = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (warp < per_run) {
        const double *part = m.d2_part + (size_t)(run * per_run + warp) * m.blocks;
        double sum = 0;
        for (int b = lane; b < m.blocks; b += WARP) sum += part[b];
        sum = warp_sum(sum);
        if (lane == 0) total[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int best = 0;
        for (int t = 1; t < per_run; t++)
            if (total[t] < total[best]) best = t;
        taken = run * per_run + best;
        m.best[run] = taken;
        m.chosen[(size_t)run * m.K + step] = m.row[parity][taken];
        rng r = m.random[run];
        double all = total[best];
        for (int t = 0; t < m.trials; t++) {
            if (!(all > 0)) { /* every row is a center: any */
                at[t] = -1 - (double)rng_below(&r, (uint32_t)m.n);
                continue;
            }
            double high = rng_bits(&r) >> 5, low = rng_bits(&r) >> 6;
            at[t] = (high * 67108864 + low) / 9007199254740992.0 * all;
        }
        m.random[run] = r;
    }
    __syncthreads();
    int i;
    if (at[warp] < 0) {
        i = (int)(-1 - at[warp]);
    } else {
        const double *part = m.d2_part + (size_t)taken * m.blocks;
        const float *d2 = m.d2[parity] + (size_t)taken * m.n;
        double before;
        int block = find_place(part, m.blocks, at[warp], &before), first = block * BLOCK;
        int count = m.n - first < BLOCK ? m.n - first : BLOCK, place = count;
        if (block < m.blocks) place = find_place(d2 + first, count, at[warp] - before, &before);
        /* rounding may lead past the end */
        i = block < m.blocks && place < count
                ? first + place
                : last_apart(d2, m.n, first + BLOCK < m.n ? first + BLOCK : m.n);
    }
    if (lane == 0) m.row[!parity][run * m.trials + warp] = i;
}

static __global__ void first_rows(km m, uint64_t seed, int first, int seeded) {
    int run = blockIdx.x * BLOCK + threadIdx.x;
    if (run >= seeded) return;
    rng r = rng_at(seed, (uint32_t)(first + run), 0, RNG_KMEANS);
    m.row[0][run] = (int32_t)rng_below(&r, (uint32_t)m.n);
    m.random[run] = r;
}

/* Of runs `first_run` .. first_run + seeded - 1. */
static int choose_seeds(device *dev, const km &m, int first_run, int seeded, uint64_t seed) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    if (seeded == 0) return 0;
    first_rows<<<blocks_for(seeded, BLOCK), BLOCK, 0, stream>>>(m, seed, first_run, seeded);
    for (int step = 0; step < m.K; step++) {
        int per_run = step ? m.trials : 1, candidates = seeded * per_run;
        int most = rows_at_once(m, candidates);
        gather<<<candidates, 64, 0, stream>>>(m, step & 1);
        for (int first = 0; first < m.n; first += most) {
            int rows = m.n - first < most ? m.n - first : most;
            if ((rc = multiply(dev, m, candidates, first, rows)) < 0) return rc;
            dim3 grid(blocks_for(rows, BLOCK), candidates);
            candidate_distances<<<grid, BLOCK, 0, stream>>>(m, first, rows, per_run, step & 1,
                                                            step == 0);
        }
        choose<<<seeded, m.trials * WARP, 0, stream>>>(m, step, per_run, step & 1);
    }
    return launched("k-means++");
}

/* ---- Lloyd's iteration ----------------------------------------------------------------------- */

/* The first means of a run: its seeds, or the caller's centroids (start: [K,d]). */
static __global__ void first_means(km m, int seeded, const float *start) {
    int run = blockIdx.x / m.K, c = blockIdx.x % m.K;
    double *to = m.mean + (size_t)blockIdx.x * m.d;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        to[j] = run < seeded ? (double)m.x[(size_t)m.chosen[blockIdx.x] * m.d + j]
                             : (double)start[(size_t)c * m.d + j] - (m.shift ? m.shift[j] : 0);
}

/* w and half of a center from its mean, by one block; returns |mean|^2. */
static __device__ double place(const km &m, const double *mean, int center, double *part) {
    double squares = 0;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x) squares += mean[j] * mean[j];
    squares = block_sum(squares, part);
    double by = !m.cosine ? 1 : squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        m.w[(size_t)center * m.d + j] = (float)(mean[j] * by);
    if (threadIdx.x == 0) m.half[center] = m.cosine ? 0 : (float)(squares / 2);
    return squares;
}

static __global__ void place_active(km m) {
    __shared__ double part[WARP];
    int slot = blockIdx.x / m.K, c = blockIdx.x % m.K;
    place(m, m.mean + ((size_t)m.active[slot] * m.K + c) * m.d, blockIdx.x, part);
}

/* Whether this block is the last of `all` that come here; what the others wrote can then be read
 * (around the first cache, which may not know). */
static __device__ bool is_last(int32_t *ticket, int all) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1) == all - 1;
        if (last) *ticket = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* An empty cluster takes the row farthest from its center, out of a cluster of two or more.  By one
 * block. */
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
        if (best == 0) break; /* fewer different rows than clusters */
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

/* Rows to their nearest centers; y: the slot.  The last block of a run looks for empty clusters. */
static __global__ void assign(km m, int first, int rows) {
    __shared__ int moved, here[COUNT_HERE];
    int run = m.active[blockIdx.y], r = blockIdx.x * BLOCK + threadIdx.x, i = first + r;
    if (m.done[run]) return;
    if (threadIdx.x == 0) moved = 0;
    bool few = m.K <= COUNT_HERE;
    int32_t *count = m.count + (size_t)run * m.K;
    for (int k = threadIdx.x; few && k < m.K; k += BLOCK) here[k] = 0;
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
        atomicAdd(few ? &here[c] : &count[c], 1); /* whole numbers: any order */
        if (changed) atomicAdd(&moved, 1);
    }
    __syncthreads();
    for (int k = threadIdx.x; few && k < m.K; k += BLOCK)
        if (here[k]) atomicAdd(&count[k], here[k]);
    if (threadIdx.x == 0 && moved) atomicAdd(&m.count[(size_t)m.runs * m.K + run], moved);
    if (is_last(&m.ticket[2 * run], m.blocks)) refill(m, run);
}

/* The better of two scores, then the lower center. */
static __device__ inline void keep_better(float score, int c, float &best, int &at) {
    if (score > best || (score == best && c < at)) best = score, at = c;
}

/* As assign, with the products made here: of the rows of block y with the centers of `runs_each`
 * slots, those of block x.  The four lanes that have a row's products compare theirs.  Rounding is
 * coarser than a sum of floats: tensor cores cut it off. */
template <int TILES>
static __global__ void __launch_bounds__(FEW_THREADS, 2)
    assign_few(km m, int actives, int runs_each) {
    extern __shared__ float4 stages[];
    __shared__ int moved[8 * TILES], here[8 * TILES], run_of[8 * TILES]; /* -1: it has ended */
    float c[2][TILES][4];
    int slot0 = blockIdx.x * runs_each, first = blockIdx.y * FEW_ROWS, t0 = threadIdx.x;
    int runs = min(runs_each, actives - slot0), centers = runs * m.K;
    if (t0 < 8 * TILES) moved[t0] = here[t0] = 0;
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
        for (int t = 0; t < 2; t++) /* asked for now, wanted later */
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
                if (before[t][half] != at) { /* whole numbers: any order */
                    atomicAdd(&moved[s], 1);
                    m.label[place] = at;
                }
                atomicAdd(&here[s * m.K + at], 1);
            }
    }
    __syncthreads();
    int run = t0 < centers ? run_of[t0 / m.K] : -1;
    int32_t *count = m.count + (size_t)max(run, 0) * m.K + t0 % m.K;
    if (run >= 0 && here[t0]) atomicAdd(count, here[t0]);
    if (t0 < runs && moved[t0]) atomicAdd(&m.count[(size_t)m.runs * m.K + run_of[t0]], moved[t0]);
    if (!is_last(&m.ticket[2 * m.active[slot0]], gridDim.y)) return;
    if (!__syncthreads_or(run >= 0 && !__ldcg(count))) return;
    for (int s = 0; s < runs; s++)
        if (run_of[s] >= 0) refill(m, run_of[s]);
}

/* All rows to their nearest centers where few.cuh can; else returns false. */
static bool launch_assign_few(device *dev, const km &m, int actives) {
    int most = 8 * FEW_TILES / m.K;
    if (most == 0 || m.d % FEW_DEPTH || blocks_for(m.n, FEW_ROWS) > 65535) return false;
    int groups = (actives + most - 1) / most, runs_each = (actives + groups - 1) / groups;
    dim3 grid(groups, blocks_for(m.n, FEW_ROWS));
    switch ((runs_each * m.K + 7) / 8) {
#define CASE(TILES)                                                                                \
    case TILES:                                                                                    \
        cudaFuncSetAttribute(assign_few<TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize,       \
                             FEW_STAGE_BYTES);                                                     \
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
    return true;
}

/* Sums of the rows of each cluster over one part of the rows (x), for some columns (y) and some
 * runs (z): `columns` threads, a thread a column, sums in shared memory [runs][K][columns]. */
enum { SUM_ROWS = 32, SUM_RUNS = 11, SUM_LABELS = 12, AHEAD = 8 };

/* The numbers of AHEAD rows from i on, this thread's column. */
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
                /* of different runs, so of different places: all read before the first is written
                 */
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

/* Whether a run has come to an end, by one warp; and its counts are made ready for the next step.
 */
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

/* The mean of a cluster from the parts' sums, and its center.  The last block of a run judges.
 * Waiting for the parts is what takes time: SPLIT threads a column have some of them each. */
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

/* One iteration of the runs in the first `actives` slots. */
static int iterate(device *dev, const km &m, int actives, int iteration, int columns, int runs_each,
                   const conr_kmeans_options *o) {
    int rc = 0, centers = actives * m.K, most = rows_at_once(m, centers);
    cudaStream_t stream = stream_of(dev);
    bool few = launch_assign_few(dev, m, actives);
    for (int first = 0; !few && rc == 0 && first < m.n; first += most) {
        int rows = m.n - first < most ? m.n - first : most;
        if ((rc = multiply(dev, m, centers, first, rows)) < 0) break;
        dim3 grid(blocks_for(rows, BLOCK), actives);
        assign<<<grid, BLOCK, 0, stream>>>(m, first, rows);
    }
    if (rc < 0) return rc;
    dim3 grid(PARTS, blocks_for(m.d, columns), blocks_for(actives, runs_each));
    size_t shared = ((size_t)runs_each * m.K * columns + SUM_ROWS * SUM_LABELS) * sizeof(float);
    sum_rows<<<grid, columns, shared, stream>>>(m, actives, columns, runs_each);
    update<<<centers, SPLIT * BLOCK, 0, stream>>>(m, actives, iteration, o->iterations,
                                                  o->tolerance);
    return launched("k-means");
}

/* ---- the result ------------------------------------------------------------------------------ */

static __global__ void write_centroids(km m, int run, float *centroids) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    if (j >= m.K * m.d) return;
    centroids[j] = (float)(m.mean[(size_t)run * m.K * m.d + j] + (m.shift ? m.shift[j % m.d] : 0));
}

/* The centers once more from the centroids as they were rounded. */
static __global__ void place_centroids(km m, const float *centroids) {
    __shared__ double part[WARP];
    double *mean = m.mean + (size_t)blockIdx.x * m.d; /* no longer needed */
    for (int j = threadIdx.x; j < m.d; j += BLOCK)
        mean[j] = centroids[(size_t)blockIdx.x * m.d + j] - (m.shift ? m.shift[j] : 0);
    __syncthreads();
    place(m, mean, blockIdx.x, part);
}

static __global__ void final_labels(km m, int first, int rows, int32_t *labels) {
    __shared__ double part[BLOCK / WARP];
    int r = blockIdx.x * BLOCK + threadIdx.x, i = first + r, c = 0;
    double d2 = 0;
    if (r < rows) {
        float best = -INFINITY;
        for (int k = 0; k < m.K; k++) {
            float score = m.dots[(size_t)k * rows + r] - m.half[k];
            if (score > best) best = score, c = k;
        }
        labels[i] = c;
        d2 = (double)square_at(m, i) - 2 * (double)best;
        d2 = d2 < 0 ? 0 : d2;
    }
    d2 = block_sum(d2, part);
    if (threadIdx.x == 0) m.d2_part[first / BLOCK + blockIdx.x] = m.cosine ? d2 / 2 : d2;
}

static __global__ void final_sum(km m) {
    __shared__ double part[BLOCK / WARP];
    double sum = 0;
    for (int b = threadIdx.x; b < m.blocks; b += BLOCK) sum += m.d2_part[b];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) m.objective[0] = sum;
}

/* ---- memory, and all together ---------------------------------------------------------------- */

static size_t take(char *base, size_t *at, size_t bytes, void *pointer) {
    char *p = base + *at;
    memcpy(pointer, &p, sizeof p);
    return *at += (bytes + 255) / 256 * 256;
}

/* Lays out all memory; base NULL: only counts. */
static size_t lay_out(km *m, char *base, int iterations, int seeded) {
    size_t at = 0, n = m->n, d = m->d, K = m->K, runs = m->runs;
    size_t candidates = (size_t)(seeded > 0 ? seeded : 1) * m->trials;
    size_t centers = runs * K > candidates ? runs * K : candidates;
    size_t dots = DOTS_MOST;
    if (dots < centers * BLOCK) dots = centers * BLOCK;
    if (dots > centers * n) dots = centers * n;
    take(base, &at, n * d * sizeof(float), &m->x);
    if (!m->cosine) take(base, &at, n * sizeof(float), &m->square);
    if (!m->cosine) take(base, &at, d * sizeof(float), &m->shift);
    take(base, &at, ((size_t)PARTS * 2 * d + 2) * sizeof(double), &m->columns);
    take(base, &at, dots * sizeof(float), &m->dots);
    take(base, &at, centers * d * sizeof(float), &m->w);
    take(base, &at, centers * sizeof(float), &m->half);
    take(base, &at, runs * K * d * sizeof(double), &m->mean);
    take(base, &at, runs * n * sizeof(int32_t), &m->label);
    take(base, &at, runs * n * sizeof(float), &m->own);
    take(base, &at, (runs * K + 2 * runs) * sizeof(int32_t), &m->count);
    take(base, &at, PARTS * runs * K * d * sizeof(float), &m->part);
    take(base, &at, runs * K * 2 * sizeof(double), &m->shifted);
    take(base, &at, runs * sizeof(int32_t), &m->active);
    take(base, &at, runs * sizeof(int32_t), &m->done);
    take(base, &at, 2 * runs * sizeof(int32_t), &m->ticket);
    take(base, &at, runs * (size_t)iterations * sizeof(step_record), &m->record);
    take(base, &at, runs * sizeof(double), &m->objective);
    take(base, &at, candidates * n * sizeof(float), &m->d2[0]);
    take(base, &at, candidates * n * sizeof(float), &m->d2[1]);
    take(base, &at, candidates * m->blocks * sizeof(double), &m->d2_part);
    take(base, &at, candidates * sizeof(int32_t), &m->row[0]);
    take(base, &at, candidates * sizeof(int32_t), &m->row[1]);
    take(base, &at, runs * sizeof(int32_t), &m->best);
    take(base, &at, runs * K * sizeof(int32_t), &m->chosen);
    return take(base, &at, runs * sizeof(rng), &m->random);
}

static int prepare(device *dev, km *m, const float *features) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    float *x = (float *)m->x;
    if (m->cosine) {
        if ((rc = dev->op.rows_normalize(dev, features, m->n, m->d, x, NULL)) < 0) return rc;
    } else {
        column_parts<<<PARTS, BLOCK, 0, stream>>>(features, m->n, m->d, m->columns);
        column_totals<<<1, BLOCK, 0, stream>>>(m->columns, m->n, m->d, m->shift);
        shift_rows<<<blocks_for(m->n, BLOCK / WARP), BLOCK, 0, stream>>>(features, m->n, m->d,
                                                                         m->shift, x, m->square);
    }
    column_parts<<<PARTS, BLOCK, 0, stream>>>(x, m->n, m->d, m->columns);
    column_totals<<<1, BLOCK, 0, stream>>>(m->columns, m->n, m->d, NULL);
    return launched("k-means");
}

/* Iterates all runs to their ends; host: [runs] for active slots and ends. */
static int run_all(device *dev, const km &m, const conr_kmeans_options *o, int32_t *active,
                   int32_t *done) {
    int rc = 0, actives = m.runs, columns = 256;
    while (columns > 8 && (size_t)m.K * columns * sizeof(float) > SUM_HERE) columns /= 2;
    while (columns > 32 && columns / 2 >= m.d) columns /= 2;
    size_t one = (size_t)m.K * columns * sizeof(float);
    size_t labels = SUM_ROWS * SUM_LABELS * sizeof(float);
    int runs_each = (int)((SUM_HERE - labels) / one) > 1 ? (int)((SUM_HERE - labels) / one) : 1;
    if (runs_each > SUM_RUNS) runs_each = SUM_RUNS;
    if (one + labels > SUM_SHARED)
        return cuda_check((int)cudaErrorInvalidValue, "k-means: too many clusters");
    rc = cuda_check((int)cudaFuncSetAttribute(sum_rows, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              SUM_SHARED),
                    "k-means");
    for (int r = 0; r < m.runs; r++) active[r] = r;
    bool packed = false;
    for (int iteration = 1; rc == 0 && actives > 0; iteration++) {
        if (!packed) {
            if ((rc = dev->op.put(dev, m.active, active, actives * sizeof *active)) < 0) break;
            place_active<<<actives * m.K, BLOCK, 0, stream_of(dev)>>>(m);
            packed = true;
        }
        int groups = (actives + runs_each - 1) / runs_each;
        rc = iterate(dev, m, actives, iteration, columns, (actives + groups - 1) / groups, o);
        if (rc < 0 || (iteration % LOOK && iteration != o->iterations)) continue;
        if ((rc = dev->op.get(dev, done, m.done, m.runs * sizeof *done)) < 0) break;
        int left = 0;
        for (int s = 0; s < actives; s++)
            if (!done[active[s]]) active[left++] = active[s];
        packed = left == actives;
        actives = left;
    }
    return rc;
}

/* The steps of all runs in order, for the caller. */
static int fill_history(device *dev, const km &m, int first, int iterations, const int32_t *done,
                        conr_kmeans_history *h) {
    int rc = 0, steps = 0, longest = 0;
    for (int r = 0; r < m.runs; r++) {
        steps += done[r];
        longest = done[r] > longest ? done[r] : longest;
    }
    h->step = (conr_kmeans_step *)malloc((size_t)steps * sizeof *h->step);
    step_record *record = (step_record *)malloc((size_t)longest * sizeof *record);
    if (!h->step || !record) rc = cuda_check((int)cudaErrorMemoryAllocation, "k-means");
    h->steps = 0;
    for (int r = 0; rc == 0 && r < m.runs; r++) {
        rc = dev->op.get(dev, record, m.record + (size_t)r * iterations,
                         (size_t)done[r] * sizeof *record);
        for (int i = 0; rc == 0 && i < done[r]; i++)
            h->step[h->steps++] =
                conr_kmeans_step{first + r,           i + 1,           record[i].objective,
                                 record[i].imbalance, record[i].moved, record[i].refilled};
    }
    free(record);
    return rc;
}

static int kmeans(device *dev, const float *features, int n, int d, const conr_kmeans_options *o,
                  int first, float *centroids, int32_t *labels, conr_kmeans_history *history) {
    km m = {};
    int rc = 0, best = 0;
    cudaStream_t stream = stream_of(dev);
    m.n = n, m.d = d, m.K = o->clusters, m.runs = o->restarts + (o->start != NULL);
    m.cosine = o->metric == CONR_COSINE;
    m.trials = 2 + (int)log((double)m.K);
    m.blocks = (int)blocks_for(n, BLOCK);
    int longest = o->iterations;
    void *memory = NULL, *start = NULL;
    int32_t *active = (int32_t *)malloc(2 * (size_t)m.runs * sizeof *active);
    double *objective = (double *)malloc((size_t)m.runs * sizeof *objective);
    if (!active || !objective) rc = cuda_check((int)cudaErrorMemoryAllocation, "k-means");
    if (rc == 0) rc = dev->op.alloc(dev, lay_out(&m, NULL, longest, o->restarts), &memory);
    if (rc == 0) lay_out(&m, (char *)memory, longest, o->restarts);
    if (rc == 0) rc = prepare(dev, &m, features);
    if (rc == 0) rc = choose_seeds(dev, m, first, o->restarts, o->seed);
    size_t size = (size_t)m.K * d * sizeof(float);
    if (rc == 0 && o->start) rc = dev->op.alloc(dev, size, &start);
    if (rc == 0 && o->start) rc = dev->op.put(dev, start, o->start, size);
    if (rc == 0) {
        first_means<<<m.runs * m.K, 64, 0, stream>>>(m, o->restarts, (const float *)start);
        rc = cuda_check(
            (int)cudaMemsetAsync(m.label, 0xff, (size_t)m.runs * n * sizeof *m.label, stream),
            "k-means");
    }
    if (rc == 0)
        rc =
            cuda_check((int)cudaMemsetAsync(m.done, 0, m.runs * sizeof *m.done, stream), "k-means");
    int32_t *done = active + m.runs;
    if (rc == 0) rc = run_all(dev, m, o, active, done);
    if (rc == 0) rc = dev->op.get(dev, objective, m.objective, m.runs * sizeof *objective);
    if (rc == 0) {
        for (int r = 1; r < m.runs; r++)
            if (objective[r] < objective[best]) best = r;
        write_centroids<<<blocks_for((size_t)m.K * d, BLOCK), BLOCK, 0, stream>>>(m, best,
                                                                                  centroids);
        place_centroids<<<m.K, BLOCK, 0, stream>>>(m, centroids);
        rc = launched("k-means");
    }
    int most = rows_at_once(m, m.K);
    for (int i = 0; rc == 0 && i < n; i += most) {
        int rows = n - i < most ? n - i : most;
        if ((rc = multiply(dev, m, m.K, i, rows)) < 0) break;
        final_labels<<<blocks_for(rows, BLOCK), BLOCK, 0, stream>>>(m, i, rows, labels);
        rc = launched("k-means");
    }
    if (rc == 0 && history) {
        final_sum<<<1, BLOCK, 0, stream>>>(m);
        rc = launched("k-means");
        if (rc == 0) rc = fill_history(dev, m, first, longest, done, history);
        if (rc == 0) rc = dev->op.get(dev, &history->objective, m.objective, sizeof(double));
        history->run = first + best;
    }
    if (rc == 0) rc = dev->op.sync(dev);
    dev->op.free(dev, start);
    dev->op.free(dev, memory);
    free(active), free(objective);
    return rc;
}

/* ---- the nearest centroid -------------------------------------------------------------------- */

/* The mean of the centroids, in the order of the host's sum. */
static __global__ void middle(const float *rows, int n, int d, float *out) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    if (j >= d) return;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += rows[(size_t)i * d + j];
    out[j] = (float)(sum / n);
}

/* A warp a row. */
static __global__ void label_distances(km m, int rows, const int32_t *labels, float *distances) {
    int i = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
    if (i >= rows) return;
    const float *x = m.x + (size_t)i * m.d, *w = m.w + (size_t)labels[i] * m.d;
    double sum = 0;
    for (int j = threadIdx.x % WARP; j < m.d; j += WARP) {
        double step = (double)x[j] - w[j];
        sum += m.cosine ? (double)x[j] * w[j] : step * step;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) distances[i] = (float)(m.cosine ? 1 - sum : sqrt(sum));
}

/* Memory for m.n rows at a time; base NULL: only counts. */
static size_t lay_out_assign(km *m, char *base) {
    size_t at = 0, n = m->n, d = m->d, K = m->K;
    take(base, &at, n * d * sizeof(float), &m->x);
    if (!m->cosine) take(base, &at, n * sizeof(float), &m->square);
    if (!m->cosine) take(base, &at, d * sizeof(float), &m->shift);
    take(base, &at, K * n * sizeof(float), &m->dots);
    take(base, &at, K * d * sizeof(float), &m->w);
    take(base, &at, K * sizeof(float), &m->half);
    take(base, &at, K * d * sizeof(double), &m->mean);
    return take(base, &at, m->blocks * sizeof(double), &m->d2_part);
}

/* Rows from `features` on, m.n at most, shifted or scaled; then their labels and distances. */
static int assign_some(device *dev, const km &m, const float *features, int rows, int32_t *labels,
                       float *distances) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    float *x = (float *)m.x;
    unsigned by_warp = blocks_for(rows, BLOCK / WARP);
    if (m.cosine)
        rc = dev->op.rows_normalize(dev, features, rows, m.d, x, NULL);
    else
        shift_rows<<<by_warp, BLOCK, 0, stream>>>(features, rows, m.d, m.shift, x, m.square);
    if (rc < 0 || (rc = multiply(dev, m, m.K, 0, rows)) < 0) return rc;
    final_labels<<<blocks_for(rows, BLOCK), BLOCK, 0, stream>>>(m, 0, rows, labels);
    if (distances) label_distances<<<by_warp, BLOCK, 0, stream>>>(m, rows, labels, distances);
    return launched("assign");
}

/* As the host's: both sides are shifted by the mean of the centroids, so that a row's label depends
 * on itself and them alone. */
static int assign_rows(device *dev, const float *features, int n, int d, conr_metric metric,
                       const float *centroids, int K, int32_t *labels, float *distances) {
    km m = {};
    int rc = 0, most = ASSIGN_MOST / (K > d ? K : d) / BLOCK * BLOCK;
    void *memory;
    most = most < BLOCK ? BLOCK : most;
    m.n = most < n ? most : n, m.d = d, m.K = K;
    m.cosine = metric == CONR_COSINE;
    m.blocks = (int)blocks_for(m.n, BLOCK);
    if ((rc = dev->op.work(dev, lay_out_assign(&m, NULL), &memory)) < 0) return rc;
    lay_out_assign(&m, (char *)memory);
    if (!m.cosine)
        middle<<<blocks_for(d, BLOCK), BLOCK, 0, stream_of(dev)>>>(centroids, K, d, m.shift);
    place_centroids<<<K, BLOCK, 0, stream_of(dev)>>>(m, centroids);
    rc = launched("assign");
    for (int i = 0; rc == 0 && i < n; i += m.n)
        rc = assign_some(dev, m, features + (size_t)i * d, n - i < m.n ? n - i : m.n, labels + i,
                         distances ? distances + i : NULL);
    return rc;
}

void cuda_kmeans_ops(device_ops *op) {
    op->kmeans = kmeans;
    op->assign = assign_rows;
}
