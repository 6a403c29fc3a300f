/* gather.h: the pixels that a convolution's products take their numbers from, packed on the
 * fly: as left-hand panels of pixels (forward, data gradient), or as right-hand panels that are
 * summed over (filter gradient). */
#ifndef CONR_CPU_GATHER_H
#define CONR_CPU_GATHER_H

#include "kernels/quad.h"

#include <stdbool.h>

enum { TAPS = 49 };

/* Which source pixels a row meets.  Rows are the pixels of n grids gh x gw; row (i, y, x) meets, at
 * tap t, source pixel (i, y*step + dy[t], x*step + dx[t]), zeros outside.  Its numbers are those of
 * all taps, c each, side by side. */
typedef struct gather {
    const float *source; /* [n,h,w,c] */
    int n, h, w, c;
    int gh, gw, step;
    int taps, dy[TAPS], dx[TAPS];
    int run; /* taps come in rows of so many side by side, the rows one below the other */
} gather;

static inline int gather_rows(const gather *g) { return g->n * g->gh * g->gw; }

/* A row of a gather's grids, and the step to the next. */
typedef struct pixel {
    int image, y, x;
} pixel;

static inline pixel pixel_of(const gather *g, int row) {
    int grid = g->gh * g->gw;
    return (pixel){row / grid, row % grid / g->gw, row % g->gw};
}

static inline void pixel_next(const gather *g, pixel *p) {
    if (++p->x < g->gw) return;
    p->x = 0;
    if (++p->y == g->gh) p->y = 0, p->image++;
}

/* Where a pixel's channels are not whole quads, rows of the source are turned into planes first: a
 * line holds a source row, from column dx[0] on and with zeros outside, as [step*c][length], number
 * i*step*c + j of the row at [j][i].  So number j of a row of taps is, for grid pixels x, x+1, ...
 * side by side, plane j % (step*c) from x + j / (step*c) on. */
enum { LINES = 8 }; /* that are kept: more than rows of taps */
typedef struct gather_lines {
    int planes, length, tap_rows;
    int *place;      /* [run*c], of a row of taps' numbers in a line, for x = 0 */
    float *line;     /* [LINES][planes][length] */
    float *none;     /* [planes][length] zeros: a row outside */
    int held[LINES]; /* which row of all images' each line holds; -1: none */
} gather_lines;

/* Floats of memory for a gather's lines, with these c, run, step and gw or less. */
size_t gather_lines_room(int c, int run, int step, int gw);
/* memory: the caller's.  Does nothing where channels are whole quads. */
void gather_lines_open(gather_lines *v, const gather *g, float *memory);

/* Left-hand panels are in quads (kernels/gemm.h) where channels are, else plain. */
static inline bool gather_in_quads(const gather *g) { return g->c % 4 == 0; }

/* Floats that are written behind the last panel. */
enum { GATHER_SLACK = 16 };

/* Rows [first, first + rows) and numbers [l0, l1) as left-hand panels of mr rows one behind the
 * other; what a short panel holds beyond its rows does not matter.  In quads: l0 and l1 are
 * multiples of 4. */
void gather_panels(const gather *g, gather_lines *v, int first, int rows, int l0, int l1, int mr,
                   float *panels);

/* Rows likewise, numbers [from, to) and zeros behind a row's last, as right-hand panels [rows][nr]
 * that begin `apart` >= (rows + 3) * nr floats one behind the other; to - from is a multiple of
 * nr, which is one of 4. */
void gather_columns(const gather *g, gather_lines *v, int first, int rows, int from, int to, int nr,
                    size_t apart, float *panels);

#endif
