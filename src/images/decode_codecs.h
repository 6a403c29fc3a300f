/* decode_codecs.h: between decode.c and the three codecs. */
#ifndef CONR_DECODE_CODECS_H
#define CONR_DECODE_CODECS_H

#include "images/decode.h"

/* One file to be decoded.  A codec fills what the header tells and, unless only_head, the pixels
 * in the file's own orientation, gray or RGB. */
typedef struct decode_job {
    const char *name;
    const unsigned char *bytes;
    size_t n;
    int least; /* as decode() */
    bool only_head;
    int orientation; /* EXIF, 1 .. 8; 1: as it is */
    int w, h;        /* of the header, before orientation and scaling */
    bool gray;
    image *out;
} decode_job;

int decode_jpeg(decode_job *j);
int decode_png(decode_job *j);
int decode_webp(decode_job *j);

/* Refuses w x h pixels: sides, their product, or more than `per_byte` pixels a byte of the file. */
int decode_check_size(const decode_job *j, long w, long h, double per_byte);

int decode_fail(const decode_job *j, const char *format, const char *why);

/* The orientation in a block of EXIF data, which starts with its TIFF header ("II*" or "MM"); 1
 * where there is none or it makes no sense. */
int decode_exif(const unsigned char *bytes, size_t n);

#endif
