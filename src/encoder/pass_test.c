/* pass_test.c: whole networks on ref against PyTorch (golden/, computed there in double).
 *
 * Bounds are errors relative to the norm of a tensor.  Forward: 1e-5.  Gradients and statistics:
 * 1e-4; PyTorch itself in float differs from these files by up to 6e-5 (ResNet-34: batch statistics
 * over as few as 16 values per channel amplify rounding).  ResNet-50 is deeper still: 5e-4, where
 * PyTorch in float is off by 1.1e-3.  The gradient of a bias that a batch norm
 * cancels is zero, so its error is measured against the size of the whole gradient. */
#include "encoder/pass.h"

#include "base/tensors.h"
#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FORWARD = 1e-5, GRADIENT = 1e-4, DEEP_GRADIENT = 5e-4;

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
    if (!strcmp(name, "resnet50"))
        s.encoder = ENCODER_RESNET50, s.stem = STEM_IMAGENET, s.width = 2;
    if (!strcmp(name, "small")) s.encoder = ENCODER_SMALL, s.stem = STEM_SMALL, s.width = 6;
    s.projector = mlp_byol_projector(24, 10);
    s.predictor = mlp_byol_predictor(12, 10);
    return s;
}

static float *floats(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static float *take(const tensors *file, const char *name, size_t *count) {
    const tensor *t = tensors_find(file, name);
    if (!t) fail_msg("%s lacks %s", file->path, name);
    float *out = floats(t->count);
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
    s->w = floats(s->net.n_weights);
    s->dw = floats(s->net.n_weights);
    s->running = floats(s->net.n_running);
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
    float *want = take(&s->file, name, &count), *got = floats(count);
    assert_ok(pass_output(p, end, got));
    assert_close(name, got, want, count, FORWARD);
    free(want);
    free(got);
}

/* Our gradients and statistics under PyTorch's names, read back from the file that we write. */
static void open_as_torch(subject *s, const float *w, const float *running, tensors *out) {
    const char *path = temporary_path("ours.safetensors");
    assert_ok(network_save(&s->net, path, 7, w, running, NULL, 0));
    assert_ok(tensors_open(path, out));
}

/* Every tensor PREFIX.NAME of the golden file against NAME in ours. */
static int check_all(subject *s, const char *prefix, const tensors *ours, double bound) {
    int checked = 0;
    double size = 0; /* of all tensors together */
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
    double bound = strcmp(name, "resnet50") ? GRADIENT : DEEP_GRADIENT;
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
    int weights = check_all(&s, "grad.", &ours, bound);
    int statistics = check_all(&s, "after.", &ours, bound);
    assert_true(weights > 20 && statistics > 10);
    tensors_close(&ours);

    /* backward once more, adding: twice the gradient */
    assert_ok(pass_forward(p, &at, (act *)s.images, PASS_REPEAT));
    assert_ok(pass_backward(p, &at, (act *)s.images, d, true, NULL, s.dw));
    for (size_t i = 0; i < s.net.n_weights; i++) s.dw[i] /= 2;
    open_as_torch(&s, s.dw, s.running, &ours);
    check_all(&s, "grad.", &ours, bound);
    check_all(&s, "after.", &ours, bound); /* PASS_REPEAT leaves the statistics */
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

static void resnet50(void **state) {
    (void)state;
    check_training("resnet50", false);
    check_training("resnet50", true);
}

static void small(void **state) {
    (void)state;
    check_training("small", false);
    check_training("small", true);
}

/* Evaluation: all at once, and one image at a time. */
static void evaluation(void **state) {
    (void)state;
    static const char *const names[] = {"resnet18", "resnet34", "resnet50", "small"};
    for (int i = 0; i < 4; i++) {
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
        /* a single image has no batch statistics after the mean pool */
        assert_fails(CONR_EINVAL, "at least two images",
                     pass_forward(p, &at, (act *)s.images, PASS_TRAIN));
        pass_free(p);
        free(want);
        close_subject(&s);
    }
}

/* Two views in one batch with two groups give what two passes of one group each give, to
 * rounding. */
static void groups_equal_passes(void **state) {
    (void)state;
    subject s = {0};
    open_subject(&s, "resnet18");
    parameters at = parameters_of(&s);
    size_t half = (size_t)s.n / 2 * s.net.spec.h * s.net.spec.w * s.net.spec.c;
    float *before = floats(s.net.n_running), *after = floats(s.net.n_running);
    float joint[80], apart[80], *d = take(&s.file, "dpredicted", NULL);
    float *dw = floats(s.net.n_weights);
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
    /* The second pass shifts by the updated running mean, so its statistics round differently. */
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
    /* the golden names lack the prefix "projector.": place them by hand */
    float *w = floats(net.n_weights), *running = floats(net.n_running);
    float *dw = floats(net.n_weights);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet18),   cmocka_unit_test(resnet34),
        cmocka_unit_test(resnet50),   cmocka_unit_test(small),
        cmocka_unit_test(evaluation), cmocka_unit_test(groups_equal_passes),
        cmocka_unit_test(heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
