/* edits.c: opening the edits of a run, and asking about them. */
#include "edits/edits.h"

#include "base/checksum.h"
#include "base/csv_labels.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

const char *edits_base(const char *run) {
    char path[4096];
    snprintf(path, sizeof path, "%s/edits.json", run);
    return file_is_gone(path) ? "labels.csv" : "untouched.csv";
}

static int read_row(conr_edits *e, const csv *c) {
    int64_t k;
    if (!csv_whole_number(c->cell[1], &k) || k < 0 || k >= EDITS_CLUSTERS)
        return fail(CONR_EFORMAT, "%s: row %lld is not one of a labels.csv; repeat the run",
                    c->name, (long long)c->row);
    memcpy(e->cell + (size_t)e->n * e->cells, c->cell, e->cells * sizeof *e->cell);
    e->untouched[e->n++] = (int32_t)k;
    if (k >= e->K) e->K = (int)k + 1;
    return 0;
}

/* The clusters that the run found. */
static int read_untouched(conr_edits *e) {
    int rc = 0;
    const char *name = edits_base(e->run);
    file_bytes file = {0};
    char *path = edits_path(e, name);
    if (!path) TRY(fail_memory(e->run, 4096));
    if (file_is_gone(path))
        TRY(fail(CONR_EFILE, "%s: has no %s; has its training finished?", e->run, name));
    TRY(file_read_whole(path, &file));
    e->sum = checksum(file.data, file.n, 0);
    TRY(csv_parse(path, file.data, file.n, &e->rows));
    TRY(csv_next(&e->rows));
    e->cells = e->rows.n_cells;
    if (rc == 0 || e->cells < 4 || e->cells > 5 || strcmp(e->rows.cell[0], "path") ||
        strcmp(e->rows.cell[1], "cluster"))
        TRY(fail(CONR_EFORMAT,
                 "%s: its columns are not path,cluster,distance,boundary; repeat the run", path));
    e->untouched = memory_new("labels", e->rows.most, sizeof *e->untouched);
    e->cell = memory_new("labels", e->rows.most * e->cells, sizeof *e->cell);
    TRY(e->untouched && e->cell ? 0 : CONR_ENOMEM);
    while ((rc = csv_next(&e->rows)) > 0) TRY(read_row(e, &e->rows));
    TRY(rc);
    if (e->n == 0) TRY(fail(CONR_EFORMAT, "%s: has no images; repeat the run", path));
    TRY(checksum_check(e->run, name, "DONE"));
done:
    e->rows.name = "labels.csv"; /* path is released here */
    file_bytes_free(&file);
    free(path);
    return rc;
}

static int make_state(conr_edits *e) {
    size_t n = (size_t)e->n;
    e->cluster = memory_new("labels", n, sizeof *e->cluster);
    e->part = memory_new("labels", n, sizeof *e->part);
    e->label = memory_new("labels", n, sizeof *e->label);
    e->mark = memory_new("labels", n, 1);
    e->list = json_array();
    if (!e->cluster || !e->part || !e->label || !e->mark) return CONR_ENOMEM;
    return e->list ? 0 : fail_memory("edits", 1000);
}

/* After a crash between journal and labels.csv, or if that was changed. */
static int renew_labels(conr_edits *e) {
    int rc = 0;
    uint64_t sum = 0;
    char want[20];
    file_bytes file = {0};
    bool scarce;
    char *labels = edits_path(e, "labels.csv"), *path = edits_path(e, "edits.json");
    json_t *journal = NULL;
    if (!labels || !path) TRY(fail_memory(e->run, 4096));
    TRY(file_read_whole(path, &file));
    file.data[file.n] = 0;
    journal = json_read((const char *)file.data, &scarce);
    const char *is = json_string_value(json_object_get(journal, "labels"));
    if (!file_is_gone(labels)) TRY(checksum_file(labels, SIZE_MAX, &sum));
    snprintf(want, sizeof want, "%016" PRIx64, sum);
    if (!is || strcmp(is, want)) TRY(edits_write(e));
done:
    json_decref(journal);
    file_bytes_free(&file);
    free(labels), free(path);
    return rc;
}

int conr_edits_open(const char *run, int read_only, conr_edits **out) {
    int rc = 0;
    char done[4096];
    conr_edits *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return fail_memory("edits", sizeof *e);
    snprintf(done, sizeof done, "%s/DONE", run);
    if (!(e->run = strdup(run))) TRY(fail_memory(run, 4096));
    if (file_is_gone(run))
        TRY(fail(CONR_EFILE, "%s: does not exist; give the folder of a run", run));
    if (file_is_gone(done))
        TRY(fail(CONR_EFILE, "%s: holds no finished run; give the --out folder of one", run));
    e->writable = !read_only;
    if (e->writable) TRY(folder_lock_take(run, &e->lock));
    if (e->writable) file_new_clean(run);
    TRY(read_untouched(e));
    TRY(make_state(e));
    TRY(edits_read_journal(e));
    rc = edits_replay(e);
    if (rc == CONR_EINVAL) TRY(edits_damaged(e, "a decision in it does not fit the run"));
    TRY(rc);
    if (e->writable && e->kept) TRY(renew_labels(e));
    *out = e;
done:
    if (rc < 0) conr_edits_close(e);
    return rc;
}

int edits_of_run(const char *run, conr_edits **out) {
    *out = NULL;
    return strcmp(edits_base(run), "labels.csv") ? conr_edits_open(run, 1, out) : 0;
}

void conr_edits_close(conr_edits *e) {
    if (!e) return;
    for (int k = 0; k < e->next; k++) free(e->name[k]);
    csv_close(&e->rows);
    free(e->cell), free(e->untouched), free(e->cluster), free(e->part), free(e->mark);
    free(e->label), free(e->owner), free(e->name), free(e->size), free(e->features);
    json_decref(e->list);
    folder_lock_drop(&e->lock);
    free(e->run);
    free(e);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static const char *word_at(const conr_edits *e, size_t at) {
    return json_string_value(json_object_get(json_array_get(e->list, at), "do"));
}

void conr_edits_about(const conr_edits *e, conr_edits_info *out) {
    *out = (conr_edits_info){.n = e->n,
                             .next = e->next,
                             .found = e->K,
                             .done = (int)e->at,
                             .undone = (int)(json_array_size(e->list) - e->at),
                             .undo = e->at ? word_at(e, e->at - 1) : NULL,
                             .redo = word_at(e, e->at),
                             .version = e->version};
    for (int k = 0; k < e->next; k++) out->clusters += e->size[k] > 0;
}

int64_t conr_edits_size(const conr_edits *e, int cluster) {
    return cluster >= 0 && cluster < e->next ? e->size[cluster] : 0;
}

const char *conr_edits_name(const conr_edits *e, int cluster) {
    return cluster >= 0 && cluster < e->next ? e->name[cluster] : NULL;
}

const int32_t *conr_edits_labels(const conr_edits *e) { return e->label; }
const int32_t *conr_edits_untouched(const conr_edits *e) { return e->untouched; }
const unsigned char *conr_edits_marks(const conr_edits *e) { return e->mark; }

int conr_edits_row(const conr_edits *e, int64_t i, conr_edits_image *out) {
    if (i < 0 || i >= e->n) return fail(CONR_EINVAL, "image: there is no such one; give 0 to n-1");
    char *const *cell = e->cell + (size_t)i * e->cells;
    *out = (conr_edits_image){.path = cell[0],
                              .distance = strtof(cell[2], NULL),
                              .boundary = strtof(cell[3], NULL),
                              .label = e->cells > 4 ? strtoll(cell[4], NULL, 10) : -1};
    return 0;
}

int conr_edits_features(conr_edits *e, const float **features, int64_t *d) {
    int rc = 0;
    int64_t n = 0;
    char *path = edits_path(e, "embeddings.npy");
    if (!path) TRY(fail_memory(e->run, 4096));
    if (!e->features) {
        TRY(npy_read_features(path, &e->features, &n, &e->d));
        rc = checksum_check(e->run, "embeddings.npy", "DONE");
        if (rc == 0 && n != e->n)
            rc = fail(CONR_EFORMAT, "%s: %lld rows, but labels.csv has %lld images; repeat the run",
                      path, (long long)n, (long long)e->n);
        if (rc < 0) free(e->features), e->features = NULL;
        TRY(rc);
    }
    *features = e->features, *d = e->d;
done:
    free(path);
    return rc;
}
