/* resnet_test.c: ResNets in files of Hugging Face against its own features (golden/resnets), under
 * other prefixes, and files that lie.  torchvision's and timm's: network_test.c. */
#include "encoder/resnet.h"

#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static const char *path_of(const char *name) {
    static char file[64];
    snprintf(file, sizeof file, "resnets/%s.safetensors", name);
    return golden_path(file);
}

/* ---- features -------------------------------------------------------------------------------- */

typedef struct expected {
    const char *name;
    encoder_kind encoder;
    int width, features;
} expected;

static const expected models[] = {{"hf50", ENCODER_RESNET50, 2, 64},
                                  {"hf18", ENCODER_RESNET18, 4, 32},
                                  {"hf101", ENCODER_RESNET101, 1, 32}};

/* golden/resnets.safetensors holds images and features. */
static float *golden(const char *name, const char *what, int64_t *side) {
    tensors f;
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, what);
    assert_ok(tensors_open(golden_path("resnets.safetensors"), &f));
    const tensor *t = tensors_find(&f, full);
    assert_non_null(t);
    float *out = floats(t->count);
    assert_ok(tensors_floats(&f, t, out));
    *side = t->dim[1];
    tensors_close(&f);
    return out;
}

/* In one batch, and one by one in a batch that is never full. */
static void check_features(const char *device_name, const char *path, const expected *e) {
    device *dev;
    tensors f;
    resnet *r;
    int64_t side, d;
    float *images = golden(e->name, "images", &side), *want = golden(e->name, "features", &d);
    float *got = floats(2 * (size_t)d);
    assert_int_equal(d, e->features);
    assert_ok(tensors_open(path, &f));
    assert_ok(device_open(device_name, 2, &dev));
    assert_ok(resnet_open(dev, &f, (int)side, 2, &r));
    assert_ok(resnet_encode(r, images, 2, got));
    assert_close(e->name, got, want, 2 * (size_t)d, 1e-5);
    resnet_close(r);
    assert_ok(resnet_open(dev, &f, (int)side, 3, &r));
    for (int i = 0; i < 2; i++)
        assert_ok(resnet_encode(r, images + i * side * side * 3, 1, got + i * d));
    assert_close(e->name, got, want, 2 * (size_t)d, 1e-5);
    resnet_close(r);
    device_close(dev);
    tensors_close(&f);
    free(images), free(want), free(got);
}

static void hugging_face(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        const expected *e = &models[i];
        resnet_about about;
        tensors f;
        assert_ok(tensors_open(path_of(e->name), &f));
        assert_int_equal(resnet_recognize(&f, &about), 1);
        assert_int_equal(about.encoder, e->encoder);
        assert_int_equal(about.stem, STEM_IMAGENET);
        assert_int_equal(about.width, e->width);
        assert_int_equal(about.channels, 3);
        assert_int_equal(about.features, e->features);
        assert_string_equal(about.form, "Hugging Face");
        tensors_close(&f);
        check_features("ref", path_of(e->name), e);
        check_features("cpu", path_of(e->name), e);
    }
}

/* ---- files made from one of them ------------------------------------------------------------- */

/* A copy of hf50 to be changed; tensors point into `from`. */
typedef struct copy {
    tensors from;
    tensor *list;
    int n;
} copy;

static void copy_open(copy *c) {
    assert_ok(tensors_open(path_of("hf50"), &c->from));
    c->n = c->from.n;
    c->list = calloc((size_t)c->n + 4, sizeof *c->list);
    assert_non_null(c->list);
    memcpy(c->list, c->from.tensor, (size_t)c->n * sizeof *c->list);
}

static tensor *copy_find(copy *c, const char *name) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->list[i].name, name)) return &c->list[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void copy_drop(copy *c, const char *name) { *copy_find(c, name) = c->list[--c->n]; }

static const char *copy_write(copy *c) {
    const char *path = temporary_path("changed.safetensors");
    assert_ok(tensors_write(path, c->list, c->n, NULL, 0));
    return path;
}

static void copy_close(copy *c) {
    free(c->list);
    tensors_close(&c->from);
}

/* Under torchvision's names, with each prefix. */
static void torchvision_names(void **state) {
    (void)state;
    static const char *const prefixes[] = {"", "encoder.", "module.", "backbone.", "model."};
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        copy c;
        copy_open(&c);
        char(*name)[96] = calloc((size_t)c.n, sizeof *name);
        assert_non_null(name);
        for (int i = 0; i < c.n; i++) {
            const char *old = c.list[i].name, *dot = strrchr(old, '.');
            bool norm = strstr(old, ".normalization.");
            int stage, block, k;
            if (sscanf(old, "encoder.stages.%d.layers.%d.layer.%d", &stage, &block, &k) == 3)
                snprintf(name[i], sizeof name[i], "%slayer%d.%d.%s%d%s", prefixes[p], stage + 1,
                         block, norm ? "bn" : "conv", k + 1, dot);
            else if (sscanf(old, "encoder.stages.%d.layers.%d", &stage, &block) == 2)
                snprintf(name[i], sizeof name[i], "%slayer%d.%d.downsample.%d%s", prefixes[p],
                         stage + 1, block, norm, dot);
            else
                snprintf(name[i], sizeof name[i], "%s%s1%s", prefixes[p], norm ? "bn" : "conv",
                         dot);
            c.list[i].name = name[i];
        }
        static const float one[1] = {NAN}; /* what is ignored may hold anything */
        char classifier[32];
        snprintf(classifier, sizeof classifier, "%sfc.weight", prefixes[p]);
        c.list[c.n++] = (tensor){classifier, TENSOR_F32, 1, {1}, 1, one};
        const char *path = copy_write(&c);
        resnet_about about;
        tensors f;
        assert_ok(tensors_open(path, &f));
        assert_int_equal(resnet_recognize(&f, &about), 1);
        assert_string_equal(about.form, p == 1 ? "conr" : "torchvision");
        tensors_close(&f);
        check_features("cpu", path, &models[0]);
        free(name);
        copy_close(&c);
    }
}

/* The error of opening what was written; recognizing alone must never crash. */
static void refused(copy *c, int code, const char *words) {
    device *dev;
    tensors f;
    resnet *r;
    const char *path = copy_write(c);
    assert_ok(tensors_open(path, &f));
    assert_ok(device_open("ref", 1, &dev));
    assert_fails(code, words, resnet_open(dev, &f, 32, 1, &r));
    assert_null(r);
    device_close(dev);
    tensors_close(&f);
    copy_close(c);
}

static void hostile_files(void **state) {
    (void)state;
    static const char conv[] = "encoder.stages.2.layers.5.layer.1.convolution.weight";
    static const char norm[] = "encoder.stages.2.layers.5.layer.1.normalization.running_var";
    copy c;
    resnet_about about;
    tensors f;
    tensor *t;

    copy_open(&c); /* a layer less */
    copy_drop(&c, conv);
    refused(&c, CONR_EFORMAT, "has no tensor 'encoder.stages.2.layers.5.layer.1.convolution");

    copy_open(&c); /* a block less: then the rest of it is odd, but the depth is said first */
    copy_drop(&c, "encoder.stages.2.layers.5.layer.0.convolution.weight");
    refused(&c, CONR_EFORMAT, "a ResNet of 3, 4, 5 and 3 bottlenecks");

    copy_open(&c); /* a lying shape: as many numbers */
    t = copy_find(&c, conv);
    assert_int_equal(t->dim[0], 8);
    t->dim[0] = 4, t->dim[1] = 16;
    refused(&c, CONR_EFORMAT, "has shape [4,16,3,3], expected [8,8,3,3]");

    copy_open(&c); /* wide blocks */
    t = copy_find(&c, "encoder.stages.0.layers.0.layer.0.convolution.weight");
    t->dim[0] = 1, t->dim[2] = 2;
    refused(&c, CONR_EFORMAT, "has shape [1,2,2,1], expected [2,2,1,1]");

    static float huge[3 * 49 * 1025]; /* a stem beyond reason */
    copy_open(&c);
    t = copy_find(&c, "embedder.embedder.convolution.weight");
    *t = (tensor){t->name, TENSOR_F32, 4, {1025, 3, 7, 7}, 1025 * 3 * 49, huge};
    refused(&c, CONR_EFORMAT, "takes 3 channels to 1025");

    copy_open(&c);
    t = copy_find(&c, "embedder.embedder.convolution.weight");
    *t = (tensor){t->name, TENSOR_F32, 4, {2, 3, 5, 5}, 150, huge};
    refused(&c, CONR_EFORMAT, "not a first convolution of 7x7 or 3x3");
    copy_open(&c);
    t = copy_find(&c, "embedder.embedder.convolution.weight");
    *t = (tensor){t->name, TENSOR_F32, 1, {2}, 2, huge};
    refused(&c, CONR_EFORMAT, "not a first convolution");

    static const float odd[8] = {1, 1, 1, NAN, 1, 1, 1, 1}, below[8] = {1, 1, -1, 1, 1, 1, 1, 1};
    copy_open(&c);
    copy_find(&c, norm)->data = odd;
    refused(&c, CONR_ENUMBER, "running_var' holds nan");
    copy_open(&c);
    copy_find(&c, norm)->data = below;
    refused(&c, CONR_ENUMBER, "running_var' holds -1");

    copy_open(&c); /* squeeze and excitation: other features than the ones it was trained for */
    c.list[c.n++] = (tensor){"encoder.stages.0.layers.0.se.weight", TENSOR_F32, 1, {1}, 1, odd};
    refused(&c, CONR_EFORMAT,
            "its tensor 'encoder.stages.0.layers.0.se.weight' is not part of a "
            "resnet50");

    copy_open(&c); /* no ResNet at all: not ours to refuse */
    copy_drop(&c, "embedder.embedder.convolution.weight");
    const char *path = copy_write(&c);
    assert_ok(tensors_open(path, &f));
    assert_int_equal(resnet_recognize(&f, &about), 0);
    tensors_close(&f);
    refused(&c, CONR_EFORMAT, "holds no ResNet");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* ResNet-50 at 224 pixels: weights once, activations as planned. */
static void memory_is_known(void **state) {
    (void)state;
    device *dev;
    size_t bytes, more;
    resnet_about about = {.encoder = ENCODER_RESNET50,
                          .stem = STEM_IMAGENET,
                          .width = 64,
                          .channels = 3,
                          .features = 2048};
    assert_ok(device_open("cpu", 2, &dev));
    assert_ok(resnet_bytes(dev, &about, 224, 32, &bytes));
    assert_ok(resnet_bytes(dev, &about, 224, 64, &more));
    double mib = 1 << 20, image = 7.2 * mib; /* 2.26 maps of 56x56x256, and the image itself */
    assert_true((double)bytes > 90 * mib && (double)bytes < 420 * mib);
    assert_true((double)(more - bytes) < 32 * 1.1 * image);
    dev->memory = 100 << 20;
    tensors f;
    resnet *r;
    assert_ok(tensors_open(path_of("hf50"), &f));
    assert_fails(CONR_ENOMEM, "fits", resnet_open(dev, &f, 1024, 64, &r));
    assert_null(r);
    assert_fails(CONR_EINVAL, "image size 8x8", resnet_open(dev, &f, 8, 64, &r));
    tensors_close(&f);
    device_close(dev);
}

/* ---- training goes on from such a file ------------------------------------------------------- */

static void starts_a_training(void **state) {
    (void)state;
    network net;
    network_spec spec = {
        .encoder = ENCODER_RESNET50, .stem = STEM_IMAGENET, .width = 2, .h = 64, .w = 64, .c = 3};
    spec.projector = mlp_byol_projector(6, 4);
    int parts;
    assert_ok(network_new(&spec, &net));
    float *w = floats(net.n_weights), *running = floats(net.n_running);
    assert_ok(network_start(&net, path_of("hf50"), w, running, &parts));
    assert_int_equal(parts, PART_ENCODER);
    const layer *l = &net.layer[net.encoder_end - 2];
    assert_string_equal(l->name, "encoder.layer4.2.conv3");
    tensors f;
    assert_ok(tensors_open(path_of("hf50"), &f));
    const tensor *t = tensors_find(&f, "encoder.stages.3.layers.2.layer.2.convolution.weight");
    float *same = floats(t->count);
    assert_ok(tensors_floats(&f, t, same)); /* 1x1: torch's order is ours */
    assert_memory_equal(w + l->w_at, same, t->count * sizeof *same);
    tensors_close(&f);
    network_free(&net);

    spec.width = 4; /* another network */
    assert_ok(network_new(&spec, &net));
    w = realloc(w, net.n_weights * sizeof *w),
    running = realloc(running, net.n_running * sizeof *w);
    assert_fails(CONR_EINVAL,
                 "holds a resnet50 (stem imagenet, width 2, 3 channels), the training has a "
                 "resnet50 (stem imagenet, width 4",
                 network_start(&net, path_of("hf50"), w, running, &parts));
    network_free(&net);
    free(w), free(running), free(same);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_face),      cmocka_unit_test(torchvision_names),
        cmocka_unit_test(hostile_files),     cmocka_unit_test(memory_is_known),
        cmocka_unit_test(starts_a_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
