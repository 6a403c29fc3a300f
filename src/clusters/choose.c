/* choose.c: how many clusters there are: the finest clustering that comes out again.
 *
 * Half of the rows are clustered, then all rows go to their nearest centroid; other halves give
 * other clusterings.  How well a cluster of one is found again in another is the share of rows that
 * it has in common with the nearest one there (Jaccard), and the mean over all clusters of all
 * pairs of clusterings is the stability of K (Ben-Hur, Elisseeff & Guyon 2002; by clusters: Hennig
 * 2007).  Spare centers lie where chance puts them; too few are shared by classes that chance
 * chooses, but where classes form families it may be as stable.  So of all K that are nearly as
 * stable as the best the largest is taken.  docs/choosing-k.md compares this with others. */
#include "base/memory.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "base/status.h"
#include "conr_context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 6000, /* rows that are looked at, at most */
    HALVES = 6,    /* of them, in complementary pairs */
    RESTARTS = 4   /* of k-means on a half: fewer, and its own bad luck counts as instability */
};

#define NEAR   0.93 /* as stable as the best: this share of its stability */
#define BESIDE 0.85 /* near enough that a neighbor may be the choice */
#define COARSE 0.7  /* two clusters are the answer where none finer has this share of theirs */
#define CHANCE 0.6  /* one cluster, where it is asked for, if none is more stable than that */

typedef struct chooser {
    conr *c;
    const conr_kmeans_options *o;
    int n, d;
    float *rows;      /* [n,d]: the sample */
    float *half;      /* [n/2,d]: the rows of a half */
    float *centroids; /* [n/2,d] at most */
    int32_t *label;   /* [HALVES][n] */
} chooser;

static int take_sample(chooser *s, const float *features, int64_t all) {
    rng_order order = rng_order_make(s->o->seed, 0, (uint32_t)all);
    size_t n = (size_t)s->n, d = (size_t)s->d;
    s->rows = memory_new("clusters", n * d, sizeof *s->rows);
    s->half = memory_new("clusters", n / 2 * d, sizeof *s->half);
    s->centroids = memory_new("clusters", n / 2 * d, sizeof *s->centroids);
    s->label = memory_new("clusters", HALVES * n, sizeof *s->label);
    if (!s->rows || !s->half || !s->centroids || !s->label) return CONR_ENOMEM;
    for (int i = 0; i < s->n; i++)
        memcpy(s->rows + (size_t)i * d, features + rng_order_at(&order, (uint32_t)i) * d,
               d * sizeof *s->rows);
    return 0;
}

static void chooser_free(chooser *s) {
    free(s->rows), free(s->half), free(s->centroids), free(s->label);
}

/* The clusters of all rows by those of half `h`. */
static int cluster_half(chooser *s, int h, int K) {
    int rc = 0, count = s->n / 2, first = h % 2 ? s->n - count : 0;
    int32_t *label = s->label + (size_t)h * s->n;
    conr_kmeans_options o = *s->o;
    rng_order order = rng_order_make(s->o->seed, (uint32_t)(1 + h / 2), (uint32_t)s->n);
    for (int i = 0; i < count; i++)
        memcpy(s->half + (size_t)i * s->d,
               s->rows + (size_t)rng_order_at(&order, (uint32_t)(first + i)) * s->d,
               (size_t)s->d * sizeof *s->half);
    o.clusters = K, o.restarts = RESTARTS, o.start = NULL, o.seed += (uint64_t)h;
    o.iterations = 40, o.tolerance = 1e-3; /* the last steps move few rows */
    TRY(conr_kmeans(s->c, s->half, count, s->d, &o, s->centroids, label, NULL));
    TRY(conr_assign(s->c, s->rows, s->n, s->d, o.metric, s->centroids, K, label, NULL));
done:
    return rc;
}

/* The mean over the clusters of both of how much each has in common with its best match: rows in
 * both over rows in either.  a, b: [n]; count: [K+2][K], memory for the rows in both, in a's, b's
 */
static double agreement(const int32_t *a, const int32_t *b, int n, int K, int32_t *count) {
    int32_t *in_a = count + (size_t)K * K, *in_b = in_a + K;
    double sum = 0;
    memset(count, 0, (size_t)(K + 2) * K * sizeof *count);
    for (int i = 0; i < n; i++) count[(size_t)a[i] * K + b[i]]++, in_a[a[i]]++, in_b[b[i]]++;
    for (int k = 0; k < K; k++) {
        double of_a = 0, of_b = 0;
        for (int l = 0; l < K; l++) {
            int32_t row = count[(size_t)k * K + l], column = count[(size_t)l * K + k];
            of_a = fmax(of_a, row / fmax(1, in_a[k] + in_b[l] - row));
            of_b = fmax(of_b, column / fmax(1, in_a[l] + in_b[k] - column));
        }
        sum += of_a + of_b;
    }
    return sum / (2 * K);
}

static int stability(chooser *s, int K, double *out) {
    int rc = 0;
    double sum = 0;
    int32_t *count = memory_new("clusters", (size_t)(K + 2) * K, sizeof *count);
    TRY(count ? 0 : CONR_ENOMEM);
    for (int h = 0; h < HALVES; h++) {
        TRY(cluster_half(s, h, K));
        for (int g = 0; g < h; g++)
            sum +=
                agreement(s->label + (size_t)g * s->n, s->label + (size_t)h * s->n, s->n, K, count);
    }
    *out = sum / (HALVES * (HALVES - 1) / 2);
done:
    free(count);
    return rc;
}

/* The choice among low .. last by their stability [last-low+1], negative where not looked at;
 * *best: the most stable of them. */
static int choose(const double *stable, int low, int last, int *best) {
    int chosen = 0, top = 0;
    double most = 0, two = low <= 2 && last >= 2 ? stable[2 - low] : 0;
    for (int K = low; K <= last; K++)
        if (K > 2 && stable[K - low] > most) most = stable[K - low], top = K;
    for (int K = low; K <= last; K++)
        if (K > 2 && stable[K - low] >= NEAR * most) chosen = K;
    *best = top ? top : low;
    if (two > 0 && (!top || most < COARSE * two)) chosen = *best = 2, most = two;
    if (low == 1 && most < CHANCE) chosen = 1;
    return chosen ? chosen : low;
}

/* All of the range in steps that grow with K, the last one at `reached`; then, from the largest
 * on, those beside any that comes near the most stable.  0: all is seen that matters. */
static int next_to_look_at(const double *stable, int low, int last, int reached, int best) {
    if (reached < last) {
        int step = reached < 12 ? 1 : reached / 7;
        return reached + step < last ? reached + step : last;
    }
    for (int K = last; K >= low; K--) {
        if (stable[K - low] < BESIDE * stable[best - low]) continue;
        if (K < last && stable[K + 1 - low] < 0) return K + 1;
        if (K > low && stable[K - 1 - low] < 0) return K - 1;
    }
    return 0;
}

int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, int low, int high, int *chosen,
                         double *score) {
    int rc = 0;
    if ((rc = numbers_check("features", features, n, d)) < 0) return rc;
    /* the runs of k-means in here are not the caller's to follow */
    device dev = *c->dev, host = *c->host;
    conr quiet = *c;
    dev.on_progress = host.on_progress = NULL;
    quiet.dev = &dev, quiet.host = c->host == c->dev ? &dev : &host;
    chooser s = {.c = &quiet, .o = o, .n = n < SAMPLE ? (int)n : SAMPLE, .d = (int)d};
    double *stable = NULL;
    if (low < 1 || high < low || low > s.n)
        return fail(CONR_EINVAL, "clusters: range %d-%d of %d rows; give 1 <= low <= high <= rows",
                    low, high, s.n);
    int last = high < s.n / 2 ? high : s.n / 2; /* half of the rows make K clusters at most */
    for (int K = low; score && K <= high; K++) score[K - low] = -INFINITY;
    *chosen = low;
    if (last < low) return 0;
    stable = memory_new("clusters", (size_t)(last - low) + 1, sizeof *stable);
    TRY(stable ? 0 : CONR_ENOMEM);
    for (int K = low; K <= last; K++) stable[K - low] = -1;
    TRY(take_sample(&s, features, n));
    for (int K = low, reached = low, best = low; K > 0;
         K = next_to_look_at(stable, low, last, reached, best)) {
        if (K > reached) reached = K;
        TRY(device_report(c->dev, "number of clusters", reached - low, last - low + 1));
        stable[K - low] = 0;
        if (K > 1) TRY(stability(&s, K, &stable[K - low]));
        if (score) score[K - low] = stable[K - low];
        *chosen = choose(stable, low, last, &best);
    }
done:
    chooser_free(&s);
    free(stable);
    return rc;
}
