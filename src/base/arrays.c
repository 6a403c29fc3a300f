/* arrays.c: the public calls that read and write features and labels (conr.h, "arrays in files").
 *
 * Thin: the formats are npy.c's and csv.c's.  Owns which column of a CSV holds the labels. */
#include "base/csv.h"
#include "base/file.h"
#include "base/lock.h"
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
    int rc = npy_read_features(path, features, n, d);
    if (rc == 0 && (rc = conr_check_file(path)) < 0) conr_free(*features), *features = NULL;
    return rc;
}

static int write_array(const char *path, char kind, const void *values, int64_t rows,
                       int64_t columns) {
    int64_t dim[2] = {rows, columns};
    folder_lock lock;
    int rc = folder_lock_beside(path, "options.yaml", &lock); /* into the folder of a run */
    if (rc == 0) rc = npy_write(path, kind, 4, columns ? 2 : 1, dim, values);
    folder_lock_drop(&lock);
    return rc;
}

int conr_write_ints(const char *path, const int32_t *values, int64_t rows, int64_t columns) {
    return write_array(path, 'i', values, rows, columns);
}

int conr_write_floats(const char *path, const float *values, int64_t rows, int64_t columns) {
    return write_array(path, 'f', values, rows, columns);
}

/* ---- labels of a CSV ------------------------------------------------------------------------- */

/* Cuts off the white space around a cell. */
static char *trim(char *cell) {
    while (isspace((unsigned char)*cell)) cell++;
    char *end = cell + strlen(cell);
    while (end > cell && isspace((unsigned char)end[-1])) end--;
    *end = 0;
    return cell;
}

static bool whole_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && end != text && !*end;
}

/* The column called `title` in the current row, or -1. */
static int column_of(const csv *c, const char *title) {
    for (size_t i = 0; i < c->n_cells; i++)
        if (!strcmp(c->cell[i], title)) return (int)i;
    return -1;
}

/* Finds the column of the labels in the first row; *titled: that row has titles, not labels. */
static int find_column(const csv *c, const char *wanted, int *column, bool *titled) {
    static const char *const usual[] = {"cluster", "label", "pred"};
    int64_t number;
    *column = wanted ? column_of(c, wanted) : -1;
    if (wanted && *column < 0)
        return fail(CONR_EFORMAT, "%s: has no column '%s'; give one of the titles in its first row",
                    c->name, wanted);
    for (int u = 0; u < 3 && *column < 0; u++) *column = column_of(c, usual[u]);
    *titled = *column >= 0 || !whole_number(c->cell[c->n_cells - 1], &number);
    if (*column < 0) *column = (int)c->n_cells - 1;
    return 0;
}

/* out: [c->most] */
static int parse_labels(csv *c, const char *wanted, int64_t *out, int64_t *n) {
    int column = 0, rc;
    bool titled = false;
    *n = 0;
    while ((rc = csv_next(c)) > 0) {
        for (size_t i = 0; i < c->n_cells; i++) c->cell[i] = trim(c->cell[i]);
        if (c->row == 1) {
            if ((rc = find_column(c, wanted, &column, &titled)) < 0) return rc;
            if (titled) continue;
        }
        if (!whole_number(c->cell[column], &out[(*n)++]))
            return fail(CONR_EFORMAT, "%s: row %lld has '%.40s' for a label; give whole numbers",
                        c->name, (long long)c->row, c->cell[column]);
    }
    if (rc == 0 && *n == 0)
        return fail(CONR_EFORMAT, "%s: has no labels; give at least one row", c->name);
    return rc;
}

static int read_csv(const char *path, const char *column, int64_t **labels, int64_t *n) {
    int rc = 0;
    csv c;
    TRY(csv_open(path, &c));
    *labels = memory_new(path, c.most, sizeof **labels);
    TRY(*labels ? 0 : CONR_ENOMEM);
    TRY(parse_labels(&c, column, *labels, n));
done:
    if (rc < 0) free(*labels), *labels = NULL;
    csv_close(&c);
    return rc;
}

int conr_read_labels(const char *path, const char *column, int64_t **labels, int64_t *n) {
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    file_bytes file;
    *labels = NULL;
    int rc = file_read(path, sizeof magic, &file, NULL);
    if (rc < 0) return rc;
    bool npy = file.n == sizeof magic && !memcmp(file.data, magic, sizeof magic);
    file_bytes_free(&file);
    rc = npy ? npy_read_labels(path, labels, n) : read_csv(path, column, labels, n);
    if (rc == 0 && (rc = conr_check_file(path)) < 0) conr_free(*labels), *labels = NULL;
    return rc;
}
