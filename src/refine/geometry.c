/* geometry.c: which linear map of the principal components lets clusters stand out.
 *
 * Dividing components by a power of their deviation (1 whitens them) brings out clusters that lie
 * in small components, but noise too.  Fisher's discriminants of the clusters that k-means finds
 * then keep the directions that tell clusters apart.  Which of these maps is best differs from
 * features to features, so all are tried, and the one whose clusters agree best with the
 * neighborhoods wins: a sign that needs no labels. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESTARTS = 4, /* of k-means */
    TRIES = 3,    /* of each power: other optima of k-means may agree better */
    ROUNDS = 2    /* of discriminants */
};
static const double powers[] = {0, 0.5, 0.75, 1};

double agreement(const int32_t *ids, int k, const int32_t *label, int64_t n, int K) {
    double same = 0, chance = 0;
    int64_t *size = calloc((size_t)K, sizeof *size);
    if (!size || k < 2) {
        free(size);
        return 0;
    }
    for (int64_t i = 0; i < n; i++) {
        size[label[i]]++;
        for (int e = 1; e < k; e++) same += label[ids[i * k + e]] == label[i];
    }
    for (int c = 0; c < K; c++) chance += pow((double)size[c] / (double)n, 2);
    free(size);
    return same / ((double)n * (k - 1)) - chance;
}

/* What is tried: its map and rows, and memory for discriminants.  Host memory. */
typedef struct trial {
    conr *c;
    float *x;           /* [n,p], components times scale */
    double *scale;      /* [p] */
    const int32_t *ids; /* [n,k] */
    int n, p, k, K;
    uint64_t seed;
    float *map, *y; /* [r,p], [n,r]: y = map x */
    int r;
    float *centroids;                   /* [K,p] */
    int32_t *label;                     /* [n] */
    float *within;                      /* [n,p]: rows minus the mean of their cluster */
    float *product;                     /* [p,p] */
    double *sw, *mean, *gram, *vectors; /* [p,p], [K,p], [K,K], [K,K] */
} trial;

/* Clusters of y = map x, and how they agree with the neighborhoods. */
static int cluster(trial *t, double *score) {
    int rc = 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = t->K, o.restarts = RESTARTS, o.seed = t->seed;
    TRY(t->c->host->op.gemm(t->c->host, false, true, t->n, t->r, t->p, 1, t->x, t->p, t->map, t->p,
                            0, t->y, t->r));
    TRY(conr_kmeans(t->c, t->y, t->n, t->r, &o, t->centroids, t->label, NULL));
    *score = agreement(t->ids, t->k, t->label, t->n, t->K);
done:
    return rc;
}

/* ---- discriminants --------------------------------------------------------------------------- */

/* Means of the clusters of x as sqrt(share) (mean - mean of all), and x minus them. */
static void split(trial *t) {
    int p = t->p, K = t->K;
    int64_t *size = (int64_t *)t->vectors; /* [K], not needed yet */
    double *all = t->gram;
    memset(t->mean, 0, (size_t)K * p * sizeof *t->mean);
    for (int c = 0; c < K; c++) size[c] = 0;
    for (int i = 0; i < t->n; i++) {
        size[t->label[i]]++;
        for (int j = 0; j < p; j++) t->mean[t->label[i] * p + j] += t->x[(size_t)i * p + j];
    }
    for (int j = 0; j < p; j++) {
        double sum = 0;
        for (int c = 0; c < K; c++) sum += t->mean[c * p + j];
        all[0] = sum / t->n;
        for (int c = 0; c < K; c++)
            t->mean[c * p + j] = size[c] ? t->mean[c * p + j] / (double)size[c] : all[0];
        for (int i = 0; i < t->n; i++)
            t->within[(size_t)i * p + j] =
                (float)(t->x[(size_t)i * p + j] - t->mean[t->label[i] * p + j]);
        for (int c = 0; c < K; c++)
            t->mean[c * p + j] =
                (t->mean[c * p + j] - all[0]) * sqrt((double)size[c] / (double)t->n);
    }
}

/* The covariance within clusters into sw, shrunk towards a multiple of the identity as Ledoit and
 * Wolf (2004) advise, so that it can be inverted. */
static int scatter(trial *t) {
    int rc = 0, p = t->p;
    double trace = 0, squares = 0, fourth = 0, n = t->n;
    device *host = t->c->host;
    TRY(host->op.gemm(host, true, false, p, p, t->n, 1, t->within, p, t->within, p, 0, t->product,
                      p));
    for (int i = 0; i < p * p; i++) {
        t->sw[i] = t->product[i] / n;
        squares += t->sw[i] * t->sw[i];
        if (i % (p + 1) == 0) trace += t->sw[i];
    }
    for (int i = 0; i < t->n; i++) {
        double length = 0;
        for (int j = 0; j < p; j++)
            length += (double)t->within[(size_t)i * p + j] * t->within[(size_t)i * p + j];
        fourth += length * length;
    }
    double level = trace / p, far = squares - p * level * level; /* of sw from level I */
    double error = (fourth / n - squares) / n;
    double shrink = far > 0 ? fmin(1, fmax(error / far, 0)) : 1;
    for (int i = 0; i < p * p; i++) t->sw[i] *= 1 - shrink;
    for (int i = 0; i < p; i++) t->sw[i * (p + 1)] += shrink * level + 1e-9 * level;
done:
    return rc;
}

/* sw = L L^T in its lower half.  False if it has no inverse. */
static bool cholesky(double *sw, int p) {
    for (int j = 0; j < p; j++)
        for (int i = j; i < p; i++) {
            double sum = sw[i * p + j];
            for (int k = 0; k < j; k++) sum -= sw[i * p + k] * sw[j * p + k];
            if (i == j && !(sum > 0)) return false;
            sw[i * p + j] = i == j ? sqrt(sum) : sum / sw[j * p + j];
        }
    return true;
}

/* Rows of the map become the directions in which the means of the clusters differ most, measured by
 * the scatter within; false if there are none.  With sw = L L^T and y = L^-1 mean, these are L^-T
 * times the principal directions of the y, which the K x K products of the y give. */
static bool discriminants(trial *t) {
    int p = t->p, K = t->K, r = 0;
    if (!cholesky(t->sw, p)) return false;
    for (int c = 0; c < K; c++) {
        double *y = t->mean + c * p;
        for (int i = 0; i < p; i++) {
            for (int k = 0; k < i; k++) y[i] -= t->sw[i * p + k] * y[k];
            y[i] /= t->sw[i * p + i];
        }
    }
    double most = 0;
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++) {
            double sum = 0;
            for (int j = 0; j < p; j++) sum += t->mean[a * p + j] * t->mean[b * p + j];
            t->gram[a * K + b] = sum;
        }
    jacobi(t->gram, K, t->vectors);
    for (int a = 0; a < K; a++) most = fmax(most, t->gram[a * (K + 1)]);
    for (int a = 0; a < K && r < K - 1 && r < p; a++) {
        double v[REFINE_COMPONENTS] = {0};
        if (!(t->gram[a * (K + 1)] > 1e-6 * most)) continue;
        for (int c = 0; c < K; c++)
            for (int j = 0; j < p; j++) v[j] += t->vectors[a * K + c] * t->mean[c * p + j];
        for (int i = p - 1; i >= 0; i--) { /* L^T x = v, then of length 1 in y */
            for (int k = i + 1; k < p; k++) v[i] -= t->sw[k * p + i] * v[k];
            v[i] /= t->sw[i * p + i];
        }
        for (int j = 0; j < p; j++)
            t->map[(size_t)r * p + j] = (float)(v[j] / sqrt(t->gram[a * (K + 1)]));
        r++;
    }
    t->r = r;
    return r > 0;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Components over their deviation to a power; the map starts as an identity. */
static void divide(trial *t, const float *x, const float *deviation, double power) {
    int p = t->p;
    t->r = p;
    memset(t->map, 0, (size_t)p * p * sizeof *t->map);
    for (int j = 0; j < p; j++) {
        t->map[j * (p + 1)] = 1;
        t->scale[j] = deviation[j] > 0 ? pow(deviation[j], -power) : 0;
    }
    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < p; j++)
            t->x[(size_t)i * p + j] = (float)(x[(size_t)i * p + j] * t->scale[j]);
}

/* The map of plain components into `map`, so that what it gives has a variance of 1 on average. */
static int keep_map(trial *t, float *map, float *deviation, int *r) {
    int rc = 0;
    double sum = 0;
    TRY(t->c->host->op.gemm(t->c->host, false, true, t->n, t->r, t->p, 1, t->x, t->p, t->map, t->p,
                            0, t->y, t->r));
    for (int j = 0; j < t->r; j++) {
        double square = 0;
        for (int i = 0; i < t->n; i++)
            square += (double)t->y[(size_t)i * t->r + j] * t->y[(size_t)i * t->r + j];
        deviation[j] = (float)sqrt(square / t->n);
        sum += square / t->n;
    }
    double by = sum > 0 ? sqrt(t->r / sum) : 1;
    for (int j = 0; j < t->r; j++) deviation[j] = (float)(deviation[j] * by);
    for (int i = 0; i < t->r * t->p; i++) map[i] = (float)(t->map[i] * by * t->scale[i % t->p]);
    *r = t->r;
done:
    return rc;
}

/* Clusters as k-means finds them, then those of their discriminants, and so on.  Where there are
 * discriminants, one of them is taken: they hold the clusters that were judged, which k-means finds
 * again from anywhere, while in all components it ends in another optimum for every seed. */
static int try_one(trial *t, double *best, float *map, float *deviation, int *r) {
    int rc = 0;
    double score;
    for (int round = 0; round <= ROUNDS; round++) {
        bool last =
            t->K < 3 || t->K > t->p || round == ROUNDS; /* two means differ in one direction */
        bool stopgap = round == 0 && !last;
        TRY(cluster(t, &score));
        if (stopgap ? *best == -INFINITY : score > *best) TRY(keep_map(t, map, deviation, r));
        if (!stopgap) *best = fmax(*best, score);
        if (last) break;
        split(t);
        TRY(scatter(t));
        if (!discriminants(t)) break;
    }
done:
    return rc;
}

static int try_all(trial *t, const float *x, const float *of_x, float *map, float *deviation,
                   int *r) {
    enum { POWERS = sizeof powers / sizeof *powers };
    int rc = 0;
    double best = -INFINITY;
    uint64_t seed = t->seed;
    for (int i = 0; i < POWERS * TRIES; i++) {
        TRY(device_report(t->c->host, "geometry", i, POWERS * TRIES));
        t->seed = seed * TRIES + (uint64_t)(i % TRIES);
        divide(t, x, of_x, powers[i / TRIES]);
        TRY(try_one(t, &best, map, deviation, r));
    }
done:
    return rc;
}

int geometry_choose(conr *c, const float *x, int64_t n, int p, const float *of_x,
                    const int32_t *ids, int k, int K, uint64_t seed, float *map, float *deviation,
                    int *r) {
    int rc = 0;
    trial t = {.c = c, .ids = ids, .n = (int)n, .p = p, .k = k, .K = K, .seed = seed};
    size_t rows = (size_t)n * p, square = (size_t)p * p, products = K > p ? 1 : (size_t)K * K;
    t.map = memory_new("geometry", square, sizeof *t.map);
    t.x = memory_new("geometry", rows, sizeof *t.x);
    t.y = memory_new("geometry", rows, sizeof *t.y);
    t.scale = memory_new("geometry", (size_t)p, sizeof *t.scale);
    TRY(t.map && t.x && t.y && t.scale ? 0 : CONR_ENOMEM);
    if (K < 2) { /* no clusters to go by */
        divide(&t, x, of_x, 0.5);
        TRY(keep_map(&t, map, deviation, r));
        goto done;
    }
    t.centroids = memory_new("geometry", (size_t)K * p, sizeof *t.centroids);
    t.label = memory_new("geometry", (size_t)n, sizeof *t.label);
    t.within = memory_new("geometry", rows, sizeof *t.within);
    t.product = memory_new("geometry", square, sizeof *t.product);
    t.sw = memory_new("geometry", square, sizeof *t.sw);
    t.mean = memory_new("geometry", (size_t)K * p, sizeof *t.mean);
    t.gram = memory_new("geometry", products, sizeof *t.gram);
    t.vectors = memory_new("geometry", products, sizeof *t.vectors);
    TRY(t.centroids && t.label && t.within && t.product && t.sw && t.mean && t.gram && t.vectors
            ? 0
            : CONR_ENOMEM);
    TRY(try_all(&t, x, of_x, map, deviation, r));
done:
    free(t.map), free(t.x), free(t.y), free(t.scale), free(t.centroids), free(t.label),
        free(t.within), free(t.product);
    free(t.sw), free(t.mean), free(t.gram), free(t.vectors);
    return rc;
}
