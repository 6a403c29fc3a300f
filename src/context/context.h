/* context.h: what stands behind a `conr *`. */
#ifndef CONR_CONTEXT_H
#define CONR_CONTEXT_H

#include "ranks/ranks.h"

struct conr {
    ranks ranks;
    bool together; /* conr_set_together */
    device *dev;
    device
        *host; /* works on the caller's arrays: dev itself where it can reach them, else the CPU */
    char words[96];                 /* conr_device */
    double peak_flops, peak_copies; /* 0 until measured */
};

/* Whether the arrays of a call lie in the memory of the context's GPU: 1 all, 0 none of them; fails
 * where some do.  NULLs are passed over. */
/* The ranks that share a call's work; NULL: each works for itself. */
ranks *context_together(conr *c);

int context_arrays_there(const conr *c, const void *const *arrays, int n);
#define ARRAYS_THERE(c, ...)                                                                       \
    context_arrays_there(c, (const void *const[]){__VA_ARGS__},                                    \
                         (int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)))

#endif
