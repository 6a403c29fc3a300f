/* large_test.c: k-means of large sets, on sets small enough to check every result. */
#include "base/test_help.h"

#include "base/rng.h"
#include "clusters/large.h"
#include "context/context.h"

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

/* n rows around `clumps` centers away from the origin. */
static float *blobs(int n, int d, int clumps, double noise) {
    float *x = malloc((size_t)n * d * sizeof *x), *center = malloc((size_t)clumps * d * sizeof *x);
    rng r = rng_at(21, 0, (uint32_t)n, RNG_TEST);
    for (int i = 0; i < clumps * d; i++) center[i] = 3 + (float)rng_normal(&r);
    for (int i = 0; i < n; i++) {
        int c = (int)rng_below(&r, (uint32_t)clumps);
        for (int j = 0; j < d; j++)
            x[(size_t)i * d + j] = center[c * d + j] + (float)(noise * rng_normal(&r));
    }
    free(center);
    return x;
}

/* The same bits by one and by three threads; labels as conr_assign has them; the objective is that of
 * the labels, and never grew.  Returns it. */
static double run_and_check(const float *x, int n, int d, conr_kmeans_options o) {
    size_t size = (size_t)o.clusters * d;
    float *c1 = malloc(size * sizeof *c1), *c3 = malloc(size * sizeof *c3);
    float *away = malloc((size_t)n * sizeof *away);
    int32_t *l1 = malloc(n * sizeof *l1), *l3 = malloc(n * sizeof *l3), *l = malloc(n * sizeof *l);
    conr_kmeans_history h1 = {0}, h3 = {0};
    double sum = 0;
    assert_ok(large_kmeans(one->host, NULL, x, n, d, &o, c1, l1, &h1));
    assert_ok(large_kmeans(three->host, NULL, x, n, d, &o, c3, l3, &h3));
    assert_memory_equal(c1, c3, size * sizeof *c1);
    assert_memory_equal(l1, l3, n * sizeof *l1);
    assert_int_equal(h1.steps, h3.steps);
    assert_true(h1.objective == h3.objective);
    assert_ok(conr_assign(one, x, n, d, o.metric, c1, o.clusters, l, away));
    assert_memory_equal(l1, l, n * sizeof *l);
    for (int i = 0; i < n; i++) sum += o.metric == CONR_COSINE ? away[i] : away[i] * away[i];
    assert_true(fabs(sum - h1.objective) <= 1e-6 * sum + 1e-9);
    for (int s = 1; s < h1.steps; s++)
        if (h1.step[s].run == h1.step[s - 1].run && !h1.step[s - 1].refilled)
            assert_true(h1.step[s].objective <= h1.step[s - 1].objective * (1 + 1e-6) + 1e-6);
    double last = h1.step[h1.steps - 1].objective;
    if (o.restarts == 1) /* the assignment to all centers gains a little, or nothing */
        assert_true(h1.objective <= last * (1 + 1e-5) + 1e-6 && h1.objective >= 0.97 * last - 1e-6);
    sum = h1.objective;
    conr_kmeans_history_free(&h1), conr_kmeans_history_free(&h3);
    free(c1), free(c3), free(away), free(l1), free(l3), free(l);
    return sum;
}

/* Within 2 % of Lloyd's iteration from greedy k-means++ over all rows, and often below it. */
static void is_as_good(void **state) {
    (void)state;
    enum { N = 4000, D = 12 };
    for (int clumps = 1; clumps < 200; clumps += 198)
        for (int metric = 0; metric < 2; metric++) {
            float *x = blobs(N, D, clumps, 0.5), *c;
            for (int K = 50; K <= 350; K += 150) {
                int32_t labels[N];
                conr_kmeans_history h;
                conr_kmeans_options o = conr_kmeans_defaults();
                o.clusters = K, o.metric = metric ? CONR_EUCLIDEAN : CONR_COSINE, o.restarts = 1;
                double ours = run_and_check(x, N, D, o);
                c = malloc((size_t)K * D * sizeof *c);
                assert_ok(conr_kmeans(three, x, N, D, &o, c, labels, &h));
                if (!(ours <= 1.02 * h.objective))
                    fail_msg("%d clumps, K = %d: %g against %g", clumps, K, ours, h.objective);
                conr_kmeans_history_free(&h);
                free(c);
            }
            free(x);
        }
}

/* conr_kmeans takes this way from 2^26 distances on, and not before. */
static void is_taken_by_size(void **state) {
    (void)state;
    enum { N = 65536, D = 2, K = 1024 };
    float *x = blobs(N, D, 900, 0.02), *a = malloc(K * D * sizeof *a),
          *b = malloc(K * D * sizeof *b);
    int32_t *l = malloc(N * sizeof *l), *m = malloc(N * sizeof *m);
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.restarts = 1, o.iterations = 4;
    assert_ok(conr_kmeans(three, x, N, D, &o, a, l, NULL));
    assert_ok(large_kmeans(three->host, NULL, x, N, D, &o, b, m, NULL));
    assert_memory_equal(a, b, K * D * sizeof *a);
    assert_memory_equal(l, m, N * sizeof *l);
    assert_true(large_is(N, K) && !large_is(N - 1, K));
    free(x), free(a), free(b), free(l), free(m);
}

static void degenerate(void **state) {
    (void)state;
    enum { N = 300, D = 3 };
    float same[N * D], few[N * D], zero[N * D] = {0}, line[N * D], far[N * D];
    for (int i = 0; i < N * D; i++) {
        same[i] = 1.5f;
        few[i] = (float)(i / D % 4 == i % D) * 2; /* four distinct rows, one of them zero */
        line[i] = i % D ? 0 : (float)(i < N * D / 2 ? 1 : -1) * (1 + (float)i);
        far[i] = i == 7 ? 1e15f : (float)(i % 11); /* one row far from all others */
    }
    const float *sets[] = {same, few, zero, line, far};
    for (int s = 0; s < 5; s++)
        for (int metric = 0; metric < 2; metric++)
            for (int K = 1; K <= N; K = K == 1 ? 70 : K == 70 ? N : N + 1) {
                conr_kmeans_options o = conr_kmeans_defaults();
                o.clusters = K, o.metric = metric ? CONR_EUCLIDEAN : CONR_COSINE, o.restarts = 2;
                double objective = run_and_check(sets[s], N, D, o);
                if (K >= 70 && s < 3 && metric) assert_true(objective < 1e-9);
            }
}

/* All but one of the centers given to start from are far from all rows. */
static void refills_empty_clusters(void **state) {
    (void)state;
    enum { N = 400, D = 4, K = 80 };
    float *x = blobs(N, D, 90, 0.1), start[K * D], centroids[K * D];
    int32_t labels[N], count[K] = {0};
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history h = {0};
    int refilled = 0;
    for (int i = 0; i < K * D; i++) start[i] = i < D ? 3 : 1e3f + (float)i;
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.restarts = 0, o.start = start;
    assert_ok(large_kmeans(three->host, NULL, x, N, D, &o, centroids, labels, &h));
    for (int s = 0; s < h.steps; s++) refilled += h.step[s].refilled;
    for (int i = 0; i < N; i++) count[labels[i]]++;
    for (int c = 0; c < K; c++) assert_true(count[c] > 0);
    assert_true(refilled >= K - 1);
    double ours = h.objective;
    conr_kmeans_history_free(&h);
    assert_ok(conr_kmeans(three, x, N, D, &o, centroids, labels, &h));
    if (!(ours < 1.25 * h.objective)) fail_msg("%g against %g", ours, h.objective);
    conr_kmeans_history_free(&h);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_good),
        cmocka_unit_test(is_taken_by_size),
        cmocka_unit_test(degenerate),
        cmocka_unit_test(refills_empty_clusters),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
