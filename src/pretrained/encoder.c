/* encoder.c: a pretrained network from its file to the features of images. */
#include "pretrained/encoder.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"
#include "images/images.h"
#include "images/unreadable.h"
#include "kernels/rows.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a file ---------------------------------------------------------------------------------- */

/* The type of most numbers. */
static const char *type_of(const tensors *f) {
    size_t count[TENSOR_BOOL + 1] = {0};
    int best = TENSOR_F32;
    for (int i = 0; i < f->n; i++) count[f->tensor[i].type] += f->tensor[i].count;
    for (int i = 0; i <= TENSOR_BOOL; i++)
        if (count[i] > count[best]) best = i;
    return tensor_type_name((tensor_type)best);
}

/* Everything that can be set, so that the same features can be made again. */
static void write_settings(conr_encoder *e) {
    const encoder_about *a = &e->about;
    const preparation *p = &a->prepare;
    const float *m = p->norm.mean, *s = p->norm.deviation;
    int n = snprintf(e->settings, sizeof e->settings,
                     "size=%d resize=%d filter=%s mean=%.9g,%.9g,%.9g deviation=%.9g,%.9g,%.9g",
                     p->size, p->side, settings_filters[p->filter], (double)m[0], (double)m[1],
                     (double)m[2], (double)s[0], (double)s[1], (double)s[2]);
    if (a->pool)
        n += snprintf(e->settings + n, sizeof e->settings - (size_t)n, " pool=%s", a->pool);
    if (a->gelu)
        n += snprintf(e->settings + n, sizeof e->settings - (size_t)n, " gelu=%s", a->gelu);
    if (a->heads) snprintf(e->settings + n, sizeof e->settings - (size_t)n, " heads=%d", a->heads);
}

int conr_encoder_open(conr *c, const char *path, const char *const *settings, conr_encoder **out) {
    enum { BATCH_HOST = 8, BATCH_GPU = 64 }; /* on a host, what fits the caches is faster */
    int rc = 0;
    tensors f = {0};
    encoder_settings set;
    conr_encoder *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return fail_memory("encoder", sizeof *e);
    e->dev = c->dev;
    e->batch = c->dev->is_gpu ? BATCH_GPU : BATCH_HOST;
    TRY(settings_parse(settings, &set));
    TRY(tensors_open(path, &f));
    TRY(family_find(&f, &set, &e->family, &e->about));
    e->type = type_of(&f);
    TRY(e->family->open(c->dev, &f, &set, e->batch, &e->net));
    tensors_close(&f);
    TRY(checksum_file(path, SIZE_MAX, &e->checksum));
    e->path = realpath(path, NULL);
    if (!e->path && errno != ENOMEM) e->path = strdup(path);
    if (!e->path) TRY(fail_memory("encoder", (double)strlen(path)));
    write_settings(e);
    *out = e;
done:
    tensors_close(&f);
    if (rc < 0) conr_encoder_close(e);
    return rc;
}

void conr_encoder_close(conr_encoder *e) {
    if (!e) return;
    if (e->net) e->family->close(e->net);
    free(e->path);
    free(e);
}

void conr_encoder_about(const conr_encoder *e, conr_encoder_info *out) {
    const preparation *p = &e->about.prepare;
    *out = (conr_encoder_info){.path = e->path,
                               .family = e->about.family,
                               .form = e->about.form,
                               .network = e->about.network,
                               .type = e->type,
                               .settings = e->settings,
                               .pool = e->about.pool ? e->about.pool : "mean",
                               .gelu = e->about.gelu ? e->about.gelu : "none",
                               .weights = (int64_t)e->about.weights,
                               .features = e->about.features,
                               .size = p->size,
                               .resize = p->side,
                               .filter = settings_filters[p->filter],
                               .checksum = e->checksum};
    memcpy(out->mean, p->norm.mean, sizeof out->mean);
    memcpy(out->deviation, p->norm.deviation, sizeof out->deviation);
}

/* The beginning of the header tells: a file may be large. */
int conr_is_encoder(const char *path) {
    enum { LENGTH = 8, LOOKED_AT = 4096 };
    static const char ours[] = "\"conr "; /* "format":"conr model 1" comes first */
    unsigned char head[LENGTH + LOOKED_AT];
    file_reader file;
    uint64_t length = 0;
    if (file_reader_open(path, &file) < 0) return 0;
    size_t n = file.size < sizeof head ? file.size : sizeof head;
    bool is = n > LENGTH + 1 && file_reader_read(&file, path, 0, n, head) == 0;
    if (is) memcpy(&length, head, sizeof length);
    is = is && length >= 2 && length <= file.size - LENGTH && head[LENGTH] == '{' &&
         head[LENGTH + 1] == '"';
    file_reader_close(&file);
    return is && !memmem(head + LENGTH, n - LENGTH, ours, sizeof ours - 1);
}

/* ---- images ---------------------------------------------------------------------------------- */

/* The state of conr_encode. */
typedef struct work {
    conr *c;
    const conr_encoder *e;
    source *s;
    unreadable bad;
    float *in;     /* [batch][values] */
    size_t values; /* floats of an image in it */
    pixels **tool; /* [threads] */
    float *square; /* [threads][size*size*3] */
    float *out;    /* [n,d] */
} work;

static int prepare(work *w, int64_t i, int thread, image *m, float *out) {
    const preparation *p = &w->e->about.prepare;
    size_t size = (size_t)p->size * (size_t)p->size * 3;
    float *square = w->e->family->arrange ? w->square + (size_t)thread * size : out;
    /* twice the pixels, so that what a decoder does to shrink an image hardly shows */
    int rc = 0, least = 2 * (p->side > p->size ? p->side : p->size);
    TRY(source_read(w->s, i, 3, least, m));
    TRY(pixels_plain_by(w->tool[thread], p->filter, m->pixels, m->w, m->h, p->side, &p->norm,
                        square));
    if (w->e->family->arrange) w->e->family->arrange(w->e->net, square, out);
done:
    return rc;
}

/* Images from .. to-1 into w->in; one that cannot be read is black. */
static void prepare_some(work *w, int64_t from, int64_t to) {
    int threads = w->c->host->threads;
#pragma omp parallel num_threads(threads)
    {
        image m = {0};
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = from; i < to; i++) {
            float *out = w->in + (size_t)(i - from) * w->values;
            int rc = prepare(w, i, omp_get_thread_num(), &m, out);
            if (rc < 0) {
                memset(out, 0, w->values * sizeof *out);
                unreadable_note(&w->bad, i, rc);
            }
        }
        image_free(&m);
    }
}

static int open_work(work *w) {
    int rc = 0, threads = w->c->host->threads, size = w->e->about.prepare.size;
    size_t n = (size_t)w->s->n, pixel = (size_t)size * (size_t)size * 3;
    TRY(unreadable_new(w->s, &w->bad));
    w->tool = calloc((size_t)threads, sizeof(pixels *));
    TRY(w->tool ? 0 : fail_memory("images", (double)threads * sizeof(pixels *)));
    for (int i = 0; i < threads; i++) TRY(pixels_new(size, 3, &w->tool[i]));
    w->values = w->e->family->values ? w->e->family->values(w->e->net) : pixel;
    w->in = memory_new("images", (size_t)w->e->batch * w->values, sizeof *w->in);
    w->square = memory_new("images", (size_t)threads * pixel, sizeof *w->square);
    w->out = memory_new("features", n, (size_t)w->e->about.features * sizeof *w->out);
    TRY(w->in && w->square && w->out ? 0 : CONR_ENOMEM);
done:
    return rc;
}

static void close_work(work *w) {
    for (int i = 0; w->tool && i < w->c->host->threads; i++) pixels_free(w->tool[i]);
    unreadable_free(&w->bad);
    free(w->tool), free(w->in), free(w->square), free(w->out);
}

/* NaN would pass through everything that follows. */
static int check_rows(const conr_encoder *e, const float *row, int n, int d) {
    for (int i = 0; i < n * d; i++)
        if (!isfinite(row[i]))
            return fail(CONR_ENUMBER,
                        "%s: gives features that are NaN or infinite; is it the right file for "
                        "%s?",
                        e->path, e->about.family);
    return 0;
}

int conr_encode(conr *c, conr_encoder *e, conr_images *images, float **features, int64_t *n,
                int64_t *d) {
    int rc = 0, width = e->about.features;
    source *s = &images->source;
    work w = {.c = c, .e = e, .s = s};
    *features = NULL;
    if (s->n == 0) /* all were dropped by an earlier try */
        return fail(CONR_EFORMAT, "images: none of them can be read; open them again");
    TRY(open_work(&w));
    for (int64_t from = 0; from < s->n; from += e->batch) {
        int count = s->n - from < e->batch ? (int)(s->n - from) : e->batch;
        float *row = w.out + (size_t)from * (size_t)width;
        TRY(device_report(c->dev, "encoding", from, s->n));
        prepare_some(&w, from, from + count);
        TRY(unreadable_check(&w.bad));
        TRY(e->family->encode(e->net, w.in, count, row));
        TRY(check_rows(e, row, count, width));
    }
    TRY(device_report(c->dev, "encoding", s->n, s->n));
    TRY(unreadable_drop(&w.bad, s, w.out, (size_t)width * sizeof *w.out));
    rows_normalize(c->host->threads, w.out, (int)s->n, width, w.out, NULL);
    *features = w.out, *n = s->n, *d = width;
    w.out = NULL;
done:
    close_work(&w);
    return rc;
}
