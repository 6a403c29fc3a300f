/* fuzz_list.c: lists of paths and labels; the files themselves are not opened. */
#include "fuzz.h"

#include "images/source_forms.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    source s;
    if (source_new("folder/fuzz", &s) < 0) return 0;
    s.kind = SOURCE_LIST;
    if (list_add(&s, "folder/fuzz", bytes, n) == 0)
        for (int64_t i = 0; i < s.n; i++)
            if (source_label(&s, i) < -1 || source_label(&s, i) >= s.n_classes) abort();
    source_close(&s);
    return 0;
}
