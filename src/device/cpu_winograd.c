/* cpu_winograd.c: 3x3 convolutions of stride 1 by Winograd's F(4x4,3x3) (Lavin & Gray, 2016).
 *
 * A tile of 4x4 outputs comes from 6x6 inputs.  Both sides are transformed, tile -> B'dB and filter
 * -> GgG'; then each of the 36 places is a matrix product over channels, [tiles,ci] x [ci,co], and
 * A'mA brings the 36 products back to 4x4 outputs: 36 multiplications where the definition needs
 * 144.  The data gradient is the same with the filter turned by 180 degrees.  The filter gradient
 * sums over tiles: (A dy A') x (B'dB) at each place, and G'(.)G brings 6x6 back to 3x3.
 *
 * A thread takes a block of tiles, small enough for its own caches, through all steps.  Where there
 * are few tiles (a small batch of small maps) the filters are the larger side by far: then a thread
 * takes a panel of outputs through all steps, and transformed filters never leave its cache.  No
 * sum is shared between threads.  Error: a few times that of a direct sum (see the case list), from
 * the transforms' constants 1/24 .. 8. */
#include "device/cpu_conv.h"

#include "base/memory.h"
#include "device/cpu_quad.h"

#include <omp.h>
#include <string.h>

enum {
    PLACES = 36,
    RUN = GEMM_MR,       /* tiles of a row of tiles that are transformed together, at most */
    STRIP = 4 * RUN + 2, /* columns of pixels under them */
    FEW = 128,           /* tiles in all, up to which filters are the larger side */
    MOST_CHANNELS = 4096,
    BLOCK_FLOATS = 1 << 18, /* of a block's transformed input and output: a second cache's worth */
    BLOCK_PANELS = 4,       /* at most, so that there are blocks for all threads */
    /* The filter gradient of few channels is summed in PARTS parts, each by one thread in rounds of
     * PART_TILES tiles; of many channels by all threads in rounds of CHUNK_FLOATS. */
    PARTS = 16,
    PART_TILES = 128,
    PART_FLOATS = 5 << 18, /* of all parts' sums */
    CHUNK_FLOATS = 1 << 21
};

#define ALL    _Pragma("GCC unroll 36")
#define LOOP   _Pragma("GCC unroll 1") /* unrolled it would not fit the registers */
#define INLINE static inline __attribute__((always_inline))

/* Floats from one place to the next.  A cache line more than needed: the numbers of a tile at the
 * 36 places are touched together, and at a distance of a power of two they would all want the same
 * few lines of the cache. */
static size_t apart(int rows, int columns) { return (size_t)rows * columns + 16; }

bool winograd_fits(const conv_shape *s) {
    bool shape = s->k == 3 && s->stride == 1 && s->pad == 1 && s->h >= 4 && s->w >= 4;
    /* below 16 channels the transforms cost more than the products save */
    return shape && s->ci % 4 == 0 && s->co % 4 == 0 && s->ci >= 16 && s->co >= 16 &&
           s->ci <= MOST_CHANNELS && s->co <= MOST_CHANNELS;
}

/* ---- the four transforms, in one dimension --------------------------------------------------- */

/* B': six inputs to six places */
INLINE void input_line(const quad d[6], quad o[6]) {
    quad a = d[4] - 4.f * d[2], b = d[3] - 4.f * d[1], c = d[4] - d[2], e = d[3] - d[1];
    o[0] = c + 4.f * (d[0] - d[2]);
    o[5] = (d[5] - d[3]) - 4.f * e;
    e += e;
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
}

/* A': six places to four outputs */
INLINE void output_line(const quad m[6], quad o[4]) {
    quad s = m[1] + m[2], d = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
    o[0] = m[0] + s + s2;
    o[1] = d + 2.f * d2;
    o[2] = s + 4.f * s2;
    o[3] = d + 8.f * d2 + m[5];
}

/* A: four outputs' gradients to six places */
INLINE void gradient_line(const quad d[4], quad o[6]) {
    quad s = d[0] + d[2], q = d[1] + d[3], u = d[0] + 4.f * d[2], w = 2.f * d[1] + 8.f * d[3];
    o[0] = d[0];
    o[1] = s + q;
    o[2] = s - q;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = d[3];
}

/* G: three weights to six places */
INLINE void filter_line(const quad g[3], quad o[6]) {
    quad e = (g[0] + g[2]) * (-1.f / 6), f = g[1] * (1.f / 6);
    quad u = g[0] * (1.f / 24) + g[2] * (1.f / 6), w = g[1] * (1.f / 12);
    o[0] = g[0] * .25f;
    o[1] = e - f;
    o[2] = e + f;
    o[3] = u + w;
    o[4] = u - w;
    o[5] = g[2];
}

/* G': six places to three weights' gradients */
INLINE void filter_back_line(const quad c[6], quad o[3]) {
    quad s = (c[1] + c[2]) * (1.f / 6), d = (c[2] - c[1]) * (1.f / 6), u = c[3] + c[4],
         w = c[3] - c[4];
    o[0] = .25f * c[0] - s + u * (1.f / 24);
    o[1] = d + w * (1.f / 12);
    o[2] = u * (1.f / 6) - s + c[5];
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Where tiles lie in a map [n,h,w,.]; tile t is (image, 4*row, 4*column). */
typedef struct tiling {
    int n, h, w, down, across;
} tiling;

static tiling tiling_of(const conv_shape *s) {
    return (tiling){s->n, s->h, s->w, (s->h + 3) / 4, (s->w + 3) / 4};
}

static int tile_count(const tiling *t) { return t->n * t->down * t->across; }

typedef struct tile {
    size_t image; /* pixels before this image */
    int y, x;     /* the first output */
} tile;

static tile tile_at(const tiling *t, int i) {
    int in_image = t->down * t->across, image = i / in_image, rest = i % in_image;
    return (tile){(size_t)image * t->h * t->w, rest / t->across * 4, rest % t->across * 4};
}

static const float zeros[MOST_CHANNELS]; /* a pixel outside the map */

/* Tiles side by side, transformed in two steps: first down the columns of the pixels under them,
 * which they partly share, into a strip of columns; then across, tile by tile. */
typedef struct column {
    quad at[6];
} column;

typedef struct tile_run {
    int tiles;
    int first, columns;  /* of the strip: those inside the map; the others are zero */
    const float *row[6]; /* their first pixel, in each row of pixels */
    ptrdiff_t step[6];   /* from pixel to pixel; 0: a row outside the map */
} tile_run;

/* The run from tile i on, up to tile `last` at most.  A tile looks at side x side pixels, from
 * `margin` before its first output on. */
static tile_run run_from(const tiling *g, const float *map, int channels, int i, int last,
                         int margin, int side, column strip[STRIP]) {
    tile t = tile_at(g, i);
    tile_run r = {.tiles = least(least(RUN, last - i), g->across - t.x / 4)};
    int total = 4 * (r.tiles - 1) + side, x = t.x - margin, y = t.y - margin;
    r.first = x < 0 ? -x : 0;
    r.columns = least(total, g->w - x) - r.first;
    memset(strip, 0, (size_t)r.first * sizeof *strip);
    int end = r.first + r.columns;
    memset(strip + end, 0, (size_t)(total - end) * sizeof *strip);
    for (int k = 0; k < side; k++) {
        bool inside = y + k >= 0 && y + k < g->h;
        size_t pixel = t.image + (size_t)(inside ? y + k : 0) * g->w + (x + r.first);
        r.row[k] = inside ? map + pixel * channels : zeros;
        r.step[k] = inside ? channels : 0;
    }
    return r;
}

/* B'd of channels c..c+3 */
static void input_columns(const tile_run *r, int c, column *strip) {
    const float *row[6];
    ptrdiff_t step[6];
    ALL for (int k = 0; k < 6; k++) row[k] = r->row[k] + c, step[k] = r->step[k];
    LOOP for (int x = r->first; x < r->first + r->columns; x++) {
        quad d[6];
        ALL for (int k = 0; k < 6; k++) d[k] = quad_at(row[k]), row[k] += step[k];
        input_line(d, strip[x].at);
    }
}

/* (B'd)B of the tile over these columns: 36 quads, each `next` floats from the one before. */
static inline void input_tile(const column *strip, float *to, size_t next) {
    LOOP for (int y = 0; y < 6; y++) {
        quad d[6], o[6];
        ALL for (int x = 0; x < 6; x++) d[x] = strip[x].at[y];
        input_line(d, o);
        ALL for (int x = 0; x < 6; x++, to += next) quad_put(to, o[x]);
    }
}

/* A dy and (A dy)A' likewise, from 4x4. */
static void gradient_columns(const tile_run *r, int c, column *strip) {
    const float *row[4];
    ptrdiff_t step[4];
    ALL for (int k = 0; k < 4; k++) row[k] = r->row[k] + c, step[k] = r->step[k];
    LOOP for (int x = r->first; x < r->first + r->columns; x++) {
        quad d[4];
        ALL for (int k = 0; k < 4; k++) d[k] = quad_at(row[k]), row[k] += step[k];
        gradient_line(d, strip[x].at);
    }
}

static inline void gradient_tile(const column *strip, float *to, size_t next) {
    LOOP for (int y = 0; y < 6; y++) {
        quad d[4], o[6];
        ALL for (int x = 0; x < 4; x++) d[x] = strip[x].at[y];
        gradient_line(d, o);
        ALL for (int x = 0; x < 6; x++, to += next) quad_put(to, o[x]);
    }
}

/* ---- filters --------------------------------------------------------------------------------- */

/* GgG' of four filters at once: g[9] -> u[36] */
static inline void transform_filter(const quad g[9], quad u[36]) {
    quad m[6][3];
    ALL for (int x = 0; x < 3; x++) {
        quad column[3] = {g[x], g[3 + x], g[6 + x]}, o[6];
        filter_line(column, o);
        ALL for (int y = 0; y < 6; y++) m[y][x] = o[y];
    }
    ALL for (int y = 0; y < 6; y++) filter_line(m[y], u + y * 6);
}

/* A layer's filters between c_in and c_out channels, as right-hand panels at each place:
 * u[36][panels of nr outputs][c_in][nr].  Number (tap t, in i, out o) of the filter stands at
 * w[t * tap_step + i * in_step + o * out_step]; one of the last two steps is 1. */
typedef struct filters {
    const float *w;
    int c_in, c_out, nr;
    ptrdiff_t tap_step, in_step, out_step;
    bool turned; /* by 180 degrees */
} filters;

/* Filters from inputs i..i+3 to outputs o..o+3: g[input][tap], a quad over the outputs. */
static inline void load_filters(const filters *f, int i, int o, quad g[4][9]) {
    const float *from = f->w + i * f->in_step + o * f->out_step;
    for (int t = 0; t < 9; t++, from += f->tap_step) {
        int at = f->turned ? 8 - t : t;
        quad r[4];
        if (f->out_step == 1) {
            ALL for (int j = 0; j < 4; j++) r[j] = quad_at(from + j * f->in_step);
        } else {
            ALL for (int j = 0; j < 4; j++) r[j] = quad_at(from + j * f->out_step);
            quad_transpose(r);
        }
        ALL for (int j = 0; j < 4; j++) g[j][at] = r[j];
    }
}

/* The filters to outputs [panel, panel + nr): to[36][c_in][nr], `place` floats between places. */
static void transform_panel(const filters *f, int panel, float *to, size_t place) {
    for (int i = 0; i < f->c_in; i += 4)
        for (int o = panel; o < panel + f->nr; o += 4) {
            quad g[4][9] = {{{0}}}, m[36];
            if (o < f->c_out) load_filters(f, i, o, g);
            for (int j = 0; j < 4; j++) {
                float *at = to + (size_t)(i + j) * f->nr + o - panel;
                transform_filter(g[j], m);
                ALL for (int k = 0; k < PLACES; k++) quad_put(at + k * place, m[k]);
            }
        }
}

static void transform_filters(const filters *f, int threads, float *u) {
    int columns = round_up(f->c_out, f->nr);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int panel = 0; panel < columns; panel += f->nr)
        transform_panel(f, panel, u + (size_t)panel * f->c_in, apart(f->c_in, columns));
}

/* ---- forward and data gradient --------------------------------------------------------------- */

/* Tiles of a block: whole panels, so many that a block's numbers stay in the caches. */
static int block_tiles(int c_in, int c_out, int mr) {
    int panels = BLOCK_FLOATS / (PLACES * (c_in + c_out)) / mr;
    return mr * (panels < 1 ? 1 : least(panels, BLOCK_PANELS));
}

/* Everything a block passes through. */
typedef struct stage {
    const gemm_kernel *g;
    tiling tiles;
    int c_in, c_out, room; /* room: tiles that v and m have place for, a multiple of mr */
    const float *in;       /* [n,h,w,c_in] */
    float *out;            /* [n,h,w,c_out] */
    bool add;
    float *u;    /* filters, as above; few tiles: one panel of them for each thread */
    float *v;    /* [36][panels of mr tiles][c_in in quads][mr], for each thread; few tiles: once */
    float *m;    /* [36][room][columns], for each thread */
    int columns; /* c_out, a multiple of nr; few tiles: nr */
} stage;

/* Tiles first + panel .. of the block [first,last), transformed, as a panel; zeros behind the last
 * tile. */
static void input_panel(const stage *s, int first, int last, int panel) {
    int mr = s->g->mr, from = first + panel, end = least(from + mr, last);
    size_t place = apart(s->room, s->c_in);
    float *to = s->v + (size_t)panel * s->c_in;
    column strip[STRIP];
    for (int i = from; i < end;) {
        tile_run r = run_from(&s->tiles, s->in, s->c_in, i, end, 1, 6, strip);
        for (int c = 0; c < s->c_in; c += 4) {
            input_columns(&r, c, strip);
            for (int t = 0; t < r.tiles; t++)
                input_tile(strip + 4 * t, to + c * mr + 4 * (i - from + t), place);
        }
        i += r.tiles;
    }
    for (int i = end; i < from + mr; i++)
        for (int k = 0; k < PLACES; k++)
            for (int c = 0; c < s->c_in; c += 4)
                quad_put(to + k * place + c * mr + 4 * (i - from), (quad){0});
}

/* Products at place k; u, m: of all columns, or of one panel. */
static void multiply_place(const stage *s, int k, int tiles, const float *u, float *m) {
    const gemm_kernel *g = s->g;
    const float *v = s->v + k * apart(s->room, s->c_in);
    u += k * apart(s->c_in, s->columns);
    m += k * apart(s->room, s->columns);
    for (int o = 0; o < s->columns; o += g->nr)
        for (int r = 0; r < tiles; r += g->mr)
            g->run_quads(s->c_in, v + (size_t)r * s->c_in, u + (size_t)o * s->c_in,
                         m + (size_t)r * s->columns + o, s->columns, false);
}

/* A'mA of one tile, four channels, from 36 quads, `next` floats from one to the next: its first
 * rows x columns go to (are added to) pixels `row` and `pixel` floats apart.  Where sums are
 * wanted, they are counted about `about`. */
INLINE void output_tile(const float *from, size_t next, int rows, int columns, float *to,
                        size_t row, size_t pixel, bool add, bool sums, quad about, quad *sum,
                        quad *squares) {
    quad m[6][4];
    LOOP for (int x = 0; x < 6; x++, from += next) {
        quad d[6];
        ALL for (int y = 0; y < 6; y++) d[y] = quad_at(from + y * 6 * next);
        output_line(d, m[x]);
    }
    LOOP for (int y = 0; y < rows; y++, to += row) {
        quad d[6], o[4];
        ALL for (int x = 0; x < 6; x++) d[x] = m[x][y];
        output_line(d, o);
        ALL for (int x = 0; x < 4; x++) {
            if (x >= columns) break;
            if (add) o[x] += quad_at(to + x * pixel);
            quad_put(to + x * pixel, o[x]);
            if (!sums) continue;
            o[x] -= about;
            *sum += o[x];
            *squares += o[x] * o[x];
        }
    }
}

/* Outputs of tiles [first,last), channels [c0,c1), from m, whose first row is tile `first` and
 * whose first column is channel `base`; sums: [2][c_out] of these tiles, or NULL. */
INLINE void output_some(const stage *s, const float *m, int base, int first, int last, int c0,
                        int c1, const float *shift, float *sums, bool has_sums, bool add) {
    size_t place = apart(s->room, s->columns), pixel = (size_t)s->c_out, row = pixel * s->tiles.w;
    for (int i = first; i < last; i++, m += s->columns) {
        tile t = tile_at(&s->tiles, i);
        int rows = least(4, s->tiles.h - t.y), columns = least(4, s->tiles.w - t.x);
        float *to = s->out + (t.image + (size_t)t.y * s->tiles.w + t.x) * pixel;
        for (int c = c0; c < c1; c += 4) {
            quad about = {0}, sum = {0}, squares = {0};
            if (has_sums) about = quad_at(shift + c);
            output_tile(m + c - base, place, rows, columns, to + c, row, pixel, add, has_sums,
                        about, &sum, &squares);
            if (!has_sums) continue;
            quad_put(sums + c, quad_at(sums + c) + sum);
            quad_put(sums + s->c_out + c, quad_at(sums + s->c_out + c) + squares);
        }
    }
}

static void output_channels(const stage *s, const float *m, int base, int first, int last, int c0,
                            int c1, const float *shift, float *sums) {
    if (sums) {
        for (int c = c0; c < c1; c++) sums[c] = sums[s->c_out + c] = 0;
        output_some(s, m, base, first, last, c0, c1, shift, sums, true, false);
    } else if (s->add) {
        output_some(s, m, base, first, last, c0, c1, NULL, NULL, false, true);
    } else {
        output_some(s, m, base, first, last, c0, c1, NULL, NULL, false, false);
    }
}

/* partial: [blocks][2][c_out] where sums are wanted, else NULL. */
static void run_blocks(const stage *all, const conv_blocks *blocks, int threads, const float *shift,
                       float *partial) {
#pragma omp parallel num_threads(threads)
    {
        stage s = *all; /* with memory of this thread's own */
        s.v += omp_get_thread_num() * PLACES * apart(s.room, s.c_in);
        s.m += omp_get_thread_num() * PLACES * apart(s.room, s.columns);
#pragma omp for schedule(dynamic)
        for (int b = 0; b < blocks->blocks; b++) {
            int first, last, mr = s.g->mr;
            conv_block_range(blocks, b, &first, &last);
            int tiles = round_up(last - first, mr);
            for (int panel = 0; panel < tiles; panel += mr) input_panel(&s, first, last, panel);
            for (int k = 0; k < PLACES; k++) multiply_place(&s, k, tiles, s.u, s.m);
            output_channels(&s, s.m, 0, first, last, 0, s.c_out, shift,
                            partial ? partial + (size_t)b * 2 * s.c_out : NULL);
        }
    }
}

/* The same for few tiles: all of them at once, outputs panel by panel. */
static void run_few(const stage *s, const filters *f, const conv_blocks *blocks, int threads,
                    const float *shift, float *partial) {
    int total = tile_count(&s->tiles), mr = s->g->mr, nr = s->g->nr;
    size_t u_place = apart(s->c_in, nr), m_place = apart(s->room, nr);
#pragma omp parallel num_threads(threads)
    {
        float *u = s->u + omp_get_thread_num() * PLACES * u_place;
        float *m = s->m + omp_get_thread_num() * PLACES * m_place;
#pragma omp for schedule(static)
        for (int panel = 0; panel < total; panel += mr) input_panel(s, 0, total, panel);
#pragma omp for schedule(dynamic)
        for (int panel = 0; panel < s->c_out; panel += nr) {
            transform_panel(f, panel, u, u_place);
            for (int k = 0; k < PLACES; k++) multiply_place(s, k, round_up(total, mr), u, m);
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

/* Runs all tiles from in to out, in blocks of at most `room`; partial sums go behind the rest of
 * the workspace and their place is returned. */
static float *run(const cpu_plan *p, stage *s, const filters *f, const conv_blocks *blocks,
                  int room, const float *shift, bool sums, float *work) {
    s->g = p->g;
    s->tiles = tiling_of(&p->base.s);
    s->c_in = f->c_in, s->c_out = f->c_out;
    int total = tile_count(&s->tiles);
    bool few = total <= FEW;
    size_t threads = (size_t)p->threads;
    s->room = few ? round_up(total, p->g->mr) : room;
    s->columns = few ? p->g->nr : round_up(f->c_out, p->g->nr);
    s->u = work;
    s->v = s->u + (few ? threads : 1) * PLACES * apart(s->c_in, s->columns);
    s->m = s->v + (few ? 1 : threads) * PLACES * apart(s->room, s->c_in);
    float *partial = s->m + threads * PLACES * apart(s->room, s->columns);
    if (few) {
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
    filters f = {.w = w,
                 .c_in = c->ci,
                 .c_out = c->co,
                 .nr = p->g->nr,
                 .tap_step = c->ci,
                 .in_step = 1,
                 .out_step = 9 * c->ci};
    stage s = {.in = x, .out = y};
    int room = p->tiles.size;
    float *partial = run(p, &s, &f, &p->tiles, room, shift, sums != NULL, work);
    if (sums) conv_fold_sums(&p->tiles, c->groups, c->co, partial, sums, p->threads);
}

void winograd_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                        float *work) {
    const conv_shape *c = &p->base.s;
    filters f = {.w = w,
                 .c_in = c->co,
                 .c_out = c->ci,
                 .nr = p->g->nr,
                 .tap_step = c->ci,
                 .in_step = 9 * c->ci,
                 .out_step = 1,
                 .turned = true};
    stage s = {.in = dy, .out = dx, .add = add};
    tiling t = tiling_of(c);
    int room = block_tiles(c->co, c->ci, p->g->mr);
    conv_blocks blocks = conv_blocks_make(1, tile_count(&t), room);
    run(p, &s, &f, &blocks, room, NULL, false, work);
}

/* ---- filter gradient ------------------------------------------------------------------------- */

/* dw[9][ci] of one filter (+)= G'(.)G of c[36][columns], four channels at a time. */
static void filter_back(const float *c, size_t place, int ci, bool add, float *dw) {
    for (int j = 0; j < ci; j += 4) {
        quad m[3][6];
        const float *from = c + j;
        ALL for (int x = 0; x < 6; x++) {
            quad column[6], out[3];
            ALL for (int y = 0; y < 6; y++) column[y] = *(const quad *)(from + (y * 6 + x) * place);
            filter_back_line(column, out);
            ALL for (int y = 0; y < 3; y++) m[y][x] = out[y];
        }
        ALL for (int y = 0; y < 3; y++) {
            quad out[3];
            filter_back_line(m[y], out);
            ALL for (int x = 0; x < 3; x++) {
                quad *to = (quad *)(dw + (y * 3 + x) * ci + j);
                if (add) out[x] += *to;
                *to = out[x];
            }
        }
    }
}

/* Panels of `width` channels, [36][panels][room tiles][width]: where quad c of tile t stands. */
static size_t panel_place(int c, int width, int room, int t) {
    return ((size_t)(c / width) * room + t) * width + c % width;
}

/* Both sides of the sum over tiles. */
typedef struct gradient {
    const gemm_kernel *g;
    const conv_shape *s;
    tiling tiles;
    int room, rows, columns; /* tiles; co and ci, whole panels */
    const float *x, *dy;
    float *v, *d; /* [36][panels][room][nr or mr] */
} gradient;

/* A tile's gradient at channels c..c+3 into panels; a panel of, say, 14 channels may end amid a
 * quad. */
static inline void put_gradient(const gradient *g, const column *strip, int c, int t) {
    int width = g->g->mr;
    size_t place = apart(g->room, g->rows);
    if (c % width + 4 <= width) {
        gradient_tile(strip, g->d + panel_place(c, width, g->room, t), place);
        return;
    }
    float m[4 * PLACES];
    gradient_tile(strip, m, 4);
    for (int j = 0; j < 4; j++) {
        float *to = g->d + panel_place(c + j, width, g->room, t);
        for (int k = 0; k < PLACES; k++) to[k * place] = m[4 * k + j];
    }
}

/* Tiles [i,end), transformed on both sides; tile `first` has the first row of v and d. */
static void transform_both(const gradient *g, int first, int i, int end) {
    size_t place = apart(g->room, g->columns);
    column strip[STRIP];
    while (i < end) {
        tile_run in = run_from(&g->tiles, g->x, g->s->ci, i, end, 1, 6, strip);
        for (int c = 0; c < g->s->ci; c += 4) {
            float *to = g->v + panel_place(c, g->g->nr, g->room, i - first);
            input_columns(&in, c, strip);
            for (int t = 0; t < in.tiles; t++)
                input_tile(strip + 4 * t, to + (size_t)t * g->g->nr, place);
        }
        tile_run out = run_from(&g->tiles, g->dy, g->s->co, i, end, 0, 4, strip);
        for (int c = 0; c < g->s->co; c += 4) {
            gradient_columns(&out, c, strip);
            for (int t = 0; t < out.tiles; t++) put_gradient(g, strip + 4 * t, c, i - first + t);
        }
        i += in.tiles;
    }
}

/* Products at place k of n tiles: outputs [o, o + mr) with inputs [j, j + nr), onto c. */
static void multiply_tiles(const gradient *g, int k, int o, int j, int n, float *c, bool add) {
    const float *v = g->v + k * apart(g->room, g->columns) + (size_t)j * g->room;
    const float *d = g->d + k * apart(g->room, g->rows) + (size_t)o * g->room;
    g->g->run(n, d, v, c + j, g->columns, add);
}

/* Few tiles: a panel of filters goes through all steps at once.  c: [36][mr][columns] a thread. */
static void gradient_few(const gradient *g, int total, bool add, float *dw, int threads, float *c) {
    int mr = g->g->mr;
    size_t place = apart(mr, g->columns);
#pragma omp parallel num_threads(threads)
    {
        float *own = c + omp_get_thread_num() * PLACES * place;
#pragma omp for schedule(static)
        for (int i = 0; i < total; i += RUN) transform_both(g, 0, i, least(total, i + RUN));
#pragma omp for schedule(dynamic)
        for (int o = 0; o < g->s->co; o += mr) {
            for (int k = 0; k < PLACES; k++)
                for (int j = 0; j < g->columns; j += g->g->nr)
                    multiply_tiles(g, k, o, j, total, own + k * place, false);
            for (int r = 0; r < least(mr, g->s->co - o); r++)
                filter_back(own + (size_t)r * g->columns, place, g->s->ci, add,
                            dw + (size_t)(o + r) * 9 * g->s->ci);
        }
    }
}

/* In parts; c: [parts][36][rows][columns], which are added up in order. */
static void gradient_parts(const gradient *all, int total, int parts, bool add, float *dw,
                           int threads, float *c) {
    size_t place = apart(all->rows, all->columns);
#pragma omp parallel num_threads(threads)
    {
        gradient g = *all; /* with memory of this thread's own */
        g.v += omp_get_thread_num() * PLACES * apart(g.room, g.columns);
        g.d += omp_get_thread_num() * PLACES * apart(g.room, g.rows);
#pragma omp for schedule(dynamic)
        for (int part = 0; part < parts; part++) {
            int begin = (int)((long)total * part / parts);
            int end = (int)((long)total * (part + 1) / parts);
            for (int first = begin; first < end; first += g.room) {
                int last = least(end, first + g.room);
                transform_both(&g, first, first, last);
                for (int k = 0; k < PLACES; k++)
                    for (int j = 0; j < g.columns; j += g.g->nr)
                        for (int o = 0; o < g.rows; o += g.g->mr)
                            multiply_tiles(&g, k, o, j, last - first,
                                           c + (part * PLACES + k) * place + (size_t)o * g.columns,
                                           first > begin);
            }
        }
#pragma omp for schedule(static)
        for (int o = 0; o < g.s->co; o++) {
            float *sum = c + (size_t)o * g.columns;
            for (int k = 0; k < PLACES; k++)
                for (int part = 1; part < parts; part++) {
                    const float *more = sum + (part * PLACES + k) * place;
                    for (int j = 0; j < g.columns; j++) sum[k * place + j] += more[j];
                }
            filter_back(sum, place, g.s->ci, add, dw + (size_t)o * 9 * g.s->ci);
        }
    }
}

/* Chunk by chunk; c: [36][rows][columns], the whole gradient. */
static void gradient_chunks(const gradient *g, int total, bool add, float *dw, int threads,
                            float *c) {
    size_t place = apart(g->rows, g->columns);
#pragma omp parallel num_threads(threads)
    {
        for (int first = 0; first < total; first += g->room) {
            int n = least(g->room, total - first);
#pragma omp for schedule(static)
            for (int i = first; i < first + n; i += RUN)
                transform_both(g, first, i, least(first + n, i + RUN));
#pragma omp for schedule(static)
            for (int k = 0; k < PLACES; k++)
                for (int j = 0; j < g->columns; j += g->g->nr)
                    for (int o = 0; o < g->rows; o += g->g->mr)
                        multiply_tiles(g, k, o, j, n, c + k * place + (size_t)o * g->columns,
                                       first > 0);
        }
#pragma omp for schedule(static)
        for (int o = 0; o < g->s->co; o++)
            filter_back(c + (size_t)o * g->columns, place, g->s->ci, add,
                        dw + (size_t)o * 9 * g->s->ci);
    }
}

/* How the sum over tiles is taken. */
typedef struct gradient_plan {
    bool few;
    int parts;     /* 1: chunks */
    int room;      /* tiles at a time */
    size_t copies; /* of v and d */
    size_t sums;   /* floats of all c */
} gradient_plan;

static gradient_plan plan_gradient(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    tiling t = tiling_of(s);
    int total = tile_count(&t), mr = p->g->mr;
    int rows = round_up(s->co, mr), columns = round_up(s->ci, p->g->nr);
    size_t sums = PLACES * apart(rows, columns);
    if (total <= FEW)
        return (gradient_plan){true, 1, total, 1, p->threads * PLACES * apart(mr, columns)};
    int parts = 1;
    while (2 * parts <= PARTS && 2 * parts * sums <= PART_FLOATS && 128 * parts <= total)
        parts *= 2;
    if (parts > 1)
        return (gradient_plan){false, parts, PART_TILES, (size_t)p->threads, parts * sums};
    int panels = CHUNK_FLOATS / (PLACES * (s->ci + s->co)) / mr;
    return (gradient_plan){false, 1, mr * (panels < 4 ? 4 : panels), 1, sums};
}

void winograd_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                          float *work) {
    const conv_shape *s = &p->base.s;
    gradient_plan how = plan_gradient(p);
    gradient g = {.g = p->g,
                  .s = s,
                  .tiles = tiling_of(s),
                  .room = how.room,
                  .rows = round_up(s->co, p->g->mr),
                  .columns = round_up(s->ci, p->g->nr),
                  .x = x,
                  .dy = dy};
    int total = tile_count(&g.tiles);
    g.v = work;
    g.d = g.v + how.copies * PLACES * apart(g.room, g.columns);
    float *c = g.d + how.copies * PLACES * apart(g.room, g.rows);
    if (s->ci < g.columns || s->co < g.rows) /* zeros beyond the channels */
        memset(work, 0, (size_t)(c - work) * sizeof *work);
    if (how.few)
        gradient_few(&g, total, add, dw, p->threads, c);
    else if (how.parts > 1)
        gradient_parts(&g, total, how.parts, add, dw, p->threads, c);
    else
        gradient_chunks(&g, total, add, dw, p->threads, c);
}

/* ---- workspace ------------------------------------------------------------------------------- */

static size_t stage_floats(const cpu_plan *p, int c_in, int c_out, int room, bool few) {
    int columns = few ? p->g->nr : round_up(c_out, p->g->nr);
    size_t threads = (size_t)p->threads, u = few ? threads : 1, v = few ? 1 : threads;
    return PLACES *
           (u * apart(c_in, columns) + v * apart(room, c_in) + threads * apart(room, columns));
}

size_t winograd_workspace(cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    const gemm_kernel *g = p->g;
    tiling t = tiling_of(s);
    int total = tile_count(&t), rows = round_up(s->co, g->mr), columns = round_up(s->ci, g->nr);
    int room = block_tiles(s->ci, s->co, g->mr);
    bool few = total <= FEW;
    p->tiles = conv_blocks_make(s->groups, total / s->groups, room);
    if (few) room = round_up(total, g->mr);
    size_t forward = stage_floats(p, s->ci, s->co, room, few) + (size_t)p->tiles.blocks * 2 * s->co;
    size_t data = stage_floats(p, s->co, s->ci, room, few);
    gradient_plan how = plan_gradient(p);
    size_t filter =
        how.copies * PLACES * (apart(how.room, rows) + apart(how.room, columns)) + how.sums;
    return most(forward, most(data, filter));
}
