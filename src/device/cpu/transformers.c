/* transformers.c: dense layers and layer norm on the CPU.
 *
 * A dense layer is one matrix product; bias, GELU, scale and residual are applied to each part of
 * the result while it is in the cache.  Rows of a norm are independent. */
#include "device/cpu/transformers.h"

#include "base/status.h"
#include "kernels/gemm.h"
#include "kernels/quad_math.h"

#include <math.h>

/* ---- dense ----------------------------------------------------------------------------------- */

typedef struct ending {
    gemm_end end; /* first */
    const dense_shape *s;
    const float *bias, *scale, *residual;
} ending;

INLINE quad after(dense_then then, quad x) {
    switch (then) {
    case DENSE_GELU: return 0.5f * x * (1.0f + quad_erf(x * 0.70710678f));
    case DENSE_GELU_QUICK: return x / (1.0f + quad_exp(-1.702f * x));
    case DENSE_GELU_TANH: /* (1 + tanh u)/2 = 1/(1 + e^-2u) */
        return x / (1.0f + quad_exp(-1.59576912f * (x + 0.044715f * x * x * x)));
    default: return x;
    }
}

INLINE quad finish(dense_then then, quad x, quad bias, quad scale, quad residual) {
    return residual + scale * after(then, x + bias);
}

/* The first n <= 4 values at p, or `other` if p is NULL. */
INLINE quad part_at(const float *p, int n, float other) {
    quad v = quad_of(other);
    if (p && n == 4) return quad_at(p);
    for (int i = 0; p && i < n; i++) v[i] = p[i];
    return v;
}

/* Four columns, or the last few, of some rows. */
INLINE void finish_columns(const ending *e, dense_then then, bool residual, int row, int column,
                           int rows, int n, float *c, int ldc) {
    quad bias = part_at(e->bias ? e->bias + column : NULL, n, 0);
    quad scale = part_at(e->scale ? e->scale + column : NULL, n, 1);
    const float *more = residual ? e->residual + (size_t)row * e->s->co + column : NULL;
    for (int r = 0; r < rows; r++, c += ldc) {
        quad add = part_at(residual ? more + (size_t)r * e->s->co : NULL, n, 0);
        quad v = finish(then, part_at(c, n, 0), bias, scale, add);
        if (n == 4)
            quad_put(c, v);
        else
            for (int i = 0; i < n; i++) c[i] = v[i];
    }
}

/* A part of the result.  then and residual become constants when this is inlined. */
INLINE void finish_part(const ending *e, dense_then then, bool residual, int row, int column,
                        int rows, int columns, float *c, int ldc) {
    int j = 0;
    for (; j + 4 <= columns; j += 4)
        finish_columns(e, then, residual, row, column + j, rows, 4, c + j, ldc);
    if (j < columns)
        finish_columns(e, then, residual, row, column + j, rows, columns - j, c + j, ldc);
}

static void finish_any(const gemm_end *end, int row, int column, int rows, int columns, float *c,
                       int ldc) {
    const ending *e = (const ending *)end;
    bool residual = e->residual != NULL;
    if (e->s->then == DENSE_PLAIN && residual)
        finish_part(e, DENSE_PLAIN, true, row, column, rows, columns, c, ldc);
    else if (e->s->then == DENSE_PLAIN)
        finish_part(e, DENSE_PLAIN, false, row, column, rows, columns, c, ldc);
    else if (e->s->then == DENSE_GELU && !residual)
        finish_part(e, DENSE_GELU, false, row, column, rows, columns, c, ldc);
    else
        finish_part(e, e->s->then, residual, row, column, rows, columns, c, ldc);
}

static int cpu_dense(device *dev, const dense_shape *s, const act *x, const float *w,
                     const float *bias, const float *scale, const act *residual, act *y) {
    ending e = {{finish_any}, s, bias, scale, (const float *)residual};
    return gemm_dense(dev->threads, s->m, s->co, s->ci, (const float *)x, w, (float *)y, &e.end);
}

/* ---- layer norm ------------------------------------------------------------------------------ */

static float sum_of(quad v) { return (v[0] + v[1]) + (v[2] + v[3]); }

static void norm_row(int d, float eps, const float *x, const float *gamma, const float *beta,
                     float *y) {
    quad sum[2] = {{0}}, square[2] = {{0}};
    float rest = 0, mean, variance;
    int j = 0;
    for (; j + 8 <= d; j += 8) sum[0] += quad_at(x + j), sum[1] += quad_at(x + j + 4);
    for (; j < d; j++) rest += x[j];
    mean = (sum_of(sum[0] + sum[1]) + rest) / (float)d;
    for (rest = 0, j = 0; j + 8 <= d; j += 8) {
        quad a = quad_at(x + j) - mean, b = quad_at(x + j + 4) - mean;
        square[0] += a * a, square[1] += b * b;
    }
    for (; j < d; j++) rest += (x[j] - mean) * (x[j] - mean);
    variance = (sum_of(square[0] + square[1]) + rest) / (float)d;
    float invstd = 1 / sqrtf(variance + eps);
    for (j = 0; j + 4 <= d; j += 4)
        quad_put(y + j, (quad_at(x + j) - mean) * invstd * quad_at(gamma + j) + quad_at(beta + j));
    for (; j < d; j++) y[j] = (x[j] - mean) * invstd * gamma[j] + beta[j];
}

static int cpu_layer_norm(device *dev, int n, int d, float eps, const act *x, const float *gamma,
                          const float *beta, act *y) {
    enum { SMALL = 1 << 14 }; /* floats below which waking threads costs more than it saves */
    int threads = (size_t)n * (size_t)d < SMALL ? 1 : dev->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < n; i++)
        norm_row(d, eps, (const float *)x + (size_t)i * d, gamma, beta, (float *)y + (size_t)i * d);
    return 0;
}

void cpu_transformers(device_ops *op) {
    op->dense = cpu_dense;
    op->layer_norm = cpu_layer_norm;
    op->attention_bytes = cpu_attention_bytes;
    op->attention = cpu_attention;
}
