/* pairs.c: the labels of two files about the same samples (conr_read_pair).
 *
 * Rows belong together by their paths if both files are CSV with a column `path`, else by their
 * order.  Labels are whole numbers or words. */
#include "base/csv.h"
#include "base/csv_labels.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The labels of one file. */
typedef struct side {
    const char *name;
    csv file;          /* holds the texts; closed if the labels came from .npy */
    const char **path; /* [n], or NULL: it has no such column */
    const char **word; /* [n], or NULL: .npy */
    int64_t *label;    /* [n] */
    int64_t n;
} side;

static void side_free(side *s) {
    csv_close(&s->file);
    free(s->path), free(s->word), free(s->label);
    *s = (side){0};
}

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct named {
    const char *text;
    int64_t row;
} named;

/* By text; equal ones in the order of their rows. */
static int by_text(const void *a, const void *b) {
    const named *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->row > y->row) - (x->row < y->row);
}

/* out [n]: the texts with their rows, sorted. */
static named *sorted(const char *what, const char *const *text, int64_t n) {
    named *out = memory_new(what, (size_t)n, sizeof *out);
    if (!out) return NULL;
    for (int64_t i = 0; i < n; i++) out[i] = (named){text[i], i};
    qsort(out, (size_t)n, sizeof *out, by_text);
    return out;
}

/* Whole numbers if all are, an empty cell being -1 (no label); else numbers the distinct words. */
static int number_words(side *s) {
    bool whole = true;
    for (int64_t i = 0; i < s->n; i++)
        if (!*s->word[i])
            s->label[i] = -1;
        else
            whole = whole && csv_whole_number(s->word[i], &s->label[i]);
    if (whole) return 0;
    named *all = sorted(s->name, s->word, s->n);
    if (!all) return CONR_ENOMEM;
    int64_t next = -1;
    for (int64_t i = 0; i < s->n; i++) {
        bool none = !*all[i].text || !strcmp(all[i].text, "-1");
        if (!none && (next < 0 || strcmp(all[i].text, all[i - 1].text))) next++;
        s->label[all[i].row] = none ? -1 : next;
    }
    free(all);
    return 0;
}

/* ---- reading one file ------------------------------------------------------------------------ */

/* Without titles, a word in the first row could be a title or a label. */
static int check_titles(const side *s, const char *first) {
    int64_t number;
    for (int64_t i = 0; i < s->n; i++)
        if (*s->word[i] && !csv_whole_number(s->word[i], &number))
            return fail(CONR_EFORMAT,
                        "%s: its labels are words, and '%.40s' in its first row could be one or a "
                        "title; give it a first row such as path,label",
                        s->name, first);
    return 0;
}

static int read_rows(side *s, const char *wanted) {
    int rc = 0, column = 0, path = -1;
    bool titled = false, sure = true;
    const char *first = NULL;
    csv *c = &s->file;
    while ((rc = csv_next(c)) > 0) {
        csv_trim(c);
        if (c->row == 1) {
            TRY(csv_find_labels(c, wanted, &column, &titled, &sure));
            path = titled ? csv_column(c, "path") : -1;
            first = c->cell[column];
            if (titled) continue;
        }
        if (path >= 0) s->path[s->n] = c->cell[path];
        s->word[s->n++] = c->cell[column];
    }
    TRY(rc);
    if (s->n == 0) TRY(fail(CONR_EFORMAT, "%s: has no labels; give at least one row", s->name));
    if (!sure) TRY(check_titles(s, first));
    if (path < 0 || path == column) free(s->path), s->path = NULL;
done:
    return rc;
}

static int read_side(const char *name, const char *column, side *s) {
    int rc = 0;
    bool npy = false;
    *s = (side){.name = name};
    TRY(npy_is(name, &npy));
    if (npy) {
        TRY(npy_read_labels(name, &s->label, &s->n));
        return conr_check_file(name);
    }
    TRY(csv_open(name, &s->file));
    s->path = memory_new(name, s->file.most, sizeof *s->path);
    s->word = memory_new(name, s->file.most, sizeof *s->word);
    s->label = memory_new(name, s->file.most, sizeof *s->label);
    TRY(s->path && s->word && s->label ? 0 : CONR_ENOMEM);
    TRY(read_rows(s, column));
    TRY(number_words(s));
    TRY(conr_check_file(name));
done:
    return rc;
}

/* ---- matching -------------------------------------------------------------------------------- */

static int sort_paths(const side *s, named **out) {
    *out = sorted(s->name, s->path, s->n);
    if (!*out) return CONR_ENOMEM;
    for (int64_t i = 1; i < s->n; i++)
        if (!strcmp((*out)[i].text, (*out)[i - 1].text))
            return fail(CONR_EFORMAT,
                        "%s: the path '%.300s' is in rows %lld and %lld; give each "
                        "sample once",
                        s->name, (*out)[i].text, (long long)(*out)[i - 1].row + 2,
                        (long long)(*out)[i].row + 2); /* the first row has the titles */
    return 0;
}

/* Paths of a that b lacks; *first: one of them. */
static int64_t missing(const named *a, int64_t n, const named *b, int64_t m, const char **first) {
    int64_t count = 0, j = 0;
    for (int64_t i = 0; i < n; i++) {
        while (j < m && strcmp(b[j].text, a[i].text) < 0) j++;
        if (j < m && !strcmp(b[j].text, a[i].text)) continue;
        if (count++ == 0) *first = a[i].text;
    }
    return count;
}

static int check_missing(const side *a, const named *x, const side *b, const named *y) {
    const char *first = NULL;
    int64_t count = missing(x, a->n, y, b->n, &first);
    if (!count) return 0;
    return fail(CONR_EFORMAT,
                "%s: %lld of its %lld paths are not in %s, such as '%.300s'; give files of the "
                "same samples with paths spelled alike",
                a->name, (long long)count, (long long)a->n, b->name, first);
}

/* Puts the labels of b into the order of the paths of a. */
static int join(const side *a, side *b) {
    int rc = 0;
    named *x = NULL, *y = NULL;
    int64_t *label = NULL;
    TRY(sort_paths(a, &x));
    TRY(sort_paths(b, &y));
    TRY(check_missing(b, y, a, x));
    TRY(check_missing(a, x, b, y));
    label = memory_new(b->name, (size_t)b->n, sizeof *label);
    TRY(label ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < a->n; i++) label[x[i].row] = b->label[y[i].row];
    free(b->label);
    b->label = label;
done:
    free(x), free(y);
    return rc;
}

int conr_read_pair(const char *truth_path, const char *truth_column, const char *pred_path,
                   const char *pred_column, int64_t **truth, int64_t **pred, int64_t *n) {
    int rc = 0;
    side t = {0}, p = {0};
    *truth = *pred = NULL;
    *n = 0;
    TRY(read_side(truth_path, truth_column, &t));
    TRY(read_side(pred_path, pred_column, &p));
    for (int64_t i = 0; p.word && i < p.n; i++)
        if (!*p.word[i])
            TRY(fail(CONR_EFORMAT, "%s: label %lld is empty; give every sample a cluster", p.name,
                     (long long)i + 1));
    if (t.path && p.path)
        TRY(join(&t, &p));
    else if (t.n != p.n)
        TRY(fail(CONR_EFORMAT, "%s: %lld labels, but %s has %lld; give files of the same samples",
                 p.name, (long long)p.n, t.name, (long long)t.n));
    *truth = t.label, *pred = p.label, *n = t.n;
    t.label = p.label = NULL;
done:
    side_free(&t), side_free(&p);
    return rc;
}
