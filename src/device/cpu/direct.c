/* direct.c: convolutions as matrix products whose left side is never stored whole (implicit GEMM).
 *
 * Forward and data gradient share one engine: rows are pixels of the result; the elements of a row
 * are gathered tap by tap from the source map (zeros outside), packed in quads for a block of rows
 * at a time, and multiplied by the packed weights.  A strided data gradient is one such product per
 * class of pixels that meet the same taps.  The filter gradient sums over rows instead: both sides
 * are packed in the order they are stored in. */
#include "device/cpu/conv.h"

#include "base/memory.h"
#include "device/cpu/gather.h"

#include <omp.h>
#include <string.h>

enum {
    KC = 512,   /* elements of a row packed at a time: a panel of each side fits the L1 cache */
    ROWS = 128, /* rows packed at a time: with KC elements each, a quarter of the L2 cache */
    FILTER_KC = 256,         /* rows summed over at a time in the filter gradient */
    FILTER_PARTS = 16,       /* parts of the rows that are summed separately if dw is small */
    FILTER_FLOATS = 1 << 18, /* floats of all parts of dw */
};

/* ---- the product ----------------------------------------------------------------------------- */

/* The rows of a result: consecutive, c floats apart, or (scattered) every step-th pixel of a
 * map. */
typedef struct target {
    float *base; /* [n,h,w,c] */
    int c;
    bool scattered;
    int h, w, step, py, px; /* scattered: row (i,y,x) is pixel (y*step + py, x*step + px) */
    bool add;               /* to what is there */
} target;

static float *target_pixel(const target *t, const gather *g, const pixel *p) {
    if (!t->scattered) return t->base + (((size_t)p->image * g->gh + p->y) * g->gw + p->x) * t->c;
    return t->base +
           (((size_t)p->image * t->h + p->y * t->step + t->py) * t->w + p->x * t->step + t->px) *
               t->c;
}

typedef void run_panels(int k, const float *a, const float *b, float *c, int ldc, bool add,
                        int panels, size_t next);

/* The kernel for the panels of this gather. */
static run_panels *run_of(const gemm_kernel *k, const gather *g) {
    return gather_in_quads(g) ? k->run_quads : k->run_panels;
}

/* A tile of a result: written in place if it is whole and its rows are evenly spaced, else via the
 * stack. */
static void put_tile(const gemm_kernel *k, const gather *g, const target *t, int row, int rows,
                     int column, int columns, int length, const float *a, const float *b,
                     bool add) {
    pixel p = {0};
    float *to = t->base + (size_t)row * t->c + column;
    if (t->scattered) {
        p = pixel_of(g, row);
        to = target_pixel(t, g, &p) + column;
    }
    bool one_line = !t->scattered || p.x + rows <= g->gw; /* rows are evenly spaced */
    int apart = t->scattered ? t->step * t->c : t->c;
    if (one_line && rows == k->mr && columns == k->nr) {
        run_of(k, g)(length, a, b, to, apart, add, 1, 0);
        return;
    }
    float tile[GEMM_TILE];
    run_of(k, g)(length, a, b, tile, k->nr, false, 1, 0);
    for (int r = 0; r < rows; r++, to += apart) {
        if (!one_line && r > 0 && (pixel_next(g, &p), p.x == 0))
            to = target_pixel(t, g, &p) + column;
        for (int j = 0; j < columns; j++) to[j] = tile[r * k->nr + j] + (add ? to[j] : 0);
    }
}

/* All tiles of a panel of columns; a: the panels of `rows` rows.  In one call where the tiles are
 * whole and consecutive. */
static void put_tiles(const gemm_kernel *k, const gather *g, const target *t, int row, int rows,
                      int column, int length, const float *a, const float *b, bool add) {
    int columns = least(k->nr, t->c - column), r = 0;
    if (!t->scattered && columns == k->nr) {
        r = rows - rows % k->mr;
        run_of(k, g)(length, a, b, t->base + (size_t)row * t->c + column, t->c, add, r / k->mr,
                     (size_t)k->mr * length);
    }
    for (; r < rows; r += k->mr)
        put_tile(k, g, t, row + r, least(k->mr, rows - r), column, columns, length,
                 a + (size_t)r * length, b, add);
}

/* Rows [first, last) times the packed weights, columns [c0, c1).
 * weights: [blocks of KC][panels of nr columns][elements][nr]; work: panel_room floats. */
static void multiply_rows(const gemm_kernel *k, const gather *g, const target *t,
                          const float *weights, int first, int last, int c0, int c1, float *work) {
    int length = g->taps * g->c, columns = round_up(t->c, k->nr), rows = last - first;
    float *panels = work;
    gather_lines lines;
    gather_lines_open(&lines, g, work + (size_t)(ROWS + k->mr) * KC + GATHER_SLACK);
    for (int l = 0; l < length; l += KC) {
        int part = least(KC, length - l);
        gather_panels(g, &lines, first, rows, l, l + part, k->mr, panels);
        for (int j = c0; j < c1; j += k->nr)
            put_tiles(k, g, t, first, rows, j, part, panels,
                      weights + (size_t)l * columns + (size_t)j * part, l > 0 || t->add);
    }
}

/* Floats of the panels and lines of one thread. */
static size_t panel_room(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    size_t lines = most(gather_lines_room(s->ci, s->k, s->stride, p->base.ow),
                        gather_lines_room(s->co, s->k, 1, s->w));
    return (size_t)(ROWS + p->g->mr) * KC + GATHER_SLACK + lines;
}

/* If there are too few rows for all threads, columns are divided among them too. */
static int column_parts(int row_blocks, int columns, int nr, int threads) {
    int wanted = (2 * threads + row_blocks - 1) / row_blocks, most = (columns + nr - 1) / nr;
    return row_blocks >= 2 * threads ? 1 : least(wanted, most);
}

/* ---- forward --------------------------------------------------------------------------------- */

static gather forward_gather(const cpu_plan *p, const float *x) {
    const conv_shape *s = &p->base.s;
    gather g = {.source = x,
                .n = s->n,
                .h = s->h,
                .w = s->w,
                .c = s->ci,
                .gh = p->base.oh,
                .gw = p->base.ow,
                .step = s->stride,
                .taps = s->k * s->k,
                .run = s->k};
    for (int t = 0; t < g.taps; t++) g.dy[t] = t / s->k - s->pad, g.dx[t] = t % s->k - s->pad;
    return g;
}

/* Weights w [co][length] as right-hand panels. */
static void pack_forward(const cpu_plan *p, const float *w, float *packed) {
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr, length = s->k * s->k * s->ci, columns = round_up(s->co, nr);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int j = 0; j < s->co; j += nr)
        for (int l = 0; l < length; l += KC) {
            int part = least(KC, length - l);
            gemm_pack(true, w + (size_t)j * length + l, length, least(nr, s->co - j), part, nr,
                      packed + (size_t)l * columns + (size_t)j * part);
        }
}

/* Bias and block sums of rows [first,last), columns [c0,c1), while they are still in the cache.  A
 * few rows at a time: the sums are loaded and stored less often.  out: [2][co] of this block. */
static void finish_rows(float *restrict y, int co, int first, int last, int c0, int c1,
                        const float *restrict bias, const float *restrict shift,
                        float *restrict out) {
    enum { SOME = 16 };
    for (int j = c0; j < c1; j++) out[j] = out[co + j] = 0;
    for (int r = first; r < last; r++)
        for (int j = c0; bias && j < c1; j++) y[(size_t)r * co + j] += bias[j];
    for (int r = first; shift && r < last; r += SOME) {
        const float *rows = y + (size_t)r * co;
        int n = least(SOME, last - r), j = c0;
        for (; j + 4 <= c1; j += 4) {
            quad about = quad_at(shift + j), sum = quad_at(out + j),
                 squares = quad_at(out + co + j);
            for (int i = 0; i < n; i++) {
                quad v = quad_at(rows + (size_t)i * co + j) - about;
                sum += v;
                squares += v * v;
            }
            quad_put(out + j, sum);
            quad_put(out + co + j, squares);
        }
        for (; j < c1; j++)
            for (int i = 0; i < n; i++) {
                float v = rows[(size_t)i * co + j] - shift[j];
                out[j] += v;
                out[co + j] += v * v;
            }
    }
}

void direct_forward(const cpu_plan *p, const float *x, const float *w, const float *bias, float *y,
                    const float *shift, float *sums, float *work) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    gather g = forward_gather(p, x);
    target t = {.base = y, .c = s->co};
    float *packed = work, *partial = packed + (size_t)g.taps * g.c * round_up(s->co, k->nr);
    float *panels = partial + (size_t)p->rows.blocks * 2 * s->co;
    pack_forward(p, w, packed);
    int parts = column_parts(p->rows.blocks, s->co, k->nr, p->threads);
    int width = round_up((s->co + parts - 1) / parts, k->nr);
#pragma omp parallel for num_threads(p->threads) schedule(dynamic) collapse(2)
    for (int b = 0; b < p->rows.blocks; b++)
        for (int c0 = 0; c0 < s->co; c0 += width) {
            int first, last, c1 = least(s->co, c0 + width);
            conv_block_range(&p->rows, b, &first, &last);
            multiply_rows(k, &g, &t, packed, first, last, c0, c1,
                          panels + (size_t)omp_get_thread_num() * panel_room(p));
            if (sums || bias)
                finish_rows(y, s->co, first, last, c0, c1, bias, sums ? shift : NULL,
                            partial + (size_t)b * 2 * s->co);
        }
    if (sums) conv_fold_sums(&p->rows, s->groups, s->co, partial, sums, p->threads);
}

/* ---- data gradient --------------------------------------------------------------------------- */

/* The input pixels (y*stride + py, x*stride + px) and the output pixels that see them: the taps
 * whose distance is a multiple of the stride.  tap[t]: the index of tap t in the filter. */
static gather backward_gather(const cpu_plan *p, const float *dy, int py, int px, int *tap) {
    const conv_shape *s = &p->base.s;
    gather g = {.source = dy,
                .n = s->n,
                .h = p->base.oh,
                .w = p->base.ow,
                .c = s->co,
                .gh = (s->h - py + s->stride - 1) / s->stride,
                .gw = (s->w - px + s->stride - 1) / s->stride,
                .step = 1};
    for (int ky = s->k - 1; ky >= 0; ky--) /* so that source pixels are in ascending order */
        for (int kx = s->k - 1; kx >= 0; kx--) {
            int y = py + s->pad - ky, x = px + s->pad - kx;
            if (y % s->stride || x % s->stride) continue;
            g.dy[g.taps] = y / s->stride, g.dx[g.taps] = x / s->stride;
            g.run += g.dy[g.taps] == g.dy[0];
            tap[g.taps++] = ky * s->k + kx;
        }
    return g;
}

/* Right-hand panels for these taps: element (t, o) of column c is w[o][tap[t]][c]. */
static void pack_backward(const cpu_plan *p, const float *w, const gather *g, const int *tap,
                          float *packed) {
    enum { SOME = 64 }; /* elements that a thread takes at a time; divides KC */
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr, kk = s->k * s->k, length = g->taps * s->co, columns = round_up(s->ci, nr);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int first = 0; first < length; first += SOME) {
        int block = first - first % KC, part = least(KC, length - block);
        int last = least(length, first + SOME);
        float *to = packed + (size_t)block * columns;
        for (int l = first, n; l < last; l += n) { /* a tap at a time */
            int t = l / s->co, o = l % s->co;
            n = least(s->co - o, last - l);
            gemm_pack_wide(w + ((size_t)o * kk + tap[t]) * s->ci, kk * s->ci, s->ci, n, nr,
                           (size_t)part * nr, to + (size_t)(l - block) * nr);
        }
    }
}

static void zero(float *x, size_t n, int threads) {
    enum { PART = 1 << 14 };
    long parts = (long)((n + PART - 1) / PART);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < parts; i++)
        memset(x + i * PART, 0, (i + 1 < parts ? PART : n - i * PART) * sizeof *x);
}

/* Zeros everything from the pixel of row `first` up to that of row `last`: pixels that no output
 * sees, and those of these rows, which are written next. */
static void zero_rows(const gather *g, const target *t, int first, int last) {
    pixel from = pixel_of(g, first), to = pixel_of(g, last);
    float *begin = target_pixel(t, g, &from);
    float *end = last < gather_rows(g) ? target_pixel(t, g, &to)
                                       : t->base + (size_t)g->n * t->h * t->w * t->c;
    memset(begin, 0, (size_t)(end - begin) * sizeof *begin);
}

void direct_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                      float *work) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    bool zeros = s->k < s->stride && !add; /* some pixels are seen by no output */
    for (int class = 0; class < s->stride * s->stride; class ++) {
        int py = class / s->stride, px = class % s->stride, tap[TAPS];
        gather g = backward_gather(p, dy, py, px, tap);
        target t = {.base = dx,
                    .c = s->ci,
                    .scattered = s->stride > 1,
                    .h = s->h,
                    .w = s->w,
                    .step = s->stride,
                    .py = py,
                    .px = px,
                    .add = add};
        int rows = gather_rows(&g);
        if (rows <= 0 || g.taps == 0) continue; /* no pixels, or only ones that no output sees */
        float *panels = work + (size_t)g.taps * s->co * round_up(s->ci, k->nr);
        pack_backward(p, w, &g, tap, work);
        int blocks = (rows + ROWS - 1) / ROWS;
        int parts = column_parts(blocks, s->ci, k->nr, p->threads);
        int width = round_up((s->ci + parts - 1) / parts, k->nr);
        /* if a block writes nothing else, its pixels are zeroed just before */
        bool by_blocks = zeros && s->k == 1 && s->pad == 0 && parts == 1;
        if (zeros && !by_blocks) zero(dx, (size_t)s->n * s->h * s->w * s->ci, p->threads);
        zeros = false;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic) collapse(2)
        for (int b = 0; b < blocks; b++)
            for (int c0 = 0; c0 < s->ci; c0 += width) {
                int first = b * ROWS, last = least(rows, first + ROWS);
                if (by_blocks) zero_rows(&g, &t, first, last);
                multiply_rows(k, &g, &t, work, first, last, c0, least(s->ci, c0 + width),
                              panels + (size_t)omp_get_thread_num() * panel_room(p));
            }
    }
    if (zeros)
        zero(dx, (size_t)s->n * s->h * s->w * s->ci, p->threads); /* no output sees any pixel */
}

/* ---- filter gradient ------------------------------------------------------------------------- */

static void filter_tile(const gemm_kernel *k, int length, const float *a, const float *b, int rows,
                        int columns, float *c, int ldc, bool add) {
    if (rows == k->mr && columns == k->nr) {
        k->run(length, a, b, c, ldc, add);
        return;
    }
    float tile[GEMM_TILE];
    k->run(length, a, b, tile, k->nr, false);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++)
            c[(size_t)r * ldc + j] = tile[r * k->nr + j] + (add ? c[(size_t)r * ldc + j] : 0);
}

/* Columns [j, j + nr) of dw, from at most FILTER_KC rows; a: panels of dy. */
static void filter_columns(const cpu_plan *p, int length, const float *a, size_t apart,
                           const float *b, int j, bool add, float *dw) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    int columns = s->k * s->k * s->ci;
    for (int o = 0; o < s->co; o += k->mr, a += apart)
        filter_tile(k, length, a, b, least(k->mr, s->co - o), least(k->nr, columns - j),
                    dw + (size_t)o * columns + j, columns, add);
}

/* Columns of x that are packed at a time: those of one tap if they fill panels, else all. */
static int columns_at_once(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr;
    return s->ci % nr ? round_up(s->k * s->k * s->ci, nr) : s->ci;
}

/* Floats of the packed rows of one thread: dy, then x, then lines. */
static size_t filter_room(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    return (size_t)(FILTER_KC + 3) * (round_up(s->co, p->g->mr) + columns_at_once(p)) +
           gather_lines_room(s->ci, s->k, s->stride, p->base.ow);
}

/* Columns [from, to) of dw (+)= the sum over rows [first, last).  work: filter_room floats. */
static void filter_rows(const cpu_plan *p, const gather *g, const float *dy, int first, int last,
                        int from, int to, bool add, float *dw, float *work) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    int once = columns_at_once(p);
    float *a = work, *b = a + (FILTER_KC + 3) * (size_t)round_up(s->co, k->mr);
    gather_lines lines;
    gather_lines_open(&lines, g, b + (size_t)(FILTER_KC + 3) * once);
    for (; first < last && from < to; first += FILTER_KC, add = true) {
        int length = least(FILTER_KC, last - first);
        /* not a power of two: lines of different panels would compete for the same cache set */
        size_t a_apart = (size_t)(length + 3) * k->mr, b_apart = (size_t)(length + 3) * k->nr;
        gemm_pack_wide(dy + (size_t)first * s->co, s->co, s->co, length, k->mr, a_apart, a);
        for (int begin = from, end; begin < to; begin = end) {
            end = least(to, (begin / once + 1) * once);
            gather_columns(g, &lines, first, length, begin, end, k->nr, b_apart, b);
            for (int j = begin; j < end; j += k->nr)
                filter_columns(p, length, a, a_apart, b + (j - begin) / k->nr * b_apart, j, add,
                               dw);
        }
    }
}

/* The number of parts that the rows are summed in; depends only on the shape. */
static int filter_parts(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    double weights = (double)s->co * s->k * s->k * s->ci, rows = (double)s->n * p->base.oh;
    rows *= p->base.ow;
    return weights * FILTER_PARTS <= FILTER_FLOATS && rows >= FILTER_PARTS * FILTER_KC
               ? FILTER_PARTS
               : 1;
}

/* If dw is small, each thread sums a part of the rows, and the parts are added up in order.  Else
 * each thread owns columns of dw and goes over all rows; every thread packs dy for itself, which is
 * the cheaper side. */
void direct_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                        float *work) {
    const conv_shape *s = &p->base.s;
    const gather g = forward_gather(p, x);
    int rows = gather_rows(&g), columns = g.taps * s->ci, nr = p->g->nr;
    int panels = (columns + nr - 1) / nr, parts = filter_parts(p);
    size_t weights = (size_t)s->co * columns;
    float *sums = work + p->threads * filter_room(p); /* [parts][co][columns] */
#pragma omp parallel num_threads(p->threads)
    {
        int id = omp_get_thread_num(), count = omp_get_num_threads();
        float *own = work + filter_room(p) * (size_t)id;
        if (parts == 1)
            filter_rows(p, &g, dy, 0, rows, (int)((long)panels * id / count) * nr,
                        (int)((long)panels * (id + 1) / count) * nr, add, dw, own);
        else
#pragma omp for schedule(dynamic)
            for (int i = 0; i < parts; i++)
                filter_rows(p, &g, dy, (int)((long)rows * i / parts),
                            (int)((long)rows * (i + 1) / parts), 0, panels * nr, false,
                            sums + i * weights, own);
    }
    for (int i = 0; parts > 1 && i < parts; i++)
        for (size_t j = 0; j < weights; j++)
            dw[j] = sums[i * weights + j] + (i > 0 || add ? dw[j] : 0);
}

/* ---- workspace ------------------------------------------------------------------------------- */

size_t direct_workspace(cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    p->rows = conv_blocks_make(s->groups, s->n / s->groups * p->base.oh * p->base.ow, ROWS);
    size_t panels = p->threads * panel_room(p), kk = (size_t)s->k * s->k;
    size_t forward =
        kk * s->ci * round_up(s->co, k->nr) + (size_t)p->rows.blocks * 2 * s->co + panels;
    size_t data = kk * s->co * round_up(s->ci, k->nr) + panels;
    size_t parts = (size_t)filter_parts(p), sums = parts > 1 ? parts * s->co * kk * s->ci : 0;
    size_t filter = p->threads * filter_room(p) + sums;
    return most(forward, most(data, filter));
}
