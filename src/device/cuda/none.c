/* none.c: takes the place of cuda.c in a build without the CUDA backend. */
#include "device/device.h"

#include "base/status.h"

int device_cuda_open(device *dev, const char *name) {
    (void)dev;
    return fail(CONR_EDEVICE, "%s: this build has no CUDA backend; use --device cpu", name);
}
