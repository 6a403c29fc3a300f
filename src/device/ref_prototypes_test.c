/* ref_prototypes_test.c: prototype scattering, pulling by labels and the choice of confident rows of
 * the reference against their definitions, and the moments of its noise. */
#include "base/rng.h"
#include "base/test_help.h"
#include "device/confident.h"
#include "device/device.h"
#include "device/prototypes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static device *dev;

static int open_ref(void **state) {
    (void)state;
    return device_open("ref", 0, &dev);
}

static int close_ref(void **state) {
    (void)state;
    device_close(dev);
    return 0;
}

enum { N = 6, D = 5 };

typedef struct half_batch {
    float q[N * D], key[N * D], dq[N * D];
} half_batch;

static half_batch half_batch_make(void) {
    half_batch h = {0};
    for (int i = 0; i < N * D; i++)
        h.q[i] = sinf(1.3f * (float)i), h.key[i] = cosf(2.1f * (float)i);
    return h;
}

/* The prototypes of a cluster's rows in double, scaled to length 1. */
static void prototype_of(const float *x, const int32_t *of, int c, double out[D]) {
    double square = 0;
    for (int j = 0; j < D; j++) out[j] = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; of[i] == c && j < D; j++) out[j] += x[i * D + j];
    for (int j = 0; j < D; j++) square += out[j] * out[j];
    for (int j = 0; square > 0 && j < D; j++) out[j] /= sqrt(square);
}

/* The definition of device.h, written the naive way: clusters 0 .. 5 of which some are absent. */
static double scatter_value(const half_batch *h, const int32_t *of, double temperature) {
    double value = 0;
    int present = 0;
    for (int c = 0; c < 6; c++) {
        double own[D], other[D], positive = 0, all = 0;
        bool here = false;
        prototype_of(h->q, of, c, own);
        for (int e = 0; e < 6; e++) {
            bool there = false;
            double s = 0;
            for (int i = 0; i < N; i++) there |= of[i] == e, here |= of[i] == c;
            if (!there) continue;
            prototype_of(e == c ? h->key : h->q, of, e, other);
            for (int j = 0; j < D; j++) s += own[j] * other[j] / temperature;
            if (e == c) positive = s;
            all += exp(s);
        }
        if (here) present++, value += log(all) - positive;
    }
    return value / present;
}

/* Value by the definition, gradient by its finite differences. */
static void prototypes(void **state) {
    (void)state;
    const float temperature = 0.5f, factor = 0.25f;
    int32_t ids[N] = {5, 0, 3, 1, 4, 2}, of[N] = {4, 1, 1, 2, 4, 1}, label[N];
    half_batch h = half_batch_make();
    float loss = 10, numeric[N * D];
    void *work = malloc(prototypes_bytes(N, D, 6));
    for (int i = 0; i < N; i++) label[ids[i]] = of[i];
    assert_ok(dev->op.prototypes(dev, h.q, h.key, N, D, ids, label, 6, temperature, factor, work,
                                 &loss, h.dq));
    assert_true(fabs(loss - (10 + factor * scatter_value(&h, of, temperature))) < 2e-6);
    for (int i = 0; i < N * D; i++) {
        float old = h.q[i], step = 1e-3f;
        h.q[i] = old + step;
        double up = scatter_value(&h, of, temperature), above = h.q[i];
        h.q[i] = old - step;
        double down = scatter_value(&h, of, temperature);
        numeric[i] = (float)(factor * (up - down) / (above - h.q[i]));
        h.q[i] = old;
    }
    /* the value is in double: what is left is the third derivative, step^2/6 of it */
    assert_close("drows", h.dq, numeric, N * D, 1e-5);

    /* rows that cancel out have no gradient, and harm no one else's */
    for (int j = 0; j < D; j++) h.q[4 * D + j] = -h.q[j];
    assert_ok(dev->op.prototypes(dev, h.q, h.key, N, D, ids, label, 6, temperature, factor, work,
                                 &loss, h.dq));
    for (int j = 0; j < D; j++) assert_true(h.dq[j] == 0 && h.dq[4 * D + j] == 0);
    assert_true(isfinite(loss) && h.dq[D] != 0 && isfinite(h.dq[D]));

    /* one cluster has none to keep away from */
    for (int i = 0; i < N; i++) label[i] = 3;
    loss = 10;
    assert_ok(dev->op.prototypes(dev, h.q, h.key, N, D, ids, label, 6, temperature, factor, work,
                                 &loss, h.dq));
    assert_true(loss == 10);
    for (int i = 0; i < N * D; i++) assert_true(h.dq[i] == 0);
    free(work);
}

/* Rows without a label take no part, as if they were not there. */
static void prototypes_of_some(void **state) {
    (void)state;
    const int32_t label[N] = {4, -1, 1, 2, -1, 1}, rest[4] = {0, 2, 3, 5},
                  of_rest[4] = {4, 1, 2, 1};
    half_batch all = half_batch_make(), some = all;
    float loss = 10, want = 10;
    void *work = malloc(prototypes_bytes(N, D, 6));
    for (int i = 0; i < 4; i++) {
        memcpy(some.q + i * D, all.q + rest[i] * D, D * sizeof(float));
        memcpy(some.key + i * D, all.key + rest[i] * D, D * sizeof(float));
    }
    assert_ok(dev->op.prototypes(dev, all.q, all.key, N, D, NULL, label, 6, 0.5f, 0.25f, work,
                                 &loss, all.dq));
    assert_ok(dev->op.prototypes(dev, some.q, some.key, 4, D, NULL, of_rest, 6, 0.5f, 0.25f, work,
                                 &want, some.dq));
    assert_true(loss == want && loss > 10);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(all.dq + rest[i] * D, some.dq + i * D, D * sizeof(float));
    for (int j = 0; j < D; j++) assert_true(all.dq[D + j] == 0 && all.dq[4 * D + j] == 0);
    /* nobody has a label */
    const int32_t none[N] = {-1, -1, -1, -1, -1, -1};
    loss = 10;
    assert_ok(dev->op.prototypes(dev, all.q, all.key, N, D, NULL, none, 6, 0.5f, 0.25f, work, &loss,
                                 all.dq));
    for (int i = 0; i < N * D; i++) assert_true(all.dq[i] == 0);
    assert_true(loss == 10);
    free(work);
}

/* The definition of device.h, pair by pair. */
static double alike_value(const half_batch *h, const int32_t *label) {
    double value = 0;
    int present = 0;
    for (int c = 0; c < 6; c++) {
        double sum = 0;
        int pairs = 0;
        for (int i = 0; i < N; i++)
            for (int e = 0; e < N; e++) {
                if (label[i] != c || label[e] != c) continue;
                pairs++;
                for (int j = 0; j < D; j++) sum += (double)h->q[i * D + j] * h->key[e * D + j];
            }
        if (pairs) present++, value -= sum / pairs;
    }
    return present ? value / present : 0;
}

/* Value by the definition, gradient by its finite differences; it is added to what is there. */
static void pull_alike(void **state) {
    (void)state;
    const int32_t label[N] = {4, 1, 1, -1, 4, 1}, none[N] = {-1, -1, -1, -1, -1, -1};
    const float factor = 0.25f;
    half_batch h = half_batch_make();
    float loss = 10, numeric[N * D];
    void *work = malloc(prototypes_bytes(N, D, 6));
    for (int i = 0; i < N * D; i++) h.dq[i] = 1;
    assert_ok(dev->op.pull_alike(dev, h.q, h.key, N, D, label, 6, factor, work, &loss, h.dq));
    assert_true(fabs(loss - (10 + factor * alike_value(&h, label))) < 2e-6);
    for (int i = 0; i < N * D; i++) {
        float old = h.q[i], step = 1e-2f;
        h.q[i] = old + step;
        double up = alike_value(&h, label), above = h.q[i];
        h.q[i] = old - step;
        numeric[i] = (float)(1 + factor * (up - alike_value(&h, label)) / (above - h.q[i]));
        h.q[i] = old;
    }
    assert_close("dq", h.dq, numeric, N * D, 1e-6); /* the value is linear in q */
    for (int j = 0; j < D; j++) assert_true(h.dq[3 * D + j] == 1);
    loss = 10;
    for (int i = 0; i < N * D; i++) h.dq[i] = 1;
    assert_ok(dev->op.pull_alike(dev, h.q, h.key, N, D, none, 6, factor, work, &loss, h.dq));
    for (int i = 0; i < N * D; i++) assert_true(h.dq[i] == 1);
    assert_true(loss == 10);
    free(work);
}

/* Whether the k nearest of row i all have its label: takes the nearest k times. */
static bool agree(const float *f, int n, int d, const int32_t *of, int i, int k) {
    bool taken[64] = {false};
    taken[i] = true;
    for (int x = 0; x < k; x++) {
        int best = -1;
        float nearest = 0;
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int e = 0; e < d; e++) s += (double)f[i * d + e] * f[j * d + e];
            if (!taken[j] && (best < 0 || (float)s > nearest)) best = j, nearest = (float)s;
        }
        if (best < 0 || of[best] != of[i]) return false;
        taken[best] = true;
    }
    return true;
}

/* By the definition, on rows in clouds about as often as not of one label. */
static void confident(void **state) {
    (void)state;
    enum { ROWS = 40, COLUMNS = 3, MOST = 12 };
    float f[ROWS * COLUMNS];
    int32_t ids[ROWS], label[ROWS], of[ROWS], kept[ROWS];
    void *work = malloc(confident_bytes(ROWS));
    int chosen[MOST + 1] = {0}, partly = 0;
    for (uint32_t trial = 0; trial < 40; trial++) {
        rng r = rng_at(7, trial, 0, RNG_TEST);
        int most = 1 + (int)rng_below(&r, MOST), k = 0, count = 0, best = 0, left = 0;
        float wide = 0.1f + 0.1f * (float)(trial % 10);
        for (int i = 0; i < ROWS; i++) {
            ids[i] = (i * 7 + 3) % ROWS;
            of[i] = (int)rng_below(&r, 3);
            label[ids[i]] = of[i];
            for (int j = 0; j < COLUMNS; j++)
                f[i * COLUMNS + j] = (float)(of[i] == j) + wide * (rng_float(&r) - 0.5f);
            if (trial % 4 == 0) memcpy(f + i * COLUMNS, f + i / 2 * COLUMNS, sizeof(float[3]));
        }
        for (int x = 1; x <= most; x++, count = 0) {
            for (int i = 0; i < ROWS; i++) count += agree(f, ROWS, COLUMNS, of, i, x);
            if (x == 1 || x * count > best) best = x * count, k = x;
        }
        assert_ok(dev->op.confident(dev, f, ROWS, COLUMNS, ids, label, most, work, kept));
        for (int i = 0; i < ROWS; i++) {
            bool want = agree(f, ROWS, COLUMNS, of, i, k);
            assert_int_equal(kept[i], want ? of[i] : -1);
            left += want;
        }
        chosen[k]++, partly += left > 0 && left < ROWS;
    }
    int kinds = 0;
    for (int x = 1; x <= MOST; x++) kinds += chosen[x] > 0;
    assert_true(kinds > 5 && partly > 10); /* the rows above are neither too easy nor too hard */
    free(work);
}

/* Standard normal, each number of its own, and the same whoever asks for which rows. */
static void noise(void **state) {
    (void)state;
    enum { ROWS = 300, COLUMNS = 37 };
    step_values at = {.step = 7};
    static float all[ROWS * COLUMNS], part[ROWS * COLUMNS];
    double moment[4] = {0};
    assert_ok(dev->op.noise(dev, &at, 3, 1, 10, ROWS, COLUMNS, (act *)all));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        for (int m = 0; m < 4; m++) moment[m] += pow(all[i], m + 1) / (ROWS * COLUMNS);
    /* five deviations of the mean of 11,100 numbers: their variances are 1, 2, 15 and 96 */
    assert_true(fabs(moment[0]) < 0.05 && fabs(moment[1] - 1) < 0.07);
    assert_true(fabs(moment[2]) < 0.18 && fabs(moment[3] - 3) < 0.46);
    double beside = 0, below = 0;
    for (int i = 0; i < (ROWS - 1) * COLUMNS; i++) {
        beside += (double)all[i] * all[i + 1] / (ROWS * COLUMNS);
        below += (double)all[i] * all[i + COLUMNS] / (ROWS * COLUMNS);
    }
    assert_true(fabs(beside) < 0.05 && fabs(below) < 0.05);
    assert_ok(dev->op.noise(dev, &at, 3, 1, 110, 100, COLUMNS, (act *)part));
    assert_memory_equal(part, all + 100 * COLUMNS, 100 * COLUMNS * sizeof *part);
    at.step = 8;
    memset(part, 0, ROWS * COLUMNS * sizeof *part);
    assert_ok(dev->op.noise(dev, &at, 3, 1, 10, ROWS, COLUMNS, (act *)part));
    int same = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) same += part[i] == all[i];
    assert_true(same < 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prototypes), cmocka_unit_test(prototypes_of_some),
        cmocka_unit_test(pull_alike), cmocka_unit_test(confident),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
