/* test_help.c: comparisons, temporary files and golden files for the tests. */
#include "base/test_help.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void check_fails(int rc, int code, const char *text, const char *call, const char *file, int line) {
    if (rc != code) {
        print_error("%s returned %d, not %d (message: %s)\n", call, rc, code, conr_error());
        _fail(file, line);
    }
    if (!strstr(conr_error(), text)) {
        print_error("%s says '%s', which lacks '%s'\n", call, conr_error(), text);
        _fail(file, line);
    }
    if (strchr(conr_error(), '\n')) {
        print_error("%s says more than one line: '%s'\n", call, conr_error());
        _fail(file, line);
    }
}

double relative_error(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)a[i] - b[i];
        difference += e * e;
        size += (double)b[i] * b[i];
    }
    if (isnan(difference) || isnan(size)) return INFINITY;
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

void check_close(const char *what, const float *a, const float *b, size_t n, double bound,
                 const char *file, int line) {
    double error = relative_error(a, b, n);
    if (error <= bound) return;
    print_error("%s: relative error %.3g over %zu numbers, bound %.3g\n", what, error, n, bound);
    for (size_t i = 0; i < n && i < 6; i++) print_error("  [%zu] %.8g, not %.8g\n", i, a[i], b[i]);
    _fail(file, line);
}

static char folder[64];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
    (void)s, (void)kind, (void)f;
    return remove(path);
}

static void remove_folder(void) { nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static const char *join(const char *left, const char *right) {
    static char path[4][4096];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", left, right);
    return path[turn];
}

const char *temporary_path(const char *name) {
    if (!*folder) {
        strcpy(folder, "/tmp/conr_test_XXXXXX");
        if (!mkdtemp(folder)) abort();
        atexit(remove_folder);
    }
    return join(folder, name);
}

const char *golden_path(const char *name) { return join(CONR_GOLDEN, name); }

const char *temporary_file(const char *name, const void *bytes, size_t n) {
    const char *path = temporary_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
    return path;
}
