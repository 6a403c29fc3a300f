/* ref_prototypes.c: on the reference device, what works on the clusters of a batch: prototype
 * scattering and the noise by which positives are sampled (ProPos), pulling rows of one label
 * together and the choice of confident rows (DCBoost). */
#include "device/confident.h"
#include "device/prototypes.h"
#include "device/ref.h"

/* The slots of the clusters that the batch has, and of its rows. */
static void find_present(const prototypes_room *r, const int32_t *ids, const int32_t *label) {
    *r->present = 0;
    for (int c = 0; c < r->K; c++) r->place[c] = -1;
    for (int i = 0; i < r->n; i++) {
        r->slot[i] = label[ids ? ids[i] : i];
        if (r->slot[i] >= 0) r->place[r->slot[i]] = 0;
    }
    for (int c = 0; c < r->K; c++)
        if (r->place[c] == 0) r->place[c] = (*r->present)++;
    for (int i = 0; i < r->n; i++)
        if (r->slot[i] >= 0) r->slot[i] = r->place[r->slot[i]];
}

/* The sum of each cluster's rows. */
static void add_rows(const prototypes_room *r, const float *rows, double *sum) {
    for (size_t i = 0; i < (size_t)*r->present * r->d; i++) sum[i] = 0;
    for (int i = 0; i < r->n; i++)
        for (int j = 0; r->slot[i] >= 0 && j < r->d; j++)
            sum[(size_t)r->slot[i] * r->d + j] += rows[(size_t)i * r->d + j];
}

/* Prototypes: unit rows in the direction of each cluster's sum; a zero sum stays zero. */
static void make_unit(const prototypes_room *r, const float *rows, double *unit, double *size) {
    add_rows(r, rows, unit);
    for (int c = 0; c < *r->present; c++) {
        double square = 0, *u = unit + (size_t)c * r->d;
        for (int j = 0; j < r->d; j++) square += u[j] * u[j];
        size[c] = sqrt(square);
        for (int j = 0; j < r->d; j++) u[j] = square > 0 ? u[j] / size[c] : 0;
    }
}

static double dot(const double *a, const double *b, int d) {
    double sum = 0;
    for (int j = 0; j < d; j++) sum += a[j] * b[j];
    return sum;
}

/* Row c of the shares, and the cluster's loss. */
static void make_shares(const prototypes_room *r, int c, double temperature) {
    int m = *r->present, d = r->d;
    const double *own = r->unit + (size_t)c * d, *key = own + (size_t)r->most * d;
    double *p = r->share + (size_t)c * r->most, top = -INFINITY, sum = 0;
    for (int j = 0; j < m; j++) {
        p[j] = dot(own, j == c ? key : r->unit + (size_t)j * d, d) / temperature;
        if (p[j] > top) top = p[j];
    }
    for (int j = 0; j < m; j++) sum += exp(p[j] - top);
    r->value[c] = top + log(sum) - p[c];
    for (int j = 0; j < m; j++) p[j] = exp(p[j] - top) / sum - (j == c);
}

/* dL/dQ_c, then through the scaling to length 1. */
static void make_gradient(const prototypes_room *r, int c, double scale) {
    int m = *r->present, d = r->d;
    const double *own = r->unit + (size_t)c * d, *key = own + (size_t)r->most * d;
    const double *p = r->share + (size_t)c * r->most;
    double *g = r->gradient + (size_t)c * d, along;
    for (int j = 0; j < d; j++) g[j] = p[c] * key[j];
    for (int e = 0; e < m; e++) {
        double by = p[e] + r->share[(size_t)e * r->most + c];
        for (int j = 0; e != c && j < d; j++) g[j] += by * r->unit[(size_t)e * d + j];
    }
    along = dot(g, own, d);
    for (int j = 0; j < d; j++)
        g[j] = r->size[c] > 0 ? scale * (g[j] - along * own[j]) / r->size[c] : 0;
}

static int scatter(device *dev, const float *rows, const float *key, int n, int d,
                   const int32_t *ids, const int32_t *label, int K, float temperature, float factor,
                   void *work, float *loss, float *drows) {
    (void)dev;
    prototypes_room r;
    double value = 0;
    prototypes_plan(n, d, K, work, &r);
    find_present(&r, ids, label);
    int m = *r.present;
    for (size_t i = 0; i < (size_t)n * d; i++) drows[i] = 0;
    if (m < 2) return 0;
    make_unit(&r, rows, r.unit, r.size);
    make_unit(&r, key, r.unit + (size_t)r.most * d, r.size + r.most);
    for (int c = 0; c < m; c++) make_shares(&r, c, temperature);
    for (int c = 0; c < m; c++) {
        make_gradient(&r, c, (double)factor / m / temperature);
        value += r.value[c];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; r.slot[i] >= 0 && j < d; j++)
            drows[(size_t)i * d + j] = (float)r.gradient[(size_t)r.slot[i] * d + j];
    *loss = (float)(*loss + (double)factor * value / m);
    return 0;
}

static int pull_alike(device *dev, const float *q, const float *key, int n, int d,
                      const int32_t *label, int K, float factor, void *work, float *loss,
                      float *dq) {
    (void)dev;
    prototypes_room r;
    prototypes_plan(n, d, K, work, &r);
    find_present(&r, NULL, label);
    double *keys = r.unit + (size_t)r.most * d, value = 0;
    int m = *r.present;
    add_rows(&r, q, r.unit);
    add_rows(&r, key, keys);
    for (int c = 0; c < m; c++) r.size[c] = 0;
    for (int i = 0; i < n; i++)
        if (r.slot[i] >= 0) r.size[r.slot[i]]++;
    for (int c = 0; c < m; c++) {
        size_t at = (size_t)c * d;
        r.size[c] = -(double)factor / m / (r.size[c] * r.size[c]); /* of each pair */
        value += r.size[c] * dot(r.unit + at, keys + at, d);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; r.slot[i] >= 0 && j < d; j++)
            dq[(size_t)i * d + j] = (float)(dq[(size_t)i * d + j] +
                                            r.size[r.slot[i]] * keys[(size_t)r.slot[i] * d + j]);
    *loss = (float)(*loss + value);
    return 0;
}

/* r_i of the definition, from row i of the products. */
static int agreeing(const float *s, int n, int i, const int32_t *ids, const int32_t *label,
                    int most) {
    int other = -1, count = 0; /* the first that has another label */
    for (int j = 0; j < n; j++)
        if (label[ids[j]] != label[ids[i]] && (other < 0 || s[j] > s[other])) other = j;
    for (int j = 0; j < n; j++)
        count += j != i && label[ids[j]] == label[ids[i]] &&
                 (other < 0 || s[j] > s[other] || (s[j] == s[other] && j < other));
    return count < most ? count : most;
}

static int choose_confident(device *dev, const float *f, int n, int d, const int32_t *ids,
                            const int32_t *label, int most, void *work, int32_t *kept) {
    int rc = dev->op.gemm(dev, false, true, n, n, d, 1, f, d, f, d, 0, work, n);
    confident_room r;
    int64_t best = -1;
    int k = 1, count[CONFIDENT_MOST + 1] = {0}; /* rows with this r */
    if (rc < 0) return rc;
    confident_plan(n, work, &r);
    for (int i = 0; i < n; i++)
        count[r.agree[i] = agreeing(r.product + (size_t)i * n, n, i, ids, label, most)]++;
    for (int x = most, left = 0; x >= 1; x--) {
        left += count[x];
        if ((int64_t)x * left >= best) best = (int64_t)x * left, k = x;
    }
    for (int i = 0; i < n; i++) kept[i] = r.agree[i] >= k ? label[ids[i]] : -1;
    return 0;
}

static int add_noise(device *dev, const step_values *at, uint64_t seed, float sigma, int first,
                     int n, int d, act *x_) {
    (void)dev;
    float *x = (float *)x_, by[4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) {
            if (j % 4 == 0) noise_at(seed, at->step, (uint32_t)(first + i), (uint32_t)j / 4, by);
            x[(size_t)i * d + j] += sigma * by[j % 4];
        }
    return 0;
}

void ref_prototypes(device_ops *op) {
    op->prototypes = scatter;
    op->noise = add_noise;
    op->pull_alike = pull_alike;
    op->confident = choose_confident;
}
