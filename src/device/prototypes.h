/* prototypes.h: the workspace of device_ops.prototypes and pull_alike, laid out alike on every
 * device, and the standard normal numbers of device_ops.noise.  C and CUDA C++ both include it. */
#ifndef CONR_PROTOTYPES_H
#define CONR_PROTOTYPES_H

#include "base/rng.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* The clusters present in a batch have slots 0 .. present-1, in ascending order of clusters; there
 * are at most most = min(n, K). */
typedef struct prototypes_room {
    int n, d, K, most;
    double *unit;     /* [2][most][d]: Q, then T; before that the sums that they come from */
    double *size;     /* [2][most]: lengths of those sums; pull_alike: numbers of rows */
    double *share;    /* [most][most]: p_cj of the definition; the diagonal less 1 */
    double *value;    /* [most]: the loss of each cluster */
    double *gradient; /* [most][d]: of the sums behind Q, times factor */
    int32_t *place;   /* [K]: the slot of each cluster; -1: not in the batch */
    int32_t *slot;    /* [n]: of each row; -1: it takes no part */
    int32_t *present; /* [1] */
} prototypes_room;

/* Lays out the memory at `work`; returns its bytes. */
static inline size_t prototypes_plan(int n, int d, int K, void *work, prototypes_room *r) {
    char *p = (char *)work;
    size_t at = 0, most = (size_t)(n < K ? n : K);
    r->n = n, r->d = d, r->K = K, r->most = (int)most;
    r->unit = (double *)(p + at), at += 2 * most * (size_t)d * sizeof(double);
    r->size = (double *)(p + at), at += 2 * most * sizeof(double);
    r->share = (double *)(p + at), at += most * most * sizeof(double);
    r->value = (double *)(p + at), at += most * sizeof(double);
    r->gradient = (double *)(p + at), at += most * (size_t)d * sizeof(double);
    r->place = (int32_t *)(p + at), at += (size_t)K * sizeof(int32_t);
    r->slot = (int32_t *)(p + at), at += (size_t)n * sizeof(int32_t);
    r->present = (int32_t *)(p + at), at += sizeof(int32_t);
    return at;
}

static inline size_t prototypes_bytes(int n, int d, int K) {
    prototypes_room r;
    return prototypes_plan(n, d, K, NULL, &r);
}

/* Columns 4 `block` .. 4 `block` + 3 of the noise on a row, by Box and Muller.  The drawn bits are
 * the same everywhere, the numbers to about 1e-6: logarithms and cosines are each machine's own. */
static inline BOTH_SIDES void noise_at(uint64_t seed, uint32_t step, uint32_t row, uint32_t block,
                                       float out[4]) {
    rng r = rng_at(seed, step, row, RNG_NOISE);
    uint32_t bits[4];
    r.counter[0] = block;
    philox(r.key, r.counter, bits);
    for (int i = 0; i < 4; i += 2) {
        /* in (0,1), exact */
        float u = ((float)(bits[i] >> 9) + 0.5f) * (1.0f / 8388608.0f);
        float turn = (float)(bits[i + 1] >> 8) * (1.0f / 16777216.0f);
        float length = sqrtf(-2.0f * logf(u)), angle = 6.28318531f * turn;
        out[i] = length * cosf(angle);
        out[i + 1] = length * sinf(angle);
    }
}

#endif
