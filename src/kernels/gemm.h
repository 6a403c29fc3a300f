/* gemm.h: the matrix product on the host, and the micro-kernel under it for others to build on.
 *
 * The micro-kernel multiplies two packed panels.  A panel holds a few rows (mr or nr) of a matrix,
 * interleaved: panel[l * width + r] = element l of row r; short panels are padded with zeros.  So
 *     tile[r][s] = sum over l of a[l * mr + r] * b[l * nr + s]
 * and each of the mr*nr sums is one chain of fused multiply-adds in ascending l.
 *
 * Promise.  Longer sums are cut at multiples of GEMM_KC and the parts added in order.  Hence the
 * bits of a dot product depend only on the two vectors: not on their position in a matrix, nor on
 * the number of threads, nor on which of the two is called a (so F F^T is symmetric to the last
 * bit), nor on the width of the machine's vectors. */
#ifndef CONR_KERNELS_GEMM_H
#define CONR_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>

enum {
    GEMM_KC = 256, /* terms of a sum that are added up in one call */
    GEMM_MR = 14,  /* the largest mr, nr and mr*nr on any machine, for buffers on the stack */
    GEMM_NR = 32,
    GEMM_TILE = 448
};

typedef struct gemm_kernel {
    const char *name; /* "neon 8x12" */
    int mr, nr;
    /* c[r * ldc + s] (+)= the sums over k terms, k <= GEMM_KC; add: to what is there.  a and b are
     * panels, of any alignment. */
    void (*run)(int k, const float *a, const float *b, float *c, int ldc, bool add);
    /* c[s] = sum over l of x[l] * b[l * nr + s]: one unpacked vector against a panel; any k.  Not
     * covered by the promise above: its sums have a different order. */
    void (*run_one)(int k, const float *x, const float *b, float *c);
    /* `run` for several panels of a, `next` floats from one to the next; and the same with a in
     * quads, a[(l/4)*4*mr + 4*r + l%4], k a multiple of 4.  NULL: not available. */
    void (*run_panels)(int k, const float *a, const float *b, float *c, int ldc, bool add,
                       int panels, size_t next);
    void (*run_quads)(int k, const float *a, const float *b, float *c, int ldc, bool add,
                      int panels, size_t next);
} gemm_kernel;

/* The fastest one for this machine. */
const gemm_kernel *gemm_kernel_best(void);

/* The one for convolutions: nr divides the usual channel counts, and run_panels and run_quads are
 * available. */
const gemm_kernel *gemm_kernel_conv(void);

/* The whole sum, any k: tile[mr][nr], in several runs if needed. */
static inline void gemm_tile(const gemm_kernel *g, int k, const float *a, const float *b,
                             float *tile) {
    for (int l = 0; l < k; l += GEMM_KC)
        g->run(k - l < GEMM_KC ? k - l : GEMM_KC, a + (size_t)l * g->mr, b + (size_t)l * g->nr,
               tile, g->nr, l > 0);
}

/* One panel of `width` rows from `rows` <= width vectors of length k.
 * by_row: vector r is x[r * ld + l], l < k;  else it is a column, x[l * ld + r]. */
void gemm_pack(bool by_row, const float *x, int ld, int rows, int k, int width, float *panel);

/* Many columns of x at once, its rows `ld` floats apart: [k,columns] as panels [k][width], `apart`
 * floats from one to the next, the last padded with zeros.  width >= 4. */
void gemm_pack_wide(const float *x, int ld, int columns, int k, int width, size_t apart,
                    float *panels);

/* All n rows of x [n,k] as consecutive panels: the floats they take, and the packing itself (on
 * `threads` threads).  Panel p starts at panels + p * width * k. */
static inline size_t gemm_panels_size(int n, int k, int width) {
    return (size_t)((n + width - 1) / width) * width * k;
}
void gemm_pack_all(const float *x, int n, int k, int width, int threads, float *panels);

/* Row-major C = alpha op(A) op(B) + beta C on up to `threads` threads; op transposes if ta or tb.
 * op(A): [m,k], op(B): [k,n], C: [m,n]; lda, ldb, ldc: floats from one stored row to the next.
 * beta = 0 does not read C.  Fails only if there is no memory for the panels. */
int gemm(int threads, bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
         const float *b, int ldb, float beta, float *c, int ldc);

/* What is done to C while it is still in the cache.  `run` gets each element once, when its sum is
 * complete: the part [rows,columns] that starts at (row, column) of C and lies at c.  Threads call
 * it at the same time. */
typedef struct gemm_end {
    void (*run)(const struct gemm_end *e, int row, int column, int rows, int columns, float *c,
                int ldc);
} gemm_end;

/* C = end(A B'), end NULL: nothing.  a: [m,k]; b: [n,k]; c: [m,n]; rows are adjacent. */
int gemm_dense(int threads, int m, int n, int k, const float *a, const float *b, float *c,
               const gemm_end *end);

#endif
