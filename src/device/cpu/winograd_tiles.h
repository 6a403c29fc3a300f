/* winograd_tiles.h: how Winograd convolutions cut maps into tiles. */
#ifndef CONR_CPU_WINOGRAD_TILES_H
#define CONR_CPU_WINOGRAD_TILES_H

#include "device/cpu/conv.h"
#include "device/cpu/winograd_forms.h"

enum {
    WINOGRAD_CHANNELS = 4096, /* the most channels */
    WINOGRAD_FEW = 128 * 36   /* up to this many places of all tiles, filters are the larger side */
};

/* Floats from one place to the next.  A cache line more than needed: the values of a tile at all
 * places are used together, and at a distance of a power of two they would compete for the same few
 * lines of the cache. */
static inline size_t apart(int rows, int columns) { return (size_t)rows * columns + 16; }

/* Tiles of one kind: `down` rows and `across` columns of each map, from output (y,x) on. */
typedef struct region {
    int y, x, down, across;
    form_edge edge_down, edge_across;
} region;

/* How outputs [n,oh,ow], and with them the inputs, are cut into tiles.  If there are edges, the
 * order is: those of the last columns but not of the last rows, whole tiles, those of the last
 * rows, corners.  So the regions that have a place are adjacent. */
typedef struct tiling {
    int n, places, regions;
    region region[4];
} tiling;

/* With edges or without; without, the last tiles reach beyond the map, except tiles of six
 * outputs. */
tiling tiling_of(const cpu_plan *p, int places, bool edges);
/* With edges if they are a good part of a map. */
tiling tiling_with_edges(const cpu_plan *p, int places);
/* Whether tiles of six outputs save a good part of the products.  They need more filters. */
bool tiling_six_fits(const cpu_plan *p);

static inline int tiles_of_region(const region *r) { return r->down * r->across; } /* of a map */

static inline int tiles_of_map(const tiling *t) {
    int tiles = 0;
    for (int i = 0; i < t->regions; i++) tiles += tiles_of_region(&t->region[i]);
    return tiles;
}

static inline int tile_count(const tiling *t) { return t->n * tiles_of_map(t); }

typedef struct tile {
    int image, y, x; /* its first output */
} tile;

/* Tile i of a region, image after image. */
tile tile_at(const tiling *t, const region *r, int i);

/* A map that tiles are cut from: [n,h,w,c] */
typedef struct map {
    const float *at;
    int h, w, c;
} map;

/* Tiles that go through a step together, region after region. */
typedef struct tile_round {
    int first[4]; /* the first tile of each region */
    int begin[5]; /* its index in the round */
    bool maps;    /* they are whole maps: all regions have the same rows of tiles */
} tile_round;

/* Tiles [first,last) of all: of the only region, or of whole maps. */
tile_round round_of(const tiling *t, int first, int last);
/* The tiles of a round that have place k: [*begin,*end). */
void round_at_place(const tiling *t, const tile_round *r, int k, int *begin, int *end);
/* The run from index i of a round on, up to index `end` at most; at[]: the indices of its tiles.
 * In whole maps the edges belong to the run that ends before them, whose pixels they share, so runs
 * that would start with them are empty.  *next: where to continue. */
tile_run round_run(const tiling *g, const tile_round *round, const map *m, const form_side *f,
                   int i, int end, column strip[FORM_STRIP], int *next);

#endif
