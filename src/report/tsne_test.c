/* tsne_test.c: planted clusters are separated, threads change no bit, few or equal points do no
 * harm. */
#include "base/test_help.h"

#include "base/clock.h"
#include "base/rng.h"
#include "report/tsne.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 16 };

/* n unit rows around K directions. */
static float *planted(int n, int K, double noise) {
    float *f = malloc((size_t)n * D * sizeof *f);
    for (int i = 0; i < n; i++) {
        rng center = rng_at(1, 0, (uint32_t)(i % K), RNG_TEST);
        rng r = rng_at(1, 1, (uint32_t)i, RNG_TEST);
        double square = 0;
        for (int j = 0; j < D; j++) {
            f[i * D + j] = (float)(rng_normal(&center) + noise * rng_normal(&r));
            square += f[i * D + j] * f[i * D + j];
        }
        for (int j = 0; j < D; j++) f[i * D + j] /= (float)sqrt(square);
    }
    return f;
}

static int32_t *nearest(const float *f, int n, int k) {
    conr *c;
    conr_neighbors_options o = conr_neighbors_defaults();
    int32_t *ids = malloc((size_t)n * k * sizeof *ids);
    o.local = 1, o.k = k;
    assert_ok(conr_open("cpu", 2, &c));
    assert_ok(conr_neighbors(c, f, n, D, &o, ids));
    conr_close(c);
    return ids;
}

static void map(const float *f, int n, int threads, int iterations, float *xy) {
    tsne_options o = tsne_defaults();
    int k = tsne_width(n, o.perplexity);
    int32_t *ids = nearest(f, n, k);
    o.threads = threads;
    o.iterations = iterations;
    assert_ok(tsne(f, n, D, ids, k, &o, xy));
    for (int i = 0; i < 2 * n; i++) assert_true(xy[i] >= -1.0001f && xy[i] <= 1.0001f);
    free(ids);
}

/* The nearest point on the map is of the same cluster for nearly every point. */
static void test_clusters(void **state) {
    (void)state;
    enum { N = 600, K = 5 };
    float *f = planted(N, K, 0.4), xy[2 * N];
    int same = 0;
    map(f, N, 2, 300, xy);
    for (int i = 0; i < N; i++) {
        int best = -1;
        double least = INFINITY;
        for (int j = 0; j < N; j++) {
            double far = hypot(xy[2 * i] - xy[2 * j], xy[2 * i + 1] - xy[2 * j + 1]);
            if (j != i && far < least) least = far, best = j;
        }
        same += best % K == i % K;
    }
    assert_true(same > 0.98 * N);
    free(f);
}

static void test_threads(void **state) {
    (void)state;
    enum { N = 2000 }; /* enough for several threads */
    float *f = planted(N, 7, 0.8), one[2 * N], two[2 * N];
    map(f, N, 1, 20, one);
    map(f, N, 2, 20, two);
    assert_memory_equal(one, two, sizeof one);
    free(f);
}

static void test_few(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) {
        float *f = planted(n, n, 0), xy[10];
        map(f, n, 2, 50, xy);
        free(f);
    }
}

/* Half of the rows equal, then all. */
static void test_equal(void **state) {
    (void)state;
    enum { N = 300 };
    float *f = planted(N, N, 0), xy[2 * N];
    for (int i = 0; i < N / 2; i++) memcpy(f + i * D, f, D * sizeof *f);
    map(f, N, 2, 100, xy);
    for (int i = 0; i < N; i++) memcpy(f + i * D, f, D * sizeof *f);
    map(f, N, 2, 100, xy);
    free(f);
}

static int stop(int done, int total, void *user) {
    (void)total, (void)user;
    return done > 20;
}

static void test_stop(void **state) {
    (void)state;
    enum { N = 50 };
    float *f = planted(N, 2, 1), xy[2 * N];
    tsne_options o = tsne_defaults();
    int k = tsne_width(N, o.perplexity);
    int32_t *ids = nearest(f, N, k);
    o.progress = stop;
    assert_fails(CONR_ESTOPPED, "stopped", tsne(f, N, D, ids, k, &o, xy));
    free(ids);
    free(f);
}

/* (P + P^T) / 2n, entry by entry: edges in one direction, in both, and none. */
static void affinities_by_hand(void **state) {
    enum { N = 4, M = 2 };
    static const int32_t near[N * (M + 1)] = {0, 1, 2, /**/ 1, 0, 2, /**/ 2, 0, 3, /**/ 3, 2, 1};
    static const float p[N * M] = {.7f, .3f, /**/ .6f, .4f, /**/ .5f, .5f, /**/ .9f, .1f};
    static const float wanted[N][N] = {{0, 1.3f / 8, .8f / 8, 0},
                                       {1.3f / 8, 0, .4f / 8, .1f / 8},
                                       {.8f / 8, .4f / 8, 0, 1.4f / 8},
                                       {0, .1f / 8, 1.4f / 8, 0}};
    tsne_similar s = {0};
    double sum = 0;
    int edges = 0;
    (void)state;
    assert_ok(tsne_symmetrize(near, p, N, M, &s));
    assert_int_equal(s.first[0], 0);
    for (int i = 0; i < N; i++) {
        float row[N] = {0};
        for (int64_t e = s.first[i]; e < s.first[i + 1]; e++) {
            assert_in_range(s.id[e], 0, N - 1);
            assert_true(row[s.id[e]] == 0); /* each once */
            row[s.id[e]] = s.value[e];
            sum += s.value[e];
            edges++;
        }
        for (int j = 0; j < N; j++) assert_true(fabsf(row[j] - wanted[i][j]) < 1e-7f);
    }
    assert_int_equal(edges, 10);
    assert_true(fabs(sum - 1) < 1e-6);
    tsne_similar_free(&s);
}

int main(int argc, char **argv) {
    if (argc > 1) { /* tsne_test N: timing */
        int n = atoi(argv[1]), k = tsne_width(n, 30);
        float *f = planted(n, 10, 1), *xy = malloc(2 * sizeof *xy * (size_t)n);
        int32_t *ids = nearest(f, n, k);
        tsne_options o = tsne_defaults();
        o.threads = 2;
        double start = clock_now();
        assert_ok(tsne(f, n, D, ids, k, &o, xy));
        print_message("%d points: %.1f s\n", n, clock_now() - start);
        free(f), free(xy), free(ids);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(affinities_by_hand), cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_few),
        cmocka_unit_test(test_equal),         cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
