/* pools.c: pools on the CPU.
 *
 * Max: 3x3, stride 2, pad 1.  Places outside the image are moved to the nearest pixel inside, which
 * is in the same window.  That changes neither the maximum nor which pixel holds it first, and no
 * border has to be tested for. */
#include "device/cpu/pools.h"

#include "kernels/quad.h"

#include <string.h>

/* ---- max ------------------------------------------------------------------------------------- */

static int within(int at, int size) { return at < 0 ? 0 : least(at, size - 1); }

/* The nine pixels of the window of output (oy,ox), in row-major order. */
INLINE void window_of(const pool_shape *s, const float *image, int oy, int ox,
                      const float *pixel[9]) {
    ptrdiff_t at[3]; /* columns */
    UNROLL for (int x = 0; x < 3; x++) at[x] = (ptrdiff_t)within(2 * ox - 1 + x, s->w) * s->c;
    UNROLL for (int y = 0; y < 3; y++) {
        const float *row = image + (ptrdiff_t)within(2 * oy - 1 + y, s->h) * s->w * s->c;
        UNROLL for (int x = 0; x < 3; x++) pixel[3 * y + x] = row + at[x];
    }
}

/* Channels are taken by fours; the last may be n < 4, everywhere else n is the constant 4. */
INLINE quad quad_take(const float *from, int n) {
    if (n == 4) return quad_at(from);
    quad v = {0};
    for (int j = 0; j < n; j++) v[j] = from[j];
    return v;
}

INLINE void quad_give(float *to, quad v, int n) {
    if (n == 4)
        quad_put(to, v);
    else
        for (int j = 0; j < n; j++) to[j] = v[j];
}

/* A maximum, and which of the nine places holds it first. */
typedef struct found {
    quad value;
    quad_mask place;
} found;

INLINE found first_of(found a, found b) {
    quad_mask better = b.value > a.value;
    return (found){quad_max(b.value, a.value), (better & b.place) | (~better & a.place)};
}

INLINE found window_at(const float *const pixel[9], int k, int c, int n) {
    return (found){quad_take(pixel[k] + c, n), (quad_mask){k, k, k, k}};
}

/* Row by row, then over the three rows: a single chain of nine would wait for itself. */
INLINE found window_row(const float *const pixel[9], int k, int c, int n) {
    return first_of(first_of(window_at(pixel, k, c, n), window_at(pixel, k + 1, c, n)),
                    window_at(pixel, k + 2, c, n));
}

INLINE found window_max(const float *const pixel[9], int c, int n) {
    return first_of(first_of(window_row(pixel, 0, c, n), window_row(pixel, 3, c, n)),
                    window_row(pixel, 6, c, n));
}

static int cpu_max_pool(device *dev, const pool_shape *s, const act *x_, act *y_) {
    const float *x = (const float *)x_;
    int oh = (s->h + 1) / 2, ow = (s->w + 1) / 2, whole = s->c & ~3;
#pragma omp parallel for num_threads(dev->threads) schedule(static) collapse(2)
    for (int i = 0; i < s->n; i++)
        for (int oy = 0; oy < oh; oy++) {
            const float *image = x + (size_t)i * s->h * s->w * s->c, *pixel[9];
            float *to = (float *)y_ + ((size_t)i * oh + oy) * ow * s->c;
            for (int ox = 0; ox < ow; ox++, to += s->c) {
                window_of(s, image, oy, ox, pixel);
                for (int c = 0; c < whole; c += 4) quad_put(to + c, window_max(pixel, c, 4).value);
                if (whole < s->c)
                    quad_give(to + whole, window_max(pixel, whole, s->c - whole).value,
                              s->c - whole);
            }
        }
    return 0;
}

/* The gradient is gathered, not scattered: output (oy,ox) owns the pixels (2oy + 0 or 1, 2ox + 0 or
 * 1), which only its own window and those to the right and below reach.  A tile of outputs is
 * walked from top to bottom, with the places of two rows of windows on the stack. */
enum { TILE_WIDTH = 16, TILE_QUADS = 16 };
typedef quad_mask places[TILE_WIDTH + 1][TILE_QUADS]; /* and the window to the right */

typedef struct back_tile {
    const pool_shape *s;
    const float *x;  /* [h,w,c], of one image like the others */
    const float *dy; /* [oh,ow,c] */
    float *dx;       /* [h,w,c] */
    int oh, ow;
    int x0, x1, c0, c1; /* its outputs and channels */
} back_tile;

/* A place above or left of the map becomes that of the pixel which stood in for it. */
static quad_mask place_inside(quad_mask place, int oy, int ox) {
    if (oy == 0) place += 3 & (place < 3);
    if (ox == 0) place += 1 & ((place == 0) | (place == 3) | (place == 6));
    return place;
}

/* The places of row oy; outside the map, one that no pixel has. */
static void find_places(const back_tile *t, int oy, places to) {
    static const quad_mask none = {-1, -1, -1, -1};
    for (int ox = t->x0; ox <= t->x1; ox++, to++) {
        const float *pixel[9];
        bool there = oy < t->oh && ox < t->ow;
        if (there) window_of(t->s, t->x, oy, ox, pixel);
        int c = t->c0, q = 0;
        for (; c + 4 <= t->c1; c += 4, q++) (*to)[q] = there ? window_max(pixel, c, 4).place : none;
        if (c < t->c1) (*to)[q++] = there ? window_max(pixel, c, t->c1 - c).place : none;
        while ((oy == 0 || ox == 0) && q-- > 0) (*to)[q] = place_inside((*to)[q], oy, ox);
    }
}

/* The four pixels of output (oy,ox); here, right, below, across: the places of the windows that
 * reach them.  Pixels outside the map fall on one that is written after them. */
INLINE void back_quad(const quad_mask *here, const quad_mask *right, const quad_mask *below,
                      const quad_mask *across, const float *const d[4], float *const to[4], int c,
                      int n) {
    quad a = quad_take(d[0] + c, n), b = quad_take(d[1] + c, n), e = quad_take(d[2] + c, n),
         f = quad_take(d[3] + c, n);
    quad_give(to[3] + c,
              quad_where(*here == 8, a) + quad_where(*right == 6, b) + quad_where(*below == 2, e) +
                  quad_where(*across == 0, f),
              n);
    quad_give(to[2] + c, quad_where(*here == 7, a) + quad_where(*below == 1, e), n);
    quad_give(to[1] + c, quad_where(*here == 5, a) + quad_where(*right == 3, b), n);
    quad_give(to[0] + c, quad_where(*here == 4, a), n);
}

/* The pixels of row oy of the tile; upper, lower: the places of rows oy and oy + 1. */
static void back_row(const back_tile *t, int oy, places upper, places lower) {
    const pool_shape *s = t->s;
    for (int ox = t->x0; ox < t->x1; ox++, upper++, lower++) {
        const float *d[4];
        float *to[4];
        UNROLL for (int k = 0; k < 4; k++) {
            int y = within(oy + k / 2, t->oh), x = within(ox + k % 2, t->ow);
            d[k] = t->dy + ((size_t)y * t->ow + x) * s->c;
            y = within(2 * oy + k / 2, s->h), x = within(2 * ox + k % 2, s->w);
            to[k] = t->dx + ((size_t)y * s->w + x) * s->c;
        }
        int c = t->c0, q = 0;
        for (; c + 4 <= t->c1; c += 4, q++)
            back_quad(&upper[0][q], &upper[1][q], &lower[0][q], &lower[1][q], d, to, c, 4);
        if (c < t->c1)
            back_quad(&upper[0][q], &upper[1][q], &lower[0][q], &lower[1][q], d, to, c, t->c1 - c);
    }
}

static int cpu_max_pool_back(device *dev, const pool_shape *s, const act *x, const act *dy,
                             act *dx) {
    int oh = (s->h + 1) / 2, ow = (s->w + 1) / 2;
#pragma omp parallel for num_threads(dev->threads) schedule(static) collapse(3)
    for (int i = 0; i < s->n; i++)
        for (int x0 = 0; x0 < ow; x0 += TILE_WIDTH)
            for (int c0 = 0; c0 < s->c; c0 += 4 * TILE_QUADS) {
                size_t image = (size_t)i * s->h * s->w * s->c;
                back_tile t = {.s = s,
                               .x = (const float *)x + image,
                               .dy = (const float *)dy + (size_t)i * oh * ow * s->c,
                               .dx = (float *)dx + image,
                               .oh = oh,
                               .ow = ow,
                               .x0 = x0,
                               .x1 = least(x0 + TILE_WIDTH, ow),
                               .c0 = c0,
                               .c1 = least(c0 + 4 * TILE_QUADS, s->c)};
                places rows[2];
                find_places(&t, 0, rows[0]);
                for (int oy = 0; oy < oh; oy++) {
                    find_places(&t, oy + 1, rows[(oy + 1) % 2]);
                    back_row(&t, oy, rows[oy % 2], rows[(oy + 1) % 2]);
                }
            }
    return 0;
}

/* ---- mean ------------------------------------------------------------------------------------ */

static int cpu_mean_pool(device *dev, const pool_shape *s, const act *x_, act *y_) {
    int hw = s->h * s->w, c = s->c;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < s->n; i++) {
        const float *x = (const float *)x_ + (size_t)i * hw * c;
        float *y = (float *)y_ + (size_t)i * c, share = 1.0f / (float)hw;
        memset(y, 0, (size_t)c * sizeof *y);
        for (int r = 0; r < hw; r++)
            for (int j = 0; j < c; j++) y[j] += x[(size_t)r * c + j];
        for (int j = 0; j < c; j++) y[j] *= share;
    }
    return 0;
}

static int cpu_mean_pool_back(device *dev, const pool_shape *s, const act *dy_, act *dx_) {
    int hw = s->h * s->w, c = s->c;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < s->n; i++) {
        const float *dy = (const float *)dy_ + (size_t)i * c;
        float *dx = (float *)dx_ + (size_t)i * hw * c, share = 1.0f / (float)hw;
        for (int r = 0; r < hw; r++)
            for (int j = 0; j < c; j++) dx[(size_t)r * c + j] = dy[j] * share;
    }
    return 0;
}

void cpu_pools(device_ops *op) {
    op->max_pool = cpu_max_pool;
    op->max_pool_back = cpu_max_pool_back;
    op->mean_pool = cpu_mean_pool;
    op->mean_pool_back = cpu_mean_pool_back;
}
