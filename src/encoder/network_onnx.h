/* network_onnx.h: a network as a part of an ONNX graph. */
#ifndef CONR_NETWORK_ONNX_H
#define CONR_NETWORK_ONNX_H

#include "encoder/network.h"
#include "onnx/onnx.h"

enum {
    NETWORK_OPSET = 13 /* of 2020: all that a ResNet needs, so old runtimes can read the file */
};

/* Encoder and projector, from `normalized` to the outputs `features` and `encoder`.  The blocks, and
 * what is allocated from memory, must live until the graph is written. */
int network_onnx(const network *net, const float *w, const float *running, arena *memory,
                 onnx_graph *graph);

#endif
