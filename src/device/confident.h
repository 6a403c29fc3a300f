/* confident.h: the workspace of device_ops.confident, laid out alike on every device. */
#ifndef CONR_CONFIDENT_H
#define CONR_CONFIDENT_H

#include <stddef.h>
#include <stdint.h>

enum { CONFIDENT_MOST = 1000 }; /* neighbors that may be asked to agree */

typedef struct confident_room {
    float *product; /* [n,n]: of all pairs of rows */
    int32_t *agree; /* [n]: r_i of the definition */
} confident_room;

/* Lays out the memory at `work`; returns its bytes. */
static inline size_t confident_plan(int n, void *work, confident_room *r) {
    size_t square = (size_t)n * (size_t)n * sizeof(float);
    r->product = (float *)work;
    r->agree = (int32_t *)((char *)work + square);
    return square + (size_t)n * sizeof(int32_t);
}

static inline size_t confident_bytes(int n) {
    confident_room r;
    return confident_plan(n, NULL, &r);
}

#endif
