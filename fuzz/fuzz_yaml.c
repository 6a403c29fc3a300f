/* fuzz_yaml.c: settings as in a recipe; what was read must survive being written and read again. */
#include "fuzz.h"

#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_OPTIONS(X, T)                                                                         \
    X(T, WORD, encoder, "resnet18", "resnet18|resnet34|small", "the network")                      \
    X(T, INT, size, 32, 16, 4096, "side of the input image, pixels")                               \
    X(T, FLOAT, lr, 0.05, 0, 100, "learning rate at its peak")                                     \
    X(T, BOOL, flip, true, "mirror images at random")                                              \
    X(T, TEXT, note, "", "free text, kept with the run")
typedef struct fuzz_options {
    OPTIONS_STRUCT(FUZZ_OPTIONS)
} fuzz_options;
static const option list[] = {OPTIONS_LIST(FUZZ_OPTIONS, fuzz_options)};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    fuzz_options a, b;
    char *text = NULL;
    size_t length = 0;
    options_default(OPTIONS_OF(list), &a);
    options_default(OPTIONS_OF(list), &b);
    if (options_read_yaml_text(OPTIONS_OF(list), &a, "fuzz", (const char *)bytes, n) < 0) return 0;
    FILE *f = open_memstream(&text, &length);
    if (!f) return 0;
    options_write_yaml(OPTIONS_OF(list), &a, f);
    fclose(f);
    if (options_read_yaml_text(OPTIONS_OF(list), &b, "again", text, length) < 0) abort();
    if (a.size != b.size || a.flip != b.flip || strcmp(a.note, b.note) || a.lr != b.lr) abort();
    free(text);
    return 0;
}
