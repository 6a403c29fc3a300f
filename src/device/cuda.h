/* cuda.h: what the files of the CUDA table share.  C and CUDA C++ both include it. */
#ifndef CONR_CUDA_H
#define CONR_CUDA_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream (cudaStream_t) on which every operation of this device is queued; while a recording
 * is made, the one that is captured. */
void *cuda_stream(device *dev);

/* fail(CONR_EDEVICE, ...) where a CUDA call or launch went wrong; error: cudaError_t, 0 is fine. */
int cuda_check(int error, const char *what);

/* Each fills its part of the table. */
void cuda_feature_ops(device_ops *op); /* rows, choice, losses, neighborhoods, views */

#ifdef __cplusplus
}
#endif
#endif
