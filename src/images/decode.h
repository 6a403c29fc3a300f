/* decode.h: decodes image files in memory: JPEG, PNG, WebP, BMP, and, where their libraries were
 * found, GIF, TIFF, HEIC and AVIF.
 *
 * Formats are recognized by their first bytes, not by name.  Of several pages or frames the first is
 * read.  The EXIF orientation is applied.  Gray
 * stays gray unless color is requested, and vice versa (luma as in Pillow's convert("L")).  As in
 * Pillow's convert("RGB"), alpha is dropped, not blended; CMYK is read as Adobe writes it; palettes
 * are resolved.  Of 16 bits the upper 8 are used.
 *
 * A damaged or truncated file is CONR_EFORMAT, and so is one that claims more pixels than DECODE_PIXELS
 * or more than its bytes can hold: the header decides, before memory is allocated.  Memory that a
 * codec could not get is CONR_ENOMEM: the file may be fine. */
#ifndef CONR_DECODE_H
#define CONR_DECODE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    DECODE_SIDE = 65535,     /* most pixels of a side */
    DECODE_PIXELS = 1 << 26, /* most pixels of an image after scaling */
};

/* Pixels of one image, reused from image to image. */
typedef struct image {
    int w, h, c;           /* c: 1 gray, 3 RGB */
    unsigned char *pixels; /* [h,w,c]; owned, freed by image_free */
    size_t capacity;       /* bytes */
} image;

/* Makes room for w x h x c bytes, whose values are then undefined. */
int image_reserve(image *m, int w, int h, int c);
void image_free(image *m); /* may be called twice */

/* What the header says. */
typedef struct decode_head {
    const char *format; /* "JPEG", "PNG", ... */
    int w, h;           /* as shown: orientation applied */
    bool gray;
} decode_head;

/* The format that these first bytes of a file belong to, built in or not; NULL: none of ours. */
const char *decode_format(const unsigned char *bytes, size_t n);
/* The i-th format, and whether it is built in; NULL beyond the last. */
const char *decode_built_in(int i, bool *is_there);

/* Reads the header.  bytes: the n bytes of a file that messages call `name`, or the first n of its
 * `whole` bytes.  If those do not suffice, fails with *more set (may be NULL). */
int decode_probe(const char *name, const unsigned char *bytes, size_t n, size_t whole,
                 decode_head *out, bool *more);

/* channels: 1, 3, or 0: as in the file.  least: the short side of the result may be as small as
 * this if scaling while decoding is cheap (JPEG); 0: full size.  The caller resizes to the exact
 * size. */
int decode(const char *name, const unsigned char *bytes, size_t n, int channels, int least,
           image *out);

/* In place if c changes from 3 to 1; otherwise the memory may move. */
int image_convert(image *m, int channels);

#endif
