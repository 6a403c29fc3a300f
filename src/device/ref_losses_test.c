/* ref_losses_test.c: the losses of the reference against their definition, the boundary filter,
 * rows and rings by hand. */
#include "base/test_help.h"
#include "device/device.h"

#include <math.h>
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

enum { LOSS_N = 6, LOSS_D = 5, LOSS_K = 3, LOSS_QUEUE = 7 };

typedef struct half_batch {
    float q[LOSS_N * LOSS_D], key[LOSS_N * LOSS_D], queue[LOSS_QUEUE * LOSS_D];
    float weight[LOSS_N], logits[LOSS_N * LOSS_QUEUE], dq[LOSS_N * LOSS_D];
    int32_t near[LOSS_N * LOSS_K];
} half_batch;

static half_batch half_batch_make(void) {
    half_batch h = {0};
    for (int i = 0; i < LOSS_N * LOSS_D; i++)
        h.q[i] = sinf(1.3f * (float)i), h.key[i] = cosf(2.1f * (float)i);
    for (int i = 0; i < LOSS_QUEUE * LOSS_D; i++) h.queue[i] = sinf(0.7f * (float)i + 1);
    for (int i = 0; i < LOSS_N; i++) h.weight[i] = i == 2 ? 0 : 0.1f + 0.05f * (float)i;
    for (int i = 0; i < LOSS_N * LOSS_K; i++) h.near[i] = (i * 5 + i / 4) % LOSS_N;
    return h;
}

/* The definition in device.h, written naively in double.  temperature 0: pull. */
static double loss_value(const half_batch *h, bool listed, bool weighted, double temperature) {
    double value = 0;
    int k = listed ? LOSS_K : 1;
    for (int i = 0; i < LOSS_N; i++)
        for (int e = 0; e < k; e++) {
            int other = listed ? h->near[i * k + e] : i;
            double s = 0, others = 0, w = weighted ? h->weight[i] : 1.0 / LOSS_N;
            for (int j = 0; j < LOSS_D; j++)
                s += (double)h->q[i * LOSS_D + j] * h->key[other * LOSS_D + j];
            for (int m = 0; temperature > 0 && m < LOSS_QUEUE; m++) {
                double l = 0;
                for (int j = 0; j < LOSS_D; j++)
                    l += (double)h->q[i * LOSS_D + j] * h->queue[m * LOSS_D + j];
                others += exp(l / temperature);
            }
            value -=
                w / k *
                (temperature > 0 ? log(exp(s / temperature) / (exp(s / temperature) + others)) : s);
        }
    return value;
}

/* The value against the definition, the gradient against its finite differences. */
static void losses(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        bool listed = variant & 1, weighted = variant & 2, contrast = variant & 4;
        float temperature = 0.5f, factor = 0.25f, loss = 10;
        half_batch h = half_batch_make();
        const int32_t *near = listed ? h.near : NULL;
        const float *weight = weighted ? h.weight : NULL;
        double t = contrast ? temperature : 0;
        int k = listed ? LOSS_K : 1;
        if (contrast)
            assert_ok(dev->op.contrast(dev, h.q, h.key, LOSS_N, LOSS_D, near, k, weight, factor,
                                       h.queue, LOSS_QUEUE, temperature, h.logits, &loss, h.dq));
        else
            assert_ok(dev->op.pull(dev, h.q, h.key, LOSS_N, LOSS_D, near, k, weight, factor, &loss,
                                   h.dq));
        double want = 10 + factor * loss_value(&h, listed, weighted, t);
        assert_true(fabs(loss - want) < 2e-6);
        float numeric[LOSS_N * LOSS_D];
        for (int i = 0; i < LOSS_N * LOSS_D; i++) {
            float old = h.q[i], step = 1e-3f;
            h.q[i] = old + step;
            double up = loss_value(&h, listed, weighted, t), above = h.q[i];
            h.q[i] = old - step;
            double down = loss_value(&h, listed, weighted, t);
            numeric[i] = (float)(factor * (up - down) / (above - h.q[i]));
            h.q[i] = old;
        }
        /* the value is in double: what remains is step^2/6 of the third derivative */
        assert_close("dq", h.dq, numeric, LOSS_N * LOSS_D, 1e-5);
    }
}

/* Logits of hundreds: the exponentials themselves would overflow. */
static void contrast_is_stable(void **state) {
    (void)state;
    float q[2] = {1, 0}, key[2] = {1, 0}, queue[4] = {0.5f, 0, -1, 0}, logits[2], loss = 0, dq[2];
    assert_ok(
        dev->op.contrast(dev, q, key, 1, 2, NULL, 1, NULL, 1, queue, 2, 1e-3f, logits, &loss, dq));
    assert_true(loss == 0 && dq[0] == 0 && dq[1] == 0); /* e^1000 against e^500 */
    key[0] = -1, loss = 0;
    assert_ok(
        dev->op.contrast(dev, q, key, 1, 2, NULL, 1, NULL, 1, queue, 2, 1e-3f, logits, &loss, dq));
    assert_true(fabsf(loss - 1500) < 1e-3f); /* log(e^500 / e^-1000) */
    assert_true(fabsf(dq[0] - 1500) < 1e-3f && dq[1] == 0);
}

/* Points on a line, centroids at 0 and 4 (and 100): every ratio is easy to compute by hand. */
static void boundary_filter(void **state) {
    (void)state;
    float f[] = {0, 1, 2, 3, 1, 2.5f}, centroids[] = {0, 4, 100}, ratio[6], weight[6];
    int32_t ids[] = {3, 0, 5, 1, 0, 4}, label[] = {0, 1, 7, 0, 0, 0};
    /* labels 0 0 0 1 0 0; inside 0 1 2 1 1 2.5, outside 4 3 2 3 3 1.5 */
    float want[] = {0, 1 - 2.0f / 3, 1, 1 - 2.0f / 3, 1 - 2.0f / 3, 1.4f};
    const struct { int keep, kept; } rows[] = {{1, 1}, {2, 4}, {3, 4}, {4, 4}, {5, 5}, {6, 6}};
    for (int r = 0; r < 6; r++)
        for (int over = 0; over < 2; over++) {
            step_values at = {.keep = rows[r].keep};
            float sigma = r == 0 ? 0 : r < 4 ? 0.5f : r == 4 ? 1.1f : 2;
            assert_ok(
                dev->op.boundary(dev, &at, f, 6, 1, ids, label, centroids, 3, over, ratio, weight));
            for (int i = 0; i < 6; i++) {
                float each = 1.0f / (float)(over ? 6 : rows[r].kept);
                assert_true(fabsf(ratio[i] - want[i]) < 1e-6f);
                assert_true(weight[i] == (want[i] <= sigma ? each : 0));
            }
        }

    /* one cluster: there is no boundary, all tie */
    step_values at = {.keep = 2};
    int32_t zero[6] = {0};
    assert_ok(dev->op.boundary(dev, &at, f, 6, 1, zero, zero, centroids, 1, false, ratio, weight));
    for (int i = 0; i < 6; i++) assert_true(ratio[i] == 0 && weight[i] == 1.0f / 6);

    /* two centroids in the same place, and a point on them */
    float same[] = {1, 1}, point = 1;
    at.keep = 1;
    assert_ok(dev->op.boundary(dev, &at, &point, 1, 1, zero, zero, same, 2, false, ratio, weight));
    assert_true(ratio[0] == 1 && weight[0] == 1);
}

static void rows_and_rings(void **state) {
    (void)state;
    const char from[] = "abcdef";
    char to[9] = {0};
    int32_t ids[] = {2, 0, 2, 1};
    assert_ok(dev->op.rows_take(dev, from, 2, ids, 4, to));
    assert_string_equal(to, "efabefcd");

    float ring[5] = {0}, rows[] = {1, 2, 3};
    step_values at = {.step = 1, .average = 0.75f};
    assert_ok(dev->op.ring_put(dev, &at, rows, 3, 1, ring, 5)); /* 3 4 0 */
    float want[] = {3, 0, 0, 1, 2};
    assert_memory_equal(ring, want, sizeof want);
    at.step = 4000000000u; /* times 3 exceeds 32 bits; 12e9 mod 5 = 0 */
    assert_ok(dev->op.ring_put(dev, &at, rows, 3, 1, ring, 5));
    float again[] = {1, 2, 3, 1, 2};
    assert_memory_equal(ring, again, sizeof again);

    float w[] = {4, 8}, average[] = {0, 4};
    assert_ok(dev->op.average(dev, &at, 2, w, average));
    assert_true(average[0] == 1 && average[1] == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses),
        cmocka_unit_test(contrast_is_stable),
        cmocka_unit_test(boundary_filter),
        cmocka_unit_test(rows_and_rings),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
