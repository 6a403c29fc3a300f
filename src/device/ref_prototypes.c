/* ref_prototypes.c: ProPos on the reference device: prototype scattering, and the noise by which
 * positives are sampled. */
#include "device/prototypes.h"
#include "device/ref.h"

/* The slots of the clusters that the batch has, and of its rows. */
static void find_present(const prototypes_room *r, const int32_t *ids, const int32_t *label) {
    *r->present = 0;
    for (int c = 0; c < r->K; c++) r->place[c] = -1;
    for (int i = 0; i < r->n; i++) r->place[label[ids[i]]] = 0;
    for (int c = 0; c < r->K; c++)
        if (r->place[c] == 0) r->place[c] = (*r->present)++;
    for (int i = 0; i < r->n; i++) r->slot[i] = r->place[label[ids[i]]];
}

/* Prototypes: unit rows in the direction of each cluster's sum; a zero sum stays zero. */
static void make_unit(const prototypes_room *r, const float *rows, double *unit, double *size) {
    for (size_t i = 0; i < (size_t)*r->present * r->d; i++) unit[i] = 0;
    for (int i = 0; i < r->n; i++)
        for (int j = 0; j < r->d; j++)
            unit[(size_t)r->slot[i] * r->d + j] += rows[(size_t)i * r->d + j];
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
        for (int j = 0; j < d; j++)
            drows[(size_t)i * d + j] = (float)r.gradient[(size_t)r.slot[i] * d + j];
    *loss = (float)(*loss + (double)factor * value / m);
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
}
