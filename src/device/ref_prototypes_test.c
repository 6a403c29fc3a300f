/* ref_prototypes_test.c: prototype scattering of the reference against its definition, and the
 * moments of its noise. */
#include "base/test_help.h"
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
        cmocka_unit_test(prototypes),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
