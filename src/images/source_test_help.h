/* source_test_help.h: makes files for the tests of sources, and looks at what was made of them. */
#ifndef CONR_SOURCE_TEST_HELP_H
#define CONR_SOURCE_TEST_HELP_H

#include "base/test_help.h"
#include "images/source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const source_options plain = {.threads = 2};

/* Makes the folders above a path in the temporary folder and returns it. */
static inline const char *place(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s", temporary_path(name));
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    return temporary_path(name);
}

static inline void put(const char *name, const void *bytes, size_t n) {
    place(name);
    temporary_file(name, bytes, n);
}

static inline void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

/* Copies a golden file. */
static inline void put_golden(const char *name, const char *golden) {
    char path[256];
    file_map m;
    snprintf(path, sizeof path, "images/%s", golden);
    assert_ok(file_map_open(golden_path(path), &m));
    put(name, m.data, m.size);
    file_map_close(&m);
}

static inline void open_ok(const char *name, const source_options *o, source *s) {
    assert_ok(source_open(temporary_path(name), o, s));
}

static inline bool path_ends(const source *s, int64_t i, const char *end) {
    char buffer[256];
    const char *path = source_name(s, i, buffer, sizeof buffer);
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

static inline void check_item(const source *s, int64_t i, const char *end, const char *class_name) {
    int label = source_label(s, i);
    if (!path_ends(s, i, end)) fail_msg("item %d is not %s", (int)i, end);
    if (!class_name)
        assert_int_equal(label, -1);
    else
        assert_string_equal(s->class_name[label], class_name);
}

#endif
