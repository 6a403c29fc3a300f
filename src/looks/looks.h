/* looks.h: what a glance at each image of a source tells: whether it is blurred, dark or nearly
 * uniform, and which images are copies of each other.
 *
 * Copies with the same bytes have the same checksum.  Copies that were encoded again, resized or
 * cropped are found in two steps.  Each image is hashed as a whole and through a few windows, as if
 * cropped there, by the signs of low frequencies; the hash of a cropped copy is close to that of a
 * window of the original.  Tables of some bits of all hashes give candidates, without comparing every
 * pair; each of them is then compared pixel by pixel, small, while the window is fitted.  The
 * similarity of two images is the correlation of their gray values, as far as they overlap. */
#ifndef CONR_LOOKS_H
#define CONR_LOOKS_H

#include "conr.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LOOK_SIDE = 32,    /* of the small gray copy that is kept */
    LOOK_CHROMA = 8,   /* of its colors */
    LOOK_FRAME = 64,   /* of the copy that windows are hashed from */
    LOOK_WINDOWS = 39, /* the first is the whole image */
    LOOK_WEAK = 8,     /* bits of its hash that are most easily changed */
    LOOK_OWN = 256,    /* values of an image that is compared with others */
};

/* A part of an image; all from 0 to 1. */
typedef struct look_window {
    float x, y, w, h;
} look_window;

typedef struct look {
    conr_look about;
    uint64_t sum; /* of the bytes of the file, or of the pixels in an array */
    bool plain;   /* so uniform that only equal bytes tell a copy */
    bool again;   /* another image before it has the same bytes */
    uint64_t hash[LOOK_WINDOWS];
    unsigned char weak[LOOK_WEAK]; /* bits of hash[0], the weakest first */
    unsigned char gray[LOOK_SIDE * LOOK_SIDE];
    signed char chroma[LOOK_CHROMA * LOOK_CHROMA * 2];
} look;

/* Two images that are alike, first < second. */
typedef struct look_pair {
    int32_t first, second;
    float similarity;
} look_pair;

struct conr_looks {
    int64_t n;
    look *look;      /* [n] */
    look_pair *pair; /* [n_pairs], at least LOOK_LEAST alike, the most alike first */
    int64_t n_pairs;
    bool paired;
};

#define LOOK_LEAST 0.9f /* the lowest threshold that can be asked for */

const look_window *look_windows(void); /* [LOOK_WINDOWS] */
/* The hashes of all windows of a gray image [LOOK_FRAME,LOOK_FRAME], and the weak bits. */
void look_hashes(const unsigned char *frame, look *out);
/* What look_compare takes of the whole image a, [LOOK_OWN]; false: it is uniform. */
bool look_own(const look *a, float *own);
/* How alike the whole image a is to the part of b near a window, which is fitted: -1 to 1. */
float look_compare(const look *a, const float *own, const look *b, look_window at);
/* Finds all pairs. */
int looks_pair(conr *c, conr_looks *l);

#endif
