/* cpu_winograd.c: 3x3 convolutions by Winograd's minimal filtering; the transforms are in
 * cpu_winograd_forms.c.
 *
 * Between the transforms each place is a matrix product over channels, [tiles,ci] x [ci,co]; in the
 * filter gradient one over tiles.  A thread takes a block of tiles, small enough for its own
 * caches, through all steps.  Where there are few tiles (a small batch of small maps) the filters
 * are the larger side by far: then a thread takes a panel of outputs through all steps, and
 * transformed filters never leave its cache.  No sum is shared between threads.  Error: a few times
 * that of a direct sum (see the case list), from the transforms' constants 1/24 .. 8. */
#include "device/cpu_conv.h"

#include "base/memory.h"
#include "device/cpu_quad.h"
#include "device/cpu_winograd_forms.h"

#include <omp.h>
#include <string.h>

enum {
    FILTERS = FORM_FILTERS,
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

/* How outputs [n,oh,ow] are cut into tiles of 4x4, and with them the inputs; edges: of the last row
 * and column of tiles, where they are transformed as such. */
typedef struct tiling {
    int n, down, across;
    form_edge edge_down, edge_across;
} tiling;

static tiling tiling_of(const cpu_plan *p) {
    return (tiling){p->base.s.n, (p->base.oh + 3) / 4, (p->base.ow + 3) / 4, EDGE_NONE, EDGE_NONE};
}

static int tiles_of_map(const tiling *t) { return t->down * t->across; }
static int tile_count(const tiling *t) { return t->n * tiles_of_map(t); }
static bool has_edges(const tiling *t) {
    return t->edge_down != EDGE_NONE || t->edge_across != EDGE_NONE;
}

/* With edges, where they are a good part of a map.  Then only whole maps go through the steps
 * together. */
static tiling tiling_with_edges(const cpu_plan *p, int places) {
    tiling t = tiling_of(p);
    if (tiles_of_map(&t) > MOST_EDGED) return t;
    t.edge_down = form_edge_of(places, p->base.oh);
    t.edge_across = form_edge_of(places, p->base.ow);
    return t;
}

typedef struct tile {
    int image, y, x; /* of the image's tiles */
} tile;

static tile tile_at(const tiling *t, int i) {
    int in_image = t->down * t->across, rest = i % in_image;
    return (tile){i / in_image, rest / t->across, rest % t->across};
}

/* The order in which tiles [first,last) lie: as they come, or, with edges, those of the last column
 * but not of the last row, then whole ones, those of the last row, corners.  So the tiles that have
 * a place lie side by side. */
typedef struct order {
    const tiling *t;
    bool edges;
    int first, total;
    int whole_down, whole_across; /* tiles of a map that are no edges */
    int begin[4];                 /* of each kind */
} order;

static order order_of(const tiling *t, int first, int last) {
    order o = {.t = t, .edges = has_edges(t), .first = first, .total = last - first};
    if (!o.edges) return o;
    int maps = o.total / tiles_of_map(t);
    o.whole_down = t->down - (t->edge_down != EDGE_NONE);
    o.whole_across = t->across - (t->edge_across != EDGE_NONE);
    o.begin[1] = maps * o.whole_down * (t->across - o.whole_across);
    o.begin[2] = o.begin[1] + maps * o.whole_down * o.whole_across;
    o.begin[3] = o.begin[2] + maps * (t->down - o.whole_down) * o.whole_across;
    return o;
}

/* The place of tile i, which is `at`. */
static int slot_of(const order *o, int i, tile at) {
    if (!o->edges) return i - o->first;
    int map = (i - o->first) / tiles_of_map(o->t);
    bool down = at.y >= o->whole_down, across = at.x >= o->whole_across;
    if (down && across) return o->begin[3] + map;
    if (down) return o->begin[2] + map * o->whole_across + at.x;
    if (across) return o->begin[0] + map * o->whole_down + at.y;
    return o->begin[1] + (map * o->whole_down + at.y) * o->whole_across + at.x;
}

/* Those that have place k: [*begin,*end). */
static void tiles_at_place(const order *o, int places, int k, int *begin, int *end) {
    int n = places == FILTERS ? 6 : 9;
    bool down = form_has(places, o->t->edge_down, k / n);
    bool across = form_has(places, o->t->edge_across, k % n);
    *begin = across ? 0 : o->begin[1];
    *end = down && across ? o->total : down ? o->begin[3] : o->begin[2];
}

/* A map that tiles are cut from: [n,h,w,c] */
typedef struct map {
    const float *at;
    int h, w, c;
} map;

static const float zeros[MOST_CHANNELS]; /* a pixel outside the map */

/* The run from tile i on, up to tile `last` at most; columns outside the map are put to zero. */
static tile_run run_from(const tiling *g, const map *m, const form_side *f, int i, int last,
                         column strip[FORM_STRIP]) {
    tile t = tile_at(g, i);
    tile_run r = {.tiles = least(least(FORM_RUN, last - i), g->across - t.x)};
    r.down = t.y == g->down - 1 ? g->edge_down : EDGE_NONE;
    r.across = t.x + r.tiles == g->across ? g->edge_across : EDGE_NONE;
    int total = f->step * (r.tiles - 1) + f->side;
    int x = f->step * t.x - f->margin, y = f->step * t.y - f->margin;
    r.first = x < 0 ? -x : 0;
    r.columns = least(total, m->w - x) - r.first;
    int end = r.first + r.columns;
    memset(strip, 0, (size_t)r.first * sizeof *strip);
    memset(strip + end, 0, (size_t)(total - end) * sizeof *strip);
    for (int k = 0; k < f->side; k++) {
        bool inside = y + k >= 0 && y + k < m->h;
        size_t pixel = ((size_t)t.image * m->h + (inside ? y + k : 0)) * m->w + (x + r.first);
        r.row[k] = inside ? m->at + pixel * m->c : zeros;
        r.step[k] = inside ? m->c : 0;
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
    tiling t = tiling_of(p);
    const winograd_forms *f = winograd_forms_best();
    int places = s->stride == 1 ? f->stride1.places : f->stride2.places;
    return (double)t.down * t.across * places <= .8 * 9 * p->base.oh * p->base.ow;
}

/* ---- filters --------------------------------------------------------------------------------- */

/* A layer's filters between c_in and c_out channels, as right-hand panels:
 * u[36][panels of nr outputs][c_in][nr].  Number (tap t, in i, out o) of the filter stands at
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

/* The filters to outputs [panel, panel + nr): to[36][c_in][nr], `next` floats between filters. */
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
    bool few;
    map in;     /* of c_in channels */
    float *out; /* [n,h,w,c_out] */
    int h, w, c_out;
    bool add;
    int room;    /* tiles that v and m have place for, a multiple of mr */
    int columns; /* c_out, a multiple of nr; few tiles: nr */
    float *u;    /* filters, as above; few tiles: one panel of them for each thread */
    float
        *v; /* [places][panels of mr tiles][c_in in quads][mr], for each thread; few tiles: once */
    float *m; /* [places][room][columns], for each thread */
} stage;

static size_t u_floats(const stage *s) { return FILTERS * apart(s->in.c, s->columns); }
static size_t v_floats(const stage *s) { return s->form->places * apart(s->room, s->in.c); }
static size_t m_floats(const stage *s) { return s->form->places * apart(s->room, s->columns); }
static size_t stage_floats(const stage *s, int threads) {
    return u_floats(s) * (s->few ? threads : 1) + v_floats(s) * (s->few ? 1 : threads) +
           m_floats(s) * threads;
}

/* Tiles of a block: whole panels, so many that a block's numbers stay in the caches; a few less
 * where so many blocks, all full, make `total`: threads then finish together. */
static int block_tiles(int places, int channels, int mr, int total) {
    int panels = BLOCK_FLOATS / (places * channels) / mr;
    panels = panels < 1 ? 1 : least(panels, BLOCK_PANELS);
    for (int even = panels; even > panels / 2; even--)
        if (total % (even * mr) == 0) return even * mr;
    return panels * mr;
}

/* The same in whole maps, which make whole panels together; 0: not so few.  More of them than
 * above: the more, the fewer panels hold both edges and whole tiles. */
static int block_maps(const tiling *t, int places, int channels, int mr) {
    int maps = least(mr, BLOCK_FLOATS / (places * channels * tiles_of_map(t)));
    while (maps * tiles_of_map(t) % mr) maps--;
    return maps;
}

/* Sizes alone. */
static stage stage_of(const cpu_plan *p, bool forward) {
    const conv_shape *c = &p->base.s;
    const winograd_forms *f = winograd_forms_best();
    stage s = {.g = p->g, .tiles = tiling_of(p)};
    if (forward) {
        s.form = c->stride == 1 ? &f->stride1 : &f->stride2;
        s.in = (map){.h = c->h, .w = c->w, .c = c->ci};
        s.h = p->base.oh, s.w = p->base.ow, s.c_out = c->co;
    } else {
        s.form = c->stride == 1 ? &f->stride1 : &f->stride2_data;
        s.in = (map){.h = p->base.oh, .w = p->base.ow, .c = c->co};
        s.h = c->h, s.w = c->w, s.c_out = c->ci;
    }
    int total = tile_count(&s.tiles), mr = p->g->mr, nr = p->g->nr;
    s.few = (double)total * s.form->places <= FEW;
    s.columns = s.few ? nr : round_up(s.c_out, nr);
    s.room = s.few ? round_up(total, mr)
                   : block_tiles(s.form->places, c->ci + c->co, mr, total / c->groups);
    tiling edged = tiling_with_edges(p, s.form->places);
    int maps =
        s.few || !has_edges(&edged) ? 0 : block_maps(&edged, s.form->places, c->ci + c->co, mr);
    if (maps > 0) s.tiles = edged, s.room = maps * tiles_of_map(&edged);
    return s;
}

/* Tiles [from,end) of a block, transformed. */
static void input_tiles(const stage *s, const order *order, int from, int end) {
    int mr = s->g->mr, channels = s->in.c;
    size_t place = apart(s->room, channels);
    column strip[FORM_STRIP];
    for (int i = from; i < end;) {
        tile_run r = run_from(&s->tiles, &s->in, &s->form->in, i, end, strip);
        tile at = tile_at(&s->tiles, i);
        for (int t = 0; t < r.tiles; t++, at.x++) {
            int slot = slot_of(order, i + t, at);
            r.at[t] = (size_t)(slot - slot % mr) * channels + 4 * (slot % mr);
        }
        for (int c = 0; c < channels; c += 4)
            s->form->in.run(&r, c, strip, s->v + (size_t)c * mr, place);
        i += r.tiles;
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

/* The products of all places; u, m: of all columns, or of one panel. */
static void multiply(const stage *s, const order *order, const float *u, float *m) {
    const gemm_kernel *g = s->g;
    int channels = s->in.c;
    for (int k = 0; k < s->form->places; k++) {
        int begin, end;
        tiles_at_place(order, s->form->places, k, &begin, &end);
        begin -= begin % g->mr;
        const float *v = s->v + k * apart(s->room, channels) + (size_t)begin * channels;
        const float *filter = u + form_filter(s->form->places, k) * apart(channels, s->columns);
        for (int o = 0; o < s->columns; o += g->nr)
            g->run_quads(channels, v, filter + (size_t)o * channels,
                         m + (size_t)begin * s->columns + o, s->columns, false,
                         (end - begin + g->mr - 1) / g->mr);
        m += apart(s->room, s->columns);
    }
}

/* Outputs of tiles [first,last), channels [c0,c1), from m, whose first row is tile `first` and
 * whose first column is channel `base`; sums: [2][c_out] of these tiles, or NULL. */
static void output_channels(const stage *s, const float *m, int base, int first, int last, int c0,
                            int c1, const float *shift, float *sums) {
    order order = order_of(&s->tiles, first, last);
    size_t place = apart(s->room, s->columns), pixel = (size_t)s->c_out;
    int side = s->form->out;
    for (int c = c0; sums && c < c1; c++) sums[c] = sums[s->c_out + c] = 0;
    for (int i = first; i < last; i++) {
        tile t = tile_at(&s->tiles, i);
        int y = side * t.y, x = side * t.x;
        const float *from = m + (size_t)slot_of(&order, i, t) * s->columns - base;
        float *to = s->out + (((size_t)t.image * s->h + y) * s->w + x) * pixel;
        tile_out o = {t.y == s->tiles.down - 1 ? s->tiles.edge_down : EDGE_NONE,
                      t.x == s->tiles.across - 1 ? s->tiles.edge_across : EDGE_NONE,
                      least(side, s->h - y),
                      least(side, s->w - x),
                      pixel * s->w,
                      pixel,
                      s->add};
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

/* partial: [blocks][2][c_out] where sums are wanted, else NULL. */
static void run_blocks(const stage *all, const conv_blocks *blocks, int threads, const float *shift,
                       float *partial) {
#pragma omp parallel num_threads(threads)
    {
        stage s = *all; /* with memory of this thread's own */
        s.v += omp_get_thread_num() * v_floats(&s);
        s.m += omp_get_thread_num() * m_floats(&s);
#pragma omp for schedule(dynamic)
        for (int b = 0; b < blocks->blocks; b++) {
            int first, last;
            conv_block_range(blocks, b, &first, &last);
            order order = order_of(&s.tiles, first, last);
            input_tiles(&s, &order, first, last);
            input_end(&s, last - first);
            multiply(&s, &order, s.u, s.m);
            output_channels(&s, s.m, 0, first, last, 0, s.c_out, shift,
                            partial ? partial + (size_t)b * 2 * s.c_out : NULL);
        }
    }
}

/* The same for few tiles: all of them at once, outputs panel by panel. */
static void run_few(const stage *s, const filters *f, const conv_blocks *blocks, int threads,
                    const float *shift, float *partial) {
    int total = tile_count(&s->tiles), mr = s->g->mr, nr = s->g->nr;
    order all = order_of(&s->tiles, 0, total);
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
            for (int b = 0; b < blocks->blocks; b++) {
                int first, last;
                conv_block_range(blocks, b, &first, &last);
                output_channels(s, m + (size_t)first * nr, panel, first, last, panel,
                                least(panel + nr, s->c_out), shift,
                                partial ? partial + (size_t)b * 2 * s->c_out : NULL);
            }
        }
    }
}

/* Runs all tiles, in blocks of at most s->room; partial sums go behind the rest of the workspace
 * and their place is returned. */
static float *run(const cpu_plan *p, stage *s, filters *f, const conv_blocks *blocks,
                  const float *shift, bool sums, float *work) {
    f->nr = p->g->nr, f->c_in = s->in.c, f->c_out = s->c_out, f->form = s->form;
    s->u = work;
    s->v = s->u + u_floats(s) * (s->few ? p->threads : 1);
    s->m = s->v + v_floats(s) * (s->few ? 1 : p->threads);
    float *partial = work + stage_floats(s, p->threads);
    if (s->few) {
        run_few(s, f, blocks, p->threads, shift, sums ? partial : NULL);
    } else {
        transform_filters(f, p->threads, s->u);
        run_blocks(s, blocks, p->threads, shift, sums ? partial : NULL);
    }
    return partial;
}

void winograd_forward(const cpu_plan *p, const float *x, const float *w, float *y,
                      const float *shift, float *sums, float *work) {
    const conv_shape *c = &p->base.s;
    filters f = {.w = w, .tap_step = c->ci, .in_step = 1, .out_step = 9 * c->ci};
    stage s = stage_of(p, true);
    s.in.at = x, s.out = y;
    float *partial = run(p, &s, &f, &p->tiles, shift, sums != NULL, work);
    if (sums) conv_fold_sums(&p->tiles, c->groups, c->co, partial, sums, p->threads);
}

void winograd_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                        float *work) {
    const conv_shape *c = &p->base.s;
    filters f = {.w = w, .tap_step = c->ci, .in_step = 9 * c->ci, .out_step = 1, .turned = true};
    stage s = stage_of(p, false);
    s.in.at = dy, s.out = dx, s.add = add;
    conv_blocks blocks = conv_blocks_make(1, tile_count(&s.tiles), s.room);
    run(p, &s, &f, &blocks, NULL, false, work);
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
    float *c; /* [36][rows][columns] for each part; few tiles: [36][mr][columns] for each thread */
} gradient;

static size_t gradient_v(const gradient *g) { return g->form->places * apart(g->room, g->columns); }
static size_t gradient_d(const gradient *g) { return g->form->places * apart(g->room, g->rows); }
static size_t gradient_c(const gradient *g) {
    return FILTERS * apart(g->few ? g->g->mr : g->rows, g->columns);
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
    gradient g = {.form = s->stride == 1 ? &f->gradient1 : &f->gradient2,
                  .g = p->g,
                  .tiles = tiling_of(p),
                  .x = {NULL, s->h, s->w, s->ci},
                  .dy = {NULL, p->base.oh, p->base.ow, s->co},
                  .rows = round_up(s->co, mr),
                  .columns = round_up(s->ci, nr),
                  .parts = 1};
    g.total = tile_count(&g.tiles);
    g.few = (double)g.total * g.form->places <= FEW;
    if (g.few) {
        g.room = g.total;
        return g;
    }
    while (gradient_c(&g) <= PART_SUMS && 2 * g.parts <= PARTS &&
           2 * g.parts * gradient_c(&g) <= PART_FLOATS && 2 * g.parts * PART_LEAST <= g.total)
        g.parts *= 2;
    int floats = g.parts > 1 ? PART_ROOM : CHUNK_FLOATS;
    int panels = floats / (g.form->places * (s->ci + s->co)) / mr;
    panels = panels < 4 ? 4 : panels;
    g.room = mr * (g.parts > 1 ? least(PART_PANELS, panels) : panels);
    if (g.parts > 1) g.tiles = tiling_with_edges(p, g.form->places);
    if (has_edges(&g.tiles)) g.room -= g.room % tiles_of_map(&g.tiles);
    /* rather somewhat smaller rounds that are all full than a last one that is not */
    for (int r = g.room / FORM_RUN * FORM_RUN; g.parts == 1 && 2 * r >= g.room; r -= FORM_RUN)
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

/* Tiles [i,end) of a round, transformed on both sides. */
static void transform_both(const gradient *g, const order *order, int i, int end) {
    int mr = g->g->mr, nr = g->g->nr;
    size_t place = apart(g->room, g->columns);
    column strip[FORM_STRIP];
    while (i < end) {
        tile_run x = run_from(&g->tiles, &g->x, &g->form->in, i, end, strip);
        tile at = tile_at(&g->tiles, i);
        for (int t = 0; t < x.tiles; t++, at.x++) x.at[t] = (size_t)slot_of(order, i + t, at) * nr;
        for (int c = 0; c < g->x.c; c += 4)
            g->form->in.run(&x, c, strip, g->v + panel_place(c, nr, g->room, 0), place);
        tile_run dy = run_from(&g->tiles, &g->dy, &g->form->out, i, end, strip);
        for (int t = 0; t < dy.tiles; t++) dy.at[t] = x.at[t] / nr * mr;
        for (int c = 0; c < g->dy.c; c += 4) put_gradients(g, &dy, strip, c);
        i += x.tiles;
    }
}

/* Whether place k is the first of those with the same filter. */
static bool opens_filter(const gradient *g, int k) {
    return g->form->places == FILTERS || (k / 9 <= 5 && k % 9 <= 5);
}

/* Products at place k: outputs [o, end) with all inputs, onto c [outputs][columns]. */
static void multiply_tiles(const gradient *g, const order *order, int k, int o, int end, float *c,
                           bool add) {
    const float *v = g->v + k * apart(g->room, g->columns);
    const float *d = g->d + k * apart(g->room, g->rows);
    int mr = g->g->mr, nr = g->g->nr;
    bool adds = add || !opens_filter(g, k);
    int n, begin;
    tiles_at_place(order, g->form->places, k, &begin, &n);
    v += (size_t)begin * nr, d += (size_t)begin * mr, n -= begin;
    if (n == g->room && n <= GEMM_KC) { /* panels of d lie one behind the other */
        for (int j = 0; j < g->columns; j += nr)
            g->g->run_panels(n, d + (size_t)o * n, v + (size_t)j * n, c + j, g->columns, adds,
                             (end - o) / mr);
        return;
    }
    for (int j = 0; j < g->columns; j += nr)
        for (int i = o; i < end; i += mr)
            for (int t = 0; t < n; t += GEMM_KC)
                g->g->run(least(GEMM_KC, n - t), d + (size_t)i * g->room + (size_t)t * mr,
                          v + (size_t)j * g->room + (size_t)t * nr,
                          c + (size_t)(i - o) * g->columns + j, g->columns, t > 0 || adds);
}

/* Few tiles: a panel of filters goes through all steps at once. */
static void gradient_few(const gradient *g, bool add, float *dw, int threads) {
    order all = order_of(&g->tiles, 0, g->total);
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
    int ci = all->x.c;
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
                order order = order_of(&g.tiles, first, last);
                transform_both(&g, &order, first, last);
                for (int k = 0; k < g.form->places; k++) {
                    int filter = part * FILTERS + form_filter(g.form->places, k);
                    multiply_tiles(&g, &order, k, 0, g.rows, g.c + filter * next, first > begin);
                }
            }
        }
#pragma omp for schedule(static)
        for (int o = 0; o < g.dy.c; o++) {
            float *sum = g.c + (size_t)o * g.columns;
            for (int k = 0; k < FILTERS; k++)
                for (int j = 0; j < g.columns; j += 4) {
                    float *to = sum + k * next + j;
                    quad all = quad_at(to);
                    for (int part = 1; part < g.parts; part++)
                        all += quad_at(to + part * FILTERS * next);
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
            order order = order_of(&g->tiles, first, last);
#pragma omp for schedule(static)
            for (int i = first; i < last; i += FORM_RUN)
                transform_both(g, &order, i, least(last, i + FORM_RUN));
                /* those with the most places come last: they are taken first */
#pragma omp for schedule(dynamic) collapse(2)
            for (int f = FILTERS - 1; f >= 0; f--)
                for (int rows = 0; rows < g->rows; rows += ROWS * g->g->mr)
                    for (int k = 0; k < g->form->places; k++) {
                        if (form_filter(g->form->places, k) != f) continue;
                        int end = least(g->rows, rows + ROWS * g->g->mr);
                        multiply_tiles(g, &order, k, rows, end,
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
    p->tiles = conv_blocks_make(s->groups, tile_count(&forward.tiles) / s->groups, forward.room);
    size_t sums = (size_t)p->tiles.blocks * 2 * s->co;
    return most(stage_floats(&forward, p->threads) + sums,
                most(stage_floats(&data, p->threads), gradient_floats(&g, p->threads)));
}
