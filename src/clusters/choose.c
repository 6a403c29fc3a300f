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

typedef struct chooser {
    conr *c;
    const conr_kmeans_options *o;
    int n, d, near;
    float *rows;       /* [n,d]: the sample */
    float *centroids;  /* [last,d] */
    int32_t *label;    /* [n] */
    int32_t *neighbor; /* [n,near+1]: each row itself, then its nearest */
    int32_t *ends;     /* [n]: edges that start or end at a row */
    double *share;     /* [last] */
} chooser;

static int take_sample(chooser *s, const float *features, int64_t all, int last) {
    rng_order order = rng_order_make(s->o->seed, 0, (uint32_t)all);
    size_t n = (size_t)s->n, d = (size_t)s->d;
    s->rows = memory_new("clusters", n * d, sizeof *s->rows);
    s->centroids = memory_new("clusters", (size_t)last * d, sizeof *s->centroids);
    s->label = memory_new("clusters", n, sizeof *s->label);
    s->neighbor = memory_new("clusters", n * (size_t)(s->near + 1), sizeof *s->neighbor);
    s->ends = memory_new("clusters", n, sizeof *s->ends);
    s->share = memory_new("clusters", (size_t)last, sizeof *s->share);
    if (!s->rows || !s->centroids || !s->label || !s->neighbor || !s->ends || !s->share)
        return CONR_ENOMEM;
    for (int i = 0; i < s->n; i++)
        memcpy(s->rows + (size_t)i * d, features + rng_order_at(&order, (uint32_t)i) * d,
               d * sizeof *s->rows);
    float by = s->o->metric == CONR_EUCLIDEAN ? scale_for(s->rows, s->n, NULL, 0, s->d) : 1;
    for (size_t i = 0; by != 1 && i < n * d; i++) s->rows[i] *= by;
    return 0;
}

static void chooser_free(chooser *s) {
    free(s->rows), free(s->centroids), free(s->label);
    free(s->neighbor), free(s->ends), free(s->share);
}

/* The nearest of each row by the metric of k-means. */
static int join_neighbors(chooser *s) {
    int rc = 0, n = s->n, d = s->d, k = s->near + 1;
    device *dev = s->c->host;
    points p = {0};
    float *shift = memory_new("clusters", (size_t)d, sizeof *shift);
    float *score = memory_new("clusters", (size_t)BLOCK * n, sizeof *score);
    TRY(shift && score ? 0 : CONR_ENOMEM);
    points_middle(s->rows, n, d, shift);
    TRY(points_make(dev, s->rows, n, d, s->o->metric, shift, &p));
    for (int i = 0; i < n; i += BLOCK) {
        int m = n - i < BLOCK ? n - i : BLOCK;
        TRY(dev->op.gemm(dev, false, true, m, n, d, 1, p.x + (size_t)i * d, d, p.x, d, 0, score,
                         n));
        for (int r = 0; r < m && s->o->metric == CONR_EUCLIDEAN; r++)
            for (int j = 0; j < n; j++) score[(size_t)r * n + j] -= p.square[j] / 2;
        TRY(dev->op.top_k(dev, score, m, n, n, i, k, s->neighbor + (size_t)i * k, NULL));
    }
    for (int i = 0; i < n; i++) s->ends[i] = s->near;
    for (int i = 0; i < n; i++)
        for (int at = 1; at < k; at++) s->ends[s->neighbor[(size_t)i * k + at]]++;
done:
    points_free(&p);
    free(shift), free(score);
    return rc;
}

/* Q of the clusters in s->label: [n], in 0 .. K-1. */
static double modularity(const chooser *s, int K) {
    int k = s->near + 1;
    int64_t within = 0, edges = (int64_t)s->n * s->near;
    double squares = 0;
    memset(s->share, 0, (size_t)K * sizeof *s->share);
    for (int i = 0; i < s->n; i++) {
        s->share[s->label[i]] += s->ends[i];
        for (int at = 1; at < k; at++)
            within += s->label[i] == s->label[s->neighbor[(size_t)i * k + at]];
    }
    for (int c = 0; c < K; c++) squares += s->share[c] * s->share[c];
    return (double)within / (double)edges -
           WEIGHT * squares / (4.0 * (double)edges * (double)edges);
}

/* *out: the mean Q of K clusters. */
static int look_at(chooser *s, int K, double *out) {
    int rc = 0;
    double sum = 0;
    conr_kmeans_options o = *s->o;
    o.clusters = K, o.restarts = RESTARTS, o.start = NULL;
    o.iterations = 40, o.tolerance = 1e-3; /* the last steps move few rows */
    for (int i = 0; i < TRIES; i++, o.seed++) {
        TRY(conr_kmeans(s->c, s->rows, s->n, s->d, &o, s->centroids, s->label, NULL));
        sum += modularity(s, K);
    }
    *out = sum / TRIES;
done:
    return rc;
}

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

int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, int low, int high, int *chosen,
                         double *score) {
    int rc = 0;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    /* the caller gets no reports of the k-means runs in here */
    device dev = *c->dev, host = *c->host;
    conr quiet = *c;
    quiet.together = false; /* only one rank may be calling */
    dev.on_progress = host.on_progress = NULL;
    quiet.dev = &dev, quiet.host = c->host == c->dev ? &dev : &host;
    chooser s = {.c = &quiet, .o = o, .n = n < SAMPLE ? (int)n : SAMPLE, .d = (int)d};
    double *seen = NULL;
    if (low < 1 || high < low || low > s.n)
        return fail(CONR_EINVAL, "clusters: range %d-%d of %d rows; give 1 <= low <= high <= rows",
                    low, high, s.n);
    int last = high < s.n / 2 ? high : s.n / 2; /* a cluster of one row has no edges inside */
    for (int K = low; score && K <= high; K++) score[K - low] = -INFINITY;
    *chosen = low;
    if (last < low) return 0;
    s.near = s.n / FEW < 1 ? 1 : s.n / FEW < NEAREST ? s.n / FEW : NEAREST;
    seen = memory_new("clusters", (size_t)(last - low) + 1, sizeof *seen);
    TRY(seen ? 0 : CONR_ENOMEM);
    for (int K = low; K <= last; K++) seen[K - low] = -INFINITY;
    TRY(take_sample(&s, features, n, last));
    TRY(join_neighbors(&s));
    for (int K = low, reached = low; K > 0;
         K = next_to_look_at(seen, low, last, reached, *chosen)) {
        if (K > reached) reached = K;
        TRY(device_report(c->dev, "number of clusters", reached - low, last - low + 1));
        TRY(look_at(&s, K, &seen[K - low]));
        if (score) score[K - low] = seen[K - low];
        if (seen[K - low] > seen[*chosen - low]) *chosen = K;
    }
done:
    chooser_free(&s);
    free(seen);
    return rc;
}
