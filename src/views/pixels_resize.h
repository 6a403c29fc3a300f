/* pixels_resize.h: shrinking and enlarging with an antialiasing filter, for views, images without
 * randomness and the store.
 *
 * The filters are those of interpolate(antialias=True, align_corners=False) in torch, which are
 * those of Pillow: triangle and cubic (a = -0.5), widened by the scale when shrinking, cut at the
 * edges of the box and normalized. */
#ifndef CONR_PIXELS_RESIZE_H
#define CONR_PIXELS_RESIZE_H

#include <stddef.h>
#include <stdint.h>

typedef enum pixels_filter { PIXELS_BILINEAR, PIXELS_BICUBIC } pixels_filter;

/* out[i] = sum over t < most of weight[i*most + t] * in[first[i] + t]; padded with zero weights, so
 * that all outputs take the same number of inputs, and none beyond the end. */
typedef struct taps {
    int n, most;
    int32_t *first; /* [n] */
    float *weight;  /* [n,most] */
    size_t room[2]; /* elements allocated */
} taps;

/* The outputs from, from+1, ..., from+n-1 of `in` pixels resized to `out`. */
int taps_make(taps *t, pixels_filter filter, int in, int out, int from, int n);
void taps_reverse(taps *t); /* last output first: a mirror image */
void taps_scale(taps *t, float factor);
void taps_free(taps *t); /* may be called twice */

/* The weights of both axes, and buffers for one row. */
typedef struct resizer {
    taps x, y;
    float *row;     /* [w*c + pad] one row of the source width, vertically filtered */
    float *line;    /* [n*c + pad] one row of the result */
    int16_t *whole; /* [y.n,y.most] y.weight as integers, for bytes to bytes */
    size_t room[3];
} resizer;

int resizer_reserve(resizer *r, int w, int c); /* after the taps are made; w: of the source box */
/* Row y of the result, interleaved, into r->line.  box: top left byte of the source box, rows
 * `stride` bytes apart, w pixels wide. */
void resizer_row(resizer *r, const unsigned char *box, size_t stride, int w, int c, int y);
void resizer_free(resizer *r); /* may be called twice */

/* out [oh,ow,c] = the image [h,w,c] resized, rounded to bytes. */
int resizer_bytes(resizer *r, pixels_filter filter, const unsigned char *in, int w, int h, int c,
                  int ow, int oh, unsigned char *out);

#endif
