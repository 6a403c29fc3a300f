/* graph_test.c: normalized cuts against scikit-learn, what holds for every graph, and difficult
 * inputs. */
#include "base/test_help.h"

#include "base/rng.h"
#include "base/tensors.h"
#include "clusters/graph.h"
#include "neighbors/neighbors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static conr *one, *three;

static int open_all(void **state) {
    (void)state;
    assert_ok(conr_open("cpu", 1, &one));
    assert_ok(conr_open("cpu", 3, &three));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    conr_close(one), conr_close(three);
    return 0;
}

/* The clusters are the same, whatever their names: all of a's in one of b's and the reverse. */
static void assert_same_clusters(const int32_t *a, const int32_t *b, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if ((a[i] == a[j]) != (b[i] == b[j])) fail_msg("rows %d and %d differ", j, i);
}

/* n rows around K centers; labels: [n], the center of each: i % K. */
static float *blobs(int n, int d, int K, double noise, int32_t *labels) {
    float *x = malloc((size_t)n * d * sizeof *x), *center = malloc((size_t)K * d * sizeof *center);
    rng r = rng_at(5, 0, (uint32_t)n, RNG_TEST);
    for (int i = 0; i < K * d; i++) center[i] = (float)rng_normal(&r);
    for (int i = 0; i < n; i++) {
        if (labels) labels[i] = i % K;
        for (int j = 0; j < d; j++)
            x[(size_t)i * d + j] = center[i % K * d + j] + (float)(noise * rng_normal(&r));
    }
    free(center);
    return x;
}

static int cluster(conr *c, const float *x, int n, int d, int K, int32_t *labels) {
    conr_graph_options o = conr_graph_defaults();
    o.clusters = K;
    return conr_graph(c, x, n, d, &o, labels);
}

/* ---- golden values --------------------------------------------------------------------------- */

static tensors file;

static const void *find(const char *name) {
    const tensor *t = tensors_find(&file, name);
    if (!t) fail_msg("graph.safetensors lacks %s", name);
    return t->data;
}

/* A copy of `count` elements of four bytes, aligned; the caller frees it. */
static void *part(const char *name, size_t at, size_t count) {
    void *copy = malloc(count * 4);
    memcpy(copy, (const char *)find(name) + at * 4, count * 4);
    return copy;
}

typedef struct golden {
    int n, d, K, k, k1, count;
    float *x, *weights, *values;
    int32_t *ids, *labels;
} golden;

/* Case c, whose arrays begin at at[]; moves at[] past it. */
static golden take(int c, size_t at[5]) {
    int32_t *s = part("shape", (size_t)c * 6, 6);
    golden g = {.n = s[0], .d = s[1], .K = s[2], .k = s[3], .k1 = s[4], .count = s[5]};
    size_t size[5] = {(size_t)g.n * g.d, (size_t)g.n * g.k, (size_t)g.n * g.k, g.count, g.n};
    g.x = part("x", at[0], size[0]), g.ids = part("ids", at[1], size[1]);
    g.weights = part("weights", at[2], size[2]), g.values = part("values", at[3], size[3]);
    g.labels = part("labels", at[4], size[4]);
    for (int i = 0; i < 5; i++) at[i] += size[i];
    free(s);
    return g;
}

static void check_case(const golden *t) {
    graph g = {0};
    size_t lists = (size_t)t->n * t->k;
    int32_t *ids = malloc(lists * sizeof *ids), *labels = malloc(t->n * sizeof *labels);
    float *weights = malloc(lists * sizeof *weights),
          *vectors = malloc(t->n * 16 * sizeof *vectors);
    double values[16];
    conr_graph_options o = conr_graph_defaults();
    o.clusters = t->K, o.neighbors.k = t->k, o.neighbors.k1 = t->k1;
    assert_ok(neighbors_affinities(three, t->x, t->n, t->d, &o.neighbors, ids, weights));
    assert_close("affinities", weights, t->weights, lists, 1e-6); /* rounded to float a few times */
    assert_ok(graph_make(t->ids, t->weights, t->n, t->k, &g));
    assert_ok(graph_vectors(three->dev, &g, t->count, 1, vectors, values));
    for (int i = 0; i < t->count; i++) assert_true(fabs(values[i] - t->values[i]) < 1e-4);
    assert_ok(graph_cut(three, &g, t->K, 1, labels));
    assert_same_clusters(labels, t->labels, t->n);
    assert_ok(conr_graph(three, t->x, t->n, t->d, &o, labels)); /* from the features */
    assert_same_clusters(labels, t->labels, t->n);
    graph_free(&g);
    free(ids), free(labels), free(weights), free(vectors);
}

static void as_scikit_learn(void **state) {
    (void)state;
    size_t at[5] = {0};
    assert_ok(tensors_open(golden_path("graph.safetensors"), &file));
    int cases = (int)tensors_find(&file, "shape")->dim[0];
    assert_true(cases >= 3);
    for (int c = 0; c < cases; c++) {
        golden g = take(c, at);
        check_case(&g);
        free(g.x), free(g.ids), free(g.weights), free(g.values), free(g.labels);
    }
    tensors_close(&file);
}

/* ---- eigenvectors ---------------------------------------------------------------------------- */

/* vectors are orthonormal, and M v = value v. */
static void check_vectors(const graph *g, const float *v, const double *value, int count,
                          double bound) {
    double *degree = calloc(g->n, sizeof *degree);
    for (int i = 0; i < g->n; i++)
        for (size_t e = g->start[i]; e < g->start[i + 1]; e++) degree[i] += g->weight[e];
    for (int a = 0; a < count; a++) {
        double left = 0;
        for (int b = 0; b <= a; b++) {
            double sum = 0;
            for (int i = 0; i < g->n; i++) sum += (double)v[i * count + a] * v[i * count + b];
            assert_true(fabs(sum - (a == b)) < 1e-5);
        }
        for (int i = 0; i < g->n; i++) {
            double sum = 0;
            for (size_t e = g->start[i]; e < g->start[i + 1]; e++)
                sum += g->weight[e] * v[g->to[e] * count + a] / sqrt(degree[i] * degree[g->to[e]]);
            sum -= value[a] * v[i * count + a];
            left += sum * sum;
        }
        if (sqrt(left) > bound) fail_msg("vector %d: residual %g", a, sqrt(left));
        if (a > 0) assert_true(value[a] <= value[a - 1] + 1e-12);
    }
    free(degree);
}

/* Rings of `size` rows, not connected to each other: the eigenvalues of each are cos(2 pi j/size),
 * so 1 occurs once for each ring. */
static void vectors_of_rings(void **state) {
    (void)state;
    enum { RINGS = 5, SIZE = 40, N = RINGS * SIZE, COUNT = 15 };
    int32_t ids[N * 2];
    float weights[N * 2], *v = malloc(N * COUNT * sizeof *v);
    double values[COUNT];
    graph g = {0};
    for (int i = 0; i < N; i++) {
        ids[2 * i] = i, ids[2 * i + 1] = i / SIZE * SIZE + (i + 1) % SIZE;
        weights[2 * i] = 1, weights[2 * i + 1] = 0.7f;
    }
    assert_ok(graph_make(ids, weights, N, 2, &g));
    assert_int_equal(g.start[N], 2 * N);
    assert_ok(graph_vectors(three->dev, &g, COUNT, 1, v, values));
    for (int i = 0; i < COUNT; i++) {
        double want = cos(2 * acos(-1) * (i < RINGS ? 0 : 1) / SIZE); /* each of these twice */
        if (fabs(values[i] - want) > 1e-5) fail_msg("value %d: %g, not %g", i, values[i], want);
    }
    check_vectors(&g, v, values, COUNT, 1e-3);
    graph_free(&g);
    free(v);
}

static void vectors_of_neighbors(void **state) {
    (void)state;
    enum { N = 1200, D = 8, COUNT = 12 };
    float *x = blobs(N, D, 6, 0.9, NULL), *v = malloc(N * COUNT * sizeof *v);
    double values[COUNT];
    conr_neighbors_options near = conr_graph_defaults().neighbors;
    graph g = {0};
    assert_ok(graph_of(three, x, N, D, &near, 6, &g));
    assert_ok(graph_vectors(three->dev, &g, COUNT, 3, v, values));
    assert_true(fabs(values[0] - 1) < 1e-5); /* of D^1/2 1 */
    check_vectors(&g, v, values, COUNT, 1e-3);
    graph_free(&g);
    free(x), free(v);
}

static void modularity_by_hand(void **state) {
    (void)state;
    /* two pairs with weight 1 each, one link of weight 1/2 between them */
    int32_t ids[] = {0, 1, 1, 2, 2, 3, 3, 2}, labels[] = {0, 0, 1, 1};
    float weights[] = {1, 2, 1, 1, 1, 1, 1, 1};
    double q = 0;
    graph g = {0};
    assert_ok(graph_make(ids, weights, 4, 2, &g));
    assert_int_equal(g.start[4], 6);
    assert_ok(graph_modularity(&g, labels, 2, 0.5, &q));
    assert_true(fabs(q - (4.0 / 5 - 0.5 * 0.5)) < 1e-12);
    graph_free(&g);
}

/* ---- clusters -------------------------------------------------------------------------------- */

static void any_number_of_threads(void **state) {
    (void)state;
    enum { N = 3000, D = 16, K = 8 };
    float *x = blobs(N, D, K, 0.8, NULL);
    int32_t *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    assert_ok(cluster(one, x, N, D, K, a));
    assert_ok(cluster(three, x, N, D, K, b));
    assert_memory_equal(a, b, N * sizeof *a);
    assert_ok(cluster(three, x, N, D, 5, b)); /* fewer than there are */
    for (int i = 0; i < N; i++) assert_in_range(b[i], 0, 4);
    assert_ok(conr_graph_assign(one, x, a, N, D, K, x, N, b));
    int32_t *again = malloc(N * sizeof *again);
    assert_ok(conr_graph_assign(three, x, a, N, D, K, x, N, again));
    assert_memory_equal(again, b, N * sizeof *b);
    free(x), free(a), free(b), free(again);
}

/* Far apart, so that the graph has a component for each class, and groups of copies and rows that
 * are like no other: these are too small to be clusters. */
static void components(void **state) {
    (void)state;
    enum { N = 2400, D = 12, K = 3, COPIES = 24, LONE = 3 };
    int32_t want[N], labels[N];
    graph g = {0};
    conr_neighbors_options near = conr_graph_defaults().neighbors;
    float *x = blobs(N, D, K, 0.1, want);
    x[9] -= 1; /* a row at the edge of class 0, and its copies */
    for (int i = 1; i < COPIES; i++) memcpy(x + i * K * D, x, D * sizeof *x);
    assert_ok(cluster(three, x, N, D, K, labels));
    assert_same_clusters(labels, want, N);
    assert_ok(graph_of(three, x, N, D, &near, K, &g));
    for (int i = 0; i < COPIES; i++) { /* each is joined to a row of its class that is no copy */
        int32_t last = g.to[g.start[i * K + 1] - 1];
        assert_true(last >= COPIES * K && last % K == 0);
    }
    graph_free(&g);
    free(x);
    x = blobs(N, D, K, 0.1, want);
    for (int i = 0; i < LONE; i++)
        for (int j = 0; j < D; j++) x[(N - 1 - i) * D + j] = i == 0 ? 0 : j == i ? -9.0f : 0.0f;
    assert_ok(cluster(three, x, N, D, K, labels));
    assert_same_clusters(labels, want, N - LONE);
    assert_ok(graph_of(three, x, N, D, &near, K, &g)); /* one component is left */
    assert_int_equal(graph_join(three->dev, x, D, 1, &g), 1);
    graph_free(&g);
    /* fewer clusters than components: each component is in one cluster, whole */
    assert_ok(cluster(three, x, N - LONE, D, 2, labels));
    for (int i = K; i < N - LONE; i++) assert_int_equal(labels[i], labels[i % K]);
    free(x);
}

static void tiny_sets(void **state) {
    (void)state;
    float x[40 * 3];
    int32_t labels[40];
    rng r = rng_at(1, 0, 0, RNG_TEST);
    for (int i = 0; i < 40 * 3; i++) x[i] = (float)rng_normal(&r);
    for (int n = 1; n <= 40; n += n < 6 ? 1 : 17)
        for (int K = 1; K <= n; K++) {
            int seen[40] = {0}, used = 0;
            assert_ok(cluster(three, x, n, 3, K, labels));
            for (int i = 0; i < n; i++) {
                assert_in_range(labels[i], 0, K - 1);
                used += !seen[labels[i]]++;
            }
            if (K == 1 || K == n) assert_int_equal(used, K);
        }
    for (int i = 0; i < 40 * 3; i++) x[i] = 1; /* all the same, then all zero */
    assert_ok(cluster(three, x, 40, 3, 4, labels));
    for (int i = 0; i < 40; i++) assert_in_range(labels[i], 0, 3);
    memset(x, 0, sizeof x);
    assert_ok(cluster(three, x, 40, 3, 4, labels));
    for (int i = 0; i < 40; i++) assert_in_range(labels[i], 0, 3);
}

static void refuses(void **state) {
    (void)state;
    float x[8] = {1, 0, 0, 1, 1, 1, 0, 2};
    int32_t labels[4] = {0, 1, 2, 0}, out[4];
    conr_graph_options o = conr_graph_defaults();
    assert_fails(CONR_EINVAL, "clusters: 0 of 4 rows", cluster(one, x, 4, 2, 0, out));
    assert_fails(CONR_EINVAL, "clusters: 5 of 4 rows", cluster(one, x, 4, 2, 5, out));
    o.clusters = 2, o.neighbors.k = 1;
    assert_fails(CONR_EINVAL, "give at least 2", conr_graph(one, x, 4, 2, &o, out));
    o = conr_graph_defaults(), o.clusters = 2, o.neighbors.k1 = 0;
    assert_fails(CONR_EINVAL, "k1", conr_graph(one, x, 4, 2, &o, out));
    assert_fails(CONR_EINVAL, "labels: row 2 has 2; give 0 to 1",
                 conr_graph_assign(one, x, labels, 4, 2, 2, x, 4, out));
    x[3] = NAN;
    assert_fails(CONR_ENUMBER, "features", cluster(one, x, 4, 2, 2, out));
    assert_fails(CONR_ENUMBER, "features", conr_graph_assign(one, x, labels, 4, 2, 3, x, 4, out));
}

/* ---- assignment ------------------------------------------------------------------------------ */

static void assigns_new_rows(void **state) {
    (void)state;
    enum { N = 20000, M = 300, D = 6, K = 5 }; /* more rows than are compared at a time */
    int32_t *all = malloc((N + M) * sizeof *all), out[M];
    float *x = blobs(N + M, D, K, 0.1, all);
    assert_ok(conr_graph_assign(three, x, all, N, D, K, x + N * D, M, out));
    assert_memory_equal(out, all + N, M * sizeof *out);
    /* nine rows outvote the one that is nearest, but not by more than their similarity */
    float rows[] = {1, 0, 1, .5f, 1, .5f, 0, 1, -1, 0}, query[] = {1, .1f, -1, -.1f, 0, 0};
    int32_t labels[] = {0, 1, 1, 2, 3};
    assert_ok(conr_graph_assign(three, rows, labels, 5, 2, 4, query, 3, out));
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 3); /* the only one that is similar at all */
    assert_int_equal(out[2], 0); /* similar to none: the first */
    free(all), free(x);
}

/* ---- which method ---------------------------------------------------------------------------- */

/* Two of five classes are long arcs, which k-means cuts; to do so, it joins two of the others, which
 * are small and close to each other. */
static float *long_classes(int n, int d) {
    float *x = malloc((size_t)n * d * sizeof *x);
    rng r = rng_at(8, 0, 0, RNG_TEST);
    for (int i = 0; i < n; i++) {
        int c = i % 5;
        for (int j = 0; j < d; j++)
            x[(size_t)i * d + j] = (j == c) * (c < 2 ? 6 : 2) + (float)(0.2 * rng_normal(&r));
        x[(size_t)i * d + 5 + (c < 2 ? c : 2)] += c < 2 ? 30 * rng_float(&r) : 6;
    }
    return x;
}

static void chooses_method(void **state) {
    (void)state;
    enum { N = 1000, D = 9 };
    int use = -1, again = -1;
    double score[2], other[2];
    int32_t labels[N], want[N];
    float *x = long_classes(N, D), *even = blobs(N, D, 10, 0.05, want);
    for (int i = 0; i < N; i++) want[i] = i % 5;
    assert_ok(cluster(one, x, N, D, 5, labels));
    assert_same_clusters(labels, want, N);
    assert_ok(conr_choose_method(one, x, N, D, 5, 1, &use, score));
    assert_int_equal(use, 1);
    /* all neighbors together, all clusters of the same size */
    assert_true(fabs(score[1] - (-log(0.01) - 0.1)) < 0.01 && score[0] < score[1] - 0.5);
    assert_ok(conr_choose_method(three, x, N, D, 5, 1, &again, other));
    assert_true(again == use && !memcmp(score, other, sizeof score));
    /* the same score but for the lead: k-means, which has centroids */
    assert_ok(conr_choose_method(one, even, N, D, 10, 1, &use, score));
    assert_true(use == 0 && fabs(score[0] - score[1] - 0.1) < 1e-9);
    assert_ok(conr_choose_method(one, even, N, D, 900, 1, &use, score));
    assert_true(use == 0 && score[0] == -INFINITY);
    assert_ok(conr_choose_method(one, even, 1, D, 1, 1, &use, NULL));
    assert_int_equal(use, 0);
    assert_fails(CONR_EINVAL, "clusters: 0 of", conr_choose_method(one, x, N, D, 0, 1, &use, NULL));
    x[77 * D] = INFINITY;
    assert_fails(CONR_ENUMBER, "row 77", conr_choose_method(one, x, N, D, 5, 1, &use, NULL));
    free(x), free(even);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_scikit_learn),
        cmocka_unit_test(vectors_of_rings),
        cmocka_unit_test(vectors_of_neighbors),
        cmocka_unit_test(modularity_by_hand),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(components),
        cmocka_unit_test(tiny_sets),
        cmocka_unit_test(refuses),
        cmocka_unit_test(assigns_new_rows),
        cmocka_unit_test(chooses_method),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
