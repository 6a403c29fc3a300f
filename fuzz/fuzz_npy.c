/* fuzz_npy.c: .npy files, as arrays and as images. */
#include "fuzz.h"

#include "base/npy.h"
#include "images/source_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    npy a;
    source s;
    image m = {0};
    if (npy_parse("fuzz", bytes, n, &a) == 0) npy_free(&a);
    if (source_new("fuzz", &s) < 0) return 0;
    if (npy_parse_images(&s, "fuzz", bytes, n) == 0)
        for (int64_t i = 0; i < s.n && i < 64; i++) source_read(&s, i, 3, 0, &m);
    image_free(&m);
    source_close(&s);
    return 0;
}
