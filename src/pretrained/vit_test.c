/* vit_test.c: vision transformers against timm, transformers and open_clip; files that are not what
 * they seem. */
#include "pretrained/encoder.h"
#include "pretrained/vit.h"
#include "pretrained/vit_golden.h"

#include <math.h>
#include <stdio.h>

/* Networks of 128 values and two blocks in fp32: roundings add up to about 1e-6. */
static const double bound = 1e-5;

/* The pixels of two images of this size, as the network takes them. */
static float *draw_images(const family *k, const void *net, int size) {
    size_t n = (size_t)size * (size_t)size * 3, values = k->values(net);
    float *image = malloc(n * sizeof *image), *out = malloc(2 * values * sizeof *out);
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "image %d", i);
        for (size_t j = 0; j < n; j++) image[j] = (float)(1.5 * golden_draw(name, j));
        k->arrange(net, image, out + (size_t)i * values);
    }
    free(image);
    return out;
}

static void compare(device *dev, json_t *model, const char *path, const char *size,
                    json_t *features) {
    char text[32], what[128];
    encoder_settings set;
    encoder_about about;
    tensors f;
    const family *k;
    void *net;
    snprintf(text, sizeof text, "size=%s", size);
    assert_ok(settings_parse((const char *const[]){text, NULL}, &set));
    assert_ok(tensors_open(path, &f));
    assert_ok(family_find(&f, &set, &k, &about));
    assert_string_equal(about.family, json_string_value(json_object_get(model, "family")));
    assert_int_equal(about.features, json_array_size(json_array_get(features, 0)));
    assert_ok(k->open(dev, &f, &set, 2, &net));
    size_t d = (size_t)about.features;
    float *got = malloc(2 * d * sizeof *got), *want = malloc(2 * d * sizeof *want);
    for (size_t i = 0; i < 2 * d; i++)
        want[i] = (float)json_number_value(json_array_get(json_array_get(features, i / d), i % d));
    float *images = draw_images(k, net, atoi(size));
    assert_ok(k->encode(net, images, 2, got));
    snprintf(what, sizeof what, "%s at %s on %s",
             json_string_value(json_object_get(model, "title")), size, dev->name);
    assert_close(what, got, want, 2 * d, bound);
    /* fewer images than there is room for: the same rows */
    assert_ok(k->encode(net, images, 1, got));
    assert_close(what, got, want, d, bound);
    k->close(net);
    tensors_close(&f);
    free(images), free(got), free(want);
}

static void equals_other_libraries(void **state) {
    (void)state;
    json_t *all = golden_json(), *model, *features;
    size_t at;
    const char *size;
    device *dev[2];
    assert_ok(device_open("ref", 1, &dev[0]));
    assert_ok(device_open("cpu", 2, &dev[1]));
    json_array_foreach(json_object_get(all, "models"), at, model) {
        golden_file file;
        golden_make(model, &file);
        const char *path = golden_write(&file, "w.safetensors");
        golden_free(&file);
        int sizes = 0;
        json_object_foreach(json_object_get(model, "features"), size,
                            features) for (int i = 0; i < 2; i++) if (i || !sizes++)
            compare(dev[i], model, path, size, features);
    }
    for (int i = 0; i < 2; i++) device_close(dev[i]);
    json_decref(all);
}

static void positions(void **state) {
    (void)state;
    static const char *const words[] = {"plain", "offset", "antialias"};
    json_t *all = golden_json(), *each;
    size_t at;
    json_array_foreach(json_object_get(all, "positions"), at, each) {
        const char *how = json_string_value(json_object_get(each, "how"));
        int from = (int)json_integer_value(json_object_get(each, "from"));
        int to = (int)json_integer_value(json_object_get(each, "to"));
        int step = (int)json_integer_value(json_object_get(each, "step")), which = 0;
        static float in[37 * 37 * 3], out[16 * 16 * 3], got[64], want[64];
        json_t *values = json_object_get(each, "values");
        size_t n = json_array_size(values);
        while (strcmp(words[which], how)) which++;
        for (int i = 0; i < from * from * 3; i++)
            in[i] = (float)golden_draw("positions", (size_t)i);
        assert_ok(vit_place((vit_places)which, in, from, to, 3, out));
        assert_true(n <= 64);
        for (size_t i = 0; i < n; i++) {
            got[i] = out[i / 3 * (size_t)step * 3 + i % 3];
            want[i] = (float)json_number_value(json_array_get(values, i));
        }
        assert_close(how, got, want, n, 2e-6);
    }
    json_decref(all);
}

/* ---- files that are not what they seem ------------------------------------------------------- */

static json_t *model_called(json_t *all, const char *title) {
    json_t *model;
    size_t at;
    json_array_foreach(
        json_object_get(all, "models"), at,
        model) if (!strcmp(json_string_value(json_object_get(model, "title")), title)) return model;
    fail_msg("no model %s", title);
    return NULL;
}

static int open_file(const golden_file *f, const char *const *settings) {
    conr *c;
    conr_encoder *e;
    assert_ok(conr_open("cpu", 1, &c));
    int rc = conr_encoder_open(c, golden_write(f, "h.safetensors"), settings, &e);
    if (rc < 0) assert_null(e);
    conr_encoder_close(e);
    conr_close(c);
    return rc;
}

static void drop(golden_file *f, const char *end) {
    tensor *t = golden_tensor(f, end);
    free((void *)t->data);
    *t = f->t[--f->n];
}

/* Only the first n remain. */
static void cut(golden_file *f, int n) {
    while (f->n > n) free((void *)f->t[--f->n].data);
}

/* The same numbers under another shape. */
static void reshape(golden_file *f, const char *end, int64_t a, int64_t b) {
    tensor *t = golden_tensor(f, end);
    t->n_dims = 2, t->dim[0] = a, t->dim[1] = b;
    assert_int_equal(t->count, a * b);
}

static void hostile_files(void **state) {
    (void)state;
    json_t *all = golden_json(), *model = model_called(all, "timm, a classifier");
    golden_file f;
#define AFTER(change, code, text)                                                                  \
    golden_make(model, &f);                                                                        \
    change;                                                                                        \
    assert_fails(code, text, open_file(&f, NULL));                                                 \
    golden_free(&f)
    AFTER(drop(&f, "blocks.1.mlp.fc2.bias"), CONR_EFORMAT, "has no tensor 'blocks.1.mlp.fc2.bias'");
    AFTER(drop(&f, "blocks.0.mlp.fc1.weight"), CONR_EFORMAT, "no SwiGLU");
    AFTER(drop(&f, "blocks.0.norm1.weight"), CONR_EFORMAT, "is no network that is known");
    AFTER(drop(&f, "blocks.1.norm1.weight"), CONR_EFORMAT, "that ViT with 1 blocks does not have");
    AFTER(drop(&f, "cls_token"), CONR_EFORMAT, "does not hold a square of positions");
    AFTER(reshape(&f, "attn.qkv.weight", 128, 384), CONR_EFORMAT, "expected [384,128]");
    AFTER(reshape(&f, "fc1.weight", 1, 32768), CONR_EFORMAT, "expected [1,128]");
    AFTER(reshape(&f, "patch_embed.proj.weight", 128, 768), CONR_EFORMAT, "no network");
    AFTER(reshape(&f, "pos_embed", 128, 10), CONR_EFORMAT, "square of positions");
    AFTER(drop(&f, "patch_embed.proj.bias"), CONR_EFORMAT, "no tensor 'patch_embed.proj.bias'");
    AFTER(golden_tensor(&f, "0.attn.proj.bias")->name = "blocks.7.other", CONR_EFORMAT,
          "no tensor 'blocks.0.attn.proj.bias'");
    AFTER(golden_tensor(&f, "head.bias")->name = "rope.freqs", CONR_EFORMAT, "'rope.freqs'");
    AFTER(memset((void *)golden_tensor(&f, "1.attn.proj.bias")->data, 0xff, 4), CONR_ENUMBER,
          "'blocks.1.attn.proj.bias' holds NaN");
    AFTER(cut(&f, 1), CONR_EFORMAT, "is no network that is known");
    AFTER(cut(&f, 0), CONR_EFORMAT, "is no network that is known");
#undef AFTER
    json_decref(all);
}

static void settings(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"size=50", "is no multiple of the patches of 16 pixels; use 48"},
        {"size=4096", "more than 128 patches"},
        {"size=x", "is no number from"},
        {"size", "write KEY=VALUE"},
        {"colour=1", "no such setting"},
        {"resize=20", "is less than the size, 48"},
        {"filter=lanczos", "no such word"},
        {"mean=1,2", "is not one or three numbers"},
        {"deviation=0", "positive"},
        {"mean=nan", "is not one or three"},
        {"gelu=none", "no such word"},
        {"pool=head", "has no such head"},
        {"heads=3", "do not divide into 3 heads"},
    };
    json_t *all = golden_json(), *model = model_called(all, "timm, a classifier");
    golden_file f;
    golden_make(model, &f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(CONR_EINVAL, wrong[i].why,
                     open_file(&f, (const char *const[]){wrong[i].text, NULL}));
    conr *c;
    conr_encoder *e;
    conr_encoder_info i;
    assert_ok(conr_open("cpu", 1, &c));
    const char *path = golden_write(&f, "s.safetensors");
    assert_ok(conr_encoder_open(c, path, NULL, &e));
    conr_encoder_about(e, &i);
    assert_string_equal(i.settings, "size=48 resize=53 filter=bicubic "
                                    "mean=0.485000014,0.456,0.405999988 "
                                    "deviation=0.229000002,0.224000007,0.224999994 pool=class "
                                    "gelu=exact heads=2");
    assert_string_equal(i.network, "ViT-128x2/16");
    assert_string_equal(i.form, "timm");
    assert_string_equal(i.type, "F32");
    conr_encoder_close(e);
    assert_ok(conr_encoder_open(c, path,
                                (const char *const[]){"size=96", "filter=bilinear", "mean=0.5",
                                                      "deviation=0.25,1,2", "pool=mean",
                                                      "gelu=quick", "heads=4", NULL},
                                &e));
    conr_encoder_about(e, &i);
    assert_string_equal(i.settings, "size=96 resize=106 filter=bilinear mean=0.5,0.5,0.5 "
                                    "deviation=0.25,1,2 pool=mean gelu=quick heads=4");
    conr_encoder_close(e);
    conr_close(c);
    golden_free(&f);
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_other_libraries),
        cmocka_unit_test(positions),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
