/* thumbs.h: small square pictures as WebP, single or many on a sheet. */
#ifndef CONR_THUMBS_H
#define CONR_THUMBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where pictures come from.  read: the pixels of image i; may be reduced, but not below `least` on
 * the short side.  Called by many threads, each with its own `out`, an `image` of images/decode.h.
 * 1: this picture is not available; negative: an error. */
struct image;
typedef struct thumbs_source {
    int (*read)(void *user, int64_t i, int least, struct image *out);
    void *user;
    int channels; /* 1 or 3: of what read returns */
} thumbs_source;

/* Squares of equal side, bytes [side,side,3] each. */
typedef struct thumbs {
    int n, side;
    unsigned char *pixels;  /* [n,side,side,3]; owned */
    unsigned char *missing; /* [n] 1: could not be read, is black */
} thumbs;

/* The center squares of images ids[0..n-1], resized to side x side. */
int thumbs_make(const thumbs_source *from, const int64_t *ids, int n, int side, int threads,
                thumbs *out);
void thumbs_free(thumbs *t); /* may be called twice */

/* Encoded pictures. */
typedef struct webp {
    uint8_t *bytes; /* owned; freed by webp_free */
    size_t n;
} webp;

/* pixels: [h,w,c], c 3 or 4.  quality: 0 to 100; above: lossless. */
int webp_encode(const unsigned char *pixels, int w, int h, int c, float quality, webp *out);
void webp_free(webp *w);

/* Each thumb by itself: out [n]; empty if it is missing. */
int thumbs_encode(const thumbs *t, float quality, int threads, webp *out);

enum { SHEET_COLUMNS = 32, SHEET_THUMBS = SHEET_COLUMNS * SHEET_COLUMNS };
/* All thumbs, row by row, on sheets of SHEET_COLUMNS x SHEET_COLUMNS: out [thumbs_sheets(n)]. */
int thumbs_sheets(int n);
int thumbs_encode_sheets(const thumbs *t, float quality, int threads, webp *out);

#endif
