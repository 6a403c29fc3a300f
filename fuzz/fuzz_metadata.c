/* fuzz_metadata.c: metadata.csv and metadata.jsonl beside two images that are never opened. */
#include "fuzz.h"

#include "images/source_forms.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *path = n && *bytes == '{' ? "folder/metadata.jsonl" : "folder/metadata.csv";
    source s;
    if (source_new("folder", &s) < 0) return 0;
    if (source_add_item(&s, "folder/1.png", "folder/1.png", -1) == 0 &&
        source_add_item(&s, "folder/a/2.png", "folder/a/2.png", -1) == 0 &&
        metadata_parse(&s, path, bytes, n) == 0 && source_sort_classes(&s) == 0)
        for (int64_t i = 0; i < s.n; i++)
            if (source_label(&s, i) < -1 || source_label(&s, i) >= s.n_classes) abort();
    source_close(&s);
    return 0;
}
