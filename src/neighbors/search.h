/* search.h: the nearest neighbors of every row among all rows, exact or nearly all of them. */
#ifndef CONR_SEARCH_H
#define CONR_SEARCH_H

#include "ranks/ranks.h"

/* The k best of each row of S = F F^T: the row itself first, then by descending value, ties by
 * ascending index.  f: [n,d], unit rows; k <= n.  ids, values: [n,k]; values are those of S, with
 * the bits of gemm, but 1 for the row itself.  Memory beside the results: two packed copies of
 * f, and S itself if n <= WHOLE_ROWS (whole.h).  over: ranks that call it together and share the
 * work on large sets; NULL: none.
 *
 * *recall: the share of the neighbors that must be found: 1 for all of them; 0 for all of them up to
 * SEARCH_EXACT rows, and SEARCH_RECALL of them beyond.  Becomes 1 if the search was exact, else the
 * share that was found of a sample of rows; a row that is as near as one of the best counts as found.
 * The lists of search_index are of the same kind, but some hold a row further away for one of the
 * best. */
int search_nearest(device *dev, ranks *over, const float *f, int n, int d, int k, double *recall,
                   int32_t *ids, float *values);

enum {
    SEARCH_EXACT = 100000, /* rows: all pairs take less than a minute on two cores */
    SEARCH_LISTS = 256     /* most neighbors of a row that search_index looks for */
};
#define SEARCH_RECALL 0.99

/* Its two implementations, with the same result: S stored whole (search_whole.c), and in rounds of
 * blocks (search.c). */
int search_whole(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values);
int search_rounds(device *dev, ranks *over, const float *f, int n, int d, int k, int32_t *ids,
                  float *values);
/* By cells (cells.h) that each row visits as far as a sample of rows says is needed; all pairs if
 * that is no more work.  0 < *recall < 1; n > WHOLE_ROWS; k <= SEARCH_LISTS. */
int search_index(device *dev, ranks *over, const float *f, int n, int d, int k, double *recall,
                 int32_t *ids, float *values);

/* Merges the lists of all ranks, [n,k], the row itself first. */
int search_merge(ranks *over, int n, int k, int32_t *ids, float *values);

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

/* The same for an entry that may be in the list already. */
static inline void search_offer_once(int k, int32_t *ids, float *values, int32_t id, float value) {
    for (int at = k - 1; at >= 0 && values[at] <= value; at--)
        if (values[at] == value && ids[at] == id) return;
    search_offer(k, ids, values, id, value);
}

#endif
