/* pixels.c: the pixels of a view, row by row.
 *
 * A row is resized, split into planes (loops over planes are what compilers vectorize) and colored
 * while it is in the cache.  Contrast needs the mean of the whole image as it is at that point of
 * the drawn order; so the first pass runs up to contrast and adds up the mean, the second does the
 * rest and writes.  Without contrast and blur one pass does all. */
#include "views/pixels.h"

#include "base/memory.h"
#include "base/status.h"
#include "views/pixels_resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pixels {
    int size, c;
    resizer resize;
    float *plane; /* [c,size,size] */
    float *blur;  /* [size + 2*half] one padded row, then [size,size] one blurred plane */
};

int pixels_blur_size(int size) { return size / 10 | 1; }

int pixels_new(int size, int channels, pixels **out) {
    int rc = 0;
    size_t area = (size_t)size * (size_t)size;
    *out = NULL;
    ASSERT(size > 0 && (channels == 1 || channels == 3));
    pixels *p = calloc(1, sizeof *p);
    if (!p) return fail_memory("views", sizeof *p);
    p->size = size, p->c = channels;
    p->plane = memory_new("views", area * (size_t)channels, sizeof *p->plane);
    p->blur = memory_new("views", area + 2 * (size_t)size, sizeof *p->blur);
    if (!p->plane || !p->blur) TRY(CONR_ENOMEM);
    *out = p;
done:
    if (rc < 0) pixels_free(p);
    return rc;
}

void pixels_free(pixels *p) {
    if (!p) return;
    resizer_free(&p->resize);
    free(p->plane);
    free(p->blur);
    free(p);
}

/* ---- color, on n pixels of three planes ------------------------------------------------------ */

static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }
static inline float unit(float x) { return least(most(x, 0.0f), 1.0f); }
static inline float luma(float r, float g, float b) {
    return 0.2989f * r + 0.587f * g + 0.114f * b;
}

/* x <- a x + b, clamped to [0,1]: brightness, and contrast once the mean is known */
static void stretch(float *x, int n, float a, float b) {
    for (int i = 0; i < n; i++) x[i] = unit(a * x[i] + b);
}

static void saturate(float *restrict r, float *restrict g, float *restrict b, int n, float factor) {
    for (int i = 0; i < n; i++) {
        float gray = (1 - factor) * luma(r[i], g[i], b[i]);
        r[i] = unit(factor * r[i] + gray);
        g[i] = unit(factor * g[i] + gray);
        b[i] = unit(factor * b[i] + gray);
    }
}

/* RGB -> HSV, h + shift, -> RGB without branches.  h counts sixths of a turn; a channel is
 * low + chroma * (its share at h), a trapezoid. */
static void shift_hue(float *restrict r, float *restrict g, float *restrict b, int n, float shift) {
    for (int i = 0; i < n; i++) {
        float red = r[i], green = g[i], blue = b[i];
        float high = most(most(red, green), blue), low = least(least(red, green), blue);
        float chroma = high - low, inverse = 1 / (chroma > 0 ? chroma : 1);
        float at_red = (green - blue) * inverse, at_green = (blue - red) * inverse + 2;
        float at_blue = (red - green) * inverse + 4;
        float h = high == red ? at_red : high == green ? at_green : at_blue;
        h += 6 * shift; /* in [-4,8], as the shift is at most half a turn */
        h = h < 0 ? h + 6 : h;
        h = h >= 6 ? h - 6 : h;
        r[i] = low + chroma * unit(fabsf(h - 3) - 1);
        g[i] = low + chroma * unit(2 - fabsf(h - 2));
        b[i] = low + chroma * unit(2 - fabsf(h - 4));
    }
}

static void make_gray(float *restrict r, float *restrict g, float *restrict b, int n) {
    for (int i = 0; i < n; i++) r[i] = g[i] = b[i] = luma(r[i], g[i], b[i]);
}

/* Four separate sums, so that the order of additions is the same with and without vectors. */
static double sum_luma(const float *restrict r, const float *restrict g, const float *restrict b,
                       int n) {
    float sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += luma(r[i + k], g[i + k], b[i + k]);
    for (; i < n; i++) sum[0] += luma(r[i], g[i], b[i]);
    return ((double)sum[0] + sum[1]) + ((double)sum[2] + sum[3]);
}

static double sum_row(const float *x, int n) {
    float sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += x[i + k];
    for (; i < n; i++) sum[0] += x[i];
    return ((double)sum[0] + sum[1]) + ((double)sum[2] + sum[3]);
}

/* The color operations to apply, in order. */
typedef struct palette {
    const draw *d;
    int first, stop; /* order[first .. stop-1] */
    float mean;      /* of the image, for contrast */
} palette;

static void color_row(const palette *a, float *r, float *g, float *b, int c, int n) {
    const draw *d = a->d;
    for (int i = a->first; i < a->stop; i++) switch (d->order[i]) {
        case DRAW_BRIGHTNESS:
        case DRAW_CONTRAST: {
            bool contrast = d->order[i] == DRAW_CONTRAST;
            float factor = contrast ? d->contrast : d->brightness;
            float add = contrast ? (1 - factor) * a->mean : 0;
            stretch(r, n, factor, add);
            if (c == 3) stretch(g, n, factor, add), stretch(b, n, factor, add);
            break;
        }
        case DRAW_SATURATION:
            if (c == 3) saturate(r, g, b, n, d->saturation);
            break;
        case DRAW_HUE:
            if (c == 3) shift_hue(r, g, b, n, d->hue);
            break;
        }
}

/* ---- between interleaved and planar ---------------------------------------------------------- */

static void split_row(const float *restrict line, int n, float *restrict r, float *restrict g,
                      float *restrict b) {
    for (int i = 0; i < n; i++) r[i] = line[3 * i], g[i] = line[3 * i + 1], b[i] = line[3 * i + 2];
}

static void write_row(const float *restrict r, const float *restrict g, const float *restrict b,
                      int n, const float scale[3], const float shift[3], float *restrict out) {
    float u = scale[0], v = scale[1], w = scale[2], x = shift[0], y = shift[1], z = shift[2];
    for (int i = 0; i < n; i++) {
        out[3 * i] = r[i] * u + x;
        out[3 * i + 1] = g[i] * v + y;
        out[3 * i + 2] = b[i] * w + z;
    }
}

static void write_gray_row(const float *restrict x, int n, float scale, float shift,
                           float *restrict out) {
    for (int i = 0; i < n; i++) out[i] = x[i] * scale + shift;
}

static void solarize_row(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = x[i] >= 0.5f ? 1 - x[i] : x[i];
}

/* (x - mean) / deviation as scale x + shift. */
typedef struct affine {
    float scale[3], shift[3];
} affine;

static affine affine_of(const pixels_norm *norm, int c) {
    affine a = {0};
    for (int k = 0; k < c; k++) {
        a.scale[k] = 1 / norm->deviation[k];
        a.shift[k] = -norm->mean[k] / norm->deviation[k];
    }
    return a;
}

/* Solarizes and writes row y of the result. */
static void finish_row(pixels *p, bool solarize, const affine *a, int y, float *out) {
    int n = p->size;
    size_t area = (size_t)n * (size_t)n;
    float *r = p->plane + (size_t)y * (size_t)n;
    float *to = out + (size_t)y * (size_t)n * (size_t)p->c;
    for (int k = 0; solarize && k < p->c; k++) solarize_row(r + (size_t)k * area, n);
    if (p->c == 3)
        write_row(r, r + area, r + 2 * area, n, a->scale, a->shift, to);
    else
        write_gray_row(r, n, a->scale[0], a->shift[0], to);
}

/* ---- blur ------------------------------------------------------------------------------------ */

static int mirrored(int i, int n) { /* reflect without repeating the edge */
    if (i < 0) i = -i;
    return i >= n ? 2 * (n - 1) - i : i;
}

static void add_scaled(const float *restrict in, float w, int n, float *restrict out) {
    for (int i = 0; i < n; i++) out[i] += w * in[i];
}

/* gaussian_blur of torchvision as two passes.  The kernel is normalized over its whole length, but
 * ends below the resolution of a float are left out: at sigma 0.1 all but the center. */
static void blur_plane(pixels *p, float *plane, float sigma) {
    int n = p->size, half = pixels_blur_size(n) / 2, reach = 0;
    float kernel[256], total = 0, *padded = p->blur, *sideways = p->blur + 2 * (size_t)n;
    ASSERT(half < 256);
    for (int i = 0; i <= half; i++) {
        kernel[i] = expf(-0.5f * (float)(i * i) / (sigma * sigma));
        total += (i ? 2 : 1) * kernel[i];
        if (kernel[i] > 1e-8f) reach = i;
    }
    for (int y = 0; y < n; y++) {
        const float *in = plane + (size_t)y * (size_t)n;
        float *out = sideways + (size_t)y * (size_t)n;
        for (int x = -reach; x < 0; x++) padded[x + reach] = in[mirrored(x, n)];
        memcpy(padded + reach, in, (size_t)n * sizeof *in);
        for (int x = n; x < n + reach; x++) padded[x + reach] = in[mirrored(x, n)];
        memset(out, 0, (size_t)n * sizeof *out);
        for (int k = -reach; k <= reach; k++)
            add_scaled(padded + reach + k, kernel[k < 0 ? -k : k] / total, n, out);
    }
    for (int y = 0; y < n; y++) {
        float *out = plane + (size_t)y * (size_t)n;
        memset(out, 0, (size_t)n * sizeof *out);
        for (int k = -reach; k <= reach; k++)
            add_scaled(sideways + (size_t)mirrored(y + k, n) * (size_t)n,
                       kernel[k < 0 ? -k : k] / total, n, out);
    }
}

/* ---- a view ---------------------------------------------------------------------------------- */

int pixels_view(pixels *p, const unsigned char *image, int w, int h, const draw *d,
                const pixels_norm *norm, float *out) {
    int rc = 0, n = p->size, c = p->c, contrast = 0;
    size_t area = (size_t)n * (size_t)n, stride = (size_t)w * (size_t)c;
    affine a = affine_of(norm, c);
    resizer *z = &p->resize;
    ASSERT(d->x >= 0 && d->y >= 0 && d->w > 0 && d->h > 0 && d->x + d->w <= w && d->y + d->h <= h);
    TRY(taps_make(&z->x, PIXELS_BILINEAR, d->w, n, 0, n));
    TRY(taps_make(&z->y, PIXELS_BILINEAR, d->h, n, 0, n));
    TRY(resizer_reserve(z, d->w, c));
    if (d->flip) taps_reverse(&z->x);
    taps_scale(&z->y, 1 / 255.0f);
    while (d->jitter && d->order[contrast] != DRAW_CONTRAST) contrast++;

    const unsigned char *box = image + (size_t)d->y * stride + (size_t)d->x * (size_t)c;
    palette before = {d, 0, contrast, 0}, after = {d, contrast, d->jitter ? 4 : 0, 0};
    bool one_pass = !d->jitter && !d->blur;
    double sum = 0;
    for (int y = 0; y < n; y++) {
        float *r = p->plane + (size_t)y * (size_t)n, *g = r + area, *b = g + area;
        resizer_row(z, box, stride, d->w, c, y);
        if (c == 3)
            split_row(z->line, n, r, g, b);
        else
            memcpy(r, z->line, (size_t)n * sizeof *r), g = b = r;
        color_row(&before, r, g, b, c, n);
        if (d->jitter) sum += c == 3 ? sum_luma(r, g, b, n) : sum_row(r, n);
        if (!d->jitter && d->gray && c == 3) make_gray(r, g, b, n);
        if (one_pass) finish_row(p, d->solarize, &a, y, out);
    }
    if (one_pass) goto done;
    after.mean = (float)(sum / (double)area);
    for (int y = 0; d->jitter && y < n; y++) {
        float *r = p->plane + (size_t)y * (size_t)n;
        float *g = c == 3 ? r + area : r, *b = c == 3 ? g + area : r;
        color_row(&after, r, g, b, c, n);
        if (d->gray && c == 3) make_gray(r, g, b, n);
        if (!d->blur) finish_row(p, d->solarize, &a, y, out);
    }
    if (!d->blur) goto done;
    for (int k = 0; k < c; k++) blur_plane(p, p->plane + (size_t)k * area, d->sigma);
    for (int y = 0; y < n; y++) finish_row(p, d->solarize, &a, y, out);
done:
    return rc;
}

/* ---- the image without randomness ------------------------------------------------------------ */

static void norm_line(const float *restrict in, int n, int c, const affine *a,
                      float *restrict out) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < c; k++) out[i * c + k] = in[i * c + k] * a->scale[k] + a->shift[k];
}

/* Where a centered window of n starts in m pixels, as in CenterCrop of torchvision. */
static int center_of(int m, int n) { return (int)lrint((m - n) / 2.0); }

int pixels_plain(pixels *p, const unsigned char *image, int w, int h, int side,
                 const pixels_norm *norm, float *out) {
    return pixels_plain_by(p, PIXELS_BICUBIC, image, w, h, side, norm, out);
}

int pixels_plain_by(pixels *p, pixels_filter filter, const unsigned char *image, int w, int h,
                    int side, const pixels_norm *norm, float *out) {
    int rc = 0, n = p->size, c = p->c, rw = n, rh = n, from_x = 0, from_y = 0;
    size_t stride = (size_t)w * (size_t)c;
    affine a = affine_of(norm, c);
    resizer *z = &p->resize;
    if (side > 0) { /* the long side is truncated, as in Resize of torchvision */
        if (side < n) side = n;
        rw = w <= h ? side : (int)((int64_t)side * w / h);
        rh = w <= h ? (int)((int64_t)side * h / w) : side;
        from_x = center_of(rw, n), from_y = center_of(rh, n);
    }
    TRY(taps_make(&z->x, filter, w, rw, from_x, n));
    TRY(taps_make(&z->y, filter, h, rh, from_y, n));
    TRY(resizer_reserve(z, w, c));
    taps_scale(&z->y, 1 / 255.0f);
    for (int y = 0; y < n; y++) {
        resizer_row(z, image, stride, w, c, y);
        norm_line(z->line, n, c, &a, out + (size_t)y * (size_t)n * (size_t)c);
    }
done:
    return rc;
}
