/* baseline_test.c: who wins between a training and the descriptor, with labels and without. */
#include "run/baseline.h"

#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 240, K = 4, SIDE = 32, D = 8 };

static unsigned char pixel[N][SIDE * SIDE];
static stored kept[N];
static store images = {.n = N, .c = 1, .image = kept};
static float features[N][D];
static int32_t label[N];
static int64_t truth[N];

/* Stripes in four directions, anywhere and of any contrast; image i has direction i % K. */
static void draw_images(void) {
    for (int i = 0; i < N; i++) {
        rng r = rng_at(7, 0, (uint32_t)i, 0);
        double angle = M_PI / K * (i % K) + 0.1, phase = 6 * rng_float(&r);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                pixel[i][y * SIDE + x] =
                    (unsigned char)(128 +
                                    60 * sin(phase + 1.1 * (x * cos(angle) + y * sin(angle))) +
                                    40 * rng_float(&r));
        kept[i] = (stored){.pixels = pixel[i], .w = SIDE, .h = SIDE};
        truth[i] = i % K;
    }
}

/* Features around K corners, with row i at the one that of() gives, which is also its label. */
static void draw_features(int (*of)(int i)) {
    for (int i = 0; i < N; i++) {
        rng r = rng_at(8, 0, (uint32_t)i, 0);
        label[i] = of(i);
        for (int j = 0; j < D; j++)
            features[i][j] = (float)(j == label[i]) + 0.2f * (float)(rng_float(&r) - 0.5);
    }
}

static int by_class(int i) { return i % K; }
static int by_chance(int i) {
    rng r = rng_at(9, 0, (uint32_t)i, 0);
    return (int)rng_below(&r, K);
}

static conr_baseline make(bool labeled, int threads, int clusters) {
    conr *c;
    conr_baseline out;
    trained t = {.images = &images,
                 .features = features[0],
                 .d = D,
                 .label = label,
                 .K = clusters,
                 .truth = labeled ? truth : NULL,
                 .seed = 1};
    assert_ok(conr_open("cpu", threads, &c));
    assert_ok(baseline_make(c, &t, &out));
    conr_close(c);
    return out;
}

/* A training whose clusters are tight, but mean nothing. */
static void artifacts_lose(void **state) {
    (void)state;
    draw_features(by_chance);
    conr_baseline b = make(true, 2, K);
    assert_int_equal(b.images, N);
    assert_true(b.descriptor.scores.acc > 0.9);
    assert_true(b.training.scores.acc < 0.5);
    assert_true(b.training.agreement > 0.99); /* which alone would speak for the training */
    assert_true(b.descriptor_wins);
    char *text = baseline_warning(&b);
    assert_non_null(strstr(text, "warning: the built-in descriptor's clusters are better than the "
                                 "training's: NMI"));
    free(text);
    b = make(false, 2, K);
    assert_true(fabs(b.training.confirmed) < 0.1 && fabs(b.descriptor.confirmed) < 0.1);
    assert_true(isfinite(b.training.silhouette) && b.training.stability > 0.9);
}

/* A training that knows half of the images: what it made up is not confirmed. */
static int by_half(int i) { return i % 8 < 4 ? i % K : by_chance(i); }

static void half_loses(void **state) {
    (void)state;
    draw_features(by_half);
    conr_baseline b = make(false, 1, K);
    assert_true(b.descriptor.confirmed > 0.1);
    b.training.confirmed = 0.89 * b.descriptor.confirmed;
    assert_true(baseline_wins(&b));
    char *text = baseline_warning(&b);
    assert_non_null(strstr(text, "confirm them to"));
    free(text);
    b.labeled = 1, b.training.scores = (conr_scores){.nmi = 1, .acc = 1, .ari = 1};
    assert_false(baseline_wins(&b));    /* labels say so, */
    assert_true(baseline_confirms(&b)); /* which the other sign must not know */
    b.labeled = 0;
    b.training.confirmed = 0.91 * b.descriptor.confirmed; /* too close to say */
    assert_false(baseline_wins(&b));
    b.training.confirmed = NAN;
    assert_false(baseline_wins(&b));
}

static void training_wins(void **state) {
    (void)state;
    draw_features(by_class);
    conr_baseline b = make(false, 2, K);
    assert_true(b.training.confirmed > 0.8);
    assert_false(b.descriptor_wins);
    assert_null(baseline_warning(&b));
    conr_baseline again = make(false, 1, K); /* the same bits on any number of threads */
    assert_memory_equal(&b.descriptor, &again.descriptor, sizeof b.descriptor);
    assert_memory_equal(&b.training, &again.training, sizeof b.training);
    for (int i = 0; i < N; i++) truth[i] = i % 3; /* labels that say otherwise */
    b = make(true, 2, K);
    assert_true(b.descriptor.scores.acc < 0.6 && b.training.scores.acc < 0.6);
    for (int i = 0; i < N; i++) truth[i] = i < 3 ? i : -1; /* too few labels to judge by */
    b = make(true, 2, K);
    assert_false(b.labeled || b.descriptor_wins);
    for (int i = 0; i < N; i++) truth[i] = i % K;
}

/* One cluster, as many as images, and more. */
static void odd_numbers(void **state) {
    (void)state;
    memset(label, 0, sizeof label);
    conr_baseline b = make(false, 2, 1);
    assert_int_equal(b.images, N);
    assert_true(isnan(b.training.confirmed) && isnan(b.training.silhouette));
    assert_false(b.descriptor_wins);
    b = make(true, 2, N);
    assert_int_equal(b.images, N);
    b = make(true, 2, N + 1);
    assert_int_equal(b.images, 0);
    assert_false(baseline_wins(&b));
    assert_null(baseline_warning(&b));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(artifacts_lose), cmocka_unit_test(half_loses),
        cmocka_unit_test(training_wins), cmocka_unit_test(odd_numbers)};
    draw_images();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
