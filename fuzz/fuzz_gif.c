/* fuzz_gif.c: GIF files, through decode.h. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    fuzz_image(bytes, n);
    return 0;
}
