/* rng_test.c: known answers of Philox, and the properties that other code relies on. */
#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The vectors that come with Random123 (kat_vectors, philox4x32 10). */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void streams_do_not_meet(void **state) {
    (void)state;
    rng base = rng_at(1, 2, 3, RNG_VIEW_A);
    rng other[] = {rng_at(2, 2, 3, RNG_VIEW_A), rng_at(1, 3, 3, RNG_VIEW_A),
                   rng_at(1, 2, 4, RNG_VIEW_A), rng_at(1, 2, 3, RNG_VIEW_B),
                   rng_at(1ull << 32 | 1, 2, 3, RNG_VIEW_A)};
    for (int i = 0; i < 5; i++) {
        rng a = base;
        int equal = 0;
        for (int j = 0; j < 1000; j++) equal += rng_bits(&a) == rng_bits(&other[i]);
        assert_int_equal(equal, 0);
    }
    rng a = base, b = rng_at(1, 2, 3, RNG_VIEW_A);
    for (int j = 0; j < 1000; j++) assert_int_equal(rng_bits(&a), rng_bits(&b));
}

static void uniform_and_below(void **state) {
    (void)state;
    enum { N = 60000, SIDES = 6 };
    rng r = rng_at(5, 0, 0, RNG_TEST);
    double sum = 0, squares = 0;
    int count[SIDES] = {0};
    for (int i = 0; i < N; i++) {
        float u = rng_float(&r);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += (double)u * u;
        uint32_t face = rng_below(&r, SIDES);
        assert_true(face < SIDES);
        count[face]++;
    }
    /* five standard deviations of a mean of N */
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(squares / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
    double chi = 0;
    for (int i = 0; i < SIDES; i++)
        chi += pow(count[i] - (double)N / SIDES, 2) / ((double)N / SIDES);
    assert_true(chi < 25.7); /* 1 in 10,000 at five degrees of freedom */
    for (int i = 0; i < 100; i++) assert_int_equal(rng_below(&r, 1), 0);
    bool high = false; /* a range above 2^31 is reached, too */
    for (int i = 0; i < 100; i++) high = high || rng_below(&r, 0xffffffffu) > 0x80000000u;
    assert_true(high);
}

static void normal_moments(void **state) {
    (void)state;
    enum { N = 200000 };
    rng r = rng_at(6, 0, 0, RNG_TEST);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (int i = 0; i < N; i++) {
        double x = rng_normal(&r);
        m1 += x / N, m2 += x * x / N, m3 += x * x * x / N, m4 += x * x * x * x / N;
    }
    assert_true(fabs(m1) < 5 * sqrt(1.0 / N));
    assert_true(fabs(m2 - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m3) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m4 - 3) < 5 * sqrt(96.0 / N));
}

static void order_is_a_bijection(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 100, 256, 1000, 60000, 65536, 65537};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            uint32_t n = sizes[s];
            rng_order o = rng_order_make(7, epoch, n);
            char *seen = calloc(n, 1);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t at = rng_order_at(&o, i);
                assert_true(at < n);
                assert_false(seen[at]);
                seen[at] = 1;
            }
            free(seen);
        }
    rng_order o = rng_order_make(7, 0, 4000000000u);
    assert_true(rng_order_at(&o, 3999999999u) < 4000000000u);
}

/* The position of an image is uniform over epochs, and neighbors do not stay together. */
static void order_shuffles(void **state) {
    (void)state;
    enum { N = 1000, EPOCHS = 2000, BINS = 10 };
    int bin[BINS] = {0}, together = 0, fixed = 0;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        rng_order o = rng_order_make(8, epoch, N);
        uint32_t a = rng_order_at(&o, 123), b = rng_order_at(&o, 124);
        bin[a * BINS / N]++;
        together += b == a + 1;
        fixed += a == 123;
    }
    double chi = 0;
    for (int i = 0; i < BINS; i++)
        chi += pow(bin[i] - (double)EPOCHS / BINS, 2) / ((double)EPOCHS / BINS);
    assert_true(chi < 33.7);                  /* 1 in 10,000 at nine degrees of freedom */
    assert_true(together < 12 && fixed < 12); /* 2 are expected of each */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers), cmocka_unit_test(streams_do_not_meet),
        cmocka_unit_test(uniform_and_below),    cmocka_unit_test(normal_moments),
        cmocka_unit_test(order_is_a_bijection), cmocka_unit_test(order_shuffles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
