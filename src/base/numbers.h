/* numbers.h: checks of arrays that come from the caller or from files. */
#ifndef CONR_NUMBERS_H
#define CONR_NUMBERS_H

#include <stdint.h>

/* The first half of numbers_check, for arrays that the host cannot read. */
int numbers_check_shape(const char *what, const float *x, int64_t n, int64_t d);

/* Fails unless features x [n,d] are valid: not NULL, n and d at least 1 and small enough for an
 * int, every value finite.  The message names `what` and the first bad row. */
int numbers_check(const char *what, const float *x, int64_t n, int64_t d);

#endif
