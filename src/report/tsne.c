/* tsne.c: see tsne.h.
 *
 * Three parts: the sparse similarities P of the features; the tree over the points of the map,
 * rebuilt in each iteration; gradient descent.  Threads compute point by point, and sums over all
 * points are added in order, so the number of threads changes no bit. */
#include "report/tsne.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXAGGERATION = 12,
    LEAF = 8,        /* a cell with at most this many points is not divided */
    DEPTH = 16,      /* levels of the tree; points in the same last cell are not separated */
    PCA_ROUNDS = 40, /* of orthogonal iteration; enough digits for a start */
    SMALL = 1500     /* below this many points threads do not pay off */
};
static const float THETA2 =
    0.25f; /* a cell counts as one point if side^2 / distance^2 is below this */

tsne_options tsne_defaults(void) {
    return (tsne_options){.perplexity = 30, .iterations = 750, .seed = 1, .threads = 1};
}

int tsne_width(int n, double perplexity) {
    double wanted = 3 * perplexity + 1;
    return wanted < n ? (int)wanted : n;
}

/* ---- similarities of the features ------------------------------------------------------------ */

static double square_distance(const float *a, const float *b, int d) {
    double sum = 0;
    for (int j = 0; j < d; j++) sum += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
    return sum;
}

/* p [m] from squared distances: a Gaussian whose width makes the entropy log(perplexity). */
static void spread(const double *distance, int m, double perplexity, float *p) {
    double low = 0, high = INFINITY, beta = 1, wanted = log(perplexity), nearest = INFINITY;
    double scale = 0; /* for a first guess of beta at the scale of the data */
    for (int j = 0; j < m; j++) {
        if (distance[j] < nearest) nearest = distance[j];
        scale += distance[j] / m;
    }
    if (scale > nearest) beta = 1 / (scale - nearest);
    for (int round = 0; round < 100; round++) {
        double sum = 0, weighted = 0;
        for (int j = 0; j < m; j++) {
            double e = exp(-beta * (distance[j] - nearest));
            sum += e;
            weighted += e * (distance[j] - nearest);
            p[j] = (float)e;
        }
        double entropy = log(sum) + beta * weighted / sum;
        for (int j = 0; j < m; j++) p[j] = (float)(p[j] / sum);
        if (fabs(entropy - wanted) < 1e-5) break;
        if (entropy > wanted)
            low = beta, beta = isinf(high) ? 2 * beta : (beta + high) / 2;
        else
            high = beta, beta = (low + beta) / 2;
    }
}

int tsne_symmetrize(const int32_t *near, const float *p, int n, int m, tsne_similar *out) {
    size_t edges = (size_t)n * m;
    int64_t *at = calloc((size_t)n + 1, sizeof *at); /* where the next edge into each row goes */
    int32_t *from = memory_new("map", edges + 1, sizeof *from);
    float *back = memory_new("map", edges + 1, sizeof *back);
    float *seen = calloc((size_t)n, sizeof *seen);
    int rc = 0;
    out->first = memory_new("map", (size_t)n + 1, sizeof *out->first);
    out->id = memory_new("map", 2 * edges + 1, sizeof *out->id);
    out->value = memory_new("map", 2 * edges + 1, sizeof *out->value);
    if (!at || !from || !back || !seen || !out->first || !out->id || !out->value)
        TRY(fail_memory("map", 24.0 * (double)edges));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) at[near[(size_t)i * (m + 1) + 1 + j] + 1]++;
    for (int i = 0; i < n; i++) at[i + 1] += at[i];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            int64_t to = at[near[(size_t)i * (m + 1) + 1 + j]]++;
            from[to] = i;
            back[to] = p[(size_t)i * m + j];
        }
    /* at[i] is now where the edges into row i end */
    int64_t used = 0;
    for (int i = 0; i < n; i++) {
        const int32_t *own = near + (size_t)i * (m + 1) + 1;
        out->first[i] = used;
        for (int j = 0; j < m; j++) {
            out->id[used++] = own[j];
            seen[own[j]] = p[(size_t)i * m + j];
        }
        for (int64_t e = i ? at[i - 1] : 0; e < at[i]; e++) {
            if (seen[from[e]] == 0) out->id[used++] = from[e];
            seen[from[e]] += back[e];
        }
        for (int64_t e = out->first[i]; e < used; e++) {
            out->value[e] = seen[out->id[e]] / (2 * (float)n);
            seen[out->id[e]] = 0;
        }
    }
    out->first[n] = used;
done:
    free(at), free(from), free(back), free(seen);
    return rc;
}

void tsne_similar_free(tsne_similar *s) { free(s->first), free(s->id), free(s->value); }

static int similarities(const float *f, int n, int d, const int32_t *near, int k,
                        const tsne_options *o, tsne_similar *out) {
    int m = k - 1, failed = 0, rc = 0;
    double most = m / 3.0 > 1 ? m / 3.0 : 1;
    double perplexity = o->perplexity < most ? o->perplexity : most;
    float *p = memory_new("map", (size_t)n * m + 1, sizeof *p);
    if (!p) return CONR_ENOMEM;
#pragma omp parallel num_threads(o->threads)
    {
        double *distance = malloc(((size_t)m + 1) * sizeof *distance);
#pragma omp for schedule(static)
        for (int i = 0; i < n; i++) {
            for (int j = 0; distance && j < m; j++)
                distance[j] = square_distance(f + (size_t)i * d,
                                              f + (size_t)near[(size_t)i * k + 1 + j] * d, d);
            if (distance) spread(distance, m, perplexity, p + (size_t)i * m);
        }
#pragma omp atomic
        failed |= !distance;
        free(distance);
    }
    TRY(failed ? fail_memory("map", 8.0 * m) : tsne_symmetrize(near, p, n, m, out));
done:
    free(p);
    return rc;
}

/* ---- the start: two principal components ----------------------------------------------------- */

/* u [n,2] = (X - mean) v^T, with v [2,d] */
static void project(const float *f, int n, int d, const double *mean, const double *v, double *u,
                    int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < n; i++) {
        double a = 0, b = 0;
        for (int j = 0; j < d; j++) {
            double x = f[(size_t)i * d + j] - mean[j];
            a += x * v[j];
            b += x * v[d + j];
        }
        u[2 * i] = a, u[2 * i + 1] = b;
    }
}

/* v [2,d] = u^T (X - mean) */
static void project_back(const float *f, int n, int d, const double *mean, const double *u,
                         double *v, int threads) {
    enum { COLUMNS = 16 }; /* a cache line of each row at a time */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int from = 0; from < d; from += COLUMNS) {
        int to = from + COLUMNS < d ? from + COLUMNS : d;
        for (int j = from; j < to; j++) v[j] = v[d + j] = 0;
        for (int i = 0; i < n; i++)
            for (int j = from; j < to; j++) {
                double x = f[(size_t)i * d + j] - mean[j];
                v[j] += x * u[2 * i];
                v[d + j] += x * u[2 * i + 1];
            }
    }
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void scale(double *v, int n, double by) {
    for (int i = 0; i < n; i++) v[i] *= by;
}

/* xy [n,2]: the components, scaled to a deviation of 1e-4, and a little noise to separate equal
 * points. */
static int initialize(const float *f, int n, int d, const tsne_options *o, float *xy) {
    double *mean = calloc(3 * (size_t)d, sizeof *mean), *v = mean + d;
    double *u = calloc(2 * (size_t)n, sizeof *u), square = 0;
    if (!mean || !u) {
        free(mean), free(u);
        return fail_memory("map", 16.0 * n);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) mean[j] += (double)f[(size_t)i * d + j] / n;
    rng r = rng_at(o->seed, 0, 0, RNG_ORDER);
    for (int j = 0; j < 2 * d; j++) v[j] = rng_normal(&r);
    for (int round = 0; round < PCA_ROUNDS; round++) {
        double first = sqrt(dot(v, v, d));
        scale(v, d, first > 0 ? 1 / first : 0);
        double both = dot(v, v + d, d);
        for (int j = 0; j < d; j++) v[d + j] -= both * v[j];
        double second = sqrt(dot(v + d, v + d, d));
        scale(v + d, d, second > 0 ? 1 / second : 0);
        project(f, n, d, mean, v, u, o->threads);
        if (round + 1 < PCA_ROUNDS) project_back(f, n, d, mean, u, v, o->threads);
    }
    for (int i = 0; i < n; i++) square += u[2 * i] * u[2 * i];
    double unit = square > 0 ? 1e-4 / sqrt(square / n) : 0;
    for (int i = 0; i < 2 * n; i++) xy[i] = (float)(u[i] * unit + 1e-6 * rng_normal(&r));
    free(mean), free(u);
    return 0;
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* A square of the plane.  Cells are stored depth first: the first child of a cell is the next one,
 * and `skip` is the one after all its children. */
typedef struct cell {
    float x, y;         /* mean of its points */
    float side2;        /* squared */
    int32_t count;      /* points */
    int32_t from, skip; /* from: first point of a leaf, in sorted order; else -1 */
} cell;

typedef struct tree {
    cell *cell;
    int n_cells, n;
    uint32_t *code, *code2; /* [n] sorted Morton codes */
    int32_t *order, *order2;
    float *x; /* [n,2] the points in that order */
} tree;

static uint32_t interleave(uint32_t v) { /* spreads 16 bits over every other of 32 */
    v = (v | v << 8) & 0x00FF00FFu;
    v = (v | v << 4) & 0x0F0F0F0Fu;
    v = (v | v << 2) & 0x33333333u;
    return (v | v << 1) & 0x55555555u;
}

static void sort_codes(tree *t) { /* radix sort, eight bits per pass; stable */
    for (int shift = 0; shift < 32; shift += 8) {
        int32_t count[257] = {0};
        for (int i = 0; i < t->n; i++) count[(t->code[i] >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) count[b + 1] += count[b];
        for (int i = 0; i < t->n; i++) {
            int32_t to = count[t->code[i] >> shift & 255]++;
            t->code2[to] = t->code[i];
            t->order2[to] = t->order[i];
        }
        uint32_t *code = t->code;
        int32_t *order = t->order;
        t->code = t->code2, t->code2 = code;
        t->order = t->order2, t->order2 = order;
    }
}

/* Makes the cell of points [from,to), whose codes agree above `level`, and its children. */
static void divide(tree *t, int from, int to, int level, float side) {
    cell *c = &t->cell[t->n_cells++];
    double x = 0, y = 0;
    for (int i = from; i < to; i++) x += t->x[2 * i], y += t->x[2 * i + 1];
    *c = (cell){.x = (float)(x / (to - from)),
                .y = (float)(y / (to - from)),
                .side2 = side * side,
                .count = to - from,
                .from = from};
    if (to - from > LEAF && level > 0) {
        c->from = -1;
        int shift = 2 * (level - 1), begin = from;
        while (begin < to) {
            uint32_t quarter = t->code[begin] >> shift;
            int end = begin + 1;
            while (end < to && t->code[end] >> shift == quarter) end++;
            divide(t, begin, end, level - 1, side / 2);
            begin = end;
        }
    }
    c->skip = t->n_cells;
}

static void tree_build(tree *t, const float *xy) {
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 2 * t->n; i++) {
        low[i & 1] = fminf(low[i & 1], xy[i]);
        high[i & 1] = fmaxf(high[i & 1], xy[i]);
    }
    float side = fmaxf(fmaxf(high[0] - low[0], high[1] - low[1]), 1e-20f);
    float steps = 65535 / side;
    for (int i = 0; i < t->n; i++) {
        uint32_t x = (uint32_t)((xy[2 * i] - low[0]) * steps);
        uint32_t y = (uint32_t)((xy[2 * i + 1] - low[1]) * steps);
        t->code[i] = interleave(x > 65535 ? 65535 : x) | interleave(y > 65535 ? 65535 : y) << 1;
        t->order[i] = i;
    }
    sort_codes(t);
    for (int i = 0; i < t->n; i++) {
        t->x[2 * i] = xy[2 * t->order[i]];
        t->x[2 * i + 1] = xy[2 * t->order[i] + 1];
    }
    t->n_cells = 0;
    divide(t, 0, t->n, DEPTH, side);
}

/* The repulsion of point i (in sorted order) by all others, not yet divided by the sum of all
 * weights; returns the contribution of this point to that sum. */
static double push(const tree *t, int i, float out[2]) {
    float x = t->x[2 * i], y = t->x[2 * i + 1], px = 0, py = 0, sum = 0;
    for (int at = 0; at < t->n_cells;) {
        const cell *c = &t->cell[at];
        float dx = x - c->x, dy = y - c->y, far = dx * dx + dy * dy;
        if (c->side2 < THETA2 * far) {
            float q = 1 / (1 + far), m = (float)c->count * q;
            sum += m;
            px += m * q * dx;
            py += m * q * dy;
            at = c->skip;
        } else if (c->from >= 0) {
            for (int j = c->from; j < c->from + c->count; j++) {
                if (j == i) continue;
                dx = x - t->x[2 * j], dy = y - t->x[2 * j + 1];
                float q = 1 / (1 + dx * dx + dy * dy);
                sum += q;
                px += q * q * dx;
                py += q * q * dy;
            }
            at = c->skip;
        } else {
            at++;
        }
    }
    out[0] = px, out[1] = py;
    return sum;
}

static int tree_new(int n, tree *t) {
    /* inner cells may have a single child, so there can be more cells than points; this bound is
     * never reached in practice */
    size_t cells = (size_t)n * (DEPTH + 1) + 1;
    *t = (tree){.n = n};
    t->cell = malloc(cells * sizeof *t->cell); /* only used pages are touched */
    t->code = malloc((size_t)n * sizeof *t->code), t->code2 = malloc((size_t)n * sizeof *t->code);
    t->order = malloc((size_t)n * sizeof *t->order);
    t->order2 = malloc((size_t)n * sizeof *t->order);
    t->x = malloc(2 * (size_t)n * sizeof *t->x);
    if (t->cell && t->code && t->code2 && t->order && t->order2 && t->x) return 0;
    return fail_memory("map", (double)cells * sizeof *t->cell);
}

static void tree_free(tree *t) {
    free(t->cell), free(t->code), free(t->code2), free(t->order), free(t->order2), free(t->x);
}

/* ---- the descent ----------------------------------------------------------------------------- */

typedef struct descent {
    tsne_similar p;
    tree tree;
    float *slope, *speed, *gain; /* [n,2] */
    double *share;               /* [n] contributions to the sum of weights */
} descent;

/* slope: a quarter of the gradient of KL(P || Q) */
static void find_slope(descent *s, const float *xy, float exaggeration, int threads) {
    tree *t = &s->tree;
    int n = t->n;
    double sum = 0;
    tree_build(t, xy);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 256)
    for (int i = 0; i < n; i++) s->share[i] = push(t, i, s->slope + 2 * (size_t)t->order[i]);
    for (int i = 0; i < n; i++) sum += s->share[i];
    float each = (float)(1 / (sum > 0 ? sum : 1));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 256)
    for (int i = 0; i < n; i++) {
        float x = xy[2 * i], y = xy[2 * i + 1], px = 0, py = 0;
        for (int64_t e = s->p.first[i]; e < s->p.first[i + 1]; e++) {
            const float *other = xy + 2 * (size_t)s->p.id[e];
            float dx = x - other[0], dy = y - other[1];
            float pull = s->p.value[e] / (1 + dx * dx + dy * dy);
            px += pull * dx;
            py += pull * dy;
        }
        s->slope[2 * i] = exaggeration * px - s->slope[2 * i] * each;
        s->slope[2 * i + 1] = exaggeration * py - s->slope[2 * i + 1] * each;
    }
}

/* Momentum, and a gain per coordinate that grows while the direction stays the same. */
static void move(descent *s, float *xy, float rate, float momentum) {
    for (int i = 0; i < 2 * s->tree.n; i++) {
        bool turned = s->slope[i] * s->speed[i] > 0; /* speed points down the slope */
        float gain = turned ? s->gain[i] * 0.8f : s->gain[i] + 0.2f;
        s->gain[i] = gain > 0.01f ? gain : 0.01f;
        s->speed[i] = momentum * s->speed[i] - rate * s->gain[i] * s->slope[i];
        xy[i] += s->speed[i];
    }
}

static void fit_box(float *xy, int n) {
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 2 * n; i++) {
        low[i & 1] = fminf(low[i & 1], xy[i]);
        high[i & 1] = fmaxf(high[i & 1], xy[i]);
    }
    float half = fmaxf(fmaxf(high[0] - low[0], high[1] - low[1]) / 2, 1e-20f);
    for (int i = 0; i < 2 * n; i++) xy[i] = (xy[i] - (low[i & 1] + high[i & 1]) / 2) / half;
}

int tsne(const float *f, int n, int d, const int32_t *near, int k, const tsne_options *options,
         float *xy) {
    int rc = 0;
    descent s = {0};
    tsne_options own = *options, *o = &own;
    if (n < SMALL) own.threads = 1;
    ASSERT(n >= 1 && k >= 1 && k <= n);
    TRY(initialize(f, n, d, o, xy));
    if (k < 2) { /* a single point */
        fit_box(xy, n);
        goto done;
    }
    TRY(similarities(f, n, d, near, k, o, &s.p));
    TRY(tree_new(n, &s.tree));
    s.slope = calloc(6 * (size_t)n, sizeof *s.slope);
    s.share = calloc((size_t)n, sizeof *s.share);
    if (!s.slope || !s.share) TRY(fail_memory("map", 32.0 * n));
    s.speed = s.slope + 2 * (size_t)n, s.gain = s.speed + 2 * (size_t)n;
    for (int i = 0; i < 2 * n; i++) s.gain[i] = 1;
    float rate = fmaxf((float)n / EXAGGERATION, 200);
    for (int t = 0; t < o->iterations; t++) {
        bool early = t < o->iterations / 3;
        if (o->progress && t % 10 == 0 && o->progress(t, o->iterations, o->user))
            TRY(fail(CONR_ESTOPPED, "map: stopped at iteration %d of %d", t, o->iterations));
        find_slope(&s, xy, early ? EXAGGERATION : 1, o->threads);
        move(&s, xy, rate, early ? 0.5f : 0.8f);
    }
    fit_box(xy, n);
done:
    tsne_similar_free(&s.p);
    tree_free(&s.tree);
    free(s.slope), free(s.share);
    return rc;
}
