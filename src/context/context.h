/* context.h: what a `conr *` points to. */
#ifndef CONR_CONTEXT_H
#define CONR_CONTEXT_H

#include "ranks/ranks.h"

struct conr {
    ranks ranks;
    bool together; /* conr_set_together */
    device *dev;
    device *host;                   /* works on the caller's arrays: dev if it has host memory,
                                       else a CPU device beside it */
    char words[96];                 /* conr_device */
    double peak_flops, peak_copies; /* 0 until measured */
};

/* The ranks that share the work of a call; NULL: each rank works for itself. */
ranks *context_together(conr *c);

/* Whether the arrays of a call lie in the memory of the context's GPU: 1 if all do, 0 if none does;
 * fails if only some do.  NULLs are ignored. */
int context_arrays_on_device(const conr *c, const void *const *arrays, int n);
#define ARRAYS_ON_DEVICE(c, ...)                                                                   \
    context_arrays_on_device(c, (const void *const[]){__VA_ARGS__},                                \
                             (int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)))

#endif
