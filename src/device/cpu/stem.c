/* stem.c: convolutions of one or three input channels, forward and filter gradient (the data
 * gradient: stem_data.c).
 *
 * A pixel of an image has so few channels that packing them for a matrix product takes longer than
 * the product.  Here rows of the image are only copied, a band at a time and with zeros around, and
 * multiplied in place: the inputs (ky,kx,c) of an output pixel are k stretches of k*ci floats,
 * those of the next pixel stride*ci further on.  The sums for the norm are taken before a tile
 * leaves the registers. */
#include "device/cpu/conv.h"

#include "kernels/isa.h"
#include "kernels/quad.h"

#include <omp.h>
#include <string.h>

enum {
    BAND_PIXELS = 256,      /* most output pixels of a band, unless a single row has more */
    PARTS = 16,             /* the filter gradient is summed in at most this many parts ... */
    PARTS_FLOATS = 1 << 18, /* ... and floats of all parts together */
    SLACK = 4               /* floats read but not used past the last row of a band */
};

/* ---- kernels, once per instruction set ------------------------------------------------------- */

/* Some rows of output pixels of one image, and one panel of outputs (stem_kernel.outputs). */
typedef struct stem_band {
    int rows, pixels;  /* pixels: per row */
    const float *x;    /* the first input of the first pixel */
    int step;          /* floats to that of the next pixel: 1, 2, 3 or 6 */
    size_t x_row;      /* ... and to that of the next row */
    int threes;        /* k*k*ci / 3 */
    const int *offset; /* [threes]: from the first input of a pixel to input 3*i */
    float *y;          /* forward: the outputs; filter gradient: their gradients, only read */
    size_t row, pixel; /* floats from one to the next */
    float *copy;       /* filter gradient: they are copied here, consecutively; NULL: no copy */
    const float *ask;  /* ... and this is prefetched, ask_pixel floats apart; NULL: nothing */
    size_t ask_pixel;
    /* only forward, `outputs` each: */
    const float *w;     /* [3*threes] */
    const float *about; /* sums are taken about these */
    float *sums;        /* [2], or NULL */
} stem_band;

typedef struct stem_kernel {
    int outputs; /* of a panel */
    int lots;    /* of three inputs that the filter gradient takes at a time */
    void (*forward)(const stem_band *b);
    /* dw[3*lots][outputs] += sums over the pixels of the band, for inputs from 3*i on */
    void (*filter)(const stem_band *b, int i, float *dw);
} stem_kernel;

#ifdef __x86_64__
typedef float vector_avx512 VECTOR(16);
#define TARGET   __attribute__((target("avx512f")))
#define NAMED(x) x##_avx512
#define VL       16
#define NV       1
#define MR       8
#define LOTS     3
#define AT_ONCE  1
#include "device/cpu/stem_kernel.h"
typedef float vector_avx2 VECTOR(8);
#define TARGET   __attribute__((target("avx2,fma")))
#define NAMED(x) x##_avx2
#define VL       8
#define NV       2
#define MR       4
#define LOTS     2
#define AT_ONCE  2
#include "device/cpu/stem_kernel.h"
#endif
typedef float vector_four VECTOR(4);
#define TARGET
#define NAMED(x) x##_four
#define VL       4
#define MR       4
#define AT_ONCE  2
#ifdef __aarch64__
#define NV   4
#define LOTS 3
#else
#define NV   2 /* half the registers */
#define LOTS 1
#endif
#include "device/cpu/stem_kernel.h"

/* ---- bands ----------------------------------------------------------------------------------- */

/* What both directions share; sizes in floats. */
typedef struct stem {
    const stem_kernel *kernel;
    const conv_shape *s;
    int oh, ow;
    int lead;   /* in front of a band, so that rows of the image start at multiples of four */
    int line;   /* of a row with the zeros around it */
    int length; /* inputs of an output pixel */
    int padded; /* the same, rounded up to whole lots */
    int panels; /* of outputs */
    int rows;   /* most rows of a band */
    int bands;  /* of all images */
} stem;

/* Rows of the image under this many output rows. */
static int rows_under(const conv_shape *s, int rows) { return (rows - 1) * s->stride + s->k; }

/* In whole cache lines, like all memory of a thread. */
static size_t band_floats(const stem *t) {
    return (size_t)round_up(t->lead + t->line * rows_under(t->s, t->rows) + SLACK, LINE);
}

static stem stem_of(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    stem t = {.kernel = SET_BEST(&kernel_avx512, &kernel_avx2, &kernel_four),
              .s = s,
              .oh = p->base.oh,
              .ow = p->base.ow};
    t.lead = round_up(s->pad * s->ci, 4) - s->pad * s->ci;
    t.line = round_up(((t.ow - 1) * s->stride + s->k) * s->ci, 4);
    t.length = s->k * s->k * s->ci;
    t.padded = round_up(t.length, 3 * t.kernel->lots);
    t.panels = (s->co + t.kernel->outputs - 1) / t.kernel->outputs;
    t.rows = least(t.oh, BAND_PIXELS / t.ow > 1 ? BAND_PIXELS / t.ow : 1);
    t.bands = s->n * ((t.oh + t.rows - 1) / t.rows);
    return t;
}

/* What all threads share: these floats and the offsets, in whole cache lines. */
static size_t shared_floats(const stem *t, size_t floats) {
    return (floats + (size_t)t->padded + LINE - 1) / LINE * LINE;
}

/* The memory of one thread: the rows of a band, a panel that is cut off by the map, and sums. */
static size_t panel_floats(const stem *t) {
    return (size_t)round_up(t->rows * t->ow * t->kernel->outputs, LINE);
}
static size_t forward_floats(const stem *t) {
    return band_floats(t) + panel_floats(t) + (size_t)round_up(2 * t->kernel->outputs, LINE);
}

static void offsets_of(const stem *t, int *offset) {
    int width = t->s->k * t->s->ci;
    for (int l = 0; l <= t->padded; l += 3) { /* past the end: any offset will do */
        int at = l < t->length ? l : 0;
        offset[l / 3] = at / width * t->line + at % width;
    }
}

/* The margins of a band stay zero, so they are zeroed once per thread; their memories are `floats`
 * apart. */
static void zeros_around(const stem *t, int threads, float *own, size_t floats) {
    for (int i = 0; i < threads; i++) memset(own + i * floats, 0, band_floats(t) * sizeof *own);
}

/* So few floats that calling memcpy would double the time. */
INLINE void copy_floats(float *to, const float *from, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) quad_put(to + i, quad_at(from + i));
    for (; i < n; i++) to[i] = from[i];
}

/* Band i of x: copies its rows to `own`, and fills in what does not depend on the outputs. */
static stem_band band_of(const stem *t, const float *x, int i, const int *offset, float *own,
                         int *first_pixel) {
    const conv_shape *s = t->s;
    int in_image = t->bands / s->n, image = i / in_image, first = i % in_image * t->rows;
    stem_band b = {.rows = least(t->rows, t->oh - first),
                   .pixels = t->ow,
                   .x = own + t->lead,
                   .step = s->stride * s->ci,
                   .x_row = (size_t)s->stride * t->line,
                   .offset = offset,
                   .threes = t->length / 3};
    int y = first * s->stride - s->pad, before = s->pad * s->ci;
    int inside = least(s->w * s->ci, t->line - before);
    own += t->lead + before;
    for (int r = 0; r < rows_under(s, b.rows); r++, y++, own += t->line)
        if (y >= 0 && y < s->h)
            copy_floats(own, x + ((size_t)image * s->h + y) * s->w * s->ci, inside);
        else
            memset(own, 0, (size_t)inside * sizeof *own);
    *first_pixel = (image * t->oh + first) * t->ow;
    return b;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One panel of outputs of a band; sums: [2][co], or NULL. */
static void forward_panel(const stem *t, stem_band *b, int panel, int first_pixel, float *y,
                          float *sums, float *own) {
    int outputs = t->kernel->outputs, co = t->s->co, o = panel * outputs;
    int columns = least(outputs, co - o);
    bool whole = columns == outputs;
    float *to = y + (size_t)first_pixel * co + o;
    float *tmp = own + band_floats(t), *both = tmp + panel_floats(t);
    b->sums = sums ? both : NULL;
    b->y = whole ? to : tmp;
    b->pixel = (size_t)(whole ? co : outputs);
    b->row = b->pixel * t->ow;
    t->kernel->forward(b);
    for (int i = 0; !whole && i < b->rows * t->ow; i++)
        memcpy(to + (size_t)i * co, tmp + (size_t)i * outputs, (size_t)columns * sizeof *to);
    for (int i = 0; sums && i < 2; i++)
        memcpy(sums + i * co + o, both + i * outputs, (size_t)columns * sizeof *sums);
}

/* work: weights [panels][length][outputs], shift [panels][outputs], partial sums [bands][2][co],
 * offsets, then the memory of each thread */
void stem_forward(const cpu_plan *p, const float *x, const float *w, float *y, const float *shift,
                  float *sums, float *work) {
    const stem t = stem_of(p);
    int outputs = t.kernel->outputs, all = t.panels * outputs, co = t.s->co;
    float *weights = work, *about = weights + (size_t)t.length * all;
    float *partial = about + all;
    int *offset = (int *)(partial + (size_t)t.bands * 2 * co);
    float *own = work + shared_floats(&t, (size_t)all * (t.length + 1) + (size_t)t.bands * 2 * co);
    offsets_of(&t, offset);
    for (int o = 0; o < co; o += outputs)
        gemm_pack(true, w + (size_t)o * t.length, t.length, least(outputs, co - o), t.length,
                  outputs, weights + (size_t)o * t.length);
    for (int o = 0; o < all; o++) about[o] = sums && o < co ? shift[o] : 0;
    zeros_around(&t, p->threads, own, forward_floats(&t));
#pragma omp parallel for num_threads(p->threads) schedule(dynamic)
    for (int i = 0; i < t.bands; i++) {
        int first;
        float *mine = own + omp_get_thread_num() * forward_floats(&t);
        stem_band b = band_of(&t, x, i, offset, mine, &first);
        for (int panel = 0; panel < t.panels; panel++) {
            b.w = weights + (size_t)panel * t.length * outputs;
            b.about = about + panel * outputs;
            forward_panel(&t, &b, panel, first, y, sums ? partial + (size_t)i * 2 * co : NULL,
                          mine);
        }
    }
    conv_blocks blocks = {.blocks = t.bands};
    if (sums) conv_fold_sums(&blocks, t.s->groups, co, partial, sums, p->threads);
}

/* ---- filter gradient ------------------------------------------------------------------------- */

static size_t part_floats(const stem *t) {
    return (size_t)t->panels * t->padded * t->kernel->outputs;
}

/* Depends only on the shape. */
static int parts_of(const stem *t) {
    int parts = least(PARTS, t->bands);
    while (parts > 1 && parts * part_floats(t) > PARTS_FLOATS) parts--;
    return parts;
}

/* The memory of one thread: the rows of a band, and a panel of its dy. */
static size_t filter_floats(const stem *t) { return band_floats(t) + panel_floats(t); }

/* sums [panels][padded][outputs] += those of a band.  A panel of dy is read several times: the
 * first time in place, and copied to where it stays in the L1 cache; the second time the next one
 * is prefetched. */
static void filter_band(const stem *t, stem_band *b, int first_pixel, const float *dy, float *own,
                        float *sums) {
    int outputs = t->kernel->outputs, co = t->s->co, pixels = b->rows * t->ow;
    int step = 3 * t->kernel->lots;
    float *panel = own + band_floats(t);
    dy += (size_t)first_pixel * co;
    b->ask_pixel = (size_t)co;
    for (int o = 0; o < co; o += outputs) {
        bool whole = o + outputs <= co, last = o + outputs >= co;
        if (!whole) gemm_pack_wide(dy + o, co, co - o, pixels, outputs, 0, panel);
        b->y = whole ? (float *)dy + o : panel;
        b->copy = whole && co > outputs ? panel : NULL;
        b->pixel = (size_t)(whole ? co : outputs), b->row = b->pixel * t->ow;
        for (int l = 0; l < t->padded; l += step, sums += (size_t)step * outputs) {
            b->ask = l != step ? NULL : dy + (last ? (size_t)pixels * co : (size_t)(o + outputs));
            t->kernel->filter(b, l / 3, sums);
            if (b->copy) b->y = panel, b->pixel = (size_t)outputs, b->row = b->pixel * t->ow;
            b->copy = NULL;
        }
    }
}

/* work: parts of the sum, offsets, then the memory of each thread */
void stem_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                      float *work) {
    const stem t = stem_of(p);
    int parts = parts_of(&t), outputs = t.kernel->outputs;
    int *offset = (int *)(work + parts * part_floats(&t));
    float *own = work + shared_floats(&t, parts * part_floats(&t));
    offsets_of(&t, offset);
    memset(work, 0, parts * part_floats(&t) * sizeof *work);
    zeros_around(&t, p->threads, own, filter_floats(&t));
#pragma omp parallel for num_threads(p->threads) schedule(dynamic)
    for (int part = 0; part < parts; part++)
        for (int i = (int)((long)t.bands * part / parts);
             i < (int)((long)t.bands * (part + 1) / parts); i++) {
            int first;
            float *mine = own + omp_get_thread_num() * filter_floats(&t);
            stem_band b = band_of(&t, x, i, offset, mine, &first);
            filter_band(&t, &b, first, dy, mine, work + part * part_floats(&t));
        }
    for (int o = 0; o < t.s->co; o++)
        for (int l = 0; l < t.length; l++) {
            const float *from =
                work + ((size_t)(o / outputs) * t.padded + l) * outputs + o % outputs;
            float sum = add ? dw[(size_t)o * t.length + l] : 0;
            for (int part = 0; part < parts; part++) sum += from[part * part_floats(&t)];
            dw[(size_t)o * t.length + l] = sum;
        }
}

/* ---- which shapes, workspace ----------------------------------------------------------------- */

bool stem_fits(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    return (s->ci == 1 || s->ci == 3) && s->stride <= 2 && s->k * s->ci % 3 == 0 && s->pad < s->k;
}

size_t stem_workspace(const cpu_plan *p) {
    const stem t = stem_of(p);
    size_t weights = (size_t)t.panels * t.kernel->outputs * (t.length + 1);
    size_t forward = shared_floats(&t, weights + (size_t)t.bands * 2 * t.s->co) +
                     p->threads * forward_floats(&t);
    size_t filter =
        shared_floats(&t, parts_of(&t) * part_floats(&t)) + p->threads * filter_floats(&t);
    return most(most(forward, filter), stem_data_workspace(p));
}
