/* serve_write.c: decisions, and what is written elsewhere: folders, lists of a selection. */
#include "serve.h"

#include "run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The images of a request: [count] numbers, released by free; NULL: there are none, or one is not a
 * number of an image. */
static int64_t *images_of(const server *s, const json_t *body, int64_t *count) {
    const json_t *list = json_object_get(body, "images"), *value;
    size_t n = json_array_size(list), j;
    int64_t *out = n ? malloc(n * sizeof *out) : NULL;
    *count = (int64_t)n;
    if (!out) return NULL;
    json_array_foreach(list, j, value) {
        out[j] = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
        if (out[j] < 0 || out[j] >= s->first.n) {
            free(out);
            return NULL;
        }
    }
    return out;
}

static int whole(const json_t *body, const char *key) {
    const json_t *v = json_object_get(body, key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    return n >= 0 && n <= INT_MAX ? (int)n : -1;
}

static int merge(server *s, const json_t *body) {
    const json_t *list = json_object_get(body, "clusters"), *value;
    size_t n = json_array_size(list), j;
    int *all = malloc((n + 1) * sizeof *all), rc;
    if (!all) return 1;
    json_array_foreach(list, j, value) {
        json_int_t k = json_is_integer(value) ? json_integer_value(value) : -1;
        all[j] = k >= 0 && k <= INT_MAX ? (int)k : -1;
    }
    rc = n <= INT_MAX ? conr_edits_merge(s->edits, all, (int)n) : 1;
    free(all);
    return rc;
}

/* 0, the code of a failure, or 1: no such decision. */
static int decide(server *s, const char *word, const json_t *body) {
    static const char *const marks[] = {"none", "outlier", "wrong"};
    const char *name = json_string_value(json_object_get(body, "name"));
    if (!strcmp(word, "rename"))
        return conr_edits_rename(s->edits, whole(body, "cluster"), name ? name : "");
    if (!strcmp(word, "merge")) return merge(s, body);
    if (!strcmp(word, "split"))
        return conr_edits_split(s->c, s->edits, whole(body, "cluster"), whole(body, "k"), 1);
    if (!strcmp(word, "clusters")) return conr_edits_clusters(s->c, s->edits, whole(body, "K"), 1);
    if (!strcmp(word, "undo")) return conr_edits_undo(s->edits);
    if (!strcmp(word, "redo")) return conr_edits_redo(s->edits);
    bool move = !strcmp(word, "move");
    if (!move && strcmp(word, "mark")) return 1;
    int64_t count, *images = images_of(s, body, &count);
    if (!images) return 1;
    const char *as = json_string_value(json_object_get(body, "as"));
    int mark = -1, rc;
    for (int m = 0; as && m < 3; m++)
        if (!strcmp(as, marks[m])) mark = m;
    rc = move ? conr_edits_move(s->edits, images, count, whole(body, "to"), name)
              : conr_edits_mark(s->edits, images, count, mark);
    free(images);
    return rc;
}

static int do_decide(server *s, const json_t *body, answer *a) {
    const char *word = json_string_value(json_object_get(body, "do"));
    if (s->read_only) return answer_error(a, 403, "opened with --read-only; nothing is changed");
    if (!word) return answer_error(a, 400, "do: is missing");
    pthread_mutex_lock(&s->lock);
    int rc = decide(s, word, body);
    json_t *state = rc == 0 ? serve_state(s) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (rc > 0) return answer_error(a, 400, "no such decision, or no such images");
    if (rc < 0) return answer_error(a, 409, "%s", conr_error());
    return answer_json(a, state);
}

/* ---- elsewhere ------------------------------------------------------------------------------- */

static void write_cell(FILE *f, const char *text) {
    bool quoted = !*text || strpbrk(text, ",\"\r\n") || *text == ' ';
    if (quoted) fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    if (quoted) fputc('"', f);
}

/* The selection as CSV, or only its paths, one per line. */
static int do_list(server *s, const json_t *body, bool csv, answer *a) {
    int64_t count, *images = images_of(s, body, &count);
    char *text = NULL;
    size_t length = 0;
    if (!images) return answer_error(a, 400, "images: select some");
    FILE *f = open_memstream(&text, &length);
    if (f && csv) fputs("path,cluster,distance,boundary,name,mark,untouched\n", f);
    pthread_mutex_lock(&s->lock);
    for (int64_t j = 0; f && j < count; j++) {
        static const char *const marks[] = {"", "outlier", "wrong"};
        int64_t i = images[j];
        conr_edits_image m;
        conr_edits_row(s->edits, i, &m);
        int k = conr_edits_labels(s->edits)[i];
        const char *name = conr_edits_name(s->edits, k);
        if (!csv) {
            fprintf(f, "%s\n", m.path);
            continue;
        }
        write_cell(f, m.path);
        fprintf(f, ",%d,%.6g,%.6g,", k, m.distance, m.boundary);
        if (name) write_cell(f, name);
        fprintf(f, ",%s,%d\n", marks[conr_edits_marks(s->edits)[i]],
                conr_edits_untouched(s->edits)[i]);
    }
    pthread_mutex_unlock(&s->lock);
    free(images);
    if (f && fclose(f)) free(text), text = NULL;
    if (!text) return answer_error(a, 500, "out of memory");
    *a = (answer){.status = 200,
                  .type = csv ? "text/csv; charset=utf-8" : "text/plain; charset=utf-8",
                  .bytes = text,
                  .n = length,
                  .download = csv ? "selection.csv" : NULL};
    return 0;
}

/* Into folders, by the rules of --sort-into: the folder must be empty or not exist. */
static int do_sort(server *s, const json_t *body, answer *a) {
    const char *folder = json_string_value(json_object_get(body, "folder"));
    int copy = json_is_true(json_object_get(body, "copy")), rc = -1;
    conr_images_info about;
    conr_edits_info e;
    if (s->read_only) return answer_error(a, 403, "opened with --read-only; nothing is written");
    if (!folder || folder[0] != '/')
        return answer_error(a, 400, "folder: give its whole path, from / on");
    if (!work_wait_images(s)) return answer_error(a, 409, "%s", s->images.why);
    conr_images_about(s->m, &about);
    pthread_mutex_lock(&s->lock);
    conr_edits_about(s->edits, &e);
    int32_t *labels = malloc(((size_t)about.n + 1) * sizeof *labels);
    const char **names = malloc(((size_t)e.next + 1) * sizeof *names);
    int64_t sorted = 0;
    if (labels && names) {
        for (int64_t i = 0; i < about.n; i++) labels[i] = -3;
        for (int64_t i = 0; i < s->first.n; i++) {
            int mark = conr_edits_marks(s->edits)[i];
            if (s->at[i] < 0) continue;
            labels[s->at[i]] = mark ? -mark : conr_edits_labels(s->edits)[i];
            sorted++;
        }
        for (int k = 0; k < e.next; k++) names[k] = conr_edits_name(s->edits, k);
        run_make_parents(folder);
        rc = conr_sort_named(s->c, s->m, labels, about.n, names, e.next, folder, copy);
    }
    pthread_mutex_unlock(&s->lock);
    free(labels), free(names);
    if (rc < 0) return answer_error(a, 409, "%s", conr_error());
    return answer_json(
        a, json_pack("{sI so}", "sorted", (json_int_t)sorted, "folder", json_name(folder)));
}

int serve_write(server *s, const char *path, const json_t *body, answer *a) {
    if (!strcmp(path, "do")) return do_decide(s, body, a);
    if (!strcmp(path, "csv")) return do_list(s, body, true, a);
    if (!strcmp(path, "paths")) return do_list(s, body, false, a);
    if (!strcmp(path, "sort")) return do_sort(s, body, a);
    if (!strcmp(path, "look"))
        return work_start_looks(s) ? answer_error(a, 500, "no thread can be started")
                                   : answer_json(a, json_object());
    if (!strcmp(path, "quit")) {
        atomic_store(&s->stopping, true);
        return answer_json(a, json_object());
    }
    return answer_error(a, 404, "there is nothing here");
}
