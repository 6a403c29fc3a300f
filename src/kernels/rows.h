/* rows.h: rows of features on the host, scaled to length 1. */
#ifndef CONR_KERNELS_ROWS_H
#define CONR_KERNELS_ROWS_H

/* out[i] = x[i] / |x[i]|, norm[i] = |x[i]|; a zero row stays zero.  x, out: [n,d], may be the same
 * memory; norm: [n] or NULL.  On up to `threads` threads, with the same bits for any number. */
void rows_normalize(int threads, const float *x, int n, int d, float *out, float *norm);

/* Its gradient, dx[i] = (dout[i] - <out[i], dout[i]> out[i]) / norm[i]; zero for a zero row.
 * out, dout, dx: [n,d]; dx may be dout. */
void rows_normalize_back(int threads, const float *out, const float *norm, const float *dout, int n,
                         int d, float *dx);

#endif
