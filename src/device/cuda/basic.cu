/* basic.cu: elementwise work: conversions, pools, pixels of strided 1x1 convolutions, and the
 * update of the weights. */
#include "device/cuda/vector.cuh"

enum { THREADS = 256 };

static int grid_for(device *dev, size_t items) {
    size_t blocks = (items + THREADS - 1) / THREADS, most = (size_t)cuda_processors(dev) * 16;
    return (int)(blocks < most ? (blocks ? blocks : 1) : most);
}

#define EACH(i, n)                                                                                 \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                        \
         i += (size_t)gridDim.x * blockDim.x)

/* ---- conversions ----------------------------------------------------------------------------- */

template <typename F, typename T>
static __global__ void convert(const F *from, size_t count, size_t whole, bool add, T *to) {
    EACH(i, whole) {
        vec<F, 4> in = load<F, 4>(from + 4 * i);
        float x[4];
        floats<F, 4>(in, x);
        if (add)
            for (int j = 0; j < 4; j++) x[j] += to_float(to[4 * i + j]);
        store<T, 4>(to + 4 * i, x);
    }
    EACH(i, count - 4 * whole) {
        size_t at = 4 * whole + i;
        from_float(to_float(from[at]) + (add ? to_float(to[at]) : 0), &to[at]);
    }
}

template <typename F, typename T>
static int converted(device *dev, const F *from, size_t count, bool add, T *to) {
    if (!count) return 0;
    bool aligned = (size_t)from % (4 * sizeof(F)) == 0 && (size_t)to % (4 * sizeof(T)) == 0;
    size_t whole = aligned ? count / 4 : 0, items = aligned ? whole + 3 : count;
    launch(dev, convert<F, T>, grid_for(dev, items), THREADS, 0, from, count, whole, add, to);
    return launched("conversion");
}

extern "C" int cuda_act_from(device *dev, const float *x, size_t count, act *out) {
    return dev->type == ACT_BF16 ? converted(dev, x, count, false, (bf16 *)out)
                                 : converted(dev, x, count, false, (float *)out);
}

extern "C" int cuda_act_to(device *dev, const act *x, size_t count, float *out) {
    return dev->type == ACT_BF16 ? converted(dev, (const bf16 *)x, count, false, out)
                                 : converted(dev, (const float *)x, count, false, out);
}

extern "C" int cuda_to_bf16(device *dev, const float *from, size_t count, void *to) {
    return converted(dev, from, count, false, (bf16 *)to);
}

static __global__ void scale(const float *from, size_t count, float factor, float *to) {
    EACH(i, count) to[i] = factor * from[i];
}

extern "C" int cuda_scale(device *dev, const float *from, size_t count, float factor, float *to) {
    launch(dev, scale, grid_for(dev, count), THREADS, 0, from, count, factor, to);
    return launched("scaling");
}

extern "C" int cuda_grow_floats(device *dev, const void *from, bool from_bf16, size_t count,
                                bool add, float *out) {
    return from_bf16 ? converted(dev, (const bf16 *)from, count, add, out)
                     : converted(dev, (const float *)from, count, add, out);
}

extern "C" int cuda_acts_add(device *dev, const act *from, size_t count, act *to) {
    return dev->type == ACT_BF16 ? converted(dev, (const bf16 *)from, count, true, (bf16 *)to)
                                 : converted(dev, (const float *)from, count, true, (float *)to);
}

/* ---- strided 1x1 convolutions ---------------------------------------------------------------- */

typedef struct picking {
    int h, w, c, oh, ow, stride;
} picking;

template <typename T, int V>
static __global__ void pick(picking p, size_t total, const T *x, T *picked) {
    int cv = p.c / V;
    EACH(i, total) {
        size_t pixel = i / cv;
        int v = (int)(i % cv), ox = (int)(pixel % p.ow), oy = (int)(pixel / p.ow % p.oh);
        size_t image = pixel / p.ow / p.oh;
        size_t from = ((image * p.h + oy * p.stride) * p.w + ox * p.stride) * p.c + v * V;
        *(vec<T, V> *)(picked + i * V) = load<T, V>(x + from);
    }
}

/* add: only the picked pixels of dx are touched, one thread each; else all are written. */
template <typename T, int V>
static __global__ void spread_add(picking p, size_t total, const T *picked, T *dx) {
    int cv = p.c / V;
    EACH(i, total) {
        size_t pixel = i / cv;
        int v = (int)(i % cv), ox = (int)(pixel % p.ow), oy = (int)(pixel / p.ow % p.oh);
        size_t image = pixel / p.ow / p.oh;
        T *to = dx + ((image * p.h + oy * p.stride) * p.w + ox * p.stride) * p.c + v * V;
        float a[V], b[V];
        floats<T, V>(load<T, V>(picked + i * V), a);
        floats<T, V>(load<T, V>(to), b);
        for (int j = 0; j < V; j++) a[j] += b[j];
        store<T, V>(to, a);
    }
}

template <typename T, int V>
static __global__ void spread_set(picking p, size_t total, const T *picked, T *dx) {
    int cv = p.c / V;
    EACH(i, total) {
        size_t pixel = i / cv;
        int v = (int)(i % cv), x = (int)(pixel % p.w), y = (int)(pixel / p.w % p.h);
        size_t image = pixel / p.w / p.h;
        float a[V] = {0};
        if (x % p.stride == 0 && y % p.stride == 0) {
            size_t from = (image * p.oh + y / p.stride) * p.ow + x / p.stride;
            floats<T, V>(load<T, V>(picked + from * p.c + v * V), a);
        }
        store<T, V>(dx + i * V, a);
    }
}

static picking picking_of(const conv_plan *p) {
    return picking{p->s.h, p->s.w, p->s.ci, p->oh, p->ow, p->s.stride};
}

extern "C" int cuda_pick_pixels(device *dev, const conv_plan *p, const act *x, act *picked) {
    size_t count = (size_t)p->s.n * p->oh * p->ow * p->s.ci;
#define CALL(T, V)                                                                                 \
    launch(dev, pick<T, V>, grid_for(dev, count / V), THREADS, 0, picking_of(p), count / V,        \
           (const T *)x, (T *)picked)
    BY_TYPE(dev, p->s.ci, CALL);
#undef CALL
    return launched("picking of pixels");
}

extern "C" int cuda_spread_pixels(device *dev, const conv_plan *p, const act *picked, bool add,
                                  act *dx) {
    size_t count = (size_t)p->s.n * p->oh * p->ow * p->s.ci;
    size_t all = (size_t)p->s.n * p->s.h * p->s.w * p->s.ci;
#define CALL(T, V)                                                                                 \
    if (add)                                                                                       \
        launch(dev, spread_add<T, V>, grid_for(dev, count / V), THREADS, 0, picking_of(p),         \
               count / V, (const T *)picked, (T *)dx);                                             \
    else                                                                                           \
        launch(dev, spread_set<T, V>, grid_for(dev, all / V), THREADS, 0, picking_of(p), all / V,  \
               (const T *)picked, (T *)dx)
    BY_TYPE(dev, p->s.ci, CALL);
#undef CALL
    return launched("spreading of pixels");
}

template <typename T>
static __global__ void add_bias(T *y, size_t total, int c, const float *bias) {
    EACH(i, total) from_float(to_float(y[i]) + bias[i % c], &y[i]);
}

extern "C" int cuda_add_bias(device *dev, act *y, size_t rows, int c, const float *bias) {
    size_t total = rows * c;
    if (dev->type == ACT_BF16)
        launch(dev, add_bias<bf16>, grid_for(dev, total), THREADS, 0, (bf16 *)y, total, c, bias);
    else
        launch(dev, add_bias<float>, grid_for(dev, total), THREADS, 0, (float *)y, total, c, bias);
    return launched("bias");
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* The maximum of the 3x3 window of output (oy,ox) and its first place in row-major order. */
template <typename T, int V>
static __device__ void window_max(const pool_shape &s, const T *image, int oy, int ox, int v,
                                  float best[V], int place[V]) {
    for (int i = 0; i < V; i++) place[i] = -1;
#pragma unroll
    for (int ky = 0; ky < 3; ky++)
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
            int y = 2 * oy - 1 + ky, x = 2 * ox - 1 + kx;
            if (y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
            float a[V];
            floats<T, V>(load<T, V>(image + ((size_t)y * s.w + x) * s.c + v * V), a);
#pragma unroll
            for (int i = 0; i < V; i++)
                if (place[i] < 0 || a[i] > best[i]) best[i] = a[i], place[i] = 3 * ky + kx;
        }
}

template <typename T, int V>
static __global__ void max_pool(pool_shape s, size_t total, const T *x, T *y) {
    int cv = s.c / V, oh = (s.h + 1) / 2, ow = (s.w + 1) / 2;
    EACH(i, total) {
        size_t pixel = i / cv;
        int v = (int)(i % cv), ox = (int)(pixel % ow), oy = (int)(pixel / ow % oh), place[V];
        float best[V];
        window_max<T, V>(s, x + pixel / ow / oh * s.h * s.w * s.c, oy, ox, v, best, place);
        store<T, V>(y + i * V, best);
    }
}

/* One thread per cell of 2x2 input pixels, which four windows cover. */
template <typename T, int V>
static __global__ void max_pool_back(pool_shape s, size_t total, const T *x, const T *dy, T *dx) {
    int cv = s.c / V, oh = (s.h + 1) / 2, ow = (s.w + 1) / 2;
    EACH(i, total) {
        size_t cell = i / cv, image = cell / ow / oh;
        int v = (int)(i % cv), cx = (int)(cell % ow), cy = (int)(cell / ow % oh);
        const T *in = x + image * s.h * s.w * s.c;
        float sum[2][2][V] = {};
#pragma unroll
        for (int wy = 0; wy < 2; wy++)
#pragma unroll
            for (int wx = 0; wx < 2; wx++) {
                int oy = cy + wy, ox = cx + wx, place[V];
                if (oy >= oh || ox >= ow) continue;
                float best[V], d[V];
                window_max<T, V>(s, in, oy, ox, v, best, place);
                floats<T, V>(load<T, V>(dy + ((image * oh + oy) * ow + ox) * s.c + v * V), d);
#pragma unroll
                for (int py = 0; py < 2; py++)
#pragma unroll
                    for (int px = 0; px < 2; px++) {
                        int ky = py + 1 - 2 * wy, kx = px + 1 - 2 * wx; /* the pixel's tap */
                        if (ky < 0 || kx < 0) continue;
#pragma unroll
                        for (int j = 0; j < V; j++)
                            if (place[j] == 3 * ky + kx) sum[py][px][j] += d[j];
                    }
            }
        for (int py = 0; py < 2; py++)
            for (int px = 0; px < 2; px++) {
                int yy = 2 * cy + py, xx = 2 * cx + px;
                if (yy < s.h && xx < s.w)
                    store<T, V>(dx + ((image * s.h + yy) * s.w + xx) * s.c + v * V, sum[py][px]);
            }
    }
}

template <typename T, int V>
static __global__ void mean_pool(int hw, int c, size_t total, const T *x, T *y) {
    int cv = c / V;
    EACH(i, total) {
        const T *from = x + i / cv * hw * c + i % cv * V;
        float sum[V] = {0}, a[V];
#pragma unroll 4
        for (int r = 0; r < hw; r++) {
            floats<T, V>(load<T, V>(from + (size_t)r * c), a);
            for (int j = 0; j < V; j++) sum[j] += a[j];
        }
        for (int j = 0; j < V; j++) sum[j] /= (float)hw;
        store<T, V>(y + i * V, sum);
    }
}

template <typename T, int V>
static __global__ void mean_pool_back(int hw, int c, size_t total, const T *dy, T *dx) {
    int cv = c / V;
    EACH(i, total) {
        float a[V];
        floats<T, V>(load<T, V>(dy + i / cv / hw * c + i % cv * V), a);
        for (int j = 0; j < V; j++) a[j] /= (float)hw;
        store<T, V>(dx + i * V, a);
    }
}

static int cuda_max_pool(device *dev, const pool_shape *s, const act *x, act *y) {
    size_t count = (size_t)s->n * ((s->h + 1) / 2) * ((s->w + 1) / 2) * s->c;
#define CALL(T, V)                                                                                 \
    launch(dev, max_pool<T, V>, grid_for(dev, count / V), THREADS, 0, *s, count / V, (const T *)x, \
           (T *)y)
    BY_TYPE(dev, s->c, CALL);
#undef CALL
    return launched("max_pool");
}

static int cuda_max_pool_back(device *dev, const pool_shape *s, const act *x, const act *dy,
                              act *dx) {
    size_t count = (size_t)s->n * ((s->h + 1) / 2) * ((s->w + 1) / 2) * s->c;
#define CALL(T, V)                                                                                 \
    launch(dev, max_pool_back<T, V>, grid_for(dev, count / V), THREADS, 0, *s, count / V,          \
           (const T *)x, (const T *)dy, (T *)dx)
    BY_TYPE(dev, s->c, CALL);
#undef CALL
    return launched("max_pool_back");
}

static int cuda_mean_pool(device *dev, const pool_shape *s, const act *x, act *y) {
    size_t count = (size_t)s->n * s->c;
#define CALL(T, V)                                                                                 \
    launch(dev, mean_pool<T, V>, grid_for(dev, count / V), THREADS, 0, s->h * s->w, s->c,          \
           count / V, (const T *)x, (T *)y)
    BY_TYPE(dev, s->c, CALL);
#undef CALL
    return launched("mean_pool");
}

static int cuda_mean_pool_back(device *dev, const pool_shape *s, const act *dy, act *dx) {
    size_t count = (size_t)s->n * s->h * s->w * s->c;
#define CALL(T, V)                                                                                 \
    launch(dev, mean_pool_back<T, V>, grid_for(dev, count / V), THREADS, 0, s->h * s->w, s->c,     \
           count / V, (const T *)dy, (T *)dx)
    BY_TYPE(dev, s->c, CALL);
#undef CALL
    return launched("mean_pool_back");
}

/* ---- weights --------------------------------------------------------------------------------- */

static __device__ float mean_step(float m, float average, float w) {
    return m * average + (1 - m) * w;
}

/* One sweep: reads and writes weights, momentum and average once, and writes their bf16 copies
 * (w16, average16; NULL: none). */
template <int V>
static __global__ void sgd(const step_values *at, int which, bool first, float scale, size_t n,
                           float *w, const float *dw, float *v, float *average, bf16 *w16,
                           bf16 *average16) {
    float m = at->average, momentum = at->momentum, decay = at->decay, lr = at->lr[which];
    EACH(i, n / V) {
        float x[V], d[V], u[V], a[V];
        floats<float, V>(load<float, V>(w + i * V), x);
        floats<float, V>(load<float, V>(dw + i * V), d);
        floats<float, V>(load<float, V>(v + i * V), u);
        if (average) floats<float, V>(load<float, V>(average + i * V), a);
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (average && first) a[j] = mean_step(m, a[j], x[j]);
            u[j] = momentum * u[j] + (scale * d[j] + decay * x[j]);
            x[j] -= lr * u[j];
            if (average && !first) a[j] = mean_step(m, a[j], x[j]);
        }
        store<float, V>(w + i * V, x);
        store<float, V>(v + i * V, u);
        if (average) store<float, V>(average + i * V, a);
        if (w16) store<bf16, V>(w16 + i * V, x);
        if (average16) store<bf16, V>(average16 + i * V, a);
    }
}

template <int V>
static __global__ void average_kernel(const step_values *at, size_t n, const float *w,
                                      float *average, bf16 *average16) {
    float m = at->average;
    EACH(i, n / V) {
        float x[V], a[V];
        floats<float, V>(load<float, V>(w + i * V), x);
        floats<float, V>(load<float, V>(average + i * V), a);
        for (int j = 0; j < V; j++) a[j] = mean_step(m, a[j], x[j]);
        store<float, V>(average + i * V, a);
        if (average16) store<bf16, V>(average16 + i * V, a);
    }
}

static bool whole(size_t n, const void *a, const void *b, const void *c, const void *d) {
    return n % 4 == 0 && (((size_t)a | (size_t)b | (size_t)c | (size_t)d) & 15) == 0;
}

static int cuda_sgd(device *dev, const step_values *at, int which, bool average_first, float scale,
                    size_t n, float *w, const float *dw, float *v, float *average) {
    bf16 *w16 = (bf16 *)cuda_shadow(dev, w), *average16 = (bf16 *)cuda_shadow(dev, average);
    if (!n) return 0;
    if (whole(n, w, dw, v, average))
        launch(dev, sgd<4>, grid_for(dev, n / 4), THREADS, 0, at, which, average_first, scale, n, w,
               dw, v, average, w16, average16);
    else
        launch(dev, sgd<1>, grid_for(dev, n), THREADS, 0, at, which, average_first, scale, n, w, dw,
               v, average, w16, average16);
    return launched("sgd");
}

static int cuda_average(device *dev, const step_values *at, size_t n, const float *w,
                        float *average) {
    bf16 *average16 = (bf16 *)cuda_shadow(dev, average);
    if (!n) return 0;
    if (whole(n, w, average, NULL, NULL))
        launch(dev, average_kernel<4>, grid_for(dev, n / 4), THREADS, 0, at, n, w, average,
               average16);
    else
        launch(dev, average_kernel<1>, grid_for(dev, n), THREADS, 0, at, n, w, average, average16);
    return launched("average");
}

extern "C" void cuda_basic_ops(device_ops *op) {
    op->act_from = cuda_act_from;
    op->act_to = cuda_act_to;
    op->max_pool = cuda_max_pool;
    op->max_pool_back = cuda_max_pool_back;
    op->mean_pool = cuda_mean_pool;
    op->mean_pool_back = cuda_mean_pool_back;
    op->sgd = cuda_sgd;
    op->average = cuda_average;
}
