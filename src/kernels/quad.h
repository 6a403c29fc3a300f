/* quad.h: four floats at a time, in the compiler's vector extensions.  Passes over memory are
 * written with it.  On x86-64 this is SSE; the products use wider vectors (gemm.c). */
#ifndef CONR_KERNELS_QUAD_H
#define CONR_KERNELS_QUAD_H

#include <stddef.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

/* before a loop over a tile or the lanes of a vector: unrolled, it stays in registers */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 16 }; /* floats of a cache line */

/* counting, shared by the files that work in quads */
static inline int least(int a, int b) { return a < b ? a : b; }
static inline size_t most(size_t a, size_t b) { return a > b ? a : b; }
static inline int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/* At any address of a float, also in memory of another type. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int quad_mask __attribute__((vector_size(16)));

static inline quad quad_at(const float *p) { return *(const quad *)p; }
static inline void quad_put(float *p, quad v) { *(quad *)p = v; }
static inline quad quad_of(float v) { return (quad){v, v, v, v}; }

/* the lanes of v whose mask is all ones; 0 in the others */
static inline quad quad_where(quad_mask mask, quad v) { return (quad)(mask & (quad_mask)v); }

/* The larger of each pair; either of the two if they are equal or one is NaN. */
static inline quad quad_max(quad a, quad b) {
#if defined(__aarch64__)
    return (quad)vmaxnmq_f32((float32x4_t)a, (float32x4_t)b);
#elif defined(__SSE__)
    return __builtin_ia32_maxps(a, b);
#else
    quad_mask more = a > b;
    return (quad)((more & (quad_mask)a) | (~more & (quad_mask)b));
#endif
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define QUAD_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#endif
#endif
#ifndef QUAD_SHUFFLE /* GCC before 12 */
#define QUAD_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_mask){i, j, k, l})
#endif

/* Rows become columns. */
static inline void quad_transpose(quad r[4]) {
    quad a = QUAD_SHUFFLE(r[0], r[1], 0, 4, 2, 6), b = QUAD_SHUFFLE(r[0], r[1], 1, 5, 3, 7);
    quad c = QUAD_SHUFFLE(r[2], r[3], 0, 4, 2, 6), d = QUAD_SHUFFLE(r[2], r[3], 1, 5, 3, 7);
    r[0] = QUAD_SHUFFLE(a, c, 0, 1, 4, 5);
    r[1] = QUAD_SHUFFLE(b, d, 0, 1, 4, 5);
    r[2] = QUAD_SHUFFLE(a, c, 2, 3, 6, 7);
    r[3] = QUAD_SHUFFLE(b, d, 2, 3, 6, 7);
}

#endif
