/* fuzz_stl.c: STL-10 images and labels.  The first byte is the number of labels that follow
 * (255: unlabeled). */
#include "fuzz.h"

#include "images/source_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    source s;
    image m = {0};
    if (n < 1 || source_new("fuzz", &s) < 0) return 0;
    size_t labels = bytes[0] == 255 ? 0 : bytes[0];
    source_bytes x = {.path = "fuzz", .in_memory = bytes + 1 + labels, .n = n - 1 - labels};
    if (labels <= n - 1 && stl_parse(&s, &x, bytes[0] == 255 ? NULL : bytes + 1, labels) == 0)
        for (int64_t i = 0; i < s.n; i++) source_read(&s, i, 3, 0, &m);
    image_free(&m);
    source_close(&s);
    return 0;
}
