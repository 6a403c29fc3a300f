/* pools.h: pools on the CPU: max over 3x3 windows, mean over the map. */
#ifndef CONR_CPU_POOLS_H
#define CONR_CPU_POOLS_H

#include "device/device.h"

void cpu_pools(device_ops *op); /* puts them into the table */

#endif
