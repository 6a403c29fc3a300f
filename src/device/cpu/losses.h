/* losses.h: gathered rows, losses and the boundary filter on the CPU. */
#ifndef CONR_CPU_LOSSES_H
#define CONR_CPU_LOSSES_H

#include "device/device.h"

void cpu_losses(device_ops *op); /* puts them into the table */

#endif
