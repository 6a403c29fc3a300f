/* shard.h: the rows of one rank, as k-means of large sets sees them.
 *
 * No rank needs to hold all rows, and none copies its own: rows stay in the caller's memory and are
 * prepared when they are read.  The space is that of points.h; Euclidean rows are also multiplied
 * by a power of two, so that no value exceeds 1.
 *
 * Sums over rows are taken in whole numbers, in units of 2^-digits: they have the same bits for any
 * order, hence for any number of threads and ranks. */
#ifndef CONR_SHARD_H
#define CONR_SHARD_H

#include "device/device.h"
#include "ranks/ranks.h"

typedef struct shard {
    device *dev;
    ranks *over;           /* that hold the other rows; NULL: there are none */
    const float *features; /* [n,d]: the caller's */
    int n, d;
    int64_t first, total; /* the number of the first row; rows of all ranks */
    int64_t *starts;      /* [ranks+1]: `first` of each rank, then total */
    conr_metric metric;
    float *shift;    /* [d]: subtracted first; zeros for cosine */
    float unit;      /* then multiplied by this power of two; 1 for cosine */
    float *by;       /* [n]: then by this, 1/|x|, or 0 for a zero row; NULL for Euclidean */
    float *square;   /* [n]: |x|^2, or 2 for cosine */
    double squares;  /* the sum of |x|^2 over all rows; total for cosine */
    double in_units; /* 2^digits */
} shard;

/* All ranks of `over` call it together, each with its own rows, in the order of the ranks.  Fails on
 * rows that are too large for a float after the shift.  The features have been checked. */
int shard_open(device *dev, ranks *over, const float *features, int n, int d, conr_metric metric,
               shard *out);
void shard_free(shard *s);

/* Row i of this rank, in the space of the shard.  to: [d] */
void shard_row(const shard *s, int i, float *to);

/* `count` distinct rows of all ranks, at most total, spread evenly, in their order: the same for any
 * number of ranks.  Depends on seed and run.  out: [count,d], in the space of the shard. */
int shard_sample(const shard *s, int64_t count, uint64_t seed, int run, float *out);

/* The largest value of all ranks, in place; sums over the ranks, in place. */
int shard_max(const shard *s, float *x);
int shard_sum(const shard *s, int64_t *x, size_t n);

#endif
