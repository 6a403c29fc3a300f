/* vit_golden.h: golden/vit.json for tests: small networks as their libraries have them, with weights
 * and images drawn from names (golden/make_vit.py). */
#ifndef CONR_PRETRAINED_VIT_GOLDEN_H
#define CONR_PRETRAINED_VIT_GOLDEN_H

#include "base/tensors.h"
#include "base/test_help.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *golden_json(void) {
    json_error_t error;
    json_t *all = json_load_file(golden_path("vit.json"), 0, &error);
    if (!all) fail_msg("vit.json: %s", error.text);
    return all;
}

/* Number i in [-1,1) of what a name stands for: SplitMix64 of FNV-1a. */
static double golden_draw(const char *name, size_t i) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    uint64_t x = h + (i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 40) / 8388608 - 1;
}

static void golden_number(tensor_type type, float x, char *out) {
    uint32_t bits;
    uint16_t half = tensor_half(x);
    memcpy(&bits, &x, sizeof bits);
    uint16_t upper = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    if (type == TENSOR_F32) memcpy(out, &x, 4);
    if (type == TENSOR_F16) memcpy(out, &half, 2);
    if (type == TENSOR_BF16) memcpy(out, &upper, 2);
}

enum { GOLDEN_TENSORS = 128 };

/* The tensors of a model of the list, to be changed and written. */
typedef struct golden_file {
    tensor t[GOLDEN_TENSORS];
    int n;
    tensor_type type;
} golden_file;

static void golden_make(json_t *model, golden_file *f) {
    const char *type = json_string_value(json_object_get(model, "type"));
    json_t *list = json_object_get(model, "tensors"), *each;
    size_t at;
    *f = (golden_file){.type = !strcmp(type, "F32")   ? TENSOR_F32
                               : !strcmp(type, "F16") ? TENSOR_F16
                                                      : TENSOR_BF16};
    json_array_foreach(list, at, each) {
        json_t *shape = json_array_get(each, 1);
        double scale = json_number_value(json_array_get(each, 2));
        double mean = json_number_value(json_array_get(each, 3));
        assert_true(f->n < GOLDEN_TENSORS);
        tensor *t = &f->t[f->n++];
        *t = (tensor){
            .name = json_string_value(json_array_get(each, 0)), .type = f->type, .count = 1};
        t->n_dims = (int)json_array_size(shape);
        for (int i = 0; i < t->n_dims; i++) {
            t->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
            t->count *= (size_t)t->dim[i];
        }
        size_t size = tensor_size(f->type);
        char *data = malloc(t->count * size);
        for (size_t i = 0; i < t->count; i++)
            golden_number(f->type, (float)(golden_draw(t->name, i) * scale + mean),
                          data + i * size);
        t->data = data;
    }
}

static void golden_free(golden_file *f) {
    for (int i = 0; i < f->n; i++) free((void *)f->t[i].data);
    f->n = 0;
}

static tensor *golden_tensor(golden_file *f, const char *end) {
    for (int i = 0; i < f->n; i++) {
        size_t n = strlen(f->t[i].name), m = strlen(end);
        if (n >= m && !strcmp(f->t[i].name + n - m, end)) return &f->t[i];
    }
    fail_msg("no tensor %s", end);
    return NULL;
}

static const char *golden_write(const golden_file *f, const char *name) {
    const char *path = temporary_path(name);
    assert_ok(tensors_write(path, f->t, f->n, NULL, 0));
    return path;
}

#endif
