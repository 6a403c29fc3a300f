/* network_onnx.c: a network as a part of an ONNX graph: Conv, BatchNormalization, Add, Relu, MaxPool,
 * ..., GlobalAveragePool and Flatten for the encoder, Gemm for the heads. */
#include "encoder/network_onnx.h"

#include "base/status.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

enum { VALUE = NETWORK_NAME + 16 }; /* the name of a value between nodes */

/* The name of the output of layer l. */
static const char *value_of(const network *net, int l, char out[VALUE]) {
    if (l < 0) return strcpy(out, "normalized");
    if (l == net->encoder_end - 1) return strcpy(out, "encoder");
    if (net->layer[l].kind == LAYER_MAX_POOL) return strcpy(out, "maxpool");
    snprintf(out, VALUE, "%s.out", net->layer[l].name);
    return out;
}

/* Convolution (or Gemm), norm, sum and ReLU; the output of the last one present has the layer's
 * name. */
static void put_conv(onnx_graph *graph, const network *net, int l) {
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
    onnx_message node = onnx_node(dense ? "Gemm" : "Conv", now, inputs, x->bias ? 3 : 2);
    if (dense)
        onnx_add_int(&node, "transB", 1);
    else
        onnx_add_window(&node, x->k, x->stride, x->pad);
    onnx_put(graph, &node);
    if (x->norm) {
        const char *given[5] = {now};
        for (int i = 0; i < 4; i++) {
            snprintf(norm[i], VALUE, "%s.%s", x->norm_name, fields[i]);
            given[i + 1] = norm[i];
        }
        now = adds || x->relu ? part[1] : out;
        node = onnx_node("BatchNormalization", now, given, 5);
        onnx_add_float(&node, "epsilon", (float)NORM_EPS);
        onnx_put(graph, &node);
    }
    if (adds) {
        const char *to = x->relu ? part[2] : out;
        node = ONNX_NODE("Add", to, now, value_of(net, x->add, add));
        onnx_put(graph, &node);
        now = to;
    }
    if (x->relu) {
        node = ONNX_NODE("Relu", out, now);
        onnx_put(graph, &node);
    }
}

static void put_pool(onnx_graph *graph, const network *net, int l) {
    char in[VALUE], out[VALUE];
    value_of(net, net->layer[l].in, in);
    value_of(net, l, out);
    if (net->layer[l].kind == LAYER_MAX_POOL) {
        onnx_message node = ONNX_NODE("MaxPool", out, in);
        onnx_add_window(&node, 3, 2, 1);
        onnx_put(graph, &node);
        return;
    }
    onnx_message mean = ONNX_NODE("GlobalAveragePool", "avgpool", in);
    onnx_message flat = ONNX_NODE("Flatten", out, "avgpool");
    onnx_put(graph, &mean);
    onnx_put(graph, &flat);
}

int network_onnx(const network *net, const float *w, const float *running, arena *memory,
                 onnx_graph *graph) {
    int rc = 0, n;
    char last[VALUE];
    tensor *list;
    for (int l = 0; l < net->projector_end; l++) {
        if (net->layer[l].kind == LAYER_CONV)
            put_conv(graph, net, l);
        else
            put_pool(graph, net, l);
    }
    value_of(net, net->projector_end - 1, last);
    onnx_features(graph, last, net->layer[net->projector_end - 1].co,
                  net->layer[net->encoder_end - 1].co);
    TRY(network_tensors(net, PART_ENCODER | PART_PROJECTOR, w, running, memory, &list, &n));
    for (int i = 0; i < n; i++)
        if (list[i].type == TENSOR_F32)
            onnx_tensor(graph, list[i].name, list[i].n_dims, list[i].dim, list[i].data);
done:
    return rc;
}
