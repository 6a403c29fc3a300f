/* kmeans_seeding.cu: greedy k-means++ for all runs at once.
 *
 * A step draws `trials` candidates per run and takes the one that leaves the smallest sum of
 * squared distances.  Distances to the nearest center so far are kept for every candidate, in
 * two buffers that take turns: the taken candidate's become the input of the next step. */
#include "device/cuda/kmeans.cuh"

#include "base/status.h"

enum { MAX_TRIALS = 32 };

static __global__ void gather(km m, int parity) {
    int c = blockIdx.x, i = m.row[parity][c];
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        m.w[(size_t)c * m.d + j] = m.x[(size_t)i * m.d + j];
    if (threadIdx.x == 0) m.half[c] = m.cosine ? 0 : m.square[i] / 2;
}

/* d2 of the rows if candidate blockIdx.y were taken, and its sum over a block of rows. */
static __global__ void candidate_distances(km m, int first, int rows, int per_run, int parity,
                                           bool fresh) {
    __shared__ double part[BLOCK / WARP];
    int c = blockIdx.y, r = blockIdx.x * BLOCK + threadIdx.x, run = c / per_run;
    int i = first + r;
    double value = 0;
    if (r < rows) {
        float square = square_at(m, i), half = m.half[c];
        float d2 = square - 2 * (m.dots[(size_t)c * rows + r] - half);
        if (d2 < slack(square, half)) d2 = 0; /* the same point, up to rounding */
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

/* The first place in x [count] at which the running sum exceeds `at`, by one warp; *before: the sum
 * up to it.  count if there is none. */
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

/* The last row with d2 > 0 before `end`, or else the first after it; by one warp. */
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

/* The best candidate of run blockIdx.x becomes center `step`, and the next candidates are drawn,
 * one per warp. */
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
            if (!(all > 0)) { /* every row is a center: take any */
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

int kmeans_seed(device *dev, const km &m, int first_run, int seeded, uint64_t seed) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    if (seeded == 0) return 0;
    first_rows<<<blocks_for(seeded, BLOCK), BLOCK, 0, stream>>>(m, seed, first_run, seeded);
    for (int step = 0; step < m.K; step++) {
        int per_run = step ? m.trials : 1, candidates = seeded * per_run;
        int most = kmeans_rows_at_once(m, candidates);
        gather<<<candidates, 64, 0, stream>>>(m, step & 1);
        for (int first = 0; first < m.n; first += most) {
            int rows = m.n - first < most ? m.n - first : most;
            TRY(kmeans_multiply(dev, m, candidates, first, rows));
            dim3 grid(blocks_for(rows, BLOCK), candidates);
            candidate_distances<<<grid, BLOCK, 0, stream>>>(m, first, rows, per_run, step & 1,
                                                            step == 0);
        }
        choose<<<seeded, m.trials * WARP, 0, stream>>>(m, step, per_run, step & 1);
    }
    TRY(launched("k-means++"));
done:
    return rc;
}
