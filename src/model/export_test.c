/* export_test.c: what conr_export wrote is read back and run by plain loops, and gives the features
 * of conr_embed.  scripts/check_export.py does the same with an independent runtime. */
#include "base/test_help.h"

#include "base/file.h"
#include "model/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf, as read ----------------------------------------------------------------------- */

typedef struct bytes {
    const unsigned char *at, *end;
} bytes;

typedef struct field {
    int number, kind;
    uint64_t value; /* kind 0; kind 5: the four bytes */
    bytes inside;   /* kind 2 */
} field;

static uint64_t varint(bytes *b) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(b->at < b->end);
        value |= (uint64_t)(*b->at & 127) << shift;
        if (!(*b->at++ & 128)) return value;
    }
    fail_msg("a varint does not end");
    return 0;
}

/* The next field of a message; false at its end. */
static bool next(bytes *b, field *f) {
    if (b->at == b->end) return false;
    uint64_t key = varint(b), n = 4;
    *f = (field){.number = (int)(key >> 3), .kind = key & 7};
    assert_true(f->kind == 0 || f->kind == 2 || f->kind == 5);
    if (f->kind == 0) {
        f->value = varint(b);
        return true;
    }
    if (f->kind == 2) n = varint(b);
    assert_true(n <= (uint64_t)(b->end - b->at));
    f->inside = (bytes){b->at, b->at + n};
    if (f->kind == 5) memcpy(&f->value, b->at, 4);
    b->at += n;
    return true;
}

static char *text(bytes b) { /* never freed: this is a test */
    char *out = calloc(1, (size_t)(b.end - b.at) + 1);
    assert_non_null(out);
    memcpy(out, b.at, (size_t)(b.end - b.at));
    return out;
}

/* ---- the graph, as run ----------------------------------------------------------------------- */

enum { VALUES = 1024, INPUTS = 5 };

typedef struct value {
    char *name;
    int n_dims;
    int64_t dim[4];
    float *x; /* owned */
} value;

typedef struct node {
    char *op, *in[INPUTS], *out, *name;
    int n_in, k, stride, pad, trans_b;
    float epsilon;
} node;

typedef struct graph {
    value value[VALUES];
    int n;
} graph;

static value *find(graph *g, const char *name) {
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->value[i].name, name)) return &g->value[i];
    fail_msg("%s is used before it is made", name);
    return NULL;
}

static value *make(graph *g, char *name, int n_dims, const int64_t *dim) {
    assert_true(g->n < VALUES);
    for (int i = 0; i < g->n; i++) assert_string_not_equal(g->value[i].name, name);
    value *v = &g->value[g->n++];
    size_t count = 1;
    *v = (value){.name = name, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) count *= (size_t)(v->dim[i] = dim[i]);
    v->x = calloc(count, sizeof *v->x);
    assert_non_null(v->x);
    return v;
}

static size_t count_of(const value *v) {
    size_t count = 1;
    for (int i = 0; i < v->n_dims; i++) count *= (size_t)v->dim[i];
    return count;
}

static void read_tensor(graph *g, bytes b) {
    int64_t dim[4] = {0};
    int n_dims = 0, type = 0;
    char *name = NULL;
    bytes raw = {0};
    for (field f; next(&b, &f);) {
        if (f.number == 1) assert_true(n_dims < 4), dim[n_dims++] = (int64_t)f.value;
        if (f.number == 2) type = (int)f.value;
        if (f.number == 8) name = text(f.inside);
        if (f.number == 9) raw = f.inside;
    }
    assert_int_equal(type, 1);
    value *v = make(g, name, n_dims, dim);
    assert_int_equal(raw.end - raw.at, count_of(v) * sizeof(float));
    memcpy(v->x, raw.at, (size_t)(raw.end - raw.at));
}

static void read_attribute(node *n, bytes b) {
    char *name = NULL;
    int64_t ints[4] = {0}, i = 0;
    int n_ints = 0, type = 0;
    float number = 0;
    for (field f; next(&b, &f);) {
        if (f.number == 1) name = text(f.inside);
        if (f.number == 2) memcpy(&number, &f.value, 4);
        if (f.number == 3) i = (int64_t)f.value;
        if (f.number == 8) assert_true(n_ints < 4), ints[n_ints++] = (int64_t)f.value;
        if (f.number == 20) type = (int)f.value;
    }
    assert_int_equal(type, n_ints ? 7 : !strcmp(name, "epsilon") ? 1 : 2);
    for (int k = 1; k < n_ints; k++) assert_int_equal(ints[k], ints[0]); /* everything is square */
    if (!strcmp(name, "kernel_shape")) n->k = (int)ints[0];
    if (!strcmp(name, "strides")) n->stride = (int)ints[0];
    if (!strcmp(name, "pads")) n->pad = (int)ints[0], assert_int_equal(n_ints, 4);
    if (!strcmp(name, "transB")) n->trans_b = (int)i;
    if (!strcmp(name, "keepdims")) assert_int_equal(i, 1);
    if (!strcmp(name, "axes")) assert_int_equal(ints[0], 1);
    if (!strcmp(name, "epsilon")) n->epsilon = number;
    free(name);
}

static node read_node(bytes b) {
    node n = {0};
    for (field f; next(&b, &f);) {
        if (f.number == 1) assert_true(n.n_in < INPUTS), n.in[n.n_in++] = text(f.inside);
        if (f.number == 2) n.out = text(f.inside);
        if (f.number == 3) n.name = text(f.inside);
        if (f.number == 4) n.op = text(f.inside);
        if (f.number == 5) read_attribute(&n, f.inside);
    }
    return n;
}

/* Convolution or maximum over windows. */
static void run_window(graph *g, const node *n, const value *x, const value *w) {
    int64_t H = x->dim[2], W = x->dim[3], C = x->dim[1], co = w ? w->dim[0] : C;
    int64_t oh = (H + 2 * n->pad - n->k) / n->stride + 1,
            ow = (W + 2 * n->pad - n->k) / n->stride + 1;
    value *y = make(g, n->out, 4, (int64_t[]){x->dim[0], co, oh, ow});
    float *out = y->x;
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t o = 0; o < co; o++)
            for (int64_t at = 0; at < oh * ow; at++, out++) {
                double sum = 0, most = -INFINITY;
                for (int64_t t = 0; t < (int64_t)n->k * n->k; t++) {
                    int64_t iy = at / ow * n->stride + t / n->k - n->pad;
                    int64_t ix = at % ow * n->stride + t % n->k - n->pad;
                    if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
                    for (int64_t c = 0; w && c < C; c++)
                        sum += (double)x->x[((i * C + c) * H + iy) * W + ix] *
                               w->x[(o * C + c) * n->k * n->k + t];
                    if (!w) most = fmax(most, x->x[((i * C + o) * H + iy) * W + ix]);
                }
                *out = (float)(w ? sum : most);
            }
}

static void run_gemm(graph *g, const node *n, const value *x, const value *w, const value *b) {
    assert_int_equal(n->trans_b, 1);
    assert_int_equal(x->dim[1], w->dim[1]);
    value *y = make(g, n->out, 2, (int64_t[]){x->dim[0], w->dim[0]});
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t o = 0; o < w->dim[0]; o++) {
            double sum = b ? b->x[o] : 0;
            for (int64_t c = 0; c < w->dim[1]; c++)
                sum += (double)x->x[i * w->dim[1] + c] * w->x[o * w->dim[1] + c];
            y->x[i * w->dim[0] + o] = (float)sum;
        }
}

/* Elementwise operations; the smaller operand is broadcast. */
static void run_each(graph *g, const node *n, const value *x, const value *const in[INPUTS]) {
    value *y = make(g, n->out, x->n_dims, x->dim);
    size_t map = x->n_dims == 4 ? (size_t)(x->dim[2] * x->dim[3]) : 1, channels = (size_t)x->dim[1];
    for (size_t i = 0; i < count_of(x); i++) {
        size_t c = i / map % channels;
        double v = x->x[i];
        if (!strcmp(n->op, "Relu")) v = fmax(v, 0);
        if (!strcmp(n->op, "Sub")) v -= in[1]->x[c];
        if (!strcmp(n->op, "Add")) v += in[1]->x[i];
        if (!strcmp(n->op, "Max")) v = fmax(v, in[1]->x[0]);
        if (!strcmp(n->op, "Div")) v /= in[1]->x[x->n_dims == 4 ? c : i / channels];
        if (!strcmp(n->op, "BatchNormalization"))
            v = (v - in[3]->x[c]) / sqrt(in[4]->x[c] + n->epsilon) * in[1]->x[c] + in[2]->x[c];
        y->x[i] = (float)v;
    }
}

static void run_rows(graph *g, const node *n, const value *x) {
    bool length = !strcmp(n->op, "ReduceL2"), mean = !strcmp(n->op, "GlobalAveragePool");
    int64_t rows = length ? x->dim[0] : x->dim[0] * x->dim[1], each = (int64_t)count_of(x) / rows;
    value *y = mean     ? make(g, n->out, 4, (int64_t[]){x->dim[0], x->dim[1], 1, 1})
               : length ? make(g, n->out, 2, (int64_t[]){x->dim[0], 1})
                        : make(g, n->out, 2, (int64_t[]){x->dim[0], x->dim[1] * each});
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < each; j++) {
            double v = x->x[i * each + j];
            sum += length ? v * v : v;
        }
        y->x[i] = (float)(length ? sqrt(sum) : sum / (double)each);
    }
}

static void run_node(graph *g, const node *n) {
    const value *in[INPUTS] = {0};
    for (int i = 0; i < n->n_in; i++) in[i] = find(g, n->in[i]);
    if (!strcmp(n->op, "Conv"))
        run_window(g, n, in[0], in[1]);
    else if (!strcmp(n->op, "MaxPool"))
        run_window(g, n, in[0], NULL);
    else if (!strcmp(n->op, "Gemm"))
        run_gemm(g, n, in[0], in[1], in[2]);
    else if (!strcmp(n->op, "GlobalAveragePool") || !strcmp(n->op, "Flatten") ||
             !strcmp(n->op, "ReduceL2"))
        run_rows(g, n, in[0]);
    else if (strstr(" Relu Sub Add Max Div BatchNormalization ", n->op))
        run_each(g, n, in[0], in);
    else
        fail_msg("%s: not an operation that we write", n->op);
}

/* The name of an input or output, and its shape: N, then the other dimensions. */
static char *read_value(bytes b, int64_t dim[4]) {
    char *name = NULL;
    int n = 0;
    field f, g, h, i, j;
    while (next(&b, &f)) {
        if (f.number == 1) name = text(f.inside);
        if (f.number != 2) continue;
        while (next(&f.inside, &g))                          /* TypeProto: tensor_type */
            while (next(&g.inside, &h))                      /* elem_type, shape */
                while (h.number == 2 && next(&h.inside, &i)) /* dim */
                    while (next(&i.inside, &j)) assert_true(n < 4), dim[n++] = (int64_t)j.value;
    }
    return name;
}

/* Runs the file on images [n,c,h,w]; the graph keeps all values. */
static void run_file(const char *path, const float *images, int n, graph *g) {
    file_map file;
    field f, part;
    int64_t ir = 0, opset = 0, dim[4] = {0}, out_dim[4];
    bytes inside = {0}, nodes;
    char *outputs[2];
    int n_outputs = 0;
    assert_ok(file_map_open(path, &file));
    bytes all = {file.data, file.data + file.size};
    while (next(&all, &f)) {
        if (f.number == 1) ir = (int64_t)f.value;
        if (f.number == 7) inside = f.inside;
        if (f.number == 8)
            while (next(&f.inside, &part))
                if (part.number == 2) opset = (int64_t)part.value;
    }
    assert_int_equal(ir, 7);
    assert_int_equal(opset, 13);
    nodes = inside;
    while (next(&inside, &part)) {
        if (part.number == 5) read_tensor(g, part.inside);
        if (part.number == 11) {
            char *name = read_value(part.inside, dim);
            assert_string_equal(name, "images");
            dim[0] = n;
            value *v = make(g, name, 4, dim);
            memcpy(v->x, images, count_of(v) * sizeof(float));
        }
        if (part.number == 12)
            assert_true(n_outputs < 2), outputs[n_outputs++] = read_value(part.inside, out_dim);
    }
    while (next(&nodes, &part)) {
        if (part.number != 1) continue;
        node step = read_node(part.inside);
        run_node(g, &step);
        for (int i = 0; i < step.n_in; i++) free(step.in[i]);
        free(step.op), free(step.name);
    }
    assert_int_equal(n_outputs, 2);
    assert_string_equal(outputs[0], "features");
    assert_string_equal(outputs[1], "encoder");
    free(outputs[0]), free(outputs[1]);
    file_map_close(&file);
}

/* ---- tests ----------------------------------------------------------------------------------- */

enum { N = 3, SIDE = 20 };

/* A model with random weights and non-trivial statistics. */
static conr_model *model_of(encoder_kind encoder, stem_kind stem, int channels) {
    conr_model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    network_spec s = {.encoder = encoder,
                      .stem = stem,
                      .width = 4,
                      .h = SIDE,
                      .w = SIDE,
                      .c = channels,
                      .projector = mlp_byol_projector(10, 6)};
    assert_ok(network_new(&s, &m->net));
    m->w = calloc(m->net.n_weights, sizeof *m->w);
    m->running = calloc(m->net.n_running + 1, sizeof *m->running);
    assert_true(m->w && m->running);
    network_init(&m->net, 7, m->w, m->running);
    for (int l = 0; l < m->net.n_layers; l++)
        for (int c = 0; m->net.layer[l].norm && c < m->net.layer[l].co; c++) {
            const layer *x = &m->net.layer[l];
            m->w[x->gamma_at + c] = 0.6f + 0.1f * (float)(c % 7);
            m->w[x->beta_at + c] = 0.05f * (float)(c % 5 - 2);
            m->running[x->running_at + c] = 0.03f * (float)(c % 3 - 1);
            m->running[x->running_at + x->co + c] = 0.5f + 0.2f * (float)(c % 4);
        }
    for (int c = 0; c < 3; c++) m->norm.mean[c] = 0.4f + 0.05f * (float)c;
    for (int c = 0; c < 3; c++) m->norm.deviation[c] = 0.2f + 0.03f * (float)c;
    return m;
}

static void the_file_gives_our_features(encoder_kind encoder, stem_kind stem, int channels) {
    char head[129], shape[32];
    unsigned char pixels[10 + 118 + N * SIDE * SIDE * 3];
    static float images[N * SIDE * SIDE * 3];
    static graph g;
    conr *c;
    conr_images *m;
    conr_images_options o = conr_images_defaults();
    conr_model *model = model_of(encoder, stem, channels);
    float *x;
    int64_t n, d;
    snprintf(shape, sizeof shape, channels == 3 ? "%d, %d, %d, 3" : "%d, %d, %d", N, SIDE, SIDE);
    snprintf(head, sizeof head, "{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }", shape);
    memcpy(pixels, "\x93NUMPY\x01\x00v\x00", 10);
    int used = snprintf((char *)pixels + 10, 119, "%-117s\n", head);
    assert_int_equal(used, 118);
    for (int i = 0; i < N * SIDE * SIDE * channels; i++)
        pixels[128 + i] = (unsigned char)(i * 37 + i / 61 * 11 + i / (SIDE * SIDE * channels) * 50);
    for (int i = 0; i < N; i++)
        for (int p = 0; p < SIDE * SIDE; p++)
            for (int ch = 0; ch < channels; ch++)
                images[(i * channels + ch) * SIDE * SIDE + p] =
                    (float)pixels[128 + (i * SIDE * SIDE + p) * channels + ch] / 255;
    const char *src =
        temporary_file("images.npy", pixels, 128 + (size_t)(N * SIDE * SIDE * channels));
    assert_ok(conr_open("ref", 1, &c));
    assert_ok(conr_images_open(c, src, &o, NULL, NULL, &m));
    assert_ok(conr_embed(c, model, m, &x, &n, &d));
    assert_int_equal(d, 6);
    assert_ok(conr_export(model, "onnx", 0, temporary_path("model.onnx")));
    g.n = 0;
    run_file(temporary_path("model.onnx"), images, N, &g);
    const value *out = find(&g, "features"), *middle = find(&g, "encoder");
    assert_int_equal(out->dim[1], d);
    assert_int_equal(middle->dim[1], model->net.layer[model->net.encoder_end - 1].co);
    assert_close("features", out->x, x, (size_t)(n * d), 1e-5);
    /* rows must differ, or equality would prove nothing */
    assert_true(relative_error(x, x + d, (size_t)d) > 1e-3);
    for (int i = 0; i < g.n; i++) free(g.value[i].x), free(g.value[i].name);
    conr_free(x);
    conr_images_close(m);
    conr_model_close(model);
    conr_close(c);
}

static void a_small_encoder_runs(void **state) {
    (void)state;
    the_file_gives_our_features(ENCODER_SMALL, STEM_SMALL, 1);
}

static void resnets_run(void **state) {
    (void)state;
    the_file_gives_our_features(ENCODER_RESNET18, STEM_CIFAR, 3);
    the_file_gives_our_features(ENCODER_RESNET34, STEM_IMAGENET, 3);
    the_file_gives_our_features(ENCODER_RESNET50, STEM_CIFAR, 3);
    the_file_gives_our_features(ENCODER_RESNET101, STEM_IMAGENET, 3);
}

static void safetensors_have_torchvisions_names(void **state) {
    (void)state;
    tensors f;
    conr_model *m = model_of(ENCODER_RESNET18, STEM_CIFAR, 3);
    const char *path = temporary_path("plain.safetensors");
    assert_ok(conr_export(m, "safetensors", 0, path));
    assert_ok(tensors_open(path, &f));
    assert_int_equal(f.n, 120); /* as torchvision's resnet18 without fc */
    assert_non_null(tensors_find(&f, "layer4.1.bn2.num_batches_tracked"));
    assert_non_null(tensors_find(&f, "layer2.0.downsample.0.weight"));
    assert_null(tensors_find(&f, "projector.0.weight"));
    assert_string_equal(tensors_note(&f, "format"), "pt");
    assert_string_equal(tensors_note(&f, "stem"), "cifar");
    tensors_close(&f);
    /* reading it back gives the same weights */
    float *w = calloc(m->net.n_weights, sizeof *w),
          *running = calloc(m->net.n_running + 1, sizeof *running);
    int parts;
    assert_ok(conr_export(m, "safetensors", 1, path));
    assert_ok(network_load(&m->net, path, w, running, &parts));
    assert_int_equal(parts, PART_ENCODER | PART_PROJECTOR);
    assert_memory_equal(w, m->w, m->net.n_weights * sizeof *w);
    assert_memory_equal(running, m->running, m->net.n_running * sizeof *running);
    free(w), free(running);
    assert_fails(CONR_EINVAL, "no such format", conr_export(m, "caffe", 0, path));
    assert_fails(CONR_EFILE, "nowhere",
                 conr_export(m, "onnx", 0, temporary_path("nowhere/x.onnx")));
    conr_model_close(m);
}

/* A model that was saved is opened as the same network. */
static void saved_and_opened(void **state) {
    (void)state;
    conr_model *m = model_of(ENCODER_SMALL, STEM_SMALL, 3), *back;
    conr_model_info about;
    const char *path = temporary_path("model.safetensors");
    m->short_side = 24;
    snprintf(m->framework, sizeof m->framework, "moco");
    assert_ok(model_save(m, path));
    assert_ok(conr_model_open(NULL, path, &back));
    conr_model_about(back, &about);
    assert_string_equal(about.encoder, "small");
    assert_string_equal(about.framework, "moco");
    assert_string_equal(model_stem(back), "small");
    assert_int_equal(about.size, SIDE);
    assert_int_equal(about.channels, 3);
    assert_int_equal(about.features, 6);
    assert_int_equal(back->short_side, 24);
    assert_memory_equal(&back->norm, &m->norm, sizeof m->norm);
    assert_int_equal(back->net.n_weights, m->net.n_weights);
    assert_memory_equal(back->w, m->w, m->net.n_weights * sizeof *m->w);
    assert_memory_equal(back->running, m->running, m->net.n_running * sizeof *m->running);
    conr_model_close(m);
    conr_model_close(back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_encoder_runs),
        cmocka_unit_test(resnets_run),
        cmocka_unit_test(safetensors_have_torchvisions_names),
        cmocka_unit_test(saved_and_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
