/* cpu_winograd.c: 3x3 convolutions by Winograd's minimal filtering; the transforms are in
 * cpu_winograd_forms.c.
 *
 * Between the transforms each place is a matrix product over channels, [tiles,ci] x [ci,co]; in the
 * filter gradient one over tiles.  A thread takes a block of tiles, small enough for its own
 * caches, through all steps.  Where there are few tiles (a small batch of small maps) the filters
 * are the larger side by far: then a thread takes a panel of outputs through all steps, and
 * transformed filters never leave its cache.  No sum is shared between threads.  Error: a few times
 * that of a direct sum (see the case list), from the transforms' constants 1/90 .. 32. */
#include "device/cpu_conv.h"

#include "base/memory.h"
#include "device/cpu_quad.h"
#include "device/cpu_winograd_forms.h"

#include <omp.h>
#include <string.h>

enum {
    FEW = 128 * 36, /* places of all tiles, up to which filters are the larger side */
    MOST_CHANNELS = 4096,
    MOST_EDGED = 16,        /* tiles of a map, at most, that are told apart by edges */
    BLOCK_FLOATS = 1 << 18, /* of a block's transformed input and output: a second cache's worth */
    BLOCK_PANELS = 4,       /* at most, so that there are blocks for all threads */
    /* The filter gradient of few channels is summed in up to PARTS parts of PART_LEAST tiles or
     * more, each by one thread in rounds of PART_PANELS panels of tiles or PART_ROOM floats; of
     * many channels by all threads in rounds of CHUNK_FLOATS. */
    PARTS = 8,
    PART_LEAST = 64,
    PART_PANELS = 16,
    PART_ROOM = 1 << 20,
    PART_SUMS = 3 << 17,   /* floats of a part's sums, at most: they stay in the second cache */
    PART_FLOATS = 5 << 18, /* of all parts' sums */
    CHUNK_FLOATS = 1 << 21,
    ROWS = 8 /* panels of outputs that a thread takes at a time there */
};

/* Floats from one place to the next.  A cache line more than needed: the numbers of a tile at all
 * places are touched together, and at a distance of a power of two they would all want the same few
 * lines of the cache. */
static size_t apart(int rows, int columns) { return (size_t)rows * columns + 16; }

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Tiles of one kind: of each map so many rows and columns of them, from output (y,x) on. */
typedef struct region {
    int y, x, down, across;
    form_edge edge_down, edge_across;
} region;

/* How outputs [n,oh,ow] are cut into tiles, and with them the inputs.  Where there are edges, those
 * of the last columns but not of the last rows come first, then whole tiles, those of the last
 * rows, corners.  So regions that have a place lie side by side. */
typedef struct tiling {
    int n, places, regions;
    region region[4];
} tiling;

/* One dimension: whole tiles, then edges. */
typedef struct cut {
    int whole, edges;
    form_edge edge;
} cut;

static cut cut_of(int places, int outputs, bool edges) {
    if (places == FORM_SIX) { /* of an even number: 6 a + 4 b, b < 3 */
        int fours = outputs % 6 == 0 ? 0 : outputs % 6 == 4 ? 1 : 2;
        return (cut){(outputs - 4 * fours) / 6, fours, EDGE_FOUR};
    }
    int rest = edges ? outputs % 4 : 0;
    if (rest == 3) return (cut){outputs / 4, 1, EDGE_THREE};
    if (rest > 0 && places == FORM_FOUR) return (cut){outputs / 4, 1, EDGE_TWO};
    return (cut){(outputs + 3) / 4, 0, EDGE_NONE};
}

static tiling tiling_of(const cpu_plan *p, int places, bool edges) {
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

static int tiles_of_region(const region *r) { return r->down * r->across; } /* of a map */

static int tiles_of_map(const tiling *t) {
    int tiles = 0;
    for (int i = 0; i < t->regions; i++) tiles += tiles_of_region(&t->region[i]);
    return tiles;
}

static int tile_count(const tiling *t) { return t->n * tiles_of_map(t); }

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

/* With edges, where they are a good part of a map. */
static tiling tiling_with_edges(const cpu_plan *p, int places) {
    tiling t = tiling_of(p, places, false);
    return tiles_of_map(&t) > MOST_EDGED ? t : tiling_of(p, places, true);
}

/* Whether tiles of six outputs save a good part of the products.  They want more filters. */
static bool six_fits(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    int h = p->base.oh, w = p->base.ow;
    if (s->stride > 1 || h % 2 || w % 2 || h < 10 || w < 10 || s->ci < 32 || s->co < 32)
        return false;
    tiling four = tiling_with_edges(p, FORM_FOUR), six = tiling_of(p, FORM_SIX, true);
    return places_of_map(&six) <= .9 * places_of_map(&four) && tile_count(&six) >= s->ci &&
           tile_count(&six) >= s->co;
}

typedef struct tile {
    int image, y, x; /* its first output */
} tile;

/* Tile i of a region, images one behind the other. */
static tile tile_at(const tiling *t, const region *r, int i) {
    int in_image = i % tiles_of_region(r);
    return (tile){i / tiles_of_region(r),
                  r->y + in_image / r->across * form_outputs(t->places, r->edge_down),
                  r->x + in_image % r->across * form_outputs(t->places, r->edge_across)};
}

/* A map that tiles are cut from: [n,h,w,c] */
typedef struct map {
    const float *at;
    int h, w, c;
} map;

static const float zeros[MOST_CHANNELS]; /* a pixel outside the map */

/* Tiles that go through a step together, region by region. */
typedef struct round {
    int first[4]; /* of each region's tiles */
    int begin[5]; /* where they lie */
    bool maps;    /* they make up whole maps: all regions have the same rows of tiles */
} round;

/* Tiles [first,last) of all: of the only region, or of some maps. */
static round round_of(const tiling *t, int first, int last) {
    round r = {.maps = t->regions > 1};
    long all = tiles_of_map(t);
    for (int i = 0; i < t->regions; i++) {
        long tiles = tiles_of_region(&t->region[i]);
        r.first[i] = (int)(first * tiles / all);
        r.begin[i + 1] = r.begin[i] + (int)((last - first) * tiles / all);
    }
    return r;
}

/* Where the tiles lie that have place k: [*begin,*end). */
static void tiles_at_place(const tiling *t, const round *r, int k, int *begin, int *end) {
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

/* The run from place i of a round on, up to place `end` at most; at[] are its tiles' places.  Of
 * whole maps the edges are in the run that ends before them, whose pixels they share, so runs that
 * would begin with them are empty.  *next: where to go on. */
static tile_run run_of(const tiling *g, const round *round, const map *m, const form_side *f, int i,
                       int end, column strip[FORM_STRIP], int *next) {
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
            r.tiles -= more; /* there is no room: next time */
    }
    *next = i + r.tiles;
    for (int j = 0; j < r.tiles; j++) r.at[j] = (size_t)(i + j);
    for (int j = 0; j < r.edges; j++)
        r.at[r.tiles + j] = (size_t)(round->begin[edges] + at / region->across * r.edges + j);
    r.tiles += r.edges;
    if (region->edge_across != EDGE_NONE) r.edges = r.tiles;

    int whole = r.tiles - r.edges, outputs = form_outputs(g->places, EDGE_NONE) * whole;
    outputs += form_outputs(g->places, r.across) * r.edges;
    outputs -= form_outputs(g->places, r.edges ? r.across : EDGE_NONE); /* the last one's */
    int total = f->step * outputs + f->side;
    int x = f->step * t.x - f->margin, y = f->step * t.y - f->margin;
    r.first = x < 0 ? -x : 0;
    r.columns = least(total, m->w - x) - r.first;
    int after = r.first + r.columns;
    memset(strip, 0, (size_t)r.first * sizeof *strip);
    memset(strip + after, 0, (size_t)(total - after) * sizeof *strip);
    for (int j = 0; j < f->side; j++) {
        bool inside = y + j >= 0 && y + j < m->h;
        size_t pixel = ((size_t)t.image * m->h + (inside ? y + j : 0)) * m->w + (x + r.first);
        r.row[j] = inside ? m->at + pixel * m->c : zeros;
        r.step[j] = inside ? m->c : 0;
    }
    return r;
}

bool winograd_fits(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    if (s->k != 3 || s->pad != 1 || s->stride > 2) return false;
    /* below 16 channels the transforms cost more than the products save */
    if (s->ci % 4 || s->co % 4 || s->ci < 16 || s->co < 16) return false;
    if (s->ci > MOST_CHANNELS || s->co > MOST_CHANNELS) return false;
    /* the same goes for maps of whose tiles too much lies outside */
    const winograd_forms *f = winograd_forms_best();
    int places = s->stride == 1 ? f->four.places : f->stride2.places;
    tiling t = tiling_of(p, places, false);
    return (double)tiles_of_map(&t) * places <= .8 * 9 * p->base.oh * p->base.ow;
}

/* ---- filters --------------------------------------------------------------------------------- */

/* A layer's filters between c_in and c_out channels, as right-hand panels:
 * u[filters][panels of nr outputs][c_in][nr].  Number (tap t, in i, out o) of the filter stands at
 * w[t * tap_step + i * in_step + o * out_step]; one of the last two steps is 1. */
typedef struct filters {
    const float *w;
    int c_in, c_out, nr;
    ptrdiff_t tap_step, in_step, out_step;
    bool turned; /* by 180 degrees */
    const winograd_form *form;
} filters;

/* Filters from inputs i..i+3 to outputs o..o+3, g[input][tap], a quad over the outputs, and of so
 * many more such blocks beside them, along the channels that lie side by side: along outputs where
 * by_output, else along inputs.  Rows of a power of two fall on the same few lines of the first
 * cache, so a line is used up at once.  by_output is a constant where this is inlined. */
INLINE void load_filters(const filters *f, int i, int o, int blocks, bool by_output,
                         quad g[LINE / 4][4][9]) {
    const float *from = f->w + i * f->in_step + o * f->out_step;
    ptrdiff_t row = by_output ? f->in_step : f->out_step;
    for (int t = 0; t < 9; t++, from += f->tap_step) {
        int at = f->turned ? 8 - t : t;
        /* too many streams for the machine to see by itself what comes next; to the second cache,
         * since in the first they would drive each other out */
        UNROLL for (int j = 0; j < 4; j++)
            __builtin_prefetch(from + (by_output ? (j + 4) * row : j * row + LINE), 0, 2);
        for (int b = 0; b < blocks; b++) {
            quad r[4];
            UNROLL for (int j = 0; j < 4; j++) r[j] = quad_at(from + j * row + 4 * b);
            if (!by_output) quad_transpose(r);
            UNROLL for (int j = 0; j < 4; j++) g[b][j][at] = r[j];
        }
    }
}

/* The filters to outputs [panel, panel + nr): to[filters][c_in][nr], `next` floats between filters.
 */
static void transform_panel(const filters *f, int panel, float *to, size_t next) {
    bool by_output = f->out_step == 1;
    int outputs = by_output ? LINE : 4, inputs = by_output ? 4 : LINE;
    quad g[LINE / 4][4][9];
    for (int i = 0; i < f->c_in; i += inputs)
        for (int o = panel; o < least(f->c_out, panel + f->nr); o += outputs) {
            int blocks;
            if (by_output) {
                blocks = least(outputs, least(f->c_out, panel + f->nr) - o) / 4;
                load_filters(f, i, o, blocks, true, g);
            } else {
                blocks = least(inputs, f->c_in - i) / 4;
                load_filters(f, i, o, blocks, false, g);
            }
            for (int b = 0; b < blocks; b++) {
                int input = by_output ? i : i + 4 * b, output = by_output ? o + 4 * b : o;
                f->form->filters(g[b], to + (size_t)input * f->nr + output - panel, (size_t)f->nr,
                                 next);
            }
        }
    memset(g[0], 0, sizeof g[0]); /* beyond the last output */
    for (int o = f->c_out; o < panel + f->nr; o += 4)
        for (int i = 0; i < f->c_in; i += 4)
            f->form->filters(g[0], to + (size_t)i * f->nr + o - panel, (size_t)f->nr, next);
}

static void transform_filters(const filters *f, int threads, float *u) {
    int columns = round_up(f->c_out, f->nr);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int panel = 0; panel < columns; panel += f->nr)
        transform_panel(f, panel, u + (size_t)panel * f->c_in, apart(f->c_in, columns));
}

/* ---- forward and data gradient --------------------------------------------------------------- */

/* Everything a block passes through. */
typedef struct stage {
    const winograd_form *form;
    const gemm_kernel *g;
    tiling tiles;
    int groups; /* no block has tiles of two of them */
    bool few;
    map in;     /* of c_in channels */
    float *out; /* [n,h,w,c_out] */
    int h, w, c_out;
    bool add;
    int room;    /* tiles that v and m have place for, a multiple of mr */
    int maps;    /* whole maps of a block; 0: it has tiles of one region */
    int columns; /* c_out, a multiple of nr; few tiles: nr */
    float *u;    /* filters, as above; few tiles: one panel of them for each thread */
    float
        *v; /* [places][panels of mr tiles][c_in in quads][mr], for each thread; few tiles: once */
    float *m; /* [places][room][columns], for each thread */
} stage;

static size_t u_floats(const stage *s) {
    return form_filters(s->form->places) * apart(s->in.c, s->columns);
}
static size_t v_floats(const stage *s) { return s->form->places * apart(s->room, s->in.c); }
static size_t m_floats(const stage *s) { return s->form->places * apart(s->room, s->columns); }
static size_t stage_floats(const stage *s, int threads) {
    return u_floats(s) * (s->few ? threads : 1) + v_floats(s) * (s->few ? 1 : threads) +
           m_floats(s) * threads;
}

/* Tiles of a block: whole panels, so many that a block's numbers stay in the caches; a few less
 * where such blocks, all full, make up every region: threads then finish together. */
static int block_tiles(const tiling *t, int groups, int channels, int mr) {
    int panels = BLOCK_FLOATS / (t->places * channels) / mr;
    panels = panels < 1 ? 1 : least(panels, BLOCK_PANELS);
    for (int even = panels; even > panels / 2; even--) {
        bool full = true;
        for (int i = 0; i < t->regions; i++)
            full &= t->n / groups * tiles_of_region(&t->region[i]) % (even * mr) == 0;
        if (full) return even * mr;
    }
    return panels * mr;
}

/* The same in whole maps, which make whole panels together; 0: not so few.  More of them than
 * above: the more, the fewer panels hold both edges and whole tiles. */
static int block_maps(const tiling *t, int channels, int mr) {
    int maps = least(mr, BLOCK_FLOATS / (t->places * channels * tiles_of_map(t)));
    while (maps * tiles_of_map(t) % mr) maps--;
    return maps;
}

/* Blocks of a region in each group. */
static int blocks_of_region(const stage *s, const region *r) {
    return (s->tiles.n / s->groups * tiles_of_region(r) + s->room - 1) / s->room;
}

/* All blocks: of whole maps, or of tiles of one region. */
static int block_count(const stage *s) {
    int blocks = 0;
    if (s->maps) return s->groups * ((s->tiles.n / s->groups + s->maps - 1) / s->maps);
    for (int i = 0; i < s->tiles.regions; i++) blocks += blocks_of_region(s, &s->tiles.region[i]);
    return s->groups * blocks;
}

/* Block b, group by group. */
static round block_at(const stage *s, int b) {
    int in_group = block_count(s) / s->groups, group = b / in_group, maps = s->tiles.n / s->groups;
    b %= in_group;
    if (s->maps) {
        int all = tiles_of_map(&s->tiles), first = group * maps + b * s->maps;
        return round_of(&s->tiles, first * all, least(group * maps + maps, first + s->maps) * all);
    }
    int k = 0;
    for (; b >= blocks_of_region(s, &s->tiles.region[k]); k++)
        b -= blocks_of_region(s, &s->tiles.region[k]);
    int tiles = maps * tiles_of_region(&s->tiles.region[k]);
    round r = {0};
    r.first[k] = group * tiles + b * s->room;
    for (int i = k + 1; i < 5; i++) r.begin[i] = least(tiles - b * s->room, s->room);
    return r;
}

/* Sizes alone. */
static stage stage_of(const cpu_plan *p, bool forward) {
    const conv_shape *c = &p->base.s;
    const winograd_forms *f = winograd_forms_best();
    stage s = {.g = p->g, .groups = forward ? c->groups : 1};
    if (forward) {
        s.form = c->stride == 1 ? &f->four : &f->stride2;
        s.in = (map){.h = c->h, .w = c->w, .c = c->ci};
        s.h = p->base.oh, s.w = p->base.ow, s.c_out = c->co;
    } else {
        s.form = c->stride == 1 ? &f->four : &f->stride2_data;
        s.in = (map){.h = p->base.oh, .w = p->base.ow, .c = c->co};
        s.h = c->h, s.w = c->w, s.c_out = c->ci;
    }
    s.tiles = tiling_of(p, s.form->places, false);
    int total = tile_count(&s.tiles), mr = p->g->mr, nr = p->g->nr;
    s.few = (double)total * s.form->places <= FEW;
    s.columns = s.few ? nr : round_up(s.c_out, nr);
    s.room = round_up(total, mr);
    if (s.few) return s;
    if (six_fits(p)) s.form = &f->six;
    s.tiles = tiling_with_edges(p, s.form->places);
    s.room = block_tiles(&s.tiles, s.groups, c->ci + c->co, mr);
    if (s.tiles.regions > 1) s.maps = block_maps(&s.tiles, c->ci + c->co, mr);
    if (s.maps) s.room = s.maps * tiles_of_map(&s.tiles);
    return s;
}

/* The tiles at places [i,end) of a round, transformed. */
static void input_tiles(const stage *s, const round *round, int i, int end) {
    int mr = s->g->mr, channels = s->in.c;
    size_t place = apart(s->room, channels);
    column strip[FORM_STRIP];
    while (i < end) {
        tile_run r = run_of(&s->tiles, round, &s->in, &s->form->in, i, end, strip, &i);
        for (int t = 0; t < r.tiles; t++)
            r.at[t] = (r.at[t] - r.at[t] % mr) * channels + 4 * (r.at[t] % mr);
        for (int c = 0; r.tiles && c < channels; c += 4)
            s->form->in.run(&r, c, strip, s->v + (size_t)c * mr, place);
    }
}

/* Zeros behind so many tiles, to the end of their last panel. */
static void input_end(const stage *s, int tiles) {
    int mr = s->g->mr, channels = s->in.c;
    for (int i = tiles; i % mr; i++)
        for (int k = 0; k < s->form->places; k++)
            for (int c = 0; c < channels; c += 4)
                quad_put(s->v + k * apart(s->room, channels) + (size_t)(i - i % mr) * channels +
                             c * mr + 4 * (i % mr),
                         (quad){0});
}

/* The products of all places of a round's tiles; u, m: of all columns, or of one panel. */
static void multiply(const stage *s, const round *round, const float *u, float *m) {
    const gemm_kernel *g = s->g;
    int channels = s->in.c, places = s->form->places, begin, end;
    for (int k = 0; k < places; k++, m += apart(s->room, s->columns)) {
        tiles_at_place(&s->tiles, round, k, &begin, &end);
        if (begin == end) continue;
        begin -= begin % g->mr; /* whole panels */
        const float *v = s->v + k * apart(s->room, channels) + (size_t)begin * channels;
        const float *filter = u + form_filter(places, k) * apart(channels, s->columns);
        float *to = m + (size_t)begin * s->columns;
        for (int o = 0; o < s->columns; o += g->nr)
            g->run_quads(channels, v, filter + (size_t)o * channels, to + o, s->columns, false,
                         (end - begin + g->mr - 1) / g->mr, (size_t)g->mr * channels);
    }
}

/* Outputs of a region's tiles of a round, channels [c0,c1), from m, whose first row is the round's
 * first tile and whose first column is channel `base`; sums: [2][c_out] that grow, or NULL. */
static void output_region(const stage *s, const float *m, int base, const round *round, int k,
                          int c0, int c1, const float *shift, float *sums) {
    const region *region = &s->tiles.region[k];
    size_t place = apart(s->room, s->columns), pixel = (size_t)s->c_out;
    int scale = s->form->out, places = s->form->places;
    tile_out o = {.down = region->edge_down,
                  .across = region->edge_across,
                  .row = pixel * s->w,
                  .pixel = pixel,
                  .add = s->add};
    for (int i = round->begin[k]; i < round->begin[k + 1]; i++) {
        tile t = tile_at(&s->tiles, region, round->first[k] + i - round->begin[k]);
        int y = scale * t.y, x = scale * t.x;
        const float *from = m + (size_t)i * s->columns - base;
        float *to = s->out + (((size_t)t.image * s->h + y) * s->w + x) * pixel;
        o.rows = least(scale * form_outputs(places, o.down), s->h - y);
        o.columns = least(scale * form_outputs(places, o.across), s->w - x);
        for (int c = c0; c < c1; c += 4) {
            if (!sums) {
                s->form->output(from + c, place, &o, to + c, NULL);
                continue;
            }
            float *sum = sums + c, *squares = sums + s->c_out + c;
            tile_sums grow = {quad_at(shift + c), quad_at(sum), quad_at(squares)};
            s->form->output(from + c, place, &o, to + c, &grow);
            quad_put(sum, grow.sum);
            quad_put(squares, grow.squares);
        }
    }
}

/* The same of all regions; sums: [2][c_out] of these tiles, or NULL. */
static void output_channels(const stage *s, const float *m, int base, const round *round, int c0,
                            int c1, const float *shift, float *sums) {
    for (int c = c0; sums && c < c1; c++) sums[c] = sums[s->c_out + c] = 0;
    for (int k = 0; k < s->tiles.regions; k++)
        output_region(s, m, base, round, k, c0, c1, shift, sums);
}

/* partial: [blocks][2][c_out] where sums are wanted, else NULL. */
static void run_blocks(const stage *all, int threads, const float *shift, float *partial) {
    int blocks = block_count(all);
#pragma omp parallel num_threads(threads)
    {
        stage s = *all; /* with memory of this thread's own */
        s.v += omp_get_thread_num() * v_floats(&s);
        s.m += omp_get_thread_num() * m_floats(&s);
#pragma omp for schedule(dynamic)
        for (int b = 0; b < blocks; b++) {
            round r = block_at(&s, b);
            int tiles = r.begin[s.tiles.regions];
            input_tiles(&s, &r, 0, tiles);
            input_end(&s, tiles);
            multiply(&s, &r, s.u, s.m);
            output_channels(&s, s.m, 0, &r, 0, s.c_out, shift,
                            partial ? partial + (size_t)b * 2 * s.c_out : NULL);
        }
    }
}

/* The same for few tiles: all of them at once, outputs panel by panel. */
static void run_few(const stage *s, const filters *f, int threads, const float *shift,
                    float *partial) {
    int total = tile_count(&s->tiles), mr = s->g->mr, nr = s->g->nr;
    round all = round_of(&s->tiles, 0, total); /* of the only region */
#pragma omp parallel num_threads(threads)
    {
        float *u = s->u + omp_get_thread_num() * u_floats(s);
        float *m = s->m + omp_get_thread_num() * m_floats(s);
#pragma omp for schedule(static)
        for (int i = 0; i < total; i += mr) input_tiles(s, &all, i, least(total, i + mr));
#pragma omp single
        input_end(s, total);
#pragma omp for schedule(dynamic)
        for (int panel = 0; panel < s->c_out; panel += nr) {
            transform_panel(f, panel, u, apart(s->in.c, nr));
            multiply(s, &all, u, m);
            for (int g = 0; g < s->groups; g++) {
                int first = total / s->groups * g, last = total / s->groups * (g + 1);
                round r = round_of(&s->tiles, first, last);
                output_channels(s, m + (size_t)first * nr, panel, &r, panel,
                                least(panel + nr, s->c_out), shift,
                                partial ? partial + (size_t)g * 2 * s->c_out : NULL);
            }
        }
    }
}

/* Runs all tiles, in blocks of at most s->room; partial sums go behind the rest of the workspace
 * and their place is returned. */
static float *run(const cpu_plan *p, stage *s, filters *f, const float *shift, bool sums,
                  float *work) {
    f->nr = p->g->nr, f->c_in = s->in.c, f->c_out = s->c_out, f->form = s->form;
    s->u = work;
    s->v = s->u + u_floats(s) * (s->few ? p->threads : 1);
    s->m = s->v + v_floats(s) * (s->few ? 1 : p->threads);
    float *partial = work + stage_floats(s, p->threads);
    if (s->few) {
        run_few(s, f, p->threads, shift, sums ? partial : NULL);
    } else {
        transform_filters(f, p->threads, s->u);
        run_blocks(s, p->threads, shift, sums ? partial : NULL);
    }
    return partial;
}

void winograd_forward(const cpu_plan *p, const float *x, const float *w, float *y,
                      const float *shift, float *sums, float *work) {
    const conv_shape *c = &p->base.s;
    filters f = {.w = w, .tap_step = c->ci, .in_step = 1, .out_step = 9 * c->ci};
    stage s = stage_of(p, true);
    s.in.at = x, s.out = y;
    float *partial = run(p, &s, &f, shift, sums != NULL, work);
    if (sums) conv_fold_sums(&p->tiles, c->groups, c->co, partial, sums, p->threads);
}

void winograd_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                        float *work) {
    const conv_shape *c = &p->base.s;
    filters f = {.w = w, .tap_step = c->ci, .in_step = 9 * c->ci, .out_step = 1, .turned = true};
    stage s = stage_of(p, false);
    s.in.at = dy, s.out = dx, s.add = add;
    run(p, &s, &f, NULL, false, work);
}

/* ---- filter gradient ------------------------------------------------------------------------- */

/* Both sides of the sum over tiles. */
typedef struct gradient {
    const gradient_form *form;
    const gemm_kernel *g;
    tiling tiles;
    map x, dy;
    int total, rows, columns; /* tiles; co and ci, whole panels */
    bool few;
    int parts; /* that the tiles are summed in */
    int room;  /* tiles at a time */
    /* [places][panels][room][nr or mr]; with several parts so much for each thread */
    float *v, *d;
    /* [filters][rows][columns] for each part; few tiles: [filters][mr][columns] for each thread */
    float *c;
} gradient;

static size_t gradient_v(const gradient *g) { return g->form->places * apart(g->room, g->columns); }
static size_t gradient_d(const gradient *g) { return g->form->places * apart(g->room, g->rows); }
static size_t gradient_c(const gradient *g) {
    return form_filters(g->form->places) * apart(g->few ? g->g->mr : g->rows, g->columns);
}
static size_t gradient_floats(const gradient *g, int threads) {
    return (gradient_v(g) + gradient_d(g)) * (g->parts > 1 ? threads : 1) +
           gradient_c(g) * (g->few ? threads : g->parts);
}

/* Sizes alone. */
static gradient gradient_of(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    const winograd_forms *f = winograd_forms_best();
    int mr = p->g->mr, nr = p->g->nr;
    gradient g = {.form = s->stride == 1 ? &f->gradient_four : &f->gradient2,
                  .g = p->g,
                  .x = {NULL, s->h, s->w, s->ci},
                  .dy = {NULL, p->base.oh, p->base.ow, s->co},
                  .rows = round_up(s->co, mr),
                  .columns = round_up(s->ci, nr),
                  .parts = 1};
    g.tiles = tiling_of(p, g.form->places, false);
    g.total = tile_count(&g.tiles);
    g.few = (double)g.total * g.form->places <= FEW;
    if (g.few) {
        g.room = g.total;
        return g;
    }
    if (six_fits(p)) {
        g.form = &f->gradient_six;
        g.tiles = tiling_of(p, g.form->places, true);
        g.total = tile_count(&g.tiles);
    }
    while (gradient_c(&g) <= PART_SUMS && 2 * g.parts <= PARTS &&
           2 * g.parts * gradient_c(&g) <= PART_FLOATS && 2 * g.parts * PART_LEAST <= g.total)
        g.parts *= 2;
    int floats = g.parts > 1 ? PART_ROOM : CHUNK_FLOATS;
    int panels = floats / (g.form->places * (s->ci + s->co)) / mr;
    panels = panels < 4 ? 4 : panels;
    g.room = mr * (g.parts > 1 ? least(PART_PANELS, panels) : panels);
    if (g.parts > 1) {
        g.tiles = tiling_with_edges(p, g.form->places);
        g.total = tile_count(&g.tiles);
    }
    /* rounds are of whole maps where there are edges */
    int unit = g.tiles.regions > 1 ? tiles_of_map(&g.tiles) : FORM_RUN;
    g.room = g.room < unit ? unit : g.room / unit * unit;
    /* rather somewhat smaller rounds that are all full than a last one that is not */
    for (int r = g.room; g.parts == 1 && 2 * r >= g.room; r -= unit)
        if (g.total % r == 0) {
            g.room = r;
            break;
        }
    return g;
}

/* Channel c of tile t in panels of `width` channels. */
static size_t panel_place(int c, int width, int room, int t) {
    return ((size_t)(c / width) * room + t) * width + c % width;
}

/* A run of gradients at channels c..c+3 into panels; a panel of, say, 14 channels may end amid a
 * quad. */
static void put_gradients(const gradient *g, const tile_run *r, column *strip, int c) {
    int width = g->g->mr, places = g->form->places;
    size_t place = apart(g->room, g->rows);
    if (c % width + 4 <= width) {
        g->form->out.run(r, c, strip, g->d + panel_place(c, width, g->room, 0), place);
        return;
    }
    float m[FORM_RUN * FORM_PLACES * 4];
    tile_run by_itself = *r;
    for (int t = 0; t < r->tiles; t++) by_itself.at[t] = 4 * (size_t)places * t;
    g->form->out.run(&by_itself, c, strip, m, 4);
    for (int i = 0; i < 4 * r->tiles; i++) {
        float *to = g->d + panel_place(c + i % 4, width, g->room, 0) + r->at[i / 4];
        const float *from = m + i / 4 * 4 * places + i % 4;
        for (int k = 0; k < places; k++) to[k * place] = from[4 * k];
    }
}

/* The tiles at places [i,end) of a round, transformed on both sides. */
static void transform_both(const gradient *g, const round *round, int i, int end) {
    int mr = g->g->mr, nr = g->g->nr;
    size_t place = apart(g->room, g->columns);
    column strip[FORM_STRIP];
    while (i < end) {
        int next;
        tile_run x = run_of(&g->tiles, round, &g->x, &g->form->in, i, end, strip, &next);
        for (int t = 0; t < x.tiles; t++) x.at[t] *= nr;
        for (int c = 0; x.tiles && c < g->x.c; c += 4)
            g->form->in.run(&x, c, strip, g->v + panel_place(c, nr, g->room, 0), place);
        tile_run dy = run_of(&g->tiles, round, &g->dy, &g->form->out, i, end, strip, &next);
        for (int t = 0; t < dy.tiles; t++) dy.at[t] *= mr;
        for (int c = 0; dy.tiles && c < g->dy.c; c += 4) put_gradients(g, &dy, strip, c);
        i = next;
    }
}

/* Whether place k is the first of those with the same filter. */
static bool opens_filter(const gradient *g, int k) {
    return g->form->places <= FORM_SIX || (k / 9 <= 5 && k % 9 <= 5);
}

/* Products at place k: outputs [o, end) with all inputs, onto c [outputs][columns]. */
static void multiply_tiles(const gradient *g, const round *round, int k, int o, int end, float *c,
                           bool add) {
    const float *v = g->v + k * apart(g->room, g->columns);
    const float *d = g->d + k * apart(g->room, g->rows);
    int mr = g->g->mr, nr = g->g->nr;
    bool adds = add || !opens_filter(g, k);
    size_t next = (size_t)g->room * nr; /* panel of inputs */
    int begin, n;
    tiles_at_place(&g->tiles, round, k, &begin, &n);
    n -= begin;
    v += (size_t)begin * nr, d += (size_t)begin * mr;
    d += (size_t)o * g->room;
    for (int t = 0; t < n; t += GEMM_KC, v += GEMM_KC * nr, d += GEMM_KC * mr) {
        const float *panel = v;
        for (int j = 0; j < g->columns; j += nr, panel += next)
            g->g->run_panels(least(GEMM_KC, n - t), d, panel, c + j, g->columns, t > 0 || adds,
                             (end - o) / mr, (size_t)g->room * mr);
    }
}

/* Few tiles: a panel of filters goes through all steps at once. */
static void gradient_few(const gradient *g, bool add, float *dw, int threads) {
    round all = round_of(&g->tiles, 0, g->total);
    int mr = g->g->mr, ci = g->x.c;
    size_t next = apart(mr, g->columns);
#pragma omp parallel num_threads(threads)
    {
        float *c = g->c + omp_get_thread_num() * gradient_c(g);
#pragma omp for schedule(static)
        for (int i = 0; i < g->total; i += FORM_RUN)
            transform_both(g, &all, i, least(g->total, i + FORM_RUN));
#pragma omp for schedule(dynamic)
        for (int o = 0; o < g->dy.c; o += mr) {
            for (int k = 0; k < g->form->places; k++)
                multiply_tiles(g, &all, k, o, o + mr, c + form_filter(g->form->places, k) * next,
                               false);
            for (int r = 0; r < least(mr, g->dy.c - o); r++)
                g->form->back(c + (size_t)r * g->columns, next, ci, add,
                              dw + (size_t)(o + r) * 9 * ci);
        }
    }
}

/* Few channels: a part of the tiles by each thread; the parts are added up in order. */
static void gradient_parts(const gradient *all, bool add, float *dw, int threads) {
    size_t next = apart(all->rows, all->columns);
    int ci = all->x.c, filters = form_filters(all->form->places);
#pragma omp parallel num_threads(threads)
    {
        gradient g = *all; /* with memory of this thread's own */
        g.v += omp_get_thread_num() * gradient_v(&g);
        g.d += omp_get_thread_num() * gradient_d(&g);
#pragma omp for schedule(dynamic)
        for (int part = 0; part < g.parts; part++) {
            int unit = tiles_of_map(&g.tiles), maps = g.total / unit; /* whole maps */
            int begin = (int)((long)maps * part / g.parts) * unit;
            int end = (int)((long)maps * (part + 1) / g.parts) * unit;
            for (int first = begin; first < end; first += g.room) {
                int last = least(end, first + g.room);
                round round = round_of(&g.tiles, first, last);
                transform_both(&g, &round, 0, last - first);
                for (int k = 0; k < g.form->places; k++) {
                    int filter = part * filters + form_filter(g.form->places, k);
                    multiply_tiles(&g, &round, k, 0, g.rows, g.c + filter * next, first > begin);
                }
            }
        }
#pragma omp for schedule(static)
        for (int o = 0; o < g.dy.c; o++) {
            float *sum = g.c + (size_t)o * g.columns;
            for (int k = 0; k < filters; k++)
                for (int j = 0; j < g.columns; j += 4) {
                    float *to = sum + k * next + j;
                    quad all = quad_at(to);
                    for (int part = 1; part < g.parts; part++)
                        all += quad_at(to + part * filters * next);
                    quad_put(to, all);
                }
            g.form->back(sum, next, ci, add, dw + (size_t)o * 9 * ci);
        }
    }
}

/* Many of both: rounds of tiles by all threads, each with its filters. */
static void gradient_chunks(const gradient *g, bool add, float *dw, int threads) {
    size_t next = apart(g->rows, g->columns);
    int ci = g->x.c;
#pragma omp parallel num_threads(threads)
    {
        for (int first = 0; first < g->total; first += g->room) {
            int last = least(g->total, first + g->room);
            round round = round_of(&g->tiles, first, last);
#pragma omp for schedule(static, 1) /* some have edges alone, and nothing to do */
            for (int i = 0; i < last - first; i += FORM_RUN)
                transform_both(g, &round, i, least(last - first, i + FORM_RUN));
                /* those with the most places come last: they are taken first */
#pragma omp for schedule(dynamic) collapse(2)
            for (int f = form_filters(g->form->places) - 1; f >= 0; f--)
                for (int rows = 0; rows < g->rows; rows += ROWS * g->g->mr)
                    for (int k = 0; k < g->form->places; k++) {
                        if (form_filter(g->form->places, k) != f) continue;
                        int end = least(g->rows, rows + ROWS * g->g->mr);
                        multiply_tiles(g, &round, k, rows, end,
                                       g->c + f * next + (size_t)rows * g->columns, first > 0);
                    }
        }
#pragma omp for schedule(static)
        for (int o = 0; o < g->dy.c; o++)
            g->form->back(g->c + (size_t)o * g->columns, next, ci, add, dw + (size_t)o * 9 * ci);
    }
}

void winograd_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                          float *work) {
    gradient g = gradient_of(p);
    size_t copies = g.parts > 1 ? (size_t)p->threads : 1;
    g.x.at = x, g.dy.at = dy;
    g.v = work;
    g.d = g.v + copies * gradient_v(&g);
    g.c = g.d + copies * gradient_d(&g);
    if (g.x.c < g.columns || g.dy.c < g.rows) /* zeros beyond the channels */
        memset(work, 0, (size_t)(g.c - work) * sizeof *work);
    if (g.few)
        gradient_few(&g, add, dw, p->threads);
    else if (g.parts > 1)
        gradient_parts(&g, add, dw, p->threads);
    else
        gradient_chunks(&g, add, dw, p->threads);
}

/* ---- workspace ------------------------------------------------------------------------------- */

size_t winograd_workspace(cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    stage forward = stage_of(p, true), data = stage_of(p, false);
    gradient g = gradient_of(p);
    /* few tiles are one block a group */
    p->tiles.blocks = forward.few ? s->groups : block_count(&forward);
    size_t sums = (size_t)p->tiles.blocks * 2 * s->co;
    return most(stage_floats(&forward, p->threads) + sums,
                most(stage_floats(&data, p->threads), gradient_floats(&g, p->threads)));
}
