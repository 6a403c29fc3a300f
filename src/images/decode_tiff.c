/* decode_tiff.c: libtiff behind decode.h: the first page.
 *
 * Gray, RGB, palettes and CMYK of up to 16 bits are converted here, row by row, as Pillow does;
 * libtiff's own conversion, which blends alpha, is left to the rare kinds (YCbCr without JPEG, Lab).
 * libtiff 4.5 is required: before, messages could only be turned off for the whole process. */
#include "images/decode_codecs.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

enum {
    LARGEST = 1 << 28,     /* bytes that libtiff may allocate at once */
    LARGEST_TILE = 1 << 26 /* bytes */
};

typedef struct tiff_job {
    decode_job *job;
    TIFF *tiff;
    uint64_t at;
    char why[160];
    uint16_t bits, samples, photometric, planar; /* tags */
    int used;                                    /* of the samples of a pixel */
    bool premultiplied, ours;                    /* ours: converted here */
    uint16_t *map[3];                            /* of a palette; libtiff's */
    unsigned char *row;                          /* [w][used] */
} tiff_job;

/* ---- the file in memory ---------------------------------------------------------------------- */

static tmsize_t on_read(thandle_t h, void *to, tmsize_t n) {
    tiff_job *t = h;
    uint64_t left = t->at < t->job->n ? t->job->n - t->at : 0;
    if ((uint64_t)n > left) n = (tmsize_t)left;
    memcpy(to, t->job->bytes + t->at, (size_t)n);
    t->at += (uint64_t)n;
    return n;
}
static tmsize_t on_write(thandle_t h, void *from, tmsize_t n) { return (void)h, (void)from, 0 * n; }
static toff_t on_seek(thandle_t h, toff_t to, int from) {
    tiff_job *t = h;
    t->at = to + (from == SEEK_CUR ? t->at : from == SEEK_END ? t->job->n : 0);
    return t->at;
}
static int on_close(thandle_t h) { return (void)h, 0; }
static toff_t on_size(thandle_t h) { return ((tiff_job *)h)->job->n; }
static int on_map(thandle_t h, void **base, toff_t *n) {
    const decode_job *j = ((tiff_job *)h)->job;
    *base = (void *)(uintptr_t)j->bytes; /* opened for reading */
    *n = j->n;
    return 1;
}
static void on_unmap(thandle_t h, void *base, toff_t n) { (void)h, (void)base, (void)n; }

static int on_error(TIFF *tiff, void *user, const char *where, const char *form, va_list values) {
    tiff_job *t = user;
    (void)tiff, (void)where;
    if (!*t->why) vsnprintf(t->why, sizeof t->why, form, values);
    return 1; /* and nothing is printed */
}
static int on_warning(TIFF *tiff, void *user, const char *where, const char *form, va_list values) {
    (void)tiff, (void)user, (void)where, (void)form, (void)values;
    return 1;
}

static int fail_tiff(const tiff_job *t) {
    if (strstr(t->why, "No space") || strstr(t->why, "ut of memory")) /* libtiff has no codes */
        return decode_fail_memory(t->job);
    return decode_fail(t->job, "TIFF", *t->why ? t->why : "it cannot be read");
}

static int open_tiff(tiff_job *t) {
    TIFFOpenOptions *o = TIFFOpenOptionsAlloc();
    if (!o) return decode_fail_memory(t->job);
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, LARGEST);
    TIFFOpenOptionsSetErrorHandlerExtR(o, on_error, t);
    TIFFOpenOptionsSetWarningHandlerExtR(o, on_warning, t);
    t->tiff = TIFFClientOpenExt("", "r", t, on_read, on_write, on_seek, on_close, on_size, on_map,
                                on_unmap, o);
    TIFFOpenOptionsFree(o);
    return t->tiff ? 0 : fail_tiff(t);
}

/* ---- what the tags say ----------------------------------------------------------------------- */

static uint16_t tag(const tiff_job *t, uint32_t which) {
    uint16_t value = 0;
    TIFFGetFieldDefaulted(t->tiff, which, &value);
    return value;
}

static void find_alpha(tiff_job *t) {
    uint16_t n = 0, *kind = NULL;
    if (!TIFFGetFieldDefaulted(t->tiff, TIFFTAG_EXTRASAMPLES, &n, &kind) || n == 0) return;
    t->premultiplied = t->photometric == PHOTOMETRIC_RGB && kind[0] == EXTRASAMPLE_ASSOCALPHA &&
                       t->samples == 3 + n;
}

/* The samples that a pixel of this kind has, without others beside them; 0: not one of ours. */
static int colors_of(tiff_job *t) {
    switch (t->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK: return 1;
    case PHOTOMETRIC_PALETTE:
        return t->bits <= 8 &&
                       TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &t->map[0], &t->map[1], &t->map[2])
                   ? 1
                   : 0;
    case PHOTOMETRIC_RGB: return 3;
    case PHOTOMETRIC_SEPARATED: return tag(t, TIFFTAG_INKSET) == INKSET_CMYK ? 4 : 0;
    case PHOTOMETRIC_YCBCR: /* the codec of JPEG makes RGB of it */
        return tag(t, TIFFTAG_COMPRESSION) == COMPRESSION_JPEG && t->planar == PLANARCONFIG_CONTIG
                   ? 3
                   : 0;
    default: return 0;
    }
}

static int read_head(tiff_job *t) {
    int rc = 0;
    decode_job *j = t->job;
    uint32_t w = 0, h = 0;
    TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &w);
    TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &h);
    TRY(decode_check_size(j, w, h, 1e9)); /* fax codes pack any number of equal rows */
    j->w = (int)w, j->h = (int)h;
    t->bits = tag(t, TIFFTAG_BITSPERSAMPLE), t->samples = tag(t, TIFFTAG_SAMPLESPERPIXEL);
    t->planar = tag(t, TIFFTAG_PLANARCONFIG);
    if (!TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &t->photometric))
        t->photometric = t->samples < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB;
    uint16_t orientation = tag(t, TIFFTAG_ORIENTATION), format = tag(t, TIFFTAG_SAMPLEFORMAT);
    if (orientation >= 1 && orientation <= 8) j->orientation = orientation;
    j->gray = t->photometric <= PHOTOMETRIC_MINISBLACK;
    if ((t->bits != 1 && t->bits != 2 && t->bits != 4 && t->bits != 8 && t->bits != 16) ||
        (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID))
        TRY(fail(CONR_EFORMAT,
                 "%s: is a TIFF with samples of %d bits%s, which is not read; save it with 8 or 16",
                 j->name, t->bits,
                 format == SAMPLEFORMAT_IEEEFP ? " in floating point"
                 : format == SAMPLEFORMAT_INT  ? " with a sign"
                                               : ""));
    int colors = colors_of(t);
    t->ours = colors > 0 && t->samples >= colors;
    find_alpha(t);
    t->used = colors + t->premultiplied;
    if (t->photometric == PHOTOMETRIC_YCBCR && t->ours)
        TIFFSetField(t->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
done:
    return rc;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* Sample k of w pixels, in 8 bits (of a palette: as it is), to every `used`-th byte.  in: the row of
 * a plane with `step` samples a pixel. */
static void unpack(const tiff_job *t, const unsigned char *in, int w, size_t step, size_t k,
                   unsigned char *to) {
    size_t used = (size_t)t->used;
    unsigned bits = t->bits, most = (1u << (bits < 16 ? bits : 8)) - 1;
    unsigned scale = t->photometric == PHOTOMETRIC_PALETTE ? 1 : 255 / most;
    for (size_t x = 0; x < (size_t)w; x++, to += used) {
        size_t i = x * step + k;
        if (bits == 8)
            *to = in[i];
        else if (bits == 16) {
            uint16_t both;
            memcpy(&both, in + 2 * i, 2); /* libtiff has brought it into our order */
            *to = (unsigned char)(both >> 8);
        } else
            *to = (unsigned char)((in[i * bits / 8] >> (8 - bits - i * bits % 8) & most) * scale);
    }
}

static unsigned char times(unsigned a, unsigned b) { /* a * b / 255, rounded, as Pillow does */
    unsigned t = a * b + 128;
    return (unsigned char)((t + (t >> 8)) >> 8);
}

/* samples: [w][used] */
static void to_pixels(const tiff_job *t, const unsigned char *samples, int w, unsigned char *to) {
    const unsigned char *p = samples;
    for (int x = 0; x < w; x++, p += t->used) {
        if (t->job->gray) {
            *to++ = t->photometric == PHOTOMETRIC_MINISWHITE ? 255 - *p : *p;
            continue;
        }
        for (int k = 0; k < 3; k++) {
            unsigned v = p[t->map[0] ? 0 : k];
            if (t->map[0])
                v = t->map[k][v] >> 8;
            else if (t->photometric == PHOTOMETRIC_SEPARATED)
                v = 255u - p[3] - times(v, 255u - p[3]);
            else if (t->premultiplied && p[3] && p[3] < 255)
                v = 255 * v / p[3] > 255 ? 255 : 255 * v / p[3];
            *to++ = (unsigned char)v;
        }
    }
}

static bool is_separate(const tiff_job *t) {
    return t->planar == PLANARCONFIG_SEPARATE && t->samples > 1;
}

/* Where the pixels from x, y on go. */
static unsigned char *place(const tiff_job *t, size_t x, size_t y) {
    const image *m = t->job->out;
    return m->pixels + (y * (size_t)m->w + x) * (size_t)m->c;
}

/* One row with all samples of a pixel side by side. */
static void put_row(const tiff_job *t, const unsigned char *in, size_t x, size_t y, int w) {
    for (int k = 0; k < t->used; k++) unpack(t, in, w, t->samples, (size_t)k, t->row + k);
    to_pixels(t, t->row, w, place(t, x, y));
}

static int check_piece(const tiff_job *t, tmsize_t bytes) {
    return bytes >= 1 && bytes <= LARGEST_TILE
               ? 0
               : decode_fail(t->job, "TIFF", "its rows or tiles are too large");
}

/* all: [h,w,used] if the planes are separate, else NULL.  A plane is read from top to bottom before
 * the next one: its codec would begin again with every change. */
static int read_strips(tiff_job *t, unsigned char *all) {
    int rc = 0;
    size_t w = (size_t)t->job->w, used = (size_t)t->used;
    tmsize_t bytes = TIFFScanlineSize(t->tiff);
    unsigned char *line = NULL;
    TRY(check_piece(t, bytes));
    line = memory_new("image", (size_t)bytes, 1);
    if (!line) TRY(CONR_ENOMEM);
    for (size_t k = 0; k < (all ? used : 1); k++)
        for (size_t y = 0; y < (size_t)t->job->h; y++) {
            if (TIFFReadScanline(t->tiff, line, (uint32_t)y, (uint16_t)k) < 0) TRY(fail_tiff(t));
            if (all)
                unpack(t, line, t->job->w, 1, 0, all + y * w * used + k);
            else
                put_row(t, line, 0, y, t->job->w);
        }
done:
    free(line);
    return rc;
}

static int read_tiles(tiff_job *t, unsigned char *all) {
    int rc = 0;
    unsigned char *tile = NULL;
    size_t wide = (size_t)t->job->w, high = (size_t)t->job->h, used = (size_t)t->used;
    uint32_t w = 0, h = 0;
    TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &w);
    TIFFGetField(t->tiff, TIFFTAG_TILELENGTH, &h);
    tmsize_t row = TIFFTileRowSize(t->tiff), bytes = TIFFTileSize(t->tiff);
    TRY(check_piece(t, bytes));
    if (w < 1 || h < 1 || w > DECODE_SIDE || h > DECODE_SIDE || row < 1)
        TRY(decode_fail(t->job, "TIFF", "tiles of no size"));
    tile = memory_new("image", (size_t)bytes, 1);
    if (!tile) TRY(CONR_ENOMEM);
    for (size_t k = 0; k < (all ? used : 1); k++)
        for (size_t y = 0; y < high; y += h)
            for (size_t x = 0; x < wide; x += w) {
                if (TIFFReadTile(t->tiff, tile, (uint32_t)x, (uint32_t)y, 0, (uint16_t)k) < 0)
                    TRY(fail_tiff(t));
                int across = (int)(w < wide - x ? w : wide - x);
                for (size_t i = 0; i < h && y + i < high; i++) {
                    const unsigned char *in = tile + i * (size_t)row;
                    if (all)
                        unpack(t, in, across, 1, 0, all + ((y + i) * wide + x) * used + k);
                    else
                        put_row(t, in, x, y + i, across);
                }
            }
done:
    free(tile);
    return rc;
}

static int read_samples(tiff_job *t) {
    int rc = 0;
    size_t w = (size_t)t->job->w, h = (size_t)t->job->h, used = (size_t)t->used;
    unsigned char *all = is_separate(t) ? memory_new("image", w * h, used) : NULL;
    if (is_separate(t) && !all) TRY(CONR_ENOMEM);
    t->row = memory_new("image", w, used);
    if (!t->row) TRY(CONR_ENOMEM);
    TRY(TIFFIsTiled(t->tiff) ? read_tiles(t, all) : read_strips(t, all));
    for (size_t y = 0; all && y < h; y++)
        to_pixels(t, all + y * w * used, t->job->w, place(t, 0, y));
done:
    free(all);
    free(t->row);
    return rc;
}

/* libtiff's own conversion, upside up. */
static int read_rgba(tiff_job *t) {
    int rc = 0;
    decode_job *j = t->job;
    TIFFRGBAImage rgba;
    char why[1024] = "";
    size_t n = (size_t)j->w * (size_t)j->h;
    uint32_t *raster = memory_new("image", n, sizeof *raster);
    if (!raster) TRY(CONR_ENOMEM);
    if (!TIFFRGBAImageOK(t->tiff, why) || !TIFFRGBAImageBegin(&rgba, t->tiff, 1, why))
        TRY(decode_fail(j, "TIFF", *why ? why : t->why));
    rgba.req_orientation = rgba.orientation; /* turned later, like any image */
    int ok = TIFFRGBAImageGet(&rgba, raster, (uint32_t)j->w, (uint32_t)j->h);
    TIFFRGBAImageEnd(&rgba);
    if (!ok) TRY(fail_tiff(t));
    int c = j->gray ? 1 : 3;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < c; k++)
            j->out->pixels[i * (size_t)c + (size_t)k] = (unsigned char)(raster[i] >> 8 * k);
done:
    free(raster);
    return rc;
}

static int read_pixels(tiff_job *t) {
    int rc = image_reserve(t->job->out, t->job->w, t->job->h, t->job->gray ? 1 : 3);
    return rc < 0 ? rc : t->ours ? read_samples(t) : read_rgba(t);
}

int decode_tiff(decode_job *j) {
    int rc = 0;
    tiff_job t = {.job = j};
    TRY(open_tiff(&t));
    TRY(read_head(&t));
    if (!j->only_head) TRY(read_pixels(&t));
done:
    if (t.tiff) TIFFClose(t.tiff);
    return rc;
}
