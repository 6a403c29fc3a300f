/* losses.c: gathered rows, losses and the boundary filter on the CPU.
 *
 * Threads divide the rows among them; dot products and exponentials run in LANES parallel sums,
 * which compilers turn into vectors.  Sums over the rows are taken in PARTS parts for any number of
 * threads, so that nothing is allocated and the bits stay the same. */
#include "device/cpu/losses.h"

#include "base/status.h"
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 16,
    PARTS = 64,
    SMALL = 16384, /* floats for which one thread is enough */
    CHUNK = 256    /* exponentials that are added up in float */
};

static int threads_for(const device *dev, size_t floats) {
    return floats < SMALL ? 1 : dev->threads;
}

static int cpu_rows_take(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                         void *to) {
#pragma omp parallel for num_threads(threads_for(dev, (size_t)n *row_bytes / 8)) schedule(static)
    for (int i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * row_bytes, (const char *)from + (size_t)ids[i] * row_bytes,
               row_bytes);
    return 0;
}

/* ---- losses ---------------------------------------------------------------------------------- */

static float dot(const float *restrict a, const float *restrict b, int d) {
    float sum[LANES] = {0};
    double all = 0;
    int j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int l = 0; l < LANES; l++) sum[l] += a[j + l] * b[j + l];
    for (; j < d; j++) all += (double)a[j] * b[j];
    for (int l = 0; l < LANES; l++) all += sum[l];
    return (float)all;
}

static void add_scaled(const float *restrict x, float by, int d, float *restrict to) {
    for (int j = 0; j < d; j++) to[j] += by * x[j];
}

/* The half batch of a loss. */
typedef struct half {
    const float *q, *key;
    int n, d;
    const int32_t *near;
    int k;
    const float *weight;
    float factor;
} half;

static const float *near_row(const half *h, int i, int e) {
    return h->key + (size_t)(h->near ? h->near[(size_t)i * h->k + e] : i) * h->d;
}

static double weight_of(const half *h, int i) {
    return (double)h->factor * (h->weight ? h->weight[i] : 1.0 / h->n) / h->k;
}

/* Returns the value of row i and writes its gradient to `to`. */
static double pull_row(const half *h, int i, float *to) {
    double each = -weight_of(h, i), value = 0;
    memset(to, 0, (size_t)h->d * sizeof *to);
    if (each == 0) return 0; /* filtered out */
    for (int e = 0; e < h->k; e++) add_scaled(near_row(h, i, e), 1, h->d, to);
    value = each * dot(h->q + (size_t)i * h->d, to, h->d);
    for (int j = 0; j < h->d; j++) to[j] *= (float)each;
    return value;
}

static int cpu_pull(device *dev, const float *q, const float *key, int n, int d,
                    const int32_t *near, int k, const float *weight, float factor, float *loss,
                    float *dq) {
    half h = {q, key, n, d, near, k, weight, factor};
    double part[PARTS] = {0}, value = 0;
#pragma omp parallel for num_threads(threads_for(dev, (size_t)n *d *k)) schedule(static)
    for (int p = 0; p < PARTS; p++)
        for (int i = (int)((int64_t)n * p / PARTS); i < (int)((int64_t)n * (p + 1) / PARTS); i++)
            part[p] += pull_row(&h, i, dq + (size_t)i * d);
    for (int p = 0; p < PARTS; p++) value += part[p];
    *loss = (float)(*loss + value);
    return 0;
}

/* e^x for x <= 0, to 2 units in the last place; 0 below -87.  No branch and no call, so that loops
 * over it vectorize. */
static inline float exp_below_zero(float x) {
    x = x > -87 ? x : -87;
    float turns = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float k = turns - 12582912.0f;
    float t = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float e = 1.0f / 5040.0f;
    e = e * t + 1.0f / 720.0f;
    e = e * t + 1.0f / 120.0f;
    e = e * t + 1.0f / 24.0f;
    e = e * t + 1.0f / 6.0f;
    e = e * t + 0.5f;
    e = e * t + 1.0f;
    e = e * t + 1.0f;
    union {
        int32_t bits;
        float value;
    } power = {.bits = ((int32_t)k + 127) << 23};
    return x > -87 ? e * power.value : 0;
}

/* l <- e^(l - most); returns their sum. */
static double exponentials(float *l, int n, float most) {
    double all = 0;
    for (int m0 = 0; m0 < n; m0 += CHUNK) {
        float sum[LANES] = {0};
        int m = m0, end = n - m0 < CHUNK ? n : m0 + CHUNK;
        for (int j = m0; j < end; j++) l[j] = exp_below_zero(l[j] - most);
        for (; m + LANES <= end; m += LANES)
            for (int x = 0; x < LANES; x++) sum[x] += l[m + x];
        for (; m < end; m++) all += l[m];
        for (int x = 0; x < LANES; x++) all += sum[x];
    }
    return all;
}

static float largest(const float *l, int n) {
    float most[LANES];
    int m = 0;
    for (int x = 0; x < LANES; x++) most[x] = -INFINITY;
    for (; m + LANES <= n; m += LANES)
        for (int x = 0; x < LANES; x++) most[x] = l[m + x] > most[x] ? l[m + x] : most[x];
    for (; m < n; m++) most[0] = l[m] > most[0] ? l[m] : most[0];
    for (int x = 1; x < LANES; x++) most[0] = most[x] > most[0] ? most[x] : most[0];
    return most[0];
}

/* The formula is in ref_losses.c.  l: the logits of row i, which become the weights of the queue
 * rows in its gradient; the part of the keys goes to `to`. */
static double contrast_row(const half *h, int i, float temperature, int size, float *l, float *to) {
    double each = weight_of(h, i), value = 0, all_away = 0;
    memset(to, 0, (size_t)h->d * sizeof *to);
    if (each == 0) {
        memset(l, 0, (size_t)size * sizeof *l);
        return 0;
    }
    float most = largest(l, size);
    double sum = exponentials(l, size, most), log_sum = most + log(sum);
    for (int e = 0; e < h->k; e++) {
        const float *other = near_row(h, i, e);
        double u = log_sum - dot(h->q + (size_t)i * h->d, other, h->d) / (double)temperature;
        double away = 1 / (1 + exp(-u));
        value += each * (u > 0 ? u + log1p(exp(-u)) : log1p(exp(u)));
        all_away += away;
        add_scaled(other, (float)(-each / temperature * away), h->d, to);
    }
    float by = (float)(each / temperature * all_away / sum);
    for (int m = 0; m < size; m++) l[m] *= by;
    return value;
}

static int cpu_contrast(device *dev, const float *q, const float *key, int n, int d,
                        const int32_t *near, int k, const float *weight, float factor,
                        const float *queue, int size, float temperature, float *logits, float *loss,
                        float *dq) {
    half h = {q, key, n, d, near, k, weight, factor};
    double part[PARTS] = {0}, value = 0;
    int rc = 0;
    TRY(gemm(dev->threads, false, true, n, size, d, 1 / temperature, q, d, queue, d, 0, logits,
             size));
#pragma omp parallel for num_threads(threads_for(dev, (size_t)n *size)) schedule(static)
    for (int p = 0; p < PARTS; p++)
        for (int i = (int)((int64_t)n * p / PARTS); i < (int)((int64_t)n * (p + 1) / PARTS); i++)
            part[p] += contrast_row(&h, i, temperature, size, logits + (size_t)i * size,
                                    dq + (size_t)i * d);
    for (int p = 0; p < PARTS; p++) value += part[p];
    *loss = (float)(*loss + value);
    TRY(gemm(dev->threads, false, false, n, d, size, 1, logits, size, queue, d, 1, dq, d));
done:
    return rc;
}

/* ---- the boundary filter --------------------------------------------------------------------- */

static double distance2(const float *restrict a, const float *restrict b, int d) {
    double sum[4] = {0};
    int j = 0;
    for (; j + 4 <= d; j += 4)
        for (int l = 0; l < 4; l++) {
            double step = (double)a[j + l] - b[j + l];
            sum[l] += step * step;
        }
    for (; j < d; j++) sum[0] += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static float boundary_ratio(const float *f, const float *centroids, int d, int K, int own) {
    double inside = 0, nearest = INFINITY;
    for (int c = 0; c < K; c++) {
        double d2 = distance2(f, centroids + (size_t)c * d, d);
        if (c == own)
            inside = sqrt(d2);
        else if (d2 < nearest)
            nearest = d2;
    }
    if (isinf(nearest)) return 0;
    nearest = sqrt(nearest);
    double larger = inside > nearest ? inside : nearest;
    return larger > 0 ? (float)(1 - (nearest - inside) / larger) : 1;
}

/* The value at index `at` if x were sorted; x is left in some other order. */
static float select_smallest(float *x, int n, int at) {
    int low = 0, high = n - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i > j) break;
            float swap = x[i];
            x[i++] = x[j];
            x[j--] = swap;
        }
        if (at <= j)
            high = j;
        else if (at >= i)
            low = i;
        else
            break;
    }
    return x[at];
}

static int cpu_boundary(device *dev, const step_values *at, const float *f, int n, int d,
                        const int32_t *ids, const int32_t *label, const float *centroids, int K,
                        bool over_batch, float *ratio, float *weight) {
    int keep = at->keep < 1 ? 1 : at->keep > n ? n : at->keep, kept = 0;
#pragma omp parallel for num_threads(threads_for(dev, (size_t)n *d *K)) schedule(static)
    for (int i = 0; i < n; i++)
        ratio[i] = boundary_ratio(f + (size_t)i * d, centroids, d, K, label[ids[i]]);
    memcpy(weight, ratio, (size_t)n * sizeof *weight);
    float sigma = select_smallest(weight, n, keep - 1);
    for (int i = 0; i < n; i++) kept += ratio[i] <= sigma;
    float each = 1.0f / (float)(over_batch ? n : kept);
    for (int i = 0; i < n; i++) weight[i] = ratio[i] <= sigma ? each : 0;
    return 0;
}

void cpu_losses(device_ops *op) {
    op->rows_take = cpu_rows_take;
    op->pull = cpu_pull;
    op->contrast = cpu_contrast;
    op->boundary = cpu_boundary;
}
