/* kmeans_nearest.cu: rows to the nearest of given centroids: matrix products, labels, distances. */
#include "device/cuda/kmeans.cuh"

#include "base/status.h"

/* Elements of a matrix product, and of the rows prepared for it, when rows are assigned. */
enum { ASSIGN_MOST = 1 << 24 };

int kmeans_multiply(device *dev, const km &m, int centers, int first, int rows) {
    return dev->op.gemm(dev, false, true, centers, rows, m.d, 1, m.w, m.d,
                        m.x + (size_t)first * m.d, m.d, 0, m.dots, rows);
}

int kmeans_rows_at_once(const km &m, int centers) {
    int rows = DOTS_MOST / (centers > 0 ? centers : 1) / BLOCK * BLOCK;
    rows = rows < BLOCK ? BLOCK : rows;
    return rows < m.n ? rows : m.n;
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

int kmeans_shift_rows(device *dev, const float *from, int n, int d, const float *shift, float *to,
                      float *square) {
    shift_rows<<<blocks_for(n, BLOCK / WARP), BLOCK, 0, stream_of(dev)>>>(from, n, d, shift, to,
                                                                          square);
    return launched("k-means");
}

static __global__ void place_centroids(km m, const float *centroids) {
    __shared__ double part[WARP];
    double *mean = m.mean + (size_t)blockIdx.x * m.d; /* free by now */
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

int kmeans_place_centroids(device *dev, const km &m, const float *centroids) {
    place_centroids<<<m.K, BLOCK, 0, stream_of(dev)>>>(m, centroids);
    return launched("k-means");
}

int kmeans_label(device *dev, const km &m, int first, int rows, int32_t *labels) {
    int rc = 0;
    TRY(kmeans_multiply(dev, m, m.K, first, rows));
    final_labels<<<blocks_for(rows, BLOCK), BLOCK, 0, stream_of(dev)>>>(m, first, rows, labels);
    TRY(launched("k-means"));
done:
    return rc;
}

/* ---- assign of the table --------------------------------------------------------------------- */

/* The mean of the centroids, summed in the same order as on the host. */
static __global__ void middle(const float *rows, int n, int d, float *out) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    if (j >= d) return;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += rows[(size_t)i * d + j];
    out[j] = (float)(sum / n);
}

/* Centroids so close together that squares of their differences vanish in float: the power of two
 * that makes them about 1 apart; else 1, and ordinary values keep their bits.  Only the centers are
 * scaled: a score is then this many times larger, for every center alike, and rows may lie anywhere.
 * One block. */
static __global__ void scale_centers(const float *centroids, int K, int d, const float *shift,
                                     float *by) {
    __shared__ float part[BLOCK];
    float apart = 0;
    for (size_t i = threadIdx.x; i < (size_t)K * d; i += BLOCK)
        apart = fmaxf(apart, fabsf(centroids[i] - shift[i % d]));
    part[threadIdx.x] = apart;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    int up = 0;
    if (part[0] > 0 && part[0] < 0x1p-40f) frexpf(part[0], &up);
    *by = ldexpf(1, up < -120 ? 120 : -up);
}

/* One warp per row. */
static __global__ void label_distances(km m, int rows, const int32_t *labels, float *distances) {
    int i = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
    if (i >= rows) return;
    const float *x = m.x + (size_t)i * m.d, *w = m.w + (size_t)labels[i] * m.d;
    double sum = 0, by = m.by ? 1 / (double)*m.by : 1;
    for (int j = threadIdx.x % WARP; j < m.d; j += WARP) {
        double step = (double)x[j] - by * w[j];
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
    if (!m->cosine) take(base, &at, sizeof(float), &m->by);
    take(base, &at, K * n * sizeof(float), &m->dots);
    take(base, &at, K * d * sizeof(float), &m->w);
    take(base, &at, K * sizeof(float), &m->half);
    take(base, &at, K * d * sizeof(double), &m->mean);
    return take(base, &at, m->blocks * sizeof(double), &m->d2_part);
}

/* Labels and distances of up to m.n rows from `features` on, which are shifted or scaled first. */
static int assign_some(device *dev, const km &m, const float *features, int rows, int32_t *labels,
                       float *distances) {
    int rc = 0;
    float *x = (float *)m.x;
    if (m.cosine)
        TRY(dev->op.rows_normalize(dev, features, rows, m.d, x, NULL));
    else
        TRY(kmeans_shift_rows(dev, features, rows, m.d, m.shift, x, m.square));
    TRY(kmeans_label(dev, m, 0, rows, labels));
    if (distances)
        label_distances<<<blocks_for(rows, BLOCK / WARP), BLOCK, 0, stream_of(dev)>>>(
            m, rows, labels, distances);
    TRY(launched("assign"));
done:
    return rc;
}

/* As on the host, both sides are shifted by the mean of the centroids, so that the label of a row
 * depends only on the row and on them. */
int kmeans_assign_rows(device *dev, const float *features, int n, int d, conr_metric metric,
                       const float *centroids, int K, int32_t *labels, float *distances) {
    int rc = 0, most = ASSIGN_MOST / (K > d ? K : d) / BLOCK * BLOCK;
    km m = {};
    void *memory;
    most = most < BLOCK ? BLOCK : most;
    m.n = most < n ? most : n, m.d = d, m.K = K;
    m.cosine = metric == CONR_COSINE;
    m.blocks = (int)blocks_for(m.n, BLOCK);
    TRY(dev->op.work(dev, lay_out_assign(&m, NULL), &memory));
    lay_out_assign(&m, (char *)memory);
    if (!m.cosine) {
        middle<<<blocks_for(d, BLOCK), BLOCK, 0, stream_of(dev)>>>(centroids, K, d, m.shift);
        scale_centers<<<1, BLOCK, 0, stream_of(dev)>>>(centroids, K, d, m.shift, m.by);
        TRY(launched("assign"));
    }
    TRY(kmeans_place_centroids(dev, m, centroids));
    for (int i = 0; i < n; i += m.n)
        TRY(assign_some(dev, m, features + (size_t)i * d, n - i < m.n ? n - i : m.n, labels + i,
                        distances ? distances + i : NULL));
done:
    return rc;
}
