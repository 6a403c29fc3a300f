/* views.cu: views of images in device memory; views/pixels.c is the definition.
 *
 * One block per image.  One thread draws while the others fetch the image; then every thread has
 * some pixels of the result, which stay in its registers between the two halves of the color
 * operations (contrast needs the mean of what the first half gives).  Views too large for that, and
 * those that may be blurred, compute the first half twice instead of storing it; a blur takes
 * strips of rows through shared memory.
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
    int h, w, c, size, taps; /* taps: weights of one output, at most */
    uint64_t seed;
    draw_policy policy;
    float scale[3], shift[3]; /* (x - mean) / deviation as scale x + shift */
    int half, strip;          /* of the blur: reach to each side, rows at a time */
    int source_bytes;         /* of an image in shared memory; 0: it stays in global memory */
} view_plan;

/* ---- resizing -------------------------------------------------------------------------------- */

/* The weights of one axis: output i takes count[i] inputs from first[i] on. */
typedef struct axis {
    int *first, *count; /* [size] */
    float *weight;      /* [size,taps] */
} axis;

/* Output i of `in` pixels from `from` on, resized to `out` (pixels_resize.c, taps_make). */
static __device__ void make_taps(const axis &a, int at, int i, int taps, int in, int out, int from,
                                 float by) {
    float scale = (float)in / (float)out, support = scale > 1 ? scale : 1, narrow = 1 / support;
    float center = scale * ((float)i + 0.5f), total = 0, *weight = a.weight + at * taps;
    int low = (int)(center - support + 0.5f), high = (int)(center + support + 0.5f);
    low = low < 0 ? 0 : low, high = high > in ? in : high;
    for (int k = low; k < high; k++) {
        float x = fabsf(((float)k - center + 0.5f) * narrow);
        weight[k - low] = x < 1 ? 1 - x : 0;
        total += weight[k - low];
    }
    for (int k = 0; k < high - low; k++)
        weight[k] = (total != 0 ? weight[k] / total : weight[k]) * by;
    for (int k = high - low; k < taps; k++) weight[k] = 0;
    a.first[at] = from + low, a.count[at] = high - low;
}

/* A pixel from at most two taps per axis, of an image in floats.  There are no branches: a missing
 * tap has weight 0 and reads a neighbor. */
template <int C>
static __device__ inline void resized_few(const view_plan &v, const float *image, const axis &ax,
                                          const axis &ay, int x, int y, float *out) {
    float2 wx = ((const float2 *)ax.weight)[x], wy = ((const float2 *)ay.weight)[y];
    const float *corner = image + (ay.first[y] * v.w + ax.first[x]) * C;
#pragma unroll
    for (int k = 0; k < C; k++) {
        float left = fmaf(wy.y, corner[v.w * C + k], wy.x * corner[k]);
        float right = fmaf(wy.y, corner[(v.w + 1) * C + k], wy.x * corner[C + k]);
        out[k] = fmaf(wx.y, right, wx.x * left);
    }
}

template <int C>
static __device__ inline void resized(const view_plan &v, const unsigned char *image,
                                      const axis &ax, const axis &ay, int x, int y, float *out) {
    const float *wx = ax.weight + x * v.taps, *wy = ay.weight + y * v.taps;
    const unsigned char *corner = image + ((size_t)ay.first[y] * v.w + ax.first[x]) * C;
    int nx = ax.count[x], ny = ay.count[y];
    for (int k = 0; k < C; k++) out[k] = 0;
    for (int i = 0; i < nx; i++) {
        float sum[C] = {0};
        for (int j = 0; j < ny; j++)
            for (int k = 0; k < C; k++)
                sum[k] = fmaf(wy[j], (float)corner[((size_t)j * v.w + i) * C + k], sum[k]);
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

/* Copies an image, in whole words if the addresses allow it, by the threads from `from` on. */
static __device__ void fetch(const unsigned char *image, int bytes, int from, unsigned char *to) {
    int t = (int)threadIdx.x - from, step = (int)blockDim.x - from;
    if (t < 0) return;
    if (((size_t)image | (size_t)bytes) % 16 == 0)
        for (int p = t; p < bytes / 16; p += step) ((uint4 *)to)[p] = ((const uint4 *)image)[p];
    else
        for (int p = t; p < bytes; p += step) to[p] = image[p];
}

/* The same as floats, followed by some zeros. */
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
static __device__ inline void colored(const view_plan &v, const view_state &s,
                                      const unsigned char *image, const axis &ax, const axis &ay,
                                      int x, int y, float *out) {
    resized<C>(v, image, ax, ay, x, y, out);
    if (s.d.jitter) color<C>(s.d, 0, 4, s.mean, out);
    if (s.d.gray) make_gray<C>(out);
}

/* Two passes over strips of v.strip rows; rows: [strip + 2 half, size, C] twice. */
template <int C, typename T>
static __device__ void blurred(const view_plan &v, view_state &s, const unsigned char *image,
                               const axis &ax, const axis &ay, float *rows, T *out) {
    int n = v.size, reach = 0, room = v.strip + 2 * v.half;
    float total = 0, *sideways = rows + (size_t)room * n * C;
    for (int i = threadIdx.x; i <= v.half; i += blockDim.x)
        s.kernel[i] = expf(-0.5f * (float)(i * i) / (s.d.sigma * s.d.sigma));
    __syncthreads();
    for (int i = 0; i <= v.half; i++) {
        total += (i ? 2 : 1) * s.kernel[i];
        if (s.kernel[i] > 1e-8f) reach = i;
    }
    __syncthreads();
    for (int i = threadIdx.x; i <= v.half; i += blockDim.x) s.kernel[i] /= total;
    for (int y0 = 0; y0 < n; y0 += v.strip) {
        int lines = (n - y0 < v.strip ? n - y0 : v.strip) + 2 * reach;
        for (int p = threadIdx.x; p < lines * n; p += blockDim.x)
            colored<C>(v, s, image, ax, ay, p % n, mirrored(y0 - reach + p / n, n),
                       rows + (size_t)p * C);
        __syncthreads();
        for (int p = threadIdx.x; p < lines * n * C; p += blockDim.x) {
            int channel = p % C, x = p / C % n, line = p / C / n;
            float sum = 0;
            for (int k = -reach; k <= reach; k++)
                sum = fmaf(s.kernel[k < 0 ? -k : k],
                           rows[((size_t)line * n + mirrored(x + k, n)) * C + channel], sum);
            sideways[p] = sum;
        }
        __syncthreads();
        for (int p = threadIdx.x; p < (lines - 2 * reach) * n; p += blockDim.x) {
            float x[C];
            for (int channel = 0; channel < C; channel++) {
                x[channel] = 0;
                for (int k = -reach; k <= reach; k++)
                    x[channel] = fmaf(s.kernel[k < 0 ? -k : k],
                                      sideways[((size_t)p + (size_t)(reach + k) * n) * C + channel],
                                      x[channel]);
            }
            finish<C>(v, s.d.solarize, x, out + ((size_t)y0 * n + p) * C);
        }
        __syncthreads();
    }
}

/* P: pixels of a thread, all of which stay in registers (only if the image is not reduced); 0:
 * none. SHARED: the image is in shared memory, as floats if P > 0. */
template <int C, int P, bool SHARED, typename T>
static __global__ void __launch_bounds__(1024)
    view_kernel(view_plan v, const step_values *at, const int32_t *ids, uint32_t view, T *out) {
    __shared__ view_state s;
    extern __shared__ __align__(16) unsigned char memory[];
    int n = v.size, area = n * n, id = ids[blockIdx.x];
    const unsigned char *image = v.pixels + (size_t)id * v.h * v.w * C;
    float *rest = (float *)(memory + (SHARED ? v.source_bytes : 0));
    axis ax, ay;
    ax.first = (int *)rest, ax.count = ax.first + n, ay.first = ax.count + n;
    ay.count = ay.first + n;
    ax.weight = (float *)(ay.count + n), ay.weight = ax.weight + n * v.taps;
    rest = ay.weight + n * v.taps;
    out += (size_t)blockIdx.x * area * C;

    if (threadIdx.x == 0) {
        s.d = draw_make(&v.policy, v.seed, at->epoch, (uint32_t)id, view, v.w, v.h);
        s.contrast = 0;
        while (s.d.jitter && s.d.order[s.contrast] != DRAW_CONTRAST) s.contrast++;
    }
    if (P > 0)
        fetch_floats(image, v.h * v.w * C, (v.w + 1) * C, WARP, (float *)memory);
    else if (SHARED)
        fetch(image, v.h * v.w * C, WARP, memory);
    if (SHARED) image = memory;
    __syncthreads();
    for (int t = threadIdx.x; t < 2 * n; t += blockDim.x) {
        int i = t < n ? t : t - n;
        if (t < n)
            make_taps(ax, s.d.flip ? n - 1 - i : i, i, v.taps, s.d.w, n, s.d.x, 1);
        else
            make_taps(ay, i, i, v.taps, s.d.h, n, s.d.y, 1 / 255.0f);
    }
    __syncthreads();

    float kept[P > 0 ? P : 1][C];
    double sum = 0;
    bool jitter = s.d.jitter;
    if (P > 0 || jitter) {
#pragma unroll
        for (int p = 0; P > 0 ? p < P : p * (int)blockDim.x < area; p++) {
            int q = p * (int)blockDim.x + (int)threadIdx.x;
            if (q >= area) break;
            float *x = kept[P > 0 ? p : 0];
            if (P > 0)
                resized_few<C>(v, (const float *)memory, ax, ay, q % n, q / n, x);
            else
                resized<C>(v, image, ax, ay, q % n, q / n, x);
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
        blurred<C>(v, s, image, ax, ay, rest, out);
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
            colored<C>(v, s, image, ax, ay, q % n, q / n, x);
        }
        finish<C>(v, s.d.solarize, x, out + (size_t)q * C);
    }
}

/* The images without randomness, one block each. */
template <typename T> static __global__ void plain_kernel(view_plan v, const int32_t *ids, T *out) {
    int one = v.h * v.w * v.c;
    const unsigned char *image = v.pixels + (size_t)ids[blockIdx.x] * one;
    out += (size_t)blockIdx.x * one;
#pragma unroll 4
    for (int p = threadIdx.x; p < one; p += blockDim.x) {
        int k = v.c == 3 ? p % 3 : 0;
        store(out + p, (float)image[p] * (1 / 255.0f) * v.scale[k] + v.shift[k]);
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

enum { SHARED_MOST = 200 * 1024, SOURCE_MOST = 96 * 1024 };

template <int C, int P, bool SHARED, typename T>
static int launch_view(device *dev, const view_plan &v, int threads, size_t shared,
                       const step_values *at, const int32_t *ids, int n, int view, act *out) {
    int rc = 0;
    if (shared > 48 * 1024) TRY(allow_shared(view_kernel<C, P, SHARED, T>, shared));
    view_kernel<C, P, SHARED, T>
        <<<n, threads, shared, stream_of(dev)>>>(v, at, ids, (uint32_t)view, (T *)out);
    TRY(launched("views"));
done:
    return rc;
}

template <int C, typename T>
static int launch_views(device *dev, view_plan v, const step_values *at, const int32_t *ids, int n,
                        int view, act *out) {
    size_t area = (size_t)v.size * v.size, bytes = (size_t)v.h * v.w * C;
    size_t shared = sizeof(float) * v.size * (4 + 2 * (size_t)v.taps);
    size_t floats = (bytes + (size_t)(v.w + 1) * C + 3) / 4 * 4 * sizeof(float);
    if (v.policy.blur <= 0 && v.taps == 2 && area <= 4 * 1024 && floats + shared <= SHARED_MOST) {
        v.source_bytes = (int)floats, shared += floats;
        if (area > 2 * 1024)
            return launch_view<C, 4, true, T>(dev, v, 1024, shared, at, ids, n, view, out);
        int threads = ((int)(area + 1) / 2 + WARP - 1) / WARP * WARP;
        return launch_view<C, 2, true, T>(dev, v, threads < 64 ? 64 : threads, shared, at, ids, n,
                                          view, out);
    }
    bool shared_image = bytes <= SOURCE_MOST && shared + bytes + 16 <= SHARED_MOST;
    if (shared_image) shared += v.source_bytes = (int)((bytes + 15) / 16 * 16);
    if (v.policy.blur > 0) {
        size_t row = 2 * sizeof(float) * v.size * C, least = (1 + 2 * (size_t)v.half) * row;
        if (shared + least > SHARED_MOST && shared_image)
            shared_image = false, shared -= v.source_bytes;
        if (shared + least > SHARED_MOST || v.half >= 256)
            return cuda_check((int)cudaErrorInvalidValue, "views: too large to be blurred");
        size_t lines = (SHARED_MOST - shared) / row;
        v.strip = (int)(lines - 2 * v.half < (size_t)v.size ? lines - 2 * v.half : v.size);
        shared += row * (v.strip + 2 * v.half);
    }
    int threads = area > 4 * 1024 ? 1024 : 512;
    return shared_image
               ? launch_view<C, 0, true, T>(dev, v, threads, shared, at, ids, n, view, out)
               : launch_view<C, 0, false, T>(dev, v, threads, shared, at, ids, n, view, out);
}

static int views(device *dev, const step_values *at, const struct views_job *job,
                 const int32_t *ids, int n, int view, act *out) {
    if (n < 1) return 0;
    view_plan v = {};
    v.pixels = job->pixels, v.h = job->h, v.w = job->w, v.c = job->c, v.size = job->size;
    v.seed = job->seed, v.policy = job->policy;
    for (int k = 0; k < v.c; k++) {
        v.scale[k] = 1 / job->norm.deviation[k];
        v.shift[k] = -job->norm.mean[k] / job->norm.deviation[k];
    }
    int side = v.h > v.w ? v.h : v.w;
    float most = (float)side / (float)v.size;
    v.taps = most > 1 ? (int)(2 * most) + 2 : 2;
    v.half = (v.size / 10 | 1) / 2;
    bool wide = dev->type == ACT_F32;
    if (view == 2) {
        if (wide)
            plain_kernel<<<n, 512, 0, stream_of(dev)>>>(v, ids, (float *)out);
        else
            plain_kernel<<<n, 512, 0, stream_of(dev)>>>(v, ids, (__nv_bfloat16 *)out);
        return launched("views");
    }
    if (v.c == 3)
        return wide ? launch_views<3, float>(dev, v, at, ids, n, view, out)
                    : launch_views<3, __nv_bfloat16>(dev, v, at, ids, n, view, out);
    return wide ? launch_views<1, float>(dev, v, at, ids, n, view, out)
                : launch_views<1, __nv_bfloat16>(dev, v, at, ids, n, view, out);
}

void cuda_view_ops(device_ops *op) { op->views = views; }
