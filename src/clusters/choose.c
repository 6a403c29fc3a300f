/* choose.c: chooses the number of clusters: the one that neighbors confirm.
 *
 * Each row has edges to its nearest rows.  A clustering is good if the ends of an edge share a
 * cluster more often than the sizes of the clusters would explain: modularity (Newman & Girvan
 * 2004),
 *
 *     Q(K) = share of the edges that stay within a cluster - WEIGHT sum over clusters of share^2
 *
 * where the share of a cluster is its fraction of all ends of edges.  One more cluster lowers the
 * second sum and cuts edges: few if it separates two classes, many if it splits one.  K is the
 * number for which k-means reaches the largest mean Q.  WEIGHT (the resolution of Reichardt &
 * Bornholdt 2006) is below 1, since a class of learned features consists of lumps, which a weight
 * of 1 takes for clusters.  docs/choosing-k.md compares this with other methods. */
#include "clusters/choose.h"
#include "clusters/points.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "clusters/scale.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 6000, /* rows that are used, at most */
    NEAREST = 20,  /* neighbors of each row, but */
    FEW = 50,      /* at most one per FEW rows: edges must not leave a small class */
    BLOCK = 512,   /* rows whose neighbors are searched at a time */
    TRIES = 3,     /* clusterings for each K; their mean counts, which is lower if they differ */
    RESTARTS = 2   /* of k-means in each try */
};

#define WEIGHT 0.4
#define BESIDE 0.02 /* closer than this to the best Q: the K next to it may be the best */

/* ---- rows and edges -------------------------------------------------------------------------- */

int choose_sample(int64_t n, int *near) {
    int m = n < SAMPLE ? (int)n : SAMPLE;
    *near = m / FEW < 1 ? 1 : m / FEW < NEAREST ? m / FEW : NEAREST;
    return m;
}

void choose_take(const float *features, int64_t n, int64_t d, uint64_t seed, int m, float *out) {
    rng_order order = rng_order_make(seed, 0, (uint32_t)n);
    for (int i = 0; i < m; i++)
        memcpy(out + (size_t)i * (size_t)d,
               features + rng_order_at(&order, (uint32_t)i) * (size_t)d, (size_t)d * sizeof *out);
}

/* The k nearest of each row [n,d] by the metric of k-means, itself first. */
static int find_neighbors(conr *c, const float *rows, int n, int d, conr_metric metric, int k,
                          int32_t *neighbor) {
    int rc = 0;
    device *dev = c->host;
    points p = {0};
    float *shift = memory_new("clusters", (size_t)d, sizeof *shift);
    float *score = memory_new("clusters", (size_t)BLOCK * n, sizeof *score);
    TRY(shift && score ? 0 : CONR_ENOMEM);
    points_middle(rows, n, d, shift);
    TRY(points_make(dev, rows, n, d, metric, shift, &p));
    for (int i = 0; i < n; i += BLOCK) {
        int m = n - i < BLOCK ? n - i : BLOCK;
        TRY(dev->op.gemm(dev, false, true, m, n, d, 1, p.x + (size_t)i * d, d, p.x, d, 0, score,
                         n));
        for (int r = 0; r < m && metric == CONR_EUCLIDEAN; r++)
            for (int j = 0; j < n; j++) score[(size_t)r * n + j] -= p.square[j] / 2;
        TRY(dev->op.top_k(dev, score, m, n, n, i, k, neighbor + (size_t)i * k, NULL));
    }
done:
    points_free(&p);
    free(shift), free(score);
    return rc;
}

/* ---- Q --------------------------------------------------------------------------------------- */

typedef struct chooser {
    conr *c;
    const conr_kmeans_options *o;
    const choice *of;
    float *centroids; /* [last,d] */
    int32_t *label;   /* [n] */
    int32_t *ends;    /* [n]: edges that start or end at a row */
    double *share;    /* [last] */
} chooser;

static int chooser_open(chooser *s, int last) {
    int n = s->of->n, k = s->of->near + 1;
    s->centroids = memory_new("clusters", (size_t)last * (size_t)s->of->d, sizeof *s->centroids);
    s->label = memory_new("clusters", (size_t)n, sizeof *s->label);
    s->ends = memory_new("clusters", (size_t)n, sizeof *s->ends);
    s->share = memory_new("clusters", (size_t)last, sizeof *s->share);
    if (!s->centroids || !s->label || !s->ends || !s->share) return CONR_ENOMEM;
    for (int i = 0; i < n; i++) s->ends[i] = s->of->near;
    for (int i = 0; i < n; i++)
        for (int at = 1; at < k; at++) s->ends[s->of->neighbor[(size_t)i * k + at]]++;
    return 0;
}

static void chooser_free(chooser *s) {
    free(s->centroids), free(s->label), free(s->ends), free(s->share);
}

/* Q of the clusters in s->label: [n], in 0 .. K-1. */
static double modularity(const chooser *s, int K) {
    int n = s->of->n, k = s->of->near + 1;
    int64_t within = 0, edges = (int64_t)n * s->of->near;
    double squares = 0;
    memset(s->share, 0, (size_t)K * sizeof *s->share);
    for (int i = 0; i < n; i++) {
        s->share[s->label[i]] += s->ends[i];
        for (int at = 1; at < k; at++)
            within += s->label[i] == s->label[s->of->neighbor[(size_t)i * k + at]];
    }
    for (int c = 0; c < K; c++) squares += s->share[c] * s->share[c];
    return (double)within / (double)edges -
           s->of->weight * squares / (4.0 * (double)edges * (double)edges);
}

/* *out: the mean Q of K clusters, by the form of the rows for which it is largest. */
static int look_at(chooser *s, int K, double *out) {
    int rc = 0;
    conr_kmeans_options o = *s->o;
    o.clusters = K, o.restarts = RESTARTS, o.start = NULL;
    o.iterations = 40, o.tolerance = 1e-3; /* the last steps move few rows */
    *out = -INFINITY;
    for (int form = 0; form < s->of->forms; form++) {
        double sum = 0;
        o.seed = s->o->seed;
        for (int i = 0; i < TRIES; i++, o.seed++) {
            TRY(conr_kmeans(s->c, s->of->rows[form], s->of->n, s->of->d, &o, s->centroids, s->label,
                            NULL));
            sum += modularity(s, K);
        }
        if (sum / TRIES > *out) *out = sum / TRIES;
    }
done:
    return rc;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The next K to try: the whole range in steps that grow with K, the last one at `reached`; then,
 * from the largest down, those next to any whose Q is close to the best.  0: done.
 * score: [last-low+1], -INFINITY if not tried. */
static int next_to_look_at(const double *score, int low, int last, int reached, int best) {
    if (reached < last) {
        int step = reached < 12 ? 1 : reached / 7;
        return reached + step < last ? reached + step : last;
    }
    for (int K = last; K >= low; K--) {
        if (score[K - low] < score[best - low] - BESIDE) continue;
        if (K < last && score[K + 1 - low] == -INFINITY) return K + 1;
        if (K > low && score[K - 1 - low] == -INFINITY) return K - 1;
    }
    return 0;
}

int choose_number(conr *c, const choice *of, const conr_kmeans_options *o, int low, int high,
                  int *chosen, double *score) {
    int rc = 0, best = low;
    /* the caller gets no reports of the k-means runs in here */
    device dev = *c->dev, host = *c->host;
    conr quiet = *c;
    quiet.together = false; /* only one rank may be calling */
    dev.on_progress = host.on_progress = NULL;
    quiet.dev = &dev, quiet.host = c->host == c->dev ? &dev : &host;
    chooser s = {.c = &quiet, .o = o, .of = of};
    double *seen = NULL;
    int last = high < of->n / 2 ? high : of->n / 2; /* a cluster of one row has no edges inside */
    for (int K = low; score && K <= high; K++) score[K - low] = -INFINITY;
    *chosen = low;
    if (last < low) return 0;
    seen = memory_new("clusters", (size_t)(last - low) + 1, sizeof *seen);
    TRY(seen ? 0 : CONR_ENOMEM);
    for (int K = low; K <= last; K++) seen[K - low] = -INFINITY;
    TRY(chooser_open(&s, last));
    for (int K = low, reached = low; K > 0; K = next_to_look_at(seen, low, last, reached, best)) {
        if (K > reached) reached = K;
        TRY(device_report(c->dev, "number of clusters", reached - low, last - low + 1));
        TRY(look_at(&s, K, &seen[K - low]));
        if (score) score[K - low] = seen[K - low];
        if (seen[K - low] > seen[best - low]) best = K;
    }
    while (seen[*chosen - low] < seen[best - low] - of->slack) (*chosen)++;
    if (of->slack == 0) *chosen = best; /* of equals, the one that was looked at first */
done:
    chooser_free(&s);
    free(seen);
    return rc;
}

int choose_check(int low, int high, int n) {
    return low >= 1 && high >= low && low <= n
               ? 0
               : fail(CONR_EINVAL,
                      "clusters: range %d-%d of %d rows; give 1 <= low <= high <= rows", low, high,
                      n);
}

int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, int low, int high, int *chosen,
                         double *score) {
    int rc = 0, near, m = choose_sample(n, &near);
    float *rows = NULL;
    int32_t *neighbor = NULL;
    TRY(numbers_check("features", features, n, d));
    TRY(choose_check(low, high, m));
    rows = memory_new("clusters", (size_t)m * (size_t)d, sizeof *rows);
    neighbor = memory_new("clusters", (size_t)m * (size_t)(near + 1), sizeof *neighbor);
    TRY(rows && neighbor ? 0 : CONR_ENOMEM);
    choose_take(features, n, d, o->seed, m, rows);
    float by = o->metric == CONR_EUCLIDEAN ? scale_for(rows, m, NULL, 0, (int)d) : 1;
    for (size_t i = 0; by != 1 && i < (size_t)m * (size_t)d; i++) rows[i] *= by;
    if (near < m) TRY(find_neighbors(c, rows, m, (int)d, o->metric, near + 1, neighbor));
    choice of = {.rows = {rows},
                 .forms = 1,
                 .n = m,
                 .d = (int)d,
                 .neighbor = neighbor,
                 .near = near,
                 .weight = WEIGHT};
    TRY(choose_number(c, &of, o, low, high, chosen, score));
done:
    free(rows), free(neighbor);
    return rc;
}
