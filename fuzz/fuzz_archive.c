/* fuzz_archive.c: archives, as files: their lists, labels and the bytes of their images. */
#include "fuzz.h"

#include "images/source_forms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static char path[64];
    const char *const paths[] = {path};
    source_options o = {.threads = 1};
    source s;
    if (!*path) snprintf(path, sizeof path, "/tmp/fuzz-archive-%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
    if (source_new(path, &s) == 0 && archives_add(&s, &o, paths, 1) == 0)
        for (int64_t i = 0; i < s.n; i++) {
            file_bytes one = {0};
            if (source_label(&s, i) < -1 || source_label(&s, i) >= s.n_classes) abort();
            if (source_item_bytes(&s.item[i], 1 << 16, &one) == 0 && one.n > one.size) abort();
            file_bytes_free(&one);
        }
    source_close(&s);
    unlink(path);
    return 0;
}
