/* fuzz_tensors.c: safetensors files; every tensor is read as floats. */
#include "fuzz.h"

#include "base/tensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tensors t;
    if (tensors_parse("fuzz", bytes, n, &t) < 0) return 0;
    for (int i = 0; i < t.n; i++) {
        float *out = malloc((t.tensor[i].count + 1) * sizeof *out);
        if (out) tensors_floats(&t, &t.tensor[i], out);
        free(out);
    }
    tensors_close(&t);
    return 0;
}
