/* search.h: the exact nearest neighbors of every row among all rows. */
#ifndef CONR_SEARCH_H
#define CONR_SEARCH_H

#include "device/device.h"

/* Up to so many rows a square of floats is kept whole: 16 MiB, which a third cache holds. */
enum { SEARCH_WHOLE = 2048 };

/* The k best of each row of S = F F^T: the row itself first, then the larger value, then the lower
 * index.  f: [n,d], unit rows; k <= n.  ids, values: [n,k]; values are S's, bit by bit those of
 * cpu_gemm, but 1 for the row itself.  Memory beside the results is two packed copies of f, and S
 * itself where n <= SEARCH_WHOLE. */
int search_nearest(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values);

/* Its two ways, with the same result: S kept whole (search_whole.c), and in rounds of blocks. */
int search_whole(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values);
int search_rounds(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values);

/* How far apart the rows of a square of n columns lie: in whole steps of search_best, and not a
 * power of two apart, where all would fall into the same few lines of a cache. */
enum { SEARCH_STEP = 16 };
static inline int search_pitch(int n) { return (n / SEARCH_STEP + 2) * SEARCH_STEP; }

/* The k best of a row, k > 0, of those that are at least `lowest`: the larger value, then the lower
 * index.  row: [n], finite; behind it up to search_pitch(n) anything that may be overwritten.
 * scratch: [n+1].  ids, values: [k]; returns how many of them there are. */
int search_best(float *row, int n, float lowest, int k, int32_t *scratch, int32_t *ids,
                float *values);

/* Puts (value, id) into a list of k ordered by the larger value, then the lower id, whose last
 * falls out; nothing happens when it does not beat the last.  k > 0. */
static inline void search_offer(int k, int32_t *ids, float *values, int32_t id, float value) {
    int at = k - 1;
    if (value < values[at] || (value == values[at] && id > ids[at])) return;
    for (; at > 0 && (value > values[at - 1] || (value == values[at - 1] && id < ids[at - 1]));
         at--) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = id;
}

#endif
