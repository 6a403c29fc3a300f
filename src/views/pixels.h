/* pixels.h: an image's bytes become the floats that the encoder sees: a random view, or the image
 * as it is.
 *
 * With torchvision's semantics on float tensors: crop, resize (bilinear,
 * antialiased), flip, brightness, contrast, saturation and hue in the drawn order, each cut to
 * [0,1], grayscale, blur, solarize (at 0.5), then (x - mean) / deviation.  Nothing is rounded to 8
 * bits between.  One channel: brightness and contrast only, blur and solarize as well. */
#ifndef CONR_PIXELS_H
#define CONR_PIXELS_H

#include "views/draw.h"

#include <stdbool.h>

typedef struct pixels_norm {
    float mean[3], deviation[3]; /* of values in [0,1] */
} pixels_norm;

/* The tools of one thread. */
typedef struct pixels pixels;

/* For results of size x size pixels of `channels` (1 or 3).  Released by pixels_free. */
int pixels_new(int size, int channels, pixels **out);
void pixels_free(pixels *p); /* NULL is fine */

/* The view of an image [h,w,c] that was drawn for its size.  out: [size,size,c], the caller's. */
int pixels_view(pixels *p, const unsigned char *image, int w, int h, const draw *d,
                const pixels_norm *norm, float *out);

/* The image without randomness: as it is where the size fits, else squashed (bicubic); with `side`
 * > 0 its short side is resized to `side` and the center cut out (ImageNet-Dogs: 256 of 224). */
int pixels_plain(pixels *p, const unsigned char *image, int w, int h, int side,
                 const pixels_norm *norm, float *out);

/* Pixels of the blur's kernel: a tenth of the side, odd. */
int pixels_blur_size(int size);

#endif
