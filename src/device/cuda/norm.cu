/* norm.cu: batch norm, per group and channel, with the residual addition and the ReLU in the same
 * pass.
 *
 * All of it is bound by memory.  A thread keeps its V channels (16 bytes) over all its rows, so
 * that coefficients and sums stay in registers, and has several rows in flight.  Consecutive
 * passes walk in opposite directions: what one touched last is still in the cache when the next
 * starts. sums.cuh says in which order sums are taken. */
#include "device/cuda/sums.cuh"

#include "base/status.h"

enum { APPLYING = 256 };

/* ---- forward --------------------------------------------------------------------------------- */

/* Sums of y - shift and its square; from the last row to the first. */
template <typename T, int V>
static __global__ void __launch_bounds__(SUMMING)
    group_sums(layout l, int rows, int c, const T *y, const float *shift, totals t) {
    enum { U = 8 };
    place p = place_of<V>(l, rows, c);
    float a[V] = {0}, b[V] = {0}, s[V] = {0};
    if (p.channel >= 0) {
        const T *from = y + p.group_at + p.channel;
        for (int i = 0; i < V && shift; i++) s[i] = shift[p.channel + i];
        for (long r = rows - 1 - p.row; r >= 0; r -= (long)U * p.step) {
            vec<T, V> v[U];
#pragma unroll
            for (int u = 0; u < U; u++)
                if (r - (long)u * p.step >= 0) v[u] = load<T, V>(from + (r - (long)u * p.step) * c);
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (r - (long)u * p.step < 0) break;
                float x[V];
                floats<T, V>(v[u], x);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float d = x[i] - s[i];
                    a[i] += d;
                    b[i] += d * d;
                }
            }
        }
    }
    sum_up<V>(l, c, a, b, t);
}

static int sums_of(device *dev, int rows, int c, int groups, const act *y, const float *shift,
                   totals t) {
    int rc = 0;
    layout l;
#define CALL(T, V)                                                                                 \
    do {                                                                                           \
        l = layout_of(dev, SUMMING, 1, groups, (size_t)rows, c / V);                               \
        TRY(cuda_scratch(dev, partial_floats(&l, groups, V) * sizeof(float),                       \
                         (void **)&t.partial));                                                    \
        t.counters = cuda_counters(dev);                                                           \
        launch(dev, group_sums<T, V>, dim3(l.blocks, groups, l.chunks), SUMMING, 0, l, rows, c,    \
               (const T *)y, shift, t);                                                            \
    } while (0)
    BY_TYPE(dev, c, CALL);
#undef CALL
    rc = launched("sums");
done:
    return rc;
}

extern "C" int cuda_group_sums(device *dev, const norm_shape *s, const act *y, const float *shift,
                               const norm_rest *rest, float *sums) {
    totals t = {};
    t.sums = sums;
    if (rest)
        t.finish =
            finishing_of(rest->passes, rest->count, rest->momentum, rest->running, rest->stat);
    return sums_of(dev, s->n / s->groups * s->hw, s->c, s->groups, y, shift, t);
}

extern "C" int cuda_column_sums(device *dev, const act *dy, size_t rows, int c, bool add,
                                float *dbias) {
    totals t = {};
    t.first = dbias;
    t.add = add;
    return sums_of(dev, (int)rows, c, 1, dy, NULL, t);
}

static __global__ void finish(int c, int groups, finishing f, const float *sums) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < c) finish_channel(c, groups, f, sums + j, c, j);
}

static int cuda_norm_finish(device *dev, int c, int groups, int passes, double count,
                            const float *sums, float momentum, float *running, float *stat) {
    finishing f = finishing_of(passes, count, momentum, running, stat);
    launch(dev, finish, (c + 63) / 64, 64, 0, c, groups, f, sums);
    return launched("norm_finish");
}

static __global__ void from_running(int c, const float *running, float *stat) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    stat[j] = running[j];
    stat[c + j] = (float)(1 / sqrt((double)running[c + j] + NORM_EPS));
}

static int cuda_norm_from_running(device *dev, int c, const float *running, float *stat) {
    launch(dev, from_running, (c + 63) / 64, 64, 0, c, running, stat);
    return launched("norm_from_running");
}

/* scale * y + shift for V channels of a group.  The backward pass uses the same expression for the
 * sign at the ReLU. */
template <int V> struct affine { float scale[V], shift[V]; };

template <int V>
static __device__ affine<V> affine_of(const normed &v, int group, int c, int channel) {
    affine<V> a;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int at = channel + i;
        const float *stat = v.stat + (size_t)group * 2 * c;
        a.scale[i] = v.stat ? stat[c + at] * v.gamma[at] : 1;
        a.shift[i] = v.stat ? v.beta[at] - stat[at] * a.scale[i] : 0;
    }
    return a;
}

template <int V> static __device__ float normalized(const affine<V> &a, int i, float y) {
    return fmaf(y, a.scale[i], a.shift[i]);
}

typedef enum added { NOTHING, RESIDUAL, SHORTCUT } added;

/* Rows in flight and blocks per SM, as measured: few registers are worth more than many rows,
 * except with the coefficients of a shortcut. */
static __host__ __device__ constexpr int apply_rows(int a) { return a == SHORTCUT ? 4 : 2; }
static __host__ __device__ constexpr int apply_blocks(int a) {
    return a == SHORTCUT ? 2 : a == RESIDUAL ? 3 : 4;
}

template <typename T, int V, int A>
static __global__ void __launch_bounds__(APPLYING, apply_blocks(A))
    apply(layout l, int rows, int c, normed y, normed shortcut, const T *residual, bool relu,
          T *z) {
    enum { U = apply_rows(A) };
    place p = place_of<V>(l, rows, c);
    if (p.channel < 0) return;
    size_t at = p.group_at + p.channel;
    const T *main = (const T *)y.y + at;
    const T *other = (A == SHORTCUT ? (const T *)shortcut.y : residual) + at;
    affine<V> f = affine_of<V>(y, blockIdx.y, c, p.channel), g;
    if (A == SHORTCUT) g = affine_of<V>(shortcut, blockIdx.y, c, p.channel);
    for (long r = p.row; r < rows; r += (long)U * p.step) {
        vec<T, V> v[U], o[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            long at_row = r + (long)u * p.step;
            if (at_row >= rows) break;
            v[u] = load<T, V>(main + at_row * c);
            if (A) o[u] = load<T, V>(other + at_row * c);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            long at_row = r + (long)u * p.step;
            if (at_row >= rows) break;
            float x[V], extra[V];
            floats<T, V>(v[u], x);
            if (A) floats<T, V>(o[u], extra);
#pragma unroll
            for (int i = 0; i < V; i++) {
                x[i] = normalized<V>(f, i, x[i]);
                if (A == RESIDUAL) x[i] += extra[i];
                if (A == SHORTCUT) x[i] += normalized<V>(g, i, extra[i]);
                if (relu && x[i] < 0) x[i] = 0;
            }
            store<T, V>(z + at + at_row * c, x);
        }
    }
}

static int cuda_norm_apply(device *dev, const norm_shape *s, const normed *y,
                           const normed *shortcut, const act *residual, bool relu, act *z) {
    int rows = s->n / s->groups * s->hw, c = s->c;
    normed none = {}, with = shortcut ? *shortcut : none;
    if (shortcut && residual) return cuda_check((int)cudaErrorNotSupported, "norm_apply");
#define RUN(T, V, A)                                                                               \
    layout l = layout_of(dev, APPLYING, apply_blocks(A), s->groups, (size_t)rows, c / V);          \
    launch(dev, apply<T, V, A>, dim3(l.blocks, s->groups, l.chunks), APPLYING, 0, l, rows, c, *y,  \
           with, (const T *)residual, relu, (T *)z)
#define CALL(T, V)                                                                                 \
    do {                                                                                           \
        if (shortcut) {                                                                            \
            RUN(T, V, SHORTCUT);                                                                   \
        } else if (residual) {                                                                     \
            RUN(T, V, RESIDUAL);                                                                   \
        } else {                                                                                   \
            RUN(T, V, NOTHING);                                                                    \
        }                                                                                          \
    } while (0)
    BY_TYPE(dev, c, CALL);
#undef CALL
#undef RUN
    return launched("norm_apply");
}

/* ---- backward -------------------------------------------------------------------------------- */

/* How the gradient passes the ReLU: unchanged, or where z > 0, given or recomputed from y. */
typedef enum gate { OPEN, BY_Z, BY_Y } gate;

template <typename T, int V, int G>
static __global__ void __launch_bounds__(SUMMING)
    back_sums(layout l, int rows, int c, normed y, const T *z, const T *dz, T *d_out, totals t) {
    enum { U = G == BY_Z ? 2 : 4 };
    place p = place_of<V>(l, rows, c);
    float a[V] = {0}, b[V] = {0};
    if (p.channel >= 0) {
        size_t at = p.group_at + p.channel;
        const T *main = (const T *)y.y + at;
        affine<V> f = affine_of<V>(y, blockIdx.y, c, p.channel);
        float mean[V];
        for (int i = 0; i < V; i++)
            mean[i] = y.stat ? y.stat[(size_t)blockIdx.y * 2 * c + p.channel + i] : 0;
        for (long r = rows - 1 - p.row; r >= 0; r -= (long)U * p.step) {
            vec<T, V> v[U], d[U], m[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                long at_row = r - (long)u * p.step;
                if (at_row < 0) break;
                d[u] = load<T, V>(dz + at + at_row * c);
                v[u] = load<T, V>(main + at_row * c);
                if (G == BY_Z) m[u] = load<T, V>(z + at + at_row * c);
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
                long at_row = r - (long)u * p.step;
                if (at_row < 0) break;
                float x[V], g[V], sign[V];
                floats<T, V>(v[u], x);
                floats<T, V>(d[u], g);
                if (G == BY_Z) floats<T, V>(m[u], sign);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    if (G == BY_Z && !(sign[i] > 0)) g[i] = 0;
                    if (G == BY_Y && !(normalized<V>(f, i, x[i]) > 0)) g[i] = 0;
                    a[i] += g[i];
                    b[i] += g[i] * (x[i] - mean[i]);
                }
                if (d_out) store<T, V>(d_out + at + at_row * c, g);
            }
        }
        if (y.stat)
            for (int i = 0; i < V; i++)
                b[i] *= y.stat[((size_t)blockIdx.y * 2 + 1) * c + p.channel + i];
    }
    if (y.stat) sum_up<V>(l, c, a, b, t); /* the same for all threads */
}

static int cuda_norm_back_sums(device *dev, const norm_shape *s, const normed *y, const act *z,
                               bool relu, const act *dz, bool add, float *sums, float *dgamma,
                               float *dbeta, act *d_out) {
    int rc = 0, rows = s->n / s->groups * s->hw, c = s->c;
    totals t = {};
    t.sums = sums, t.first = dbeta, t.second = dgamma, t.add = add;
    t.counters = cuda_counters(dev);
#define RUN(T, V, G)                                                                               \
    launch(dev, back_sums<T, V, G>, dim3(l.blocks, s->groups, l.chunks), SUMMING, 0, l, rows, c,   \
           *y, (const T *)z, (const T *)dz, (T *)d_out, t)
#define CALL(T, V)                                                                                 \
    do {                                                                                           \
        layout l = layout_of(dev, SUMMING, 1, s->groups, (size_t)rows, c / V);                     \
        TRY(cuda_scratch(dev, partial_floats(&l, s->groups, V) * sizeof(float),                    \
                         (void **)&t.partial));                                                    \
        if (!relu)                                                                                 \
            RUN(T, V, OPEN);                                                                       \
        else if (z)                                                                                \
            RUN(T, V, BY_Z);                                                                       \
        else                                                                                       \
            RUN(T, V, BY_Y);                                                                       \
    } while (0)
    BY_TYPE(dev, c, CALL);
#undef CALL
#undef RUN
    rc = launched("norm_back_sums");
done:
    return rc;
}

/* dy = scale * (d - mean of d - xhat * mean of d xhat), rearranged: scale d + slope y + flat. */
static __host__ __device__ constexpr int back_rows(int g) { return g == BY_Y ? 4 : 2; }
static __host__ __device__ constexpr int back_blocks(int g) { return g == OPEN ? 3 : 2; }

template <typename T, int V, int G>
static __global__ void __launch_bounds__(APPLYING, back_blocks(G))
    back_apply(layout l, int rows, int c, normed y, const T *z, const T *dz, const float *sums,
               double count, T *dy) {
    enum { U = back_rows(G) };
    place p = place_of<V>(l, rows, c);
    if (p.channel < 0) return;
    size_t at = p.group_at + p.channel;
    const T *main = (const T *)y.y + at;
    affine<V> f = affine_of<V>(y, blockIdx.y, c, p.channel);
    float flat[V], slope[V];
    const float *sum = sums + (size_t)blockIdx.y * 2 * c + p.channel;
    const float *mean = y.stat + (size_t)blockIdx.y * 2 * c + p.channel, *invstd = mean + c;
    float inverse = (float)(1 / count);
#pragma unroll
    for (int i = 0; i < V; i++) {
        slope[i] = -f.scale[i] * sum[c + i] * inverse * invstd[i];
        flat[i] = -f.scale[i] * sum[i] * inverse - slope[i] * mean[i];
    }
    for (long r = p.row; r < rows; r += (long)U * p.step) {
        vec<T, V> v[U], d[U], m[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            long at_row = r + (long)u * p.step;
            if (at_row >= rows) break;
            d[u] = load<T, V>(dz + at + at_row * c);
            v[u] = load<T, V>(main + at_row * c);
            if (G == BY_Z) m[u] = load<T, V>(z + at + at_row * c);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            long at_row = r + (long)u * p.step;
            if (at_row >= rows) break;
            float x[V], g[V], sign[V];
            floats<T, V>(v[u], x);
            floats<T, V>(d[u], g);
            if (G == BY_Z) floats<T, V>(m[u], sign);
#pragma unroll
            for (int i = 0; i < V; i++) {
                if (G == BY_Z && !(sign[i] > 0)) g[i] = 0;
                if (G == BY_Y && !(normalized<V>(f, i, x[i]) > 0)) g[i] = 0;
                g[i] = fmaf(f.scale[i], g[i], fmaf(slope[i], x[i], flat[i]));
            }
            store<T, V>(dy + at + at_row * c, g);
        }
    }
}

static int cuda_norm_back_apply(device *dev, const norm_shape *s, const normed *y, const act *z,
                                bool relu, const act *dz, const float *sums, double count,
                                act *dy) {
    int rows = s->n / s->groups * s->hw, c = s->c;
#define RUN(T, V, G)                                                                               \
    layout l = layout_of(dev, APPLYING, back_blocks(G), s->groups, (size_t)rows, c / V);           \
    launch(dev, back_apply<T, V, G>, dim3(l.blocks, s->groups, l.chunks), APPLYING, 0, l, rows, c, \
           *y, (const T *)z, (const T *)dz, sums, count, (T *)dy)
#define CALL(T, V)                                                                                 \
    do {                                                                                           \
        if (!relu) {                                                                               \
            RUN(T, V, OPEN);                                                                       \
        } else if (z) {                                                                            \
            RUN(T, V, BY_Z);                                                                       \
        } else {                                                                                   \
            RUN(T, V, BY_Y);                                                                       \
        }                                                                                          \
    } while (0)
    BY_TYPE(dev, c, CALL);
#undef CALL
#undef RUN
    return launched("norm_back_apply");
}

extern "C" void cuda_norm_ops(device_ops *op) {
    op->norm_finish = cuda_norm_finish;
    op->norm_from_running = cuda_norm_from_running;
    op->norm_apply = cuda_norm_apply;
    op->norm_back_sums = cuda_norm_back_sums;
    op->norm_back_apply = cuda_norm_back_apply;
}
