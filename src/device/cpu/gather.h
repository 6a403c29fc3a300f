/* gather.h: the pixels that enter the products of a convolution, packed on the fly: as left-hand
 * panels of pixels (forward, data gradient), or as right-hand panels that are summed over (filter
 * gradient). */
#ifndef CONR_CPU_GATHER_H
#define CONR_CPU_GATHER_H

#include "kernels/quad.h"

#include <stdbool.h>

enum { TAPS = 49 };

/* Which source pixels a row meets.  Rows are the pixels of n grids gh x gw; row (i, y, x) meets, at
 * tap t, source pixel (i, y*step + dy[t], x*step + dx[t]), zeros outside.  The elements of a row
 * are the c channels of each tap, tap after tap. */
typedef struct gather {
    const float *source; /* [n,h,w,c] */
    int n, h, w, c;
    int gh, gw, step;
    int taps, dy[TAPS], dx[TAPS];
    int run; /* taps come in rows of this many adjacent ones, the rows one below the other */
} gather;

static inline int gather_rows(const gather *g) { return g->n * g->gh * g->gw; }

/* A row of the grids of a gather, and the step to the next. */
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

/* If the channels of a pixel are not whole quads, rows of the source are first turned into planes:
 * a line holds a source row, from column dx[0] on and with zeros outside, as [step*c][length],
 * element i*step*c + j of the row at [j][i].  So element j of a row of taps is, for adjacent grid
 * pixels x, x+1, ..., plane j % (step*c) from x + j / (step*c) on. */
enum { LINES = 8 }; /* lines that are kept: more than there are rows of taps */
typedef struct gather_lines {
    int planes, length, tap_rows;
    int *place;      /* [run*c]: where the elements of a row of taps are in a line, for x = 0 */
    float *line;     /* [LINES][planes][length] */
    float *none;     /* [planes][length] zeros: a row outside the source */
    int held[LINES]; /* the source row, of all images, that each line holds; -1: none */
} gather_lines;

/* Floats that the lines of a gather take, with at most these c, run, step and gw. */
size_t gather_lines_room(int c, int run, int step, int gw);
/* memory: owned by the caller.  Does nothing if channels are whole quads. */
void gather_lines_open(gather_lines *v, const gather *g, float *memory);

/* Left-hand panels are in quads (kernels/gemm.h) if channels are whole quads, else plain. */
static inline bool gather_in_quads(const gather *g) { return g->c % 4 == 0; }

/* Floats that may be written past the last panel. */
enum { GATHER_SLACK = 16 };

/* Rows [first, first + rows) and elements [l0, l1) as consecutive left-hand panels of mr rows; what
 * a short panel holds beyond its rows does not matter.  In quads, l0 and l1 are multiples of 4. */
void gather_panels(const gather *g, gather_lines *v, int first, int rows, int l0, int l1, int mr,
                   float *panels);

/* The same rows, elements [from, to), with zeros past the last of a row, as right-hand panels
 * [rows][nr], `apart` >= (rows + 3) * nr floats from one to the next.  to - from is a multiple of
 * nr, and nr one of 4. */
void gather_columns(const gather *g, gather_lines *v, int first, int rows, int from, int to, int nr,
                    size_t apart, float *panels);

#endif
