/* gather.c: packs pixels for the products of convolutions: whole quads of channels directly, other
 * channel counts by way of planes. */
#include "device/cpu/gather.h"

#include <string.h>

/* ---- whole quads of channels ----------------------------------------------------------------- */

/* The source pixel of a row at a tap, or NULL in the padding. */
static inline const float *gather_pixel(const gather *g, const pixel *p, int t) {
    int sy = p->y * g->step + g->dy[t], sx = p->x * g->step + g->dx[t];
    if (sy < 0 || sy >= g->h || sx < 0 || sx >= g->w) return NULL;
    return g->source + (((size_t)p->image * g->h + sy) * g->w + sx) * g->c;
}

/* Elements [first, last) of one row in quads; `to`: the first element of the row in its panel,
 * `next` floats from one quad to the next. */
static void row_in_quads(const gather *g, const pixel *p, int first, int last, int next,
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

/* Columns [from, to) tap by tap: the pixel of a tap is found once for all of its panels. */
static void columns_of_quads(const gather *g, int first, int rows, int from, int to, int nr,
                             size_t apart, float *panels) {
    int columns = g->taps * g->c;
    for (int l = from; l < to;) {
        pixel p = pixel_of(g, first);
        int t = l / g->c, c = l % g->c, n = least(l < columns ? g->c - c : to - l, to - l);
        int within = (l - from) % nr;
        float *at = panels + (l - from) / nr * apart + within;
        for (int r = 0; r < rows; r++, at += nr, pixel_next(g, &p)) {
            const float *pixel = l < columns ? gather_pixel(g, &p, t) : NULL;
            float *put = at;
            for (int j = 0, room = nr - within; j < n; put += apart - nr, room = nr)
                for (; room > 0 && j < n; room -= 4, j += 4, put += 4)
                    quad_put(put, pixel ? quad_at(pixel + c + j) : (quad){0});
        }
        l += n;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Floats of a plane: a row of the grid and what taps reach beyond it. */
static int line_length(int run, int step, int gw) { return round_up(gw + (run - 1) / step, 4); }

size_t gather_lines_room(int c, int run, int step, int gw) {
    size_t line = (size_t)step * c * line_length(run, step, gw);
    return c % 4 ? (LINES + 1) * line + GATHER_SLACK + (size_t)run * c : 0;
}

void gather_lines_open(gather_lines *v, const gather *g, float *memory) {
    if (gather_in_quads(g)) return;
    v->planes = g->step * g->c;
    v->length = line_length(g->run, g->step, g->gw);
    v->tap_rows = g->taps / g->run;
    size_t line = (size_t)v->planes * v->length;
    v->line = memory;
    v->none = v->line + LINES * line;
    v->place = (int *)(v->none + line + GATHER_SLACK); /* quads may reach past the end of a line */
    memset(v->none, 0, (line + GATHER_SLACK) * sizeof *v->none);
    for (int j = 0; j < g->run * g->c; j++) v->place[j] = j % v->planes * v->length + j / v->planes;
    for (int i = 0; i < LINES; i++) v->held[i] = -1;
}

/* A row of the source [w,c] as a line: four elements of four planes at a time, one by one at the
 * ends of the row. */
static void turn_row(const gather *g, const gather_lines *v, const float *row, float *line) {
    int planes = v->planes, length = v->length, all = g->w * g->c;
    for (int i = 0; i < length; i += 4) {
        int at = g->dx[0] * g->c + i * planes; /* in the row */
        if (at < 0 || at + 3 * planes + round_up(planes, 4) > all) {
            for (int r = 0; r < 4; r++)
                for (int j = 0; j < planes; j++, at++)
                    line[j * length + i + r] = at >= 0 && at < all ? row[at] : 0;
            continue;
        }
        for (int j = 0; j < planes; j += 4) {
            quad q[4];
            UNROLL for (int r = 0; r < 4; r++) q[r] = quad_at(row + at + r * planes + j);
            quad_transpose(q);
            UNROLL for (int r = 0; r < 4; r++) if (j + r < planes)
                quad_put(line + (j + r) * length + i, q[r]);
        }
    }
}

/* The line of row y of an image. */
static const float *line_at(const gather *g, gather_lines *v, int image, int y) {
    if (y < 0 || y >= g->h) return v->none;
    int row = image * g->h + y, slot = row % LINES;
    float *line = v->line + (size_t)slot * v->planes * v->length;
    if (v->held[slot] != row)
        turn_row(g, v, g->source + (size_t)row * g->w * g->c, line), v->held[slot] = row;
    return line;
}

/* Adjacent grid pixels, and the lines that hold their rows of taps. */
typedef struct stretch {
    int at, count;            /* the index of the first in its panel; how many */
    const float *line[LINES]; /* from the first pixel on */
} stretch;

/* The stretch from p on, at most `most` pixels; p moves past it. */
static stretch stretch_of(const gather *g, gather_lines *v, pixel *p, int at, int most) {
    stretch s = {.at = at, .count = least(most, g->gw - p->x)};
    for (int k = 0; k < v->tap_rows; k++)
        s.line[k] = line_at(g, v, p->image, p->y * g->step + g->dy[0] + k) + p->x;
    p->x += s.count - 1;
    pixel_next(g, p);
    return s;
}

/* Elements j to end - 1 of one row of taps, for the pixels of a stretch: `quads` pixels as quads,
 * the rest one by one. */
static inline __attribute__((always_inline)) void copy_elements(const gather_lines *v,
                                                                const float *line, int j, int end,
                                                                int quads, int count, int mr,
                                                                float *to) {
    for (; j < end; j++, to += mr) {
        const float *from = line + v->place[j];
        int i = 0;
        for (; i < quads; i += 4) quad_put(to + i, quad_at(from + i));
        for (; i < count; i++) to[i] = from[i];
    }
}

/* Elements [l0, l1) of a stretch into its panel.  Whole quads are copied if what they write too
 * much is overwritten by the next element or stretch. */
static void stretch_to_panel(const gather *g, const gather_lines *v, const stretch *s, int l0,
                             int l1, int mr, float *panel) {
    int width = g->run * g->c, quads = round_up(s->count, 4);
    if (s->at > 0 && s->at + quads > mr) quads = s->count & ~3;
    panel += s->at;
    for (int k = l0 / width, j = l0 % width, l = l0, n; l < l1;
         k++, j = 0, l += n, panel += n * mr) {
        n = least(width - j, l1 - l);
        if (quads == 8 && s->count <= 8) /* the usual case */
            copy_elements(v, s->line[k], j, j + n, 8, 0, mr, panel);
        else
            copy_elements(v, s->line[k], j, j + n, quads, s->count, mr, panel);
    }
}

/* Columns by transposing back, four elements of four pixels at a time. */
static void columns_of_lines(const gather *g, gather_lines *v, int first, int rows, int from,
                             int to, int nr, size_t apart, float *panels) {
    pixel p = pixel_of(g, first);
    int columns = g->taps * g->c, width = g->run * g->c;
    for (int r = 0; r < rows;) {
        stretch s = stretch_of(g, v, &p, r, rows - r);
        int k = from / width, j = from % width; /* row of taps, element in it */
        for (int l = from; l < to; l += 4) {
            const float *plane[4];
            UNROLL for (int i = 0; i < 4; i++) {
                plane[i] = l + i < columns ? s.line[k] + v->place[j] : v->none;
                if (++j == width) j = 0, k++;
            }
            float *at = panels + (l - from) / nr * apart + (size_t)r * nr + (l - from) % nr;
            for (int i = 0; i < s.count; i += 4, at += 4 * nr) {
                quad q[4];
                UNROLL for (int u = 0; u < 4; u++) q[u] = quad_at(plane[u] + i);
                quad_transpose(q);
                UNROLL for (int u = 0; u < 4; u++) quad_put(at + u * nr, q[u]);
            }
        }
        r += s.count;
    }
}

/* ---- panels ---------------------------------------------------------------------------------- */

void gather_panels(const gather *g, gather_lines *v, int first, int rows, int l0, int l1, int mr,
                   float *panels) {
    pixel p = pixel_of(g, first);
    for (int i = 0; i < rows; i += mr, panels += (size_t)mr * (l1 - l0)) {
        int there = least(mr, rows - i);
        if (gather_in_quads(g)) {
            for (int r = 0; r < there; r++, pixel_next(g, &p))
                row_in_quads(g, &p, l0, l1, 4 * mr, panels + 4 * r);
            continue;
        }
        for (int r = 0; r < there;) {
            stretch s = stretch_of(g, v, &p, r, there - r);
            stretch_to_panel(g, v, &s, l0, l1, mr, panels);
            r += s.count;
        }
    }
}

void gather_columns(const gather *g, gather_lines *v, int first, int rows, int from, int to, int nr,
                    size_t apart, float *panels) {
    if (gather_in_quads(g))
        columns_of_quads(g, first, rows, from, to, nr, apart, panels);
    else
        columns_of_lines(g, v, first, rows, from, to, nr, apart, panels);
}
