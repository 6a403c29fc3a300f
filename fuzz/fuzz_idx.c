/* fuzz_idx.c: IDX files, gzipped or not.  The first two bytes are the length of the labels file
 * that follows; the rest is the images file. */
#include "fuzz.h"

#include "images/source_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    source s;
    image m = {0};
    if (n < 2 || source_new("fuzz", &s) < 0) return 0;
    size_t labels = (size_t)bytes[0] << 8 | bytes[1];
    if (labels > n - 2) labels = 0;
    source_bytes x = {.path = "fuzz", .in_memory = bytes + 2 + labels, .n = n - 2 - labels};
    source_bytes y = {.path = "labels", .in_memory = bytes + 2, .n = labels};
    if (idx_parse(&s, &x, labels ? &y : NULL) == 0)
        for (int64_t i = 0; i < s.n && i < 64; i++) source_read(&s, i, 1, 0, &m);
    image_free(&m);
    source_close(&s);
    return 0;
}
