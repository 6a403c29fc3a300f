/* store.h: the images of a source, decoded once.
 *
 * Bytes [h,w,c], aspect ratio kept, no larger than the encoder can make use of.  They lie in
 * memory where they fit, in the source's own bytes where those are as they should be, else in a
 * cache file that is mapped and found again at the next start: one file a source and setting, told
 * fresh from stale by the names, sizes and times of the sources, checked by sums, rebuilt where
 * anything differs. */
#ifndef CONR_STORE_H
#define CONR_STORE_H

#include "images/source.h"
#include "views/pixels.h"

typedef enum store_place { STORE_AUTO, STORE_MEMORY, STORE_CACHE } store_place;

typedef struct store_options {
    int side;           /* short sides are shrunk to this; 0: as they are */
    int channels;       /* 1, 3, or 0: 1 where every image is gray */
    store_place place;  /* AUTO: memory where the images fit into `memory` */
    uint64_t memory;    /* bytes; 0: half of what this machine has free */
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
    stored *image;        /* [n], in the source's order */
    uint64_t bytes;       /* of all pixels */
    const char *words;    /* where they lie: "memory", "cache file", "source" */
    bool found;           /* a cache file of an earlier start was used */
    unsigned char *owned; /* [bytes], or NULL */
    void *map;            /* the cache file, or NULL */
    size_t map_size;
} store;

/* 2 x the encoder's size below 160 pixels, 8/7 of it above (256 for 224): random crops then see
 * what they would see of the original. */
int store_side_for(int size);

/* Decodes all images; those that cannot be are dropped from the source and counted there.  The
 * source must outlive the store. */
int store_open(source *s, const store_options *o, store *out);
void store_close(store *s); /* also after a failed open, or twice */

/* Mean and deviation of the channels: the published constants where the source is a known data set,
 * else measured, in exact sums. */
void store_norm(const source *from, const store *s, int threads, pixels_norm *out);

#endif
