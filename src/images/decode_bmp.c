/* decode_bmp.c: Windows bitmaps: 1, 4 or 8 bits with a palette, plain or run-length coded; 16, 24 or
 * 32 bits, with masks or without; rows from below or from above.
 *
 * Our own: the format is a header and rows of pixels. */
#include "images/decode_codecs.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN = 0, RLE8 = 1, RLE4 = 2, MASKS = 3, MASKS_ALPHA = 6 };

typedef struct bmp {
    decode_job *job;
    size_t pixels;    /* offset of the first row */
    int bits;         /* of a pixel */
    uint32_t packing; /* PLAIN ... */
    bool down;        /* the first row is the top */
    uint32_t mask[3]; /* red, green, blue; for 16 and 32 bits */
    unsigned char palette[256][3];
} bmp;

static uint32_t little(const unsigned char *p, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)p[i] << 8 * i;
    return value;
}

static size_t row_bytes(const bmp *b) {
    return ((size_t)b->job->w * (size_t)b->bits + 31) / 32 * 4;
}

/* Colors beyond the palette are black. */
static void read_palette(bmp *b, size_t at, size_t count, size_t entry) {
    const decode_job *j = b->job;
    bool gray = true;
    for (size_t i = 0; i < count && at + 3 <= j->n; i++, at += entry) {
        for (int k = 0; k < 3; k++) b->palette[i][k] = j->bytes[at + 2 - (size_t)k];
        gray = gray && !memcmp(b->palette[i], b->palette[i] + 1, 2);
    }
    b->job->gray = gray;
}

static int check_form(const bmp *b) {
    int bits = b->bits;
    bool known = b->packing == PLAIN
                     ? bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32
                 : b->packing == RLE8                               ? bits == 8 && !b->down
                 : b->packing == RLE4                               ? bits == 4 && !b->down
                 : b->packing == MASKS || b->packing == MASKS_ALPHA ? bits == 16 || bits == 32
                                                                    : false;
    if (known) return 0;
    return fail(CONR_EFORMAT,
                "%s: is a BMP of %d bits in packing %u, which is not read; convert it",
                b->job->name, bits, (unsigned)b->packing);
}

static int read_head(bmp *b) {
    int rc = 0;
    decode_job *j = b->job;
    const unsigned char *p = j->bytes;
    uint32_t head = little(p + 14, 4), colors = 0;
    bool old = head == 12; /* of OS/2: 16 bits for a side, 3 bytes for a color */
    if (j->n < 14 + (size_t)head) TRY(decode_fail(j, "BMP", "it ends within its header"));
    b->pixels = little(p + 10, 4);
    long w = old ? (long)little(p + 18, 2) : (int32_t)little(p + 18, 4);
    long h = old ? (long)little(p + 20, 2) : (int32_t)little(p + 22, 4);
    b->bits = (int)little(p + (old ? 24 : 28), 2);
    b->down = h < 0;
    if (h < 0) h = -h;
    if (!old) b->packing = little(p + 30, 4), colors = little(p + 46, 4);
    TRY(check_form(b));
    TRY(decode_check_size(j, w, h, b->packing == RLE8 || b->packing == RLE4 ? 1e9 : 8.0));
    j->w = (int)w, j->h = (int)h;
    if (b->bits <= 8) {
        size_t most = (size_t)1 << b->bits;
        read_palette(b, 14 + head, colors && colors < most ? colors : most, old ? 3 : 4);
    }
    static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
    memcpy(b->mask, usual[b->bits == 32], sizeof b->mask);
    if (b->packing == MASKS || b->packing == MASKS_ALPHA) {
        if (j->n < 66) TRY(decode_fail(j, "BMP", "it ends within its header"));
        for (int k = 0; k < 3; k++) b->mask[k] = little(p + 54 + 4 * k, 4);
    }
done:
    return rc;
}

/* The value under a mask, scaled to 255. */
static unsigned char under_mask(uint32_t pixel, uint32_t mask) {
    if (!mask) return 0;
    uint32_t low = mask & (~mask + 1), most = mask / low;
    return (unsigned char)((uint64_t)((pixel & mask) / low) * 255 / most);
}

static void put_color(const bmp *b, unsigned char *to, unsigned color) {
    memcpy(to, b->palette[color], b->job->gray ? 1 : 3);
}

static void convert_row(const bmp *b, const unsigned char *in, unsigned char *to) {
    int w = b->job->w, bits = b->bits;
    if (bits <= 8)
        for (int x = 0; x < w; x++, to += b->job->gray ? 1 : 3)
            put_color(b, to, in[x * bits / 8] >> (8 - bits - x * bits % 8) & ((1 << bits) - 1));
    else if (bits == 24 || (bits == 32 && b->packing == PLAIN))
        for (int x = 0; x < w; x++, to += 3, in += bits / 8)
            to[0] = in[2], to[1] = in[1], to[2] = in[0];
    else
        for (int x = 0; x < w; x++, in += bits / 8)
            for (int k = 0; k < 3; k++) *to++ = under_mask(little(in, bits / 8), b->mask[k]);
}

/* A run: a count and a color (two for 4 bits, by turns); after a count of 0: 0 the row ends, 1 the
 * image ends, 2 a step right and up, else so many colors as they are, padded to 16 bits.  Pixels
 * that are passed over have color 0. */
static int read_runs(const bmp *b) {
    const decode_job *j = b->job;
    int c = j->gray ? 1 : 3, x = 0, y = 0, half = b->bits == 4;
    const unsigned char *p = j->bytes + b->pixels, *end = j->bytes + j->n;
    for (size_t i = 0; i < (size_t)j->w * (size_t)j->h; i++)
        put_color(b, j->out->pixels + i * (size_t)c, 0);
    while (y < j->h) {
        if (end - p < 2) return decode_fail(j, "BMP", "it ends too early");
        int count = p[0], what = p[1];
        bool plain = !count && what > 2;
        const unsigned char *colors = p + (plain ? 2 : 1);
        p += 2;
        if (!count && what == 1) break;
        if (!count && what == 0) {
            x = 0, y++;
        } else if (!count && what == 2) {
            if (end - p < 2) return decode_fail(j, "BMP", "it ends too early");
            x += p[0], y += p[1], p += 2;
        } else {
            if (plain) {
                int bytes = half ? (what + 1) / 2 : what;
                count = what;
                if (end - p < bytes + (bytes & 1))
                    return decode_fail(j, "BMP", "it ends too early");
                p += bytes + (bytes & 1);
            }
            for (int i = 0; i < count && x < j->w; i++, x++) {
                unsigned both = colors[!plain ? 0 : half ? i / 2 : i];
                unsigned color = !half ? both : i % 2 ? both & 15 : both >> 4;
                size_t at = (size_t)(j->h - 1 - y) * (size_t)j->w + (size_t)x;
                put_color(b, j->out->pixels + at * (size_t)c, color);
            }
        }
    }
    return 0;
}

int decode_bmp(decode_job *j) {
    int rc = 0;
    bmp b = {.job = j};
    TRY(read_head(&b));
    if (j->only_head) goto done;
    bool runs = b.packing == RLE8 || b.packing == RLE4;
    size_t need = runs ? 0 : row_bytes(&b) * (size_t)j->h;
    if (b.pixels > j->n || j->n - b.pixels < need) TRY(decode_fail(j, "BMP", "it ends too early"));
    TRY(image_reserve(j->out, j->w, j->h, j->gray ? 1 : 3));
    if (runs) TRY(read_runs(&b));
    for (int y = 0; !runs && y < j->h; y++)
        convert_row(&b, j->bytes + b.pixels + (size_t)y * row_bytes(&b),
                    j->out->pixels +
                        (size_t)(b.down ? y : j->h - 1 - y) * (size_t)j->w * (size_t)j->out->c);
done:
    return rc;
}
