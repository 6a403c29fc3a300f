/* output.h: refuses to write over what should be kept. */
#ifndef CONR_OUTPUT_H
#define CONR_OUTPUT_H

#include <stdbool.h>

/* Whether two paths name one file: the same device and inode or, if one is not there yet, the same
 * name in the same folder. */
bool output_is(const char *a, const char *b);

/* Fails if `out` is the file `input` (NULL: none), or one that a run or a sweep keeps in its folder:
 * links are followed.  report_of: the folder whose report.html may be written; NULL: none. */
int output_check(const char *out, const char *input, const char *report_of);

#endif
