/* ref_losses.c: the reference for the losses and the boundary filter of a half batch. */
#include "device/ref.h"

#include <math.h>

static double dot(const float *a, const float *b, int d) {
    double sum = 0;
    for (int j = 0; j < d; j++) sum += (double)a[j] * b[j];
    return sum;
}

/* The row of key that is neighbor e of row i. */
static const float *near_row(const float *key, int d, const int32_t *near, int k, int i, int e) {
    return key + (size_t)(near ? near[(size_t)i * k + e] : i) * d;
}

static int ref_pull(device *dev, const float *q, const float *key, int n, int d,
                    const int32_t *near, int k, const float *weight, float factor, float *loss,
                    float *dq) {
    (void)dev;
    double value = 0;
    for (int i = 0; i < n; i++) {
        double each = -(double)factor * (weight ? weight[i] : 1.0 / n) / k;
        for (int e = 0; e < k; e++)
            value += each * dot(q + (size_t)i * d, near_row(key, d, near, k, i, e), d);
        for (int j = 0; j < d; j++) {
            double sum = 0;
            for (int e = 0; e < k; e++) sum += near_row(key, d, near, k, i, e)[j];
            dq[(size_t)i * d + j] = (float)(each * sum);
        }
    }
    *loss = (float)(*loss + value);
    return 0;
}

/* With Z = sum_m e^l_im and u = log Z - s_ij a term is log(1 + e^u).  Its derivatives are
 *   by s_ij   -away
 *   by l_im    away * e^l_im / Z
 * where away = 1 / (1 + e^-u) = 1 - e^s/(e^s + Z). */
static int ref_contrast(device *dev, const float *q, const float *key, int n, int d,
                        const int32_t *near, int k, const float *weight, float factor,
                        const float *queue, int size, float temperature, float *logits, float *loss,
                        float *dq) {
    (void)dev;
    double value = 0;
    for (int i = 0; i < n; i++) {
        const float *own = q + (size_t)i * d;
        float *to = dq + (size_t)i * d, *l = logits + (size_t)i * size;
        double each = (double)factor * (weight ? weight[i] : 1.0 / n) / k;
        double most = -INFINITY, sum = 0, all_away = 0;
        for (int m = 0; m < size; m++) {
            l[m] = (float)(dot(own, queue + (size_t)m * d, d) / temperature);
            if (l[m] > most) most = l[m];
        }
        for (int m = 0; m < size; m++) sum += exp(l[m] - most);
        double log_sum = most + log(sum);
        for (int j = 0; j < d; j++) to[j] = 0;
        for (int e = 0; e < k; e++) {
            const float *other = near_row(key, d, near, k, i, e);
            double u = log_sum - dot(own, other, d) / temperature, away = 1 / (1 + exp(-u));
            value += each * (u > 0 ? u + log1p(exp(-u)) : log1p(exp(u)));
            all_away += away;
            for (int j = 0; j < d; j++) to[j] -= (float)(each / temperature * away * other[j]);
        }
        for (int m = 0; m < size; m++) l[m] = (float)exp(l[m] - log_sum);
        for (int j = 0; j < d; j++) {
            double pushed = 0;
            for (int m = 0; m < size; m++) pushed += (double)l[m] * queue[(size_t)m * d + j];
            to[j] += (float)(each / temperature * all_away * pushed);
        }
    }
    *loss = (float)(*loss + value);
    return 0;
}

/* The ratio r of the distances to the own centroid and to the nearest other one. */
static float boundary_ratio(const float *f, const float *centroids, int d, int K, int own) {
    double inside = 0, nearest = INFINITY;
    for (int c = 0; c < K; c++) {
        double sum = 0;
        for (int j = 0; j < d; j++) {
            double step = (double)f[j] - centroids[(size_t)c * d + j];
            sum += step * step;
        }
        if (c == own)
            inside = sqrt(sum);
        else if (sqrt(sum) < nearest)
            nearest = sqrt(sum);
    }
    if (isinf(nearest)) return 0;
    double larger = inside > nearest ? inside : nearest;
    return larger > 0 ? (float)(1 - (nearest - inside) / larger) : 1;
}

static int ref_boundary(device *dev, const step_values *at, const float *f, int n, int d,
                        const int32_t *ids, const int32_t *label, const float *centroids, int K,
                        bool over_batch, float *ratio, float *weight) {
    (void)dev;
    int kept = 0;
    float sigma = INFINITY; /* the smallest ratio that at least `keep` rows do not exceed */
    for (int i = 0; i < n; i++)
        ratio[i] = boundary_ratio(f + (size_t)i * d, centroids, d, K, label[ids[i]]);
    for (int i = 0; i < n; i++) {
        int below = 0;
        for (int j = 0; j < n; j++) below += ratio[j] <= ratio[i];
        if (below >= at->keep && ratio[i] < sigma) sigma = ratio[i];
    }
    for (int i = 0; i < n; i++) kept += ratio[i] <= sigma;
    for (int i = 0; i < n; i++)
        weight[i] = ratio[i] <= sigma ? 1.0f / (float)(over_batch ? n : kept) : 0;
    return 0;
}

void ref_losses(device_ops *op) {
    op->pull = ref_pull;
    op->contrast = ref_contrast;
    op->boundary = ref_boundary;
}
