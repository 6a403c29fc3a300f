/* decode_codecs.h: what decode.c and the codecs share. */
#ifndef CONR_DECODE_CODECS_H
#define CONR_DECODE_CODECS_H

#include "images/decode.h"

/* One file to be decoded.  A codec fills in what the header says and, unless only_head, the pixels,
 * gray or RGB, in the orientation of the file. */
typedef struct decode_job {
    const char *name;
    const unsigned char *bytes;
    size_t n;     /* of bytes */
    size_t whole; /* bytes of the file, of which only the beginning may be here */
    int least;    /* as decode() */
    bool only_head;
    int orientation; /* EXIF, 1 .. 8; 1: upright */
    int w, h;        /* of the header, before orientation and scaling */
    bool gray;
    image *out;
} decode_job;

int decode_jpeg(decode_job *j);
int decode_png(decode_job *j);
int decode_webp(decode_job *j);
int decode_bmp(decode_job *j);
/* Where their libraries were found: CONR_GIF, CONR_TIFF, CONR_HEIF. */
int decode_gif(decode_job *j);
int decode_tiff(decode_job *j);
int decode_heif(decode_job *j);

/* Refuses too large sides, too many pixels, or more than `per_byte` pixels per byte of the file. */
int decode_check_size(const decode_job *j, long w, long h, double per_byte);

int decode_fail(const decode_job *j, const char *format, const char *why);
/* The image is not to blame. */
int decode_fail_memory(const decode_job *j);

/* The orientation in a block of EXIF data, which starts with its TIFF header ("II*" or "MM"); 1 if
 * there is none or it is invalid. */
int decode_exif(const unsigned char *bytes, size_t n);

#endif
