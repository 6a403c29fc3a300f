/* pictures.c: see pictures.h. */
#include "report/pictures.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding the run's images in a source ---------------------------------------------------- */

typedef struct named {
    const char *name;
    int64_t at;
} named;

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Fills p->at by comparing names, without the folders that all names of a side share: the source
 * may have moved since, and the training may have skipped images. */
static int match_images(const folder *f, const source *s, pictures *p, int64_t *found) {
    int rc = 0;
    arena names = {0};
    char buffer[PATH_MAX];
    const char **name = calloc((size_t)s->n + 1, sizeof *name);
    named *own = calloc((size_t)s->n + 1, sizeof *own);
    *found = 0;
    p->at = calloc((size_t)f->n + 1, sizeof *p->at);
    if (!name || !own || !p->at) TRY(fail_memory("images", 40.0 * (double)f->n));
    for (int64_t i = 0; i < s->n; i++) {
        const char *text = source_name(s, i, buffer, sizeof buffer);
        name[i] = arena_text(&names, text, strlen(text));
        if (!name[i]) TRY(CONR_ENOMEM);
    }
    size_t skip = folder_shared(name, s->n), skip_wanted = folder_shared(f->image, f->n);
    for (int64_t i = 0; i < s->n; i++) own[i] = (named){name[i] + skip, i};
    qsort(own, (size_t)s->n, sizeof *own, by_name);
    for (int64_t i = 0; i < f->n; i++) {
        named key = {f->image[i] + skip_wanted, 0};
        const named *at = bsearch(&key, own, (size_t)s->n, sizeof *own, by_name);
        p->at[i] = at ? at->at : -1;
        *found += at != NULL;
    }
done:
    free(name), free(own);
    arena_free(&names);
    return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

int pictures_open(conr *c, const folder *f, const char *given, pictures *p, char *why,
                  size_t size) {
    int rc = 0;
    const char *path = given ? given : f->data.path;
    int64_t found = 0;
    conr_images_options o = conr_images_defaults();
    o.split = f->o.split[0] ? f->o.split : NULL;
    o.classes = f->o.classes[0] ? f->o.classes : NULL;
    o.coarse = !strcmp(f->o.labels, "coarse");
    o.long_tail = f->o.long_tail;
    *p = (pictures){0};
    *why = 0;
    if (!path && f->of_features) { /* none came with the features */
        snprintf(why, size, "the features came without images");
        return 0;
    }
    if (!path) {
        snprintf(why, size,
                 "the location of the images is not known; make the report again with --data");
        return 0;
    }
    if (!given && file_is_gone(path)) {
        snprintf(why, size, "the images are no longer at %s; make the report again with --data",
                 path);
        return 0;
    }
    TRY(conr_images_open(c, path, &o, NULL, NULL, &p->images));
    const source *s = &p->images->source;
    p->channels = s->gray ? 1 : 3;
    p->native = s->w_low < s->h_low ? s->w_low : s->h_low;
    TRY(match_images(f, s, p, &found));
    if (found == 0 && given)
        TRY(fail(CONR_EINVAL, "%s: has none of the run's images; give those it was trained on",
                 path));
    if (found == 0) snprintf(why, size, "%s no longer has any of the run's images", path);
done:
    return rc;
}

int conr_run_images(conr *c, const char *run, const char *data, conr_images **out, int64_t **at,
                    int64_t *n) {
    int rc = 0;
    folder f = {0};
    pictures p = {0};
    char why[PATH_MAX + 100] = "";
    *out = NULL, *at = NULL;
    TRY(folder_open(run, &f));
    TRY(folder_read_labels(&f));
    TRY(pictures_open(c, &f, data, &p, why, sizeof why));
    if (*why) {
        char *remedy = strstr(why, "; make the report again"); /* there is another one here */
        if (remedy) *remedy = 0;
        TRY(fail(CONR_EFILE, "%s: %s; give the images, too", run, why));
    }
    *out = p.images, *at = p.at, *n = f.n;
    p = (pictures){0};
done:
    pictures_close(&p);
    folder_close(&f);
    return rc;
}

void pictures_close(pictures *p) {
    free(p->at);
    conr_images_close(p->images);
    *p = (pictures){0};
}

pictures pictures_from_store(const store *images) {
    pictures p = {.store = images, .channels = images->c, .native = INT_MAX};
    for (int64_t i = 0; i < images->n; i++) {
        if (images->image[i].w < p.native) p.native = images->image[i].w;
        if (images->image[i].h < p.native) p.native = images->image[i].h;
    }
    return p;
}

pictures pictures_from_images(conr_images *images) {
    const source *s = &images->source;
    return (pictures){.images = images,
                      .channels = s->gray ? 1 : 3,
                      .native = s->w_low < s->h_low ? s->w_low : s->h_low};
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_picture(void *user, int64_t i, int least, image *out) {
    const pictures *p = user;
    if (p->at) i = p->at[i];
    if (i < 0) return 1;
    if (!p->store) {
        int rc = source_read(&p->images->source, i, p->channels, least, out);
        return rc == CONR_EFORMAT ? 1 : rc; /* damaged, or gone since */
    }
    const stored *s = &p->store->image[i];
    int rc = image_reserve(out, s->w, s->h, p->store->c);
    if (rc == 0) memcpy(out->pixels, s->pixels, (size_t)s->w * s->h * p->store->c);
    return rc;
}

thumbs_source pictures_thumbs(const pictures *p) {
    return (thumbs_source){read_picture, (void *)p, p->channels};
}
