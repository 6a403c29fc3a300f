/* cpu.c: the CPU's table: the reference, with what this machine does better put over it. */
#include "device/device.h"

void device_cpu_ops(device_ops *op) { device_ref_ops(op); }
