/* stem_data.c: convolutions of one or three input channels, data gradient.
 *
 * One or three channels are too few columns for a matrix product that adds up all taps; the columns
 * of all taps together are enough.  So each output pixel is multiplied with the whole filter, as
 * products [ky][kx][c], and each pixel of dx is then the sum of the products that fall on it.  Only
 * the rows of products that a row of dx needs are kept, in a ring: they stay in the caches. */
#include "device/cpu/conv.h"

#include "kernels/isa.h"
#include "kernels/quad.h"

#include <omp.h>
#include <string.h>

enum {
    ROWS_FLOATS =
        1 << 12,     /* most floats of products made in one call, unless a single row has more */
    AHEAD = 1 << 10, /* floats of dy that are prefetched ahead */
    SLACK = 4        /* floats read but not used past the last products */
};

/* ---- kernels, once per instruction set ------------------------------------------------------- */

/* Some rows of output pixels, and a panel of their products. */
typedef struct stem_rows {
    int rows, pixels; /* pixels: per row */
    const float *dy;  /* [rows][pixels][co] */
    int co;
    const float *w;    /* [co][panel] */
    float *to;         /* [rows][pixels][panel], ... */
    size_t row, pixel; /* ... floats from one to the next */
} stem_rows;

typedef struct products_kernel {
    int floats; /* of a vector */
    int most;   /* largest number of vectors in a panel */
    void (*products)(const stem_rows *b, int vectors);
} products_kernel;

/* Pixels of a tile of this many vectors, leaving registers for one float of each pixel and for some
 * weights; with three vectors, five pixels measured faster than six or seven. */
#define TILE_OF_32(vectors) ((vectors) < 3 ? 8 : (vectors) < 5 ? 5 : 27 / ((vectors) + 1))
#define TILE_OF_16(vectors) ((vectors) < 2 ? 8 : 12 / (vectors))
#ifdef __x86_64__
typedef float vector_avx512 VECTOR(16);
#define TARGET   __attribute__((target("avx512f")))
#define NAMED(x) x##_avx512
#define VL       16
#define MOST     7
#define TILE     TILE_OF_32
#define LANES    0
#include "device/cpu/stem_data_kernel.h"
typedef float vector_avx2 VECTOR(8);
#define TARGET   __attribute__((target("avx2,fma")))
#define NAMED(x) x##_avx2
#define VL       8
#define MOST     3
#define TILE     TILE_OF_16
#define LANES    0
#include "device/cpu/stem_data_kernel.h"
#endif
typedef float vector_four VECTOR(4);
#define TARGET
#define NAMED(x) x##_four
#define VL       4
#ifdef __aarch64__
#define MOST  7
#define TILE  TILE_OF_32
#define LANES 1
#else
#define MOST  3
#define TILE  TILE_OF_16
#define LANES 0
#endif
#include "device/cpu/stem_data_kernel.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* A unit is the part of a row of dx that is gathered at once: a pixel of three channels, or
 * `stride` pixels of one channel.  For the latter the filter gets columns of zeros, before and
 * after, so that a unit lies under whole units of the rows of the filter. */
typedef struct stem_data {
    const products_kernel *kernel;
    const conv_shape *s;
    int oh, ow;
    int unit;       /* pixels */
    int width, pad; /* of the filter with its columns of zeros; pad: along a row */
    int kinds;      /* of units in a row: they start at its first pixels, then every stride */
    int part;       /* floats of the last unit of a row if it is not whole, else 0 */
    int vectors;    /* of the products of a pixel, [k][width][ci] and some zeros ... */
    int panels;     /* ... cut into this many panels */
    int before;     /* pixels of zeros in front of a row of products */
    int line;       /* pixels of such a row, zeros on both sides included */
    int rows;       /* most rows of products that are made at once */
    int ring;       /* rows of products in the ring: a power of two */
    int pixel, row; /* floats of the products of a pixel, and of such a row */
    int places;     /* ints that locate the products of a unit: how many, then each */
} stem_data;

static stem_data stem_data_of(const cpu_plan *p) {
    const conv_shape *s = &p->base.s;
    stem_data t = {.kernel = SET_BEST(&kernel_avx512, &kernel_avx2, &kernel_four),
                   .s = s,
                   .oh = p->base.oh,
                   .ow = p->base.ow};
    t.unit = s->ci == 1 ? s->stride : 1;
    t.kinds = s->stride / t.unit;
    t.part = s->w % t.unit;
    t.pad = round_up(s->pad, t.unit);
    t.width = round_up(t.pad - s->pad + s->k, t.unit);
    t.vectors = round_up(s->k * t.width * s->ci, t.kernel->floats) / t.kernel->floats;
    t.panels = (t.vectors + t.kernel->most - 1) / t.kernel->most;
    t.before = (t.width - 1) / s->stride;
    t.line = t.before + (int)most((size_t)t.ow, (size_t)((s->w - 1 + t.pad) / s->stride + 1));
    t.pixel = t.vectors * t.kernel->floats;
    t.row = t.line * t.pixel;
    t.rows = least(t.oh, ROWS_FLOATS / t.row > 1 ? ROWS_FLOATS / t.row : 1);
    t.ring = 1;
    while (t.ring < t.rows + t.before) t.ring *= 2;
    t.places = 1 + (t.before + 1) * (t.before + 1);
    return t;
}

static int first_vector(const stem_data *t, int panel) { return t->vectors * panel / t->panels; }

static size_t ring_floats(const stem_data *t) { return (size_t)t->ring * t->row + SLACK; }
static size_t table_ints(const stem_data *t) { return (size_t)t->s->h * t->kinds * t->places; }

size_t stem_data_workspace(const cpu_plan *p) {
    const stem_data t = stem_data_of(p);
    return (size_t)t.s->co * t.pixel + table_ints(&t) + p->threads * ring_floats(&t);
}

/* ---- products -------------------------------------------------------------------------------- */

/* w [co][k][k][ci] -> [panels][co][floats of the panel], zeros where there is no weight */
static void pack_weights(const stem_data *t, const float *w, float *packed) {
    const conv_shape *s = t->s;
    int line = t->width * s->ci, from = (t->pad - s->pad) * s->ci, length = s->k * s->ci;
    for (int panel = 0; panel < t->panels; panel++) {
        int first = first_vector(t, panel) * t->kernel->floats;
        int width = first_vector(t, panel + 1) * t->kernel->floats - first;
        for (int i = 0; i < width; i++) {
            int ky = (first + i) / line, at = (first + i) % line - from;
            bool there = ky < s->k && at >= 0 && at < length;
            for (int o = 0; o < s->co; o++)
                packed[(size_t)o * width + i] =
                    there ? w[((size_t)o * s->k + ky) * length + at] : 0;
        }
        packed += (size_t)s->co * width;
    }
}

/* dy: [rows][ow][co]; to: the products of their first pixel */
static void rows_products(const stem_data *t, const float *dy, int rows, const float *packed,
                          float *to) {
    stem_rows b = {.rows = rows,
                   .pixels = t->ow,
                   .dy = dy,
                   .co = t->s->co,
                   .row = (size_t)t->row,
                   .pixel = (size_t)t->pixel};
    for (int panel = 0; panel < t->panels; panel++) {
        int first = first_vector(t, panel), vectors = first_vector(t, panel + 1) - first;
        b.w = packed + (size_t)first * t->kernel->floats * b.co;
        b.to = to + first * t->kernel->floats;
        t->kernel->products(&b, vectors);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Units of a row of dx whose products have the same layout. */
typedef struct units {
    int count;
    int places;        /* products of each, ... */
    const int *offset; /* ... of the first one: [places], into the ring */
    const float *ring;
    size_t pixel; /* floats to the products of the next unit */
    float *to;
    size_t step; /* floats from unit to unit in dx */
    bool add;
} units;

/* The `floats` floats of a unit, a constant when this is inlined.  No others may be touched: the
 * next unit may belong to another thread. */
INLINE void unit_put(float *to, quad v, int floats, bool add) {
    if (add) {
        for (int i = 0; i < floats; i++) to[i] += v[i];
        return;
    }
    memcpy(to, &v, (size_t)least(floats, 2) * sizeof v[0]);
    if (floats > 2) to[2] = v[2];
}

/* Adds four floats per place and drops the surplus at the end.  places: 1 .. 16, a constant like
 * `floats`. */
INLINE void sum_places(const units *u, int places, int floats) {
    const float *from = u->ring, *end = from + u->pixel * (size_t)u->count;
    size_t pixel = u->pixel, step = u->step, at[16];
    float *to = u->to;
    bool add = u->add;
    UNROLL for (int i = 0; i < places; i++) at[i] = (size_t)u->offset[i];
    for (; from < end; from += pixel, to += step) {
        quad v = quad_at(from + at[0]);
        UNROLL for (int i = 1; i < places; i++) v += quad_at(from + at[i]);
        unit_put(to, v, floats, add);
    }
}

/* Any number of places, also none: pixels that no output sees. */
INLINE void sum_any(const units *u, int floats) {
    for (int j = 0; j < u->count; j++) {
        const float *at = u->ring + (size_t)j * u->pixel;
        quad v = quad_of(0);
        for (int i = 0; i < u->places; i++) v += quad_at(at + u->offset[i]);
        unit_put(u->to + (size_t)j * u->step, v, floats, u->add);
    }
}

INLINE void sum_units(const units *u, int floats) {
    switch (
        u->places) { /* what 3x3 filters, and 7x7 ones with stride 2, have away from the edges */
    case 1: sum_places(u, 1, floats); break;
    case 2: sum_places(u, 2, floats); break;
    case 4: sum_places(u, 4, floats); break;
    case 9: sum_places(u, 9, floats); break;
    case 12: sum_places(u, 12, floats); break;
    case 16: sum_places(u, 16, floats); break;
    default: sum_any(u, floats);
    }
}

static void sum_of_floats(const units *u, int floats) {
    if (floats == 1) sum_units(u, 1);
    if (floats == 2) sum_units(u, 2);
    if (floats == 3) sum_units(u, 3);
}

/* Where the products of the unit at pixel (y,x) are in the ring: how many, then each.  Those past
 * the ends of a row are zeros, rows outside the map are left out. */
static void places_of(const stem_data *t, int y, int x, int *places) {
    const conv_shape *s = t->s;
    int n = 0, pixel = t->pixel, below = y + s->pad, right = x + t->pad;
    for (int ky = below % s->stride; ky < s->k && ky <= below; ky += s->stride) {
        int row = (below - ky) / s->stride;
        if (row >= t->oh) continue;
        for (int kx = right % s->stride; kx < t->width; kx += s->stride)
            places[++n] = row % t->ring * t->row + (t->before + (right - kx) / s->stride) * pixel +
                          (ky * t->width + kx) * s->ci;
    }
    places[0] = n;
}

/* A row of dx [w][ci]; places: of the first unit of each kind. */
static void sum_row(const stem_data *t, const int *places, bool add, float *dx, const float *ring) {
    const conv_shape *s = t->s;
    units u = {
        .ring = ring, .pixel = (size_t)t->pixel, .step = (size_t)s->stride * s->ci, .add = add};
    for (int kind = 0; kind < t->kinds; kind++, places += t->places) {
        u.count = (s->w - kind + t->kinds - 1) / s->stride;
        u.places = places[0], u.offset = places + 1;
        u.to = dx + kind * s->ci;
        sum_of_floats(&u, t->unit * s->ci);
    }
    if (!t->part) return;
    u.ring += (size_t)u.count * u.pixel, u.to += (size_t)u.count * u.step, u.count = 1;
    sum_of_floats(&u, t->part);
}

/* ---- data gradient --------------------------------------------------------------------------- */

/* Rows [first, last) of the dx of one image; dy: of the image; places: of all rows. */
static void back_rows(const stem_data *t, const float *dy, const float *packed, const int *places,
                      bool add, float *dx, int first, int last, float *ring) {
    const conv_shape *s = t->s;
    int above = first + s->pad - s->k + s->stride;
    int next = above > 0 ? above / s->stride : 0; /* row of products to be made */
    for (int y = first, rows; y < last; y++) {
        for (; next < t->oh && next * s->stride <= y + s->pad; next += rows) {
            int slot = next & (t->ring - 1);
            rows = least(least(t->rows, t->oh - next), t->ring - slot);
            rows_products(t, dy + (size_t)next * t->ow * s->co, rows, packed,
                          ring + slot * t->row + t->before * t->pixel);
        }
        sum_row(t, places + (size_t)y * t->kinds * t->places, add, dx + (size_t)y * s->w * s->ci,
                ring);
    }
}

/* work: packed weights, places, then the ring of each thread.  If there are fewer images than
 * threads, the rows of an image are divided among threads; products that two threads need are then
 * computed twice. */
void stem_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                    float *work) {
    const stem_data t = stem_data_of(p);
    const conv_shape *s = t.s;
    int bands = least(s->h, (p->threads + s->n - 1) / s->n); /* of an image */
    int *places = (int *)(work + (size_t)s->co * t.pixel);
    float *rings = (float *)places + table_ints(&t);
    pack_weights(&t, w, work);
    for (int y = 0; y < s->h; y++)
        for (int kind = 0; kind < t.kinds; kind++)
            places_of(&t, y, kind, places + (y * t.kinds + kind) * t.places);
#pragma omp parallel num_threads(p->threads)
    {
        float *ring = rings + omp_get_thread_num() * ring_floats(&t);
        memset(ring, 0, ring_floats(&t) * sizeof *ring);
#pragma omp for schedule(dynamic)
        for (int i = 0; i < s->n * bands; i++) {
            int image = i / bands, band = i % bands;
            back_rows(&t, dy + (size_t)image * t.oh * t.ow * s->co, work, places, add,
                      dx + (size_t)image * s->h * s->w * s->ci, s->h * band / bands,
                      s->h * (band + 1) / bands, ring);
        }
    }
}
