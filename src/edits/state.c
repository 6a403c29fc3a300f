/* state.c: decisions applied to the clusters of a run.  A journal may have been written by anybody,
 * so every number and name in it is checked. */
#include "edits/edits.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- images as text -------------------------------------------------------------------------- */

char *ranges_text(const int64_t *image, int64_t n) {
    char *text = NULL;
    size_t length;
    FILE *f = open_memstream(&text, &length);
    if (!f) return NULL;
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && image[j] == image[j - 1] + 1;) j++;
        fprintf(f, j - i > 1 ? "%s%lld-%lld" : "%s%lld", i ? "," : "", (long long)image[i],
                (long long)image[j - 1]);
    }
    bool bad = ferror(f);
    if (fclose(f) || bad) free(text), text = NULL;
    return text;
}

int ranges_read(const char *text, int64_t n, int (*on_image)(int64_t i, void *user), void *user) {
    int64_t after = 0;
    for (const char *at = text; *at;) {
        char *end;
        if (*at < '0' || *at > '9') return 1;
        long long first = strtoll(at, &end, 10), last = first;
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9') return 1;
            last = strtoll(end + 1, &end, 10);
        }
        if (first < after || last < first || last >= n) return 1;
        for (int64_t i = first; i <= last; i++) {
            int rc = on_image(i, user);
            if (rc) return rc;
        }
        after = last + 1;
        if (*end && *end != ',') return 1;
        at = *end ? end + 1 : end;
        if (*end && !*at) return 1; /* a comma at the end */
    }
    return 0;
}

/* ---- clusters and parts ---------------------------------------------------------------------- */

static int grow_clusters(conr_edits *e, int next) {
    char **name = realloc(e->name, (size_t)next * sizeof *name);
    if (name) e->name = name;
    int64_t *size = name ? realloc(e->size, (size_t)next * sizeof *size) : NULL;
    if (size) e->size = size;
    if (!name || !size) return fail_memory("edits", 16.0 * next);
    for (int k = e->next; k < next; k++) e->name[k] = NULL, e->size[k] = 0;
    e->next = next;
    return 0;
}

static int add_part(conr_edits *e, int owner) {
    int32_t *more = realloc(e->owner, ((size_t)e->n_parts + 1) * sizeof *more);
    if (!more) return fail_memory("edits", 4.0 * e->n_parts);
    e->owner = more;
    e->owner[e->n_parts] = owner;
    return e->n_parts++;
}

static void count(conr_edits *e) {
    for (int k = 0; k < e->next; k++) e->size[k] = 0;
    for (int64_t i = 0; i < e->n; i++) {
        e->label[i] = e->mark[i] ? -1 : e->cluster[i];
        if (!e->mark[i]) e->size[e->cluster[i]]++;
    }
}

int edits_begin(conr_edits *e) {
    int rc = 0;
    for (int k = 0; k < e->next; k++) free(e->name[k]);
    e->next = e->n_parts = 0;
    TRY(grow_clusters(e, e->K));
    for (int k = 0; k < e->K; k++) TRY(add_part(e, k));
    rc = 0;
    memcpy(e->cluster, e->untouched, (size_t)e->n * sizeof *e->cluster);
    memcpy(e->part, e->untouched, (size_t)e->n * sizeof *e->part);
    memset(e->mark, 0, (size_t)e->n);
    count(e);
done:
    return rc;
}

/* ---- reading decisions ----------------------------------------------------------------------- */

static int refuse(const char *what) {
    return fail(CONR_EINVAL, "edit: %s; reload the page, or give others", what);
}

/* A cluster that exists; new_too: or the next number, which begins one. */
static int read_cluster(conr_edits *e, const json_t *value, bool new_too, int *out) {
    json_int_t k = json_is_integer(value) ? json_integer_value(value) : -1;
    if (k < 0 || k > e->next - (new_too ? 0 : 1)) return refuse("there is no such cluster");
    if (k >= EDITS_CLUSTERS) return refuse("there are too many clusters");
    *out = (int)k;
    return k == e->next ? grow_clusters(e, e->next + 1) : 0;
}

static bool is_control(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) return true;
    return false;
}

static int set_name(conr_edits *e, int cluster, const char *name) {
    char *copy = NULL;
    if (strlen(name) > EDITS_NAME || is_control(name))
        return refuse("a name has at most 200 bytes and no control characters");
    if (*name && !(copy = strdup(name))) return fail_memory("name", EDITS_NAME);
    free(e->name[cluster]);
    e->name[cluster] = copy;
    return 0;
}

typedef struct setting {
    conr_edits *e;
    int cluster, part; /* part: -1, as it is */
    int mark;          /* -1: as it is */
} setting;

static int set_image(int64_t i, void *user) {
    const setting *s = user;
    if (s->mark >= 0) s->e->mark[i] = (unsigned char)s->mark;
    if (s->cluster >= 0) s->e->cluster[i] = s->cluster;
    if (s->part >= 0) s->e->part[i] = s->part;
    return 0;
}

static int check_image(int64_t i, void *user) {
    (void)i;
    *(bool *)user = true;
    return 0;
}

/* Applies s to the images of a text, which has at least one. */
static int set_images(conr_edits *e, const json_t *text, setting s) {
    bool any = false;
    if (!json_is_string(text) ||
        ranges_read(json_string_value(text), e->n, check_image, &any) != 0 || !any)
        return refuse("its images are not some of the run");
    s.e = e;
    return ranges_read(json_string_value(text), e->n, set_image, &s);
}

/* ---- the decisions --------------------------------------------------------------------------- */

static int apply_rename(conr_edits *e, const json_t *d) {
    int rc = 0, k;
    const char *name = json_string_value(json_object_get(d, "name"));
    TRY(read_cluster(e, json_object_get(d, "cluster"), false, &k));
    TRY(name ? set_name(e, k, name) : refuse("it has no name"));
done:
    return rc;
}

static int apply_merge(conr_edits *e, const json_t *d) {
    int rc = 0, into = -1;
    const json_t *all = json_object_get(d, "clusters"), *value;
    size_t j;
    if (json_array_size(all) < 2) TRY(refuse("a merge takes two clusters"));
    json_array_foreach(all, j, value) {
        int k;
        TRY(read_cluster(e, value, false, &k));
        if (j == 0) {
            into = k;
            continue;
        }
        if (k == into) TRY(refuse("a merge takes different clusters"));
        for (int64_t i = 0; i < e->n; i++)
            if (e->cluster[i] == k) e->cluster[i] = into;
        for (int p = 0; p < e->n_parts; p++)
            if (e->owner[p] == k) e->owner[p] = into;
        if (!e->name[into] && e->name[k])
            e->name[into] = e->name[k];
        else
            free(e->name[k]);
        e->name[k] = NULL;
    }
done:
    return rc;
}

/* Pieces of a split, or the clusters of another K: "into" are their numbers, "members" their images.
 * Every piece becomes a part. */
static int apply_pieces(conr_edits *e, const json_t *d) {
    int rc = 0;
    const json_t *into = json_object_get(d, "into"), *members = json_object_get(d, "members");
    if (json_array_size(into) < 1 || json_array_size(into) != json_array_size(members))
        TRY(refuse("its pieces are not complete"));
    for (size_t j = 0; j < json_array_size(into); j++) {
        int k, part;
        TRY(read_cluster(e, json_array_get(into, j), true, &k));
        if (e->n_parts >= EDITS_CLUSTERS) TRY(refuse("there are too many clusters"));
        TRY(part = add_part(e, k));
        TRY(set_images(e, json_array_get(members, j),
                       (setting){.cluster = k, .part = part, .mark = -1}));
    }
done:
    return rc < 0 ? rc : 0;
}

static int apply_split(conr_edits *e, const json_t *d) {
    int rc = 0, k;
    TRY(read_cluster(e, json_object_get(d, "cluster"), false, &k));
    for (int p = 0; p < e->n_parts; p++)
        if (e->owner[p] == k) e->owner[p] = -1;
    TRY(apply_pieces(e, d));
done:
    return rc;
}

static int apply_clusters(conr_edits *e, const json_t *d) {
    int rc = 0;
    bool *used = NULL;
    for (int p = 0; p < e->n_parts; p++) e->owner[p] = -1;
    TRY(apply_pieces(e, d));
    used = calloc((size_t)e->next, sizeof *used);
    if (!used) TRY(fail_memory("edits", e->next));
    for (int64_t i = 0; i < e->n; i++) used[e->cluster[i]] = true;
    for (int k = 0; k < e->next; k++)
        if (!used[k]) free(e->name[k]), e->name[k] = NULL;
done:
    free(used);
    return rc;
}

static int apply_move(conr_edits *e, const json_t *d) {
    int rc = 0, to, before = e->next, part = -1;
    bool *left = NULL;
    TRY(read_cluster(e, json_object_get(d, "to"), true, &to));
    if (to == before) TRY(part = add_part(e, to)); /* a new one, which new images may be like */
    TRY(set_images(e, json_object_get(d, "images"),
                   (setting){.cluster = to, .part = part, .mark = CONR_MARK_NONE}));
    left = calloc((size_t)e->next, sizeof *left);
    if (!left) TRY(fail_memory("edits", e->next));
    for (int64_t i = 0; i < e->n; i++) left[e->cluster[i]] = true;
    for (int p = 0; p < e->n_parts; p++) /* what has no image left has become part of this one */
        if (e->owner[p] >= 0 && !left[e->owner[p]]) e->owner[p] = to;
    const char *name = json_string_value(json_object_get(d, "name"));
    if (name && to == before) TRY(set_name(e, to, name));
    rc = 0;
done:
    free(left);
    return rc;
}

static int apply_mark(conr_edits *e, const json_t *d) {
    static const char *const words[] = {"none", "outlier", "wrong"};
    const char *as = json_string_value(json_object_get(d, "as"));
    for (int m = 0; as && m < 3; m++)
        if (!strcmp(as, words[m]))
            return set_images(e, json_object_get(d, "images"),
                              (setting){.cluster = -1, .part = -1, .mark = m});
    return refuse("an image is marked as outlier, wrong or none");
}

int edits_apply(conr_edits *e, const json_t *d) {
    static const struct {
        const char *word;
        int (*apply)(conr_edits *e, const json_t *d);
    } all[] = {{"rename", apply_rename}, {"merge", apply_merge}, {"split", apply_split},
               {"move", apply_move},     {"mark", apply_mark},   {"clusters", apply_clusters}};
    const char *word = json_string_value(json_object_get(d, "do"));
    for (size_t j = 0; word && j < sizeof all / sizeof *all; j++)
        if (!strcmp(word, all[j].word)) {
            int rc = all[j].apply(e, d);
            if (rc == 0) count(e);
            return rc;
        }
    return refuse("it is none that this version knows");
}

int edits_replay(conr_edits *e) {
    int rc = edits_begin(e);
    for (size_t j = 0; rc == 0 && j < e->at; j++) rc = edits_apply(e, json_array_get(e->list, j));
    return rc;
}
