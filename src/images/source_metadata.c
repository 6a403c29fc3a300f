/* source_metadata.c: labels from metadata.csv or metadata.jsonl beside the images, as Hugging Face's
 * image folders have them: one row per image with its file_name, relative to the metadata, and its
 * label. */
#include "images/source_forms.h"

#include "base/csv.h"
#include "base/csv_labels.h"
#include "base/status.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_LINE = 1 << 20, LONGEST_LABEL = 1000 };
static const char *const label_titles[] = {"label", "labels", "class"};
enum { N_TITLES = sizeof label_titles / sizeof *label_titles };

/* An image below the folder of the metadata. */
typedef struct below {
    const char *name; /* relative to that folder */
    int64_t item;
} below;

typedef struct metadata {
    source *s;
    const char *path;   /* of the file, in messages */
    const char *folder; /* that it lies in, with the last slash */
    below *image;       /* [n], sorted by name; owned */
    size_t n;
    int64_t row;
} metadata;

static int by_name(const void *a, const void *b) {
    return strcmp(((const below *)a)->name, ((const below *)b)->name);
}

static int find_images(metadata *m) {
    size_t length = strlen(m->folder);
    m->image = calloc((size_t)m->s->n + 1, sizeof *m->image);
    if (!m->image) return fail_memory(m->path, (double)m->s->n * sizeof *m->image);
    for (int64_t i = 0; i < m->s->n; i++)
        if (!strncmp(m->s->item[i].path, m->folder, length))
            m->image[m->n++] = (below){m->s->item[i].path + length, i};
    qsort(m->image, m->n, sizeof *m->image, by_name);
    return 0;
}

/* Whether one part of a path is "..". */
static bool climbs(const char *path) {
    for (;; path++) {
        size_t n = strcspn(path, "/");
        if (n == 2 && !memcmp(path, "..", 2)) return true;
        if (!*(path += n)) return false;
    }
}

static int fail_row(const metadata *m, const char *name, const char *why) {
    return fail(CONR_EFORMAT, "%s: row %lld: '%.200s' %s", m->path, (long long)m->row, name, why);
}

/* The row of an image.  label: NULL or "": unknown */
static int add_row(metadata *m, const char *name, const char *label) {
    if (!*name) return fail_row(m, name, "names no file; fill in file_name or remove the row");
    if (*name == '/' || climbs(name))
        return fail_row(m, name, "leaves the folder; give names relative to the metadata");
    while (!strncmp(name, "./", 2)) name += 2;
    below wanted = {.name = name};
    const below *found = bsearch(&wanted, m->image, m->n, sizeof *m->image, by_name);
    if (!found) { /* perhaps of another split, or of a format that is not read */
        const char *path = source_join(m->s, m->folder, name);
        if (!path) return CONR_ENOMEM;
        return access(path, F_OK) == 0
                   ? 0
                   : fail_row(m, name, "is not there; add the file or remove the row");
    }
    if (!label || !*label || !strcmp(label, "-1")) return 0;
    size_t length = strlen(label);
    if (length > LONGEST_LABEL)
        return fail_row(m, name, "has a label of more than 1,000 bytes; shorten it");
    int class = source_class(m->s, label, length);
    int32_t *to = &m->s->item[found->item].label;
    if (class < 0) return class;
    if (*to >= 0 && *to != class)
        return fail_row(m, name, "has two labels; remove one of its rows");
    *to = class;
    return 0;
}

static int fail_no_names(const metadata *m) {
    return fail(CONR_EFORMAT, "%s: has no file_name; add it, or rename the file to have it ignored",
                m->path);
}

static int parse_csv(metadata *m, const unsigned char *bytes, size_t n) {
    int rc = 0, more;
    csv c = {0};
    TRY(csv_parse(m->path, bytes, n, &c));
    TRY(more = csv_next(&c));
    if (more) csv_trim(&c);
    int name = more ? csv_column(&c, "file_name") : -1, label = -1;
    if (name < 0) TRY(fail_no_names(m));
    for (int i = 0; i < N_TITLES && label < 0; i++) label = csv_column(&c, label_titles[i]);
    while ((more = csv_next(&c)) > 0) {
        csv_trim(&c);
        m->row = c.row;
        TRY(add_row(m, c.cell[name], label < 0 ? NULL : c.cell[label]));
    }
    TRY(more);
    rc = 0;
done:
    csv_close(&c);
    return rc;
}

static int add_object(metadata *m, const json_t *o) {
    char number[32];
    const json_t *label = NULL;
    const char *name = json_string_value(json_object_get(o, "file_name")), *text = NULL;
    if (!name) return fail_no_names(m);
    for (int i = 0; i < N_TITLES && !label; i++) label = json_object_get(o, label_titles[i]);
    if (json_is_string(label)) {
        text = json_string_value(label);
    } else if (json_is_integer(label)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(label));
        text = number;
    } else if (label && !json_is_null(label)) {
        return fail_row(m, name, "has a label that is no word and no whole number; make it one");
    }
    return add_row(m, name, text);
}

/* One line, which is copied for the sake of its end. */
static int parse_line(metadata *m, const char *at, size_t n) {
    int rc = 0;
    bool scarce = false;
    json_t *o = NULL;
    char *line = strndup(at, n);
    if (!line) TRY(fail_memory(m->path, (double)n));
    if (line[strspn(line, " \t\r")] || strlen(line) < n) {
        o = strlen(line) < n ? NULL : json_read(line, &scarce);
        if (scarce) TRY(fail_memory(m->path, (double)n));
        if (!json_is_object(o))
            TRY(fail(CONR_EFORMAT, "%s: row %lld is no JSON object; correct it", m->path,
                     (long long)m->row));
        TRY(add_object(m, o));
    }
done:
    json_decref(o);
    free(line);
    return rc;
}

static int parse_jsonl(metadata *m, const unsigned char *bytes, size_t n) {
    int rc = 0;
    const char *at = (const char *)bytes, *end = at + n;
    if (n >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3; /* a byte order mark */
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        m->row++;
        if (length > LONGEST_LINE)
            TRY(fail(CONR_EFORMAT, "%s: row %lld has more than 1 MiB; shorten it", m->path,
                     (long long)m->row));
        TRY(parse_line(m, at, length));
        at = stop ? stop + 1 : end;
    }
done:
    return rc;
}

int metadata_parse(source *s, const char *path, const unsigned char *bytes, size_t n) {
    int rc = 0;
    const char *slash = strrchr(path, '/');
    metadata m = {.s = s, .path = path};
    m.folder = arena_text(source_arena(s), path, slash ? (size_t)(slash + 1 - path) : 0);
    TRY(m.folder ? find_images(&m) : CONR_ENOMEM);
    TRY(name_ends(path, ".csv") ? parse_csv(&m, bytes, n) : parse_jsonl(&m, bytes, n));
    s->memory->numbers = true;
done:
    free(m.image);
    return rc;
}

static const char *const file_names[] = {"metadata.csv", "metadata.jsonl"};

bool folder_has_metadata(const folder *f) {
    return folder_has(f, file_names[0]) || folder_has(f, file_names[1]);
}

int metadata_add(source *s, const char *folder_path) {
    int rc = 0;
    file_bytes file = {0};
    const char *path = NULL;
    for (int i = 0; i < 2; i++) {
        const char *one = source_join(s, folder_path, file_names[i]);
        if (!one) TRY(CONR_ENOMEM);
        if (access(one, F_OK) < 0) continue;
        if (path)
            TRY(fail(CONR_EFORMAT, "%s: is there beside %s; keep one of them", one, file_names[0]));
        path = one;
    }
    if (!path) goto done;
    TRY(file_read_whole(path, &file));
    TRY(source_uses(s, path));
    TRY(metadata_parse(s, path, file.data, file.n));
done:
    file_bytes_free(&file);
    return rc;
}
