/* scale.h: features so small that squares of their differences vanish in float. */
#ifndef CONR_SCALE_H
#define CONR_SCALE_H

#include "device/device.h"

#include <stdint.h>

/* A power of two that makes differences between rows of x [n,d], and of these and the rows of y
 * [m,d] (m may be 0), about 1 if they are so small that their squares would underflow; 1 for
 * ordinary values, which then keep their bits.  Scaling by it is exact, and so the clusters are
 * those of the same features in other units. */
float scale_for(const float *x, int64_t n, const float *y, int64_t m, int64_t d);

/* The same for x in device memory; y stays in host memory.  Nearly always a few rows are fetched. */
int scale_for_device(device *dev, const float *x, int64_t n, const float *y, int64_t m, int64_t d,
                     float *by);

/* A scaled copy of `count` values, released by free(); NULL with the message set. */
float *scale_copy(const float *x, int64_t count, float by);

#endif
