/* cpu_direct.c: convolutions as matrix products whose left side is never stored whole.
 *
 * Forward and data gradient are one engine: rows are pixels of the result, a row's numbers are
 * gathered tap by tap from the source map (zeros outside), packed in quads for a few hundred rows
 * at a time, and multiplied by the packed weights.  A strided data gradient is one such product
 * per class of pixels that meet the same taps.  The filter gradient sums over rows instead: both
 * sides are packed as they lie. */
#include "device/cpu_conv.h"

#include "base/memory.h"
#include "device/cpu_quad.h"

#include <omp.h>
#include <string.h>

enum {
    KC = 512,   /* numbers of a row packed at a time: a panel of each side fits the first cache */
    ROWS = 128, /* rows packed at a time: with KC numbers, a quarter of the second cache */
    FILTER_KC = 256,         /* rows summed over at a time in the filter gradient */
    FILTER_PARTS = 16,       /* parts of the rows that are summed apart where dw is small */
    FILTER_FLOATS = 1 << 18, /* of all parts of dw */
    LINES = 8,
    TAPS = 49
};

/* ---- gathering ------------------------------------------------------------------------------- */

/* Which source pixels a row meets.  Rows are the pixels of n grids gh x gw; row (i, y, x) meets, at
 * tap t, source pixel (i, y*step + dy[t], x*step + dx[t]). */
typedef struct gather {
    const float *source; /* [n,h,w,c] */
    int n, h, w, c;
    int gh, gw, step;
    int taps, dy[TAPS], dx[TAPS];
    int run; /* so many taps in a row lie side by side in the source; divides taps */
} gather;

/* A row of a gather's grids, and the step to the next. */
typedef struct pixel {
    int image, y, x;
} pixel;

static pixel pixel_of(const gather *g, int row) {
    int grid = g->gh * g->gw;
    return (pixel){row / grid, row % grid / g->gw, row % g->gw};
}

static inline void pixel_next(const gather *g, pixel *p) {
    if (++p->x < g->gw) return;
    p->x = 0;
    if (++p->y == g->gh) p->y = 0, p->image++;
}

static int gather_rows(const gather *g) { return g->n * g->gh * g->gw; }

/* The source pixel of a row at a tap, or NULL in the padding. */
static inline const float *gather_pixel(const gather *g, const pixel *p, int t) {
    int sy = p->y * g->step + g->dy[t], sx = p->x * g->step + g->dx[t];
    if (sy < 0 || sy >= g->h || sx < 0 || sx >= g->w) return NULL;
    return g->source + (((size_t)p->image * g->h + sy) * g->w + sx) * g->c;
}

/* One row's numbers [first, last) in quads, `to` the row's first number in its panel and `next`
 * floats from one quad to the next.  For c, first and last multiples of 4. */
static void gather_quads(const gather *g, const pixel *p, int first, int last, int next,
                         float *to) {
    int t = first / g->c, c = first % g->c;
    for (int l = first; l < last; t++, c = 0) {
        const float *from = gather_pixel(g, p, t);
        int n = least(g->c - c, last - l);
        if (from)
            for (int j = 0; j < n; j += 4, to += next) quad_put(to, quad_at(from + c + j));
        else
            for (int j = 0; j < n; j += 4, to += next) quad_put(to, (quad){0});
        l += n;
    }
}

/* Floats of a line: a row's numbers side by side, zeros up to whole quads, and what gather_line
 * writes beyond. */
static size_t line_room(int numbers) { return (size_t)round_up(numbers, 4) + 4; }

/* A whole row of taps * c numbers as a line, a run of taps at a time. */
static void gather_line(const gather *g, const pixel *p, float *line) {
    int sx = p->x * g->step + g->dx[0], sy = p->y * g->step + g->dy[0], width = g->run * g->c;
    int rows = g->taps / g->run;
    int skip = sx < 0 ? -sx : 0, end = least(g->run, g->w - sx); /* taps [skip, end) are inside */
    ptrdiff_t at = (((ptrdiff_t)p->image * g->h + sy) * g->w + sx) * g->c, down = g->w * g->c;
    ptrdiff_t all = (ptrdiff_t)g->n * g->h * g->w * g->c;
    if (skip == 0 && end == g->run && sy >= 0 && sy + rows <= g->h &&
        at + (rows - 1) * down + width + 3 < all) {
        /* all inside: quads, whose last may reach into the next run, written after it */
        for (int t = 0; t < rows; t++, at += down, line += width)
            for (int j = 0; j < width; j += 4) quad_put(line + j, quad_at(g->source + at + j));
        quad_put(line, (quad){0});
        return;
    }
    for (int t = 0; t < rows; t++, at += down, line += width) {
        bool inside = sy + t >= 0 && sy + t < g->h;
        for (int j = 0; j < width; j++)
            line[j] = inside && j >= skip * g->c && j < end * g->c ? g->source[at + j] : 0;
    }
    quad_put(line, (quad){0});
}

/* Rows [first, first + rows) and numbers [l0, l1) as panels of mr rows in quads; short panels are
 * filled up with zeros.  lines: room for mr of them. */
static void gather_panels(const gather *g, int first, int rows, int l0, int l1, int mr,
                          float *panels, float *lines) {
    pixel p = pixel_of(g, first);
    size_t length = line_room(g->taps * g->c);
    for (int i = 0; i < rows; i += mr, panels += (size_t)mr * (l1 - l0)) {
        int there = least(mr, rows - i);
        /* lines of other than whole quads are written first and read later: a quad read right
         * after the parts of it were written has to wait for them */
        for (int r = 0; r < there; r++, pixel_next(g, &p))
            if (g->c % 4 == 0)
                gather_quads(g, &p, l0, l1, 4 * mr, panels + 4 * r);
            else
                gather_line(g, &p, lines + r * length);
        for (int r = 0; r < there && g->c % 4; r++)
            for (int l = l0; l < l1; l += 4)
                quad_put(panels + (size_t)(l - l0) * mr + 4 * r, quad_at(lines + r * length + l));
        for (int r = there; r < mr; r++)
            for (int l = 0; l < l1 - l0; l += 4)
                quad_put(panels + (size_t)l * mr + 4 * r, (quad){0});
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Result rows lie c floats apart and in order, or (step > 1) at every step-th pixel of a map. */
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

/* A tile of a result: straight to its place where it is whole and its rows lie evenly apart, else
 * by way of the stack. */
static void put_tile(const gemm_kernel *k, const gather *g, const target *t, int row, int rows,
                     int column, int columns, int length, const float *a, const float *b,
                     bool add) {
    pixel p = {0};
    float *to = t->base + (size_t)row * t->c + column;
    if (t->scattered) {
        p = pixel_of(g, row);
        to = target_pixel(t, g, &p) + column;
    }
    bool one_line = !t->scattered || p.x + rows <= g->gw; /* rows lie evenly apart */
    int apart = t->scattered ? t->step * t->c : t->c;
    if (one_line && rows == k->mr && columns == k->nr) {
        k->run_quads(length, a, b, to, apart, add, 1);
        return;
    }
    float tile[GEMM_TILE];
    k->run_quads(length, a, b, tile, k->nr, false, 1);
    for (int r = 0; r < rows; r++, to += apart) {
        if (!one_line && r > 0 && (pixel_next(g, &p), p.x == 0))
            to = target_pixel(t, g, &p) + column;
        for (int j = 0; j < columns; j++) to[j] = tile[r * k->nr + j] + (add ? to[j] : 0);
    }
}

/* Rows [first, last) times the packed weights, columns [c0, c1).  weights: [blocks of KC][panels of
 * nr columns][numbers][nr]; panels: room for ROWS x KC and a row. */
static void multiply_rows(const gemm_kernel *k, const gather *g, const target *t,
                          const float *weights, int first, int last, int c0, int c1,
                          float *panels) {
    int length = round_up(g->taps * g->c, 4), columns = round_up(t->c, k->nr);
    for (int l = 0; l < length; l += KC) {
        int part = least(KC, length - l), rows = last - first;
        gather_panels(g, first, rows, l, l + part, k->mr, panels,
                      panels + (size_t)(ROWS + k->mr) * KC);
        for (int j = c0; j < c1; j += k->nr)
            for (int r = 0; r < rows; r += k->mr)
                put_tile(k, g, t, first + r, least(k->mr, rows - r), j, least(k->nr, t->c - j),
                         part, panels + (size_t)r * part,
                         weights + (size_t)l * columns + (size_t)j * part, l > 0 || t->add);
    }
}

/* Floats of one thread's panels and lines. */
static size_t panel_room(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    int ci = s->ci % 4 ? s->ci : 0, co = s->co % 4 ? s->co : 0;
    size_t lines = p->g->mr * line_room(s->k * s->k * (ci > co ? ci : co));
    return (size_t)(ROWS + p->g->mr) * KC + lines + 16;
}

/* Columns are shared out, too, where there are too few rows for all threads. */
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

/* Weights w [co][length] as right-hand panels; what lies behind length is zero. */
static void pack_forward(const cpu_plan *p, const float *w, float *packed) {
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr, length = s->k * s->k * s->ci, padded = round_up(length, 4);
    int columns = round_up(s->co, nr);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int j = 0; j < s->co; j += nr)
        for (int l = 0; l < padded; l += KC) {
            int part = least(KC, padded - l), there = least(part, length - l);
            float *to = packed + (size_t)l * columns + (size_t)j * part;
            gemm_pack(true, w + (size_t)j * length + l, length, least(nr, s->co - j), there, nr,
                      to);
            memset(to + (size_t)there * nr, 0, (size_t)(part - there) * nr * sizeof *to);
        }
}

/* Bias and block sums of rows [first,last), columns [c0,c1), while they are still in the cache, a
 * few rows at a time: fewer trips to the sums.  out: [2][co] of this block. */
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
    int length = round_up(g.taps * g.c, 4);
    float *packed = work, *partial = packed + (size_t)length * round_up(s->co, k->nr);
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

/* The input pixels (y*stride + py, x*stride + px) and the output pixels that saw them: those taps
 * whose distance is a multiple of the stride.  tap[t] is the tap's place in the filter. */
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
    for (int ky = s->k - 1; ky >= 0; ky--) /* so that source pixels come in ascending order */
        for (int kx = s->k - 1; kx >= 0; kx--) {
            int y = py + s->pad - ky, x = px + s->pad - kx;
            if (y % s->stride || x % s->stride) continue;
            g.dy[g.taps] = y / s->stride, g.dx[g.taps] = x / s->stride;
            g.run += g.dy[g.taps] == g.dy[0];
            tap[g.taps++] = ky * s->k + kx;
        }
    return g;
}

/* Right-hand panels for these taps: column c, number (t, o) is w[o][tap[t]][c]. */
static void pack_backward(const cpu_plan *p, const float *w, const gather *g, const int *tap,
                          float *packed) {
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr, kk = s->k * s->k, length = g->taps * s->co, padded = round_up(length, 4);
    int columns = round_up(s->ci, nr);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int j = 0; j < s->ci; j += nr)
        for (int l = 0; l < padded; l += KC) {
            int part = least(KC, padded - l), there = least(part, length - l);
            float *to = packed + (size_t)l * columns + (size_t)j * part;
            for (int i = 0, t = l / s->co, o = l % s->co; i < there; t++, o = 0) {
                int n = least(s->co - o, there - i);
                gemm_pack(false, w + ((size_t)o * kk + tap[t]) * s->ci + j, kk * s->ci,
                          least(nr, s->ci - j), n, nr, to + (size_t)i * nr);
                i += n;
            }
            memset(to + (size_t)there * nr, 0, (size_t)(part - there) * nr * sizeof *to);
        }
}

static void zero(float *x, size_t n, int threads) {
    enum { PART = 1 << 14 };
    long parts = (long)((n + PART - 1) / PART);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < parts; i++)
        memset(x + i * PART, 0, (i + 1 < parts ? PART : n - i * PART) * sizeof *x);
}

void direct_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                      float *work) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    if (s->k < s->stride && !add) zero(dx, (size_t)s->n * s->h * s->w * s->ci, p->threads);
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
        if (rows <= 0 || g.taps == 0) continue; /* no pixels, or such that no output saw */
        float *panels = work + (size_t)round_up(g.taps * s->co, 4) * round_up(s->ci, k->nr);
        pack_backward(p, w, &g, tap, work);
        int blocks = (rows + ROWS - 1) / ROWS;
        int parts = column_parts(blocks, s->ci, k->nr, p->threads);
        int width = round_up((s->ci + parts - 1) / parts, k->nr);
#pragma omp parallel for num_threads(p->threads) schedule(dynamic) collapse(2)
        for (int b = 0; b < blocks; b++)
            for (int c0 = 0; c0 < s->ci; c0 += width)
                multiply_rows(k, &g, &t, work, b * ROWS, least(rows, (b + 1) * ROWS), c0,
                              least(s->ci, c0 + width),
                              panels + (size_t)omp_get_thread_num() * panel_room(p));
    }
}

/* ---- filter gradient ------------------------------------------------------------------------- */

/* Rows [first, first + rows) of dy [.,co], columns o.. as a left-hand panel [rows][mr]. */
static void pack_dy(const float *dy, int co, int first, int rows, int o, int mr, float *panel) {
    gemm_pack(false, dy + (size_t)first * co + o, co, least(mr, co - o), rows, mr, panel);
}

/* Rows likewise of the gathered input, columns [from, to) of one tap, as panels [rows][nr] one
 * behind the other: a pixel is found once for all of them. */
static void pack_x(const gather *g, int first, int rows, int from, int to, int nr, float *panels) {
    pixel p = pixel_of(g, first);
    int t = from / g->c, c = from % g->c;
    size_t panel = (size_t)nr * rows;
    for (int r = 0; r < rows; r++, pixel_next(g, &p)) {
        const float *pixel = gather_pixel(g, &p, t);
        float *at = panels + (size_t)r * nr;
        for (int j = 0; j < to - from; j += nr, at += panel)
            for (int i = 0; i < nr; i += 4)
                quad_put(at + i, pixel ? quad_at(pixel + c + j + i) : (quad){0});
    }
}

/* All columns [from, to) at once, panels one behind the other: where a panel may span taps.  lines:
 * room for LINES of them, each of whole panels. */
static void pack_x_lines(const gather *g, int first, int rows, int from, int to, int nr,
                         float *panels, float *lines) {
    pixel p = pixel_of(g, first);
    int columns = g->taps * g->c;
    size_t length = line_room(round_up(columns, nr));
    for (int i = 0; i < rows; i += LINES) { /* written first and read later, as above */
        int there = least(LINES, rows - i);
        for (int r = 0; r < there; r++, pixel_next(g, &p)) gather_line(g, &p, lines + r * length);
        for (int r = 0; r < there; r++)
            for (int j = from; j < to; j += 4)
                quad_put(panels + (size_t)((j - from) / nr * nr) * rows + (size_t)(i + r) * nr +
                             (j - from) % nr,
                         j < columns ? quad_at(lines + r * length + j) : (quad){0});
    }
}

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

/* Columns [j, j + nr) of dw, from FILTER_KC rows or fewer. */
static void filter_columns(const cpu_plan *p, int length, const float *a, const float *b, int j,
                           bool add, float *dw) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    int columns = s->k * s->k * s->ci;
    for (int o = 0; o < s->co; o += k->mr)
        filter_tile(k, length, a + (size_t)o * length, b, least(k->mr, s->co - o),
                    least(k->nr, columns - j), dw + (size_t)o * columns + j, columns, add);
}

/* Floats of one thread's packed rows: dy, then one tap of x, or all of them where channels do not
 * fill panels; then lines. */
static size_t filter_room(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    int nr = p->g->nr, columns = round_up(s->k * s->k * s->ci, nr);
    int x = s->ci % nr ? columns : s->ci;
    size_t lines = s->ci % nr ? LINES * line_room(columns) : 0;
    return (size_t)FILTER_KC * (round_up(s->co, p->g->mr) + x) + lines + 16;
}

/* Columns [from, to) of dw (+)= the sum over rows [first, last).  work: filter_room floats. */
static void filter_rows(const cpu_plan *p, const gather *g, const float *dy, int first, int last,
                        int from, int to, bool add, float *dw, float *work) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *k = p->g;
    bool whole = s->ci % k->nr == 0; /* a panel lies within one tap */
    float *a = work, *b = a + FILTER_KC * (size_t)round_up(s->co, k->mr);
    float *lines = b + FILTER_KC * (size_t)round_up(g->taps * s->ci, k->nr);
    for (; first < last && from < to; first += FILTER_KC, add = true) {
        int length = least(FILTER_KC, last - first);
        int packed = from; /* the column that b begins with */
        for (int o = 0; o < s->co; o += k->mr)
            pack_dy(dy, s->co, first, length, o, k->mr, a + (size_t)o * length);
        if (!whole) pack_x_lines(g, first, length, from, to, k->nr, b, lines);
        for (int j = from; j < to; j += k->nr) {
            if (whole && (j == from || j % s->ci == 0)) { /* a tap begins */
                packed = j;
                pack_x(g, first, length, j, least(to, (j / s->ci + 1) * s->ci), k->nr, b);
            }
            filter_columns(p, length, a, b + (size_t)(j - packed) * length, j, add, dw);
        }
    }
}

/* In how many parts the rows are summed; depends on the shape alone. */
static int filter_parts(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    double weights = (double)s->co * s->k * s->k * s->ci, rows = (double)s->n * p->base.oh;
    rows *= p->base.ow;
    return weights * FILTER_PARTS <= FILTER_FLOATS && rows >= FILTER_PARTS * FILTER_KC
               ? FILTER_PARTS
               : 1;
}

/* Where dw is small a thread sums a part of the rows, and the parts are added up in order.  Else
 * each thread owns columns of dw and goes over all rows; dy is packed by every thread for itself,
 * which is the cheaper side. */
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
        (kk * s->ci + 4) * round_up(s->co, k->nr) + (size_t)p->rows.blocks * 2 * s->co + panels;
    size_t data = (kk * s->co + 4) * round_up(s->ci, k->nr) + panels;
    size_t parts = (size_t)filter_parts(p), sums = parts > 1 ? parts * s->co * kk * s->ci : 0;
    size_t filter = p->threads * filter_room(p) + sums;
    return most(forward, most(data, filter));
}
