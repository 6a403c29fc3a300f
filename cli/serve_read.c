/* serve_read.c: answers that change nothing. */
#include "serve.h"

#include "text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number from an argument; false: there is none, or it is out of range. */
static bool number(struct MHD_Connection *c, const char *name, int64_t low, int64_t high,
                   int64_t *out) {
    const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
    char *end = NULL;
    long long v = text && (isdigit((unsigned char)*text)) ? strtoll(text, &end, 10) : -1;
    *out = v;
    return end && !*end && v >= low && v <= high;
}

static int bytes(answer *a, const char *type, char *data, size_t n) {
    if (!data) return answer_error(a, 500, "out of memory");
    *a = (answer){.status = 200, .type = type, .bytes = data, .n = n};
    return 0;
}

/* ---- the run --------------------------------------------------------------------------------- */

static json_t *job_json(job *j) {
    int ready = atomic_load(&j->ready);
    return json_pack("{si si ss}", "ready", ready, "percent", atomic_load(&j->percent), "why",
                     ready < 0 ? j->why : "");
}

json_t *serve_state(server *s) {
    conr_edits_info i;
    conr_edits_about(s->edits, &i);
    json_t *clusters = json_array();
    for (int k = 0; k < i.next; k++) {
        const char *name = conr_edits_name(s->edits, k);
        int64_t size = conr_edits_size(s->edits, k);
        if (size == 0 && !name) continue;
        clusters = json_push(clusters, json_pack("{si sI so}", "id", k, "size", (json_int_t)size,
                                                 "name", name ? json_name(name) : json_null()));
    }
    json_t *out =
        json_pack("{sI si si si si si}", "version", (json_int_t)i.version, "clusters", i.clusters,
                  "found", i.found, "next", i.next, "done", i.done, "undone", i.undone);
    out = json_put(out, "undo", i.undo ? json_string(i.undo) : json_null());
    out = json_put(out, "redo", i.redo ? json_string(i.redo) : json_null());
    return json_put(out, "list", clusters);
}

static int give_run(server *s, answer *a) {
    conr_edits_image first;
    int64_t most = -1;
    json_t *classes = json_array();
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->first.n; i++)
        if (conr_edits_row(s->edits, i, &first) == 0 && first.label > most) most = first.label;
    json_t *state = serve_state(s);
    pthread_mutex_unlock(&s->lock);
    bool known = atomic_load(&s->images.ready) == 1;
    for (int64_t k = 0; k <= most && k < 100000; k++) {
        char text[32];
        snprintf(text, sizeof text, "class %lld", (long long)k);
        conr_images_info about = {0};
        if (known) conr_images_about(s->m, &about);
        classes = json_push(classes, known && k < about.classes
                                         ? json_name(conr_images_class(s->m, (int)k, NULL))
                                         : json_string(text));
    }
    char *real = realpath(s->run, NULL);
    json_t *out = json_pack("{so sI sb so so}", "run", json_name(real ? real : s->run), "n",
                            (json_int_t)s->first.n, "readOnly", s->read_only, "classes", classes,
                            "state", state);
    free(real);
    return answer_json(a, out);
}

static int give_jobs(server *s, answer *a) {
    return answer_json(a, json_pack("{so so so}", "images", job_json(&s->images), "map",
                                    job_json(&s->map), "looks", job_json(&s->looks)));
}

/* int32 cluster [n], then the mark of each, uint8 [n]. */
static int give_labels(server *s, answer *a) {
    size_t n = (size_t)s->first.n;
    char *out = malloc(5 * n);
    if (out) {
        pthread_mutex_lock(&s->lock);
        memcpy(out, conr_edits_labels(s->edits), 4 * n);
        memcpy(out + 4 * n, conr_edits_marks(s->edits), n);
        pthread_mutex_unlock(&s->lock);
    }
    return bytes(a, "application/octet-stream", out, 5 * n);
}

/* A number for the ending of a name. */
static unsigned char kind_of(const char *path) {
    static const char *const endings[] = {"jpg", "jpeg", "png",  "webp", "gif",
                                          "bmp", "tif",  "tiff", "heic", "avif"};
    static const unsigned char kind[] = {1, 1, 2, 3, 4, 5, 6, 6, 7, 8};
    const char *dot = strrchr(path, '.');
    for (size_t j = 0; dot && j < sizeof kind; j++)
        if (!strcasecmp(dot + 1, endings[j])) return kind[j];
    return 0;
}

/* float distance [n], float boundary [n], int32 label [n], uint8 kind of file [n]. */
static int give_rows(server *s, answer *a) {
    size_t n = (size_t)s->first.n;
    char *out = malloc(13 * n);
    for (size_t i = 0; out && i < n; i++) {
        conr_edits_image m;
        conr_edits_row(s->edits, (int64_t)i, &m); /* never changes: no lock */
        int32_t label = (int32_t)m.label;
        memcpy(out + 4 * i, &m.distance, 4);
        memcpy(out + 4 * n + 4 * i, &m.boundary, 4);
        memcpy(out + 8 * n + 4 * i, &label, 4);
        out[12 * n + i] = (char)kind_of(m.path);
    }
    return bytes(a, "application/octet-stream", out, 13 * n);
}

static int give_names(server *s, struct MHD_Connection *c, answer *a) {
    int64_t from, to;
    if (!number(c, "from", 0, s->first.n, &from) || !number(c, "to", from, s->first.n, &to) ||
        to - from > 1000)
        return answer_error(a, 400, "from and to: give at most 1000 images");
    json_t *out = json_array();
    for (int64_t i = from; i < to; i++) {
        conr_edits_image m;
        conr_edits_row(s->edits, i, &m);
        out = json_push(out, json_name(m.path));
    }
    return answer_json(a, out);
}

/* ---- searching ------------------------------------------------------------------------------- */

static int give_search(server *s, struct MHD_Connection *c, answer *a) {
    const char *q = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "q");
    if (!q || !*q || strlen(q) > 500) return answer_error(a, 400, "q: give some text");
    json_t *out = json_array();
    int found = 0;
    for (int64_t i = 0; i < s->first.n && found < SEARCH_MOST; i++) {
        conr_edits_image m;
        conr_edits_row(s->edits, i, &m);
        if (!strcasestr(m.path, q)) continue;
        out = json_push(out, json_integer((json_int_t)i));
        found++;
    }
    return answer_json(a, json_pack("{so sb}", "ids", out, "more", found == SEARCH_MOST));
}

typedef struct near {
    float dot;
    int64_t i;
} near;

static int by_dot(const void *a, const void *b) {
    const near *x = a, *y = b;
    if (x->dot != y->dot) return x->dot > y->dot ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

/* The images whose embeddings are nearest to that of one, itself first. */
static int give_near(server *s, struct MHD_Connection *c, answer *a) {
    int64_t own, k, n = s->first.n;
    if (!number(c, "i", 0, n - 1, &own) || !number(c, "k", 1, 1000, &k))
        return answer_error(a, 400, "i and k: give an image and at most 1000 neighbors");
    pthread_mutex_lock(&s->lock); /* they may be arriving; once there, they stay */
    const float *rows = s->features;
    pthread_mutex_unlock(&s->lock);
    if (!rows) return answer_error(a, 503, "the embeddings are still being read");
    near *all = malloc((size_t)n * sizeof *all);
    if (!all) return answer_error(a, 500, "out of memory");
    size_t d = (size_t)s->d;
    const float *x = rows + (size_t)own * d;
    for (int64_t i = 0; i < n; i++) {
        const float *y = rows + (size_t)i * d;
        float dot = 0;
        for (size_t j = 0; j < d; j++) dot += x[j] * y[j];
        all[i] = (near){i == own ? 1e30f : dot, i};
    }
    qsort(all, (size_t)n, sizeof *all, by_dot);
    json_t *out = json_array();
    for (int64_t j = 0; j < k && j < n; j++)
        out = json_push(out, json_integer((json_int_t)all[j].i));
    free(all);
    return answer_json(a, json_pack("{so}", "ids", out));
}

/* ---- pictures -------------------------------------------------------------------------------- */

static int give_thumb(server *s, struct MHD_Connection *c, answer *a) {
    int64_t i;
    char *out = NULL;
    size_t n = 0;
    if (!number(c, "i", 0, s->first.n - 1, &i)) return answer_error(a, 400, "i: give an image");
    if (thumb_of(s, i, &out, &n)) return answer_error(a, 404, "this image is not there any more");
    bytes(a, "image/jpeg", out, n);
    a->cached = true;
    return 0;
}

static int give_image(server *s, struct MHD_Connection *c, answer *a) {
    int64_t i, n = 0;
    unsigned char *out = NULL;
    const char *type;
    if (!number(c, "i", 0, s->first.n - 1, &i)) return answer_error(a, 400, "i: give an image");
    if (!work_wait_images(s) || s->at[i] < 0 ||
        conr_images_picture(s->m, s->at[i], &out, &n, &type) < 0)
        return answer_error(a, 404, "this image is not there any more");
    bytes(a, type, (char *)out, (size_t)n);
    a->cached = true;
    return 0;
}

/* int32 number of points, int32 image of each, float x and y of each. */
static int give_map(server *s, answer *a) {
    int ready = atomic_load(&s->map.ready);
    if (ready < 0) return answer_error(a, 500, "%s", s->map.why);
    if (!ready) return answer_error(a, 503, "the map is being drawn");
    size_t m = (size_t)s->n_points;
    char *out = malloc(4 + 12 * m);
    for (size_t j = 0; out && j < m; j++) {
        int32_t id = (int32_t)s->point[j];
        memcpy(out + 4 + 4 * j, &id, 4);
    }
    if (out) memcpy(out, &(int32_t){(int32_t)m}, 4);
    if (out) memcpy(out + 4 + 4 * m, s->xy, 8 * m);
    return bytes(a, "application/octet-stream", out, 4 + 12 * m);
}

/* ---- looks ----------------------------------------------------------------------------------- */

static int refuse_looks(server *s, answer *a) {
    int ready = atomic_load(&s->looks.ready);
    if (ready == 1) return 0;
    if (ready < 0) return answer_error(a, 500, "%s", s->looks.why), 1;
    return answer_error(a, 503, "the images are being looked at"), 1;
}

/* The row of each image; rows that have none are not in it. */
static int64_t *rows_of(const server *s, int64_t images) {
    int64_t *row = malloc(((size_t)images + 1) * sizeof *row);
    for (int64_t i = 0; row && i < images; i++) row[i] = -1;
    for (int64_t i = 0; row && i < s->first.n; i++)
        if (s->at[i] >= 0) row[s->at[i]] = i;
    return row;
}

/* Groups of rows, the one to keep first. */
static int give_duplicates(server *s, struct MHD_Connection *c, answer *a) {
    const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "t");
    double t = text ? strtod(text, NULL) : 0.97;
    int groups = 0;
    if (refuse_looks(s, a)) return 0;
    int64_t n = conr_looks_get(s->look, 0, NULL);
    conr_duplicate *d = malloc(((size_t)n + 1) * sizeof *d);
    int64_t *row = rows_of(s, n);
    pthread_mutex_lock(&s->look_lock);
    int rc = d && row ? conr_duplicates(s->c, s->look, t, d, &groups) : -1;
    pthread_mutex_unlock(&s->look_lock);
    if (rc < 0) {
        free(d), free(row);
        return answer_error(a, 400, "%s", conr_error());
    }
    json_t **list = calloc((size_t)groups + 1, sizeof *list), *out = json_array();
    for (int g = 0; list && g < groups; g++) list[g] = json_array();
    for (int turn = 0; list && turn < 2; turn++)
        for (int64_t i = 0; i < n; i++)
            if (d[i].group >= 0 && row[i] >= 0 && (d[i].keep == i) == !turn)
                list[d[i].group] =
                    json_push(list[d[i].group], json_pack("[Iif]", (json_int_t)row[i],
                                                          d[i].identical, (double)d[i].similarity));
    for (int g = 0; list && g < groups; g++) {
        if (json_array_size(list[g]) > 1)
            out = json_push(out, list[g]);
        else
            json_decref(list[g]);
    }
    if (!list) json_decref(out), out = NULL;
    free(list), free(d), free(row);
    return answer_json(a, json_pack("{so}", "groups", out));
}

/* uint8 [n]: CONR_LOOK_* of each row. */
static int give_reasons(server *s, answer *a) {
    if (refuse_looks(s, a)) return 0;
    char *out = calloc((size_t)s->first.n, 1);
    for (int64_t i = 0; out && i < s->first.n; i++) {
        conr_look l;
        if (s->at[i] < 0) continue;
        conr_looks_get(s->look, s->at[i], &l);
        out[i] = (char)conr_look_reasons(&l);
    }
    return bytes(a, "application/octet-stream", out, (size_t)s->first.n);
}

int serve_read(server *s, struct MHD_Connection *c, const char *path, answer *a) {
    if (!strcmp(path, "run")) return give_run(s, a);
    if (!strcmp(path, "jobs")) return give_jobs(s, a);
    if (!strcmp(path, "labels")) return give_labels(s, a);
    if (!strcmp(path, "rows")) return give_rows(s, a);
    if (!strcmp(path, "names")) return give_names(s, c, a);
    if (!strcmp(path, "search")) return give_search(s, c, a);
    if (!strcmp(path, "near")) return give_near(s, c, a);
    if (!strcmp(path, "thumb")) return give_thumb(s, c, a);
    if (!strcmp(path, "image")) return give_image(s, c, a);
    if (!strcmp(path, "map")) return give_map(s, a);
    if (!strcmp(path, "duplicates")) return give_duplicates(s, c, a);
    if (!strcmp(path, "reasons")) return give_reasons(s, a);
    return answer_error(a, 404, "there is nothing here");
}
