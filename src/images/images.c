/* images.c: the public calls about a source of images. */
#include "images/images.h"
#include "base/output.h"
#include "base/status.h"
#include "context/context.h"
#include "images/store.h"

#include <stdlib.h>
#include <string.h>

conr_images_options conr_images_defaults(void) { return (conr_images_options){0}; }

const char *conr_format(int i, int *built_in) {
    bool there = false;
    const char *name = decode_built_in(i, &there);
    *built_in = there;
    if (name || (i > 0 && !decode_built_in(i - 1, &there))) return name;
#ifdef CONR_ARCHIVE
    *built_in = 1;
#endif
    return "archives (.zip, .tar)"; /* after the last format */
}

static int count_labels(conr_images *m) {
    const source *s = &m->source;
    m->count = calloc((size_t)s->n_classes + 1, sizeof *m->count);
    if (!m->count) return fail_memory("classes", (double)s->n_classes * sizeof *m->count);
    for (int64_t i = 0; i < s->n; i++) {
        int label = source_label(s, i);
        if (label < 0) continue;
        ASSERT(label < s->n_classes);
        m->count[label]++;
        m->labeled++;
    }
    return 0;
}

int conr_images_open(conr *c, const char *src, const conr_images_options *o,
                     conr_on_count *on_count, void *user, conr_images **out) {
    int rc = 0;
    *out = NULL;
    conr_images *m = calloc(1, sizeof *m);
    if (!m) return fail_memory(src, sizeof *m);
    source_options options = {.split = o->split,
                              .classes = o->classes,
                              .coarse = o->coarse != 0,
                              .threads = c->dev->threads,
                              .tell = {on_count, user}};
    if (o->long_tail != 0 && !(o->long_tail >= 1 && o->long_tail <= 1e6))
        TRY(fail(CONR_EINVAL, "long tail: %g is out of range; give a number from 1 to 1000000",
                 o->long_tail));
    TRY(source_open(src, &options, &m->source));
    if (o->long_tail > 1) TRY(source_thin(&m->source, o->long_tail));
    TRY(count_labels(m));
    *out = m;
done:
    if (rc < 0) conr_images_close(m);
    return rc;
}

void conr_images_close(conr_images *m) {
    if (!m) return;
    source_close(&m->source);
    free(m->count);
    free(m);
}

void conr_images_about(const conr_images *m, conr_images_info *out) {
    const source *s = &m->source;
    *out = (conr_images_info){.kind = s->words,
                              .n = s->n,
                              .labeled = m->labeled,
                              .skipped = s->skipped,
                              .first_skipped = s->n_reasons ? s->reason[0] : NULL,
                              .width = {s->w_low, s->w_high},
                              .height = {s->h_low, s->h_high},
                              .channels = s->gray ? 1 : 3,
                              .classes = s->n_classes};
}

const char *conr_images_skipped(const conr_images *m, int64_t i) {
    return i >= 0 && i < m->source.n_reasons ? m->source.reason[i] : NULL;
}

const char *conr_images_class(const conr_images *m, int which, int64_t *count) {
    ASSERT(which >= 0 && which < m->source.n_classes);
    if (count) *count = m->count[which];
    return m->source.class_name[which];
}

int conr_images_label(const conr_images *m, int64_t i) {
    ASSERT(i >= 0 && i < m->source.n);
    return source_label(&m->source, i);
}

/* Stored images as rows of floats. */
static int plain_rows(const store *s, int size, int threads, float *out) {
    static const pixels_norm as_they_are = {.deviation = {1, 1, 1}};
    size_t row = (size_t)size * size * s->c;
    int failed = 0;
#pragma omp parallel num_threads(threads)
    {
        pixels *tools = NULL;
        int rc = pixels_new(size, s->c, &tools);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->n; i++)
            if (rc == 0)
                rc = pixels_plain(tools, s->image[i].pixels, s->image[i].w, s->image[i].h, 0,
                                  &as_they_are, out + (size_t)i * row);
        pixels_free(tools);
#pragma omp atomic
        failed |= rc < 0;
    }
    /* the message is in another thread; only memory can have failed */
    return failed ? fail_memory("pixels", (double)row * sizeof *out) : 0;
}

int conr_images_pixels(conr *c, conr_images *m, int size, float **features, int64_t *n,
                       int64_t *d) {
    int rc = 0;
    store s = {0};
    store_options o = {.side = store_side_for(size), .threads = c->dev->threads};
    *features = NULL;
    if (size < 1 || size > 1024)
        return fail(CONR_EINVAL, "size: %d pixels per side are out of range; use 1 to 1024", size);
    TRY(store_open(&m->source, &o, &s));
    *n = s.n, *d = (int64_t)size * size * s.c;
    *features = memory_new("pixels", (size_t)s.n, (size_t)*d * sizeof **features);
    TRY(*features ? 0 : CONR_ENOMEM);
    TRY(plain_rows(&s, size, c->dev->threads, *features));
done:
    store_close(&s);
    if (rc < 0) free(*features), *features = NULL;
    return rc;
}

int conr_images_check(conr *c, conr_images *m, conr_on_count *on_count, void *user) {
    store s = {0};
    store_options o = {
        .side = 1, .place = STORE_MEMORY, .threads = c->dev->threads, .tell = {on_count, user}};
    if (!m->source.item) return 0; /* arrays have no single images that could be damaged */
    int rc = store_open(&m->source, &o, &s);
    store_close(&s);
    return rc;
}

int conr_images_check_output(const conr_images *m, const char *out) {
    int rc = output_check(out, NULL, NULL);
    if (rc == 0 && source_has_file(&m->source, out))
        rc = fail(CONR_EINVAL, "%s: is one of the images; write to another file", out);
    return rc;
}

const char *conr_images_path(conr_images *m, int64_t i) {
    return source_name(&m->source, i, m->name, sizeof m->name);
}
