/* onnx.c: ONNX files, their protobuf written by hand.
 *
 * A protobuf message is a sequence of fields: a key (number * 8 + kind), then a varint (kind 0),
 * four bytes (kind 5) or a length and that many bytes (kind 2), which may be a message.  A message
 * is written into a buffer of its own and then copied into the enclosing one.  Only the constants
 * are not: their lengths are known, so they go from where they are to the file.  Field numbers are
 * those of onnx.proto. */
#include "onnx/onnx.h"

#include "base/file.h"
#include "base/status.h"
#include "conr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf -------------------------------------------------------------------------------- */

static void put_bytes(onnx_message *m, const void *bytes, size_t n) {
    if (m->n + n > m->room && !m->short_of) {
        size_t room = 2 * m->room > m->n + n ? 2 * m->room : m->n + n + 64;
        unsigned char *more = realloc(m->data, room);
        m->short_of = !more;
        if (more) m->data = more, m->room = room;
    }
    if (m->short_of || n == 0) return;
    memcpy(m->data + m->n, bytes, n);
    m->n += n;
}

static void put_varint(onnx_message *m, uint64_t value) {
    unsigned char byte[10];
    size_t n = 0;
    for (; value > 127; value >>= 7) byte[n++] = (unsigned char)(value | 128);
    byte[n++] = (unsigned char)value;
    put_bytes(m, byte, n);
}

static void put_int(onnx_message *m, int field, int64_t value) {
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, (uint64_t)value);
}

static void put_float(onnx_message *m, int field, float value) {
    put_varint(m, (uint64_t)field << 3 | 5);
    put_bytes(m, &value, sizeof value); /* little-endian, like every machine we run on */
}

static void put_block(onnx_message *m, int field, const void *bytes, size_t n) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    put_bytes(m, bytes, n);
}

static void put_text(onnx_message *m, int field, const char *text) {
    put_block(m, field, text, strlen(text));
}

/* Takes the contents of the inner message, which is empty afterwards. */
static void put_message(onnx_message *m, int field, onnx_message *inner) {
    m->short_of |= inner->short_of;
    put_block(m, field, inner->data, inner->n);
    free(inner->data);
    *inner = (onnx_message){0};
}

/* ---- onnx.proto ------------------------------------------------------------------------------ */

enum { FLOAT = 1, INT64 = 7 };                                       /* TensorProto.DataType */
enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 }; /* AttributeProto's */
enum { GRAPH_NODE = 1, GRAPH_NAME, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT };

/* Dimensions, type and name, and what comes before `bytes` bytes of numbers. */
static onnx_message tensor_head(const char *name, int type, int n_dims, const int64_t *dim,
                                size_t bytes) {
    onnx_message t = {0};
    for (int i = 0; i < n_dims; i++) put_int(&t, 1, dim[i]);
    put_int(&t, 2, type);
    put_text(&t, 8, name);
    put_varint(&t, 9 << 3 | 2);
    put_varint(&t, bytes);
    return t;
}

void onnx_tensor(onnx_graph *g, const char *name, int n_dims, const int64_t *dim,
                 const float *data) {
    size_t bytes = sizeof *data;
    for (int i = 0; i < n_dims; i++) bytes *= (size_t)dim[i];
    onnx_constant *more = realloc(g->constant, ((size_t)g->n_constants + 1) * sizeof *g->constant);
    g->body.short_of |= !more;
    if (!more) return;
    g->constant = more;
    g->constant[g->n_constants++] = (onnx_constant){
        .head = tensor_head(name, FLOAT, n_dims, dim, bytes), .data = data, .bytes = bytes};
}

static void put_small(onnx_graph *g, const char *name, int type, int n_dims, int64_t n,
                      const void *data, size_t bytes) {
    onnx_message t = tensor_head(name, type, n_dims, &n, bytes);
    put_bytes(&t, data, bytes);
    put_message(&g->body, GRAPH_INITIALIZER, &t);
}

void onnx_number(onnx_graph *g, const char *name, float value) {
    put_small(g, name, FLOAT, 0, 1, &value, sizeof value);
}

void onnx_list(onnx_graph *g, const char *name, int n, const int64_t *value) {
    put_small(g, name, INT64, 1, n, value, (size_t)n * sizeof *value);
}

void onnx_index(onnx_graph *g, const char *name, int64_t value) {
    put_small(g, name, INT64, 0, 1, &value, sizeof value);
}

onnx_message onnx_node(const char *op, const char *out, const char *const *in, int n_in) {
    onnx_message node = {0};
    for (int i = 0; i < n_in; i++) put_text(&node, 1, in[i]);
    put_text(&node, 2, out);
    put_text(&node, 3, out);
    put_text(&node, 4, op);
    return node;
}

void onnx_put(onnx_graph *g, onnx_message *node) { put_message(&g->body, GRAPH_NODE, node); }

void onnx_add_ints(onnx_message *node, const char *name, int n, const int *value) {
    onnx_message a = {0};
    put_text(&a, 1, name);
    for (int i = 0; i < n; i++) put_int(&a, 8, value[i]);
    put_int(&a, 20, ATTRIBUTE_INTS);
    put_message(node, 5, &a);
}

void onnx_add_int(onnx_message *node, const char *name, int value) {
    onnx_message a = {0};
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, ATTRIBUTE_INT);
    put_message(node, 5, &a);
}

void onnx_add_float(onnx_message *node, const char *name, float value) {
    onnx_message a = {0};
    put_text(&a, 1, name);
    put_float(&a, 2, value);
    put_int(&a, 20, ATTRIBUTE_FLOAT);
    put_message(node, 5, &a);
}

void onnx_add_window(onnx_message *node, int k, int stride, int pad) {
    onnx_add_ints(node, "kernel_shape", 2, (int[]){k, k});
    onnx_add_ints(node, "strides", 2, (int[]){stride, stride});
    onnx_add_ints(node, "pads", 4, (int[]){pad, pad, pad, pad});
}

/* The shape of an input or output of the graph; the first dimension is N, any number of images. */
static void put_value(onnx_graph *g, int field, const char *name, int n_dims, const int *dim) {
    onnx_message value = {0}, type = {0}, tensor = {0}, shape = {0};
    for (int i = -1; i < n_dims; i++) {
        onnx_message side = {0};
        if (i < 0)
            put_text(&side, 2, "N");
        else
            put_int(&side, 1, dim[i]);
        put_message(&shape, 1, &side);
    }
    put_int(&tensor, 1, FLOAT);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(&g->body, field, &value);
}

/* ---- the ends of a graph ----------------------------------------------------------------------- */

void onnx_images(onnx_graph *g, int c, int size, const float *mean, const float *deviation) {
    onnx_tensor(g, "mean", 3, (int64_t[]){c, 1, 1}, mean);
    onnx_tensor(g, "deviation", 3, (int64_t[]){c, 1, 1}, deviation);
    onnx_message centered = ONNX_NODE("Sub", "centered", "images", "mean");
    onnx_message divided = ONNX_NODE("Div", "normalized", "centered", "deviation");
    onnx_put(g, &centered);
    onnx_put(g, &divided);
    put_value(g, GRAPH_INPUT, "images", 3, (int[]){c, size, size});
}

/* features = x / |x|; a row of zeros stays zero. */
void onnx_features(onnx_graph *g, const char *in, int d, int e) {
    onnx_number(g, "least_length", 1e-30f);
    onnx_message length = ONNX_NODE("ReduceL2", "length", in);
    onnx_add_ints(&length, "axes", 1, (int[]){1});
    onnx_add_int(&length, "keepdims", 1);
    onnx_message positive = ONNX_NODE("Max", "positive_length", "length", "least_length");
    onnx_message unit = ONNX_NODE("Div", "features", in, "positive_length");
    onnx_put(g, &length);
    onnx_put(g, &positive);
    onnx_put(g, &unit);
    put_value(g, GRAPH_OUTPUT, "features", 1, &d);
    put_value(g, GRAPH_OUTPUT, "encoder", 1, &e);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The key and length of a field of `n` bytes. */
static void put_key(onnx_message *m, int field, size_t n) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
}

static void put_note(onnx_message *model, const tensor_note *n) {
    onnx_message note = {0};
    put_text(&note, 1, n->key);
    put_text(&note, 2, n->value);
    put_message(model, 14, &note);
}

/* All but the graph. */
static onnx_message model_head(int opset, const tensor_note *note, int n_notes) {
    onnx_message m = {0}, set = {0};
    put_int(&m, 1, opset >= 15 ? 8 : 7); /* the version of the format that came with the opset */
    put_text(&m, 2, "conr");
    put_text(&m, 3, CONR_VERSION);
    put_text(&set, 1, "");
    put_int(&set, 2, opset);
    put_message(&m, 8, &set);
    for (int i = 0; i < n_notes; i++) put_note(&m, &note[i]);
    return m;
}

int onnx_write(const onnx_graph *g, int opset, const tensor_note *note, int n_notes,
               const char *path) {
    int rc = 0;
    file_new f = {0};
    onnx_message model = model_head(opset, note, n_notes), name = {0}, *key = NULL;
    bool short_of = g->body.short_of;
    size_t inside = g->body.n;
    put_text(&name, GRAPH_NAME, "conr");
    inside += name.n;
    key = calloc((size_t)g->n_constants + 1, sizeof *key);
    TRY(key ? 0 : fail_memory("ONNX", (double)g->n_constants * sizeof *key));
    for (int i = 0; i < g->n_constants; i++) {
        const onnx_constant *t = &g->constant[i];
        put_key(&key[i], GRAPH_INITIALIZER, t->head.n + t->bytes);
        inside += key[i].n + t->head.n + t->bytes;
        short_of |= key[i].short_of || t->head.short_of;
    }
    put_key(&model, 7, inside);
    if (short_of || model.short_of || name.short_of)
        TRY(fail_memory("ONNX", (double)(g->body.n + model.n)));
    if (inside > 2000000000) /* protobuf's own limit, about */
        TRY(fail(CONR_EINVAL,
                 "%s: the network has %.1f GB, the limit of ONNX is 2; use it as safetensors", path,
                 1e-9 * (double)inside));
    TRY(file_new_open(&f, path));
    fwrite(model.data, 1, model.n, f.stream);
    fwrite(name.data, 1, name.n, f.stream);
    fwrite(g->body.data, 1, g->body.n, f.stream);
    for (int i = 0; i < g->n_constants; i++) {
        const onnx_constant *t = &g->constant[i];
        fwrite(key[i].data, 1, key[i].n, f.stream);
        fwrite(t->head.data, 1, t->head.n, f.stream);
        fwrite(t->data, 1, t->bytes, f.stream);
    }
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    for (int i = 0; key && i < g->n_constants; i++) free(key[i].data);
    free(key), free(model.data), free(name.data);
    return rc;
}

void onnx_free(onnx_graph *g) {
    for (int i = 0; i < g->n_constants; i++) free(g->constant[i].head.data);
    free(g->constant), free(g->body.data);
    *g = (onnx_graph){0};
}
