/* points.h: rows of features as k-means sees them, and distances between rows and centers.
 *
 * Both metrics become one.  A center w is compared by
 *     d2(x, w) = square(x) - 2 (<x, w> - half(w))
 *   Euclidean: x is the row minus a common shift (to save digits), w the centroid minus the same
 *              shift, square(x) = |x|^2, half(w) = |w|^2/2: the squared distance
 *   cosine:    x is the row scaled to length 1, w the centroid scaled likewise, square(x) = 2,
 *              half(w) = 0: twice 1 - cos, and the squared distance of the two points on the sphere
 * so that the triangle inequality holds for sqrt(d2) in both (except for zero rows: for a zero x
 * or w the cosine is 0 by definition, and d2 = 2). */
#ifndef CONR_POINTS_H
#define CONR_POINTS_H

#include "device/device.h"
#include "kernels/gemm.h"

typedef struct points {
    int n, d;
    conr_metric metric;
    const gemm_kernel *kernel;
    float *x;        /* [n,d] */
    float *wide;     /* x in panels of kernel->nr rows */
    float *square;   /* [n, rounded up to whole panels] */
    float *shift;    /* [d]: what was subtracted; zeros for cosine */
    double variance; /* of the features, mean over the columns */
    double squares;  /* sum of |x|^2; n for cosine */
} points;

/* The mean of n rows, the usual shift.  out: [d] */
void points_middle(const float *rows, int64_t n, int d, float *out);

/* shift: [d], copied; used only by the Euclidean metric.  The features have been checked. */
int points_make(device *dev, const float *features, int n, int d, conr_metric metric,
                const float *shift, points *out);
void points_free(points *p);

/* A few rows as points_make would prepare them, for callers that go through many rows and keep
 * none: of p only d, metric and shift are used.  rows: [count,d] -> x: [count,d], square: [count].
 * One thread. */
void points_rows(const points *p, const float *rows, int count, float *x, float *square);

/* Fails with the message about a row whose square is not finite. */
int points_overflow(int64_t row);

/* centroid: [d], as users see it -> w: [d]; returns half(w). */
float points_center(const points *p, const float *centroid, float *w);

/* A bound on the rounding error of a d2 between x and w with these values: sums of d products in
 * float, a few ulps of their size. */
static inline float points_slack(float square, float half) { return 2e-6f * (square + 2 * half); }

/* The best two centers of each point of a panel. */
typedef struct points_best {
    float *score;  /* [nr]: the largest <x, w> - half(w) so far */
    float *next;   /* [nr]: the second largest */
    int32_t *slot; /* [nr]: the center with the largest; the first among equals */
} points_best;

void points_best_clear(const points *p, points_best *best);
/* Offers `count` centers, slot, slot+1, ... to a panel of points.  dots: [count,nr], <x, w> of each
 * center and point; half: [count]. */
void points_offer(const points *p, const float *dots, const float *half, int slot, int count,
                  points_best *best);

#endif
