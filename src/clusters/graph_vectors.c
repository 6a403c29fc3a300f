/* graph_vectors.c: the leading eigenvectors of M = D^-1/2 W D^-1/2, by subspace iteration with
 * Chebyshev filters (Zhou, Saad, Tiago & Chelikowsky 2006).
 *
 * A block of a few more vectors than wanted is multiplied by a polynomial of M that is small on
 * [-1, cut] and grows fast above; cut is the smallest Ritz value of the block so far.  Then
 * the block is made orthonormal and rotated to its Ritz vectors.  The leading eigenvalues of
 * neighbor graphs are .99 and more, a thousandth apart: powers of M would need thousands of
 * products, the polynomials need a few hundred.  A product reads each edge once for 16 vectors at a
 * time, whose values of a row are one cache line.
 *
 * Values are floats, sums over rows are doubles, added in PARTS parts of fixed size: the same bits
 * for any number of threads. */
#include "clusters/graph.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/quad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 6,    /* vectors beyond those wanted, at least */
    PARTS = 64,   /* of the rows, whose sums are added one after the other */
    ROUNDS = 60,  /* of filter and rotation, at most */
    DEGREE = 200, /* of a filter, at most */
    SWEEPS = 60   /* of Jacobi rotations, at most */
};

#define GROWTH 8.0 /* the logarithm of what a filter may multiply: floats must hold all of it */
/* Residuals of the wanted vectors at the end, in units of 1 - cut, the range of their eigenvalues;
 * and the least that floats can reach. */
#define SHARP 2e-3
#define FLOOR 2e-6

typedef struct block { /* vectors, row by row */
    const graph *g;
    float *m; /* [edges]: the elements of M */
    int n, count, pitch;
    int threads;
    double *part; /* [PARTS][count,count] */
} block;

/* ---- small matrices -------------------------------------------------------------------------- */

/* The eigenvalues of a symmetric matrix a [n,n], descending, and its eigenvectors, the columns of v
 * [n,n], by Jacobi's rotations.  a is overwritten; order: [n], scratch */
static void jacobi(double *a, int n, double *value, double *v, int *order) {
    double size = 0;
    for (int i = 0; i < n * n; i++) size += a[i] * a[i], v[i] = i / n == i % n;
    double tiny = 1e-15 * sqrt(size);
    for (int sweep = 0, turned = 1; sweep < SWEEPS && turned; sweep++) {
        turned = 0;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) {
                double apq = a[p * n + q];
                if (fabs(apq) <= tiny) continue;
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                turned = 1;
                for (int i = 0; i < n; i++) {
                    double x = a[i * n + p], y = a[i * n + q];
                    a[i * n + p] = c * x - s * y, a[i * n + q] = s * x + c * y;
                }
                for (int i = 0; i < n; i++) {
                    double x = a[p * n + i], y = a[q * n + i];
                    a[p * n + i] = c * x - s * y, a[q * n + i] = s * x + c * y;
                    x = v[i * n + p], y = v[i * n + q];
                    v[i * n + p] = c * x - s * y, v[i * n + q] = s * x + c * y;
                }
            }
    }
    for (int i = 0; i < n; i++) { /* sorted by insertion, equal values in their order */
        int at = i;
        for (; at > 0 && a[order[at - 1] * n + order[at - 1]] < a[i * n + i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < n; i++) value[i] = a[order[i] * n + order[i]];
}

/* ---- blocks of vectors ----------------------------------------------------------------------- */

/* out = [x' y] of the blocks, [count,count], symmetric by definition: computed for i <= j. */
static void products(const block *b, const float *x, const float *y, double *out) {
    int count = b->count, rows = (b->n + PARTS - 1) / PARTS;
    size_t square = (size_t)count * count;
#pragma omp parallel for num_threads(b->threads) schedule(dynamic)
    for (int p = 0; p < PARTS; p++) {
        double *sum = b->part + p * square;
        memset(sum, 0, square * sizeof *sum);
        for (int r = p * rows; r < (p + 1) * rows && r < b->n; r++) {
            const float *xr = x + (size_t)r * b->pitch, *yr = y + (size_t)r * b->pitch;
            for (int i = 0; i < count; i++)
                for (int j = i; j < count; j++) sum[i * count + j] += (double)xr[i] * yr[j];
        }
    }
    memset(out, 0, square * sizeof *out);
    for (int p = 0; p < PARTS; p++)
        for (size_t i = 0; i < square; i++) out[i] += b->part[p * square + i];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) out[i * count + j] = out[j * count + i];
}

/* x <- x times c: column j of the result is the sum over i of column i times c[i,order[j]]. */
static void rotate(const block *b, const double *c, const int *order, float *x) {
    int count = b->count;
#pragma omp parallel for num_threads(b->threads) schedule(static)
    for (int part = 0; part < PARTS; part++) {
        int rows = (b->n + PARTS - 1) / PARTS;
        double *sum = b->part + (size_t)part * count * count; /* one row of it is enough */
        for (int r = part * rows; r < (part + 1) * rows && r < b->n; r++) {
            float *row = x + (size_t)r * b->pitch;
            memset(sum, 0, (size_t)count * sizeof *sum);
            for (int i = 0; i < count; i++)
                for (int j = 0; j < count; j++) sum[j] += row[i] * c[i * count + order[j]];
            for (int j = 0; j < count; j++) row[j] = (float)sum[j];
        }
    }
}

/* Makes the columns of x orthonormal, by the inverse of the Cholesky factor of their products.  A
 * column that adds nothing to those before it becomes zero.  gram, factor: [count,count], scratch */
static void orthonormalize(const block *b, float *x, double *gram, double *factor, int *order) {
    int count = b->count;
    products(b, x, x, gram);
    /* the inverse of U in gram = U'U, column by column: u = (e_j - sum of <q_i, x_j> u_i) / |..| */
    memset(factor, 0, (size_t)count * count * sizeof *factor);
    for (int j = 0; j < count; j++) {
        double left = gram[j * count + j], whole = left;
        order[j] = j;
        factor[j * count + j] = 1;
        for (int i = 0; i < j; i++) {
            double along = 0; /* <q_i, x_j> */
            for (int k = 0; k <= i; k++) along += factor[k * count + i] * gram[k * count + j];
            left -= along * along;
            for (int k = 0; k <= i; k++) factor[k * count + j] -= along * factor[k * count + i];
        }
        double by = left > 1e-12 * whole ? 1 / sqrt(left) : 0;
        for (int k = 0; k <= j; k++) factor[k * count + j] *= by;
    }
    rotate(b, factor, order, x);
}

/* y = scale (M x - shift x) - back y; without `back`, y need not be set. */
static void apply(const block *b, const float *x, float scale, float shift, float back, float *y) {
    const graph *g = b->g;
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 256)
    for (int i = 0; i < b->n; i++)
        for (int at = 0; at < b->pitch; at += LINE) {
            const float *own = x + (size_t)i * b->pitch + at;
            float *to = y + (size_t)i * b->pitch + at;
            quad sum[4] = {{0}, {0}, {0}, {0}};
            for (size_t e = g->start[i]; e < g->start[i + 1]; e++) {
                const float *from = x + (size_t)g->to[e] * b->pitch + at;
                quad w = quad_of(b->m[e]);
                UNROLL for (int q = 0; q < 4; q++) sum[q] += w * quad_at(from + 4 * q);
            }
            UNROLL for (int q = 0; q < 4; q++) {
                quad v = scale * (sum[q] - shift * quad_at(own + 4 * q));
                if (back != 0) v -= back * quad_at(to + 4 * q);
                quad_put(to + 4 * q, v);
            }
        }
}

/* *x <- a polynomial of M times *x, at most 1 in size on [-1,cut] before it is scaled to be 1 at 1:
 * Chebyshev's, by their recurrence.  Overwrites *y and may exchange the two. */
static void filter(const block *b, double cut, float **x, float **y) {
    double half = (cut + 1) / 2, middle = (cut - 1) / 2, sigma = half / (1 - middle), first = sigma;
    int degree = (int)(GROWTH / acosh((1 - middle) / half));
    degree = degree < 2 ? 2 : degree > DEGREE ? DEGREE : degree;
    apply(b, *x, (float)(sigma / half), (float)middle, 0, *y);
    for (int k = 2; k <= degree; k++) {
        double next = 1 / (2 / first - sigma);
        apply(b, *y, (float)(2 * next / half), (float)middle, (float)(sigma * next), *x);
        sigma = next;
        float *spare = *x;
        *x = *y, *y = spare;
    }
    float *spare = *x; /* the newest is in y */
    *x = *y, *y = spare;
}

/* The largest |M x_j - value_j x_j| of the first `wanted` columns; y = M x. */
static double residual(const block *b, const float *x, const float *y, const double *value,
                       int wanted) {
    int rows = (b->n + PARTS - 1) / PARTS, count = b->count;
    double most = 0;
#pragma omp parallel for num_threads(b->threads) schedule(static)
    for (int p = 0; p < PARTS; p++) {
        double *sum = b->part + (size_t)p * count * count;
        memset(sum, 0, (size_t)count * sizeof *sum);
        for (int r = p * rows; r < (p + 1) * rows && r < b->n; r++)
            for (int j = 0; j < wanted; j++) {
                size_t at = (size_t)r * b->pitch + j;
                double left = y[at] - value[j] * x[at];
                sum[j] += left * left;
            }
    }
    for (int j = 0; j < wanted; j++) {
        double sum = 0;
        for (int p = 0; p < PARTS; p++) sum += b->part[(size_t)p * count * count + j];
        most = fmax(most, sqrt(sum));
    }
    return most;
}

/* b->m: w_ij / sqrt(d_i d_j) */
static int normalize(block *b) {
    const graph *g = b->g;
    double *by = memory_new("graph", (size_t)g->n, sizeof *by);
    b->m = memory_new("graph", g->start[g->n] + 1, sizeof *b->m);
    if (!by || !b->m) return free(by), CONR_ENOMEM;
    for (int i = 0; i < g->n; i++) {
        double sum = 0;
        for (size_t e = g->start[i]; e < g->start[i + 1]; e++) sum += g->weight[e];
        by[i] = sum > 0 ? 1 / sqrt(sum) : 0;
    }
    for (int i = 0; i < g->n; i++)
        for (size_t e = g->start[i]; e < g->start[i + 1]; e++)
            b->m[e] = (float)(g->weight[e] * by[i] * by[g->to[e]]);
    free(by);
    return 0;
}

static void draw(const block *b, uint64_t seed, float *x) {
    for (int i = 0; i < b->n; i++) {
        rng r = rng_at(seed, 0, (uint32_t)i, RNG_GRAPH);
        for (int j = 0; j < b->pitch; j++)
            x[(size_t)i * b->pitch + j] = j < b->count ? 2 * rng_float(&r) - 1 : 0;
    }
}

int graph_vectors(device *dev, const graph *g, int count, uint64_t seed, float *vectors,
                  double *values) {
    int rc = 0, n = g->n;
    block b = {.g = g, .n = n, .threads = dev->threads, .pitch = round_up(count + GUARD, LINE)};
    b.count = least(b.pitch, n);
    size_t square = (size_t)b.count * b.count, size = (size_t)n * b.pitch;
    float *x = memory_new("graph", size, sizeof *x), *y = memory_new("graph", size, sizeof *y);
    double *small = memory_new("graph", 3 * square + b.count, sizeof *small);
    int *order = memory_new("graph", (size_t)b.count, sizeof *order);
    b.part = memory_new("graph", PARTS * square, sizeof *b.part);
    TRY(x && y && small && order && b.part ? 0 : CONR_ENOMEM);
    TRY(normalize(&b));
    double *matrix = small, *turn = small + square, *value = small + 3 * square, cut = 0;
    draw(&b, seed, x);
    memset(y, 0, size * sizeof *y);
    for (int round = 0; round < ROUNDS; round++) {
        if (round > 0) filter(&b, cut, &x, &y);
        orthonormalize(&b, x, matrix, turn, order);
        apply(&b, x, 1, 0, 0, y);
        products(&b, x, y, matrix);
        jacobi(matrix, b.count, value, turn, order);
        rotate(&b, turn, order, x), rotate(&b, turn, order, y);
        double left = residual(&b, x, y, value, count);
        cut = fmin(fmax(value[b.count - 1], -0.5), 1 - 1e-6);
        TRY(device_report(dev, "eigenvectors", round, ROUNDS));
        if (b.count == n || left <= fmax(SHARP * (1 - cut), FLOOR)) break;
    }
    for (int i = 0; i < n; i++)
        memcpy(vectors + (size_t)i * count, x + (size_t)i * b.pitch, count * sizeof *vectors);
    memcpy(values, value, count * sizeof *values);
done:
    free(x), free(y), free(small), free(order), free(b.part), free(b.m);
    return rc;
}
