/* winograd_forms.h: Winograd's minimal filtering for 3x3 convolutions (Lavin & Gray, 2016): the
 * transforms, four channels at a time.
 *
 * A form cuts maps into tiles.  With ' for the transpose:
 *   inputs      d  ->  B'dB       `places` values per channel
 *   filters     g  ->  GgG'
 *   products    m  =   the two multiplied at each place and summed over channels (winograd.c)
 *   outputs     m  ->  A'mA
 *   filter gradient    G'((A dy A')(B'dB))G
 *
 * The forms, for 4x4 outputs of which the definition takes 144 multiplications:
 *   stride 1   F(4x4,3x3): 6x6 inputs, 36 places
 *              F(6x6,3x3): 8x8 inputs, 64 places for 6x6 outputs: a fifth less, at twice the error
 *   stride 2   9x9 inputs, 81 places
 *
 * Stride 2: in one dimension, outputs see the odd inputs with taps 0 and 2 and the even ones only
 * with tap 1.  The odd ones are a convolution of stride 1 with two taps, F(4,2): 5 places for 4
 * outputs; the even ones are 4 products with one weight.  So there are 9x9 places, and 6x6
 * different filters.  The data gradient is the transpose: the gradients of 8x8 inputs from those of
 * 5x5 outputs, the odd ones by F(4,2), again 81 places.
 *
 * Edges.  The last tiles of a row or column may have fewer outputs than the others.  They need
 * fewer points, and the filters at these are the same up to a factor, which the inputs absorb: an
 * edge has some of the places, with the same filters.  Next to tiles of four outputs there may be
 * one of two or three, next to tiles of six some of four. */
#ifndef CONR_CPU_WINOGRAD_FORMS_H
#define CONR_CPU_WINOGRAD_FORMS_H

#include "kernels/gemm.h"
#include "kernels/quad.h"

enum {
    FORM_FOUR = 36,               /* places of F(4x4,3x3) */
    FORM_SIX = 64,                /* places of F(6x6,3x3) */
    FORM_PLACES = 81,             /* the most places of a form */
    FORM_SIDE = 9,                /* the most rows of pixels under a tile */
    FORM_RUN = 8,                 /* the most adjacent tiles that are transformed together */
    FORM_STRIP = 8 * FORM_RUN + 1 /* columns of pixels under them */
};

/* How many outputs a tile has in one dimension: all, or at most two, three, four. */
typedef enum form_edge { EDGE_NONE, EDGE_TWO, EDGE_THREE, EDGE_FOUR } form_edge;

/* Adjacent tiles, transformed in two steps: first down the columns of the pixels under them, which
 * they partly share, into a strip of columns; then across, tile by tile. */
typedef struct column {
    quad at[FORM_SIDE];
} column;

typedef struct tile_run {
    int tiles, edges;            /* the last `edges` of the tiles are edges across */
    size_t at[FORM_RUN];         /* where each tile goes */
    form_edge down, across;      /* of all tiles; of the edges */
    int first, columns;          /* of the strip: those inside the map; the others are zero */
    const float *row[FORM_SIDE]; /* the first pixel of each row of pixels */
    ptrdiff_t step[FORM_SIDE];   /* from pixel to pixel; 0: a row outside the map */
} tile_run;

/* Channels c..c+3 of a run: place k of tile t goes to to[at[t] + k * place]. */
typedef void transform_run(const tile_run *r, int c, column *strip, float *to, size_t place);

/* Which part of a tile lies inside the map, and where it goes. */
typedef struct tile_out {
    form_edge down, across;
    int rows, columns;
    size_t row, pixel; /* floats from one to the next */
    bool add;          /* to what is there; not with sums */
} tile_out;

/* Sums of the outputs of a tile about a guess of their mean. */
typedef struct tile_sums {
    quad about, sum, squares;
} tile_sums;

/* One side of a form in its map: the tile of output i starts at step * i - margin. */
typedef struct form_side {
    int step, side, margin;
    transform_run *run;
} form_side;

typedef struct winograd_form {
    int places;
    form_side in;
    int out; /* pixels of the result for each output of the convolution, in one dimension */
    /* Four channels of one tile, from places `place` floats apart; added to sums unless NULL. */
    void (*output)(const float *from, size_t place, const tile_out *t, float *to, tile_sums *sums);
    /* Filters from four inputs to four outputs; g[input][tap]: a quad over the outputs.  In `to`,
     * `input` floats to the next input, `next` floats to the next filter. */
    void (*filters)(quad (*g)[9], float *to, size_t input, size_t next);
} winograd_form;

/* For the filter gradient: both sides of the sum, and the transform back for one filter,
 *   dw[9][ci] (+)= G'(.)G of c[filters][ci], `place` floats from one filter to the next */
typedef struct gradient_form {
    int places;
    form_side in, out;
    void (*back)(const float *c, size_t place, int ci, bool add, float *dw);
} gradient_form;

typedef struct winograd_forms {
    winograd_form four, six; /* stride 1, also for the data gradient */
    winograd_form stride2, stride2_data;
    gradient_form gradient_four, gradient_six, gradient2;
} winograd_forms;

/* The fastest ones for this machine. */
const winograd_forms *winograd_forms_best(void);

/* Places in one dimension. */
static inline int form_line(int places) {
    return places == FORM_FOUR ? 6 : places == FORM_SIX ? 8 : 9;
}

/* The most outputs of a tile in one dimension. */
static inline int form_outputs(int places, form_edge e) {
    if (e == EDGE_NONE) return places == FORM_SIX ? 6 : 4;
    return e == EDGE_TWO ? 2 : e == EDGE_THREE ? 3 : 4;
}

/* Whether an edge has place i of one dimension. */
static inline bool form_has(int places, form_edge e, int i) {
    if (e == EDGE_NONE) return true;
    if (places == FORM_FOUR) return i != 4 && (e == EDGE_THREE || i != 3);
    return places == FORM_SIX ? i != 5 && i != 6 : i != 3 && i != 8;
}

/* The number of different filters, and which one belongs to a place. */
static inline int form_filters(int places) { return places == FORM_SIX ? FORM_SIX : FORM_FOUR; }
static inline int form_filter(int places, int k) {
    return places <= FORM_SIX ? k : least(k / 9, 5) * 6 + least(k % 9, 5);
}

#endif
