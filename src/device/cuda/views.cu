/* views.cu: views of images in device memory; views/pixels.c is the definition.
 *
 * One block per image, which may have any size.  One thread draws; then every thread has some pixels
 * of the result.  If no image is larger than a view and views are small (CIFAR-10), the whole image
 * is fetched as floats meanwhile, and pixels stay in registers between the two halves of the color
 * operations (contrast needs the mean of what the first half gives).  Other views compute the first
 * half twice instead of storing it, from the bytes of the crop, which are in shared memory if they
 * fit.  A blur takes rows through a ring in shared memory.
 *
 * Compiled without fused multiply-add, so that draws have the same bits as on the CPU; where it
 * helps the pixels, fmaf is called. */
#include "device/cuda/warp.cuh"

#include "base/status.h"
#include "views/draw_body.h"
#include "views/job.h"

#include <cuda_bf16.h>

/* All that a block needs; passed by value. */
typedef struct view_plan {
    const unsigned char *pixels;
    int c, size, short_side, taps; /* taps: weights of one output, at most */
    uint64_t seed;
    draw_policy policy;
    float scale[3], shift[3]; /* (x - mean) / deviation as scale x + shift */
    int room;        /* bytes of shared memory for an image or its crop, a multiple of 16 */
    int half, lines; /* of the blur: reach to each side, rows at a time */
} view_plan;

/* ---- resizing -------------------------------------------------------------------------------- */

/* The weights of one axis: output i takes count[i] inputs from first[i] on. */
typedef struct axis {
    int *first, *count; /* [size] */
    float *weight;      /* [size,taps] */
} axis;

/* Output i of `in` pixels resized to `out` (pixels_resize.c, taps_make). */
static __device__ void make_taps(const axis &a, int at, int i, int taps, int in, int out,
                                 float by) {
    float scale = (float)in / (float)out, support = scale > 1 ? scale : 1, narrow = 1 / support;
    float center = scale * ((float)i + 0.5f), total = 0, *weight = a.weight + at * taps;
    int low = (int)(center - support + 0.5f), high = (int)(center + support + 0.5f);
    low = low < 0 ? 0 : low, high = high > in ? in : high;
    if (high - low > taps) high = low + taps; /* never, by views_bound */
    for (int k = low; k < high; k++) {
        float x = fabsf(((float)k - center + 0.5f) * narrow);
        weight[k - low] = x < 1 ? 1 - x : 0;
        total += weight[k - low];
    }
    for (int k = 0; k < high - low; k++)
        weight[k] = (total != 0 ? weight[k] / total : weight[k]) * by;
    for (int k = high - low; k < taps; k++) weight[k] = 0;
    a.first[at] = low, a.count[at] = high - low;
}

/* A pixel from at most two taps per axis, of an image in floats, w pixels wide.  There are no
 * branches: a missing tap has weight 0 and reads a neighbor. */
template <int C>
static __device__ inline void resized_few(const float *image, int w, const axis &ax, const axis &ay,
                                          int x, int y, float *out) {
    float2 wx = ((const float2 *)ax.weight)[x], wy = ((const float2 *)ay.weight)[y];
    const float *corner = image + (ay.first[y] * w + ax.first[x]) * C;
#pragma unroll
    for (int k = 0; k < C; k++) {
        float left = fmaf(wy.y, corner[w * C + k], wy.x * corner[k]);
        float right = fmaf(wy.y, corner[(w + 1) * C + k], wy.x * corner[C + k]);
        out[k] = fmaf(wx.y, right, wx.x * left);
    }
}

/* The bytes of a crop, in shared or in global memory: rows `pitch` bytes apart. */
typedef struct crop {
    const unsigned char *at;
    int pitch;
} crop;

/* A byte as a float, by its place in the fraction: conversions are slow. */
static __device__ inline float float_of(unsigned char x) {
    return __uint_as_float(0x4b000000u | x) - 8388608.0f;
}

template <int C>
static __device__ inline void resized(const view_plan &v, const crop &from, const axis &ax,
                                      const axis &ay, int x, int y, float *out) {
    const float *wx = ax.weight + x * v.taps, *wy = ay.weight + y * v.taps;
    const unsigned char *corner = from.at + (size_t)ay.first[y] * from.pitch + ax.first[x] * C;
    int nx = ax.count[x], ny = ay.count[y];
    for (int k = 0; k < C; k++) out[k] = 0;
    for (int i = 0; i < nx; i++, corner += C) {
        float sum[C] = {0};
        const unsigned char *p = corner;
        for (int j = 0; j < ny; j++, p += from.pitch)
            for (int k = 0; k < C; k++) sum[k] = fmaf(wy[j], float_of(p[k]), sum[k]);
        for (int k = 0; k < C; k++) out[k] = fmaf(wx[i], sum[k], out[k]);
    }
}

/* ---- color ----------------------------------------------------------------------------------- */

static __device__ inline float unit(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
static __device__ inline float luma(const float *x) {
    return 0.2989f * x[0] + 0.587f * x[1] + 0.114f * x[2];
}

static __device__ inline void shift_hue(float *x, float shift) {
    float red = x[0], green = x[1], blue = x[2];
    float high = fmaxf(fmaxf(red, green), blue), low = fminf(fminf(red, green), blue);
    float chroma = high - low, inverse = 1 / (chroma > 0 ? chroma : 1);
    float at_red = (green - blue) * inverse, at_green = (blue - red) * inverse + 2;
    float at_blue = (red - green) * inverse + 4;
    float h = high == red ? at_red : high == green ? at_green : at_blue;
    h += 6 * shift;
    h = h < 0 ? h + 6 : h;
    h = h >= 6 ? h - 6 : h;
    x[0] = low + chroma * unit(fabsf(h - 3) - 1);
    x[1] = low + chroma * unit(2 - fabsf(h - 2));
    x[2] = low + chroma * unit(2 - fabsf(h - 4));
}

/* order[first .. stop-1] on one pixel; mean: of the image, for contrast */
template <int C>
static __device__ inline void color(const draw &d, int first, int stop, float mean, float *x) {
    for (int i = first; i < stop; i++) {
        int what = d.order[i];
        if (what == DRAW_BRIGHTNESS || what == DRAW_CONTRAST) {
            float factor = what == DRAW_CONTRAST ? d.contrast : d.brightness;
            float add = what == DRAW_CONTRAST ? (1 - factor) * mean : 0;
            for (int k = 0; k < C; k++) x[k] = unit(factor * x[k] + add);
        } else if (C == 3 && what == DRAW_SATURATION) {
            float gray = (1 - d.saturation) * luma(x);
            for (int k = 0; k < C; k++) x[k] = unit(d.saturation * x[k] + gray);
        } else if (C == 3) {
            shift_hue(x, d.hue);
        }
    }
}

template <int C> static __device__ inline void make_gray(float *x) {
    if (C == 3) x[0] = x[1] = x[2] = luma(x);
}

static __device__ inline void store(float *to, float x) { *to = x; }
static __device__ inline void store(__nv_bfloat16 *to, float x) { *to = __float2bfloat16(x); }

template <int C, typename T>
static __device__ inline void finish(const view_plan &v, bool solarize, const float *x, T *out) {
    for (int k = 0; k < C; k++) {
        float y = solarize && x[k] >= 0.5f ? 1 - x[k] : x[k];
        store(out + k, y * v.scale[k] + v.shift[k]);
    }
}

/* ---- a view ---------------------------------------------------------------------------------- */

typedef struct view_state {
    draw d;
    int contrast; /* its position in the order; 0 without jitter */
    float mean;
    double part[WARP];
    float kernel[256]; /* of the blur */
} view_state;

/* Copies the bytes of a crop, [rows][bytes] with rows `stride` apart, to shared memory in whole
 * words.  The pitch there differs from the stride by a multiple of 4, so that words stay words, and
 * leaves a gap in which words of two rows do not meet.  A crop without room stays where it is.  The
 * words that hold the first and the last byte may reach 3 bytes beyond: VIEWS_PAD. */
static __device__ crop fetch_crop(const unsigned char *from, int stride, int bytes, int rows,
                                  unsigned char *to, int room) {
    int pitch = bytes + 6 + ((stride - bytes - 6) & 3), words = (bytes + 3) / 4 + 1;
    int shift = (int)((size_t)from & 3);
    if ((size_t)pitch * rows > (size_t)room) return {from, stride};
    for (int p = threadIdx.x; p < rows * words; p += blockDim.x) {
        int row = p / words, word = p % words;
        const unsigned char *line = from + (size_t)row * stride;
        const unsigned char *at = line - ((size_t)line & 3) + 4 * word;
        if (at < line + bytes)
            *(uint32_t *)(to + ((shift + row * pitch) & ~3) + 4 * word) = *(const uint32_t *)at;
    }
    return {to + shift, pitch};
}

/* A whole image as floats, followed by some zeros, by the threads from `from` on. */
static __device__ void fetch_floats(const unsigned char *image, int bytes, int zeros, int from,
                                    float *to) {
    int t = (int)threadIdx.x - from, step = (int)blockDim.x - from;
    if (t < 0) return;
    for (int p = bytes + t; p < bytes + zeros; p += step) to[p] = 0;
    if (((size_t)image | (size_t)bytes) % 4 == 0)
        for (int p = t; p < bytes / 4; p += step) {
            uchar4 x = ((const uchar4 *)image)[p];
            ((float4 *)to)[p] = make_float4(x.x, x.y, x.z, x.w);
        }
    else
        for (int p = t; p < bytes; p += step) to[p] = image[p];
}

static __device__ inline int mirrored(int i, int n) {
    if (i < 0) i = -i;
    return i >= n ? 2 * (n - 1) - i : i;
}

/* The pixel before blur and solarize. */
template <int C>
static __device__ inline void colored(const view_plan &v, const view_state &s, const crop &from,
                                      const axis &ax, const axis &ay, int x, int y, float *out) {
    resized<C>(v, from, ax, ay, x, y, out);
    if (s.d.jitter) color<C>(s.d, 0, 4, s.mean, out);
    if (s.d.gray) make_gray<C>(out);
}

/* Two passes, v.lines rows at a time.  rows: [lines,size,C], colored; then a ring of
 * lines + 2 half rows that are blurred sideways: row y is number y mod that. */
template <int C, typename T>
static __device__ void blurred(const view_plan &v, view_state &s, const crop &from, const axis &ax,
                               const axis &ay, float *rows, T *out) {
    int n = v.size, reach = 0, ring = v.lines + 2 * v.half, made = 0;
    float total = 0, *sideways = rows + (size_t)v.lines * n * C;
    for (int i = threadIdx.x; i <= v.half; i += blockDim.x)
        s.kernel[i] = expf(-0.5f * (float)(i * i) / (s.d.sigma * s.d.sigma));
    __syncthreads();
    for (int i = 0; i <= v.half; i++) {
        total += (i ? 2 : 1) * s.kernel[i];
        if (s.kernel[i] > 1e-8f) reach = i;
    }
    __syncthreads();
    for (int i = threadIdx.x; i <= v.half; i += blockDim.x) s.kernel[i] /= total;
    for (int y0 = 0; y0 < n; y0 += v.lines) {
        int stop = y0 + v.lines < n ? y0 + v.lines : n; /* rows y0 .. stop-1 of the result */
        while (made < n && made < stop + reach) {
            int lines = n - made < v.lines ? n - made : v.lines;
            if (made + lines > stop + reach) lines = stop + reach - made;
            for (int p = threadIdx.x; p < lines * n; p += blockDim.x)
                colored<C>(v, s, from, ax, ay, p % n, made + p / n, rows + (size_t)p * C);
            __syncthreads();
            for (int p = threadIdx.x; p < lines * n * C; p += blockDim.x) {
                int channel = p % C, x = p / C % n, line = p / C / n;
                const float *row = rows + (size_t)line * n * C + channel;
                float sum = 0;
                for (int k = -reach; k <= reach; k++)
                    sum = fmaf(s.kernel[k < 0 ? -k : k], row[mirrored(x + k, n) * C], sum);
                sideways[((size_t)((made + line) % ring) * n + x) * C + channel] = sum;
            }
            __syncthreads();
            made += lines;
        }
        for (int p = threadIdx.x; p < (stop - y0) * n; p += blockDim.x) {
            int at = p % n, y = y0 + p / n;
            float x[C];
            for (int channel = 0; channel < C; channel++) x[channel] = 0;
            for (int k = -reach; k <= reach; k++) {
                float weight = s.kernel[k < 0 ? -k : k];
                const float *row = sideways + ((size_t)(mirrored(y + k, n) % ring) * n + at) * C;
                for (int channel = 0; channel < C; channel++)
                    x[channel] = fmaf(weight, row[channel], x[channel]);
            }
            finish<C>(v, s.d.solarize, x, out + ((size_t)y * n + at) * C);
        }
        __syncthreads();
    }
}

/* P: pixels of a thread, all of which stay in registers, with the whole image in shared memory as
 * floats (only if no image is larger than a view); 0: none. */
template <int C, int P, typename T>
static __global__ void __launch_bounds__(1024)
    view_kernel(view_plan v, const step_values *at, const views_row *rows, uint32_t view, T *out) {
    __shared__ view_state s;
    extern __shared__ __align__(16) unsigned char memory[];
    views_row row = rows[blockIdx.x];
    int n = v.size, area = n * n, w = row.w, h = row.h;
    const unsigned char *image = v.pixels + row.at;
    axis ax, ay;
    ax.first = (int *)(memory + v.room), ax.count = ax.first + n, ay.first = ax.count + n;
    ay.count = ay.first + n;
    ax.weight = (float *)(ay.count + n), ay.weight = ax.weight + n * v.taps;
    out += (size_t)blockIdx.x * area * C;

    if (threadIdx.x == 0) {
        s.d = draw_make(&v.policy, v.seed, at->epoch, (uint32_t)row.id, view, w, h);
        s.contrast = 0;
        while (s.d.jitter && s.d.order[s.contrast] != DRAW_CONTRAST) s.contrast++;
    }
    if (P > 0) fetch_floats(image, w * h * C, (w + 1) * C, WARP, (float *)memory);
    __syncthreads();
    crop from = {image + ((size_t)s.d.y * w + s.d.x) * C, w * C};
    if (P == 0 && !s.d.blur) /* a blur needs the room for its rows */
        from = fetch_crop(from.at, from.pitch, s.d.w * C, s.d.h, memory, v.room);
    for (int t = threadIdx.x; t < 2 * n; t += blockDim.x) {
        int i = t < n ? t : t - n;
        if (t < n)
            make_taps(ax, s.d.flip ? n - 1 - i : i, i, v.taps, s.d.w, n, 1);
        else
            make_taps(ay, i, i, v.taps, s.d.h, n, 1 / 255.0f);
    }
    __syncthreads();

    float kept[P > 0 ? P : 1][C];
    double sum = 0;
    bool jitter = s.d.jitter;
    const float *shown = (const float *)memory + ((size_t)s.d.y * w + s.d.x) * C;
    if (P > 0 || jitter) {
#pragma unroll
        for (int p = 0; P > 0 ? p < P : p * (int)blockDim.x < area; p++) {
            int q = p * (int)blockDim.x + (int)threadIdx.x;
            if (q >= area) break;
            float *x = kept[P > 0 ? p : 0];
            if (P > 0)
                resized_few<C>(shown, w, ax, ay, q % n, q / n, x);
            else
                resized<C>(v, from, ax, ay, q % n, q / n, x);
            if (!jitter) continue;
            color<C>(s.d, 0, s.contrast, 0, x);
            sum += C == 3 ? luma(x) : x[0];
        }
    }
    if (jitter) {
        sum = block_sum(sum, s.part);
        if (threadIdx.x == 0) s.mean = (float)(sum / area);
        __syncthreads();
    }
    if (P == 0 && s.d.blur) {
        blurred<C>(v, s, from, ax, ay, (float *)memory, out);
        return;
    }
#pragma unroll
    for (int p = 0; P > 0 ? p < P : p * (int)blockDim.x < area; p++) {
        int q = p * (int)blockDim.x + (int)threadIdx.x;
        if (q >= area) break;
        float *x = kept[P > 0 ? p : 0];
        if (P > 0) {
            if (jitter) color<C>(s.d, s.contrast, 4, s.mean, x);
            if (s.d.gray) make_gray<C>(x);
        } else {
            colored<C>(v, s, from, ax, ay, q % n, q / n, x);
        }
        finish<C>(v, s.d.solarize, x, out + (size_t)q * C);
    }
}

/* ---- without randomness ---------------------------------------------------------------------- */

/* Output i of an axis: count inputs from first on; weights are computed where they are used, as an
 * image that is squashed may need any number of them. */
typedef struct span {
    int first, count;
    float center, inverse; /* inverse: 1 / the sum of the weights */
} span;

static __device__ inline float cubic(float x) {
    const float a = -0.5f;
    x = fabsf(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static __device__ inline float weight_at(const span &a, int k, float narrow) {
    return cubic(((float)(a.first + k) - a.center + 0.5f) * narrow) * a.inverse;
}

/* 1 / how much wider than usual the weights are */
static __device__ inline float narrow_of(int in, int out) {
    return in > out ? 1 / ((float)in / (float)out) : 1;
}

static __device__ span make_span(int i, int in, int out) {
    float scale = (float)in / (float)out, support = scale > 1 ? 2 * scale : 2, total = 0;
    float narrow = narrow_of(in, out);
    span a;
    a.center = scale * ((float)i + 0.5f), a.inverse = 1;
    int low = (int)(a.center - support + 0.5f), high = (int)(a.center + support + 0.5f);
    a.first = low < 0 ? 0 : low;
    a.count = (high > in ? in : high) - a.first;
    for (int k = 0; k < a.count; k++) total += weight_at(a, k, narrow);
    if (total != 0) a.inverse = 1 / total;
    return a;
}

/* Where a centered window of n starts in m pixels (pixels.c). */
static __device__ inline int center_of(int m, int n) { return (int)rint((m - n) / 2.0); }

/* The images without randomness, one block each. */
template <int C, typename T>
static __global__ void __launch_bounds__(512)
    plain_kernel(view_plan v, const views_row *rows, T *out) {
    extern __shared__ __align__(16) unsigned char memory[];
    views_row row = rows[blockIdx.x];
    int n = v.size, area = n * n, w = row.w, h = row.h, rw = n, rh = n, from_x = 0, from_y = 0;
    const unsigned char *image = v.pixels + row.at;
    span *ax = (span *)memory, *ay = ax + n;
    out += (size_t)blockIdx.x * area * C;
    if (v.short_side > 0) {
        int side = v.short_side < n ? n : v.short_side;
        rw = w <= h ? side : (int)((int64_t)side * w / h);
        rh = w <= h ? (int)((int64_t)side * h / w) : side;
        from_x = center_of(rw, n), from_y = center_of(rh, n);
    }
    if (rw == w && rh == h) { /* only cut out */
        image += ((size_t)from_y * w + from_x) * C;
        for (int p = threadIdx.x; p < area * C; p += blockDim.x) {
            int k = p % C;
            float x = image[(size_t)(p / (n * C)) * w * C + p % (n * C)];
            store(out + p, x * (1 / 255.0f) * v.scale[k] + v.shift[k]);
        }
        return;
    }
    for (int t = threadIdx.x; t < 2 * n; t += blockDim.x)
        ax[t] = t < n ? make_span(from_x + t, w, rw) : make_span(from_y + t - n, h, rh);
    __syncthreads();
    float narrow_x = narrow_of(w, rw), narrow_y = narrow_of(h, rh);
    for (int q = threadIdx.x; q < area; q += blockDim.x) {
        const span a = ax[q % n], b = ay[q / n];
        const unsigned char *line = image + ((size_t)b.first * w + a.first) * C;
        float sum[C] = {0};
        for (int j = 0; j < b.count; j++, line += w * C) {
            float part[C] = {0}, by = weight_at(b, j, narrow_y);
            for (int i = 0; i < a.count; i++) {
                float weight = weight_at(a, i, narrow_x);
                for (int k = 0; k < C; k++)
                    part[k] = fmaf(weight, float_of(line[i * C + k]), part[k]);
            }
            for (int k = 0; k < C; k++) sum[k] = fmaf(by, part[k], sum[k]);
        }
        for (int k = 0; k < C; k++)
            store(out + (size_t)q * C + k, sum[k] * (1 / 255.0f) * v.scale[k] + v.shift[k]);
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* How a job is launched. */
typedef struct view_launch {
    view_plan v;
    int kept, threads; /* kept: pixels in the registers of a thread, or 0 */
    size_t shared, plain_shared;
} view_launch;

static size_t up16(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* The room of a blur with so many rows at a time. */
static size_t blur_room(const view_plan &v, int lines) {
    return up16(sizeof(float) * v.size * v.c * (2 * (size_t)lines + 2 * (size_t)v.half));
}

/* Rows at a time: some thousand pixels, less if two blocks then fit into a multiprocessor, and what
 * fits at all.  0: nothing does. */
static int blur_lines(const view_plan &v, size_t weights, size_t most) {
    int lines = 4096 / v.size + 1;
    if (lines > v.size) lines = v.size;
    size_t two = most / 2 > 3 * 1024 ? most / 2 - 3 * 1024 : 0;
    if (weights + blur_room(v, 4) <= two) most = two;
    while (lines > 0 && weights + blur_room(v, lines) > most) lines--;
    return lines;
}

/* False if there is not enough shared memory. */
static bool plan_views(device *dev, const views_job *job, view_launch *l) {
    view_plan &v = l->v;
    size_t most = cuda_shared_memory(dev) - sizeof(view_state), source_most = 96 * 1024;
    v.pixels = job->pixels, v.c = job->c, v.size = job->size, v.short_side = job->short_side;
    v.seed = job->seed, v.policy = job->policy;
    for (int k = 0; k < v.c; k++) {
        v.scale[k] = 1 / job->norm.deviation[k];
        v.shift[k] = -job->norm.mean[k] / job->norm.deviation[k];
    }
    int side = job->box_w > job->box_h ? job->box_w : job->box_h;
    float scale = (float)side / (float)v.size;
    v.taps = scale > 1 ? (int)(2 * scale) + 2 : 2;
    v.half = (v.size / 10 | 1) / 2;
    size_t area = (size_t)v.size * v.size;
    size_t weights = sizeof(float) * v.size * (4 + 2 * (size_t)v.taps);
    l->plain_shared = sizeof(span) * 2 * (size_t)v.size;
    if (v.half >= 256 || weights > most || l->plain_shared > most) return false;
    /* an image no larger than a view, with a row and a pixel of zeros */
    bool small = job->w <= v.size && job->h <= v.size;
    size_t floats = sizeof(float) * (area + v.size + 1) * v.c;
    if (v.policy.blur <= 0 && small && area <= 4 * 1024 && up16(floats) + weights <= most) {
        l->kept = area > 2 * 1024 ? 4 : 2;
        int threads = ((int)(area + 1) / 2 + WARP - 1) / WARP * WARP;
        l->threads = l->kept == 4 ? 1024 : threads < 64 ? 64 : threads;
        v.room = (int)up16(floats);
        l->shared = v.room + weights;
        return true;
    }
    l->kept = 0, l->threads = area > 4 * 1024 ? 1024 : 512;
    size_t box = up16(((size_t)job->box_w * v.c + 9) * job->box_h), room = box;
    if (room > source_most) room = source_most;
    if (weights + room > most) room = (most - weights) / 16 * 16;
    if (v.policy.blur > 0) {
        v.lines = blur_lines(v, weights, most);
        if (!v.lines) return false;
        room = blur_room(v, v.lines);
    }
    v.room = (int)room;
    l->shared = room + weights;
    return true;
}

template <int C, int P, typename T>
static int launch_view(device *dev, const view_launch &l, const step_values *at,
                       const views_row *rows, int n, int view, act *out) {
    int rc = 0;
    if (l.shared > 32 * 1024) TRY(allow_shared(view_kernel<C, P, T>, l.shared));
    launch(dev, view_kernel<C, P, T>, n, l.threads, l.shared, l.v, at, rows, (uint32_t)view,
           (T *)out);
    TRY(launched("views"));
done:
    return rc;
}

template <int C, typename T>
static int launch_views(device *dev, const view_launch &l, const step_values *at,
                        const views_row *rows, int n, int view, act *out) {
    int rc = 0;
    if (view == 2) {
        if (l.plain_shared > 32 * 1024) TRY(allow_shared(plain_kernel<C, T>, l.plain_shared));
        launch(dev, plain_kernel<C, T>, n, 512, l.plain_shared, l.v, rows, (T *)out);
        return launched("views");
    }
    return l.kept == 4   ? launch_view<C, 4, T>(dev, l, at, rows, n, view, out)
           : l.kept == 2 ? launch_view<C, 2, T>(dev, l, at, rows, n, view, out)
                         : launch_view<C, 0, T>(dev, l, at, rows, n, view, out);
done:
    return rc;
}

static bool views_takes(device *dev, const struct views_job *job) {
    view_launch l = {};
    return plan_views(dev, job, &l);
}

static int views(device *dev, const step_values *at, const struct views_job *job,
                 const struct views_row *rows, int n, int view, act *out) {
    view_launch l = {};
    if (n < 1) return 0;
    if (!plan_views(dev, job, &l))
        return cuda_check((int)cudaErrorInvalidValue, "views: too large for shared memory");
    bool wide = dev->type == ACT_F32;
    if (l.v.c == 3)
        return wide ? launch_views<3, float>(dev, l, at, rows, n, view, out)
                    : launch_views<3, __nv_bfloat16>(dev, l, at, rows, n, view, out);
    return wide ? launch_views<1, float>(dev, l, at, rows, n, view, out)
                : launch_views<1, __nv_bfloat16>(dev, l, at, rows, n, view, out);
}

void cuda_view_ops(device_ops *op) {
    op->views = views;
    op->views_takes = views_takes;
}
