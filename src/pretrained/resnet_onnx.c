/* resnet_onnx.c: a ResNet from a file as an ONNX graph, the same as that of a trained one. */
#include "pretrained/export.h"

#include "base/memory.h"
#include "base/status.h"
#include "encoder/network_onnx.h"
#include "encoder/resnet.h"

#include <stdlib.h>

int resnet_onnx(device *host, const tensors *f, const encoder_settings *set,
                const tensor_note *note, int n_notes, const char *path) {
    int rc = 0;
    arena memory = {0};
    onnx_graph graph = {0};
    network net = {0};
    encoder_about about;
    resnet_about which;
    float *w = NULL, *running = NULL;
    (void)host; /* the weights of a network are in the caller's memory */
    TRY(family_resnet.recognize(f, set, &about));
    TRY(resnet_recognize(f, &which));
    network_spec spec = resnet_spec(&which, about.prepare.size);
    TRY(network_new(&spec, &net));
    w = memory_new(path, net.n_weights, sizeof *w);
    running = memory_new(path, net.n_running, sizeof *running);
    TRY(w && running ? 0 : CONR_ENOMEM);
    TRY(network_take(&net, f, w, running));
    onnx_images(&graph, which.channels, spec.h, about.prepare.norm.mean,
                about.prepare.norm.deviation);
    TRY(network_onnx(&net, w, running, &memory, &graph));
    TRY(onnx_write(&graph, NETWORK_OPSET, note, n_notes, path));
done:
    onnx_free(&graph);
    arena_free(&memory);
    network_free(&net);
    free(w), free(running);
    return rc < 0 ? rc : 0;
}
