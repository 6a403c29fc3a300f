/* transformers.h: dense layers, layer norm and attention on the CPU. */
#ifndef CONR_CPU_TRANSFORMERS_H
#define CONR_CPU_TRANSFORMERS_H

#include "device/device.h"

void cpu_transformers(device_ops *op); /* puts them into the table */

/* attention.c */
size_t cpu_attention_bytes(device *dev, const attention_shape *s);
int cpu_attention(device *dev, const attention_shape *s, const act *q, const act *k, const act *v,
                  act *out, void *work);

#endif
