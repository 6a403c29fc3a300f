/* numbers.h: arrays that come from outside, looked at before they are believed. */
#ifndef CONR_NUMBERS_H
#define CONR_NUMBERS_H

#include <stdint.h>

/* The first half of numbers_check, for arrays that the host cannot read. */
int numbers_check_shape(const char *what, const float *x, int64_t n, int64_t d);

/* Features x [n,d] as a public call receives them: not NULL, n and d at least 1 and not too many to
 * count in an int, every number finite.  Else the message names `what` and the first bad row. */
int numbers_check(const char *what, const float *x, int64_t n, int64_t d);

#endif
