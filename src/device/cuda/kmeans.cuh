/* kmeans.cuh: what the files of k-means on the GPU share: the state of all runs, and how a center
 * is made from its mean.  src/clusters has the definition.
 *
 *     kmeans.cu           the entry of the table: memory, prepared rows, the best run, its history
 *     kmeans_seeding.cu   greedy k-means++
 *     kmeans_lloyd.cu     the iterations of all runs, until the last has ended
 *     kmeans_assign.cu    rows to the nearest centers of every run; empty clusters
 *     kmeans_nearest.cu   rows to the nearest of given centroids: assign of the table, and the
 *                         labels that k-means returns
 *
 * All runs proceed side by side: a step compares the centers of every run that still moves with all
 * rows, on tensor cores (few.cuh) if the shape allows it, else in one matrix product, [centers,
 * rows], so that neighboring threads read neighboring rows.  Choices (seeds, empty clusters, when
 * to stop) are made on the device; every few steps the host looks which runs are left and packs
 * their centers.
 *
 * The bits differ from those of the CPU (sums are taken in another order), and are the same
 * again for the same seed: sums have a fixed order, counts are integers. */
#ifndef CONR_KMEANS_CUH
#define CONR_KMEANS_CUH

#include "device/cuda/warp.cuh"

extern "C" {
#include "base/rng.h"
}

#include <math.h>
#include <string.h>

enum {
    PARTS = 256,        /* of the rows, in sums over them */
    DOTS_MOST = 1 << 28 /* elements of a matrix product; more rows take several */
};

/* What one iteration of one run leaves for the history. */
typedef struct step_record {
    double objective, imbalance;
    int32_t moved, refilled;
} step_record;

typedef struct km {
    int n, d, K, runs, trials, blocks; /* blocks: of BLOCK rows */
    bool cosine;
    const float *x;  /* [n,d]: unit rows, or rows minus the shift */
    float *square;   /* [n]: |x|^2 or, for cosine, NULL: 2 for all (clusters/points.h) */
    float *shift;    /* [d]; NULL: none */
    double *columns; /* [PARTS][2][d], then [2] = variance, squares */
    float *dots;     /* [centers, rows] */
    float *w, *half; /* [centers,d], [centers] */
    float *by;       /* [1]: w and half are this many times larger; NULL: 1 */
    double *mean;    /* [runs][K][d] */
    int32_t *label;  /* [runs][n] */
    float *own;      /* [runs][n]: squared distance to the center of the row */
    int32_t *count;  /* [runs][K], followed by moved [runs], refilled [runs] */
    float *part;     /* [PARTS][active][K][d] sums of rows */
    double *shifted; /* [runs][K][2]: squared shift, and what the cluster takes off the objective */
    int32_t *active; /* [runs]: the run in each slot */
    int32_t *done;   /* [runs]: iterations it took; 0: not ended */
    int32_t *ticket; /* [runs][2]: blocks that have finished; zero between launches */
    step_record *record; /* [runs][iterations] */
    double *objective;   /* [runs] */
    /* seeding */
    float *d2[2];    /* [runs*trials][n] each */
    double *d2_part; /* [runs*trials][blocks] */
    int32_t *row[2]; /* [runs*trials]: candidates of this step, and of the next */
    int32_t *best;   /* [runs]: the candidate that was taken last */
    int32_t *chosen; /* [runs][K] */
    rng *random;     /* [runs] */
} km;

static __device__ inline float slack(float square, float half) {
    return 2e-6f * (square + 2 * half);
}

static __device__ inline float square_at(const km &m, int i) { return m.square ? m.square[i] : 2; }

/* w and half of a center from its mean, by one block; returns |mean|^2. */
static __device__ inline double place(const km &m, const double *mean, int center, double *part) {
    double squares = 0;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x) squares += mean[j] * mean[j];
    squares = block_sum(squares, part);
    double times = m.by ? *m.by : 1;
    double by = !m.cosine ? times : squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = threadIdx.x; j < m.d; j += blockDim.x)
        m.w[(size_t)center * m.d + j] = (float)(mean[j] * by);
    if (threadIdx.x == 0) m.half[center] = m.cosine ? 0 : (float)(times * squares / 2);
    return squares;
}

/* Whether this block is the last of `all` to get here; it can then read what the others wrote (past
 * the L1 cache, which may be stale). */
static __device__ inline bool is_last(int32_t *ticket, int all) {
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

/* Takes `bytes` from base + *at on, at a multiple of 256, for the pointer at `pointer`; returns the
 * bytes taken so far.  base NULL: only counts. */
static inline size_t take(char *base, size_t *at, size_t bytes, void *pointer) {
    char *p = base + *at;
    memcpy(pointer, &p, sizeof p);
    return *at += (bytes + 255) / 256 * 256;
}

/* Rows that one matrix product with this many centers takes (kmeans_nearest.cu), and the product:
 * dots[c][i - first] = <w_c, x_i> of the rows from `first` on. */
int kmeans_rows_at_once(const km &m, int centers);
int kmeans_multiply(device *dev, const km &m, int centers, int first, int rows);

/* to = from - shift, and square = |to|^2, row by row. */
int kmeans_shift_rows(device *dev, const float *from, int n, int d, const float *shift, float *to,
                      float *square);

/* The first centers of runs first_run .. first_run + seeded - 1, as rows: m.chosen. */
int kmeans_seed(device *dev, const km &m, int first_run, int seeded, uint64_t seed);

/* All rows to the nearest centers of the runs in the first `actives` slots: m.label, m.own,
 * m.count. *asked: a bit for each kernel that has been given its shared memory; 0 before the
 * first call. */
int kmeans_assign(device *dev, const km &m, int actives, unsigned *asked);

/* Iterates all runs until each has ended.  Runs below `seeded` start at their seeds, the other at
 * start [K,d] (device).  done: [runs], host: the iterations each took. */
int kmeans_lloyd(device *dev, const km &m, const conr_kmeans_options *o, int seeded,
                 const float *start, int32_t *done);

/* Makes the K centers from centroids [K,d]; m.mean is overwritten. */
int kmeans_place_centroids(device *dev, const km &m, const float *centroids);

/* labels[first ..] of `rows` rows of m.x, and the sums of their distances by block: m.d2_part,
 * which means nothing with m.by. */
int kmeans_label(device *dev, const km &m, int first, int rows, int32_t *labels);

/* device_ops.assign */
int kmeans_assign_rows(device *dev, const float *features, int n, int d, conr_metric metric,
                       const float *centroids, int K, int32_t *labels, float *distances);

#endif
