/* onnx.h: writes ONNX files: a graph of nodes, its constants, its inputs and outputs.
 *
 *     onnx_graph g = {0};
 *     onnx_images(&g, 3, 224, mean, deviation);              images -> normalized
 *     onnx_tensor(&g, "weight", 2, (int64_t[]){10, 20}, w);
 *     onnx_message node = ONNX_NODE("Gemm", "encoder", "rows", "weight");
 *     onnx_add_int(&node, "transB", 1);
 *     onnx_put(&g, &node);
 *     onnx_features(&g, "encoder", 10, 10);                  encoder -> features, unit rows
 *     TRY(onnx_write(&g, 13, notes, n_notes, path));
 *     onnx_free(&g);                                         in any case
 *
 * Once memory runs out nothing more is added, and onnx_write fails. */
#ifndef CONR_ONNX_H
#define CONR_ONNX_H

#include "base/tensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message of protobuf under construction. */
typedef struct onnx_message {
    unsigned char *data; /* owned */
    size_t n, room;
    bool short_of; /* of memory */
} onnx_message;

/* A constant: what stands before its numbers, and the numbers. */
typedef struct onnx_constant {
    onnx_message head; /* dimensions, type, name, and the key and length of the numbers */
    const float *data; /* of the caller */
    size_t bytes;
} onnx_constant;

typedef struct onnx_graph {
    onnx_message body;       /* all but the large constants */
    onnx_constant *constant; /* owned */
    int n_constants;
} onnx_graph;

/* The numbers are not copied: they must live until onnx_write has returned. */
void onnx_tensor(onnx_graph *g, const char *name, int n_dims, const int64_t *dim,
                 const float *data);
/* Small constants, copied: a number; a list of whole ones; an index without dimensions. */
void onnx_number(onnx_graph *g, const char *name, float value);
void onnx_list(onnx_graph *g, const char *name, int n, const int64_t *value);
void onnx_index(onnx_graph *g, const char *name, int64_t value);

/* A node with one output.  Attributes may be added until it is put into the graph, which takes
 * it. */
onnx_message onnx_node(const char *op, const char *out, const char *const *in, int n_in);
#define ONNX_NODE(op, out, ...)                                                                    \
    onnx_node(op, out, (const char *const[]){__VA_ARGS__},                                         \
              (int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(const char *)))
void onnx_add_ints(onnx_message *node, const char *name, int n, const int *value);
void onnx_add_int(onnx_message *node, const char *name, int value);
void onnx_add_float(onnx_message *node, const char *name, float value);
/* Of a convolution or a pool: k x k pixels. */
void onnx_add_window(onnx_message *node, int k, int stride, int pad);
void onnx_put(onnx_graph *g, onnx_message *node);

/* The input `images` [N,c,size,size] with values in [0,1], and from it `normalized`.  mean and
 * deviation [c] must live as long as a tensor's numbers. */
void onnx_images(onnx_graph *g, int c, int size, const float *mean, const float *deviation);
/* The outputs: `features` [N,d], the rows of the value `in` with length 1, and `encoder` [N,e],
 * which a node has made. */
void onnx_features(onnx_graph *g, const char *in, int d, int e);

/* Writes the file.  Fails if the graph has more than the 2 GB that a protobuf may have. */
int onnx_write(const onnx_graph *g, int opset, const tensor_note *note, int n_notes,
               const char *path);
void onnx_free(onnx_graph *g);

#endif
