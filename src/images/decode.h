/* decode.h: JPEG, PNG and WebP files in memory become pixels.
 *
 * Recognized by their first bytes, not by name.  The EXIF orientation is honored.  Gray stays gray
 * unless color is asked for, and the reverse (luma as Pillow's convert("L")).  As in Pillow's
 * convert("RGB"), alpha is dropped, not blended; CMYK is taken as Adobe writes it; palettes are
 * looked up.  Of 16 bits the upper 8 count.
 *
 * A damaged or truncated file is an error, and so is one that claims more pixels than DECODE_PIXELS
 * or more than its bytes can hold: both are refused from the header, before memory is taken. */
#ifndef CONR_DECODE_H
#define CONR_DECODE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    DECODE_SIDE = 65535,     /* pixels of a side, at most */
    DECODE_PIXELS = 1 << 26, /* pixels of an image after scaling, at most */
};

/* Pixels of one image, reused from image to image. */
typedef struct image {
    int w, h, c;           /* c: 1 gray, 3 RGB */
    unsigned char *pixels; /* [h,w,c]; owned, freed by image_free */
    size_t capacity;       /* bytes */
} image;

/* Makes room for w x h x c bytes, whose values are then undefined. */
int image_reserve(image *m, int w, int h, int c);
void image_free(image *m); /* also twice */

/* What the header tells. */
typedef struct decode_head {
    const char *format; /* "JPEG", "PNG", "WebP" */
    int w, h;           /* as shown: orientation applied */
    bool gray;
} decode_head;

/* The n bytes of a file, which messages call `name`. */
int decode_probe(const char *name, const unsigned char *bytes, size_t n, decode_head *out);

/* channels: 1, 3, or 0 for what the file has.  least: the short side of the result may be as small
 * as this where scaling while decoding is cheap (JPEG); 0 for full size.  The caller resizes to
 * what it wants exactly. */
int decode(const char *name, const unsigned char *bytes, size_t n, int channels, int least,
           image *out);

/* In place where c changes from 3 to 1; else the memory may move. */
int image_convert(image *m, int channels);

#endif
