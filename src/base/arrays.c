/* arrays.c: the public calls that read and write features and labels. */
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void conr_free(void *p) { free(p); }

int conr_read_features(const char *path, float **features, int64_t *n, int64_t *d) {
    return npy_read_features(path, features, n, d);
}

static int write_array(const char *path, char kind, const void *values, int64_t rows,
                       int64_t columns) {
    int64_t dim[2] = {rows, columns};
    return npy_write(path, kind, 4, columns ? 2 : 1, dim, values);
}

int conr_write_ints(const char *path, const int32_t *values, int64_t rows, int64_t columns) {
    return write_array(path, 'i', values, rows, columns);
}

int conr_write_floats(const char *path, const float *values, int64_t rows, int64_t columns) {
    return write_array(path, 'f', values, rows, columns);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

/* A cell of a line.  text points into the file; quotes around it are not part of it. */
typedef struct cell {
    const char *text;
    size_t size;
} cell;

/* A line of a file in memory. */
typedef struct line {
    const char *at, *end; /* end: behind its last character, the line break left out */
} line;

/* Takes the cell at l->at, and moves there behind it and its comma; false when the line is over.
 * Commas within quotes belong to the cell. */
static bool next_cell(line *l, cell *out) {
    if (!l->at) return false;
    const char *at = l->at, *start = at;
    bool quoted = at < l->end && *at == '"';
    if (quoted) {
        start = ++at;
        while (at < l->end && *at != '"') at++;
        *out = (cell){start, (size_t)(at - start)};
        while (at < l->end && *at != ',') at++;
    } else {
        while (at < l->end && *at != ',') at++;
        while (start < at && isspace((unsigned char)*start)) start++;
        const char *stop = at;
        while (stop > start && isspace((unsigned char)stop[-1])) stop--;
        *out = (cell){start, (size_t)(stop - start)};
    }
    l->at = at < l->end ? at + 1 : NULL;
    return true;
}

/* The next line that is not empty; false at the end. */
static bool next_line(const char **at, const char *end, line *out) {
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        if (!stop) stop = end;
        *out = (line){*at, stop};
        *at = stop < end ? stop + 1 : end;
        while (out->end > out->at && (out->end[-1] == '\r' || out->end[-1] == ' ')) out->end--;
        if (out->end > out->at) return true;
    }
    return false;
}

static bool whole_number(cell c, int64_t *out) {
    char copy[32], *end;
    if (c.size == 0 || c.size >= sizeof copy) return false;
    memcpy(copy, c.text, c.size);
    copy[c.size] = 0;
    errno = 0;
    *out = strtoll(copy, &end, 10);
    return !errno && *end == 0;
}

static bool cell_is(cell c, const char *text) {
    return c.size == strlen(text) && !memcmp(c.text, text, c.size);
}

/* Which column holds the labels, by the first line; *titled: the line has titles, not numbers. */
static int find_column(const char *path, line first, const char *wanted, int *column,
                       bool *titled) {
    static const char *const usual[] = {"cluster", "label", "pred"};
    int found[3] = {-1, -1, -1}, n = 0;
    int64_t number;
    cell c = {0}, last = {0};
    *column = -1;
    for (; next_cell(&first, &c); n++, last = c) {
        if (wanted && cell_is(c, wanted)) *column = n;
        for (int u = 0; u < 3; u++)
            if (found[u] < 0 && cell_is(c, usual[u])) found[u] = n;
    }
    for (int u = 0; u < 3 && !wanted; u++)
        if (*column < 0) *column = found[u];
    *titled = *column >= 0 || !whole_number(last, &number);
    if (wanted && *column < 0)
        return fail(CONR_EFORMAT, "%s: has no column '%s'; name one of its first line", path,
                    wanted);
    if (*column < 0) *column = n - 1;
    return 0;
}

/* out: [n], room for one label a line */
static int parse_csv(const char *path, const char *text, size_t size, const char *wanted,
                     int64_t *out, int64_t *n) {
    const char *at = text, *end = text + size;
    int column, rc = 0;
    int64_t number = 0;
    bool titled = false;
    line l;
    *n = 0;
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) at += 3; /* a byte order mark */
    while (next_line(&at, end, &l)) {
        cell c = {0};
        if (number++ == 0) {
            if ((rc = find_column(path, l, wanted, &column, &titled)) < 0) return rc;
            if (titled) continue;
        }
        int there = 0;
        for (; there <= column && next_cell(&l, &c); there++) continue;
        if (there <= column)
            return fail(CONR_EFORMAT, "%s: row %lld has %d columns, not %d; complete it", path,
                        (long long)number, there, column + 1);
        if (!whole_number(c, &out[(*n)++]))
            return fail(CONR_EFORMAT, "%s: row %lld has '%.*s' for a label; give whole numbers",
                        path, (long long)number, (int)(c.size < 40 ? c.size : 40), c.text);
    }
    if (*n == 0) return fail(CONR_EFORMAT, "%s: has no labels; give at least one row", path);
    return 0;
}

static int read_csv(const char *path, const char *column, int64_t **labels, int64_t *n) {
    int rc = 0;
    file_map file = {0};
    TRY(file_map_open(path, &file));
    size_t lines = 1;
    for (size_t i = 0; i < file.size; i++) lines += file.data[i] == '\n';
    *labels = memory_new(path, lines, sizeof **labels);
    TRY(*labels ? 0 : CONR_ENOMEM);
    TRY(parse_csv(path, file.data ? (const char *)file.data : "", file.size, column, *labels, n));
done:
    if (rc < 0) free(*labels), *labels = NULL;
    file_map_close(&file);
    return rc;
}

int conr_read_labels(const char *path, const char *column, int64_t **labels, int64_t *n) {
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    file_map file = {0};
    *labels = NULL;
    int rc = file_map_open(path, &file);
    if (rc < 0) return rc;
    bool npy = file.size >= sizeof magic && !memcmp(file.data, magic, sizeof magic);
    file_map_close(&file);
    return npy ? npy_read_labels(path, labels, n) : read_csv(path, column, labels, n);
}
