/* pixels_resize.c: filter weights, and rows of a resized image.
 *
 * Vertically first: whole rows of bytes are blended at full vector width, one per row of the
 * result, and the horizontal pass reads floats.  Horizontally the channels of a pixel are one
 * vector of four; the fourth belongs to its neighbor and is overwritten by the next pixel. */
#include "views/pixels_resize.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `need` elements; old contents are lost. */
static int reserve(void *array, size_t *room, size_t need, size_t size) {
    void *old, *more;
    if (need <= *room) return 0;
    memcpy(&old, array, sizeof old);
    free(old);
    *room = 0;
    more = memory_new("resizing", need, size);
    memcpy(array, &more, sizeof more);
    if (!more) return CONR_ENOMEM;
    *room = need;
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static float triangle(float x) {
    x = fabsf(x);
    return x < 1 ? 1 - x : 0;
}

static float cubic(float x) {
    const float a = -0.5f;
    x = fabsf(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

int taps_make(taps *t, pixels_filter filter, int in, int out, int from, int n) {
    int rc = 0;
    float scale = (float)in / (float)out, wide = scale > 1 ? scale : 1;
    float support = (filter == PIXELS_BILINEAR ? 1.0f : 2.0f) * wide, narrow = 1 / wide;
    int most = 1;
    ASSERT(in > 0 && out > 0 && n > 0);
    TRY(reserve(&t->first, &t->room[0], (size_t)n, sizeof *t->first));
    for (int i = 0; i < n; i++) {
        float center = scale * ((float)(from + i) + 0.5f);
        int low = (int)(center - support + 0.5f), high = (int)(center + support + 0.5f);
        if (low < 0) low = 0;
        if (high > in) high = in;
        if (high - low > most) most = high - low;
    }
    TRY(reserve(&t->weight, &t->room[1], (size_t)n * (size_t)most, sizeof *t->weight));
    t->n = n, t->most = most;
    for (int i = 0; i < n; i++) {
        float center = scale * ((float)(from + i) + 0.5f), total = 0;
        int low = (int)(center - support + 0.5f), high = (int)(center + support + 0.5f);
        if (low < 0) low = 0;
        if (high > in) high = in;
        int first = low + most > in ? in - most : low;
        float *w = t->weight + (size_t)i * (size_t)most;
        t->first[i] = first;
        for (int k = 0; k < most; k++) {
            float at = ((float)(first + k) - center + 0.5f) * narrow;
            bool inside = first + k >= low && first + k < high;
            w[k] = !inside ? 0 : filter == PIXELS_BILINEAR ? triangle(at) : cubic(at);
            total += w[k];
        }
        for (int k = 0; total != 0 && k < most; k++) w[k] /= total;
    }
done:
    return rc;
}

void taps_reverse(taps *t) {
    for (int a = 0, b = t->n - 1; a < b; a++, b--) {
        int32_t first = t->first[a];
        t->first[a] = t->first[b];
        t->first[b] = first;
        float *p = t->weight + (size_t)a * (size_t)t->most;
        float *q = t->weight + (size_t)b * (size_t)t->most;
        for (int k = 0; k < t->most; k++) {
            float w = p[k];
            p[k] = q[k];
            q[k] = w;
        }
    }
}

void taps_scale(taps *t, float factor) {
    for (size_t i = 0; i < (size_t)t->n * (size_t)t->most; i++) t->weight[i] *= factor;
}

void taps_free(taps *t) {
    free(t->first);
    free(t->weight);
    *t = (taps){0};
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { PAD = 4 }; /* floats that a vector of four may reach beyond a row */

int resizer_reserve(resizer *r, int w, int c) {
    int rc = 0;
    TRY(reserve(&r->row, &r->room[0], (size_t)w * (size_t)c + PAD, sizeof(float)));
    TRY(reserve(&r->line, &r->room[1], (size_t)r->x.n * (size_t)c + PAD, sizeof(float)));
    memset(r->row + (size_t)w * (size_t)c, 0, PAD * sizeof(float)); /* read, never used */
done:
    return rc;
}

void resizer_free(resizer *r) {
    taps_free(&r->x);
    taps_free(&r->y);
    free(r->row);
    free(r->line);
    free(r->whole);
    *r = (resizer){0};
}

/* Rows are blended in float if nothing may be rounded, and in integers for bytes, which takes
 * half as long. */
typedef const unsigned char *byte_row;

#define NUMBER  float
#define WEIGHT  float
#define NAME(x) blend_##x
#include "views/pixels_blend.h"

enum { WHOLE = 1 << 14, WHOLE_ROWS = 64 }; /* weight 1 as an integer; rows of a window, at most */

#define NUMBER  int32_t
#define WEIGHT  int16_t
#define NAME(x) whole_##x
#include "views/pixels_blend.h"

typedef float vec4 __attribute__((vector_size(16)));

static inline vec4 load4(const float *p) {
    vec4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store4(float *p, vec4 v) { memcpy(p, &v, sizeof v); }

/* `most` is a constant after inlining, so that the loop over it is unrolled. */
static inline __attribute__((always_inline)) void
filter_rgb_by(int most, const taps *t, const float *restrict row, float *restrict line) {
    const float *w = t->weight;
    for (int i = 0; i < t->n; i++, w += most) {
        const float *p = row + 3 * t->first[i];
        vec4 sum = w[0] * load4(p);
#pragma GCC unroll 8
        for (int k = 1; k < most; k++) sum += w[k] * load4(p + 3 * k);
        store4(line + 3 * i, sum);
    }
}

static void filter_rgb(const taps *t, const float *restrict row, float *restrict line) {
    switch (t->most) {
    case 2: filter_rgb_by(2, t, row, line); break;
    case 3: filter_rgb_by(3, t, row, line); break;
    case 4: filter_rgb_by(4, t, row, line); break;
    case 5: filter_rgb_by(5, t, row, line); break;
    case 6: filter_rgb_by(6, t, row, line); break;
    case 7: filter_rgb_by(7, t, row, line); break;
    case 8: filter_rgb_by(8, t, row, line); break;
    default: filter_rgb_by(t->most, t, row, line);
    }
}

static void filter_gray(const taps *t, const float *restrict row, float *restrict line) {
    const float *w = t->weight;
    for (int i = 0; i < t->n; i++, w += t->most) {
        const float *p = row + t->first[i];
        float sum = w[0] * p[0];
        for (int k = 1; k < t->most; k++) sum += w[k] * p[k];
        line[i] = sum;
    }
}

static void filter_row(resizer *r, int c) {
    if (c == 3)
        filter_rgb(&r->x, r->row, r->line);
    else
        filter_gray(&r->x, r->row, r->line);
}

void resizer_row(resizer *r, const unsigned char *box, size_t stride, int w, int c, int y) {
    blend_rows(&r->y, r->y.weight + (size_t)y * (size_t)r->y.most, box, stride, w * c, y, r->row);
    filter_row(r, c);
}

static void round_to_bytes(const float *restrict in, int n, unsigned char *restrict out) {
    for (int i = 0; i < n; i++) {
        float v = in[i] + 0.5f;
        v = v < 0 ? 0 : v > 255 ? 255 : v;
        out[i] = (unsigned char)(int)v;
    }
}

/* y.weight as integers.  Windows of more rows would lose too much: their weights are small. */
static int make_whole(resizer *r) {
    size_t n = (size_t)r->y.n * (size_t)r->y.most;
    int rc = reserve(&r->whole, &r->room[2], n, sizeof *r->whole);
    for (size_t i = 0; rc == 0 && i < n; i++) r->whole[i] = (int16_t)lrintf(r->y.weight[i] * WHOLE);
    return rc;
}

int resizer_bytes(resizer *r, pixels_filter filter, const unsigned char *in, int w, int h, int c,
                  int ow, int oh, unsigned char *out) {
    int rc = 0;
    size_t stride = (size_t)w * (size_t)c, out_stride = (size_t)ow * (size_t)c;
    TRY(taps_make(&r->x, filter, w, ow, 0, ow));
    TRY(taps_make(&r->y, filter, h, oh, 0, oh));
    TRY(resizer_reserve(r, w, c));
    bool whole = r->y.most <= WHOLE_ROWS;
    if (whole) {
        TRY(make_whole(r));
        taps_scale(&r->x, 1.0f / WHOLE);
    }
    for (int y = 0; y < oh; y++) {
        size_t at = (size_t)y * (size_t)r->y.most;
        if (whole)
            whole_rows(&r->y, r->whole + at, in, stride, w * c, y, r->row);
        else
            blend_rows(&r->y, r->y.weight + at, in, stride, w * c, y, r->row);
        filter_row(r, c);
        round_to_bytes(r->line, ow * c, out + (size_t)y * out_stride);
    }
done:
    return rc;
}
