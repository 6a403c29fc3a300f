/* paths.c: see paths.h.
 *
 * Names are compared from their ends, part by part: a line may be the path of an image as we print
 * it, relative to the SRC, absolute, or from another machine. */
#include "paths.h"

#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- reading --------------------------------------------------------------------------------- */

void paths_free(paths *p) {
    free(p->text);
    free(p->line);
    *p = (paths){0};
}

static int read_text(const char *file, char **out, size_t *n) {
    struct stat about;
    FILE *f = fopen(file, "r");
    *out = NULL;
    if (!f || fstat(fileno(f), &about) || !S_ISREG(about.st_mode)) {
        int rc = failed("%s: %s; give a text file of paths", file,
                        f ? "is not a file" : strerror(errno));
        if (f) fclose(f);
        return rc;
    }
    *out = malloc((size_t)about.st_size + 1);
    *n = *out ? fread(*out, 1, (size_t)about.st_size, f) : 0;
    bool broken = ferror(f);
    fclose(f);
    if (!*out) return failed("%s: out of memory; close other programs", file);
    if (broken) return failed("%s: cannot be read; check the disk", file);
    (*out)[*n] = 0;
    return EXIT_OK;
}

int paths_read(const char *file, paths *out) {
    size_t size = 0, lines = 1;
    *out = (paths){0};
    int rc = read_text(file, &out->text, &size);
    if (rc) return paths_free(out), rc;
    char end = memchr(out->text, 0, size) ? 0 : '\n';
    for (size_t i = 0; i < size; i++) lines += out->text[i] == end;
    out->line = malloc(lines * sizeof *out->line);
    if (!out->line) return paths_free(out), failed("%s: out of memory; close other programs", file);
    char *at = out->text;
    for (size_t i = 0; i <= size; i++) {
        char *here = out->text + i;
        if (i < size && *here != end) continue;
        if (end && here > at && here[-1] == '\r') here[-1] = 0;
        *here = 0;
        if (*at) out->line[out->n++] = at;
        at = here + 1;
    }
    if (out->n == 0) {
        paths_free(out);
        return failed("%s: has no paths; give one per line", file);
    }
    return EXIT_OK;
}

/* ---- matching -------------------------------------------------------------------------------- */

typedef struct named {
    char *name;
    size_t length;
    int64_t at;
} named;

/* By the last character, then the one before it, ...; '/' before everything else, so that names
 * with the same last parts are neighbors. */
static int from_end(const char *a, size_t n, const char *b, size_t m) {
    while (n && m) {
        unsigned char x = (unsigned char)a[--n], y = (unsigned char)b[--m];
        if (x == y) continue;
        if (x == '/' || y == '/') return x == '/' ? -1 : 1;
        return x < y ? -1 : 1;
    }
    return n ? 1 : m ? -1 : 0;
}

static int by_end(const void *a, const void *b) {
    const named *x = a, *y = b;
    return from_end(x->name, x->length, y->name, y->length);
}

/* Whether a name ends with these whole parts. */
static bool ends_with(const named *x, const char *parts, size_t n) {
    if (x->length < n || memcmp(x->name + x->length - n, parts, n)) return false;
    return x->length == n || x->name[x->length - n - 1] == '/';
}

/* The range of images that end with these parts: *first and the number of them.  In the order of
 * by_end they are neighbors, and the shortest of them comes first. */
static int64_t find_range(const named *list, int64_t n, const char *parts, size_t length,
                          int64_t *first) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (from_end(list[middle].name, list[middle].length, parts, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (high < n && ends_with(&list[high], parts, length)) high++;
    return high - low;
}

/* The image of a line: its index in the list; -1: none; -2: several. */
static int64_t find_image(const named *list, int64_t n, const char *line) {
    int64_t first;
    named key = {(char *)line, strlen(line), 0};
    const named *exact = bsearch(&key, list, (size_t)n, sizeof *list, by_end);
    if (exact) return exact - list;
    while (*line) { /* then without its first folder, the second, ... */
        line += strspn(line, "/");
        int64_t count = find_range(list, n, line, strlen(line), &first);
        if (count > 0) return count == 1 ? first : -2;
        line += strcspn(line, "/");
    }
    return -1;
}

static int list_images(conr_images *m, int64_t n, named *list) {
    for (int64_t i = 0; i < n; i++) {
        char *name = strdup(conr_images_path(m, i));
        if (!name) return failed("paths: out of memory; close other programs");
        list[i] = (named){name, strlen(name), i};
    }
    qsort(list, (size_t)n, sizeof *list, by_end);
    return EXIT_OK;
}

int paths_match(const char *file, const paths *p, conr_images *m, int64_t n, int64_t *at,
                int64_t *missing, int64_t *first) {
    named *list = calloc((size_t)n + 1, sizeof *list);
    int64_t *line_of = calloc((size_t)n + 1, sizeof *line_of); /* from 1; 0: none yet */
    int rc = list && line_of ? list_images(m, n, list)
                             : failed("%s: out of memory; close other programs", file);
    for (int64_t i = 0; i < p->n && rc == EXIT_OK; i++) {
        int64_t k = find_image(list, n, p->line[i]);
        if (k == -1)
            rc = failed("%s: %s (path %lld) is none of the images; remove its row, or give the "
                        "images it belongs to",
                        file, p->line[i], (long long)i + 1);
        else if (k == -2)
            rc = failed("%s: %s (path %lld) fits several images; give more of its folders", file,
                        p->line[i], (long long)i + 1);
        else if (line_of[list[k].at])
            rc = failed("%s: paths %lld and %lld are the same image, %s; keep one of them", file,
                        (long long)line_of[list[k].at], (long long)i + 1, p->line[i]);
        else
            at[i] = list[k].at, line_of[list[k].at] = i + 1;
    }
    *missing = 0, *first = -1;
    for (int64_t i = n - 1; i >= 0 && rc == EXIT_OK; i--)
        if (!line_of[i]) ++*missing, *first = i;
    for (int64_t i = 0; list && i < n; i++) free(list[i].name);
    free(list);
    free(line_of);
    return rc;
}
