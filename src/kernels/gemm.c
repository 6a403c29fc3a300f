/* gemm.c: C = alpha op(A) op(B) + beta C on the host.
 *
 * The usual layers (Goto & van de Geijn 2008): B in blocks of GEMM_KC rows and NC columns, packed
 * once and shared; A in blocks of MC rows, packed by the thread that takes the block; the
 * micro-kernel on panels that stay in the L1 cache.  Threads divide the blocks of C among them,
 * never a sum, so the result has the same bits for any number of threads. */
#include "kernels/gemm.h"

#include "base/memory.h"
#include "base/status.h"
#include "conr.h"
#include "kernels/isa.h"
#include "kernels/quad.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    MC = 192,       /* most rows of A packed at a time: MC * GEMM_KC floats fit the L2 cache */
    NC = 3072,      /* columns of B packed at a time */
    SMALL = 1 << 15 /* multiply-adds below which waking threads costs more than it saves */
};

/* ---- the micro-kernel, once per instruction set ---------------------------------------------- */

#ifdef __x86_64__
#define KERNEL     kernel_avx512
#define PANELS     panels_avx512
#define KERNEL_ONE one_avx512
#define TARGET     __attribute__((target("avx512f")))
#define VL         16
#define MR         14
#define NV         2
#define QUADS      0
#include "kernels/gemm_kernel.h"
#define KERNEL quad_panel_avx512
#define PANELS quads_avx512
#define TARGET __attribute__((target("avx512f")))
#define VL     16
#define MR     14
#define NV     2
#define QUADS  1
#include "kernels/gemm_kernel.h"
#define KERNEL     kernel_avx2
#define PANELS     panels_avx2
#define KERNEL_ONE one_avx2
#define TARGET     __attribute__((target("avx2,fma")))
#define VL         8
#define MR         6
#define NV         2
#define QUADS      0
#include "kernels/gemm_kernel.h"
#define KERNEL quad_panel_avx2
#define PANELS quads_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define VL     8
#define MR     6
#define NV     2
#define QUADS  1
#include "kernels/gemm_kernel.h"
#endif
/* NEON is part of aarch64.  Elsewhere this is what the compiler makes of four floats; on x86-64
 * without fused multiply-add the last bits differ from those of all other machines. */
#ifdef __aarch64__
#define KERNEL     kernel_wide
#define KERNEL_ONE one_wide
#define TARGET
#define VL    4
#define MR    8
#define NV    3
#define QUADS 0
#include "kernels/gemm_kernel.h"
#define FOUR_MR 8
#else
#define FOUR_MR 4
#endif
#define KERNEL     kernel_four
#define PANELS     panels_four
#define KERNEL_ONE one_four
#define TARGET
#define VL    4
#define MR    FOUR_MR
#define NV    2
#define QUADS 0
#include "kernels/gemm_kernel.h"
#define KERNEL quad_panel_four
#define PANELS quads_four
#define TARGET
#define VL    4
#define MR    FOUR_MR
#define NV    2
#define QUADS 1
#include "kernels/gemm_kernel.h"

const gemm_kernel *gemm_kernel_conv(void) {
#ifdef __x86_64__
    static const gemm_kernel avx512 = {.name = "avx512 14x32",
                                       .mr = 14,
                                       .nr = 32,
                                       .run = kernel_avx512,
                                       .run_one = one_avx512,
                                       .run_panels = panels_avx512,
                                       .run_quads = quads_avx512};
    static const gemm_kernel avx2 = {.name = "avx2 6x16",
                                     .mr = 6,
                                     .nr = 16,
                                     .run = kernel_avx2,
                                     .run_one = one_avx2,
                                     .run_panels = panels_avx2,
                                     .run_quads = quads_avx2};
#endif
    static const gemm_kernel four = {.name = FOUR_MR == 8 ? "neon 8x8" : "plain 4x8",
                                     .mr = FOUR_MR,
                                     .nr = 8,
                                     .run = kernel_four,
                                     .run_one = one_four,
                                     .run_panels = panels_four,
                                     .run_quads = quads_four};
    return SET_BEST(&avx512, &avx2, &four);
}

const gemm_kernel *gemm_kernel_best(void) {
#ifdef __aarch64__
    /* twelve columns reach a few percent more of the peak, but divide no usual channel count */
    static const gemm_kernel wide = {
        .name = "neon 8x12", .mr = 8, .nr = 12, .run = kernel_wide, .run_one = one_wide};
    return &wide;
#else
    return gemm_kernel_conv();
#endif
}

/* ---- packing --------------------------------------------------------------------------------- */

void gemm_pack(bool by_row, const float *x, int ld, int rows, int k, int width, float *panel) {
    if (by_row) {
        /* four vectors at a time: few enough streams to read, and four floats per write */
        int r = 0;
        for (; r + 4 <= rows; r += 4) {
            const float *x0 = x + (size_t)r * ld, *x1 = x0 + ld, *x2 = x1 + ld, *x3 = x2 + ld;
            float *to = panel + r;
            int l = 0;
            for (; l + 4 <= k; l += 4, to += 4 * width) {
                quad q[4] = {quad_at(x0 + l), quad_at(x1 + l), quad_at(x2 + l), quad_at(x3 + l)};
                quad_transpose(q);
                for (int j = 0; j < 4; j++) quad_put(to + j * width, q[j]);
            }
            for (; l < k; l++, to += width)
                to[0] = x0[l], to[1] = x1[l], to[2] = x2[l], to[3] = x3[l];
        }
        for (; r < width; r++)
            for (int l = 0; l < k; l++)
                panel[(size_t)l * width + r] = r < rows ? x[(size_t)r * ld + l] : 0;
        return;
    }
    if (rows == width && width % 4 == 0) { /* whole panels: no call per row */
        for (int l = 0; l < k; l++, panel += width, x += ld)
            for (int r = 0; r < width; r += 4) quad_put(panel + r, quad_at(x + r));
        return;
    }
    for (int l = 0; l < k; l++, panel += width, x += ld) {
        memcpy(panel, x, (size_t)rows * sizeof *x);
        for (int r = rows; r < width; r++) panel[r] = 0;
    }
}

/* A few rows at a time: each is read in order, and whole cache lines of a panel are written, since
 * lines of different panels may compete for the same cache set. */
void gemm_pack_wide(const float *x, int ld, int columns, int k, int width, size_t apart,
                    float *panels) {
    enum { FEW = 4 };
    int whole = columns - columns % width;
    for (int l = 0; l < k; l += FEW, x += (size_t)FEW * ld, panels += (size_t)FEW * width) {
        int rows = least(FEW, k - l);
        float *panel = panels;
        for (int s = 0; s < whole; s += width, panel += apart)
            for (int r = 0; r < rows; r++) {
                const float *from = x + (size_t)r * ld + s;
                float *to = panel + r * width;
                for (int i = 0; i + 4 < width; i += 4) quad_put(to + i, quad_at(from + i));
                quad_put(to + width - 4,
                         quad_at(from + width - 4)); /* width may not be a multiple of 4 */
            }
        for (int r = 0; r < rows; r++)
            for (int i = 0; whole < columns && i < width; i++)
                panel[r * width + i] = whole + i < columns ? x[(size_t)r * ld + whole + i] : 0;
    }
}

void gemm_pack_all(const float *x, int n, int k, int width, int threads, float *panels) {
#pragma omp parallel for num_threads(threads) schedule(static) if ((size_t)n * k > SMALL)
    for (int i = 0; i < n; i += width)
        gemm_pack(true, x + (size_t)i * k, k, n - i < width ? n - i : width, k, width,
                  panels + (size_t)i * k);
}

/* ---- the product ----------------------------------------------------------------------------- */

typedef struct product {
    const gemm_kernel *kernel;
    int mc; /* rows of a block of A */
    bool ta, tb;
    int m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *a, *b;
    float *c;
    const gemm_end *end; /* NULL: none */
} product;

/* The part [rows,cols] of C at c: alpha tile + beta c.  beta applies to the first part of a sum. */
static void store(const product *p, const float *tile, int rows, int cols, bool first, float *c) {
    for (int r = 0; r < rows; r++, tile += p->kernel->nr, c += p->ldc)
        for (int s = 0; s < cols; s++) {
            float old = !first ? c[s] : p->beta == 0 ? 0 : p->beta * c[s];
            c[s] = p->alpha * tile[s] + old;
        }
}

/* Rows from i on (one block of A, packed into ap) times the packed part of B: columns from j on,
 * terms of the sum from l on. */
static void block_times_panels(const product *p, int i, int j, int l, int cols, float *ap,
                               const float *bp) {
    const gemm_kernel *g = p->kernel;
    int rows = least(p->mc, p->m - i), k = least(GEMM_KC, p->k - l);
    float tile[GEMM_TILE];
    bool direct = p->alpha == 1 && (l > 0 || p->beta == 0 || p->beta == 1);
    for (int r = 0; r < rows; r += g->mr) {
        const float *from =
            p->a + (p->ta ? (size_t)l * p->lda + i + r : (size_t)(i + r) * p->lda + l);
        gemm_pack(!p->ta, from, p->lda, least(g->mr, rows - r), k, g->mr, ap + (size_t)r * k);
    }
    for (int s = 0; s < cols; s += g->nr)
        for (int r = 0; r < rows; r += g->mr) {
            float *c = p->c + (size_t)(i + r) * p->ldc + j + s;
            const float *a = ap + (size_t)r * k, *b = bp + (size_t)s * k;
            int height = least(g->mr, rows - r), width = least(g->nr, cols - s);
            if (direct && height == g->mr && width == g->nr) {
                g->run(k, a, b, c, p->ldc, l > 0 || p->beta == 1);
            } else {
                g->run(k, a, b, tile, g->nr, false);
                store(p, tile, height, width, l == 0, c);
            }
            if (p->end && l + k == p->k)
                p->end->run(p->end, i + r, j + s, height, width, c, p->ldc);
        }
}

/* Rows of a block of A: whole panels, at most MC rows, and the same number of blocks for each
 * thread. */
static int block_rows(int m, int threads, int mr) {
    int panels = (m + mr - 1) / mr, rounds = (m + MC * threads - 1) / (MC * threads);
    return (panels + rounds * threads - 1) / (rounds * threads) * mr;
}

/* Without a sum: C = beta C. */
static void scale(const product *p) {
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            float *c = p->c + (size_t)i * p->ldc + j;
            *c = p->beta == 0 ? 0 : p->beta * *c;
        }
}

static int multiply(int threads, product p) {
    const gemm_kernel *g = p.kernel = gemm_kernel_best();
    int m = p.m, n = p.n, k = p.k, ldb = p.ldb;
    bool tb = p.tb;
    const float *b = p.b;
    if ((double)m * n * k < SMALL) threads = 1;
    p.mc = block_rows(m, threads, g->mr);

    /* each thread packs A into its own part of the memory */
    size_t a_part = gemm_panels_size(p.mc, least(k, GEMM_KC), g->mr);
    size_t b_part = gemm_panels_size(least(n, NC), least(k, GEMM_KC), g->nr);
    float *memory = memory_new("matrix product", a_part * threads + b_part, sizeof *memory);
    if (!memory) return CONR_ENOMEM;
    float *bp = memory + a_part * threads;
#pragma omp parallel num_threads(threads)
    {
        float *ap = memory + a_part * omp_get_thread_num();
        for (int j = 0; j < n; j += NC)
            for (int l = 0; l < k; l += GEMM_KC) {
                int cols = least(NC, n - j), part = least(GEMM_KC, k - l);
#pragma omp for schedule(static)
                for (int s = 0; s < cols; s += g->nr) {
                    const float *from =
                        b + (tb ? (size_t)(j + s) * ldb + l : (size_t)l * ldb + j + s);
                    gemm_pack(tb, from, ldb, least(g->nr, cols - s), part, g->nr,
                              bp + (size_t)s * part);
                }
#pragma omp for schedule(dynamic)
                for (int i = 0; i < m; i += p.mc) block_times_panels(&p, i, j, l, cols, ap, bp);
            }
    }
    free(memory);
    return 0;
}

int gemm(int threads, bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
         const float *b, int ldb, float beta, float *c, int ldc) {
    const product p = {.ta = ta,
                       .tb = tb,
                       .m = m,
                       .n = n,
                       .k = k,
                       .lda = lda,
                       .ldb = ldb,
                       .ldc = ldc,
                       .alpha = alpha,
                       .beta = beta,
                       .a = a,
                       .b = b,
                       .c = c};
    if (m <= 0 || n <= 0) return 0;
    if (k <= 0 || alpha == 0) return scale(&p), 0;
    return multiply(threads, p);
}

int gemm_dense(int threads, int m, int n, int k, const float *a, const float *b, float *c,
               const gemm_end *end) {
    ASSERT(k > 0);
    if (m <= 0 || n <= 0) return 0;
    return multiply(threads, (product){.tb = true,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .lda = k,
                                       .ldb = k,
                                       .ldc = n,
                                       .alpha = 1,
                                       .a = a,
                                       .b = b,
                                       .c = c,
                                       .end = end});
}
