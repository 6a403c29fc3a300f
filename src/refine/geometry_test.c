/* geometry_test.c: eigenvalues, principal components, agreement, and the choice of a map. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static conr *cpu;

static void test_jacobi(void **state) {
    (void)state;
    /* eigenvalues 1, 2, 4 with eigenvectors (1,-1,0), (1,1,-1), (1,1,2) */
    double a[9] = {11 / 6., 5 / 6., 2 / 3., 5 / 6., 11 / 6., 2 / 3., 2 / 3., 2 / 3., 10 / 3.};
    double b[9], e[9];
    memcpy(b, a, sizeof a);
    jacobi(a, 3, e);
    assert_true(fabs(a[0] + a[4] + a[8] - 7) < 1e-9 && fabs(a[0] * a[4] * a[8] - 8) < 1e-9);
    for (int i = 0; i < 3; i++) /* b e_i = a_ii e_i, and the e_i are orthonormal */
        for (int j = 0; j < 3; j++) {
            double left = 0, dot = 0;
            for (int k = 0; k < 3; k++) {
                left += b[j * 3 + k] * e[i * 3 + k];
                dot += e[i * 3 + k] * e[j * 3 + k];
            }
            assert_true(fabs(left - a[i * 4] * e[i * 3 + j]) < 1e-9);
            assert_true(fabs(dot - (i == j)) < 1e-9);
        }
}

static void test_agreement(void **state) {
    (void)state;
    const int32_t ids[] = {0, 1, 2, 1, 0, 2, 2, 3, 0, 3, 2, 1}, label[] = {0, 0, 1, 1};
    /* shares 1/2, 1/2, 1/2, 1/2; by chance 1/4 + 1/4 */
    assert_true(fabs(agreement(ids, 3, label, 4, 2) - 0) < 1e-12);
    assert_true(fabs(agreement(ids, 3, label, 4, 3) - 0) < 1e-12); /* an empty cluster */
    const int32_t pairs[] = {0, 1, 1, 0, 2, 3, 3, 2}, one[] = {0, 0, 0, 0};
    assert_true(fabs(agreement(pairs, 2, label, 4, 2) - 0.5) < 1e-12);
    assert_true(fabs(agreement(pairs, 2, one, 4, 1) - 0) < 1e-12);
}

/* Directions are orthonormal, components are not correlated and have the deviations that it says,
 * the largest first; all variance is found if there are few directions, nearly all if many. */
static void check_components(int n, int d, int rank) {
    principal s;
    float *x = memory_new("rows", (size_t)n * (size_t)d, sizeof *x);
    for (int i = 0; i < n; i++) {
        rng own = rng_at(3, 0, (uint32_t)i, RNG_TEST);
        float part[300];
        for (int c = 0; c < rank; c++) part[c] = (float)(rng_normal(&own) * pow(0.9, c));
        for (int j = 0; j < d; j++) {
            rng mix = rng_at(3, 1, (uint32_t)j, RNG_TEST);
            double sum = 1; /* far from the origin, so that unit rows keep the rank nearly */
            for (int c = 0; c < rank; c++) sum += 0.01 * part[c] * rng_normal(&mix);
            x[i * d + j] = (float)sum;
        }
    }
    assert_ok(principal_measure(cpu->host, x, n, d, 1, &s));
    assert_true(s.p <= d && s.p <= REFINE_COMPONENTS);
    for (int a = 0; a < s.p; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int j = 0; j < d; j++) dot += (double)s.basis[a * d + j] * s.basis[b * d + j];
            assert_true(fabs(dot - (a == b)) < 1e-4);
        }
    float *y = memory_new("rows", (size_t)n * (size_t)s.p, sizeof *y);
    assert_ok(principal_rows(cpu->host, &s, x, n, false, y));
    double largest = (double)s.deviation[0] * s.deviation[0];
    for (int a = 0; a < s.p; a++) {
        assert_true(a == 0 || s.deviation[a] <= s.deviation[a - 1]);
        for (int b = 0; b <= a; b++) {
            double sum = 0, expected = a == b ? (double)s.deviation[a] * s.deviation[a] : 0;
            for (int i = 0; i < n; i++) sum += (double)y[i * s.p + a] * y[i * s.p + b];
            assert_true(fabs(sum / n - expected) < 1e-3 * largest);
        }
    }
    double all = 0, found = 0; /* variance of unit rows, and of the components */
    for (int i = 0; i < n; i++) {
        double length = 0;
        for (int j = 0; j < d; j++) length += (double)x[i * d + j] * x[i * d + j];
        for (int j = 0; j < d; j++) all += pow(x[i * d + j] / sqrt(length) - s.mean[j], 2) / n;
    }
    for (int a = 0; a < s.p; a++) found += (double)s.deviation[a] * s.deviation[a];
    if (!(found > 0.995 * all && found < 1.001 * all)) fail_msg("%g of %g found", found, all);
    principal_free(&s);
    free(x), free(y);
}

static void test_components(void **state) {
    (void)state;
    check_components(200, 5, 5);
    check_components(200, 40, 6);
    check_components(100, 300, 40);
}

/* Of clusters that overlap, some map of all components often agrees best, by chance; the optimum of
 * k-means that was judged would not be found again there, so discriminants are taken. */
static void test_discriminants_are_taken(void **state) {
    enum { N = 200, P = 6, K = 4, NEAR = 5 };
    (void)state;
    float x[N * P], deviation[P], map[REFINE_COMPONENTS * P], of[REFINE_COMPONENTS];
    int32_t ids[N * NEAR];
    conr_neighbors_options o = conr_neighbors_defaults();
    for (int i = 0; i < N; i++) {
        rng own = rng_at(6, 0, (uint32_t)i, RNG_TEST);
        for (int j = 0; j < P; j++)
            x[i * P + j] = (float)(rng_normal(&own) + (j == i % K ? 1.5 : 0) - 1.5 * (j < K) / K);
    }
    for (int j = 0; j < P; j++) {
        double square = 0;
        for (int i = 0; i < N; i++) square += pow(x[i * P + j], 2) / N;
        deviation[j] = (float)sqrt(square);
    }
    o.local = 1, o.k = NEAR;
    assert_ok(conr_neighbors(cpu, x, N, P, &o, ids));
    for (int seed = 1; seed <= 8; seed++) {
        int r = 0;
        assert_ok(
            geometry_choose(cpu, x, N, P, deviation, ids, NEAR, K, (uint64_t)seed, map, of, &r));
        assert_int_equal(r, K - 1);
    }
}

/* Three clusters that differ in one small component each, beside two large ones that mean nothing:
 * the map has as many rows as discriminants, and separates them. */
static void test_map(void **state) {
    enum { N = 300, P = 6, K = 3 };
    (void)state;
    float x[N * P], deviation[P], map[REFINE_COMPONENTS * P], of[REFINE_COMPONENTS];
    int32_t ids[N * 2];
    int r = 0;
    for (int i = 0; i < N; i++) {
        rng own = rng_at(5, 0, (uint32_t)i, RNG_TEST);
        for (int j = 0; j < P; j++)
            x[i * P + j] = (float)(j < 2 ? rng_normal(&own) : 0.02 * rng_normal(&own));
        x[i * P + 2 + i % K] += 0.3f;
        ids[i * 2] = i, ids[i * 2 + 1] = (i + K) % N;
    }
    for (int j = 0; j < P; j++) {
        double sum = 0, square = 0;
        for (int i = 0; i < N; i++) sum += x[i * P + j] / N;
        for (int i = 0; i < N; i++) x[i * P + j] -= (float)sum, square += pow(x[i * P + j], 2) / N;
        deviation[j] = (float)sqrt(square);
    }
    assert_ok(geometry_choose(cpu, x, N, P, deviation, ids, 2, K, 1, map, of, &r));
    assert_int_equal(r, K - 1);
    double within = 0, between = 0,
           variance = 0; /* from the first row of the cluster, and others */
    float y[N * (K - 1)];
    for (int i = 0; i < N; i++)
        for (int a = 0; a < r; a++) {
            double sum = 0;
            for (int j = 0; j < P; j++) sum += (double)map[a * P + j] * x[i * P + j];
            y[i * r + a] = (float)sum;
            variance += sum * sum / N / r;
            within += pow(y[i * r + a] - y[i % K * r + a], 2);
            between += pow(y[i * r + a] - y[(i + 1) % K * r + a], 2);
        }
    assert_true(fabs(variance - 1) < 1e-3);
    if (!(within < 0.05 * between)) fail_msg("within %g, between %g", within, between);
    /* clusters unknown: all components, and none is lost */
    assert_ok(geometry_choose(cpu, x, N, P, deviation, ids, 2, 0, 1, map, of, &r));
    assert_int_equal(r, P);
    for (int j = 0; j < P; j++) assert_true(of[j] > 0);
}

static int open_cpu(void **state) {
    (void)state;
    return conr_open("cpu", 1, &cpu);
}

static int close_cpu(void **state) {
    (void)state;
    conr_close(cpu);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jacobi), cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_components), cmocka_unit_test(test_discriminants_are_taken),
        cmocka_unit_test(test_map)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
