/* winograd.c: 3x3 convolutions by Winograd's minimal filtering, forward and data gradient.  The
 * transforms are in winograd_forms.c, the filter gradient in winograd_gradient.c.
 *
 * Between the transforms each place is a matrix product over channels, [tiles,ci] x [ci,co].  A
 * thread takes a block of tiles, small enough for its own caches, through all steps.  If there are
 * few tiles (a small batch of small maps), the filters are by far the larger side: then a thread
 * takes a panel of outputs through all steps, and transformed filters never leave its cache.  No
 * sum is shared between threads.  The error is a few times that of a direct sum (see case_bound),
 * because of the constants 1/90 .. 32 of the transforms. */
#include "device/cpu/winograd_tiles.h"

#include "base/memory.h"
#include "kernels/quad.h"

#include <omp.h>
#include <string.h>

enum {
    BLOCK_FLOATS =
        1 << 18,     /* of the transformed input and output of a block: they fit the L2 cache */
    BLOCK_PANELS = 4 /* the most panels of a block, so that there are blocks for all threads */
};

bool winograd_fits(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    if (s->k != 3 || s->pad != 1 || s->stride > 2) return false;
    /* below 16 channels the transforms cost more than the products save */
    if (s->ci % 4 || s->co % 4 || s->ci < 16 || s->co < 16) return false;
    if (s->ci > WINOGRAD_CHANNELS || s->co > WINOGRAD_CHANNELS) return false;
    /* the same goes for maps that leave too much of their tiles outside */
    const winograd_forms *f = winograd_forms_best();
    int places = s->stride == 1 ? f->four.places : f->stride2.places;
    tiling t = tiling_of(p, places, false);
    return (double)tiles_of_map(&t) * places <= .8 * 9 * p->base.oh * p->base.ow;
}

/* ---- filters --------------------------------------------------------------------------------- */

/* The filters of a layer between c_in and c_out channels, as right-hand panels:
 *   u[filters][panels of nr outputs][c_in][nr]
 * The weight of tap t, input i, output o is w[t * tap_step + i * in_step + o * out_step]; one of
 * the last two steps is 1. */
typedef struct filters {
    const float *w;
    int c_in, c_out, nr;
    ptrdiff_t tap_step, in_step, out_step;
    bool turned; /* by 180 degrees */
    const winograd_form *form;
} filters;

/* Filters from inputs i..i+3 to outputs o..o+3, g[block][input][tap], a quad over the outputs; then
 * of the next blocks, along the channels that are contiguous: outputs if by_output, else inputs.
 * Rows a power of two apart compete for the same few lines of the L1 cache, so a line is used up at
 * once. by_output becomes a constant when this is inlined. */
INLINE void load_filters(const filters *f, int i, int o, int blocks, bool by_output,
                         quad g[LINE / 4][4][9]) {
    const float *from = f->w + i * f->in_step + o * f->out_step;
    ptrdiff_t row = by_output ? f->in_step : f->out_step;
    for (int t = 0; t < 9; t++, from += f->tap_step) {
        int at = f->turned ? 8 - t : t;
        /* too many streams for the machine to prefetch by itself; to the L2 cache, since in L1 they
         * would evict each other */
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

/* The filters to outputs [panel, panel + nr): to[filters][c_in][nr], `next` floats from one filter
 * to the next. */
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

/* What a block of tiles needs on its way. */
typedef struct stage {
    const winograd_form *form;
    const gemm_kernel *g;
    tiling tiles;
    int groups; /* no block has tiles of two groups */
    bool few;
    map in;     /* of c_in channels */
    float *out; /* [n,h,w,c_out] */
    int h, w, c_out;
    bool add;
    int room;    /* tiles that v and m have room for, a multiple of mr */
    int maps;    /* whole maps of a block; 0: it has tiles of one region */
    int columns; /* c_out rounded up to a multiple of nr; few tiles: nr */
    float *u;    /* filters, as above; few tiles: one panel per thread, and only one v */
    float *v;    /* [places][panels of mr tiles][c_in in quads][mr], per thread, or once */
    float *m;    /* [places][room][columns], per thread */
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

/* Tiles of a block: whole panels, as many as stay in the caches; a few less if every region then
 * consists of full blocks: threads then finish together. */
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

/* The same in whole maps, which together make whole panels; 0: no such number fits.  Larger than
 * above: the larger, the fewer panels hold both edges and whole tiles. */
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

/* Block b; blocks are ordered by group. */
static tile_round block_at(const stage *s, int b) {
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
    tile_round r = {0};
    r.first[k] = group * tiles + b * s->room;
    for (int i = k + 1; i < 5; i++) r.begin[i] = least(tiles - b * s->room, s->room);
    return r;
}

/* Only the sizes. */
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
    s.few = (double)total * s.form->places <= WINOGRAD_FEW;
    s.columns = s.few ? nr : round_up(s.c_out, nr);
    s.room = round_up(total, mr);
    if (s.few) return s;
    if (tiling_six_fits(p)) s.form = &f->six;
    s.tiles = tiling_with_edges(p, s.form->places);
    s.room = block_tiles(&s.tiles, s.groups, c->ci + c->co, mr);
    if (s.tiles.regions > 1) s.maps = block_maps(&s.tiles, c->ci + c->co, mr);
    if (s.maps) s.room = s.maps * tiles_of_map(&s.tiles);
    return s;
}

/* Transforms tiles [i,end) of a round. */
static void input_tiles(const stage *s, const tile_round *round, int i, int end) {
    int mr = s->g->mr, channels = s->in.c;
    size_t place = apart(s->room, channels);
    column strip[FORM_STRIP];
    while (i < end) {
        tile_run r = round_run(&s->tiles, round, &s->in, &s->form->in, i, end, strip, &i);
        for (int t = 0; t < r.tiles; t++)
            r.at[t] = (r.at[t] - r.at[t] % mr) * channels + 4 * (r.at[t] % mr);
        for (int c = 0; r.tiles && c < channels; c += 4)
            s->form->in.run(&r, c, strip, s->v + (size_t)c * mr, place);
    }
}

/* Zeros after this many tiles, to the end of their last panel. */
static void input_end(const stage *s, int tiles) {
    int mr = s->g->mr, channels = s->in.c;
    for (int i = tiles; i % mr; i++)
        for (int k = 0; k < s->form->places; k++)
            for (int c = 0; c < channels; c += 4)
                quad_put(s->v + k * apart(s->room, channels) + (size_t)(i - i % mr) * channels +
                             c * mr + 4 * (i % mr),
                         (quad){0});
}

/* The products at all places of the tiles of a round; u, m: of all columns, or of one panel. */
static void multiply(const stage *s, const tile_round *round, const float *u, float *m) {
    const gemm_kernel *g = s->g;
    int channels = s->in.c, places = s->form->places, begin, end;
    for (int k = 0; k < places; k++, m += apart(s->room, s->columns)) {
        round_at_place(&s->tiles, round, k, &begin, &end);
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

/* Outputs of the tiles of region k in a round, channels [c0,c1), from m.  The first row of m is the
 * first tile of the round, its first column channel `base`.  sums: [2][c_out], added to, or
 * NULL. */
static void output_region(const stage *s, const float *m, int base, const tile_round *round, int k,
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

/* The same for all regions; sums: [2][c_out] of these tiles, or NULL. */
static void output_channels(const stage *s, const float *m, int base, const tile_round *round,
                            int c0, int c1, const float *shift, float *sums) {
    for (int c = c0; sums && c < c1; c++) sums[c] = sums[s->c_out + c] = 0;
    for (int k = 0; k < s->tiles.regions; k++)
        output_region(s, m, base, round, k, c0, c1, shift, sums);
}

/* partial: [blocks][2][c_out], or NULL if no sums are wanted. */
static void run_blocks(const stage *all, int threads, const float *shift, float *partial) {
    int blocks = block_count(all);
#pragma omp parallel num_threads(threads)
    {
        stage s = *all; /* with the memory of this thread */
        s.v += omp_get_thread_num() * v_floats(&s);
        s.m += omp_get_thread_num() * m_floats(&s);
#pragma omp for schedule(dynamic)
        for (int b = 0; b < blocks; b++) {
            tile_round r = block_at(&s, b);
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
    tile_round all = round_of(&s->tiles, 0, total); /* of the only region */
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
                tile_round r = round_of(&s->tiles, first, last);
                output_channels(s, m + (size_t)first * nr, panel, &r, panel,
                                least(panel + nr, s->c_out), shift,
                                partial ? partial + (size_t)g * 2 * s->c_out : NULL);
            }
        }
    }
}

/* Runs all tiles, in blocks of at most s->room.  Partial sums go to the end of the workspace;
 * returns where. */
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

/* ---- workspace ------------------------------------------------------------------------------- */

size_t winograd_workspace(cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    stage forward = stage_of(p, true), data = stage_of(p, false);
    /* few tiles are one block per group */
    p->tiles.blocks = forward.few ? s->groups : block_count(&forward);
    size_t sums = (size_t)p->tiles.blocks * 2 * s->co;
    return most(stage_floats(&forward, p->threads) + sums,
                most(stage_floats(&data, p->threads), winograd_gradient_workspace(p)));
}
