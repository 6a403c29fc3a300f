/* data.c: see data.h. */
#include "report/data.h"

#include "base/file.h"
#include "base/status.h"
#include "json/json.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* JSON strings are UTF-8; text that is not becomes null, and so does none. */
static json_t *text_json(const char *text) {
    bool odd;
    json_t *exact = text ? json_text(text, &odd) : json_null();
    return exact || !odd ? exact : json_null();
}

int report_write_data(const source *s, const char *run) {
    int rc = 0;
    char path[PATH_MAX], *real = realpath(s->path, NULL), *text = NULL;
    file_new f = {0};
    json_t *classes = json_array(), *reasons = json_array(), *o = NULL;
    if (!real && errno == ENOMEM) TRY(fail_memory(s->path, PATH_MAX));
    for (int i = 0; i < s->n_classes; i++) {
        bool odd;
        json_t *name = json_text(s->class_name[i], &odd);
        classes = json_push(classes, odd ? json_string("?") : name);
    }
    for (int i = 0; i < s->n_reasons && i < DATA_REASONS; i++)
        reasons = json_push(reasons, text_json(s->reason[i]));
    o = json_pack("{so ss sI sI so s[ii] s[ii] si so}", "path", text_json(real ? real : s->path),
                  "kind", s->words, "images", (json_int_t)s->n, "skipped", (json_int_t)s->skipped,
                  "skipped_files", reasons, "width", s->w_low, s->w_high, "height", s->h_low,
                  s->h_high, "channels", s->gray ? 1 : 3, "classes", classes);
    text = json_write(o, JSON_INDENT(2));
    snprintf(path, sizeof path, "%s/data.json", run);
    if (!text) TRY(fail_memory(path, 1000));
    TRY(file_new_open(&f, path));
    fprintf(f.stream, "%s\n", text);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    json_decref(o);
    free(text), free(real);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A copy of a text of o; none becomes NULL. */
static int keep(arena *memory, const json_t *text, const char **out) {
    const char *from = json_string_value(text);
    *out = from ? arena_text(memory, from, strlen(from)) : NULL;
    return from && !*out ? CONR_ENOMEM : 0;
}

static void two_ints(const json_t *pair, int out[2]) {
    for (size_t i = 0; i < 2; i++) out[i] = (int)json_integer_value(json_array_get(pair, i));
}

int data_read(const char *path, arena *memory, folder_data *d) {
    int rc = 0;
    bool scarce = false;
    file_bytes file = {0};
    json_t *o = NULL;
    if (!file_is_gone(path)) {
        TRY(file_read_whole(path, &file));
        file.data[file.n] = 0;
        o = json_read((const char *)file.data, &scarce);
    }
    if (scarce) TRY(fail_memory(path, 1000));
    const json_t *classes = json_object_get(o, "classes"), *name;
    const json_t *reasons = json_object_get(o, "skipped_files");
    size_t i;
    TRY(keep(memory, json_object_get(o, "path"), &d->path));
    TRY(keep(memory, json_object_get(o, "kind"), &d->words));
    d->skipped = json_integer_value(json_object_get(o, "skipped"));
    d->channels = (int)json_integer_value(json_object_get(o, "channels"));
    two_ints(json_object_get(o, "width"), d->width);
    two_ints(json_object_get(o, "height"), d->height);
    d->class_name = arena_alloc(memory, (json_array_size(classes) + 1) * sizeof(char *));
    if (!d->class_name) TRY(CONR_ENOMEM);
    json_array_foreach(classes, i, name) {
        const char **at = &d->class_name[d->n_classes++];
        TRY(keep(memory, name, at));
        if (!*at) *at = "?";
    }
    d->reason = arena_alloc(memory, DATA_REASONS * sizeof *d->reason);
    if (!d->reason) TRY(CONR_ENOMEM);
    if (!reasons) { /* a run of an earlier version names the first only */
        TRY(keep(memory, json_object_get(o, "first_skipped"), d->reason));
        d->n_reasons = *d->reason != NULL;
    }
    json_array_foreach(reasons, i, name) {
        if (d->n_reasons == DATA_REASONS) break;
        TRY(keep(memory, name, &d->reason[d->n_reasons]));
        d->n_reasons += d->reason[d->n_reasons] != NULL; /* a name that is not UTF-8 is null */
    }
done:
    file_bytes_free(&file);
    json_decref(o);
    return rc;
}
