/* looks.c: a glance at every image, and the groups of copies. */
#include "looks/looks.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"
#include "images/images.h"
#include "views/pixels_resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARP = 128 }; /* the side at which sharpness is measured; smaller images as they are */

/* ---- one image ------------------------------------------------------------------------------- */

/* Memory of one thread. */
typedef struct glance {
    resizer r;
    image m;
    unsigned char rgb[SHARP * SHARP * 3], gray[SHARP * SHARP];
    unsigned char frame[LOOK_FRAME * LOOK_FRAME];
} glance;

/* Mean and deviation of the gray values in [0,1]; the share of their variance that is between
 * neighbors: a blurred image has almost none. */
static void measure(const unsigned char *gray, int w, int h, conr_look *out) {
    double sum = 0, square = 0, edges = 0;
    int n = w * h, inner = 0;
    for (int i = 0; i < n; i++) sum += gray[i], square += (double)gray[i] * gray[i];
    double mean = sum / n, variance = square / n - mean * mean;
    for (int y = 1; y + 1 < h; y++)
        for (int x = 1; x + 1 < w; x++, inner++) {
            const unsigned char *p = gray + y * w + x;
            double l = 4.0 * p[0] - p[-1] - p[1] - p[-w] - p[w];
            edges += l * l;
        }
    out->brightness = (float)(mean / 255);
    out->contrast = (float)(sqrt(fmax(variance, 0)) / 255);
    out->sharpness = (float)(inner && variance > 0.25 ? sqrt(edges / inner / 20 / variance) : 0);
}

static void take_colors(const unsigned char *rgb, look *out) {
    for (int i = 0; i < LOOK_CHROMA * LOOK_CHROMA; i++) {
        double r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
        double y = 0.299 * r + 0.587 * g + 0.114 * b;
        out->chroma[2 * i] = (signed char)lround(fmax(-127, fmin(127, 0.564 * (b - y))));
        out->chroma[2 * i + 1] = (signed char)lround(fmax(-127, fmin(127, 0.713 * (r - y))));
    }
}

static int checksum_item(const source *s, int64_t i, image *whole, look *out) {
    if (s->item) {
        out->about.bytes = (int64_t)s->item[i].bytes;
        if (!s->item[i].in) return checksum_file(s->item[i].file, SIZE_MAX, &out->sum);
        file_bytes bytes = {0};
        int rc = source_item_bytes(&s->item[i], SIZE_MAX, &bytes);
        if (rc == 0) out->sum = checksum(bytes.data, bytes.n, 0);
        file_bytes_free(&bytes);
        return rc;
    }
    int rc = source_read(s, i, s->gray ? 1 : 3, 0, whole);
    if (rc < 0) return rc;
    out->about.bytes = (int64_t)whole->w * whole->h * whole->c;
    out->sum = checksum(whole->pixels, (size_t)out->about.bytes, (uint64_t)whole->w);
    return 0;
}

static int look_at(const source *s, int64_t i, glance *g, look *out) {
    int rc = 0, w = 0, h = 0;
    unsigned char small[LOOK_CHROMA * LOOK_CHROMA * 3];
    *out = (look){.plain = true};
    source_size(s, i, &out->about.width, &out->about.height);
    if (s->item) out->about.bytes = (int64_t)s->item[i].bytes;
    TRY(source_read(s, i, 3, SHARP, &g->m));
    w = g->m.w < SHARP ? g->m.w : SHARP, h = g->m.h < SHARP ? g->m.h : SHARP;
    TRY(resizer_bytes(&g->r, PIXELS_BILINEAR, g->m.pixels, g->m.w, g->m.h, 3, w, h, g->rgb));
    for (int p = 0; p < w * h; p++)
        g->gray[p] = (unsigned char)((299 * g->rgb[3 * p] + 587 * g->rgb[3 * p + 1] +
                                      114 * g->rgb[3 * p + 2] + 500) /
                                     1000);
    measure(g->gray, w, h, &out->about);
    TRY(resizer_bytes(&g->r, PIXELS_BILINEAR, g->gray, w, h, 1, LOOK_FRAME, LOOK_FRAME, g->frame));
    TRY(resizer_bytes(&g->r, PIXELS_BILINEAR, g->frame, LOOK_FRAME, LOOK_FRAME, 1, LOOK_SIDE,
                      LOOK_SIDE, out->gray));
    TRY(resizer_bytes(&g->r, PIXELS_BILINEAR, g->rgb, w, h, 3, LOOK_CHROMA, LOOK_CHROMA, small));
    take_colors(small, out);
    look_hashes(g->frame, out);
    TRY(checksum_item(s, i, &g->m, out));
    out->about.readable = 1;
    out->plain = out->about.contrast < 0.02f;
done:
    return rc;
}

/* ---- all images ------------------------------------------------------------------------------ */

int conr_looks_make(conr *c, conr_images *m, conr_looks **out) {
    enum { AT_ONCE = 128 }; /* between two reports of progress */
    int rc = 0, broken = 0;
    char why[512] = "";
    const source *s = &m->source;
    conr_looks *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return fail_memory("looks", sizeof *l);
    if (s->n > INT32_MAX) TRY(fail(CONR_EINVAL, "images: too many for duplicates; give fewer"));
    l->n = s->n;
    l->look = memory_new("looks", (size_t)s->n, sizeof *l->look);
    TRY(l->look ? 0 : CONR_ENOMEM);
    for (int64_t from = 0; from < s->n; from += AT_ONCE) {
        int64_t to = from + AT_ONCE < s->n ? from + AT_ONCE : s->n;
#pragma omp parallel num_threads(c->host->threads)
        {
            glance *g = calloc(1, sizeof *g);
#pragma omp for schedule(dynamic, 4)
            for (int64_t i = from; i < to; i++) {
                int got = g ? look_at(s, i, g, &l->look[i]) : fail_memory("looks", sizeof *g);
                if (got >= 0 || got == CONR_EFORMAT) continue; /* the image's own fault */
#pragma omp critical
                if (!broken) broken = got, snprintf(why, sizeof why, "%s", conr_error());
            }
            if (g) resizer_free(&g->r), image_free(&g->m);
            free(g);
        }
        if (broken) TRY(fail(broken, "%s", why));
        TRY(device_report(c->dev, "looking", to, s->n));
    }
    *out = l;
    l = NULL;
done:
    conr_looks_free(l);
    return rc;
}

void conr_looks_free(conr_looks *l) {
    if (!l) return;
    free(l->look), free(l->pair);
    free(l);
}

int64_t conr_looks_get(const conr_looks *l, int64_t i, conr_look *out) {
    if (out) *out = i >= 0 && i < l->n ? l->look[i].about : (conr_look){0};
    return l->n;
}

int conr_look_reasons(const conr_look *l) {
    if (!l->readable) return 0;
    bool uniform = l->contrast < 0.04f;
    return (uniform ? CONR_LOOK_UNIFORM : 0) | (l->brightness < 0.12f ? CONR_LOOK_DARK : 0) |
           (!uniform && l->sharpness < 0.05f ? CONR_LOOK_BLURRED : 0);
}
