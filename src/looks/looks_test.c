/* looks_test.c: copies that were made are found, other images are not; what is blurred, dark or
 * uniform is said to be so; the same for any number of threads. */
#include "base/test_help.h"

#include "base/npy.h"
#include "base/rng.h"
#include "looks/looks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, ORIGINALS = 120, COPIES = 40, N = ORIGINALS + COPIES };
enum { SAME, NOISE, CROP, BRIGHT, HALF, KINDS };

/* A picture of a few waves and disks, at any position from 0 to 1. */
static double value(int which, int c, double x, double y) {
    double v = 110;
    for (uint32_t k = 0; k < 7; k++) {
        rng r = rng_at(7, (uint32_t)which, k, RNG_TEST);
        double fx = 4 * rng_float(&r) - 2, fy = 4 * rng_float(&r) - 2;
        double at = 6.28 * rng_float(&r), high = 30 * rng_float(&r), cx = rng_float(&r);
        double cy = rng_float(&r), radius = 0.05 + 0.15 * rng_float(&r);
        v += high * sin(6.28 * (fx * x + fy * y) + at + c * 0.3);
        if (hypot(x - cx, y - cy) < radius) v += 60 * rng_float(&r) - 30;
    }
    return v;
}

static unsigned char byte(double v) { return (unsigned char)lround(v < 0 ? 0 : v > 255 ? 255 : v); }

static unsigned char (*make(int n))[SIDE][SIDE][3] {
    unsigned char(*all)[SIDE][SIDE][3] = calloc(N, sizeof *all);
    for (int i = 0; i < n; i++) {
        int of = i < ORIGINALS ? i : 2 * (i - ORIGINALS), kind = i < ORIGINALS ? SAME : i % KINDS;
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    rng r = rng_at(9, (uint32_t)i, (uint32_t)(y * SIDE + x), RNG_TEST);
                    double u = (x + .5) / SIDE, v = (y + .5) / SIDE;
                    if (kind == CROP) u = 0.07 + 0.85 * u, v = 0.04 + 0.85 * v;
                    if (kind == HALF) u = 0.17 + 0.7 * u, v = 0.08 + 0.7 * v; /* of its area */
                    double p = value(of, c, u, v);
                    if (kind == NOISE) p += 6 * rng_float(&r) - 3;
                    if (kind == BRIGHT) p = 1.1 * p + 8;
                    all[i][y][x][c] = byte(p);
                }
    }
    return all;
}

static conr_images *opened(conr *c, const char *name, const void *pixels, int n) {
    conr_images *m = NULL;
    conr_images_options o = conr_images_defaults();
    const char *path = temporary_path(name);
    assert_ok(npy_write(path, 'u', 1, 4, (int64_t[]){n, SIDE, SIDE, 3}, pixels));
    assert_ok(conr_images_open(c, path, &o, NULL, NULL, &m));
    return m;
}

static void test_copies(void **state) {
    (void)state;
    unsigned char(*all)[SIDE][SIDE][3] = make(N);
    conr_duplicate out[2][N];
    for (int threads = 1; threads <= 2; threads++) {
        conr *c;
        conr_looks *l;
        int groups, first;
        assert_ok(conr_open("cpu", threads, &c));
        conr_images *m = opened(c, "copies.npy", all, N);
        assert_ok(conr_looks_make(c, m, &l));
        conr_duplicate *d = out[threads - 1];
        assert_ok(conr_duplicates(c, l, 0.97, d, &groups));
        assert_int_equal(groups, COPIES);
        for (int i = ORIGINALS; i < N; i++) {
            int of = 2 * (i - ORIGINALS);
            if (d[i].group < 0 || d[i].group != d[of].group)
                fail_msg("copy %d of kind %d was not found", i, i % KINDS);
            assert_int_equal(d[i].identical, i % KINDS == SAME);
            assert_true(d[i].similarity >= 0.97f && d[i].similarity <= 1);
            assert_int_equal(d[i].keep, d[of].keep);
        }
        for (int i = 1; i < ORIGINALS; i += 2) assert_int_equal(d[i].group, -1);
        assert_int_equal(d[ORIGINALS].keep, 0); /* of equal ones the first */
        assert_ok(conr_duplicates(c, l, 1, d, &first));
        assert_int_equal(first, COPIES / KINDS); /* only the same bytes */
        assert_fails(CONR_EINVAL, "out of range", conr_duplicates(c, l, 0.5, d, &first));
        assert_fails(CONR_EINVAL, "out of range", conr_duplicates(c, l, NAN, d, &first));
        assert_ok(conr_duplicates(c, l, 0.97, d, &groups));
        conr_looks_free(l);
        conr_images_close(m);
        conr_close(c);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    free(all);
}

/* A picture that becomes another one in small steps: each is a copy of the next, the first is none of
 * the last; and with all of them nearly alike, few are compared. */
static void test_chain(void **state) {
    (void)state;
    enum { STEPS = 48 };
    unsigned char(*all)[SIDE][SIDE][3] = calloc(STEPS, sizeof *all);
    static conr_duplicate d[STEPS];
    conr *c;
    conr_looks *l;
    int groups;
    for (int i = 0; i < STEPS; i++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int k = 0; k < 3; k++) {
                    double u = (x + .5) / SIDE, v = (y + .5) / SIDE, t = i / (STEPS - 1.0);
                    all[i][y][x][k] = byte((1 - t) * value(3, k, u, v) + t * value(5, k, u, v));
                }
    assert_ok(conr_open("cpu", 2, &c));
    conr_images *m = opened(c, "chain.npy", all, STEPS);
    assert_ok(conr_looks_make(c, m, &l));
    assert_ok(conr_duplicates(c, l, 0.97, d, &groups));
    assert_true(l->n_pairs >= STEPS - 1 && l->n_pairs <= 16 * STEPS);
    for (int i = 1; i < STEPS; i++) { /* the steps are small enough for a chain */
        bool linked = false;
        for (int64_t j = 0; j < l->n_pairs; j++)
            linked |= l->pair[j].first == i - 1 && l->pair[j].second == i &&
                      l->pair[j].similarity > 0.97f;
        assert_true(linked);
    }
    assert_true(groups > 1 && groups < STEPS / 4);
    assert_int_not_equal(d[0].group, d[STEPS - 1].group);
    for (int64_t j = 1; j < l->n_pairs; j++)
        assert_true(l->pair[j].similarity <= l->pair[j - 1].similarity);
    conr_looks_free(l);
    conr_images_close(m);
    conr_close(c);
    free(all);
}

/* Each mean of 25 pixels, three times. */
static void blur(unsigned char m[SIDE][SIDE][3]) {
    static unsigned char was[SIDE][SIDE][3];
    for (int turn = 0; turn < 3; turn++) {
        memcpy(was, m, sizeof was);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    int sum = 0, n = 0;
                    for (int v = y - 2; v <= y + 2; v++)
                        for (int u = x - 2; u <= x + 2; u++)
                            if (u >= 0 && v >= 0 && u < SIDE && v < SIDE) sum += was[v][u][c], n++;
                    m[y][x][c] = (unsigned char)(sum / n);
                }
    }
}

static void test_reasons(void **state) {
    (void)state;
    unsigned char(*all)[SIDE][SIDE][3] = make(4);
    conr *c;
    conr_looks *l;
    conr_look a;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int k = 0; k < 3; k++) {
                all[1][y][x][k] /= 12;
                all[2][y][x][k] = (unsigned char)(200 + (x + y) % 3);
            }
    blur(all[3]);
    assert_ok(conr_open("cpu", 1, &c));
    conr_images *m = opened(c, "reasons.npy", all, 4);
    assert_ok(conr_looks_make(c, m, &l));
    static const int wanted[] = {0, CONR_LOOK_DARK, CONR_LOOK_UNIFORM, CONR_LOOK_BLURRED};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(conr_looks_get(l, i, &a), 4);
        if ((conr_look_reasons(&a) & wanted[i]) != wanted[i] || (i == 0 && conr_look_reasons(&a)))
            fail_msg("image %d: brightness %g, contrast %g, sharpness %g", i, a.brightness,
                     a.contrast, a.sharpness);
    }
    assert_true(a.width == SIDE && a.height == SIDE && a.bytes == SIDE * SIDE * 3);
    conr_looks_free(l);
    conr_images_close(m);
    conr_close(c);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies), cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_reasons)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
