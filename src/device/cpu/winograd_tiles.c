/* winograd_tiles.c: cuts maps into tiles and finds the pixels under them. */
#include "device/cpu/winograd_tiles.h"

#include <string.h>

enum { MOST_EDGED = 16 /* with more tiles per map than this, edges save too little */ };

/* One dimension: whole tiles, then edges. */
typedef struct cut {
    int whole, edges;
    form_edge edge;
} cut;

static cut cut_of(int places, int outputs, bool edges) {
    if (places == FORM_SIX) { /* an even number: 6 a + 4 b, b < 3; never beyond the map */
        int fours = outputs % 6 == 0 ? 0 : outputs % 6 == 4 ? 1 : 2;
        return (cut){(outputs - 4 * fours) / 6, fours, EDGE_FOUR};
    }
    int rest = edges ? outputs % 4 : 0;
    if (rest == 3) return (cut){outputs / 4, 1, EDGE_THREE};
    if (rest > 0 && places == FORM_FOUR) return (cut){outputs / 4, 1, EDGE_TWO};
    return (cut){(outputs + 3) / 4, 0, EDGE_NONE};
}

tiling tiling_of(const cpu_plan *p, int places, bool edges) {
    tiling t = {.n = p->base.s.n, .places = places};
    cut down = cut_of(places, p->base.oh, edges), across = cut_of(places, p->base.ow, edges);
    int side = form_outputs(places, EDGE_NONE);
    for (int i = 0; i < 4; i++) {
        bool last_row = i >= 2, last_column = i == 0 || i == 3;
        region r = {.y = last_row ? side * down.whole : 0,
                    .x = last_column ? side * across.whole : 0,
                    .down = last_row ? down.edges : down.whole,
                    .across = last_column ? across.edges : across.whole,
                    .edge_down = last_row ? down.edge : EDGE_NONE,
                    .edge_across = last_column ? across.edge : EDGE_NONE};
        if (r.down * r.across > 0) t.region[t.regions++] = r;
    }
    return t;
}

/* Whether tiles of a region have place k. */
static bool has_place(const tiling *t, const region *r, int k) {
    int n = form_line(t->places);
    return form_has(t->places, r->edge_down, k / n) && form_has(t->places, r->edge_across, k % n);
}

/* Places of all tiles of a map. */
static int places_of_map(const tiling *t) {
    int sum = 0;
    for (int i = 0; i < t->regions; i++)
        for (int k = 0; k < t->places; k++)
            sum += has_place(t, &t->region[i], k) * tiles_of_region(&t->region[i]);
    return sum;
}

tiling tiling_with_edges(const cpu_plan *p, int places) {
    tiling t = tiling_of(p, places, false);
    return tiles_of_map(&t) > MOST_EDGED ? t : tiling_of(p, places, true);
}

bool tiling_six_fits(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    int h = p->base.oh, w = p->base.ow;
    if (s->stride > 1 || h % 2 || w % 2 || h < 10 || w < 10 || s->ci < 32 || s->co < 32)
        return false;
    tiling four = tiling_with_edges(p, FORM_FOUR), six = tiling_of(p, FORM_SIX, true);
    return places_of_map(&six) <= .9 * places_of_map(&four) && tile_count(&six) >= s->ci &&
           tile_count(&six) >= s->co;
}

tile tile_at(const tiling *t, const region *r, int i) {
    int in_image = i % tiles_of_region(r);
    return (tile){i / tiles_of_region(r),
                  r->y + in_image / r->across * form_outputs(t->places, r->edge_down),
                  r->x + in_image % r->across * form_outputs(t->places, r->edge_across)};
}

static const float zeros[WINOGRAD_CHANNELS]; /* a pixel outside the map */

tile_round round_of(const tiling *t, int first, int last) {
    tile_round r = {.maps = t->regions > 1};
    long all = tiles_of_map(t);
    for (int i = 0; i < t->regions; i++) {
        long tiles = tiles_of_region(&t->region[i]);
        r.first[i] = (int)(first * tiles / all);
        r.begin[i + 1] = r.begin[i] + (int)((last - first) * tiles / all);
    }
    return r;
}

void round_at_place(const tiling *t, const tile_round *r, int k, int *begin, int *end) {
    int from = 0, to = t->regions;
    while (!has_place(t, &t->region[from], k)) from++;
    while (!has_place(t, &t->region[to - 1], k)) to--;
    *begin = r->begin[from], *end = r->begin[to];
}

/* The region of the edges in the same rows of tiles as region k, or -1. */
static int edges_beside(const tiling *t, int k) {
    for (int i = 0; i < t->regions; i++)
        if (i != k && t->region[i].y == t->region[k].y && t->region[i].x > t->region[k].x) return i;
    return -1;
}

/* The pixels under a run whose first tile is t; strip columns outside the map are set to zero. */
static void find_pixels(const tiling *g, const map *m, const form_side *f, tile t, tile_run *r,
                        column strip[FORM_STRIP]) {
    int whole = form_outputs(g->places, EDGE_NONE), edge = form_outputs(g->places, r->across);
    int outputs = whole * (r->tiles - r->edges) + edge * r->edges;
    outputs -= r->edges ? edge : whole; /* up to the last tile */
    int total = f->step * outputs + f->side;
    int x = f->step * t.x - f->margin, y = f->step * t.y - f->margin;
    r->first = x < 0 ? -x : 0;
    r->columns = least(total, m->w - x) - r->first;
    int after = r->first + r->columns;
    memset(strip, 0, (size_t)r->first * sizeof *strip);
    memset(strip + after, 0, (size_t)(total - after) * sizeof *strip);
    for (int k = 0; k < f->side; k++) {
        bool inside = y + k >= 0 && y + k < m->h;
        size_t pixel = ((size_t)t.image * m->h + (inside ? y + k : 0)) * m->w + (x + r->first);
        r->row[k] = inside ? m->at + pixel * m->c : zeros;
        r->step[k] = inside ? m->c : 0;
    }
}

tile_run round_run(const tiling *g, const tile_round *round, const map *m, const form_side *f,
                   int i, int end, column strip[FORM_STRIP], int *next) {
    int k = 0;
    while (round->begin[k + 1] <= i) k++;
    const region *region = &g->region[k];
    if (round->maps && region->x > 0) {
        *next = least(end, round->begin[k + 1]);
        return (tile_run){0};
    }
    int at = i - round->begin[k], left = region->across - (round->first[k] + at) % region->across;
    tile t = tile_at(g, region, round->first[k] + at);
    tile_run r = {.tiles = least(least(FORM_RUN, least(end, round->begin[k + 1]) - i), left),
                  .down = region->edge_down,
                  .across = region->edge_across};
    int edges = round->maps ? edges_beside(g, k) : -1;
    if (edges >= 0 && r.tiles == left) {
        int more = g->region[edges].across;
        r.across = g->region[edges].edge_across;
        if (left + more <= FORM_RUN)
            r.edges = more;
        else
            r.tiles -= more; /* no room: in the next run */
    }
    *next = i + r.tiles;
    for (int j = 0; j < r.tiles; j++) r.at[j] = (size_t)(i + j);
    for (int j = 0; j < r.edges; j++)
        r.at[r.tiles + j] = (size_t)(round->begin[edges] + at / region->across * r.edges + j);
    r.tiles += r.edges;
    if (region->edge_across != EDGE_NONE) r.edges = r.tiles;
    find_pixels(g, m, f, t, &r, strip);
    return r;
}
