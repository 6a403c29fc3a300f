/* metrics.h: the optimal one-to-one match under clustering accuracy. */
#ifndef CONR_METRICS_H
#define CONR_METRICS_H

#include <stdint.h>

/* Matches rows to columns one to one so that the sum of gain[i,j] over the matched pairs is
 * largest. gain: [rows,cols], >= 0, of any shape.  match: [rows], the column of each row or -1
 * (when there are more rows than columns).  *total: the sum, may be NULL. */
int metrics_match(const int64_t *gain, int rows, int cols, int *match, int64_t *total);

#endif
