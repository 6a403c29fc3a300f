/* fuzz_encoder.c: pretrained networks: recognized, loaded on ref, and run on a black image. */
#include "fuzz.h"

#include "base/tensors.h"
#include "device/device.h"
#include "pretrained/family.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static device dev = {
        .name = "ref", .act_size = sizeof(float), .threads = 1, .host_memory = true};
    encoder_settings set;
    encoder_about about;
    const family *k;
    tensors f;
    void *net;
    if (!dev.op.alloc) device_ref_ops(&dev.op);
    if (tensors_parse("fuzz", bytes, n, &f) < 0) return 0;
    settings_parse(NULL, &set);
    if (family_find(&f, &set, &k, &about) == 0 && k->open(&dev, &f, &set, 1, &net) == 0) {
        size_t values = k->values(net);
        float *image = calloc(values, sizeof *image);
        float *out = malloc((size_t)about.features * sizeof *out);
        if (image && out && about.prepare.size <= 64) k->encode(net, image, 1, out);
        free(image), free(out);
        k->close(net);
    }
    tensors_close(&f);
    return 0;
}
