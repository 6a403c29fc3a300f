/* conr_context.h: what stands behind a `conr *`. */
#ifndef CONR_CONTEXT_H
#define CONR_CONTEXT_H

#include "device/ranks.h"

struct conr {
    ranks ranks;
    device *dev;
    device
        *host; /* works on the caller's arrays: dev itself where it can reach them, else the CPU */
    char words[96];                 /* conr_device */
    double peak_flops, peak_copies; /* 0 until measured */
};

#endif
