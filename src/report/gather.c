/* gather.c: gathers what a report shows (src/report/ writes it): pictures, the map, neighbors,
 * purity, from a run's folder and its images. */
#include "report/gather.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "images/images.h"
#include "report/html.h"
#include "report/report.h"
#include "report/tsne.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    POOL = 100000,       /* images that neighbors are looked for among; beyond, a sample */
    TELLING = 6,         /* images whose two neighborhoods differ most, and */
    DRAWN = 4,           /* others, shown with their neighbors */
    SHEET_CLUSTERS = 200 /* clusters that are shown: the largest */
};
static const size_t SHEET_BYTES = 9 << 20; /* of the map's pictures, before base64 */

/* ---- what the images are: data.json ---------------------------------------------------------- */

static json_t *text_json(const char *text) {
    json_t *exact = text ? json_string(text) : NULL;
    return exact ? exact : json_null(); /* what is no UTF-8 cannot be said in JSON */
}

int report_write_data(const source *s, const char *run) {
    int rc = 0;
    char path[PATH_MAX], *real = realpath(s->path, NULL), *text = NULL;
    file_new f = {0};
    json_t *classes = json_array();
    for (int i = 0; i < s->n_classes; i++) {
        json_t *name = json_string(s->class_name[i]);
        json_array_append_new(classes, name ? name : json_string("?"));
    }
    json_t *o =
        json_pack("{so ss sI sI so s[ii] s[ii] si so}", "path", text_json(real), "kind", s->words,
                  "images", (json_int_t)s->n, "skipped", (json_int_t)s->skipped, "first_skipped",
                  text_json(s->first_skipped), "width", s->w_low, s->w_high, "height", s->h_low,
                  s->h_high, "channels", s->gray ? 1 : 3, "classes", classes);
    text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
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

/* ---- pictures -------------------------------------------------------------------------------- */

/* From the images' files, or as the training has them in memory. */
typedef struct pictures {
    const source *source;
    const store *store;
    int64_t *at;          /* [n]: row i is the source's image at[i], -1: gone; NULL: i itself */
    int channels, native; /* shortest side that any image has */
} pictures;

static int read_picture(void *user, int64_t i, int least, image *out) {
    const pictures *p = user;
    if (p->at) i = p->at[i];
    if (i < 0) return 1;
    if (!p->store) return source_read(p->source, i, p->channels, least, out) < 0;
    const stored *s = &p->store->image[i];
    if (image_reserve(out, s->w, s->h, p->store->c) < 0) return 1;
    memcpy(out->pixels, s->pixels, (size_t)s->w * s->h * p->store->c);
    return 0;
}

static thumbs_source thumbs_from(const pictures *p) {
    return (thumbs_source){read_picture, (void *)p, p->channels};
}

typedef struct named {
    const char *name;
    int64_t at;
} named;

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* The folders that all names share. */
static size_t shared_folders(const named *list, int64_t n) {
    size_t shared = n ? strlen(list[0].name) : 0;
    for (int64_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < shared && list[i].name[k] == list[0].name[k]) k++;
        shared = k;
    }
    while (shared > 0 && list[0].name[shared - 1] != '/') shared--;
    return shared;
}

/* Finds the run's images in a source by their names, without the folders that all of them share: a
 * source may have moved, and images may have been dropped from a training. */
static int match_images(const folder *f, const source *s, pictures *p, int64_t *found) {
    int rc = 0;
    arena names = {0};
    char buffer[PATH_MAX];
    named *own = calloc((size_t)s->n + 1, sizeof *own);
    named *wanted = calloc((size_t)f->n + 1, sizeof *wanted);
    *found = 0;
    p->at = calloc((size_t)f->n + 1, sizeof *p->at);
    if (!own || !wanted || !p->at) TRY(fail_memory("images", 40.0 * (double)f->n));
    for (int64_t i = 0; i < s->n; i++) {
        const char *name = source_name(s, i, buffer, sizeof buffer);
        own[i] = (named){arena_text(&names, name, strlen(name)), i};
        if (!own[i].name) TRY(CONR_ENOMEM);
    }
    for (int64_t i = 0; i < f->n; i++) wanted[i].name = f->image[i];
    size_t skip = shared_folders(own, s->n), skip_wanted = shared_folders(wanted, f->n);
    for (int64_t i = 0; i < s->n; i++) own[i].name += skip;
    qsort(own, (size_t)s->n, sizeof *own, by_name);
    for (int64_t i = 0; i < f->n; i++) {
        named key = {f->image[i] + skip_wanted, 0};
        const named *at = bsearch(&key, own, (size_t)s->n, sizeof *own, by_name);
        p->at[i] = at ? at->at : -1;
        *found += at != NULL;
    }
done:
    free(own), free(wanted);
    arena_free(&names);
    return rc;
}

/* ---- clusters -------------------------------------------------------------------------------- */

typedef struct ranked {
    double value;
    int64_t id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *l = a, *r = b;
    if (l->value != r->value) return l->value < r->value ? -1 : 1;
    return (l->id > r->id) - (l->id < r->id);
}

static int take(const ranked *list, int64_t n, int most, int64_t **out, int *count) {
    *count = n < most ? (int)n : most;
    *out = memory_new("clusters", (size_t)*count + 1, sizeof **out);
    for (int i = 0; *out && i < *count; i++) (*out)[i] = list[i].id;
    return *out ? 0 : CONR_ENOMEM;
}

/* Sizes, and the images to show of the largest clusters. */
static int gather_clusters(report *r) {
    int rc = 0, central = r->K <= 20 ? 24 : r->K <= 60 ? 16 : 10, boundary = central / 2;
    const folder *f = r->f;
    ranked *list = malloc((size_t)r->n * sizeof *list), *order = NULL;
    r->cluster = calloc((size_t)r->K, sizeof *r->cluster);
    order = calloc((size_t)r->K, sizeof *order);
    if (!list || !order || !r->cluster) TRY(fail_memory("clusters", 16.0 * (double)r->n));
    for (int64_t i = 0; i < r->n; i++) r->cluster[f->cluster[i]].size++;
    for (int k = 0; k < r->K; k++) order[k] = (ranked){-(double)r->cluster[k].size, k};
    qsort(order, (size_t)r->K, sizeof *order, by_rank);
    for (int k = 0; k < r->K && k < SHEET_CLUSTERS; k++) {
        report_cluster *c = &r->cluster[order[k].id];
        int64_t m = 0, own = c->size;
        for (int64_t i = 0; i < r->n; i++)
            if (f->cluster[i] == order[k].id) list[m++] = (ranked){f->distance[i], i};
        qsort(list, (size_t)own, sizeof *list, by_rank);
        TRY(take(list, own, central, &c->central, &c->n_central));
        for (int64_t i = 0; i < own; i++) list[i].value = -f->boundary[list[i].id];
        qsort(list, (size_t)own, sizeof *list, by_rank);
        if (own > central) TRY(take(list, own, boundary, &c->boundary, &c->n_boundary));
    }
done:
    free(list), free(order);
    return rc;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static int gather_scores(conr *c, report *r) {
    int rc = 0;
    const folder *f = r->f;
    int64_t *cluster = memory_new("scores", (size_t)r->n, sizeof *cluster), left;
    r->kept = malloc((size_t)r->n);
    if (!cluster || !r->kept) TRY(fail_memory("scores", 9.0 * (double)r->n));
    for (int64_t i = 0; i < r->n; i++) cluster[i] = f->cluster[i];
    r->labeled = f->label != NULL;
    r->silhouette = NAN;
    int used = 0;
    for (int k = 0; k < r->K; k++) used += r->cluster[k].size > 0;
    if (r->labeled) {
        TRY(conr_metrics(f->label, cluster, r->n, &r->scores));
        TRY(conr_confusion_make(f->label, cluster, r->n, &r->confusion));
    } else if (used > 1) {
        TRY(conr_silhouette(c, f->features, r->n, f->d, CONR_COSINE, f->cluster,
                            (uint64_t)f->o.seed, &r->silhouette, NULL));
    }
    r->fraction = f->o.fr0 > 0 && f->o.fr0 < 1 ? f->o.fr0 : 0.8;
    left = conr_boundary_keep(f->boundary, r->n, r->fraction, r->kept, NULL);
    TRY(left < 0 ? (int)left : 0);
    r->n_boundary = r->n - left;
done:
    free(cluster);
    return rc;
}

/* ---- neighbors ------------------------------------------------------------------------------- */

/* A part of the images, drawn without regard to anything but the seed; all where they are few. */
typedef struct sample {
    int64_t *id;           /* [n] ascending; owned */
    const float *features; /* [n,d] */
    float *owned;          /* those, where they had to be copied */
    int n;
} sample;

static int by_id(const void *a, const void *b) {
    int64_t l = *(const int64_t *)a, r = *(const int64_t *)b;
    return (l > r) - (l < r);
}

static int sample_draw(const folder *f, int most, sample *s) {
    s->n = f->n < most ? (int)f->n : most;
    s->id = memory_new("sample", (size_t)s->n, sizeof *s->id);
    if (!s->id) return CONR_ENOMEM;
    rng_order o = rng_order_make((uint64_t)f->o.seed, 0, (uint32_t)f->n);
    for (int i = 0; i < s->n; i++)
        s->id[i] = s->n < f->n ? (int64_t)rng_order_at(&o, (uint32_t)i) : i;
    qsort(s->id, (size_t)s->n, sizeof *s->id, by_id);
    s->features = f->features;
    if (s->n == f->n) return 0;
    s->owned = memory_new("sample", (size_t)s->n * f->d, sizeof *s->owned);
    if (!s->owned) return CONR_ENOMEM;
    for (int i = 0; i < s->n; i++)
        memcpy(s->owned + (size_t)i * f->d, f->features + s->id[i] * f->d,
               (size_t)f->d * sizeof *s->owned);
    s->features = s->owned;
    return 0;
}

static void sample_free(sample *s) { free(s->id), free(s->owned); }

/* The two neighborhoods of every image of a sample. */
typedef struct lists {
    int32_t *near[2]; /* [n,k] by distance (wide: [n,wide]), by affinity */
    int k, wide;
} lists;

static int find_lists(conr *c, const folder *f, const sample *s, int wide, lists *l) {
    int rc = 0;
    conr_neighbors_options o = conr_neighbors_defaults();
    l->k = s->n < REPORT_PURITY + 1 ? s->n : REPORT_PURITY + 1;
    l->wide = wide > l->k ? wide : l->k;
    for (int kind = 0; kind < 2; kind++) {
        o.local = kind == 0;
        o.k = kind == 0 ? l->wide : l->k;
        if (kind == 1) {
            o.k1 = f->o.k1, o.k2 = f->o.k2, o.layers = f->o.layers;
            o.alpha = f->o.alpha, o.resymmetrize = f->o.resymmetrize;
        }
        l->near[kind] = memory_new("neighbors", (size_t)s->n * o.k, sizeof **l->near);
        TRY(l->near[kind] ? 0 : CONR_ENOMEM);
        TRY(conr_neighbors(c, s->features, s->n, f->d, &o, l->near[kind]));
    }
done:
    return rc;
}

static const int32_t *list_of(const lists *l, int kind, int i) {
    return l->near[kind] + (size_t)i * (kind == 0 ? l->wide : l->k);
}

static int gather_purity(report *r, const sample *s, const lists *l) {
    int rc = 0, k = l->k;
    double purity[REPORT_PURITY + 1];
    int32_t *ids = memory_new("purity", (size_t)s->n * k, sizeof *ids);
    int64_t *label = memory_new("purity", (size_t)s->n, sizeof *label);
    unsigned char *kept = malloc((size_t)s->n);
    if (!ids || !label || !kept) TRY(fail_memory("purity", 4.0 * s->n * k));
    for (int i = 0; i < s->n; i++) {
        label[i] = r->f->label[s->id[i]];
        kept[i] = r->kept[s->id[i]];
    }
    for (int which = 0; which < 4 && k > 1; which++) {
        for (int i = 0; i < s->n; i++)
            memcpy(ids + (size_t)i * k, list_of(l, which & 1, i), (size_t)k * sizeof *ids);
        TRY(conr_purity(ids, s->n, k, label, which & 2 ? kept : NULL, purity));
        for (int at = 1; at < k; at++) TRY(series_add(&r->purity[which], at, purity[at - 1]));
    }
done:
    free(ids), free(label), free(kept);
    return rc;
}

/* How much the second neighborhood has to show for an image: right ones (or, without labels, any)
 * that are not among the nearest, less those that it lost. */
static double telling(const report *r, const sample *s, const lists *l, int i, int shown) {
    const int32_t *near = list_of(l, 0, i), *affine = list_of(l, 1, i);
    int fresh = 0, right[2] = {0};
    int64_t own = r->labeled ? r->f->label[s->id[i]] : -1;
    for (int at = 1; at <= shown; at++) {
        bool among = false;
        for (int b = 1; b <= shown; b++) among = among || near[b] == affine[at];
        fresh += !among;
        if (own >= 0) {
            right[0] += r->f->label[s->id[near[at]]] == own;
            right[1] += r->f->label[s->id[affine[at]]] == own;
        }
    }
    return own >= 0 ? right[1] - right[0] + 0.01 * fresh : fresh;
}

static void add_query(report *r, const sample *s, const lists *l, int i, int shown) {
    report_query *q = &r->query[r->n_queries++];
    q->id = s->id[i];
    for (int kind = 0; kind < 2; kind++)
        for (int at = 0; at < REPORT_NEAR; at++)
            q->near[kind][at] = at < shown ? s->id[list_of(l, kind, i)[at + 1]] : -1;
}

/* The most telling ones, of as many clusters as there are; then some drawn at random. */
static int gather_queries(report *r, const sample *s, const lists *l) {
    int rc = 0, shown = l->k - 1 < REPORT_NEAR ? l->k - 1 : REPORT_NEAR;
    ranked *list = malloc((size_t)s->n * sizeof *list);
    bool *used = calloc((size_t)r->K, sizeof *used);
    r->query = calloc(TELLING + DRAWN, sizeof *r->query);
    if (!list || !used || !r->query) TRY(fail_memory("neighbors", 16.0 * s->n));
    if (shown < 1) goto done;
    for (int i = 0; i < s->n; i++) list[i] = (ranked){-telling(r, s, l, i, shown), i};
    qsort(list, (size_t)s->n, sizeof *list, by_rank);
    int clusters = 0;
    for (int i = 0; i < s->n && r->n_queries < TELLING; i++) {
        int k = r->f->cluster[s->id[list[i].id]];
        if (used[k] && clusters < r->K) continue;
        clusters += !used[k];
        used[k] = true;
        add_query(r, s, l, (int)list[i].id, shown);
    }
    r->n_telling = r->n_queries;
    rng_order o = rng_order_make((uint64_t)r->f->o.seed, 1, (uint32_t)s->n);
    for (int i = 0; i < s->n && r->n_queries < r->n_telling + DRAWN; i++)
        add_query(r, s, l, (int)rng_order_at(&o, (uint32_t)i), shown);
done:
    free(list), free(used);
    return rc;
}

/* ---- the map --------------------------------------------------------------------------------- */

static int tell_map(int done, int total, void *user) {
    return device_report(user, "drawing the map", done, total) < 0;
}

static int gather_map(conr *c, report *r, const sample *s, const int32_t *near, int wide, int k) {
    int rc = 0;
    tsne_options o = tsne_defaults();
    int32_t *fit = NULL;
    o.seed = (uint64_t)r->f->o.seed;
    o.threads = c->host->threads;
    o.tell = tell_map, o.user = c->dev;
    r->n_points = s->n;
    r->point = memory_new("map", (size_t)s->n, sizeof *r->point);
    r->xy = memory_new("map", 2 * (size_t)s->n, sizeof *r->xy);
    fit = memory_new("map", (size_t)s->n * k, sizeof *fit);
    TRY(r->point && r->xy && fit ? 0 : CONR_ENOMEM);
    memcpy(r->point, s->id, (size_t)s->n * sizeof *s->id);
    for (int i = 0; i < s->n; i++)
        memcpy(fit + (size_t)i * k, near + (size_t)i * wide, (size_t)k * sizeof *fit);
    TRY(tsne(s->features, s->n, (int)r->f->d, fit, k, &o, r->xy));
done:
    free(fit);
    return rc;
}

/* Lists for the page's own use, where every image has its point. */
static int keep_lists(report *r, const lists *l) {
    int k = 1 + REPORT_NEAR;
    if (l->k < k) return 0;
    for (int kind = 0; kind < 2; kind++) {
        r->map_near[kind] = memory_new("map", (size_t)r->n * k, sizeof **r->map_near);
        if (!r->map_near[kind]) return CONR_ENOMEM;
        for (int64_t i = 0; i < r->n; i++)
            memcpy(r->map_near[kind] + i * k, list_of(l, kind, (int)i),
                   (size_t)k * sizeof **r->map_near);
    }
    return 0;
}

/* Neighbors, purity and the map; up to REPORT_MAP images one search serves all three. */
static int gather_features(conr *c, report *r) {
    int rc = 0, k = 0;
    sample all = {0}, map = {0};
    lists l = {0};
    int32_t *near = NULL;
    const folder *f = r->f;
    bool whole = f->n <= REPORT_MAP;
    TRY(sample_draw(f, f->n <= POOL ? POOL : REPORT_MAP, &all));
    TRY(sample_draw(f, REPORT_MAP, &map));
    k = tsne_width(map.n, tsne_defaults().perplexity);
    TRY(find_lists(c, f, &all, whole ? k : 0, &l));
    r->pool = all.n;
    if (r->labeled) TRY(gather_purity(r, &all, &l));
    TRY(gather_queries(r, &all, &l));
    if (whole) {
        TRY(keep_lists(r, &l));
        TRY(gather_map(c, r, &map, l.near[0], l.wide, k));
        goto done;
    }
    conr_neighbors_options o = conr_neighbors_defaults();
    o.local = 1, o.k = k;
    near = memory_new("map", (size_t)map.n * k, sizeof *near);
    TRY(near ? 0 : CONR_ENOMEM);
    TRY(conr_neighbors(c, map.features, map.n, f->d, &o, near));
    TRY(gather_map(c, r, &map, near, k, k));
done:
    free(l.near[0]), free(l.near[1]), free(near);
    sample_free(&all), sample_free(&map);
    return rc;
}

/* ---- pictures -------------------------------------------------------------------------------- */

static int at_most(int value, int most) { return value < most ? value : most; }

/* All images that the page shows one by one, each once. */
static int list_shown(report *r) {
    size_t room = (size_t)(TELLING + DRAWN) * (1 + 2 * REPORT_NEAR);
    int n = 0;
    for (int k = 0; k < r->K; k++)
        room += (size_t)r->cluster[k].n_central + r->cluster[k].n_boundary;
    int64_t *id = r->shown = memory_new("pictures", room, sizeof *id);
    if (!id) return CONR_ENOMEM;
    for (int k = 0; k < r->K; k++) {
        const report_cluster *c = &r->cluster[k];
        for (int i = 0; i < c->n_central; i++) id[n++] = c->central[i];
        for (int i = 0; i < c->n_boundary; i++) id[n++] = c->boundary[i];
    }
    for (int i = 0; i < r->n_queries; i++) {
        id[n++] = r->query[i].id;
        for (int kind = 0; kind < 2; kind++)
            for (int at = 0; at < REPORT_NEAR; at++)
                if (r->query[i].near[kind][at] >= 0) id[n++] = r->query[i].near[kind][at];
    }
    qsort(id, (size_t)n, sizeof *id, by_id);
    for (int i = 0; i < n; i++)
        if (r->n_shown == 0 || id[r->n_shown - 1] != id[i]) id[r->n_shown++] = id[i];
    return 0;
}

/* The map's pictures, as large as their room allows. */
static int gather_sheets(conr *c, report *r, const pictures *p) {
    int rc = 0, threads = c->host->threads;
    int side = r->n_points <= 2000 ? 64 : r->n_points <= 6000 ? 48 : r->n_points <= 12000 ? 32 : 28;
    thumbs_source from = thumbs_from(p);
    thumbs t = {0};
    r->n_sheets = thumbs_sheets(r->n_points);
    r->sheet = calloc((size_t)r->n_sheets + 1, sizeof *r->sheet);
    if (!r->sheet) TRY(fail_memory("pictures", 1000));
    for (side = at_most(side, p->native);; side = side * 3 / 4) {
        size_t bytes = 0;
        TRY(thumbs_make(&from, r->point, r->n_points, side, threads, &t));
        TRY(thumbs_encode_sheets(&t, side > 40 ? 70 : 78, threads, r->sheet));
        thumbs_free(&t);
        for (int i = 0; i < r->n_sheets; i++) bytes += r->sheet[i].n;
        r->sheet_side = side;
        if (bytes <= SHEET_BYTES || side < 12) break;
        for (int i = 0; i < r->n_sheets; i++) webp_free(&r->sheet[i]);
    }
done:
    thumbs_free(&t);
    return rc;
}

static int gather_pictures(conr *c, report *r, const pictures *p) {
    int rc = 0;
    thumbs_source from = thumbs_from(p);
    thumbs t = {0};
    r->side = at_most(r->K <= 20 ? 96 : r->K <= 60 ? 64 : 48, p->native);
    TRY(device_report(c->dev, "pictures", 0, r->n_shown));
    TRY(thumbs_make(&from, r->shown, r->n_shown, r->side, c->host->threads, &t));
    r->picture = calloc((size_t)r->n_shown + 1, sizeof *r->picture);
    if (!r->picture) TRY(fail_memory("pictures", 16.0 * r->n_shown));
    TRY(thumbs_encode(&t, 80, c->host->threads, r->picture));
    TRY(gather_sheets(c, r, p));
done:
    thumbs_free(&t);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void report_free(report *r) {
    for (int k = 0; r->cluster && k < r->K; k++)
        free(r->cluster[k].central), free(r->cluster[k].boundary);
    for (int i = 0; r->picture && i < r->n_shown; i++) webp_free(&r->picture[i]);
    for (int i = 0; r->sheet && i < r->n_sheets; i++) webp_free(&r->sheet[i]);
    for (int i = 0; i < 4; i++) series_free(&r->purity[i]);
    free(r->cluster), free(r->shown), free(r->picture), free(r->sheet), free(r->kept);
    free(r->query), free(r->point), free(r->xy), free(r->map_near[0]), free(r->map_near[1]);
    conr_confusion_free(&r->confusion);
}

static int write_page(const report *r, const char *path, int64_t *bytes) {
    static const char nav[] = "summary\0Summary\0clusters\0Clusters\0map\0Map\0neighbors\0Neighbors"
                              "\0curves\0Curves\0settings\0Settings\0";
    int rc = 0;
    file_new f = {0};
    char title[PATH_MAX + 100];
    const char *slash = r->f->data.path ? strrchr(r->f->data.path, '/') : NULL;
    snprintf(title, sizeof title, "%s in %d clusters", slash ? slash + 1 : r->f->name, r->K);
    TRY(file_new_open(&f, path));
    html_head(f.stream, title, nav);
    report_write_summary(f.stream, r);
    report_write_clusters(f.stream, r);
    TRY(report_write_map(f.stream, r));
    report_write_neighbors(f.stream, r);
    report_write_curves(f.stream, r);
    report_write_settings(f.stream, r);
    html_foot(f.stream);
    *bytes = ftell(f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

/* p: NULL where there are no pictures, for the reason `why`. */
static int make(conr *c, const folder *f, const pictures *p, const char *why, const char *out,
                conr_report_result *result) {
    int rc = 0;
    report r = {.f = f, .n = f->n, .K = f->K, .no_pictures = p ? NULL : why};
    int64_t bytes = 0;
    TRY(gather_clusters(&r));
    TRY(gather_scores(c, &r));
    TRY(gather_features(c, &r));
    TRY(list_shown(&r));
    if (p) TRY(gather_pictures(c, &r, p));
    TRY(write_page(&r, out, &bytes));
    if (result)
        *result = (conr_report_result){.images = r.n,
                                       .points = r.n_points,
                                       .clusters = r.K,
                                       .pictures = p != NULL,
                                       .bytes = bytes};
done:
    report_free(&r);
    return rc;
}

static int smallest_side(const source *s) { return s->w_low < s->h_low ? s->w_low : s->h_low; }

int report_from_store(conr *c, const char *run, const store *images) {
    int rc = 0;
    folder f = {0};
    char out[PATH_MAX];
    pictures p = {.store = images, .channels = images->c, .native = INT_MAX};
    for (int64_t i = 0; i < images->n; i++) {
        p.native = at_most(p.native, images->image[i].w);
        p.native = at_most(p.native, images->image[i].h);
    }
    snprintf(out, sizeof out, "%s/report.html", run);
    TRY(folder_open(run, &f));
    f.done = true; /* nothing but the report is left to do */
    TRY(folder_read_images(&f));
    if (f.n != images->n)
        TRY(fail(CONR_EFORMAT, "%s: labels.csv has %lld images, the training %lld", run,
                 (long long)f.n, (long long)images->n));
    TRY(make(c, &f, &p, NULL, out, NULL));
done:
    folder_close(&f);
    return rc;
}

/* The map grows with its points, the search for neighbors with the square of the images; measured
 * (docs/report.md). */
double report_seconds(int64_t n, int threads) {
    double points = n < REPORT_MAP ? (double)n : REPORT_MAP, pool = n < POOL ? (double)n : points;
    return (1.5e-3 * points + 6e-9 * pool * pool) / (threads > 1 ? threads : 1);
}

conr_report_options conr_report_defaults(void) { return (conr_report_options){0}; }

/* Opens the run's images: those given, else those that it was trained on.  What cannot be opened is
 * a reason in `why`, not a failure, unless it was asked for. */
static int open_pictures(conr *c, const folder *f, const char *given, conr_images **images,
                         pictures *p, char *why, size_t size) {
    int rc = 0;
    const char *path = given ? given : f->data.path;
    int64_t found = 0;
    conr_images_options o = conr_images_defaults();
    o.split = f->o.split[0] ? f->o.split : NULL;
    o.classes = f->o.classes[0] ? f->o.classes : NULL;
    o.coarse = !strcmp(f->o.labels, "coarse");
    o.long_tail = f->o.long_tail;
    *why = 0;
    if (!path) {
        snprintf(why, size, "where the images are is not known; make the report again with --data");
        return 0;
    }
    if (conr_images_open(c, path, &o, NULL, NULL, images) < 0) {
        if (given) return fail(CONR_EFILE, "%s", conr_error());
        snprintf(why, size, "the images are no longer at %s; make the report again with --data",
                 path);
        return 0;
    }
    const source *s = &(*images)->source;
    *p = (pictures){.source = s, .channels = s->gray ? 1 : 3, .native = smallest_side(s)};
    TRY(match_images(f, s, p, &found));
    if (found == 0 && given)
        TRY(fail(CONR_EINVAL, "%s: has none of the run's images; give those it was trained on",
                 path));
    if (found == 0) snprintf(why, size, "%s has none of the run's images any more", path);
done:
    return rc;
}

int conr_report(conr *c, const char *run, const conr_report_options *o,
                conr_report_result *result) {
    int rc = 0;
    folder f = {0};
    conr_images *images = NULL;
    pictures p = {0};
    char out[PATH_MAX], why[PATH_MAX + 100];
    snprintf(out, sizeof out, "%s/report.html", run);
    TRY(folder_open(run, &f));
    TRY(folder_read_images(&f));
    TRY(open_pictures(c, &f, o->data, &images, &p, why, sizeof why));
    if (images && !f.data.n_classes) { /* a run of before there was data.json */
        f.data.class_name = images->source.class_name;
        f.data.n_classes = images->source.n_classes;
    }
    TRY(make(c, &f, why[0] ? NULL : &p, why, o->out ? o->out : out, result));
done:
    free(p.at);
    conr_images_close(images);
    folder_close(&f);
    return rc;
}

/* ---- several runs ---------------------------------------------------------------------------- */

static bool is_run(const char *folder) {
    char path[PATH_MAX];
    struct stat about;
    snprintf(path, sizeof path, "%s/options.yaml", folder);
    return stat(path, &about) == 0;
}

/* The runs of a sweep's folder, by its sweep.json: they lie beside it, wherever it has gone. */
static int add_sweep(const char *path, folder **run, int *n) {
    int rc = 0;
    char file[PATH_MAX], one[2 * PATH_MAX];
    size_t i, j;
    const json_t *combination, *entry;
    snprintf(file, sizeof file, "%s/sweep.json", path);
    json_t *o = json_load_file(file, 0, NULL);
    if (!o)
        TRY(fail(CONR_EFILE,
                 "%s: holds neither a run (options.yaml) nor a sweep (sweep.json); give "
                 "the --out of one",
                 path));
    json_array_foreach(json_object_get(o, "combinations"), i, combination) {
        json_array_foreach(json_object_get(combination, "runs"), j, entry) {
            const char *name = json_string_value(json_object_get(entry, "run"));
            const char *slash = name ? strrchr(name, '/') : NULL;
            if (!name || !json_is_null(json_object_get(entry, "error"))) continue;
            snprintf(one, sizeof one, "%s/%s", path, slash ? slash + 1 : name);
            folder *more = realloc(*run, ((size_t)*n + 1) * sizeof *more);
            if (!more) TRY(fail_memory(path, sizeof *more));
            *run = more;
            TRY(folder_open(one, &(*run)[*n]));
            ++*n;
        }
    }
done:
    json_decref(o);
    return rc;
}

int conr_report_compare(conr *c, const char *const *paths, int n_paths, const char *out) {
    static const char nav[] = "table\0Table\0figures\0Figures\0curves\0Curves\0runs\0Runs\0";
    int rc = 0, n = 0;
    folder *run = NULL;
    file_new f = {0};
    (void)c;
    for (int i = 0; i < n_paths; i++) {
        if (!is_run(paths[i])) {
            TRY(add_sweep(paths[i], &run, &n));
            continue;
        }
        folder *more = realloc(run, ((size_t)n + 1) * sizeof *more);
        if (!more) TRY(fail_memory(paths[i], sizeof *more));
        run = more;
        TRY(folder_open(paths[i], &run[n]));
        n++;
    }
    if (n == 0) TRY(fail(CONR_EINVAL, "%s: has no finished runs; let the sweep go on", paths[0]));
    TRY(file_new_open(&f, out));
    html_head(f.stream, "Comparison of runs", nav);
    TRY(report_write_compare(f.stream, run, n));
    html_foot(f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    for (int i = 0; i < n; i++) folder_close(&run[i]);
    free(run);
    return rc;
}
