/* none.c: in place of cuda.c where the build has no CUDA backend. */
#include "device/device.h"

#include "base/status.h"

int device_cuda_open(device *dev, const char *name) {
    (void)dev;
    return fail(CONR_EDEVICE, "%s: this build has no CUDA backend; use --device cpu", name);
}
