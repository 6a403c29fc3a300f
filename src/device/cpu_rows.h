/* cpu_rows.h: rows of features on the CPU. */
#ifndef CONR_CPU_ROWS_H
#define CONR_CPU_ROWS_H

#include "device/device.h"

/* device_ops.rows_normalize; out may be x.  norm: [n] or NULL. */
int cpu_rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm);

#endif
