/* whole.h: square matrices of which every row has room for all its numbers: a batch's. */
#ifndef CONR_WHOLE_H
#define CONR_WHOLE_H

#include <stdint.h>

enum {
    WHOLE_ROWS = 2048, /* up to so many: 16 MiB of floats, which a third cache holds */
    WHOLE_STEP = 16    /* numbers of a row that are looked at in one go: a line of the cache */
};

/* How far apart the rows of a square of n columns lie: in whole steps, and not a power of two,
 * where all would fall into the same few lines of a cache. */
static inline int whole_pitch(int n) { return (n / WHOLE_STEP + 2) * WHOLE_STEP; }

/* The k best of a row, k > 0, of those that are at least `lowest`: the larger value, then the lower
 * name.  row: [n]; what lies behind it up to whole_pitch(n) is overwritten.  names: [n], or NULL:
 * the index.  scratch: [n+1].  ids, values: [k]; returns how many of them there are. */
int whole_best(float *row, const int32_t *names, int n, float lowest, int k, int32_t *scratch,
               int32_t *ids, float *values);

#endif
