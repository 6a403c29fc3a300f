/* pass_test.c: whole networks against PyTorch (golden/, computed there in double), on ref.
 *
 * Bounds are errors relative to a tensor's norm.  Forward: 1e-5.  Gradients and statistics: 1e-4;
 * PyTorch itself in float differs from these files by up to 6e-5 (ResNet-34: batch statistics over
 * as few as 16 numbers a channel multiply roundings).  Biases that a batch norm cancels have a zero
 * gradient, so their error is measured against the size of the whole gradient. */
#include "encoder/pass.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/tensors.h"
#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FORWARD = 1e-5, GRADIENT = 1e-4;

/* ---- a network from a golden file ------------------------------------------------------------ */

typedef struct subject {
    tensors file;
    device *dev;
    ranks ranks;
    network net;
    int n, width;  /* batch; features of the last layer */
    float *images; /* [n,h,w,c] */
    float *w, *running, *dw;
} subject;

static network_spec spec_of(const char *name, int h, int w, int c) {
    network_spec s = {.h = h, .w = w, .c = c};
    if (!strcmp(name, "resnet18")) s.encoder = ENCODER_RESNET18, s.stem = STEM_CIFAR, s.width = 2;
    if (!strcmp(name, "resnet34"))
        s.encoder = ENCODER_RESNET34, s.stem = STEM_IMAGENET, s.width = 2;
    if (!strcmp(name, "small")) s.encoder = ENCODER_SMALL, s.stem = STEM_SMALL, s.width = 6;
    s.projector = mlp_byol_projector(24, 10);
    s.predictor = mlp_byol_predictor(12, 10);
    return s;
}

static float *numbers(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static float *take(const tensors *file, const char *name, size_t *count) {
    const tensor *t = tensors_find(file, name);
    if (!t) fail_msg("%s lacks %s", file->path, name);
    float *out = numbers(t->count);
    assert_ok(tensors_floats(file, t, out));
    if (count) *count = t->count;
    return out;
}

static void open_subject(subject *s, const char *name) {
    char file[64];
    int parts;
    snprintf(file, sizeof file, "%s.safetensors", name);
    assert_ok(tensors_open(golden_path(file), &s->file));
    float *shape = take(&s->file, "shape", NULL);
    s->n = (int)shape[0];
    network_spec spec = spec_of(name, (int)shape[1], (int)shape[2], (int)shape[3]);
    free(shape);
    assert_ok(network_new(&spec, &s->net));
    assert_ok(device_open("ref", 0, &s->dev));
    assert_ok(ranks_open(&s->ranks));
    s->images = take(&s->file, "images", NULL);
    s->w = numbers(s->net.n_weights);
    s->dw = numbers(s->net.n_weights);
    s->running = numbers(s->net.n_running);
    assert_ok(network_load(&s->net, golden_path(file), s->w, s->running, &parts));
    assert_int_equal(parts, PART_ENCODER | PART_PROJECTOR | PART_PREDICTOR);
}

static void close_subject(subject *s) {
    free(s->images);
    free(s->w);
    free(s->dw);
    free(s->running);
    network_free(&s->net);
    ranks_close(&s->ranks);
    device_close(s->dev);
    tensors_close(&s->file);
}

static parameters parameters_of(subject *s) {
    return (parameters){.w = s->w, .running = s->running};
}

static void check_output(subject *s, pass *p, int end, const char *name) {
    size_t count;
    float *want = take(&s->file, name, &count), *got = numbers(count);
    assert_ok(pass_output(p, end, got));
    assert_close(name, got, want, count, FORWARD);
    free(want);
    free(got);
}

/* Our gradients and statistics under torch's names, read back from the file that we would write. */
static void open_as_torch(subject *s, const float *w, const float *running, tensors *out) {
    const char *path = temporary_path("ours.safetensors");
    assert_ok(network_save(&s->net, path, 7, w, running, NULL, 0));
    assert_ok(tensors_open(path, out));
}

/* Every tensor PREFIX.NAME of the golden file against NAME in ours. */
static int check_all(subject *s, const char *prefix, const tensors *ours, double bound) {
    int checked = 0;
    double size = 0; /* of all of them together */
    size_t skip = strlen(prefix), total = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->file.n; i++) {
            const tensor *t = &s->file.tensor[i];
            if (strncmp(t->name, prefix, skip)) continue;
            float *want = take(&s->file, t->name, NULL);
            double norm = 0;
            for (size_t j = 0; j < t->count; j++) norm += (double)want[j] * want[j];
            if (pass == 0) {
                size += norm;
                total += t->count;
            } else {
                float *got = take(ours, t->name + skip, NULL), none = 0;
                if (norm > 0)
                    assert_close(t->name, got, want, t->count, bound);
                else
                    for (size_t j = 0; j < t->count; j++)
                        assert_true(relative_error(&got[j], &none, 1) <
                                    bound * sqrt(size / (double)total));
                checked++;
                free(got);
            }
            free(want);
        }
    return checked;
}

/* Forward, backward and statistics, both views in one batch of two groups. */
static void check_training(const char *name, bool recompute) {
    subject s = {0};
    open_subject(&s, name);
    parameters at = parameters_of(&s);
    pass_options o = {.n = s.n,
                      .groups = 2,
                      .passes = 2,
                      .end = s.net.predictor_end,
                      .backward = true,
                      .recompute = recompute};
    pass *p;
    tensors ours;
    assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)s.images, PASS_TRAIN));
    check_output(&s, p, s.net.encoder_end, "features");
    check_output(&s, p, s.net.projector_end, "projected");
    check_output(&s, p, s.net.predictor_end, "predicted");

    float *d = take(&s.file, "dpredicted", NULL);
    assert_ok(pass_backward(p, &at, (act *)s.images, d, false, NULL, s.dw));
    open_as_torch(&s, s.dw, s.running, &ours);
    int weights = check_all(&s, "grad.", &ours, GRADIENT);
    int statistics = check_all(&s, "after.", &ours, GRADIENT);
    assert_true(weights > 20 && statistics > 10);
    tensors_close(&ours);

    /* backward once more, adding: twice the gradient */
    assert_ok(pass_forward(p, &at, (act *)s.images, PASS_REPEAT));
    assert_ok(pass_backward(p, &at, (act *)s.images, d, true, NULL, s.dw));
    for (size_t i = 0; i < s.net.n_weights; i++) s.dw[i] /= 2;
    open_as_torch(&s, s.dw, s.running, &ours);
    check_all(&s, "grad.", &ours, GRADIENT);
    check_all(&s, "after.", &ours, GRADIENT); /* a second look leaves the statistics */
    tensors_close(&ours);
    free(d);
    pass_free(p);
    close_subject(&s);
}

static void resnet18(void **state) {
    (void)state;
    check_training("resnet18", false);
    check_training("resnet18", true);
}

static void resnet34(void **state) {
    (void)state;
    check_training("resnet34", false);
    check_training("resnet34", true);
}

static void small(void **state) {
    (void)state;
    check_training("small", false);
    check_training("small", true);
}

/* Evaluation: all at once, and one image at a time. */
static void evaluation(void **state) {
    (void)state;
    static const char *const names[] = {"resnet18", "resnet34", "small"};
    for (int i = 0; i < 3; i++) {
        subject s = {0};
        open_subject(&s, names[i]);
        parameters at = parameters_of(&s);
        size_t image = (size_t)s.net.spec.h * s.net.spec.w * s.net.spec.c;
        float *want = take(&s.file, "eval.projected", NULL), one[10];
        pass_options o = {.n = s.n, .groups = 1, .passes = 1, .end = s.net.projector_end};
        pass *p;
        assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
        assert_ok(pass_forward(p, &at, (act *)s.images, PASS_EVAL));
        check_output(&s, p, s.net.projector_end, "eval.projected");
        pass_free(p);

        o.end = s.net.encoder_end;
        assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
        assert_ok(pass_forward(p, &at, (act *)s.images, PASS_EVAL));
        check_output(&s, p, s.net.encoder_end, "eval.features");
        pass_free(p);

        o.n = 1, o.end = s.net.projector_end;
        assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
        for (int k = 0; k < s.n; k++) {
            assert_ok(pass_forward(p, &at, (act *)(s.images + k * image), PASS_EVAL));
            assert_ok(pass_output(p, s.net.projector_end, one));
            assert_close("one image", one, want + k * 10, 10, FORWARD);
        }
        /* a single image gives no batch statistics behind the mean pool */
        assert_fails(CONR_EINVAL, "at least two images",
                     pass_forward(p, &at, (act *)s.images, PASS_TRAIN));
        pass_free(p);
        free(want);
        close_subject(&s);
    }
}

/* Two views in one batch with two groups equal two passes of one group each, bit for bit in what
 * comes out and in the statistics. */
static void groups_equal_passes(void **state) {
    (void)state;
    subject s = {0};
    open_subject(&s, "resnet18");
    parameters at = parameters_of(&s);
    size_t half = (size_t)s.n / 2 * s.net.spec.h * s.net.spec.w * s.net.spec.c;
    float *before = numbers(s.net.n_running), *after = numbers(s.net.n_running);
    float joint[80], apart[80], *d = take(&s.file, "dpredicted", NULL);
    float *dw = numbers(s.net.n_weights);
    memcpy(before, s.running, s.net.n_running * sizeof *before);
    pass *p;
    pass_options o = {
        .n = s.n, .groups = 2, .passes = 2, .end = s.net.predictor_end, .backward = true};
    assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)s.images, PASS_TRAIN));
    assert_ok(pass_output(p, o.end, joint));
    assert_ok(pass_backward(p, &at, (act *)s.images, d, false, NULL, s.dw));
    pass_free(p);
    memcpy(after, s.running, s.net.n_running * sizeof *after);
    memcpy(s.running, before, s.net.n_running * sizeof *before);

    o.n /= 2, o.groups = o.passes = 1;
    assert_ok(pass_new(s.dev, &s.ranks, &s.net, &o, &p));
    for (int view = 0; view < 2; view++) {
        act *images = (act *)(s.images + view * half);
        assert_ok(pass_forward(p, &at, images, PASS_TRAIN));
        assert_ok(pass_output(p, o.end, apart + 40 * view));
        assert_ok(pass_backward(p, &at, images, d + 40 * view, view == 1, NULL, dw));
    }
    /* The second pass's shift is the moved running mean, so its statistics round differently. */
    assert_close("outputs", apart, joint, 80, 1e-6);
    assert_close("statistics", s.running, after, s.net.n_running, 1e-6);
    assert_close("gradient", dw, s.dw, s.net.n_weights, 1e-5);
    pass_free(p);
    free(before);
    free(after);
    free(dw);
    free(d);
    close_subject(&s);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void check_head(const char *prefix, const mlp_spec *head) {
    network_spec spec = {.encoder = ENCODER_NONE, .h = 1, .w = 1, .c = 9, .projector = *head};
    tensors file = {0};
    network net;
    device *dev;
    ranks r;
    pass *p;
    char name[96];
    assert_ok(tensors_open(golden_path("heads.safetensors"), &file));
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    assert_ok(ranks_open(&r));
    /* the golden names lack "projector.": place them by hand */
    float *w = numbers(net.n_weights), *running = numbers(net.n_running);
    float *dw = numbers(net.n_weights);
#define GOLDEN(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    for (int l = 0; l < net.n_layers; l++) {
        const layer *x = &net.layer[l];
        const char *own = x->name + strlen("projector.");
        const char *norm = x->norm_name + strlen("projector.");
        struct {
            bool there;
            const char *layer, *field;
            float *to;
        } part[] = {{true, own, "weight", w + x->w_at},
                    {x->bias, own, "bias", w + x->bias_at},
                    {x->norm, norm, "weight", w + x->gamma_at},
                    {x->norm, norm, "bias", w + x->beta_at},
                    {x->norm, norm, "running_mean", running + x->running_at},
                    {x->norm, norm, "running_var", running + x->running_at + x->co}};
        for (int k = 0; k < 6; k++) {
            if (!part[k].there) continue;
            size_t count;
            float *from =
                take(&file, GOLDEN("%s.%s.%s", prefix, part[k].layer, part[k].field), &count);
            memcpy(part[k].to, from, count * sizeof *from);
            free(from);
        }
    }
    float *x = take(&file, GOLDEN("%s.x", prefix), NULL);
    float *y = take(&file, GOLDEN("%s.y", prefix), NULL), got[48];
    float *dy = take(&file, GOLDEN("%s.dy", prefix), NULL);
    parameters at = {w, running};
    pass_options o = {.n = 8, .groups = 2, .passes = 2, .end = net.n_layers, .backward = true};
    assert_ok(pass_new(dev, &r, &net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)x, PASS_TRAIN));
    assert_ok(pass_output(p, net.n_layers, got));
    assert_close(prefix, got, y, 48, FORWARD);
    assert_ok(pass_backward(p, &at, (act *)x, dy, false, NULL, dw));
    for (int l = 0; l < net.n_layers; l++) {
        const layer *z = &net.layer[l];
        const char *own = z->name + strlen("projector.");
        size_t count;
        float *want = take(&file, GOLDEN("%s.grad.%s.weight", prefix, own), &count);
        assert_close(name, dw + z->w_at, want, count, GRADIENT);
        free(want);
        if (z->bias && !z->norm) {
            want = take(&file, GOLDEN("%s.grad.%s.bias", prefix, own), &count);
            assert_close(name, dw + z->bias_at, want, count, GRADIENT);
            free(want);
        }
        if (!z->norm) continue;
        const char *norm = z->norm_name + strlen("projector.");
        want = take(&file, GOLDEN("%s.grad.%s.weight", prefix, norm), &count);
        assert_close(name, dw + z->gamma_at, want, count, GRADIENT);
        free(want);
        want = take(&file, GOLDEN("%s.after.%s.running_var", prefix, norm), &count);
        assert_close(name, running + z->running_at + z->co, want, count, FORWARD);
        free(want);
    }
#undef GOLDEN
    free(x), free(y), free(dy), free(w), free(running), free(dw);
    pass_free(p);
    network_free(&net);
    device_close(dev);
    tensors_close(&file);
}

static void heads(void **state) {
    (void)state;
    mlp_spec byol = mlp_byol_projector(14, 6);
    mlp_spec simsiam = {
        .n = 2,
        .layer = {{.out = 14, .norm = true, .relu = true}, {.out = 6, .bias = true, .norm = true}},
        .init = INIT_TORCH};
    mlp_spec moco = {.n = 2,
                     .layer = {{.out = 14, .bias = true, .relu = true}, {.out = 6, .bias = true}},
                     .init = INIT_TORCH};
    check_head("byol", &byol);
    check_head("simsiam", &simsiam);
    check_head("moco", &moco);
}

/* ---- finite differences over a whole network ------------------------------------------------- */

static void whole_network_by_differences(void **state) {
    (void)state;
    network_spec spec = {
        .encoder = ENCODER_SMALL, .stem = STEM_SMALL, .width = 3, .h = 17, .w = 21, .c = 3};
    spec.projector = mlp_byol_projector(8, 4);
    network net;
    device *dev;
    ranks r;
    pass *p;
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    assert_ok(ranks_open(&r));
    float *w = numbers(net.n_weights), *running = numbers(net.n_running);
    float *dw = numbers(net.n_weights), d[6 * 4], out[6 * 4];
    network_init(&net, 3, w, running);
    size_t pixels = 6 * 17 * 21 * 3;
    float *images = numbers(pixels);
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
        float *old = numbers(net.n_weights), *way = numbers(net.n_weights);
        double value[2], h = 2e-4, expected = 0;
        memcpy(old, w, net.n_weights * sizeof *w);
        for (size_t i = 0; i < net.n_weights; i++) {
            way[i] = (float)rng_normal(&random) * fabsf(w[i]);
            expected += (double)way[i] * dw[i];
        }
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < net.n_weights; i++)
                w[i] = (float)(old[i] + (side ? -h : h) * way[i]);
            assert_ok(pass_forward(p, &at, (act *)images, PASS_REPEAT));
            assert_ok(pass_output(p, net.n_layers, out));
            value[side] = 0;
            for (int i = 0; i < 24; i++) value[side] += (double)out[i] * d[i];
        }
        memcpy(w, old, net.n_weights * sizeof *w);
        double measured = (value[0] - value[1]) / (2 * h);
        /* a few ReLU kinks lie within the step */
        if (fabs(measured - expected) > 0.02 * fabs(expected) + 0.01)
            fail_msg("direction %u: %g by differences, %g by backward", trial, measured, expected);
        free(old);
        free(way);
    }
    free(w), free(running), free(dw), free(images);
    pass_free(p);
    network_free(&net);
    device_close(dev);
}

/* ---- the CPU's kernels ----------------------------------------------------------------------- */

/* One training step's outputs, gradient and statistics on a device. */
static void step_on(const char *name, int threads, bool recompute, const network *net,
                    const float *images, const float *d, float *out, float *dw, float *running) {
    device *dev;
    ranks r;
    pass *p;
    float *w = numbers(net->n_weights);
    assert_ok(device_open(name, threads, &dev));
    assert_ok(ranks_open(&r));
    network_init(net, 3, w, running);
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

/* A ResNet wide enough for Winograd: cpu follows ref, and its bits do not depend on the number of
 * threads nor on whether activations are recomputed. */
static void cpu_follows_ref(void **state) {
    (void)state;
    network_spec spec = {
        .encoder = ENCODER_RESNET18, .stem = STEM_CIFAR, .width = 16, .h = 18, .w = 22, .c = 3};
    spec.projector = mlp_byol_projector(40, 20);
    network net;
    assert_ok(network_new(&spec, &net));
    size_t pixels = 8 * 18 * 22 * 3, n = net.n_weights, m = net.n_running;
    float *images = numbers(pixels), d[160], out[4][160], *dw[4], *running[4];
    for (size_t i = 0; i < pixels; i++) images[i] = sinf(1.3f * (float)i);
    for (int i = 0; i < 160; i++) d[i] = cosf((float)i);
    for (int i = 0; i < 4; i++) dw[i] = numbers(n), running[i] = numbers(m);
    step_on("ref", 1, false, &net, images, d, out[0], dw[0], running[0]);
    step_on("cpu", 1, false, &net, images, d, out[1], dw[1], running[1]);
    step_on("cpu", 3, false, &net, images, d, out[2], dw[2], running[2]);
    step_on("cpu", 2, true, &net, images, d, out[3], dw[3], running[3]);
    assert_close("outputs", out[1], out[0], 160, 1e-4);
    /* Per layer about 6e-5 (direct: 3e-5), until a sum near zero takes the other sign behind a
     * ReLU: from there back to the images it may be a percent. */
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

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_is_planned(void **state) {
    (void)state;
    network_spec spec = {
        .encoder = ENCODER_RESNET18, .stem = STEM_CIFAR, .width = 64, .h = 32, .w = 32, .c = 3};
    network net;
    device *dev;
    ranks r;
    pass *p;
    size_t forward, backward, recompute;
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    assert_ok(ranks_open(&r));
    pass_options o = {.n = 64, .groups = 2, .passes = 2, .end = net.encoder_end};
    assert_ok(pass_bytes(dev, &net, &o, &forward));
    o.backward = true;
    assert_ok(pass_bytes(dev, &net, &o, &backward));
    o.recompute = true;
    assert_ok(pass_bytes(dev, &net, &o, &recompute));
    /* One map of 64 channels at 32x32 is 16 MiB for 64 images.  Forward alone needs three of them
     * (input, two outputs); backward keeps 2.5 per block pair of stage one, and so on; recomputing
     * leaves the outputs of all convolutions but the first, 8.4 maps, and half a map on the way. */
    size_t map = (size_t)64 * 32 * 32 * 64 * 4;
    assert_true(forward <= 3 * map + (1 << 20));
    assert_true(backward > 10 * map && backward < 24 * map);
    assert_true(recompute < 9 * map);

    dev->memory = recompute - 1;
    assert_fails(CONR_ENOMEM, "a batch of 62 fits", pass_new(dev, &r, &net, &o, &p));
    assert_null(p);
    o.n = 1 << 24;
    assert_fails(CONR_EINVAL, "over 2^31 pixels", pass_new(dev, &r, &net, &o, &p));
    assert_null(p);
    o.n = 64;
    dev->memory = 1000;
    assert_fails(CONR_ENOMEM, "a batch of 0 fits", pass_new(dev, &r, &net, &o, &p));
    network_free(&net);
    device_close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet18),
        cmocka_unit_test(resnet34),
        cmocka_unit_test(small),
        cmocka_unit_test(evaluation),
        cmocka_unit_test(groups_equal_passes),
        cmocka_unit_test(heads),
        cmocka_unit_test(whole_network_by_differences),
        cmocka_unit_test(cpu_follows_ref),
        cmocka_unit_test(memory_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
