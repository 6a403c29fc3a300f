/* arrays.c: the public calls that read and write features and labels (conr.h, "arrays in files").
 *
 * Thin: the formats are npy.c's and csv.c's. */
#include "base/csv_labels.h"
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

int conr_read_features_part(const char *path, int part, int parts, float **features, int64_t *n,
                            int64_t *d, int64_t *total) {
    int rc = npy_read_features_part(path, part, parts, features, n, d, total);
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

int conr_write_bytes(const char *path, const void *bytes, int64_t n) {
    int rc = 0;
    file_new f = {0};
    folder_lock lock;
    TRY(folder_lock_beside(path, "options.yaml", &lock));
    TRY(file_new_open(&f, path));
    fwrite(bytes, 1, (size_t)n, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    folder_lock_drop(&lock);
    return rc;
}

/* ---- labels of a CSV ------------------------------------------------------------------------- */

/* out: [c->most] */
static int parse_labels(csv *c, const char *wanted, int64_t *out, int64_t *n) {
    int column = 0, rc;
    bool titled = false;
    *n = 0;
    while ((rc = csv_next(c)) > 0) {
        csv_trim(c);
        if (c->row == 1) {
            if ((rc = csv_find_labels(c, wanted, &column, &titled, NULL)) < 0) return rc;
            if (titled) continue;
        }
        if (!csv_whole_number(c->cell[column], &out[(*n)++]))
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
    bool npy;
    *labels = NULL;
    int rc = npy_is(path, &npy);
    if (rc < 0) return rc;
    rc = npy ? npy_read_labels(path, labels, n) : read_csv(path, column, labels, n);
    if (rc == 0 && (rc = conr_check_file(path)) < 0) conr_free(*labels), *labels = NULL;
    return rc;
}
