/* thumbs.c: see thumbs.h. */
#include "report/thumbs.h"

#include "base/memory.h"
#include "base/status.h"
#include "images/decode.h"
#include "views/pixels_resize.h"

#include <stdlib.h>
#include <string.h>
#include <webp/encode.h>

/* The center square of an image, resized into out [side,side,3].  square: room for it, 3 bytes per
 * pixel. */
static int shrink(resizer *r, const image *m, int side, unsigned char *square, unsigned char *out) {
    int s = m->w < m->h ? m->w : m->h, left = (m->w - s) / 2, top = (m->h - s) / 2;
    for (int y = 0; y < s; y++) {
        const unsigned char *from = m->pixels + ((size_t)(top + y) * m->w + left) * m->c;
        for (int x = 0; x < s; x++)
            for (int c = 0; c < 3; c++)
                square[((size_t)y * s + x) * 3 + c] = from[(size_t)x * m->c + (m->c == 3 ? c : 0)];
    }
    if (s == side) {
        memcpy(out, square, (size_t)side * side * 3);
        return 0;
    }
    return resizer_bytes(r, PIXELS_BICUBIC, square, s, s, 3, side, side, out);
}

/* One thumb; 1: the picture is not available. */
static int make_one(const thumbs_source *from, int64_t id, int side, resizer *r, image *m,
                    unsigned char **square, size_t *room, unsigned char *out) {
    int rc = from->read(from->user, id, side, m);
    if (rc) return rc;
    size_t s = (size_t)(m->w < m->h ? m->w : m->h), wanted = s * s * 3;
    if (wanted > *room) {
        unsigned char *more = realloc(*square, wanted);
        if (!more) return fail_memory("thumbnails", (double)wanted);
        *square = more, *room = wanted;
    }
    return shrink(r, m, side, *square, out);
}

int thumbs_make(const thumbs_source *from, const int64_t *ids, int n, int side, int threads,
                thumbs *out) {
    int failed = 0; /* the code of the first failure; its message is in that thread */
    char message[512] = "";
    size_t each = (size_t)side * side * 3;
    *out = (thumbs){.n = n, .side = side};
    out->pixels = calloc((size_t)n + 1, each);
    out->missing = calloc((size_t)n + 1, 1);
    if (!out->pixels || !out->missing) {
        thumbs_free(out);
        return fail_memory("thumbnails", (double)n * (double)each);
    }
#pragma omp parallel num_threads(threads)
    {
        resizer r = {0};
        image m = {0};
        unsigned char *square = NULL;
        size_t room = 0;
#pragma omp for schedule(dynamic, 16)
        for (int i = 0; i < n; i++) {
            int rc = make_one(from, ids[i], side, &r, &m, &square, &room,
                              out->pixels + (size_t)i * each);
            out->missing[i] = rc != 0;
            if (rc >= 0) continue;
#pragma omp critical
            if (!failed) {
                failed = rc;
                snprintf(message, sizeof message, "%s", conr_error());
            }
        }
        resizer_free(&r);
        image_free(&m);
        free(square);
    }
    if (failed) thumbs_free(out);
    return failed ? fail(failed, "%s", message) : 0;
}

void thumbs_free(thumbs *t) {
    free(t->pixels), free(t->missing);
    *t = (thumbs){0};
}

int webp_encode(const unsigned char *pixels, int w, int h, int c, float quality, webp *out) {
    int stride = w * c;
    bool exact = quality > 100;
    if (c == 4)
        out->n = exact ? WebPEncodeLosslessRGBA(pixels, w, h, stride, &out->bytes)
                       : WebPEncodeRGBA(pixels, w, h, stride, quality, &out->bytes);
    else
        out->n = exact ? WebPEncodeLosslessRGB(pixels, w, h, stride, &out->bytes)
                       : WebPEncodeRGB(pixels, w, h, stride, quality, &out->bytes);
    return out->n ? 0 : fail_memory("picture", (double)w * h * c);
}

void webp_free(webp *w) {
    WebPFree(w->bytes);
    *w = (webp){0};
}

int thumbs_encode(const thumbs *t, float quality, int threads, webp *out) {
    int failed = 0;
    memset(out, 0, (size_t)t->n * sizeof *out);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 8) reduction(| : failed)
    for (int i = 0; i < t->n; i++)
        if (!t->missing[i])
            failed |= webp_encode(t->pixels + (size_t)i * t->side * t->side * 3, t->side, t->side,
                                  3, quality, &out[i]) < 0;
    return failed ? fail_memory("thumbnails", (double)t->n * 1000) : 0;
}

int thumbs_sheets(int n) { return (n + SHEET_THUMBS - 1) / SHEET_THUMBS; }

static int encode_sheet(const thumbs *t, int from, float quality, webp *out) {
    int n = t->n - from < SHEET_THUMBS ? t->n - from : SHEET_THUMBS, side = t->side;
    int rows = (n + SHEET_COLUMNS - 1) / SHEET_COLUMNS, w = SHEET_COLUMNS * side, h = rows * side;
    unsigned char *sheet = calloc((size_t)w * h, 3);
    if (!sheet) return fail_memory("thumbnails", (double)w * h * 3);
    for (int i = 0; i < n; i++)
        for (int y = 0; y < side; y++)
            memcpy(sheet + (((size_t)(i / SHEET_COLUMNS) * side + y) * w +
                            (size_t)(i % SHEET_COLUMNS) * side) *
                               3,
                   t->pixels + ((size_t)(from + i) * side + y) * side * 3, (size_t)side * 3);
    int rc = webp_encode(sheet, w, h, 3, quality, out);
    free(sheet);
    return rc;
}

int thumbs_encode_sheets(const thumbs *t, float quality, int threads, webp *out) {
    int failed = 0, sheets = thumbs_sheets(t->n);
    memset(out, 0, (size_t)sheets * sizeof *out);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) reduction(| : failed)
    for (int i = 0; i < sheets; i++)
        failed |= encode_sheet(t, i * SHEET_THUMBS, quality, &out[i]) < 0;
    return failed ? fail_memory("thumbnails", (double)t->n * 1000) : 0;
}
