/* choose_test.c: how many clusters features have: clear ones, hidden ones, odd shapes, threads. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>

static conr *one, *two;

/* Rows of K kinds around centers of their own; `large` more features that mean nothing. */
static float *blobs(int n, int d, int K, double sd, int large) {
    int wide = d + large;
    float *x = memory_new("blobs", (size_t)n * (size_t)wide, sizeof *x);
    for (int i = 0; i < n; i++) {
        rng own = rng_at(7, 1, (uint32_t)i, RNG_TEST);
        rng kind = rng_at(7, 0, (uint32_t)(i % K), RNG_TEST);
        for (int j = 0; j < wide; j++) {
            double center = j < d ? rng_normal(&kind) : 0;
            x[i * wide + j] = (float)(center + (j < d ? sd : 4) * rng_normal(&own));
        }
    }
    return x;
}

/* The number found; frees x. */
static int found(conr *c, float *x, int n, int d, int low, int high) {
    int chosen = 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    assert_ok(refine_choose_clusters(c, x, n, d, &o, low, high, &chosen));
    free(x);
    return chosen;
}

static void clear_numbers(void **state) {
    (void)state;
    assert_int_equal(found(one, blobs(400, 16, 3, 0.3, 0), 400, 16, 2, 8), 3);
    assert_int_equal(found(one, blobs(400, 16, 7, 0.3, 0), 400, 16, 2, 10), 7);
    assert_int_equal(found(two, blobs(400, 16, 7, 0.3, 0), 400, 16, 2, 10), 7);
}

/* Large features without meaning hide the kinds from k-means, unless they are whitened. */
static void hidden_numbers(void **state) {
    (void)state;
    conr_kmeans_options o = conr_kmeans_defaults();
    int plain;
    float *x = blobs(400, 16, 6, 0.4, 2);
    assert_ok(conr_choose_clusters(one, x, 400, 18, &o, 2, 9, &plain, NULL));
    assert_int_not_equal(plain, 6);
    assert_int_equal(found(one, x, 400, 18, 2, 9), 6);
}

static void odd_shapes(void **state) {
    (void)state;
    int chosen;
    conr_kmeans_options o = conr_kmeans_defaults();
    float bad[8] = {0, 1, 2, 3, 4, 5, 6, NAN};
    assert_in_range(found(one, blobs(2, 3, 2, 0.1, 0), 2, 3, 1, 2), 1, 2);
    assert_in_range(found(one, blobs(5, 3, 2, 0.1, 0), 5, 3, 1, 50), 1, 2);
    assert_in_range(found(one, blobs(60, 6, 3, 0.2, 0), 60, 6, 2, 8), 3, 3);
    assert_in_range(found(one, blobs(40, 1, 2, 0.1, 0), 40, 1, 1, 10), 1, 10);
    assert_in_range(found(one, blobs(60, 4, 3, 0, 0), 60, 4, 1, 10), 1, 3); /* copies */
    assert_fails(CONR_EINVAL, "range", refine_choose_clusters(one, bad, 2, 2, &o, 5, 4, &chosen));
    assert_fails(CONR_ENUMBER, "NaN", refine_choose_clusters(one, bad, 4, 2, &o, 1, 2, &chosen));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(clear_numbers),
                                       cmocka_unit_test(hidden_numbers),
                                       cmocka_unit_test(odd_shapes)};
    assert_ok(conr_open("cpu", 1, &one));
    assert_ok(conr_open("cpu", 2, &two));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    conr_close(one);
    conr_close(two);
    return failed;
}
