/* search.h: the exact nearest neighbors of every row among all rows. */
#ifndef CONR_SEARCH_H
#define CONR_SEARCH_H

#include "ranks/ranks.h"

/* The k best of each row of S = F F^T: the row itself first, then by descending value, ties by
 * ascending index.  f: [n,d], unit rows; k <= n.  ids, values: [n,k]; values are those of S, with
 * the bits of gemm, but 1 for the row itself.  Memory beside the results: two packed copies of
 * f, and S itself if n <= WHOLE_ROWS (whole.h).  over: ranks that call it together and share the
 * work on large sets; NULL: none. */
int search_nearest(device *dev, ranks *over, const float *f, int n, int d, int k, int32_t *ids,
                   float *values);

/* Its two implementations, with the same result: S stored whole (search_whole.c), and in rounds of
 * blocks (search.c). */
int search_whole(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values);
int search_rounds(device *dev, ranks *over, const float *f, int n, int d, int k, int32_t *ids,
                  float *values);

/* Inserts (value, id) into a list of k ordered by descending value, then ascending id; the last
 * entry is dropped.  Does nothing if it does not beat the last.  k > 0. */
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
