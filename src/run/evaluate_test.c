/* evaluate_test.c: the neighbors' accuracy of a large set, which is estimated from some of its rows. */
#include "run/evaluate.h"

#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>

/* Beyond 10,000 rows, 2,000 evenly spaced ones are asked and all the others answer. */
static void large_sets_ask_some_rows(void **state) {
    enum { N = 10500, D = 3, ASKED = 2000, CLASSES = 4 };
    float *x = malloc(N * D * sizeof *x), *split = malloc(N * D * sizeof *split);
    int64_t *truth = malloc(N * sizeof *truth), *parts = malloc(N * sizeof *parts);
    int32_t *label = calloc(N, sizeof *label);
    evaluation e = {0};
    conr *c;
    double wanted;
    int64_t asked = 0, others = 0;
    rng r = rng_at(6, 0, 0, RNG_TEST);
    (void)state;
    assert_ok(conr_open("cpu", 2, &c));
    for (int i = 0; i < N; i++) {
        double size = 0;
        truth[i] =
            i * 3 / N == 1 ? 3 : (int)rng_below(&r, CLASSES); /* not alike all over the set */
        for (int j = 0; j < D; j++) {
            x[i * D + j] = (float)rng_normal(&r) + (truth[i] % D == j ? 2.f : 0);
            size += (double)x[i * D + j] * x[i * D + j];
        }
        for (int j = 0; j < D; j++) x[i * D + j] /= (float)sqrt(size);
        label[i] = i % 2;
    }
    for (int64_t i = 0; i < N; i++) {
        bool ask = asked < ASKED && i == asked * N / ASKED;
        int64_t at = ask ? N - ASKED + asked++ : others++;
        for (int j = 0; j < D; j++) split[at * D + j] = x[i * D + j];
        parts[at] = truth[i];
    }
    assert_int_equal(others, N - ASKED);
    assert_ok(conr_knn_accuracy(c, split, parts, others, split + others * D, parts + others, ASKED,
                                D, 20, 0.07, &wanted));
    assert_true(wanted > 0.4 && wanted < 0.9); /* so that other rows would give another number */
    assert_ok(evaluation_make(c, x, N, D, label, 2, truth, NULL, 1, &e));
    assert_true(e.knn == wanted);
    free(x), free(split), free(truth), free(parts), free(label);
    conr_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_sets_ask_some_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
