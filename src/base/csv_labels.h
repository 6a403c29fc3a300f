/* csv_labels.h: which column of a CSV holds the labels. */
#ifndef CONR_CSV_LABELS_H
#define CONR_CSV_LABELS_H

#include "base/csv.h"

#include <stdbool.h>

/* Cuts off the white space around each cell of the current row. */
void csv_trim(csv *c);

bool csv_whole_number(const char *text, int64_t *out);

/* The column called `title` in the current row, or -1. */
int csv_column(const csv *c, const char *title);

/* Finds the column of the labels in the first row: `wanted`, or with NULL the first of cluster,
 * label, pred that exists, else the last.  *titled: that row has titles, not labels.  *sure (may be
 * NULL): not only because its last cell is no number. */
int csv_find_labels(const csv *c, const char *wanted, int *column, bool *titled, bool *sure);

#endif
