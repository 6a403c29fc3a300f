/* rows.h: rows of features on the CPU. */
#ifndef CONR_CPU_ROWS_H
#define CONR_CPU_ROWS_H

#include "device/device.h"

/* device_ops.rows_normalize; out may be x.  norm: [n] or NULL. */
int cpu_rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm);
/* device_ops.rows_normalize_back; dx may be dout. */
int cpu_rows_normalize_back(device *dev, const float *out, const float *norm, const float *dout,
                            int n, int d, float *dx);

#endif
