/* passes.h: passes over memory on the CPU: norm, ReLU, top_k, weights. */
#ifndef CONR_CPU_PASSES_H
#define CONR_CPU_PASSES_H

#include "device/device.h"

/* What a cpu device owns: room for coefficients and partial sums, so that no pass allocates. */
enum { CPU_SCRATCH = 1 << 20 };
typedef struct cpu_own {
    float scratch[CPU_SCRATCH];
} cpu_own;

void cpu_passes(device_ops *op); /* puts them into the table */

#endif
