/* assignment.h: the assignment problem: the best one-to-one match of clusters and classes, which
 * clustering accuracy (ACC) is defined by. */
#ifndef CONR_ASSIGNMENT_H
#define CONR_ASSIGNMENT_H

#include <stdint.h>

/* Matches rows to columns one to one so that the sum of gain[i,j] over the matched pairs is
 * largest.  gain: [rows,cols], >= 0, of any shape.  match: [rows], the column of each row, or -1 if
 * it has none because there are more rows than columns.  *total: the sum; may be NULL. */
int assignment_solve(const int64_t *gain, int rows, int cols, int *match, int64_t *total);

#endif
