/* evaluate.c: see evaluate.h.  Labels are used only for evaluation: nothing here affects the
 * training. */
#include "run/evaluate.h"

#include "base/memory.h"
#include "base/status.h"
#include "metrics/knn.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KNN_ALL = 10000, KNN_SAMPLE = 5000, KNN_K = 20 };

static int nearest(conr *c, const float *f, int64_t n, int d, knn_lists *out) {
    return knn_search(c, f, n, d, KNN_K, KNN_ALL, KNN_SAMPLE, out);
}

/* Accuracy by the nearest labeled rows; all: the lists of all rows, which serve if every row has a
 * label. */
static int knn(conr *c, const float *f, int64_t n, int d, const int64_t *truth,
               const knn_lists *all, double *out) {
    const double temperature = 0.07;
    int rc = 0;
    int64_t labeled = 0, at = 0, *label = NULL;
    float *rows = NULL;
    knn_lists lists = {0};
    for (int64_t i = 0; i < n; i++) labeled += truth[i] != -1;
    if (labeled == n) return *out = knn_lists_accuracy(all, truth, temperature), 0;
    rows = memory_new("evaluation", (size_t)labeled * d, sizeof *rows);
    label = memory_new("evaluation", (size_t)labeled, sizeof *label);
    TRY(rows && label ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < n; i++) {
        if (truth[i] == -1) continue;
        memcpy(rows + at * d, f + i * d, (size_t)d * sizeof *rows);
        label[at++] = truth[i];
    }
    TRY(nearest(c, rows, labeled, d, &lists));
    *out = knn_lists_accuracy(&lists, label, temperature);
done:
    knn_free(&lists);
    free(rows), free(label);
    return rc;
}

static int score(conr *c, const float *f, int64_t n, int d, const int32_t *label, int K,
                 const int64_t *truth, const int32_t *previous, evaluation *e) {
    int rc = 0;
    conr_scores same;
    knn_lists lists = {0};
    int64_t *wide = memory_new("evaluation", 2 * (size_t)n, sizeof *wide), *old = wide + n;
    TRY(wide ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < n; i++) wide[i] = label[i], old[i] = previous ? previous[i] : 0;
    TRY(nearest(c, f, n, d, &lists));
    TRY(knn_lists_agreement(&lists, label, K, &e->agreement, &e->modularity));
    if (truth) {
        TRY(conr_metrics(truth, wide, n, &e->scores));
        TRY(knn(c, f, n, d, truth, &lists, &e->knn));
    }
    if (previous) {
        TRY(conr_metrics(old, wide, n, &same));
        e->stability = same.acc;
    }
done:
    knn_free(&lists);
    free(wide);
    return rc;
}

/* sqrt(1 - |mean|^2): its square is the total variance of unit rows. */
static int deviation(const float *f, int64_t n, int d, double *out) {
    double *mean = calloc((size_t)d, sizeof *mean), square = 0;
    if (!mean) return fail_memory("evaluation", 8.0 * d);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < d; j++) mean[j] += f[i * d + j];
    for (int j = 0; j < d; j++) square += mean[j] / (double)n * (mean[j] / (double)n);
    *out = sqrt(square < 1 ? 1 - square : 0);
    free(mean);
    return 0;
}

static int sizes(const int32_t *label, int64_t n, int K, evaluation *e) {
    int64_t *count = calloc((size_t)K, sizeof *count);
    if (!count) return fail_memory("evaluation", 8.0 * K);
    for (int64_t i = 0; i < n; i++) count[label[i]]++;
    e->smallest = n, e->largest = 0;
    for (int k = 0; k < K; k++) {
        if (count[k] < e->smallest) e->smallest = count[k];
        if (count[k] > e->largest) e->largest = count[k];
    }
    free(count);
    return 0;
}

int evaluation_make(conr *c, const float *features, int64_t n, int d, const int32_t *label, int K,
                    const int64_t *truth, const int32_t *previous, uint64_t seed, evaluation *out) {
    int rc = 0;
    *out = (evaluation){.knn = NAN, .silhouette = NAN, .stability = NAN};
    TRY(deviation(features, n, d, &out->deviation));
    TRY(sizes(label, n, K, out));
    TRY(score(c, features, n, d, label, K, truth, previous, out));
    if (!truth && out->largest < n)
        TRY(conr_silhouette(c, features, n, d, CONR_COSINE, label, seed, &out->silhouette, NULL));
done:
    return rc;
}

double evaluation_gap(const float *tried, int n) {
    const double same = 1e-4; /* runs that end in one optimum differ by some 1e-5 */
    double lowest = INFINITY, next = INFINITY;
    for (int i = 0; i < n; i++)
        if (tried[i] < lowest) lowest = tried[i];
    for (int i = 0; i < n; i++)
        if (tried[i] > lowest * (1 + same) && tried[i] < next) next = tried[i];
    return lowest > 0 && isfinite(next) ? next / lowest - 1 : NAN;
}

char *evaluation_warning(const evaluation *e, int64_t n, int K, int i) {
    char *text = NULL;
    double fair = (double)n / K;
    bool collapsed = e->deviation < 0.1;
    bool tiny = (double)e->smallest<0.1 * fair, huge = K> 1 && (double)e->largest > 4 * fair;
    if (collapsed && i-- == 0) {
        if (asprintf(&text,
                     "warning: the features have nearly collapsed to one point (deviation %.3f of "
                     "1); lower lr, or raise average or batch",
                     e->deviation) < 0)
            return NULL;
    } else if (tiny && i-- == 0) {
        if (asprintf(&text,
                     "warning: the smallest cluster has %lld images, an even share would be %.0f; "
                     "classes may differ in size (try balance: clusters), or be fewer than %d",
                     (long long)e->smallest, fair, K) < 0)
            return NULL;
    } else if (huge && i-- == 0) {
        if (asprintf(&text,
                     "warning: the largest cluster has %lld images, an even share would be %.0f; "
                     "more clusters, or balance: clusters, may split it",
                     (long long)e->largest, fair) < 0)
            return NULL;
    }
    return text;
}
