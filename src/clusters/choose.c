/* choose.c: how many clusters there are, by the eigengap of the neighbor graph.
 *
 * Take the graph that joins each row to its nearest ones, and the eigenvalues 1 = l_1 >= l_2 >= ...
 * of its normalized adjacency D^-1/2 A D^-1/2.  K clusters without a path between them give exactly
 * K ones; K clusters with few paths give K values near 1 and then a drop (von Luxburg 2007).  Drops
 * grow by themselves further down the spectrum, so each is seen relative to how far from 1 it
 * leads: K is where (l_K - l_(K+1)) / (1 - l_(K+1) + FAR) is largest.  docs/choosing-k.md compares
 * this with silhouette, gap statistic and BIC.
 *
 * The eigenvalues come from a block of vectors that is multiplied by a Chebyshev polynomial of the
 * matrix, small where the unwanted eigenvalues lie, until it has turned into their space (Zhou &
 * Saad 2007).  A block, since equal eigenvalues are the very case in question. */
#include "clusters/points.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "conr_context.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 3000,  /* rows that are looked at, at most */
    NEAREST = 15,   /* of each row, itself included */
    DEGREE = 10,    /* of the polynomial */
    GUARD = 8,      /* vectors beyond those asked for: they let the last of these converge */
    MAX_ROUNDS = 60 /* usual are 10 to 20 */
};

#define FAR 0.05 /* what counts as nothing: without it, any two groups without a path would win */

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct graph {
    int n;
    int *start;    /* [n+1] */
    int *to;       /* neighbors of row i: to[start[i]] .. */
    double *value; /* of D^-1/2 A D^-1/2 */
} graph;

static void graph_free(graph *g) { free(g->start), free(g->to), free(g->value); }

/* joined: [n,n], 1 where there is an edge; symmetric, none from a row to itself. */
static int graph_make(const unsigned char *joined, int n, graph *g) {
    int edges = 0;
    *g = (graph){.n = n, .start = calloc((size_t)n + 1, sizeof *g->start)};
    if (!g->start) return fail_memory("clusters", 4.0 * n);
    for (size_t at = 0; at < (size_t)n * n; at++) edges += joined[at];
    g->to = memory_new("clusters", (size_t)edges, sizeof *g->to);
    g->value = memory_new("clusters", (size_t)edges, sizeof *g->value);
    if (!g->to || !g->value) return CONR_ENOMEM;
    edges = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            if (joined[(size_t)i * n + j]) g->to[edges++] = j;
        g->start[i + 1] = edges;
    }
    for (int i = 0; i < n; i++)
        for (int e = g->start[i]; e < g->start[i + 1]; e++) {
            int j = g->to[e];
            double degrees =
                (double)(g->start[i + 1] - g->start[i]) * (g->start[j + 1] - g->start[j]);
            g->value[e] = 1 / sqrt(degrees);
        }
    return 0;
}

/* Joins each of the points with its nearest ones. */
static int graph_of_points(device *dev, const points *p, graph *g) {
    int rc = 0, n = p->n, k = n < NEAREST ? n : NEAREST;
    float *score = memory_new("clusters", (size_t)n * n, sizeof *score);
    int32_t *ids = memory_new("clusters", (size_t)n * k, sizeof *ids);
    unsigned char *joined = calloc((size_t)n * n, 1);
    TRY(score && ids ? 0 : CONR_ENOMEM);
    TRY(joined ? 0 : fail_memory("clusters", (double)n * n));
    TRY(dev->op.gemm(dev, false, true, n, n, p->d, 1, p->x, p->d, p->x, p->d, 0, score, n));
    for (int i = 0; p->metric == CONR_EUCLIDEAN && i < n; i++)
        for (int j = 0; j < n; j++) score[(size_t)i * n + j] -= p->square[j] / 2;
    TRY(dev->op.top_k(dev, score, n, n, n, 0, k, ids, NULL));
    for (int i = 0; i < n; i++)
        for (int at = 1; at < k; at++) {
            int j = ids[(size_t)i * k + at];
            joined[(size_t)i * n + j] = joined[(size_t)j * n + i] = 1;
        }
    TRY(graph_make(joined, n, g));
done:
    free(score), free(ids), free(joined);
    return rc;
}

/* ---- its largest eigenvalues ----------------------------------------------------------------- */

/* y = (A x - center x) * by - minus, or without the last where minus is NULL; all [n] */
static void multiply(const graph *g, const double *x, double center, double by, const double *minus,
                     double *y) {
    for (int i = 0; i < g->n; i++) {
        double sum = 0;
        for (int e = g->start[i]; e < g->start[i + 1]; e++) sum += g->value[e] * x[g->to[e]];
        y[i] = (sum - center * x[i]) * by - (minus ? minus[i] : 0);
    }
}

/* x <- T_DEGREE of A with [-1, high] mapped to [-1, 1]: grows above high alone.  work: [2,n] */
static void filter(const graph *g, double high, double *x, double *work) {
    double center = (high - 1) / 2, half = (high + 1) / 2;
    double *before = work, *now = work + g->n;
    memcpy(before, x, (size_t)g->n * sizeof *x);
    multiply(g, before, center, 1 / half, NULL, now);
    for (int step = 2; step <= DEGREE; step++) {
        multiply(g, now, center, 2 / half, before, x);
        memcpy(before, now, (size_t)g->n * sizeof *x);
        memcpy(now, x, (size_t)g->n * sizeof *x);
    }
}

static double dot(const double *a, const double *b, int n) {
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int l = 0; l < 4; l++) sum[l] += a[i + l] * b[i + l];
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Gram-Schmidt, each vector twice; one that vanishes is drawn anew.  x: [b,n] */
static void make_orthogonal(double *x, int b, int n, rng *r) {
    for (int v = 0; v < b; v++) {
        double *own = x + (size_t)v * n, size = sqrt(dot(own, own, n)), left = 0;
        for (int tries = 0; tries < 4 && !(left > 1e-8); tries++) {
            if (tries > 0 || !(size > 0)) {
                for (int i = 0; i < n; i++) own[i] = rng_normal(r);
                size = sqrt(dot(own, own, n));
            }
            for (int i = 0; i < n; i++) own[i] /= size;
            for (int pass = 0; pass < 2; pass++)
                for (int u = 0; u < v; u++) {
                    double along = dot(x + (size_t)u * n, own, n);
                    for (int i = 0; i < n; i++) own[i] -= along * x[(size_t)u * n + i];
                }
            left = sqrt(dot(own, own, n));
        }
        for (int i = 0; i < n && left > 0; i++) own[i] /= left;
    }
}

/* Turns rows p and q of a symmetric matrix so that a[p,q] becomes 0 (Jacobi); v turns along. */
static void rotate(double *a, double *v, int b, int p, int q) {
    double off = a[p * b + q], theta = (a[q * b + q] - a[p * b + p]) / (2 * off);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int i = 0; i < b; i++) {
        double x = a[i * b + p], y = a[i * b + q];
        a[i * b + p] = c * x - s * y, a[i * b + q] = s * x + c * y;
    }
    for (int i = 0; i < b; i++) {
        double x = a[p * b + i], y = a[q * b + i];
        a[p * b + i] = c * x - s * y, a[q * b + i] = s * x + c * y;
        x = v[p * b + i], y = v[q * b + i];
        v[p * b + i] = c * x - s * y, v[q * b + i] = s * x + c * y;
    }
}

/* Eigenvectors of a symmetric matrix into the rows of v; a ends diagonal.  a, v: [b,b] */
static void jacobi(double *a, double *v, int b) {
    for (int i = 0; i < b * b; i++) v[i] = i % (b + 1) == 0;
    for (int sweep = 0; sweep < 30; sweep++) {
        double off = 0;
        for (int p = 0; p < b; p++)
            for (int q = p + 1; q < b; q++) off += a[p * b + q] * a[p * b + q];
        if (off < 1e-20) break;
        for (int p = 0; p < b; p++)
            for (int q = p + 1; q < b; q++)
                if (fabs(a[p * b + q]) > 1e-300) rotate(a, v, b, p, q);
    }
}

typedef struct block {
    int b;
    double *x, *work;     /* [b,n] each; work has [2,n] per thread behind it */
    double *small, *turn; /* [b,b] */
    double *value;        /* [b], descending */
} block;

/* The best eigenvalues that the space of x has to offer (Rayleigh-Ritz); x turns to their vectors.
 */
static void best_values(const device *dev, const graph *g, block *k) {
    int b = k->b, n = g->n;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int u = 0; u < b; u++)
        multiply(g, k->x + (size_t)u * n, 0, 1, NULL, k->work + (size_t)u * n);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int u = 0; u < b; u++)
        for (int v = 0; v < b; v++)
            k->small[u * b + v] = dot(k->x + (size_t)u * n, k->work + (size_t)v * n, n);
    for (int u = 0; u < b; u++) /* symmetric to the last bit */
        for (int v = 0; v < u; v++) k->small[v * b + u] = k->small[u * b + v];
    jacobi(k->small, k->turn, b);
    for (int place = 0; place < b; place++) { /* the largest first */
        int best = place;
        for (int v = place + 1; v < b; v++)
            if (k->small[v * b + v] > k->small[best * b + best]) best = v;
        double value = k->small[best * b + best];
        k->small[best * b + best] = k->small[place * b + place];
        k->small[place * b + place] = k->value[place] = value;
        for (int v = 0; v < b; v++) {
            double swap = k->turn[best * b + v];
            k->turn[best * b + v] = k->turn[place * b + v];
            k->turn[place * b + v] = swap;
        }
    }
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int u = 0; u < b; u++)
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int v = 0; v < b; v++) sum += k->turn[u * b + v] * k->x[(size_t)v * n + i];
            k->work[(size_t)u * n + i] = sum;
        }
    memcpy(k->x, k->work, (size_t)b * n * sizeof *k->x);
}

/* The `count` largest eigenvalues, descending, to about 1e-5. */
static int eigenvalues(const device *dev, const graph *g, int count, uint64_t seed, double *out) {
    int rc = 0, n = g->n, b = count + GUARD < n ? count + GUARD : n;
    rng r = rng_at(seed, 0, 1, RNG_KMEANS);
    block k = {.b = b};
    k.x = memory_new("clusters", (size_t)b * n, sizeof *k.x);
    k.work = memory_new("clusters", (size_t)(b + 2 * dev->threads) * n, sizeof *k.work);
    k.small = memory_new("clusters", (size_t)b * b, sizeof *k.small);
    k.turn = memory_new("clusters", (size_t)b * b, sizeof *k.turn);
    k.value = memory_new("clusters", (size_t)b, sizeof *k.value);
    TRY(k.x && k.work && k.small && k.turn && k.value ? 0 : CONR_ENOMEM);
    for (size_t at = 0; at < (size_t)b * n; at++) k.x[at] = rng_normal(&r);
    for (int v = 0; v < count; v++) out[v] = 0;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        make_orthogonal(k.x, b, n, &r);
        best_values(dev, g, &k);
        double change = 0;
        for (int v = 0; v < count; v++) {
            change = fabs(k.value[v] - out[v]) > change ? fabs(k.value[v] - out[v]) : change;
            out[v] = k.value[v];
        }
        if (b == n || change < 1e-5) break;
        double high = k.value[b - 1] > -0.5 ? k.value[b - 1] : -0.5;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
        for (int v = 0; v < b; v++)
            filter(g, high, k.x + (size_t)v * n,
                   k.work + (size_t)(b + 2 * omp_get_thread_num()) * n);
    }
done:
    free(k.x), free(k.work), free(k.small), free(k.turn), free(k.value);
    return rc;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Some of the rows as points; *p is released by points_free. */
static int sample_points(device *dev, const float *features, int n, int d,
                         const conr_kmeans_options *o, points *p) {
    int rc = 0, m = n < SAMPLE ? n : SAMPLE;
    rng_order order = rng_order_make(o->seed, 0, (uint32_t)n);
    float *rows = memory_new("clusters", (size_t)m * d, sizeof *rows);
    float *shift = calloc((size_t)d, sizeof *shift);
    TRY(rows && shift ? 0 : CONR_ENOMEM);
    for (int i = 0; i < m; i++) {
        size_t from = n == m ? (size_t)i : rng_order_at(&order, (uint32_t)i);
        memcpy(rows + (size_t)i * d, features + from * d, (size_t)d * sizeof *rows);
    }
    for (int j = 0; j < d; j++) {
        double sum = 0;
        for (int i = 0; i < m; i++) sum += rows[(size_t)i * d + j];
        shift[j] = (float)(sum / m);
    }
    TRY(points_make(dev, rows, m, d, o->metric, shift, p));
done:
    free(rows), free(shift);
    return rc;
}

int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, int low, int high, int *chosen,
                         double *score) {
    int rc = 0;
    points p = {0};
    graph g = {0};
    double *value = NULL, best = 0;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    int rows = n < SAMPLE ? (int)n : SAMPLE;
    if (low < 1 || high < low || low > rows)
        return fail(CONR_EINVAL, "clusters: range %d-%d of %d rows; give 1 <= low <= high <= rows",
                    low, high, rows);
    int last = high < rows - 1 ? high : rows - 1; /* K = rows has no eigenvalue behind it */
    for (int K = low; score && K <= high; K++) score[K - low] = -INFINITY;
    *chosen = low;
    if (last < low) return 0;
    value = memory_new("clusters", (size_t)last + 1, sizeof *value);
    TRY(value ? 0 : CONR_ENOMEM);
    TRY(sample_points(c->host, features, (int)n, (int)d, o, &p));
    TRY(graph_of_points(c->host, &p, &g));
    TRY(eigenvalues(c->host, &g, last + 1, o->seed, value));
    for (int K = low; K <= last; K++) {
        double drop = value[K - 1] - value[K];
        if (K > 1) drop /= 1 - value[K] + FAR; /* K = 1 has nothing above it to compare with */
        if (score) score[K - low] = drop;
        if (K == low || drop > best) best = drop, *chosen = K;
    }
done:
    points_free(&p);
    graph_free(&g);
    free(value);
    return rc;
}
