/* onnx.c: a trained network as an ONNX graph.
 *
 *   images [N,c,h,w] in [0,1] -> (x - mean) / deviation -> the network = encoder [N,e] -> the
 *   projector, x / |x| = features */
#include "model/export.h"

#include "base/status.h"
#include "encoder/network_onnx.h"

int export_onnx(const conr_model *m, const char *path) {
    int rc = 0;
    onnx_graph graph = {0};
    arena memory = {0};
    conr_model_info about;
    conr_model_about(m, &about);
    const tensor_note note[] = {
        {"encoder", about.encoder}, {"stem", model_stem(m)}, {"framework", about.framework}};
    onnx_images(&graph, m->net.spec.c, m->net.spec.h, m->norm.mean, m->norm.deviation);
    TRY(network_onnx(&m->net, m->w, m->running, &memory, &graph));
    TRY(onnx_write(&graph, NETWORK_OPSET, note, sizeof note / sizeof *note, path));
done:
    onnx_free(&graph);
    arena_free(&memory);
    return rc;
}
