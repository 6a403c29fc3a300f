/* winograd_gradient.c: the filter gradient of 3x3 convolutions by the Winograd forms.  Between the
 * transforms each place is a matrix product over tiles, [co,tiles] x [tiles,ci]. */
#include "device/cpu/winograd_tiles.h"

#include "base/memory.h"
#include "kernels/quad.h"

#include <omp.h>
#include <string.h>

enum {
    /* With few channels, tiles are summed in up to PARTS parts of at least PART_LEAST tiles, each
     * by one thread in rounds of at most PART_PANELS panels of tiles and PART_ROOM floats; with
     * many channels, by all threads in rounds of CHUNK_FLOATS. */
    PARTS = 8,
    PART_LEAST = 64,
    PART_PANELS = 16,
    PART_ROOM = 1 << 20,
    PART_SUMS = 3 << 17,   /* most floats of the sums of a part: they stay in the L2 cache */
    PART_FLOATS = 5 << 18, /* most floats of the sums of all parts */
    CHUNK_FLOATS = 1 << 21,
    ROWS = 8 /* many channels: panels of outputs that a thread takes at a time */
};

/* Both sides of the sum over tiles. */
typedef struct gradient {
    const gradient_form *form;
    const gemm_kernel *g;
    tiling tiles;
    map x, dy;
    int total, rows, columns; /* tiles; co and ci rounded up to whole panels */
    bool few;
    int parts; /* number of parts that the tiles are summed in */
    int room;  /* tiles at a time */
    /* [places][panels][room][nr or mr]; per thread if there are several parts */
    float *v, *d;
    /* [filters][rows][columns] per part; few tiles: [filters][mr][columns] per thread */
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

/* Only the sizes. */
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
    g.few = (double)g.total * g.form->places <= WINOGRAD_FEW;
    if (g.few) {
        g.room = g.total;
        return g;
    }
    if (tiling_six_fits(p)) {
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
    /* with edges, rounds are whole maps */
    int unit = g.tiles.regions > 1 ? tiles_of_map(&g.tiles) : FORM_RUN;
    g.room = g.room < unit ? unit : g.room / unit * unit;
    /* somewhat smaller rounds that are all full are better than a last one that is not */
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

/* A run of gradients at channels c..c+3 into panels; a panel of, say, 14 channels may end inside a
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

/* Transforms tiles [i,end) of a round on both sides. */
static void transform_both(const gradient *g, const tile_round *round, int i, int end) {
    int mr = g->g->mr, nr = g->g->nr;
    size_t place = apart(g->room, g->columns);
    column strip[FORM_STRIP];
    while (i < end) {
        int next;
        tile_run x = round_run(&g->tiles, round, &g->x, &g->form->in, i, end, strip, &next);
        for (int t = 0; t < x.tiles; t++) x.at[t] *= nr;
        for (int c = 0; x.tiles && c < g->x.c; c += 4)
            g->form->in.run(&x, c, strip, g->v + panel_place(c, nr, g->room, 0), place);
        tile_run dy = round_run(&g->tiles, round, &g->dy, &g->form->out, i, end, strip, &next);
        for (int t = 0; t < dy.tiles; t++) dy.at[t] *= mr;
        for (int c = 0; dy.tiles && c < g->dy.c; c += 4) put_gradients(g, &dy, strip, c);
        i = next;
    }
}

/* Whether place k is the first of those with the same filter. */
static bool opens_filter(const gradient *g, int k) {
    return g->form->places <= FORM_SIX || (k / 9 <= 5 && k % 9 <= 5);
}

/* Products at place k: outputs [o, end) with all inputs, added to c [outputs][columns]. */
static void multiply_tiles(const gradient *g, const tile_round *round, int k, int o, int end,
                           float *c, bool add) {
    const float *v = g->v + k * apart(g->room, g->columns);
    const float *d = g->d + k * apart(g->room, g->rows);
    int mr = g->g->mr, nr = g->g->nr;
    bool adds = add || !opens_filter(g, k);
    size_t next = (size_t)g->room * nr; /* panel of inputs */
    int begin, n;
    round_at_place(&g->tiles, round, k, &begin, &n);
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

/* Few tiles: a thread takes a panel of filters through all steps. */
static void gradient_few(const gradient *g, bool add, float *dw, int threads) {
    tile_round all = round_of(&g->tiles, 0, g->total);
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

/* Few channels: each thread sums a part of the tiles; the parts are added up in order. */
static void gradient_parts(const gradient *all, bool add, float *dw, int threads) {
    size_t next = apart(all->rows, all->columns);
    int ci = all->x.c, filters = form_filters(all->form->places);
#pragma omp parallel num_threads(threads)
    {
        gradient g = *all; /* with the memory of this thread */
        g.v += omp_get_thread_num() * gradient_v(&g);
        g.d += omp_get_thread_num() * gradient_d(&g);
#pragma omp for schedule(dynamic)
        for (int part = 0; part < g.parts; part++) {
            int unit = tiles_of_map(&g.tiles), maps = g.total / unit; /* whole maps */
            int begin = (int)((long)maps * part / g.parts) * unit;
            int end = (int)((long)maps * (part + 1) / g.parts) * unit;
            for (int first = begin; first < end; first += g.room) {
                int last = least(end, first + g.room);
                tile_round round = round_of(&g.tiles, first, last);
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

/* Many of both: all threads work on the same round of tiles, each on its own filters. */
static void gradient_chunks(const gradient *g, bool add, float *dw, int threads) {
    size_t next = apart(g->rows, g->columns);
    int ci = g->x.c;
#pragma omp parallel num_threads(threads)
    {
        for (int first = 0; first < g->total; first += g->room) {
            int last = least(g->total, first + g->room);
            tile_round round = round_of(&g->tiles, first, last);
#pragma omp for schedule(static, 1) /* some have only edges, and nothing to do */
            for (int i = 0; i < last - first; i += FORM_RUN)
                transform_both(g, &round, i, least(last - first, i + FORM_RUN));
                /* the last filters have the most places, so they go first */
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

size_t winograd_gradient_workspace(const cpu_plan *p) {
    gradient g = gradient_of(p);
    return gradient_floats(&g, p->threads);
}
