/* fuzz_cifar.c: CIFAR records.  The first byte chooses between CIFAR-10, CIFAR-100 fine and coarse.
 * */
#include "fuzz.h"

#include "images/source_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const int forms[3][3] = {{1, 0, 10}, {2, 1, 100}, {2, 0, 20}};
    source s;
    image m = {0};
    if (n < 1 || source_new("fuzz", &s) < 0) return 0;
    const int *f = forms[bytes[0] % 3];
    source_bytes b = {.path = "fuzz", .in_memory = bytes + 1, .n = n - 1};
    if (cifar_parse(&s, &b, f[0], f[1], f[2]) == 0)
        for (int64_t i = 0; i < s.n; i++) source_read(&s, i, 3, 0, &m);
    image_free(&m);
    source_close(&s);
    return 0;
}
