/* images.c: the public calls about a source of images. */
#include "base/status.h"
#include "conr_context.h"
#include "images/source.h"

#include <stdlib.h>
#include <string.h>

struct conr_images {
    source source;
    int64_t *count; /* [n_classes] */
    int64_t labeled;
    char name[4096]; /* conr_images_path */
};

conr_images_options conr_images_defaults(void) { return (conr_images_options){0}; }

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
    TRY(source_open(src, &options, &m->source));
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
                              .first_skipped = s->first_skipped,
                              .width = {s->w_low, s->w_high},
                              .height = {s->h_low, s->h_high},
                              .channels = s->gray ? 1 : 3,
                              .classes = s->n_classes};
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

const char *conr_images_path(conr_images *m, int64_t i) {
    return source_name(&m->source, i, m->name, sizeof m->name);
}
