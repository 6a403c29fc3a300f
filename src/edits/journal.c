/* journal.c: the files of the edits: edits.json, untouched.csv, labels.csv, and the line in DONE. */
#include "edits/edits.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *edits_path(const conr_edits *e, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", e->run, name) < 0 ? NULL : path;
}

int edits_damaged(const conr_edits *e, const char *why) {
    return fail(CONR_EFORMAT,
                "%s/edits.json: is damaged: %s; restore it, or take all edits back with conr "
                "cluster RUN --reset-edits",
                e->run, why);
}

static json_t *hex(uint64_t sum) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    return json_string(text);
}

/* The checksum of all that the journal says, whatever its spaces are. */
static int sum_of(const json_t *journal, uint64_t *out) {
    char *text = json_write(journal, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return fail_memory("edits.json", 1000);
    *out = checksum(text, strlen(text), 0);
    free(text);
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A checksum that a person who edits the file by hand has removed is not missed. */
static int check_sum(const conr_edits *e, json_t *journal) {
    int rc = 0;
    uint64_t sum;
    char want[20];
    json_t *check = json_incref(json_object_get(journal, "check"));
    if (!check) return 0;
    json_object_del(journal, "check");
    TRY(sum_of(journal, &sum));
    snprintf(want, sizeof want, "%016" PRIx64, sum);
    if (!json_is_string(check) || strcmp(json_string_value(check), want))
        TRY(edits_damaged(e, "it does not match its checksum"));
done:
    json_decref(check);
    return rc;
}

static int take(conr_edits *e, json_t *journal) {
    int rc = 0;
    char want[20];
    snprintf(want, sizeof want, "%016" PRIx64, e->sum);
    const char *of = json_string_value(json_object_get(journal, "untouched"));
    json_t *list = json_object_get(journal, "edits"), *at = json_object_get(journal, "at");
    TRY(check_sum(e, journal));
    if (!json_is_array(list) || !json_is_integer(at) || json_integer_value(at) < 0 ||
        (size_t)json_integer_value(at) > json_array_size(list) || !of)
        TRY(edits_damaged(e, "it is no journal of edits"));
    if (strcmp(of, want)) TRY(edits_damaged(e, "it belongs to other clusters"));
    json_decref(e->list);
    e->list = json_incref(list);
    e->at = (size_t)json_integer_value(at);
done:
    return rc;
}

int edits_read_journal(conr_edits *e) {
    int rc = 0;
    bool scarce = false;
    file_bytes file = {0};
    json_t *journal = NULL;
    char *path = edits_path(e, "edits.json");
    if (!path) TRY(fail_memory(e->run, 4096));
    if (file_is_gone(path)) goto done;
    e->kept = true;
    TRY(file_read_whole(path, &file));
    file.data[file.n] = 0;
    journal = json_read((const char *)file.data, &scarce);
    if (scarce) TRY(fail_memory(path, (double)file.n));
    if (!json_is_object(journal)) TRY(edits_damaged(e, "it is not JSON"));
    TRY(take(e, journal));
done:
    json_decref(journal);
    file_bytes_free(&file);
    free(path);
    return rc;
}

/* ---- labels.csv ------------------------------------------------------------------------------ */

/* A comma and a whole number; fprintf would take most of the time of an edit. */
static void write_number(FILE *f, int32_t value) {
    char text[16], *at = text + sizeof text;
    uint32_t left = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *--at = '-';
    *--at = ',';
    fwrite(at, 1, (size_t)(text + sizeof text - at), f);
}

/* The text of labels.csv as decided: the columns that it had, with the cluster replaced, then its
 * name, the mark, and the cluster that the run found. */
static int labels_text(const conr_edits *e, char **text, size_t *length) {
    static const char *const marks[] = {"", "outlier", "wrong"};
    *text = NULL;
    FILE *f = open_memstream(text, length);
    if (!f) return fail_memory("labels.csv", 64.0 * (double)e->n);
    __fsetlocking(f, FSETLOCKING_BYCALLER); /* it is ours alone, and there are many small writes */
    fprintf(f, "path,cluster,distance,boundary%s,name,mark,untouched\n",
            e->cells > 4 ? ",label" : "");
    for (int64_t i = 0; i < e->n; i++) {
        char *const *cell = e->cell + (size_t)i * e->cells;
        csv_write(f, cell[0]);
        write_number(f, e->label[i]);
        fputc(',', f);
        for (size_t j = 2; j < e->cells; j++) fputs(cell[j], f), fputc(',', f);
        if (e->name[e->cluster[i]] && !e->mark[i]) csv_write(f, e->name[e->cluster[i]]);
        fputc(',', f);
        fputs(marks[e->mark[i]], f);
        write_number(f, e->untouched[i]);
        fputc('\n', f);
    }
    bool bad = ferror(f);
    if (fclose(f) || bad || !*text) {
        free(*text), *text = NULL;
        return fail_memory("labels.csv", 64.0 * (double)e->n);
    }
    return 0;
}

static int write_file(const conr_edits *e, const char *name, const void *bytes, size_t n) {
    int rc = 0;
    file_new f = {0};
    char *path = edits_path(e, name);
    if (!path) TRY(fail_memory(e->run, 4096));
    TRY(file_new_open(&f, path));
    fwrite(bytes, 1, n, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    free(path);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* DONE with one file's checksum under the name of another, which has the same bytes. */
static int rename_in_done(const conr_edits *e, const char *from, const char *to) {
    int rc = 0;
    file_bytes done = {0};
    char *path = edits_path(e, "DONE"), *text = NULL, *line;
    size_t length = 0;
    FILE *f = NULL;
    if (!path) TRY(fail_memory(e->run, 4096));
    if (file_is_gone(path)) goto done;
    TRY(file_read_whole(path, &done));
    done.data[done.n] = 0;
    if (!(f = open_memstream(&text, &length))) TRY(fail_memory(path, (double)done.n));
    for (char *at = (char *)done.data; *at; at = line) {
        line = at + strcspn(at, "\n");
        line += *line == '\n';
        size_t n = (size_t)(line - at), m = strlen(from);
        bool is = n == 23 + m + 1 && !strncmp(at, "xxh64 ", 6) && !strncmp(at + 23, from, m);
        if (is)
            fprintf(f, "%.23s%s\n", at, to);
        else
            fwrite(at, 1, n, f);
    }
    bool bad = ferror(f);
    if (fclose(f) || bad) {
        f = NULL;
        TRY(fail_memory(path, (double)done.n));
    }
    f = NULL;
    TRY(write_file(e, "DONE", text, length));
done:
    if (f) fclose(f);
    free(text), free(path);
    file_bytes_free(&done);
    return rc;
}

/* Before the first decision: the clusters that the run found get a file of their own.  Until the
 * journal exists nobody reads it, so a crash in between changes nothing. */
static int keep_untouched(conr_edits *e) {
    int rc = 0;
    file_bytes labels = {0};
    char *path = edits_path(e, "labels.csv");
    if (!path) TRY(fail_memory(e->run, 4096));
    TRY(file_read_whole(path, &labels));
    if (checksum(labels.data, labels.n, 0) != e->sum)
        TRY(fail(CONR_EFILE, "%s: was changed meanwhile; open the run again", path));
    TRY(write_file(e, "untouched.csv", labels.data, labels.n));
    TRY(rename_in_done(e, "labels.csv", "untouched.csv"));
done:
    file_bytes_free(&labels);
    free(path);
    return rc;
}

int edits_write(conr_edits *e) {
    int rc = 0;
    char *labels = NULL, *text = NULL;
    size_t length = 0;
    uint64_t sum = 0;
    json_t *journal = NULL;
    TRY(labels_text(e, &labels, &length));
    if (!e->kept) TRY(keep_untouched(e));
    journal = json_pack("{ss sI so so sI sO}", "conr", CONR_VERSION, "images", (json_int_t)e->n,
                        "untouched", hex(e->sum), "labels", hex(checksum(labels, length, 0)), "at",
                        (json_int_t)e->at, "edits", e->list);
    if (!journal) TRY(fail_memory("edits.json", 1000));
    TRY(sum_of(journal, &sum));
    journal = json_put(journal, "check", hex(sum));
    text = json_write(journal, JSON_INDENT(1));
    if (!text) TRY(fail_memory("edits.json", 1000));
    TRY(write_file(e, "edits.json", text, strlen(text)));
    e->kept = true;
    e->version++;
    TRY(write_file(e, "labels.csv", labels, length));
done:
    json_decref(journal);
    free(text), free(labels);
    return rc;
}

/* ---- taking everything back ------------------------------------------------------------------ */

int conr_edits_reset(const char *run) {
    int rc = 0;
    file_bytes was = {0};
    folder_lock lock = {0};
    conr_edits e = {.run = (char *)run};
    char *journal = edits_path(&e, "edits.json"), *untouched = edits_path(&e, "untouched.csv");
    if (!journal || !untouched) TRY(fail_memory(run, 4096));
    if (file_is_gone(run))
        TRY(fail(CONR_EFILE, "%s: does not exist; give the folder of a run", run));
    TRY(folder_lock_take(run, &lock));
    if (!file_is_gone(journal)) {
        TRY(checksum_check(run, "untouched.csv", "DONE"));
        TRY(file_read_whole(untouched, &was));
        TRY(write_file(&e, "labels.csv", was.data, was.n));
        if (unlink(journal))
            TRY(fail(CONR_EFILE, "%s: cannot be removed: %s; check the folder", journal,
                     strerror(errno)));
    }
    TRY(rename_in_done(&e, "untouched.csv", "labels.csv"));
    unlink(untouched); /* may not exist */
done:
    folder_lock_drop(&lock);
    file_bytes_free(&was);
    free(journal), free(untouched);
    return rc;
}
