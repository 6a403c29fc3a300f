/* index_test.c: the search by cells against the exact one: the share that is found, the order and
 * the values of what is found, copies and zeros, threads, and when it leaves the work to all pairs. */
#include "base/test_help.h"

#include "base/rng.h"
#include "context/context.h"
#include "neighbors/neighbors.h"
#include "neighbors/search.h"

#include <math.h>
#include <stdio.h>
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

/* Unit rows around K centers; K = 0: in all directions. */
static float *blobs(int n, int d, int K, double noise) {
    float *x = malloc((size_t)n * d * sizeof *x);
    for (int i = 0; i < n; i++) {
        rng at =
            rng_at(7, 1, K ? (uint32_t)((unsigned)i * 2654435761u % (unsigned)K) : 0, RNG_TEST);
        rng own = rng_at(7, 2, (uint32_t)i, RNG_TEST);
        double squares = 0;
        for (int j = 0; j < d; j++) {
            double v = (K ? rng_normal(&at) : 0) + noise * rng_normal(&own);
            x[(size_t)i * d + j] = (float)v;
            squares += v * v;
        }
        for (int j = 0; j < d; j++) x[(size_t)i * d + j] /= (float)sqrt(squares);
    }
    return x;
}

typedef struct lists {
    int n, k;
    int32_t *ids;
    float *values;
} lists;

static lists lists_new(int n, int k) {
    size_t count = (size_t)n * k;
    return (lists){n, k, malloc(count * sizeof(int32_t)), malloc(count * sizeof(float))};
}

static void lists_drop(lists l) { free(l.ids), free(l.values); }

static lists exact(const float *x, int n, int d, int k) {
    lists l = lists_new(n, k);
    assert_ok(search_rounds(three->dev, NULL, x, n, d, k, l.ids, l.values));
    return l;
}

static lists by_cells(conr *c, const float *x, int n, int d, int k, double *recall) {
    lists l = lists_new(n, k);
    assert_ok(search_index(c->dev, NULL, x, n, d, k, recall, l.ids, l.values));
    return l;
}

static void same(lists a, lists b) {
    assert_memory_equal(a.ids, b.ids, (size_t)a.n * a.k * sizeof *a.ids);
    assert_memory_equal(a.values, b.values, (size_t)a.n * a.k * sizeof *a.values);
}

/* Each list begins with its row, is in order and names no row twice.  Returns the share of the
 * entries that are as good as the exact ones, whose values they then have. */
static double check(lists l, lists truth) {
    double found = 0;
    int k = l.k;
    for (int i = 0; i < l.n; i++) {
        const int32_t *ids = l.ids + (size_t)i * k;
        const float *values = l.values + (size_t)i * k, *best = truth.values + (size_t)i * k;
        assert_true(ids[0] == i && values[0] == 1);
        for (int e = 1; e < k; e++) {
            assert_true(ids[e] >= 0 && ids[e] < l.n && ids[e] != i);
            if (e > 1)
                assert_true(values[e] < values[e - 1] ||
                            (values[e] == values[e - 1] && ids[e] > ids[e - 1]));
            assert_true(values[e] <= best[e]);
            found += values[e] >= best[k - 1];
            for (int t = 1; t < k; t++)
                if (truth.ids[(size_t)i * k + t] == ids[e]) assert_true(best[t] == values[e]);
        }
    }
    return found / l.n / (k - 1);
}

/* ---- what is found --------------------------------------------------------------------------- */

static void finds_the_share(void **state) {
    (void)state;
    enum { N = 9000, D = 24, K = 10 };
    float *x = blobs(N, D, 150, 0.7);
    lists truth = exact(x, N, D, K);
    const double asked[] = {0.6, 0.9, 0.99};
    double last = 0;
    for (int t = 0; t < 3; t++) {
        double recall = asked[t];
        lists l = by_cells(three, x, N, D, K, &recall);
        double found = check(l, truth);
        /* the sample's standard error is below .01 */
        assert_true(recall >= asked[t] && recall < 1 && fabs(found - recall) < 0.03);
        assert_true(found >= asked[t] && found > last);
        last = found;
        double second = asked[t];
        lists again = by_cells(one, x, N, D, K, &second);
        same(l, again);
        lists_drop(l), lists_drop(again);
    }
    lists_drop(truth), free(x);
}

/* Odd sizes: sums longer than one run of the kernel, lists longer than the cells that are visited,
 * one neighbor. */
static void odd_shapes(void **state) {
    (void)state;
    static const int cases[][4] = {
        {2049, 3, 2, 20}, {2100, 300, 12, 40}, {3001, 1, 5, 0}, {2500, 17, 200, 30}};
    for (int t = 0; t < 4; t++) {
        int n = cases[t][0], d = cases[t][1], k = cases[t][2];
        float *x = blobs(n, d, cases[t][3], 0.5);
        double asked = k == 200 ? 0.2 : 0.9, recall = asked;
        lists truth = exact(x, n, d, k), l = by_cells(three, x, n, d, k, &recall);
        assert_true(recall >= asked && check(l, truth) >= asked - 0.01);
        lists_drop(truth), lists_drop(l), free(x);
    }
}

/* Half of the rows are copies of one, a tenth are zero, some occur a few times. */
static void copies_and_zeros(void **state) {
    (void)state;
    enum { N = 6000, D = 16, K = 8 };
    float *x = blobs(N, D, 300, 0.4);
    for (int i = 0; i < N; i++)
        if (i % 2)
            memcpy(x + (size_t)i * D, x, D * sizeof *x);
        else if (i % 10 == 0 && i > 0)
            memset(x + (size_t)i * D, 0, D * sizeof *x);
        else if (i % 14 == 0 && i > 0)
            memcpy(x + (size_t)i * D, x + (size_t)(i / 4 * 2) * D, D * sizeof *x);
    double recall = 0.95;
    lists truth = exact(x, N, D, K), l = by_cells(three, x, N, D, K, &recall);
    assert_true(recall >= 0.95 && check(l, truth) >= 0.95);
    double second = 0.95;
    lists again = by_cells(one, x, N, D, K, &second);
    same(l, again);
    lists_drop(truth), lists_drop(l), lists_drop(again), free(x);
}

static void all_alike(void **state) {
    (void)state;
    enum { N = 3000, D = 5, K = 6 };
    float *x = malloc(N * D * sizeof *x);
    for (int zero = 0; zero < 2; zero++) {
        for (int i = 0; i < N * D; i++) x[i] = !zero && i % D == 2;
        double recall = 0.9;
        lists truth = exact(x, N, D, K), l = by_cells(three, x, N, D, K, &recall);
        assert_true(recall == 1 && check(l, truth) == 1);
        /* other copies than the exact search: those of the same cell, so not all pairs */
        assert_true(memcmp(truth.ids, l.ids, N * K * sizeof *l.ids) != 0);
        lists_drop(truth), lists_drop(l);
    }
    free(x);
}

/* Rows in all directions of a large space have no near cells: all pairs are less work. */
static void leaves_it_to_all_pairs(void **state) {
    (void)state;
    enum { N = 3000, D = 100, K = 10 };
    float *x = blobs(N, D, 0, 1);
    double recall = 0.999;
    lists truth = exact(x, N, D, K), l = by_cells(three, x, N, D, K, &recall);
    assert_true(recall == 1);
    same(truth, l);
    lists_drop(truth), lists_drop(l), free(x);
}

/* ---- who is asked ---------------------------------------------------------------------------- */

static void chooses(void **state) {
    (void)state;
    enum { N = 4000, D = 12, K = 10 };
    float *x = blobs(N, D, 100, 0.6);
    const struct {
        int k;
        double asked;
        bool exact;
    } cases[] = {{K, 1, true}, {K, 0, true}, {K, 0.5, false}, {SEARCH_LISTS + 1, 0.5, true}};
    for (int t = 0; t < 4; t++) {
        double recall = cases[t].asked;
        int k = cases[t].k;
        lists truth = exact(x, N, D, k), l = lists_new(N, k);
        assert_ok(search_nearest(three->dev, NULL, x, N, D, k, &recall, l.ids, l.values));
        assert_int_equal(recall == 1, cases[t].exact);
        if (cases[t].exact)
            same(truth, l);
        else
            assert_true(memcmp(truth.ids, l.ids, (size_t)N * k * sizeof *l.ids) != 0);
        lists_drop(truth), lists_drop(l);
    }
    /* contextual neighbors take the same search */
    conr_neighbors_options o = conr_neighbors_defaults();
    int32_t *all = malloc(N * K * sizeof *all), *most = malloc(N * K * sizeof *most);
    int alike = 0;
    assert_ok(conr_neighbors(three, x, N, D, &o, all));
    o.recall = 0.9;
    assert_ok(conr_neighbors(three, x, N, D, &o, most));
    for (int i = 0; i < N * K; i++) alike += all[i] == most[i];
    assert_true(alike > N * K / 2 && alike < N * K);
    free(all), free(most), free(x);
}

static void refuses(void **state) {
    (void)state;
    enum { N = 3000, D = 4 };
    float *x = blobs(N, D, 30, 0.5);
    int32_t *ids = malloc(N * 10 * sizeof *ids);
    conr_neighbors_options o = conr_neighbors_defaults();
    const double wrong[] = {-0.5, 1.01, NAN, INFINITY};
    for (int t = 0; t < 4; t++) {
        o.recall = wrong[t];
        assert_fails(CONR_EINVAL, "recall", conr_neighbors(one, x, N, D, &o, ids));
    }
    o.recall = 0.9;
    x[D * 77 + 1] = NAN;
    assert_fails(CONR_ENUMBER, "row 77 has NaN", conr_neighbors(one, x, N, D, &o, ids));
    free(x), free(ids);
}

/* One row more than are searched exactly unasked; and what the caller hears of it. */
static char heard[200];

static int listen(const conr_progress *p, void *user) {
    int *left = user;
    if (p->message) snprintf(heard, sizeof heard, "%s", p->message);
    return left && (*left)-- == 0;
}

static void past_the_limit(void **state) {
    (void)state;
    enum { N = SEARCH_EXACT + 1, D = 6, K = 5 };
    float *x = blobs(N, D, 3000, 0.1);
    conr_neighbors_options o = conr_neighbors_defaults();
    int32_t *ids = malloc((size_t)N * K * sizeof *ids);
    o.k = K, o.local = 1;
    heard[0] = 0;
    conr_set_progress(three, listen, NULL);
    assert_ok(conr_neighbors(three, x, N, D, &o, ids));
    conr_set_progress(three, NULL, NULL);
    assert_non_null(strstr(heard, "% found, measured on 1024 rows"));
    int better = 0; /* than the last of the list, over a few rows */
    for (int i = 0; i < N; i += N / 50) {
        double last = 0;
        for (int j = 0; j < D; j++)
            last += (double)x[(size_t)i * D + j] * x[(size_t)ids[(size_t)i * K + K - 1] * D + j];
        for (int r = 0; r < N; r++) {
            double s = 0;
            for (int j = 0; j < D; j++) s += (double)x[(size_t)i * D + j] * x[(size_t)r * D + j];
            better += r != i && s > last + 1e-6;
        }
    }
    assert_true(better <= 50 * (K - 2) + 50 * K / 20);
    free(x), free(ids);
}

/* Stopped at any report, it fails and leaves nothing behind. */
static void stops(void **state) {
    (void)state;
    enum { N = 2500, D = 6, K = 5 };
    float *x = blobs(N, D, 50, 0.3);
    conr_neighbors_options o = conr_neighbors_defaults();
    int32_t *ids = malloc((size_t)N * K * sizeof *ids);
    o.k = K, o.local = 1, o.recall = 0.9;
    int reports = 0, rc = CONR_ESTOPPED;
    for (; rc == CONR_ESTOPPED && reports < 100; reports++) {
        int left = reports;
        conr_set_progress(one, listen, &left);
        rc = conr_neighbors(one, x, N, D, &o, ids);
    }
    conr_set_progress(one, NULL, NULL);
    assert_int_equal(rc, 0);
    assert_true(reports > 20);
    free(x), free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_share),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(copies_and_zeros),
        cmocka_unit_test(all_alike),
        cmocka_unit_test(leaves_it_to_all_pairs),
        cmocka_unit_test(chooses),
        cmocka_unit_test(refuses),
        cmocka_unit_test(past_the_limit),
        cmocka_unit_test(stops),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
