/* evaluate_test.c: what an evaluation says about clusters made by hand. */
#include "run/evaluate.h"

#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Past 10,000 rows some of them are queries against the rest: with classes that lie apart, every
 * query finds its own class, wherever it stands in the file. */
static void neighbors_of_many_rows(void **state) {
    (void)state;
    enum { N = 10500, D = 3 };
    conr *c;
    evaluation e;
    float *f = calloc(N * D, sizeof *f);
    int32_t *label = calloc(N, sizeof *label);
    int64_t *truth = calloc(N, sizeof *truth);
    assert_true(f && label && truth);
    for (int i = 0; i < N; i++) {
        truth[i] = (i * 7 / 5 + i / 100) % D;
        label[i] = i % 2;
        f[i * D + truth[i]] = 1;
    }
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(evaluation_make(c, f, N, D, label, 2, truth, NULL, 1, &e));
    assert_true(e.knn == 1);
    assert_true(e.agreement > 0.4 && e.agreement < 0.6); /* the clusters are not the classes */
    assert_true(fabs(e.modularity - (e.agreement - 0.5)) < 0.01); /* but of equal size */
    assert_true(isnan(e.stability) && isnan(e.silhouette));
    assert_int_equal(e.smallest, N / 2);
    truth[1] = -1; /* unlabeled rows do not count, and those after them keep their labels */
    f[D] = f[D + 1] = f[D + 2] = 0.57735f;
    assert_ok(evaluation_make(c, f, N, D, label, 2, truth, NULL, 1, &e));
    assert_true(e.knn == 1);
    conr_close(c);
    free(f), free(label), free(truth);
}

/* The share of images that stay, whatever the clusters are called. */
static void stability(void **state) {
    (void)state;
    enum { N = 10 };
    conr *c;
    evaluation e;
    float f[N * 2];
    int32_t before[N], now[N];
    for (int i = 0; i < N; i++) {
        f[2 * i] = i % 2, f[2 * i + 1] = 1 - f[2 * i];
        before[i] = i % 2, now[i] = 1 - before[i];
    }
    now[0] = 0, now[1] = 1; /* two move */
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(evaluation_make(c, f, N, 2, now, 2, NULL, before, 1, &e));
    assert_true(fabs(e.stability - 0.8) < 1e-12);
    assert_true(isnan(e.knn) && isfinite(e.silhouette));
    /* each row's neighbors are the 9 others; of two clusters of 5, 4 share its own */
    assert_true(fabs(e.agreement - 4 / 9.0) < 1e-12);
    assert_true(fabs(e.modularity - (4 / 9.0 - 0.5)) < 1e-12);
    assert_true(fabs(e.deviation - sqrt(0.5)) < 1e-6); /* the mean is (1/2, 1/2) */
    memset(now, 0, sizeof now); /* one cluster has no silhouette, and is no error */
    assert_ok(evaluation_make(c, f, N, 2, now, 1, NULL, before, 1, &e));
    assert_true(isnan(e.silhouette));
    conr_close(c);
}

/* The distance to the next optimum, in which runs that ended in the same one do not count. */
static void gap(void **state) {
    (void)state;
    float several[] = {105, 100.002f, 102, 100, 103}, same[] = {100, 100.005f, 100.001f};
    assert_true(fabs(evaluation_gap(several, 5) - 0.02) < 1e-6);
    assert_true(isnan(evaluation_gap(several, 1)) && isnan(evaluation_gap(same, 3)));
    assert_true(isnan(evaluation_gap(NULL, 0)));
    assert_true(isnan(evaluation_gap((float[]){0, 1}, 2))); /* no fraction of nothing */
}

/* Expects the warnings whose texts contain these words, in order. */
static void assert_warns(const evaluation *e, int64_t n, int K, const char *const *want) {
    for (int i = 0;; i++) {
        char *text = evaluation_warning(e, n, K, i);
        if (!text != !want[i]) fail_msg("warning %d is '%s', not '%s'", i, text, want[i]);
        if (!text) return;
        if (strncmp(text, "warning: ", 9) || !strstr(text, want[i]))
            fail_msg("warning %d is '%s', not '%s'", i, text, want[i]);
        free(text);
    }
}

#define WARNS(e, n, K, ...) assert_warns(&e, n, K, (const char *const[]){__VA_ARGS__})

static void warnings(void **state) {
    (void)state;
    evaluation fine = {.deviation = 0.5, .smallest = 11, .largest = 399};
    WARNS(fine, 1000, 10, NULL); /* an even share is 100: a tenth and four times are allowed */
    evaluation odd = {.deviation = 0.05, .smallest = 9, .largest = 401};
    WARNS(odd, 1000, 10, "nearly collapsed", "smallest cluster has 9", "largest cluster has 401",
          NULL);
    evaluation one = {.deviation = 0.5, .smallest = 1000, .largest = 1000};
    WARNS(one, 1000, 1, NULL);
    evaluation tiny = {.deviation = 0.5, .smallest = 9, .largest = 399};
    WARNS(tiny, 1000, 10, "smallest cluster has 9", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbors_of_many_rows),
        cmocka_unit_test(stability),
        cmocka_unit_test(gap),
        cmocka_unit_test(warnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
