/* whole.h: square matrices that are stored whole: those of a batch. */
#ifndef CONR_WHOLE_H
#define CONR_WHOLE_H

#include <stdint.h>

enum {
    WHOLE_ROWS = 2048, /* at most: 16 MiB of floats, which fit into a third-level cache */
    WHOLE_STEP = 16    /* floats that are processed at a time: a cache line */
};

/* The stride of the rows of a matrix with n columns: whole steps, and not a power of two, with
 * which all rows would compete for the same few cache lines. */
static inline int whole_pitch(int n) { return (n / WHOLE_STEP + 2) * WHOLE_STEP; }

/* The k best of the values of a row that are at least `lowest`, k > 0: by descending value, then
 * ascending name.  row: [n]; what follows it up to whole_pitch(n) is overwritten.  names: [n], or
 * NULL: the index.  scratch: [n+1].  ids, values: [k]; returns how many there are. */
int whole_best(float *row, const int32_t *names, int n, float lowest, int k, int32_t *scratch,
               int32_t *ids, float *values);

#endif
