/* onnx.c: the network as an ONNX graph, its protobuf written by hand.
 *
 * A protobuf message is a sequence of fields: a key (number * 8 + kind), then a varint (kind 0),
 * four bytes (kind 5) or a length and that many bytes (kind 2), which may be a message.  A message
 * is written into a buffer of its own and then copied into the enclosing one.  Field numbers are
 * those of onnx.proto.  Opset 13 (2020) has all that a ResNet needs, so old runtimes can read the
 * file.
 *
 *   images [N,c,h,w] in [0,1] -> (x - mean) / deviation -> Conv, BatchNormalization, Add, Relu,
 *   MaxPool, ... -> GlobalAveragePool, Flatten = encoder [N,e] -> Gemm, ... -> x / |x| = features
 */
#include "model/export.h"

#include "base/file.h"
#include "base/status.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 7, OPSET = 13 };

/* ---- protobuf -------------------------------------------------------------------------------- */

/* A message under construction.  Once memory runs out, `short_of` stays set and nothing is
 * added. */
typedef struct message {
    unsigned char *data; /* owned */
    size_t n, room;
    bool short_of;
} message;

static void put_bytes(message *m, const void *bytes, size_t n) {
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

static void put_varint(message *m, uint64_t value) {
    unsigned char byte[10];
    size_t n = 0;
    for (; value > 127; value >>= 7) byte[n++] = (unsigned char)(value | 128);
    byte[n++] = (unsigned char)value;
    put_bytes(m, byte, n);
}

static void put_int(message *m, int field, int64_t value) {
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, (uint64_t)value);
}

static void put_float(message *m, int field, float value) {
    put_varint(m, (uint64_t)field << 3 | 5);
    put_bytes(m, &value, sizeof value); /* little-endian, like every machine we run on */
}

static void put_block(message *m, int field, const void *bytes, size_t n) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    put_bytes(m, bytes, n);
}

static void put_text(message *m, int field, const char *text) {
    put_block(m, field, text, strlen(text));
}

/* Takes the contents of the inner message, which is empty afterwards. */
static void put_message(message *m, int field, message *inner) {
    m->short_of |= inner->short_of;
    put_block(m, field, inner->data, inner->n);
    free(inner->data);
    *inner = (message){0};
}

/* ---- onnx.proto ------------------------------------------------------------------------------ */

enum { FLOAT = 1 };                                                  /* TensorProto.DataType */
enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 }; /* AttributeProto's */
enum { GRAPH_NODE = 1, GRAPH_NAME, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT };

static void put_tensor(message *graph, const char *name, int n_dims, const int64_t *dim,
                       const float *data) {
    message t = {0};
    size_t count = 1;
    for (int i = 0; i < n_dims; i++) {
        put_int(&t, 1, dim[i]);
        count *= (size_t)dim[i];
    }
    put_int(&t, 2, FLOAT);
    put_text(&t, 8, name);
    put_block(&t, 9, data, count * sizeof *data);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

/* A node under construction: attributes may be added until it is put into the graph. */
static message node_new(const char *op, const char *out, const char *const *in, int n_in) {
    message node = {0};
    for (int i = 0; i < n_in; i++) put_text(&node, 1, in[i]);
    put_text(&node, 2, out);
    put_text(&node, 3, out);
    put_text(&node, 4, op);
    return node;
}

#define NODE(op, out, ...)                                                                         \
    node_new(op, out, (const char *const[]){__VA_ARGS__},                                          \
             (int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(const char *)))

static void add_ints(message *node, const char *name, int n, const int *value) {
    message a = {0};
    put_text(&a, 1, name);
    for (int i = 0; i < n; i++) put_int(&a, 8, value[i]);
    put_int(&a, 20, ATTRIBUTE_INTS);
    put_message(node, 5, &a);
}

static void add_int(message *node, const char *name, int value) {
    message a = {0};
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, ATTRIBUTE_INT);
    put_message(node, 5, &a);
}

static void add_float(message *node, const char *name, float value) {
    message a = {0};
    put_text(&a, 1, name);
    put_float(&a, 2, value);
    put_int(&a, 20, ATTRIBUTE_FLOAT);
    put_message(node, 5, &a);
}

static void add_window(message *node, int k, int stride, int pad) {
    add_ints(node, "kernel_shape", 2, (int[]){k, k});
    add_ints(node, "strides", 2, (int[]){stride, stride});
    add_ints(node, "pads", 4, (int[]){pad, pad, pad, pad});
}

/* The shape of an input or output of the graph; the first dimension is N, any number of images. */
static void put_value(message *graph, int field, const char *name, int n_dims, const int *dim) {
    message value = {0}, type = {0}, tensor = {0}, shape = {0};
    for (int i = -1; i < n_dims; i++) {
        message side = {0};
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
    put_message(graph, field, &value);
}

/* ---- the network ----------------------------------------------------------------------------- */

enum { VALUE = NETWORK_NAME + 16 }; /* the name of a value between nodes */

/* The name of the output of layer l. */
static const char *value_of(const network *net, int l, char out[VALUE]) {
    if (l < 0) return strcpy(out, "normalized");
    if (l == net->encoder_end - 1) return strcpy(out, "encoder");
    if (net->layer[l].kind == LAYER_MAX_POOL) return strcpy(out, "maxpool");
    snprintf(out, VALUE, "%s.out", net->layer[l].name);
    return out;
}

static void put_input_nodes(message *graph, const conr_model *m) {
    int c = m->net.spec.c;
    put_tensor(graph, "mean", 3, (int64_t[]){c, 1, 1}, m->norm.mean);
    put_tensor(graph, "deviation", 3, (int64_t[]){c, 1, 1}, m->norm.deviation);
    message centered = NODE("Sub", "centered", "images", "mean");
    message divided = NODE("Div", "normalized", "centered", "deviation");
    put_message(graph, GRAPH_NODE, &centered);
    put_message(graph, GRAPH_NODE, &divided);
}

/* Convolution (or Gemm), norm, sum and ReLU; the output of the last one present has the layer's
 * name. */
static void put_conv(message *graph, const network *net, int l) {
    const layer *x = &net->layer[l];
    char in[VALUE], add[VALUE], out[VALUE], weight[VALUE], bias[VALUE], part[3][VALUE];
    char norm[4][VALUE];
    static const char *const fields[] = {"weight", "bias", "running_mean", "running_var"};
    bool adds = x->add >= 0;
    const char *now;
    value_of(net, x->in, in);
    value_of(net, l, out);
    snprintf(weight, VALUE, "%s.weight", x->name);
    snprintf(bias, VALUE, "%s.bias", x->name);
    snprintf(part[0], VALUE, "%s.conv", x->name);
    snprintf(part[1], VALUE, "%s.norm", x->name);
    snprintf(part[2], VALUE, "%s.sum", x->name);

    now = x->norm || adds || x->relu ? part[0] : out;
    const char *inputs[] = {in, weight, bias};
    bool dense = l >= net->encoder_end;
    message node = node_new(dense ? "Gemm" : "Conv", now, inputs, x->bias ? 3 : 2);
    if (dense)
        add_int(&node, "transB", 1);
    else
        add_window(&node, x->k, x->stride, x->pad);
    put_message(graph, GRAPH_NODE, &node);
    if (x->norm) {
        const char *given[5] = {now};
        for (int i = 0; i < 4; i++) {
            snprintf(norm[i], VALUE, "%s.%s", x->norm_name, fields[i]);
            given[i + 1] = norm[i];
        }
        now = adds || x->relu ? part[1] : out;
        node = node_new("BatchNormalization", now, given, 5);
        add_float(&node, "epsilon", (float)NORM_EPS);
        put_message(graph, GRAPH_NODE, &node);
    }
    if (adds) {
        const char *to = x->relu ? part[2] : out;
        node = NODE("Add", to, now, value_of(net, x->add, add));
        put_message(graph, GRAPH_NODE, &node);
        now = to;
    }
    if (x->relu) {
        node = NODE("Relu", out, now);
        put_message(graph, GRAPH_NODE, &node);
    }
}

static void put_pool(message *graph, const network *net, int l) {
    char in[VALUE], out[VALUE];
    value_of(net, net->layer[l].in, in);
    value_of(net, l, out);
    if (net->layer[l].kind == LAYER_MAX_POOL) {
        message node = NODE("MaxPool", out, in);
        add_window(&node, 3, 2, 1);
        put_message(graph, GRAPH_NODE, &node);
        return;
    }
    message mean = NODE("GlobalAveragePool", "avgpool", in);
    message flat = NODE("Flatten", out, "avgpool");
    put_message(graph, GRAPH_NODE, &mean);
    put_message(graph, GRAPH_NODE, &flat);
}

/* features = x / |x|; a row of zeros stays zero. */
static void put_output_nodes(message *graph, const network *net) {
    char in[VALUE];
    const float least = 1e-30f;
    put_tensor(graph, "least_length", 0, NULL, &least);
    value_of(net, net->projector_end - 1, in);
    message length = NODE("ReduceL2", "length", in);
    add_ints(&length, "axes", 1, (int[]){1});
    add_int(&length, "keepdims", 1);
    message positive = NODE("Max", "positive_length", "length", "least_length");
    message unit = NODE("Div", "features", in, "positive_length");
    put_message(graph, GRAPH_NODE, &length);
    put_message(graph, GRAPH_NODE, &positive);
    put_message(graph, GRAPH_NODE, &unit);
}

static int put_weights(message *graph, const conr_model *m) {
    int rc = 0, n;
    arena memory = {0};
    tensor *list;
    TRY(network_tensors(&m->net, PART_ENCODER | PART_PROJECTOR, m->w, m->running, &memory, &list,
                        &n));
    for (int i = 0; i < n; i++)
        if (list[i].type == TENSOR_F32)
            put_tensor(graph, list[i].name, list[i].n_dims, list[i].dim, list[i].data);
done:
    arena_free(&memory);
    return rc;
}

static void put_note(message *model, const char *key, const char *value) {
    message note = {0};
    put_text(&note, 1, key);
    put_text(&note, 2, value);
    put_message(model, 14, &note);
}

static int put_graph(message *graph, const conr_model *m) {
    const network *net = &m->net;
    const network_spec *s = &net->spec;
    int rc = 0, last = net->projector_end - 1;
    put_text(graph, GRAPH_NAME, "conr");
    put_input_nodes(graph, m);
    for (int l = 0; l < net->projector_end; l++) {
        if (net->layer[l].kind == LAYER_CONV)
            put_conv(graph, net, l);
        else
            put_pool(graph, net, l);
    }
    put_output_nodes(graph, net);
    TRY(put_weights(graph, m));
    put_value(graph, GRAPH_INPUT, "images", 3, (int[]){s->c, s->h, s->w});
    put_value(graph, GRAPH_OUTPUT, "features", 1, &net->layer[last].co);
    put_value(graph, GRAPH_OUTPUT, "encoder", 1, &net->layer[net->encoder_end - 1].co);
done:
    return rc;
}

int export_onnx(const conr_model *m, const char *path) {
    int rc = 0;
    message model = {0}, graph = {0}, opset = {0};
    conr_model_info about;
    file_new f = {0};
    conr_model_about(m, &about);
    if (4.0 * (double)m->net.n_target > 2e9) /* protobuf's own limit */
        return fail(CONR_EINVAL,
                    "%s: the network has %.1f GB, the limit of ONNX is 2; export it as safetensors",
                    path, 4e-9 * (double)m->net.n_target);
    put_int(&model, 1, IR_VERSION);
    put_text(&model, 2, "conr");
    put_text(&model, 3, CONR_VERSION);
    TRY(put_graph(&graph, m));
    put_message(&model, 7, &graph);
    put_text(&opset, 1, "");
    put_int(&opset, 2, OPSET);
    put_message(&model, 8, &opset);
    put_note(&model, "encoder", about.encoder);
    put_note(&model, "stem", model_stem(m));
    put_note(&model, "framework", about.framework);
    TRY(model.short_of ? fail_memory("ONNX", 12.0 * (double)m->net.n_target) : 0);
    TRY(file_new_open(&f, path));
    fwrite(model.data, 1, model.n, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    free(graph.data);
    free(opset.data);
    free(model.data);
    return rc;
}
