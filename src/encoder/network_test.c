/* network_test.c: names, shapes and initial weights; torchvision's files; bad files. */
#include "encoder/network.h"

#include "base/rng.h"
#include "base/test_help.h"
#include "encoder/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *numbers(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static network_spec plain(encoder_kind encoder, stem_kind stem, int width, int side) {
    return (network_spec){
        .encoder = encoder, .stem = stem, .width = width, .h = side, .w = side, .c = 3};
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static size_t count_weights(const network *net) {
    size_t sum = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layer[i];
        if (l->kind != LAYER_CONV) continue;
        sum +=
            (size_t)l->co * l->k * l->k * l->ci + (l->bias ? l->co : 0) + (l->norm ? 2 * l->co : 0);
    }
    return sum;
}

/* Parameters and multiply-adds as torchvision documents them (without its last layer). */
static void sizes_as_published(void **state) {
    (void)state;
    network net;
    network_spec s = plain(ENCODER_RESNET18, STEM_IMAGENET, 64, 224);
    assert_ok(network_new(&s, &net));
    assert_int_equal(count_weights(&net), 11689512 - 513000);
    assert_true(fabs(network_work(&net) * 1e-9 - 1.814) < 0.002);
    network_free(&net);
    s.encoder = ENCODER_RESNET34;
    assert_ok(network_new(&s, &net));
    assert_int_equal(count_weights(&net), 21797672 - 513000);
    assert_true(fabs(network_work(&net) * 1e-9 - 3.664) < 0.002);
    network_free(&net);
    s.encoder = ENCODER_RESNET50;
    assert_ok(network_new(&s, &net));
    assert_int_equal(count_weights(&net), 25557032 - 2049000);
    assert_true(fabs(network_work(&net) * 1e-9 - 4.087) < 0.002);
    network_free(&net);
    s.encoder = ENCODER_RESNET101;
    assert_ok(network_new(&s, &net));
    assert_int_equal(count_weights(&net), 44549160 - 2049000);
    assert_true(fabs(network_work(&net) * 1e-9 - 7.799) < 0.002);
    network_free(&net);
    s = plain(ENCODER_RESNET18, STEM_CIFAR, 64, 32);
    s.projector = mlp_byol_projector(4096, 256);
    s.predictor = mlp_byol_predictor(4096, 256);
    assert_ok(network_new(&s, &net));
    /* CIFAR stem: 64*3*9 instead of 64*3*49; BYOL's heads */
    size_t encoder = 11689512 - 513000 - 64 * 3 * 40;
    size_t projector = 512 * 4096 + 3 * 4096 + 4096 * 256 + 256;
    size_t predictor = 256 * 4096 + 3 * 4096 + 4096 * 256 + 256;
    assert_int_equal(count_weights(&net), encoder + projector + predictor);
    /* the blocks hold just that, plus less than a cache line of padding per tensor; the target is
     * the part before the predictor */
    assert_true(net.n_weights >= encoder + projector + predictor);
    assert_true(net.n_weights < encoder + projector + predictor + 16 * 80);
    assert_true(net.n_target >= encoder + projector &&
                net.n_target < net.n_weights - predictor + 16);
    network_free(&net);
    network_free(&net);
}

static void refuses_nonsense(void **state) {
    (void)state;
    network net;
    network_spec s = plain(ENCODER_RESNET18, STEM_CIFAR, 64, 15);
    assert_fails(CONR_EINVAL, "image size 15x15", network_new(&s, &net));
    network_free(&net);
    s = plain(ENCODER_RESNET18, STEM_CIFAR, 64, 1 << 20);
    assert_fails(CONR_EINVAL, "image size", network_new(&s, &net));
    s = plain(ENCODER_RESNET18, STEM_CIFAR, 0, 32);
    assert_fails(CONR_EINVAL, "width 0", network_new(&s, &net));
    s = plain(ENCODER_SMALL, STEM_CIFAR, 16, 32);
    assert_fails(CONR_EINVAL, "stem", network_new(&s, &net));
    s = plain(ENCODER_RESNET18, STEM_CIFAR, 64, 32);
    s.c = 2;
    assert_fails(CONR_EINVAL, "2 channels", network_new(&s, &net));
    s.c = 3;
    s.projector = mlp_byol_projector(0, 4);
    assert_fails(CONR_EINVAL, "projector", network_new(&s, &net));
    s.projector.n = 9;
    assert_fails(CONR_EINVAL, "9 layers", network_new(&s, &net));
}

/* ---- initial weights ------------------------------------------------------------------------- */

static void moments(const float *x, size_t n, double *mean, double *deviation, double *largest) {
    double sum = 0, squares = 0;
    *largest = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i], squares += (double)x[i] * x[i];
        if (fabs(x[i]) > *largest) *largest = fabs(x[i]);
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static const layer *find_layer(const network *net, const char *name) {
    for (int i = 0; i < net->n_layers; i++)
        if (!strcmp(net->layer[i].name, name)) return &net->layer[i];
    fail_msg("no layer %s", name);
    return NULL;
}

static void first_weights(void **state) {
    (void)state;
    network net;
    network_spec s = plain(ENCODER_RESNET18, STEM_CIFAR, 64, 32);
    s.projector = mlp_byol_projector(1024, 256);
    s.predictor = mlp_byol_predictor(1024, 256);
    assert_ok(network_new(&s, &net));
    float *w = numbers(net.n_weights), *running = numbers(net.n_running);
    float *again = numbers(net.n_weights);
    network_init(&net, 5, w, running);
    double mean, deviation, largest;

    const layer *l = find_layer(&net, "encoder.layer4.1.conv2"); /* normal, sqrt(2/(9*512)) */
    moments(w + l->w_at, (size_t)512 * 9 * 512, &mean, &deviation, &largest);
    assert_true(fabs(deviation / sqrt(2.0 / (9 * 512)) - 1) < 0.005 && fabs(mean) < 1e-4);
    assert_true(largest > 4.5 * deviation);
    l = find_layer(&net, "encoder.conv1"); /* uniform +-1/sqrt(27) */
    moments(w + l->w_at, 64 * 27, &mean, &deviation, &largest);
    assert_true(largest <= 1 / sqrt(27) && largest > 0.99 / sqrt(27));
    assert_true(fabs(deviation * sqrt(3 * 27) - 1) < 0.05);
    l = find_layer(&net, "projector.0"); /* uniform +-1/sqrt(512), bias too */
    moments(w + l->w_at, 1024 * 512, &mean, &deviation, &largest);
    assert_true(largest <= 1 / sqrt(512) && fabs(deviation * sqrt(3 * 512) - 1) < 0.01);
    moments(w + l->bias_at, 1024, &mean, &deviation, &largest);
    assert_true(largest <= 1 / sqrt(512) && fabs(deviation * sqrt(3 * 512) - 1) < 0.1);
    for (int i = 0; i < 1024; i++) assert_true(w[l->gamma_at + i] == 1 && w[l->beta_at + i] == 0);
    for (int i = 0; i < 1024; i++) assert_true(running[l->running_at + i] == 0);
    for (int i = 0; i < 1024; i++) assert_true(running[l->running_at + 1024 + i] == 1);
    l = find_layer(&net, "predictor.3"); /* normal 0.01, bias 0 */
    moments(w + l->w_at, 1024 * 256, &mean, &deviation, &largest);
    assert_true(fabs(deviation / 0.01 - 1) < 0.01);
    for (int i = 0; i < 256; i++) assert_true(w[l->bias_at + i] == 0);

    network_init(&net, 5, again, running);
    assert_memory_equal(w, again, net.n_weights * sizeof *w);
    network_init(&net, 6, again, running);
    assert_true(memcmp(w, again, net.n_weights * sizeof *w));
    free(w), free(again), free(running);
    network_free(&net);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A state dict as torchvision would save it, every value by the formula of golden/make.py. */
static float formula(uint32_t tensor_number, uint32_t i) {
    uint32_t h = tensor_number * (1u << 24) + i;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    return (float)(h >> 8) * (1.0f / 16777216.0f);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Writes a file with torchvision's names and our shapes; returns its path.  Shapes are from `net`,
 * names in torchvision's order and scales from the golden file. */
static const char *torchvision_file(const network *net, const tensors *golden, int tensors_wanted) {
    const char *names = tensors_note(golden, "names");
    assert_non_null(names);
    enum { MOST = 300 };
    static char name[MOST][96];
    tensor list[MOST];
    int n = 0;
    while (*names) {
        size_t length = strcspn(names, "\n");
        snprintf(name[n], sizeof name[n], "%.*s", (int)length, names);
        names += length + (names[length] == '\n');
        tensor *t = &list[n];
        *t = (tensor){.name = name[n], .type = TENSOR_F32, .n_dims = 1};
        for (int i = 0; i < net->n_layers; i++) {
            const layer *l = &net->layer[i];
            const char *conv = l->name + strlen("encoder."),
                       *norm = l->norm_name + strlen("encoder.");
            size_t nc = l->kind == LAYER_CONV ? strlen(conv) : 0, nn = nc ? strlen(norm) : 0;
            if (nc && !strncmp(t->name, conv, nc) && !strcmp(t->name + nc, ".weight")) {
                t->n_dims = 4;
                t->dim[0] = l->co, t->dim[1] = l->ci, t->dim[2] = t->dim[3] = l->k;
            } else if (nn && !strncmp(t->name, norm, nn) && t->name[nn] == '.') {
                t->dim[0] = l->co;
            }
        }
        if (!t->dim[0]) fail_msg("our network has no %s", t->name);
        t->count = 1;
        for (int i = 0; i < t->n_dims; i++) t->count *= (size_t)t->dim[i];
        float *x = numbers(t->count), e = 0;
        char scale[128];
        snprintf(scale, sizeof scale, "e.%s", t->name);
        if (tensors_find(golden, scale))
            assert_ok(tensors_floats(golden, tensors_find(golden, scale), &e));
        for (uint32_t i = 0; i < t->count; i++) {
            float u = formula((uint32_t)n, i);
            if (t->n_dims == 4)
                x[i] = (u - 0.5f) * ldexpf(1, 2 - (int)e);
            else if (ends_with(t->name, "running_var") || ends_with(t->name, ".weight"))
                x[i] = 0.5f + u;
            else
                x[i] = u - 0.5f;
        }
        t->data = x;
        n++;
    }
    assert_int_equal(n, tensors_wanted);
    static const float fc[4] = {1, 2, 3, 4}; /* ignored */
    list[n++] = (tensor){"fc.weight", TENSOR_F32, 2, {1, 4}, 4, fc};
    list[n] = (tensor){"bn1.num_batches_tracked", TENSOR_I64, 0, {0}, 1, &(int64_t){77}};
    n++;
    const char *path = temporary_path("torchvision.safetensors");
    assert_ok(tensors_write(path, list, n, NULL, 0));
    for (int i = 0; i < tensors_wanted; i++) free((void *)list[i].data);
    return path;
}

/* A full ResNet in torchvision's format gives torchvision's features; d of them. */
static void check_torchvision(encoder_kind encoder, const char *file, int tensors_wanted, size_t d,
                              const char *device_name) {
    tensors golden;
    network net;
    device *dev;
    ranks r;
    pass *p;
    int parts;
    network_spec s = plain(encoder, STEM_IMAGENET, 64, 64);
    s.projector = mlp_byol_projector(16, 8);
    assert_ok(tensors_open(golden_path(file), &golden));
    assert_ok(network_new(&s, &net));
    assert_ok(device_open(device_name, 0, &dev));
    assert_ok(ranks_open(&r));
    float *w = numbers(net.n_weights), *running = numbers(net.n_running);
    network_init(&net, 1, w, running);
    const char *path = torchvision_file(&net, &golden, tensors_wanted);
    const layer *head = find_layer(&net, "projector.0");
    float first = w[head->w_at];
    assert_ok(network_load(&net, path, w, running, &parts));
    assert_int_equal(parts, PART_ENCODER);
    assert_true(w[head->w_at] == first); /* a head that the file lacks is unchanged */

    size_t pixels = 2 * 64 * 64 * 3;
    float *images = numbers(pixels), *features = numbers(2 * d), *want = numbers(2 * d),
          row[64 * 3];
    for (uint32_t i = 0; i < pixels; i++) images[i] = formula(200, i) * 4 - 2;
    assert_ok(tensors_floats(&golden, tensors_find(&golden, "first_row"), row));
    assert_memory_equal(row, images, sizeof row);
    parameters at = {w, running};
    pass_options o = {.n = 2, .groups = 1, .passes = 1, .end = net.encoder_end};
    assert_ok(pass_new(dev, &r, &net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)images, PASS_EVAL));
    assert_ok(pass_output(p, net.encoder_end, features));
    assert_ok(tensors_take(&golden, "features", 2, (int64_t[]){2, (int64_t)d}, want));
    assert_close("features", features, want, 2 * d, 1e-5);
    pass_free(p);
    free(w), free(running), free(images), free(features), free(want);
    network_free(&net);
    device_close(dev);
    tensors_close(&golden);
}

static void torchvision_resnet18(void **state) {
    (void)state;
    check_torchvision(ENCODER_RESNET18, "torchvision.safetensors", 100, 512, "ref");
}

/* timm's resnet50 has these names and features, too: golden/make_resnets.py. */
static void torchvision_resnet50(void **state) {
    (void)state;
    check_torchvision(ENCODER_RESNET50, "torchvision50.safetensors", 265, 2048, "cpu");
}

static void save_and_load(void **state) {
    (void)state;
    network net, other;
    network_spec s = plain(ENCODER_SMALL, STEM_SMALL, 5, 28);
    s.projector = mlp_byol_projector(12, 6);
    s.predictor = mlp_byol_predictor(10, 6);
    assert_ok(network_new(&s, &net));
    float *w = numbers(net.n_weights), *running = numbers(net.n_running);
    float *w2 = numbers(net.n_weights), *running2 = numbers(net.n_running);
    network_init(&net, 1, w, running);
    for (size_t i = 0; i < net.n_running; i++) running[i] += (float)i;
    network_init(&net, 2, w2, running2);
    const char *path = temporary_path("model.safetensors");
    tensor_note note = {"stem", "small"};
    int parts;

    assert_ok(network_save(&net, path, 7, w, running, &note, 1));
    assert_ok(network_load(&net, path, w2, running2, &parts));
    assert_int_equal(parts, 7);
    for (int i = 0; i < net.n_layers; i++) { /* the padding between tensors is not saved */
        const layer *l = &net.layer[i];
        if (l->kind != LAYER_CONV) continue;
        assert_memory_equal(w + l->w_at, w2 + l->w_at,
                            (size_t)l->co * l->k * l->k * l->ci * sizeof *w);
        if (l->bias) assert_memory_equal(w + l->bias_at, w2 + l->bias_at, l->co * sizeof *w);
        if (!l->norm) continue;
        assert_memory_equal(w + l->beta_at, w2 + l->beta_at, l->co * sizeof *w);
        assert_memory_equal(running + l->running_at, running2 + l->running_at,
                            2 * l->co * sizeof *w);
    }
    tensors t;
    assert_ok(tensors_open(path, &t));
    assert_string_equal(tensors_note(&t, "stem"), "small");
    assert_non_null(tensors_find(&t, "encoder.layer3.0.downsample.1.running_var"));
    assert_non_null(tensors_find(&t, "encoder.bn1.num_batches_tracked"));
    assert_non_null(tensors_find(&t, "predictor.3.bias"));
    tensors_close(&t);

    /* to start a network with a different projector: everything else */
    s.projector = mlp_byol_projector(14, 6);
    assert_ok(network_new(&s, &other));
    float *w4 = numbers(other.n_weights), *running4 = numbers(other.n_running);
    assert_fails(CONR_EFORMAT, "expected [14,", network_load(&other, path, w4, running4, NULL));
    assert_ok(network_start(&other, path, w4, running4, &parts));
    assert_int_equal(parts, PART_ENCODER | PART_PREDICTOR);
    assert_memory_equal(w4 + other.layer[0].w_at, w + net.layer[0].w_at,
                        (size_t)net.layer[0].co * 27 * sizeof *w);
    assert_true(w4[other.layer[other.encoder_end].w_at] == 0); /* the projector's */
    network_free(&other);
    free(w4), free(running4);
    s.projector = mlp_byol_projector(12, 6);

    /* only some parts; a different architecture; a missing name; a truncated file */
    assert_ok(network_save(&net, path, PART_ENCODER | PART_PROJECTOR, w, running, NULL, 0));
    assert_ok(network_load(&net, path, w2, running2, &parts));
    assert_int_equal(parts, PART_ENCODER | PART_PROJECTOR);
    float before = w2[0];
    s.width = 6;
    assert_ok(network_new(&s, &other));
    float *w3 = numbers(other.n_weights), *running3 = numbers(other.n_running);
    assert_fails(CONR_EFORMAT, "encoder.conv1.weight' has shape [5,3,3,3], expected [6,3,3,3]",
                 network_load(&other, path, w3, running3, NULL));
    for (size_t i = 0; i < other.n_weights; i++) assert_true(w3[i] == 0); /* untouched */
    network_free(&other);
    free(w3), free(running3);
    assert_ok(network_save(&net, path, PART_PROJECTOR, w, running, NULL, 0));
    assert_fails(CONR_EFORMAT, "has no tensor 'encoder.conv1.weight'",
                 network_load(&net, path, w2, running2, NULL));
    assert_true(w2[0] == before);
    assert_fails(CONR_EFILE, "nowhere.safetensors",
                 network_load(&net, temporary_path("nowhere.safetensors"), w2, running2, NULL));
    char junk[64] = "this is no checkpoint";
    path = temporary_file("junk.safetensors", junk, sizeof junk);
    assert_true(network_load(&net, path, w2, running2, NULL) < 0);
    free(w), free(running), free(w2), free(running2);
    network_free(&net);
}

static void names(void **state) {
    (void)state;
    encoder_kind encoder;
    stem_kind stem;
    assert_string_equal(ENCODER_NAMES, "resnet18|resnet34|resnet50|resnet101|small");
    assert_string_equal(STEM_NAMES, "cifar|imagenet|small");
    assert_true(encoder_find("resnet34", &encoder) && encoder == ENCODER_RESNET34);
    assert_true(stem_find("imagenet", &stem) && stem == STEM_IMAGENET);
    assert_string_equal(encoder_name(ENCODER_SMALL), "small");
    assert_string_equal(stem_name(STEM_CIFAR), "cifar");
    assert_true(encoder_find("resnet50", &encoder) && encoder == ENCODER_RESNET50);
    assert_false(encoder_find("resnet152", &encoder));
    assert_false(stem_find("auto", &stem));
    assert_int_equal(stem_usual(ENCODER_RESNET18, 32), STEM_CIFAR);
    assert_int_equal(stem_usual(ENCODER_RESNET18, 33), STEM_IMAGENET);
    assert_int_equal(stem_usual(ENCODER_SMALL, 64), STEM_SMALL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_as_published),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(first_weights),
        cmocka_unit_test(torchvision_resnet18),
        cmocka_unit_test(torchvision_resnet50),
        cmocka_unit_test(save_and_load),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
