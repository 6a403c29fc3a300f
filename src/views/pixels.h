/* pixels.h: from the bytes of an image to the floats that the encoder sees: a random view, or the
 * image without randomness.
 *
 * The semantics are those of torchvision on float tensors: crop, resize (bilinear, antialiased),
 * flip; brightness, contrast, saturation and hue in the drawn order, each clamped to [0,1];
 * grayscale, blur, solarize (at 0.5); then (x - mean) / deviation.  Nothing is rounded to 8 bits in
 * between.  With one channel, saturation, hue and grayscale have no effect. */
#ifndef CONR_PIXELS_H
#define CONR_PIXELS_H

#include "views/draw.h"
#include "views/pixels_resize.h"

#include <stdbool.h>

typedef struct pixels_norm {
    float mean[3], deviation[3]; /* of values in [0,1] */
} pixels_norm;

/* The buffers of one thread. */
typedef struct pixels pixels;

/* For results of size x size pixels of `channels` (1 or 3).  Released by pixels_free. */
int pixels_new(int size, int channels, pixels **out);
void pixels_free(pixels *p); /* NULL is fine */

/* The view of an image [h,w,c] that was drawn for its size.  The caller owns out, [size,size,c]. */
int pixels_view(pixels *p, const unsigned char *image, int w, int h, const draw *d,
                const pixels_norm *norm, float *out);

/* The image without randomness: unchanged if the size fits, else squashed (bicubic).  With side > 0
 * its short side is resized to `side` and the center is cut out (ImageNet-Dogs: 224 out of 256). */
int pixels_plain(pixels *p, const unsigned char *image, int w, int h, int side,
                 const pixels_norm *norm, float *out);

/* The same with another filter. */
int pixels_plain_by(pixels *p, pixels_filter filter, const unsigned char *image, int w, int h,
                    int side, const pixels_norm *norm, float *out);

/* Width of the blur kernel in pixels: a tenth of the side, odd. */
int pixels_blur_size(int size);

#endif
