/* pass_backward_test.c: the gradient of a whole network against finite differences, and training
 * steps of cpu against ref. */
#include "encoder/pass.h"

#include "base/rng.h"
#include "base/test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- finite differences over a whole network ------------------------------------------------- */

/* Small weights in the last norm of each bottleneck, and most inputs of ReLUs above 0: else 50 layers
 * at initial weights amplify the step of a difference, or rounding, beyond use. */
static void calm(const network *net, float *w) {
    for (int l = 0; net->spec.encoder == ENCODER_RESNET50 && l < net->n_layers; l++) {
        const layer *x = &net->layer[l];
        for (int i = 0; x->norm && i < x->co; i++) {
            if (x->add >= 0) w[x->gamma_at + (size_t)i] = 0.1f;
            if (x->relu) w[x->beta_at + (size_t)i] = 1;
        }
    }
}

/* h: the step; bound: relative, as a few ReLUs switch within the step */
static void check_by_differences(network_spec spec, double h, double bound) {
    spec.h = 17, spec.w = 21, spec.c = 3;
    spec.projector = mlp_byol_projector(8, 4);
    network net;
    device *dev;
    ranks r;
    pass *p;
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    assert_ok(ranks_open(&r));
    float *w = floats(net.n_weights), *running = floats(net.n_running);
    float *dw = floats(net.n_weights), d[6 * 4], out[6 * 4];
    network_init(&net, 3, w, running);
    calm(&net, w);
    size_t pixels = 6 * 17 * 21 * 3;
    float *images = floats(pixels);
    for (size_t i = 0; i < pixels; i++) images[i] = sinf(1.3f * (float)i);
    for (int i = 0; i < 24; i++) d[i] = cosf((float)i);
    parameters at = {w, running};
    pass_options o = {.n = 6, .groups = 2, .passes = 2, .end = net.n_layers, .backward = true};
    assert_ok(pass_new(dev, &r, &net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)images, PASS_REPEAT));
    assert_ok(pass_backward(p, &at, (act *)images, d, false, NULL, dw));
    /* along a random direction in all weights at once: the derivative is <dw, direction> */
    for (uint32_t trial = 0; trial < 3; trial++) {
        rng random = rng_at(trial, 0, 0, RNG_TEST);
        float *old = floats(net.n_weights), *direction = floats(net.n_weights);
        double value[2], expected = 0;
        memcpy(old, w, net.n_weights * sizeof *w);
        for (size_t i = 0; i < net.n_weights; i++) {
            direction[i] = (float)rng_normal(&random) * fabsf(w[i]);
            expected += (double)direction[i] * dw[i];
        }
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < net.n_weights; i++)
                w[i] = (float)(old[i] + (side ? -h : h) * direction[i]);
            assert_ok(pass_forward(p, &at, (act *)images, PASS_REPEAT));
            assert_ok(pass_output(p, net.n_layers, out));
            value[side] = 0;
            for (int i = 0; i < 24; i++) value[side] += (double)out[i] * d[i];
        }
        memcpy(w, old, net.n_weights * sizeof *w);
        double measured = (value[0] - value[1]) / (2 * h);
        if (fabs(measured - expected) > bound * fabs(expected) + 0.01)
            fail_msg("direction %u: %g by differences, %g by backward", trial, measured, expected);
        free(old);
        free(direction);
    }
    free(w), free(running), free(dw), free(images);
    pass_free(p);
    network_free(&net);
    device_close(dev);
}

static void whole_network_by_differences(void **state) {
    (void)state;
    check_by_differences((network_spec){.encoder = ENCODER_SMALL, .stem = STEM_SMALL, .width = 3},
                         2e-4, 0.02);
}

static void bottlenecks_by_differences(void **state) {
    (void)state;
    check_by_differences(
        (network_spec){.encoder = ENCODER_RESNET50, .stem = STEM_CIFAR, .width = 2}, 5e-4, 0.05);
}

/* ---- cpu against ref ------------------------------------------------------------------------- */

/* The outputs, gradient and statistics of one training step on a device. */
static void step_on(const char *name, int threads, bool recompute, const network *net,
                    const float *images, const float *d, float *out, float *dw, float *running) {
    device *dev;
    ranks r;
    pass *p;
    float *w = floats(net->n_weights);
    assert_ok(device_open(name, threads, &dev));
    assert_ok(ranks_open(&r));
    network_init(net, 3, w, running);
    calm(net, w);
    parameters at = {w, running};
    pass_options o = {.n = 8,
                      .groups = 2,
                      .passes = 2,
                      .end = net->n_layers,
                      .backward = true,
                      .recompute = recompute};
    assert_ok(pass_new(dev, &r, net, &o, &p));
    assert_ok(pass_forward(p, &at, (const act *)images, PASS_TRAIN));
    assert_ok(pass_output(p, o.end, out));
    assert_ok(pass_backward(p, &at, (const act *)images, d, false, NULL, dw));
    pass_free(p);
    device_close(dev);
    free(w);
}

/* A ResNet wide enough for Winograd: cpu agrees with ref, and its bits depend neither on the number
 * of threads nor on whether activations are recomputed. */
static void check_cpu(encoder_kind encoder) {
    network_spec spec = {
        .encoder = encoder, .stem = STEM_CIFAR, .width = 16, .h = 18, .w = 22, .c = 3};
    spec.projector = mlp_byol_projector(40, 20);
    network net;
    assert_ok(network_new(&spec, &net));
    size_t pixels = 8 * 18 * 22 * 3, n = net.n_weights, m = net.n_running;
    float *images = floats(pixels), d[160], out[4][160], *dw[4], *running[4];
    for (size_t i = 0; i < pixels; i++) images[i] = sinf(1.3f * (float)i);
    for (int i = 0; i < 160; i++) d[i] = cosf((float)i);
    for (int i = 0; i < 4; i++) dw[i] = floats(n), running[i] = floats(m);
    step_on("ref", 1, false, &net, images, d, out[0], dw[0], running[0]);
    step_on("cpu", 1, false, &net, images, d, out[1], dw[1], running[1]);
    step_on("cpu", 3, false, &net, images, d, out[2], dw[2], running[2]);
    step_on("cpu", 2, true, &net, images, d, out[3], dw[3], running[3]);
    assert_close("outputs", out[1], out[0], 160, 1e-4);
    /* About 6e-5 per layer (direct: 3e-5), until a sum near zero takes the other sign before a
     * ReLU; from there back to the images the error may reach a percent. */
    int exact = 0, layers = 0;
    for (int i = 0; i < net.n_layers; i++) {
        const layer *l = &net.layer[i];
        if (l->kind != LAYER_CONV) continue;
        size_t count = (size_t)l->co * l->k * l->k * l->ci;
        exact += relative_error(dw[1] + l->w_at, dw[0] + l->w_at, count) < 3e-4;
        layers++;
    }
    assert_true(exact > layers / 2);
    assert_close("gradient", dw[1], dw[0], n, 3e-2);
    assert_close("statistics", running[1], running[0], m, 1e-4);
    for (int i = 2; i < 4; i++) {
        assert_memory_equal(out[i], out[1], sizeof out[1]);
        assert_memory_equal(dw[i], dw[1], n * sizeof *dw[1]);
        assert_memory_equal(running[i], running[1], m * sizeof *running[1]);
    }
    for (int i = 0; i < 4; i++) free(dw[i]), free(running[i]);
    free(images);
    network_free(&net);
}

static void cpu_agrees_with_ref(void **state) {
    (void)state;
    check_cpu(ENCODER_RESNET18);
}

static void bottlenecks_on_cpu(void **state) {
    (void)state;
    check_cpu(ENCODER_RESNET50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_network_by_differences),
        cmocka_unit_test(bottlenecks_by_differences),
        cmocka_unit_test(cpu_agrees_with_ref),
        cmocka_unit_test(bottlenecks_on_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
