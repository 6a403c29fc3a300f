/* store.h: the images of a source, decoded once.
 *
 * Bytes [h,w,c] with the aspect ratio of the image, no larger than the encoder can use.  They are
 * in the source's own memory if that has the right form, in memory if they fit, else in a cache
 * file that is mapped and reused by the next run: one file per source and setting.  It is valid if
 * the names, sizes and times of the source files match, checked by checksums, and otherwise
 * rebuilt. */
#ifndef CONR_STORE_H
#define CONR_STORE_H

#include "images/source.h"
#include "views/pixels.h"

typedef enum store_place { STORE_AUTO, STORE_MEMORY, STORE_CACHE } store_place;

typedef struct store_options {
    int side;           /* short sides are shrunk to this; 0: not shrunk */
    int channels;       /* 1, 3, or 0: 1 if every image is gray, else 3 */
    store_place place;  /* AUTO: memory if the images fit into `memory` */
    uint64_t memory;    /* bytes; 0: half of the free memory */
    const char *folder; /* of the cache; NULL: $XDG_CACHE_HOME/conr or ~/.cache/conr */
    int threads;
    progress tell;
} store_options;

typedef struct stored {
    const unsigned char *pixels; /* [h,w,c] */
    uint16_t w, h;
} stored;

typedef struct store {
    int64_t n;
    int c;
    stored *image;        /* [n], in the order of the source */
    uint64_t bytes;       /* of all pixels */
    const char *words;    /* where they are: "memory", "cache file", "source" */
    bool found;           /* the cache file of an earlier run was used */
    unsigned char *owned; /* [bytes], or NULL */
    void *map;            /* the cache file, or NULL */
    size_t map_size;
} store;

/* 2 x the size of the encoder below 160 pixels, 8/7 of it above (256 for 224): with that, random
 * crops show as much as those of the original. */
int store_side_for(int size);

/* Decodes all images; those that cannot be decoded are dropped from the source and counted there.
 * The source must outlive the store. */
int store_open(source *s, const store_options *o, store *out);
void store_close(store *s); /* may follow a failed open, and may be called twice */

/* Mean and deviation of the channels: the published constants if the source is a known data set,
 * else measured, by exact sums. */
void store_norm(const source *from, const store *s, int threads, pixels_norm *out);

#endif
