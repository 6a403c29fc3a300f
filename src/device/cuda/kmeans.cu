/* kmeans.cu: k-means on features in device memory: the entry of the table.  kmeans.cuh says which
 * file does what. */
#include "device/cuda/kmeans.cuh"

#include "base/status.h"

#include <stdlib.h>

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

/* The means of the columns as the shift (or NULL); mean variance and sum of squares.  One block. */
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

static __global__ void write_centroids(km m, int run, float *centroids) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    if (j >= m.K * m.d) return;
    centroids[j] = (float)(m.mean[(size_t)run * m.K * m.d + j] + (m.shift ? m.shift[j % m.d] : 0));
}

static __global__ void final_sum(km m) {
    __shared__ double part[BLOCK / WARP];
    double sum = 0;
    for (int b = threadIdx.x; b < m.blocks; b += BLOCK) sum += m.d2_part[b];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) m.objective[0] = sum;
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

static int prepare(device *dev, const km &m, const float *features) {
    int rc = 0;
    cudaStream_t stream = stream_of(dev);
    float *x = (float *)m.x;
    if (m.cosine) {
        TRY(dev->op.rows_normalize(dev, features, m.n, m.d, x, NULL));
    } else {
        column_parts<<<PARTS, BLOCK, 0, stream>>>(features, m.n, m.d, m.columns);
        column_totals<<<1, BLOCK, 0, stream>>>(m.columns, m.n, m.d, m.shift);
        TRY(kmeans_shift_rows(dev, features, m.n, m.d, m.shift, x, m.square));
    }
    column_parts<<<PARTS, BLOCK, 0, stream>>>(x, m.n, m.d, m.columns);
    column_totals<<<1, BLOCK, 0, stream>>>(m.columns, m.n, m.d, NULL);
    TRY(launched("k-means"));
done:
    return rc;
}

/* Centroids of the best run, and the labels they give. */
static int write_result(device *dev, const km &m, int best, float *centroids, int32_t *labels) {
    int rc = 0, most = kmeans_rows_at_once(m, m.K);
    write_centroids<<<blocks_for((size_t)m.K * m.d, BLOCK), BLOCK, 0, stream_of(dev)>>>(m, best,
                                                                                        centroids);
    TRY(launched("k-means"));
    /* once more from the centroids, which are rounded to float */
    TRY(kmeans_place_centroids(dev, m, centroids));
    for (int i = 0; i < m.n; i += most)
        TRY(kmeans_label(dev, m, i, m.n - i < most ? m.n - i : most, labels));
done:
    return rc;
}

/* The steps of all runs in order, and the objective of the labels. */
static int fill_history(device *dev, const km &m, int first, int iterations, const int32_t *ended,
                        conr_kmeans_history *h) {
    int rc = 0, steps = 0, longest = 0;
    step_record *record = NULL;
    for (int r = 0; r < m.runs; r++) {
        steps += ended[r];
        longest = ended[r] > longest ? ended[r] : longest;
    }
    h->steps = 0;
    h->step = (conr_kmeans_step *)malloc((size_t)steps * sizeof *h->step);
    record = (step_record *)malloc((size_t)longest * sizeof *record);
    if (!h->step || !record) TRY(fail_memory("k-means", (double)steps * sizeof *h->step));
    for (int r = 0; r < m.runs; r++) {
        TRY(dev->op.get(dev, record, m.record + (size_t)r * iterations,
                        (size_t)ended[r] * sizeof *record));
        for (int i = 0; i < ended[r]; i++)
            h->step[h->steps++] =
                conr_kmeans_step{first + r,           i + 1,           record[i].objective,
                                 record[i].imbalance, record[i].moved, record[i].refilled};
    }
    final_sum<<<1, BLOCK, 0, stream_of(dev)>>>(m);
    TRY(launched("k-means"));
    TRY(dev->op.get(dev, &h->objective, m.objective, sizeof(double)));
done:
    free(record);
    return rc;
}

static int kmeans(device *dev, const float *features, int n, int d, const conr_kmeans_options *o,
                  int first, float *centroids, int32_t *labels, conr_kmeans_history *history) {
    int rc = 0, best = 0;
    km m = {};
    void *memory = NULL, *start = NULL;
    int32_t *ended = NULL;
    double *objective = NULL;
    size_t start_bytes = (size_t)o->clusters * d * sizeof(float);
    m.n = n, m.d = d, m.K = o->clusters, m.runs = o->restarts + (o->start != NULL);
    m.cosine = o->metric == CONR_COSINE;
    m.trials = 2 + (int)log((double)m.K);
    m.blocks = (int)blocks_for(n, BLOCK);
    ended = (int32_t *)malloc((size_t)m.runs * sizeof *ended);
    objective = (double *)malloc((size_t)m.runs * sizeof *objective);
    if (!ended || !objective) TRY(fail_memory("k-means", (double)m.runs * sizeof *objective));
    TRY(dev->op.alloc(dev, lay_out(&m, NULL, o->iterations, o->restarts), &memory));
    lay_out(&m, (char *)memory, o->iterations, o->restarts);
    TRY(prepare(dev, m, features));
    TRY(kmeans_seed(dev, m, first, o->restarts, o->seed));
    if (o->start) {
        TRY(dev->op.alloc(dev, start_bytes, &start));
        TRY(dev->op.put(dev, start, o->start, start_bytes));
    }
    TRY(kmeans_lloyd(dev, m, o, o->restarts, (const float *)start, ended));
    TRY(dev->op.get(dev, objective, m.objective, m.runs * sizeof *objective));
    for (int r = 1; r < m.runs; r++)
        if (objective[r] < objective[best]) best = r;
    TRY(write_result(dev, m, best, centroids, labels));
    if (history) {
        history->run = first + best;
        TRY(fill_history(dev, m, first, o->iterations, ended, history));
    }
    TRY(dev->op.sync(dev));
done:
    dev->op.free(dev, start);
    dev->op.free(dev, memory);
    free(ended);
    free(objective);
    return rc;
}

void cuda_kmeans_ops(device_ops *op) {
    op->kmeans = kmeans;
    op->assign = kmeans_assign_rows;
}
