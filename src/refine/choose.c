/* choose.c: the number of clusters of somebody's features.
 *
 * As conr_choose_clusters, which see, with three differences.  Edges lead to contextually affinitive
 * neighbors: fewer of them leave a class.  Each K is tried on principal components as they are,
 * half whitened and whitened, and has the largest Q of the three, since k-means may find the classes
 * only in one of these (geometry.c).  And of nearly equal numbers the smallest is taken: classes of
 * learned features consist of lumps, and to split one into lumps costs next to nothing.
 * docs/choosing-k.md has the sets that this was tried on. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "clusters/choose.h"

#include <math.h>
#include <stdlib.h>

enum { COMPONENTS = 128, LEAST_NEAR = 3 };

#define WEIGHT 0.55
#define SLACK  0.007
static const double powers[] = {0, 0.5, 1};
enum { POWERS = sizeof powers / sizeof *powers };

/* The first p of the components x [n,all], divided by a power of their deviation. */
static void scale(const float *x, int n, int all, const float *deviation, double power, int p,
                  float *out) {
    for (int j = 0; j < p; j++) {
        double by = deviation[j] > 0 ? pow(deviation[j], -power) : 0;
        for (int i = 0; i < n; i++) out[(size_t)i * p + j] = (float)(x[(size_t)i * all + j] * by);
    }
}

int refine_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                           const conr_kmeans_options *o, int low, int high, int *chosen) {
    int rc = 0, near, m = choose_sample(n, &near);
    principal s = {0};
    conr_neighbors_options lists = conr_neighbors_defaults();
    conr_kmeans_options cosine = *o;
    choice of = {.forms = POWERS, .n = m, .weight = WEIGHT, .slack = SLACK};
    float *sample = NULL, *x = NULL, *form[POWERS] = {NULL};
    int32_t *neighbor = NULL;
    TRY(numbers_check("features", features, n, d));
    TRY(choose_check(low, high, m));
    if (near < LEAST_NEAR) near = LEAST_NEAR;
    if (m <= near + 1) { /* too few to tell */
        TRY(conr_choose_clusters(c, features, n, d, o, low, high, chosen, NULL));
        goto done;
    }
    sample = memory_new("clusters", (size_t)m * (size_t)d, sizeof *sample);
    TRY(sample ? 0 : CONR_ENOMEM);
    choose_take(features, n, d, o->seed, m, sample);
    TRY(principal_measure(c->host, sample, m, (int)d, o->seed, &s));
    int p = s.p < COMPONENTS ? s.p : COMPONENTS;
    x = memory_new("clusters", (size_t)m * (size_t)s.p, sizeof *x);
    neighbor = memory_new("clusters", (size_t)m * (size_t)(near + 1), sizeof *neighbor);
    TRY(x && neighbor ? 0 : CONR_ENOMEM);
    TRY(principal_rows(c->host, &s, sample, m, false, x));
    for (int i = 0; i < POWERS; i++) {
        form[i] = memory_new("clusters", (size_t)m * (size_t)p, sizeof **form);
        TRY(form[i] ? 0 : CONR_ENOMEM);
        scale(x, m, s.p, s.deviation, powers[i], p, form[i]);
        of.rows[i] = form[i];
    }
    lists.k = near + 1, lists.k1 = near;
    TRY(conr_neighbors(c, form[0], m, p, &lists, neighbor));
    cosine.metric = CONR_COSINE;
    of.d = p, of.neighbor = neighbor, of.near = near;
    TRY(choose_number(c, &of, &cosine, low, high, chosen, NULL));
done:
    principal_free(&s);
    free(sample), free(x), free(neighbor);
    for (int i = 0; i < POWERS; i++) free(form[i]);
    return rc;
}
