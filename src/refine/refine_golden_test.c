/* refine_golden_test.c: ten steps of refining against PyTorch's autograd.  Names and layout of
 * golden/refine.safetensors are explained in golden/make_refine.py. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/tensors.h"
#include "base/test_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, B = 8, D = 7, HIDDEN = 9, WIDTH = 5 };

static const double bound = 1e-4; /* of float32 over ten steps; make_refine.py has a third of it */

static tensors file;

/* A tensor as floats, freed by the caller. */
static float *numbers(const char *name, size_t count) {
    const tensor *x = tensors_find(&file, name);
    assert_non_null(x);
    assert_int_equal(x->count, count);
    float *out = memory_new(name, count, sizeof *out);
    assert_ok(tensors_floats(&file, x, out));
    return out;
}

/* The tensors of layers before `end`, as [count] at `at` of the weights or the statistics. */
typedef struct part {
    char name[NETWORK_NAME + 32];
    bool statistic;
    size_t at, count;
} part;

static int parts_of(const network *net, int end, part out[64]) {
    int n = 0;
    for (int i = 0; i < end; i++) {
        const layer *l = &net->layer[i];
        size_t co = (size_t)l->co;
        const struct {
            const char *of, *field;
            bool there, statistic;
            size_t at, count;
        } all[] = {{l->name, "weight", true, false, l->w_at, co * (size_t)l->ci},
                   {l->name, "bias", l->bias, false, l->bias_at, co},
                   {l->norm_name, "weight", l->norm, false, l->gamma_at, co},
                   {l->norm_name, "bias", l->norm, false, l->beta_at, co},
                   {l->norm_name, "running_mean", l->norm, true, l->running_at, co},
                   {l->norm_name, "running_var", l->norm, true, l->running_at + co, co}};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            if (!all[k].there) continue;
            snprintf(out[n].name, sizeof out[n].name, "%s.%s", all[k].of, all[k].field);
            out[n].statistic = all[k].statistic, out[n].at = all[k].at;
            out[n++].count = all[k].count;
        }
    }
    return n;
}

/* Puts the tensors PREFIX.NAME into the blocks of a network on the device, or compares them. */
static void visit(refiner *r, const char *prefix, int end, float *w, float *running, bool compare) {
    part p[64];
    int n = parts_of(&r->net, end, p);
    for (int i = 0; i < n; i++) {
        char name[NETWORK_NAME + 64];
        snprintf(name, sizeof name, "%.16s.%.100s", prefix, p[i].name);
        float *value = numbers(name, p[i].count), *got = calloc(p[i].count, sizeof *got);
        float *at = (p[i].statistic ? running : w) + p[i].at;
        if (compare) {
            assert_ok(r->dev->op.get(r->dev, got, at, p[i].count * sizeof *got));
            assert_close(name, got, value, p[i].count, bound);
        } else {
            assert_ok(r->dev->op.put(r->dev, at, value, p[i].count * sizeof *value));
        }
        free(value), free(got);
    }
}

/* The rows of step s into r->host: a_i, b_i, b_j, a_i, a_j'. */
static void fill_views(refiner *r, int s, const float *x, const float *mask) {
    static const char *const of[] = {"row", "row", "near_b", "near_a"};
    static const int block[] = {0, 1, 2, 4};
    for (int v = 0; v < 4; v++) {
        float *row = numbers(of[v], STEPS * B);
        for (int i = 0; i < B; i++)
            for (int j = 0; j < D; j++)
                r->host[((size_t)block[v] * B + (size_t)i) * D + (size_t)j] =
                    x[(int)row[s * B + i] * D + j] * mask[((s * 4 + v) * B + i) * D + j] / 0.75f;
        free(row);
    }
    memcpy(r->host + 3 * B * D, r->host, (size_t)B * D * sizeof *r->host);
}

static void ten_steps(const char *name) {
    device *dev;
    refiner r;
    assert_ok(device_open(name, 2, &dev));
    assert_ok(tensors_open(golden_path("refine.safetensors"), &file));
    assert_ok(refiner_open(dev, D, HIDDEN, WIDTH, B, 1, NULL, &r));
    float *x = numbers("x", 40 * D), *mask = numbers("mask", (size_t)STEPS * 4 * B * D);
    float *kept = numbers("kept", STEPS * B), *expected = numbers("loss", STEPS);
    float *lr = numbers("lr", STEPS), *m = numbers("m", STEPS), loss[STEPS];
    visit(&r, "start", r.net.n_layers, r.w, r.running, false);
    visit(&r, "start", r.net.projector_end, r.target_w, r.target_running, false);
    for (int s = 0; s < STEPS; s++) {
        float weight[B], count = 0;
        double sum;
        for (int i = 0; i < B; i++) count += kept[s * B + i];
        for (int i = 0; i < B; i++) weight[i] = kept[s * B + i] / count;
        step_values at = {.lr = {lr[s], lr[s]}, .momentum = 0.9f, .decay = 5e-4f, .average = m[s]};
        fill_views(&r, s, x, mask);
        assert_ok(refiner_step(&r, &at, weight));
        assert_ok(refiner_loss(&r, &sum));
        loss[s] = (float)sum;
    }
    assert_close("loss", loss, expected, STEPS, bound);
    visit(&r, "online", r.net.n_layers, r.w, r.running, true);
    visit(&r, "target", r.net.projector_end, r.target_w, r.target_running, true);
    free(x), free(mask), free(kept), free(expected), free(lr), free(m);
    refiner_close(&r);
    device_close(dev);
    tensors_close(&file);
}

static void test_ref(void **state) {
    (void)state;
    ten_steps("ref");
}

static void test_cpu(void **state) {
    (void)state;
    ten_steps("cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
