/* search_whole.c: exact nearest neighbors of a batch, whose S = F F^T is small enough to store.
 *
 * The tiles on and above the diagonal are computed once and stored twice, as they are and
 * transposed; then every row is searched for its best.  No tile waits for another, and one pass
 * over a whole row finds the value to beat, which a list that grows tile by tile has to raise step
 * by step. */
#include "neighbors/search.h"

#include "base/memory.h"
#include "kernels/gemm.h"
#include "kernels/quad.h"
#include "neighbors/whole.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { PANELS = 4 }; /* of rows and of columns that a thread takes at a time */

typedef struct square {
    const gemm_kernel *kernel;
    int n, d, pitch;
    float *tall, *wide; /* F in panels of mr and of nr rows */
    float *s;           /* [n,pitch] */
} square;

/* ---- S --------------------------------------------------------------------------------------- */

static void put_rows(const quad q[4], float *to, int pitch) {
    quad_put(to, q[0]), quad_put(to + pitch, q[1]);
    quad_put(to + 2 * pitch, q[2]), quad_put(to + 3 * pitch, q[3]);
}

/* One tile, rows i.. and columns j.., all of it above the diagonal. */
static void store_tile(const square *w, const float *tile, int i, int j) {
    int mr = w->kernel->mr, nr = w->kernel->nr, pitch = w->pitch, r = 0;
    float *s = w->s + (size_t)i * pitch + j, *turned = w->s + (size_t)j * pitch + i;
    for (; r + 4 <= mr; r += 4)
        for (int c = 0; c < nr; c += 4) {
            const float *from = tile + r * nr + c;
            float *to = s + (size_t)r * pitch + c;
            quad q[4] = {quad_at(from), quad_at(from + nr), quad_at(from + 2 * nr),
                         quad_at(from + 3 * nr)};
            put_rows(q, to, pitch);
            quad_transpose(q);
            put_rows(q, turned + (size_t)c * pitch + r, pitch);
        }
    for (; r < mr; r++)
        for (int c = 0; c < nr; c++)
            s[(size_t)r * pitch + c] = turned[(size_t)c * pitch + r] = tile[r * nr + c];
}

/* A tile on the diagonal or at the end: only its pairs with row < column, so that no element is
 * stored by two threads. */
static void store_pairs(const square *w, const float *tile, int i, int j) {
    int nr = w->kernel->nr, rows = least(w->kernel->mr, w->n - i), columns = least(nr, w->n - j);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            if (i + r < j + c)
                w->s[(size_t)(i + r) * w->pitch + j + c] =
                    w->s[(size_t)(j + c) * w->pitch + i + r] = tile[r * nr + c];
}

/* The tiles from (i,j) on that reach above the diagonal: a few panels of rows and of columns, so
 * that a cache line of S is mostly filled by one thread. */
static void compute_tiles(const square *w, int i0, int j0) {
    const gemm_kernel *g = w->kernel;
    float tile[GEMM_TILE];
    int i1 = least(i0 + PANELS * g->mr, w->n), j1 = least(j0 + PANELS * g->nr, w->n);
    for (int j = j0; j < j1; j += g->nr)
        for (int i = i0; i < i1 && i < j + g->nr; i += g->mr) {
            gemm_tile(g, w->d, w->tall + (size_t)i * w->d, w->wide + (size_t)j * w->d, tile);
            if (i + g->mr <= j && j + g->nr <= w->n)
                store_tile(w, tile, i, j);
            else
                store_pairs(w, tile, i, j);
        }
}

static void pack(const square *w, const float *f, int i, int width, float *panels) {
    gemm_pack(true, f + (size_t)i * w->d, w->d, least(width, w->n - i), w->d, width,
              panels + (size_t)i * w->d);
}

/* Row i's list: itself, then its best. */
static void list_row(const square *w, int i, int k, int32_t *scratch, int32_t *ids, float *values) {
    float *row = w->s + (size_t)i * w->pitch;
    ids[0] = i;
    values[0] = 1;
    row[i] = -INFINITY;
    if (k > 1) whole_best(row, NULL, w->n, -FLT_MAX, k - 1, scratch, ids + 1, values + 1);
}

int search_whole(device *dev, const float *f, int n, int d, int k, int32_t *ids, float *values) {
    const gemm_kernel *g = gemm_kernel_best();
    square w = {.kernel = g, .n = n, .d = d, .pitch = whole_pitch(n)};
    size_t tall = gemm_panels_size(n, d, g->mr), wide = gemm_panels_size(n, d, g->nr);
    size_t s = (size_t)n * w.pitch, scratch = (size_t)w.pitch * dev->threads;
    float *memory = memory_new("nearest neighbors", tall + wide + s + scratch, sizeof *memory);
    if (!memory) return CONR_ENOMEM;
    w.s = memory;
    w.tall = memory + s;
    w.wide = w.tall + tall;
#pragma omp parallel num_threads(dev->threads)
    {
        int32_t *own = (int32_t *)(w.wide + wide) + (size_t)w.pitch * omp_get_thread_num();
#pragma omp for schedule(static) nowait
        for (int i = 0; i < n; i += g->mr) pack(&w, f, i, g->mr, w.tall);
#pragma omp for schedule(static)
        for (int j = 0; j < n; j += g->nr) pack(&w, f, j, g->nr, w.wide);
            /* the last rows have the fewest tiles: so the threads finish together */
#pragma omp for schedule(dynamic) collapse(2)
        for (int i = 0; i < n; i += PANELS * g->mr)
            for (int j = 0; j < n; j += PANELS * g->nr) compute_tiles(&w, i, j);
#pragma omp for schedule(dynamic, 16)
        for (int i = 0; i < n; i++)
            list_row(&w, i, k, own, ids + (size_t)i * k, values + (size_t)i * k);
    }
    free(memory);
    return device_report(dev, "nearest neighbors", n, n);
}
