/* fuzz_resnet.c: safetensors files that may hold a ResNet: which one, and its weights. */
#include "fuzz.h"

#include "encoder/resnet.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tensors t;
    resnet_about about;
    network net = {0};
    if (tensors_parse("fuzz", bytes, n, &t) < 0) return 0;
    if (resnet_recognize(&t, &about) == 1 && about.width <= 8) { /* wider ones need more tensors */
        network_spec spec = resnet_spec(&about, 32);
        if (network_new(&spec, &net) == 0) {
            float *w = calloc(net.n_weights, sizeof *w),
                  *running = calloc(net.n_running, sizeof *w);
            if (w && running) network_take(&net, &t, w, running);
            free(w), free(running);
        }
        network_free(&net);
    }
    tensors_close(&t);
    return 0;
}
