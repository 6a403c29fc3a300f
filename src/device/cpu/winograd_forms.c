/* winograd_forms.c: the transforms, each from a formula in one dimension.  Long because the loops
 * over both dimensions inline every formula, and stand beside them. */
#include "device/cpu/winograd_forms.h"

#include "kernels/isa.h"

#define ALL  _Pragma("GCC unroll 36")
#define LOOP _Pragma("GCC unroll 1") /* unrolled, it would not fit the registers */

/* ---- stride 1: F(4,3) with the points 0, 1, -1, 2, -2, infinity ------------------------------ */

/* B': six inputs to six places */
INLINE void input_line(const quad d[6], quad o[6]) {
    quad a = d[4] - 4.f * d[2], b = d[3] - 4.f * d[1], c = d[4] - d[2], e = d[3] - d[1];
    o[0] = c + 4.f * (d[0] - d[2]);
    o[5] = (d[5] - d[3]) - 4.f * e;
    e += e;
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
}

/* A': six places to four outputs */
INLINE void output_line(const quad m[6], quad o[4]) {
    quad s = m[1] + m[2], d = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
    o[0] = m[0] + s + s2;
    o[1] = d + 2.f * d2;
    o[2] = s + 4.f * s2;
    o[3] = d + 8.f * d2 + m[5];
}

/* A: the gradients of four outputs to six places */
INLINE void gradient_line(const quad d[4], quad o[6]) {
    quad s = d[0] + d[2], q = d[1] + d[3], u = d[0] + 4.f * d[2], w = 2.f * d[1] + 8.f * d[3];
    o[0] = d[0];
    o[1] = s + q;
    o[2] = s - q;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = d[3];
}

/* The same for edges.  Two outputs, F(2,3), use the points 0, 1, -1, infinity; three, F(3,3), also
 * 2, and their B' is that of F(4,2), which has the same number of inputs. */
INLINE void two_taps_input(quad d0, quad d1, quad d2, quad d3, quad d4, quad o[5]);

INLINE void input_two(const quad d[6], quad o[6]) {
    o[0] = 4.f * (d[0] - d[2]);
    o[1] = -3.f * (d[1] + d[2]);
    o[2] = 3.f * (d[1] - d[2]);
    o[5] = d[3] - d[1];
}

INLINE void input_three(const quad d[6], quad o[6]) {
    quad t[5];
    two_taps_input(d[0], d[1], d[2], d[3], d[4], t);
    o[0] = t[0] + t[0];
    o[1] = 3.f * t[1];
    o[2] = t[2];
    o[3] = 4.f * t[3];
    o[5] = t[4];
}

INLINE void output_two(const quad m[6], quad o[4]) {
    o[0] = m[0] + m[1] + m[2];
    o[1] = m[1] - m[2] + m[5];
}

INLINE void output_three(const quad m[6], quad o[4]) {
    quad s = m[1] + m[2];
    o[0] = m[0] + s + m[3];
    o[1] = m[1] - m[2] + 2.f * m[3];
    o[2] = s + 4.f * m[3] + m[5];
}

INLINE void gradient_two(const quad d[4], quad o[6]) {
    o[0] = d[0];
    o[1] = d[0] + d[1];
    o[2] = d[0] - d[1];
    o[5] = d[1];
}

INLINE void gradient_three(const quad d[4], quad o[6]) {
    quad s = d[0] + d[2];
    o[0] = d[0];
    o[1] = s + d[1];
    o[2] = s - d[1];
    o[3] = d[0] + 4.f * d[2] + 2.f * d[1];
    o[5] = d[2];
}

/* G: three weights to six places */
INLINE void filter_line(const quad g[3], quad o[6]) {
    quad e = (g[0] + g[2]) * (-1.f / 6), f = g[1] * (1.f / 6);
    quad u = g[0] * (1.f / 24) + g[2] * (1.f / 6), w = g[1] * (1.f / 12);
    o[0] = g[0] * .25f;
    o[1] = e - f;
    o[2] = e + f;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = g[2];
}

/* G': six places to the gradients of three weights */
INLINE void filter_back_line(const quad c[6], quad o[3]) {
    quad s = (c[1] + c[2]) * (1.f / 6), d = (c[2] - c[1]) * (1.f / 6), u = c[3] + c[4],
         w = c[3] - c[4];
    o[0] = .25f * c[0] - s + u * (1.f / 24);
    o[1] = d + w * (1.f / 12);
    o[2] = u * (1.f / 6) - s + c[5];
}

/* ---- stride 1: F(6,3) with the points 0, 1, -1, 2, -2, 1/2, -1/2, infinity ------------------- */

/* B': eight inputs to eight places */
INLINE void six_input_line(const quad d[8], quad o[8]) {
    quad a = (d[2] + d[6]) - 4.25f * d[4], b = (d[1] + d[5]) - 4.25f * d[3];
    quad c = d[6] + .25f * d[2] - 1.25f * d[4], e = .5f * d[1] - 2.5f * d[3] + 2.f * d[5];
    quad g = d[6] + 4.f * d[2] - 5.f * d[4], h = 2.f * d[1] - 2.5f * d[3] + .5f * d[5];
    o[0] = (d[0] - d[6]) + 5.25f * (d[4] - d[2]);
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = g + h;
    o[6] = g - h;
    o[7] = (d[7] - d[1]) + 5.25f * (d[3] - d[5]);
}

/* A': eight places to six outputs */
INLINE void six_output_line(const quad m[8], quad o[6]) {
    quad s = m[1] + m[2], d = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
    quad s3 = m[5] + m[6], d3 = m[5] - m[6];
    o[0] = (m[0] + s) + (s2 + s3);
    o[1] = d + 2.f * d2 + .5f * d3;
    o[2] = s + 4.f * s2 + .25f * s3;
    o[3] = d + 8.f * d2 + .125f * d3;
    o[4] = s + 16.f * s2 + .0625f * s3;
    o[5] = (d + m[7]) + 32.f * d2 + .03125f * d3;
}

/* A: the gradients of six outputs to eight places */
INLINE void six_gradient_line(const quad d[6], quad o[8]) {
    quad s = d[0] + d[2] + d[4], q = d[1] + d[3] + d[5];
    quad u = d[0] + 4.f * d[2] + 16.f * d[4], w = 2.f * d[1] + 8.f * d[3] + 32.f * d[5];
    quad a = d[0] + .25f * d[2] + .0625f * d[4], b = .5f * d[1] + .125f * d[3] + .03125f * d[5];
    o[0] = d[0];
    o[1] = s + q;
    o[2] = s - q;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = a + b;
    o[6] = a - b;
    o[7] = d[5];
}

/* The same for edges of four outputs: those of F(4,3), up to factors. */
INLINE void six_input_four(const quad d[8], quad o[8]) {
    quad t[6];
    input_line(d, t);
    o[0] = .25f * t[0];
    o[1] = .75f * t[1];
    o[2] = .75f * t[2];
    o[3] = 3.75f * t[3];
    o[4] = 3.75f * t[4];
    o[7] = t[5];
}

INLINE void six_output_four(const quad m[8], quad o[6]) {
    quad t[6] = {m[0], m[1], m[2], m[3], m[4], m[7]};
    output_line(t, o);
}

INLINE void six_gradient_four(const quad d[6], quad o[8]) {
    quad t[6];
    gradient_line(d, t);
    ALL for (int i = 0; i < 5; i++) o[i] = t[i];
    o[7] = t[5];
}

/* G: three weights to eight places */
INLINE void six_filter_line(const quad g[3], quad o[8]) {
    quad e = (g[0] + g[2]) * (-2.f / 9), f = g[1] * (2.f / 9);
    quad u = g[0] * (1.f / 90) + g[2] * (2.f / 45), w = g[1] * (1.f / 45);
    quad a = g[0] * (32.f / 45) + g[2] * (8.f / 45), b = g[1] * (16.f / 45);
    o[0] = g[0];
    o[1] = e - f;
    o[2] = e + f;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = a + b;
    o[6] = a - b;
    o[7] = g[2];
}

/* G': eight places to the gradients of three weights */
INLINE void six_filter_back_line(const quad c[8], quad o[3]) {
    quad s = (c[1] + c[2]) * (2.f / 9), d = (c[2] - c[1]) * (2.f / 9);
    quad u = c[3] + c[4], w = c[3] - c[4], a = c[5] + c[6], b = c[5] - c[6];
    o[0] = c[0] - s + u * (1.f / 90) + a * (32.f / 45);
    o[1] = d + w * (1.f / 45) + b * (16.f / 45);
    o[2] = c[7] - s + u * (2.f / 45) + a * (8.f / 45);
}

/* ---- stride 2: F(4,2) with the points 0, 1, -1, 2, infinity, and four plain products --------- */

/* B' of F(4,2): five inputs to five places */
INLINE void two_taps_input(quad d0, quad d1, quad d2, quad d3, quad d4, quad o[5]) {
    quad a = d3 - d1, b = d3 - d2;
    o[0] = a + 2.f * (d0 - d2);
    o[1] = b - 2.f * d1;
    o[2] = b + 2.f * (d1 - d2);
    o[3] = a;
    o[4] = (d4 - d2) - 2.f * a;
}

/* A' of F(4,2): five places to four outputs */
INLINE void two_taps_output(const quad m[5], quad o[4]) {
    quad s = m[1] + m[2], d = m[1] - m[2];
    o[0] = m[0] + s + m[3];
    o[1] = d + 2.f * m[3];
    o[2] = s + 4.f * m[3];
    o[3] = d + 8.f * m[3] + m[4];
}

/* Nine inputs: those between outputs, F(4,2); then those at outputs, unchanged. */
INLINE void strided_input_line(const quad d[9], quad o[9]) {
    two_taps_input(d[0], d[2], d[4], d[6], d[8], o);
    ALL for (int i = 0; i < 4; i++) o[5 + i] = d[2 * i + 1];
}

INLINE void strided_output_line(const quad m[9], quad o[4]) {
    two_taps_output(m, o);
    ALL for (int i = 0; i < 4; i++) o[i] += m[5 + i];
}

/* A: the gradients of four outputs to nine places */
INLINE void strided_gradient_line(const quad d[4], quad o[9]) {
    quad s = d[0] + d[2], q = d[1] + d[3];
    o[0] = d[0];
    o[1] = s + q;
    o[2] = s - q;
    o[3] = (d[0] + 4.f * d[2]) + (2.f * d[1] + 8.f * d[3]);
    o[4] = d[3];
    ALL for (int i = 0; i < 4; i++) o[5 + i] = d[i];
}

/* The data gradient: the gradients of five outputs to nine places, and these to the gradients of
 * eight inputs. */
INLINE void strided_data_line(const quad d[5], quad o[9]) {
    two_taps_input(d[0], d[1], d[2], d[3], d[4], o);
    ALL for (int i = 0; i < 4; i++) o[5 + i] = d[i];
}

INLINE void strided_data_output_line(const quad m[9], quad o[8]) {
    quad odd[4];
    two_taps_output(m, odd);
    ALL for (int i = 0; i < 4; i++) o[2 * i] = m[5 + i], o[2 * i + 1] = odd[i];
}

/* The same for an edge of three outputs: F(3,2) with the points 0, 1, -1, infinity. */
INLINE void edge_taps_input(quad d0, quad d1, quad d2, quad d3, quad o[5]) {
    o[0] = 2.f * (d0 - d2);
    o[1] = -(d1 + d2);
    o[2] = 3.f * (d1 - d2);
    o[4] = d3 - d1;
}

INLINE void edge_taps_output(const quad m[5], quad o[3]) {
    quad s = m[1] + m[2];
    o[0] = m[0] + s;
    o[1] = m[1] - m[2];
    o[2] = s + m[4];
}

INLINE void strided_input_three(const quad d[9], quad o[9]) {
    edge_taps_input(d[0], d[2], d[4], d[6], o);
    ALL for (int i = 0; i < 3; i++) o[5 + i] = d[2 * i + 1];
}

INLINE void strided_output_three(const quad m[9], quad o[4]) {
    edge_taps_output(m, o);
    ALL for (int i = 0; i < 3; i++) o[i] += m[5 + i];
}

INLINE void strided_gradient_three(const quad d[4], quad o[9]) {
    quad s = d[0] + d[2];
    o[0] = d[0];
    o[1] = s + d[1];
    o[2] = s - d[1];
    o[4] = d[2];
    ALL for (int i = 0; i < 3; i++) o[5 + i] = d[i];
}

INLINE void strided_data_three(const quad d[5], quad o[9]) {
    edge_taps_input(d[0], d[1], d[2], d[3], o);
    ALL for (int i = 0; i < 3; i++) o[5 + i] = d[i];
}

INLINE void strided_data_output_three(const quad m[9], quad o[8]) {
    quad odd[3];
    edge_taps_output(m, odd);
    ALL for (int i = 0; i < 3; i++) o[2 * i] = m[5 + i], o[2 * i + 1] = odd[i];
}

/* G of F(4,2) for taps 0 and 2; tap 1 unchanged */
INLINE void strided_filter_line(const quad g[3], quad o[6]) {
    o[0] = g[0] * .5f;
    o[1] = (g[0] + g[2]) * -.5f;
    o[2] = (g[2] - g[0]) * (1.f / 6);
    o[3] = (g[0] + 2.f * g[2]) * (1.f / 6);
    o[4] = g[2];
    o[5] = g[1];
}

INLINE void strided_filter_back_line(const quad c[6], quad o[3]) {
    quad a = c[1] * .5f, b = (c[3] - c[2]) * (1.f / 6);
    o[0] = .5f * c[0] - a + b;
    o[1] = c[5];
    o[2] = c[4] - a + c[2] * (1.f / 6) + c[3] * (1.f / 3);
}

/* ---- both dimensions ------------------------------------------------------------------------- */

typedef void line(const quad *from, quad *to);

/* A formula in one dimension, and those for its edges; NULL: it has no such edge. */
typedef struct line_set {
    line *whole, *two, *three, *four;
} line_set;

/* Down the columns of a run, `side` pixels to places. */
INLINE void run_down(const tile_run *r, int c, column *strip, int side, line *f) {
    const float *row[FORM_SIDE];
    ptrdiff_t along[FORM_SIDE];
    ALL for (int k = 0; k < side; k++) row[k] = r->row[k] + c, along[k] = r->step[k];
    /* Pixels are far apart, so the machine would not prefetch their next channels by itself. */
    bool opens_line = c % LINE == 0;
    int end = r->first + r->columns;
    LOOP for (int x = r->first; x < end; x++) {
        quad d[FORM_SIDE];
        ALL for (int k = 0; k < side; k++) d[k] = quad_at(row[k]);
        if (opens_line) { ALL for (int k = 0; k < side; k++) __builtin_prefetch(row[k] + LINE); }
        ALL for (int k = 0; k < side; k++) row[k] += along[k];
        f(d, strip[x].at);
    }
}

/* Across one tile; `across`, and `down` if it is EDGE_NONE, become constants when inlined. */
INLINE void tile_across(const column *strip, form_edge down, form_edge across, float *to,
                        size_t place, int side, int n, line *f) {
    LOOP for (int y = 0; y < n; y++, to += n * place) {
        if (!form_has(n * n, down, y)) continue;
        quad d[FORM_SIDE], o[FORM_SIDE];
        ALL for (int x = 0; x < side; x++) d[x] = strip[x].at[y];
        f(d, o);
        ALL for (int x = 0; x < n; x++) if (form_has(n * n, across, x))
            quad_put(to + x * place, o[x]);
    }
}

/* The tiles of a run; edges of four are four columns apart, of other edges there is only one. */
INLINE void run_across(const tile_run *r, const column *strip, form_edge down, float *to,
                       size_t place, int side, int n, int step, line_set f) {
    int t = 0;
    for (; t < r->tiles - r->edges; t++, strip += step)
        tile_across(strip, down, EDGE_NONE, to + r->at[t], place, side, n, f.whole);
    for (; t < r->tiles; t++, strip += 4)
        if (r->across == EDGE_TWO && f.two)
            tile_across(strip, down, EDGE_TWO, to + r->at[t], place, side, n, f.two);
        else if (r->across == EDGE_THREE && f.three)
            tile_across(strip, down, EDGE_THREE, to + r->at[t], place, side, n, f.three);
        else if (f.four)
            tile_across(strip, down, EDGE_FOUR, to + r->at[t], place, side, n, f.four);
}

/* transform_run: `side` pixels to n places in each dimension; tiles `step` columns apart. */
INLINE void any_run(const tile_run *r, int c, column *strip, float *to, size_t place, int side,
                    int n, int step, line_set f) {
    if (r->down == EDGE_NONE) {
        run_down(r, c, strip, side, f.whole);
        run_across(r, strip, EDGE_NONE, to, place, side, n, step, f);
        return;
    }
    if (r->down == EDGE_TWO && f.two)
        run_down(r, c, strip, side, f.two);
    else if (r->down == EDGE_THREE && f.three)
        run_down(r, c, strip, side, f.three);
    else if (f.four)
        run_down(r, c, strip, side, f.four);
    run_across(r, strip, r->down, to, place, side, n, step, f);
}

INLINE void choose_line(line_set f, form_edge e, const quad *from, quad *to) {
    if (e == EDGE_NONE)
        f.whole(from, to);
    else if (e == EDGE_TWO && f.two)
        f.two(from, to);
    else if (e == EDGE_THREE && f.three)
        f.three(from, to);
    else if (f.four)
        f.four(from, to);
}

/* One tile from n x n places to `side` outputs in each dimension; t says which of them to write.
 * edges, add and has_sums become constants when this is inlined. */
INLINE void any_output(const float *from, size_t place, const tile_out *t, float *to,
                       tile_sums *sums, int n, int side, line_set f, bool edges, bool add,
                       bool has_sums) {
    const form_edge down = edges ? t->down : EDGE_NONE, across = edges ? t->across : EDGE_NONE;
    const tile_out out = *t; /* a copy, since any quad written might alias the original */
    quad m[FORM_SIDE][8], about = {0}, sum = {0}, squares = {0};
    if (has_sums) about = sums->about, sum = sums->sum, squares = sums->squares;
    LOOP for (int x = 0; x < n; x++, from += place) {
        quad d[FORM_SIDE];
        if (!form_has(n * n, across, x)) continue;
        ALL for (int y = 0; y < n; y++) d[y] = quad_at(from + y * n * place);
        choose_line(f, down, d, m[x]);
    }
    LOOP for (int y = 0; y < out.rows; y++, to += out.row) {
        quad d[FORM_SIDE], o[8] = {{0}}; /* an edge sets fewer, and no more are written */
        ALL for (int x = 0; x < n; x++) d[x] = m[x][y];
        choose_line(f, across, d, o);
        ALL for (int x = 0; x < side; x++) {
            if (x >= out.columns) break;
            if (add) o[x] += quad_at(to + x * out.pixel);
            quad_put(to + x * out.pixel, o[x]);
            if (!has_sums) continue;
            o[x] -= about;
            sum += o[x];
            squares += o[x] * o[x];
        }
    }
    if (has_sums) sums->sum = sum, sums->squares = squares;
}

INLINE void choose_output(const float *from, size_t place, const tile_out *t, float *to,
                          tile_sums *sums, int n, int side, line_set f, bool edges) {
    if (sums)
        any_output(from, place, t, to, sums, n, side, f, edges, false, true);
    else if (t->add)
        any_output(from, place, t, to, sums, n, side, f, edges, true, false);
    else
        any_output(from, place, t, to, sums, n, side, f, edges, false, false);
}

INLINE void any_filters(quad (*g)[9], float *to, size_t input, size_t next, int n, line *f) {
    LOOP for (int i = 0; i < 4; i++, g++, to += input) {
        quad m[8][3];
        float *at = to;
        ALL for (int x = 0; x < 3; x++) {
            quad d[3] = {(*g)[x], (*g)[3 + x], (*g)[6 + x]}, o[8];
            f(d, o);
            ALL for (int y = 0; y < n; y++) m[y][x] = o[y];
        }
        ALL for (int y = 0; y < n; y++) {
            quad o[8];
            f(m[y], o);
            ALL for (int x = 0; x < n; x++, at += next) quad_put(at, o[x]);
        }
    }
}

INLINE void any_back(const float *c, size_t place, int ci, bool add, float *dw, int n, line *f) {
    for (int j = 0; j < ci; j += 4) {
        quad m[3][8];
        if (j % LINE == 0) { /* too many streams for the machine to prefetch by itself */
            for (int k = 0; k < n * n; k++) __builtin_prefetch(c + j + LINE + k * place);
            for (int k = 0; k < 9; k++) __builtin_prefetch(dw + k * ci + j + LINE, 1);
        }
        ALL for (int x = 0; x < n; x++) {
            quad d[8], o[3];
            ALL for (int y = 0; y < n; y++) d[y] = quad_at(c + j + (y * n + x) * place);
            f(d, o);
            ALL for (int y = 0; y < 3; y++) m[y][x] = o[y];
        }
        ALL for (int y = 0; y < 3; y++) {
            quad o[3];
            f(m[y], o);
            ALL for (int x = 0; x < 3; x++) {
                float *to = dw + (y * 3 + x) * ci + j;
                if (add) o[x] += quad_at(to);
                quad_put(to, o[x]);
            }
        }
    }
}

/* ---- once per instruction set ---------------------------------------------------------------- */

/* Four floats at a time everywhere; newer x86-64 adds fused multiply-add, instructions that keep
 * their operands, and (AVX-512) enough registers. */
#ifdef __x86_64__
#define TARGET   __attribute__((target("avx512f,avx512vl")))
#define NAMED(x) x##_avx512
#include "device/cpu/winograd_list.h"
#define TARGET   __attribute__((target("avx2,fma")))
#define NAMED(x) x##_avx2
#include "device/cpu/winograd_list.h"
#endif
#define TARGET
#define NAMED(x) x##_plain
#include "device/cpu/winograd_list.h"

const winograd_forms *winograd_forms_best(void) {
    return SET_BEST(&forms_avx512, &forms_avx2, &forms_plain);
}
