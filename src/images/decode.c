/* decode.c: chooses the codec, applies EXIF orientation, limits, gray and color.
 *
 * The codecs themselves are in files of their own, decode_NAME.c: libraries behind decode_codecs.h.
 * Those of TIFF, GIF, HEIC and AVIF may be missing where conr was built (CMakeLists.txt says how
 * they are found): their files are recognized all the same, and refused with what to install. */
#include "images/decode_codecs.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int image_reserve(image *m, int w, int h, int c) {
    size_t need = (size_t)w * (size_t)h * (size_t)c;
    if (need > m->capacity) {
        free(m->pixels);
        *m = (image){0};
        m->pixels = memory_new("image", need, 1);
        if (!m->pixels) return CONR_ENOMEM;
        m->capacity = need;
    }
    m->w = w, m->h = h, m->c = c;
    return 0;
}

void image_free(image *m) {
    free(m->pixels);
    *m = (image){0};
}

int image_convert(image *m, int channels) {
    size_t n = (size_t)m->w * (size_t)m->h;
    if (channels == 0 || m->c == channels) return 0;
    if (channels == 1) { /* the luma of Pillow's convert("L") */
        for (size_t i = 0; i < n; i++) {
            const unsigned char *p = m->pixels + 3 * i;
            m->pixels[i] =
                (unsigned char)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
        }
        m->c = 1;
        return 0;
    }
    image wide = {0};
    int rc = image_reserve(&wide, m->w, m->h, 3);
    if (rc < 0) return rc;
    for (size_t i = 0; i < n; i++) memset(wide.pixels + 3 * i, m->pixels[i], 3);
    image_free(m);
    *m = wide;
    return 0;
}

/* ---- limits and messages --------------------------------------------------------------------- */

int decode_fail(const decode_job *j, const char *format, const char *why) {
    return fail(CONR_EFORMAT, "%s: damaged %s: %s; replace or remove it", j->name, format, why);
}

int decode_fail_memory(const decode_job *j) {
    return fail(CONR_ENOMEM, "%s: not enough memory to decode it; close other programs", j->name);
}

int decode_check_size(const decode_job *j, long w, long h, double per_byte) {
    if (w < 1 || h < 1 || w > DECODE_SIDE || h > DECODE_SIDE || w * h > DECODE_PIXELS)
        return fail(CONR_EFORMAT,
                    "%s: claims %ld x %ld pixels, the limit is %d million; make it smaller",
                    j->name, w, h, DECODE_PIXELS >> 20);
    if ((double)w * (double)h > per_byte * (double)j->whole)
        return fail(CONR_EFORMAT, "%s: claims %ld x %ld pixels in %zu bytes; is it damaged?",
                    j->name, w, h, j->whole);
    return 0;
}

/* ---- EXIF ------------------------------------------------------------------------------------ */

typedef struct tiff {
    const unsigned char *bytes;
    size_t n;
    bool big_endian;
} tiff;

/* 0 beyond the end. */
static uint32_t tiff_number(const tiff *t, size_t at, int size) {
    uint32_t value = 0;
    if (at > t->n || t->n - at < (size_t)size) return 0;
    for (int i = 0; i < size; i++)
        value |= (uint32_t)t->bytes[at + (size_t)i] << 8 * (t->big_endian ? size - 1 - i : i);
    return value;
}

int decode_exif(const unsigned char *bytes, size_t n) {
    enum { ORIENTATION = 0x0112, ENTRY_BYTES = 12, SHORT = 3 };
    if (n < 8 || (memcmp(bytes, "II*\0", 4) && memcmp(bytes, "MM\0*", 4))) return 1;
    tiff t = {bytes, n, bytes[0] == 'M'};
    size_t at = tiff_number(&t, 4, 4);
    uint32_t entries = tiff_number(&t, at, 2);
    for (uint32_t i = 0; i < entries; i++) {
        size_t entry = at + 2 + i * ENTRY_BYTES;
        if (tiff_number(&t, entry, 2) != ORIENTATION) continue;
        uint32_t value = tiff_number(&t, entry + 8, 2);
        return tiff_number(&t, entry + 2, 2) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Copies an image upright: orientations 5 to 8 swap the axes, and some reverse x or y of the
 * source.  from, to: different memory. */
static void turn(const image *from, int orientation, image *to) {
    bool swap = orientation >= 5;
    bool back_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool back_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    size_t c = (size_t)from->c;
    unsigned char *out = to->pixels;
    for (int y = 0; y < to->h; y++)
        for (int x = 0; x < to->w; x++, out += c) {
            int sx = swap ? y : x, sy = swap ? x : y;
            if (back_x) sx = from->w - 1 - sx;
            if (back_y) sy = from->h - 1 - sy;
            memcpy(out, from->pixels + ((size_t)sy * (size_t)from->w + (size_t)sx) * c, c);
        }
}

static int make_upright(image *m, int orientation) {
    image upright = {0};
    bool swap = orientation >= 5;
    if (orientation == 1) return 0;
    int rc = image_reserve(&upright, swap ? m->h : m->w, swap ? m->w : m->h, m->c);
    if (rc < 0) return rc;
    turn(m, orientation, &upright);
    image_free(m);
    *m = upright;
    return 0;
}

/* ---- choosing the codec ---------------------------------------------------------------------- */

typedef struct codec {
    const char *format;
    bool (*is)(const unsigned char *bytes, size_t n);
    int (*run)(decode_job *j); /* NULL: not built in */
    const char *package;       /* that has the library, for those that may be missing */
    bool at_end;               /* the orientation may be at the end of the file */
} codec;

static bool is_jpeg(const unsigned char *b, size_t n) {
    return n >= 3 && !memcmp(b, "\xff\xd8\xff", 3);
}
static bool is_png(const unsigned char *b, size_t n) {
    return n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8);
}
static bool is_webp(const unsigned char *b, size_t n) {
    return n >= 16 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4);
}
static bool is_gif(const unsigned char *b, size_t n) {
    return n >= 6 && (!memcmp(b, "GIF87a", 6) || !memcmp(b, "GIF89a", 6));
}
static bool is_tiff(const unsigned char *b, size_t n) { /* and BigTIFF */
    return n >= 8 && (!memcmp(b, "II*\0", 4) || !memcmp(b, "MM\0*", 4) || !memcmp(b, "II+\0", 4) ||
                      !memcmp(b, "MM\0+", 4));
}
/* "BM" may begin a text: the length of the second header tells. */
static bool is_bmp(const unsigned char *b, size_t n) {
    return n >= 18 && b[0] == 'B' && b[1] == 'M' && !b[15] && !b[16] && !b[17] &&
           memchr("\x0c\x28\x34\x38\x40\x6c\x7c", b[14], 7);
}

/* An ISO container begins with a box of its brands: four letters each, the second a version. */
static bool has_brand(const unsigned char *b, size_t n, const char *brands) {
    if (n < 16 || b[0] || b[1] || memcmp(b + 4, "ftyp", 4)) return false;
    size_t size = (size_t)b[2] << 8 | b[3];
    for (size_t at = 8; at + 4 <= size && at + 4 <= n; at += at == 8 ? 8 : 4)
        for (const char *p = brands; *p; p += 4)
            if (!memcmp(b + at, p, 4)) return true;
    return false;
}
static bool is_avif(const unsigned char *b, size_t n) { return has_brand(b, n, "avifavis"); }
static bool is_heic(const unsigned char *b, size_t n) {
    return has_brand(b, n, "heicheixheimheishevchevxmif1msf1");
}

#ifndef CONR_GIF
#define decode_gif NULL
#endif
#ifndef CONR_TIFF
#define decode_tiff NULL
#endif
#ifndef CONR_HEIF
#define decode_heif NULL
#endif

static const codec codecs[] = {
    {"JPEG", is_jpeg, decode_jpeg, NULL, false},
    {"PNG", is_png, decode_png, NULL, false},
    {"WebP", is_webp, decode_webp, NULL, true},
    {"BMP", is_bmp, decode_bmp, NULL, false},
    {"GIF", is_gif, decode_gif, "libgif-dev", false},
    {"TIFF", is_tiff, decode_tiff, "libtiff-dev", false},
    {"AVIF", is_avif, decode_heif, "libheif-dev", false}, /* before HEIC: it may have both brands */
    {"HEIC", is_heic, decode_heif, "libheif-dev", false},
};
enum { N_CODECS = sizeof codecs / sizeof *codecs };

static const codec *find_codec(const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < N_CODECS; i++)
        if (codecs[i].is(bytes, n)) return &codecs[i];
    return NULL;
}

const char *decode_format(const unsigned char *bytes, size_t n) {
    const codec *k = find_codec(bytes, n);
    return k ? k->format : NULL;
}

const char *decode_built_in(int i, bool *is_there) {
    if (i < 0 || i >= N_CODECS) return NULL;
    *is_there = codecs[i].run != NULL;
    return codecs[i].format;
}

static int run_codec(decode_job *j, const char **format) {
    const codec *k = find_codec(j->bytes, j->n);
    j->orientation = 1;
    if (!k)
        return fail(CONR_EFORMAT, "%s: is %s it", j->name,
                    j->n ? "not an image that conr reads; convert" : "empty; remove");
    if (!k->run)
        return fail(CONR_EFORMAT, "%s: %s is not built in; install %s and build again", j->name,
                    k->format, k->package);
    if (format) *format = k->format;
    return k->run(j);
}

int decode_probe(const char *name, const unsigned char *bytes, size_t n, size_t whole,
                 decode_head *out, bool *more) {
    decode_job j = {.name = name, .bytes = bytes, .n = n, .whole = whole, .only_head = true};
    const codec *k = find_codec(bytes, n);
    int rc = n < whole && k && k->at_end
                 ? fail(CONR_EFORMAT, "%s: is cut short; give all of it", name)
                 : run_codec(&j, &out->format);
    if (more) *more = rc == CONR_EFORMAT && n < whole;
    if (rc < 0) return rc;
    bool swap = j.orientation >= 5;
    out->w = swap ? j.h : j.w;
    out->h = swap ? j.w : j.h;
    out->gray = j.gray;
    return 0;
}

int decode(const char *name, const unsigned char *bytes, size_t n, int channels, int least,
           image *out) {
    int rc = 0;
    decode_job j = {.name = name, .bytes = bytes, .n = n, .whole = n, .least = least, .out = out};
    TRY(run_codec(&j, NULL));
    TRY(make_upright(out, j.orientation));
    TRY(image_convert(out, channels));
done:
    return rc;
}
