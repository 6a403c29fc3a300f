/* cuda_test.c: the CUDA table against ref, on the list of cases that `conr bench ops` times; a
 * training step of a network; recordings.  Needs a GPU. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/test_help.h"
#include "device/cases.h"
#include "encoder/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static trial *run_case(device *dev, act_type type, const op_case *c) {
    trial *t;
    assert_ok(trial_new_as(dev, type, c, c->check_n, &t));
    assert_ok(trial_run(t));
    assert_ok(dev->op.sync(dev));
    return t;
}

/* CONR_TEST_SMALL=1, for tools that watch every access: small cases only, but each of our kernels
 * (conv64 wants 64 channels and rows of 32 pixels). */
static bool is_wanted(const op_case *c) {
    const char *small = getenv("CONR_TEST_SMALL");
    bool narrow = c->w == 32 && c->ci == 64 && c->co == 64 && c->k == 3;
    return !small || *small != '1' || (narrow && c->check_n <= 4) ||
           case_flops(c, c->check_n) < 5e7;
}

static void equals_ref(const char *name) {
    device *ref, *cuda;
    int wrong = 0;
    double worst = 0;
    assert_ok(device_open("ref", 1, &ref));
    assert_ok(device_open(name, 1, &cuda));
    for (int i = 0; i < case_count; i++) {
        const op_case *c = &case_list[i];
        if (!is_wanted(c)) continue;
        trial *want = run_case(ref, cuda->type, c), *got = run_case(cuda, cuda->type, c);
        double error, bound = case_bound(c, c->check_n, cuda->type);
        char shape[96];
        case_shape_text(c, c->check_n, shape, sizeof shape);
        assert_ok(trial_compare(got, want, &error));
        if (error / bound > worst) worst = error / bound;
        if (!(error <= bound)) {
            print_error("%s %s: error %.3g, bound %.3g\n", case_name(c), shape, error, bound);
            wrong++;
        }
        trial_free(want);
        trial_free(got);
    }
    print_message("%s: %d cases, the worst at %.0f %% of its bound\n", name, case_count,
                  100 * worst);
    assert_int_equal(wrong, 0);
    device_close(ref);
    device_close(cuda);
}

static void f32_equals_ref(void **state) {
    (void)state;
    equals_ref("cuda-f32");
}

static void bf16_equals_ref(void **state) {
    (void)state;
    equals_ref("cuda");
}

/* ---- a network ------------------------------------------------------------------------------- */

enum { SIDE = 32, OUT = 16 };

typedef struct net_run {
    device *dev;
    network net;
    ranks r;
    pass *p;
    float *w, *dw, *v, *running, *out;
    act *images;
    step_values *at;
    size_t outs;
} net_run;

static void open_run(const char *name, encoder_kind kind, stem_kind stem, int images, net_run *t) {
    network_spec spec = {.encoder = kind,
                         .stem = stem,
                         .width = 8,
                         .h = SIDE,
                         .w = SIDE,
                         .c = 3,
                         .projector = mlp_byol_projector(64, OUT)};
    *t = (net_run){0};
    assert_ok(device_open(name, 1, &t->dev));
    device *dev = t->dev;
    assert_ok(network_new(&spec, &t->net));
    assert_ok(ranks_open(&t->r));
    pass_options o = {
        .n = images, .groups = 2, .passes = 2, .end = t->net.n_layers, .backward = true};
    assert_ok(pass_new(dev, &t->r, &t->net, &o, &t->p));
    size_t n = t->net.n_weights, m = t->net.n_running, count = (size_t)images * SIDE * SIDE * 3;
    t->outs = (size_t)images * OUT;
    float *host = calloc(n + m + count, sizeof *host), *on;
    assert_non_null(host);
    network_init(&t->net, 3, host, host + n);
    rng r = rng_at(5, 0, 0, RNG_TEST);
    for (size_t i = 0; i < count; i++) host[n + m + i] = rng_normal(&r);
    assert_ok(dev->op.alloc(dev, n * sizeof(float), (void **)&t->w));
    assert_ok(dev->op.alloc(dev, n * sizeof(float), (void **)&t->dw));
    assert_ok(dev->op.alloc(dev, n * sizeof(float), (void **)&t->v));
    assert_ok(dev->op.alloc(dev, m * sizeof(float), (void **)&t->running));
    assert_ok(dev->op.alloc(dev, t->outs * sizeof(float), (void **)&t->out));
    assert_ok(dev->op.alloc(dev, count * dev->act_size, (void **)&t->images));
    assert_ok(dev->op.alloc(dev, count * sizeof(float), (void **)&on));
    assert_ok(dev->op.put(dev, t->w, host, n * sizeof(float)));
    assert_ok(dev->op.put(dev, t->running, host + n, m * sizeof(float)));
    assert_ok(dev->op.put(dev, on, host + n + m, count * sizeof(float)));
    assert_ok(dev->op.act_from(dev, on, count, t->images));
    step_values at = {.lr = {0.05f, 0.1f}, .momentum = 0.9f, .decay = 5e-4f, .average = 0.99f};
    assert_ok(dev->op.alloc(dev, sizeof at, (void **)&t->at));
    assert_ok(dev->op.put(dev, t->at, &at, sizeof at));
    assert_ok(dev->op.sync(dev));
    dev->op.free(dev, on);
    free(host);
}

static void close_run(net_run *t) {
    void *all[] = {t->w, t->dw, t->v, t->running, t->out, t->images, t->at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) t->dev->op.free(t->dev, all[i]);
    pass_free(t->p);
    network_free(&t->net);
    ranks_close(&t->r);
    device_close(t->dev);
}

static int step(void *arg) {
    int rc;
    net_run *t = arg;
    device *dev = t->dev;
    parameters at = {t->w, t->running};
    if ((rc = pass_forward(t->p, &at, t->images, PASS_TRAIN)) < 0) return rc;
    if ((rc = pass_output(t->p, t->net.n_layers, t->out)) < 0) return rc;
    if ((rc = pass_backward(t->p, &at, t->images, t->out, false, NULL, t->dw)) < 0) return rc;
    return dev->op.sgd(dev, t->at, 0, true, 1e-2f, t->net.n_weights, t->w, t->dw, t->v, NULL);
}

static double difference(const float *a, const float *b, size_t n) {
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) d += pow((double)a[i] - b[i], 2), s += pow(b[i], 2);
    return sqrt(d / (s > 0 ? s : 1));
}

static float *fetch(net_run *t, const float *from, size_t n) {
    float *host = malloc(n * sizeof *host);
    assert_non_null(host);
    assert_ok(t->dev->op.get(t->dev, host, from, n * sizeof *host));
    return host;
}

/* One step of a small ResNet: output, gradient, statistics.  The bound in fp32 is rounding
 * accumulated over a few dozen layers and amplified by norms over few values; in bf16 three
 * digits. */
static void network_equals_ref(const char *name, encoder_kind kind, stem_kind stem, int images,
                               double bound) {
    net_run a, b;
    open_run("ref", kind, stem, images, &a);
    open_run(name, kind, stem, images, &b);
    assert_ok(step(&a));
    assert_ok(step(&b));
    const float *from[][2] = {{a.out, b.out}, {a.dw, b.dw}, {a.running, b.running}, {a.w, b.w}};
    size_t n[] = {a.outs, a.net.n_weights, a.net.n_running, a.net.n_weights};
    static const char *const what[] = {"output", "gradient", "statistics", "weights"};
    for (int i = 0; i < 4; i++) {
        float *x = fetch(&a, from[i][0], n[i]), *y = fetch(&b, from[i][1], n[i]);
        double e = difference(y, x, n[i]);
        print_message("%s, encoder %d: %s %.2g\n", name, kind, what[i], e);
        if (!(e <= bound)) fail_msg("%s: %s differs by %.3g, bound %.3g", name, what[i], e, bound);
        free(x);
        free(y);
    }
    close_run(&a);
    close_run(&b);
}

static void networks_equal_ref(void **state) {
    (void)state;
    network_equals_ref("cuda-f32", ENCODER_RESNET18, STEM_CIFAR, 8, 2e-4);
    network_equals_ref("cuda-f32", ENCODER_SMALL, STEM_SMALL, 8, 2e-4);
    network_equals_ref("cuda-f32", ENCODER_RESNET34, STEM_IMAGENET, 8, 2e-3);
    network_equals_ref("cuda", ENCODER_SMALL, STEM_SMALL, 128, 0.2);
}

/* Five plain steps and five repeated ones (one plain, one recorded, three replayed): same bits.  In
 * between new weights are put, which a replay must notice. */
static void a_replay_is_the_step(void **state) {
    (void)state;
    net_run a, b;
    recording *r = NULL;
    open_run("cuda", ENCODER_RESNET18, STEM_CIFAR, 8, &a);
    open_run("cuda", ENCODER_RESNET18, STEM_CIFAR, 8, &b);
    for (int i = 0; i < 5; i++) {
        assert_ok(step(&a));
        assert_ok(b.dev->op.repeat(b.dev, step, &b, &r));
        if (i != 2) continue;
        float *w = fetch(&a, a.w, a.net.n_weights);
        for (size_t j = 0; j < a.net.n_weights; j++) w[j] *= 0.5f;
        assert_ok(a.dev->op.put(a.dev, a.w, w, a.net.n_weights * sizeof *w));
        assert_ok(b.dev->op.put(b.dev, b.w, w, a.net.n_weights * sizeof *w));
        assert_ok(a.dev->op.sync(a.dev));
        assert_ok(b.dev->op.sync(b.dev));
        free(w);
    }
    float *x = fetch(&a, a.w, a.net.n_weights), *y = fetch(&b, b.w, a.net.n_weights);
    assert_memory_equal(x, y, a.net.n_weights * sizeof *x);
    free(x);
    free(y);
    b.dev->op.recording_free(b.dev, r);
    close_run(&a);
    close_run(&b);
}

/* cuda_test [PATTERN]: only those tests */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    setenv("CONR_CUDA_ENGINES", "cuda_test_engines.txt",
           0); /* both devices make the same choices */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_equals_ref),
        cmocka_unit_test(bf16_equals_ref),
        cmocka_unit_test(networks_equal_ref),
        cmocka_unit_test(a_replay_is_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
