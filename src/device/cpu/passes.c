/* passes.c: the operations bound by memory: each tensor is read or written once, four channels at a
 * time, by all threads.
 *
 * Sums are taken over blocks of rows whose size depends only on the shape, then added up in order,
 * in double: the same bits for any number of threads. */
#include "device/cpu/passes.h"

#include "base/status.h"
#include "kernels/quad.h"

#include <string.h>

enum {
    BLOCK_ROWS = 256,
    AHEAD = 512,    /* floats that cache lines are prefetched ahead */
    SMALL = 1 << 14 /* floats below which waking threads costs more than it saves */
};

static float *scratch_of(device *dev) { return ((cpu_own *)dev->own)->scratch; }

static int threads_for(const device *dev, size_t floats) {
    return floats < SMALL ? 1 : dev->threads;
}

/* ---- rows of groups, in blocks --------------------------------------------------------------- */

typedef struct blocks {
    size_t per_group, size; /* rows */
    int in_group, count;    /* blocks */
} blocks;

/* room: the largest number of blocks allowed */
static blocks blocks_of(const norm_shape *s, size_t room) {
    blocks b = {.per_group = (size_t)(s->n / s->groups) * s->hw, .size = BLOCK_ROWS};
    size_t most = room / (size_t)s->groups;
    ASSERT(most > 0);
    if (b.per_group > most * b.size) b.size = (b.per_group + most - 1) / most;
    b.in_group = (int)((b.per_group + b.size - 1) / b.size);
    b.count = b.in_group * s->groups;
    return b;
}

static void block_rows(const blocks *b, int i, int *group, size_t *first, size_t *last) {
    *group = i / b->in_group;
    size_t start = (size_t)(i % b->in_group) * b->size, end = start + b->size;
    *first = *group * b->per_group + start;
    *last = *group * b->per_group + (end < b->per_group ? end : b->per_group);
}

/* ---- batch norm: forward --------------------------------------------------------------------- */

/* scale, offset of gamma*(y - mean)*invstd + beta = scale*y + offset: out[groups][2][c] */
static void line_of(const normed *v, int groups, int c, float *out) {
    for (int g = 0; g < groups; g++, out += 2 * c) {
        const float *mean = v->stat ? v->stat + 2 * (size_t)g * c : NULL;
        for (int j = 0; j < c; j++) {
            float scale = v->stat ? v->gamma[j] * mean[c + j] : 1;
            out[j] = scale;
            out[c + j] = v->stat ? v->beta[j] - mean[j] * scale : 0;
        }
    }
}

/* Rows [first,last): z = relu?(scale*y + offset [+ scale2*y2 + offset2] [+ residual]).  line,
 * line2: [2][c].  has2, has_residual and relu become constants when this is inlined. */
INLINE void apply_rows(size_t first, size_t last, int c, const float *line, const float *line2,
                       const float *y, const float *y2, const float *residual, bool has2,
                       bool has_residual, bool relu, float *z) {
    for (size_t r = first; r < last; r++) {
        const float *from = y + r * c, *from2 = y2 + r * c, *more = residual + r * c;
        float *to = z + r * c;
        int j = 0;
        for (; j + 4 <= c; j += 4) {
            quad v = quad_at(from + j) * quad_at(line + j) + quad_at(line + c + j);
            if (has2) v += quad_at(from2 + j) * quad_at(line2 + j) + quad_at(line2 + c + j);
            if (has_residual) v += quad_at(more + j);
            quad_put(to + j, relu ? quad_where(v > 0, v) : v);
        }
        for (; j < c; j++) {
            float v = from[j] * line[j] + line[c + j];
            if (has2) v += from2[j] * line2[j] + line2[c + j];
            if (has_residual) v += more[j];
            to[j] = relu && !(v > 0) ? 0 : v;
        }
    }
}

static int cpu_norm_apply(device *dev, const norm_shape *s, const normed *y, const normed *shortcut,
                          const act *residual, bool relu, act *z) {
    int c = s->c, groups = s->groups;
    ASSERT((size_t)groups * 4 * c <= CPU_SCRATCH);
    float *line = scratch_of(dev), *line2 = line + 2 * (size_t)groups * c;
    const float *a = (const float *)y->y, *b = shortcut ? (const float *)shortcut->y : a;
    const float *more = residual ? (const float *)residual : a;
    blocks k = blocks_of(s, 1 << 16);
    line_of(y, groups, c, line);
    if (shortcut) line_of(shortcut, groups, c, line2);
    bool both = shortcut && residual;
    ASSERT(!both);
#pragma omp parallel for num_threads(threads_for(dev, (size_t)s->n * s->hw * c)) schedule(static)
    for (int i = 0; i < k.count; i++) {
        int g;
        size_t first, last;
        block_rows(&k, i, &g, &first, &last);
        const float *l = line + 2 * (size_t)g * c, *l2 = line2 + 2 * (size_t)g * c;
        float *to = (float *)z;
        if (shortcut && relu)
            apply_rows(first, last, c, l, l2, a, b, more, true, false, true, to);
        else if (shortcut)
            apply_rows(first, last, c, l, l2, a, b, more, true, false, false, to);
        else if (residual && relu)
            apply_rows(first, last, c, l, l2, a, b, more, false, true, true, to);
        else if (residual)
            apply_rows(first, last, c, l, l2, a, b, more, false, true, false, to);
        else if (relu)
            apply_rows(first, last, c, l, l2, a, b, more, false, false, true, to);
        else
            apply_rows(first, last, c, l, l2, a, b, more, false, false, false, to);
    }
    return 0;
}

/* ---- batch norm: backward -------------------------------------------------------------------- */

/* What the mask of the gradient is taken from: nothing, z, or y. */
typedef enum mask { MASK_NONE, MASK_Z, MASK_Y } mask;

/* The gradient before the ReLU, four channels from j on.  scale, offset: as in apply_rows, so that
 * the same expression recomputes the sign. */
INLINE quad masked(quad d, quad v, const float *z, int j, quad scale, quad offset, mask how) {
    if (how == MASK_Z) return quad_where(quad_at(z + j) > 0, d);
    if (how == MASK_Y) return quad_where(v * scale + offset > 0, d);
    return d;
}

INLINE float masked_one(float d, float v, const float *z, const float *line, int c, int j,
                        mask how) {
    if (how == MASK_Z) return z[j] > 0 ? d : 0;
    if (how == MASK_Y) return v * line[j] + line[c + j] > 0 ? d : 0;
    return d;
}

/* Adds what `rows` rows contribute to sum d and sum d*(y - mean) to out[2][c], and writes d itself
 * if asked to.  Several rows at once: the sums are loaded and stored less often.  With three
 * streams to read, the machine is slow to fetch the lines of a fourth that is written, so they are
 * prefetched. */
INLINE void sum_some_rows(int rows, int c, const float *line, const float *mean, const float *y,
                          const float *z, const float *dz, mask how, float *d_out, bool writes,
                          bool sums, float *out) {
    int j = 0;
    for (; j + 4 <= c; j += 4) {
        quad sum = {0}, products = {0}, about = quad_at(mean + j);
        quad scale = quad_at(line + j), offset = quad_at(line + c + j);
        if (writes && sums && j % LINE == 0) {
            UNROLL for (int r = 0; r < rows; r++)
                __builtin_prefetch(d_out + (size_t)r * c + j + AHEAD, 1);
        }
        UNROLL for (int r = 0; r < rows; r++) {
            size_t at = (size_t)r * c;
            quad v = quad_at(y + at + j);
            quad d = masked(quad_at(dz + at + j), v, z + at, j, scale, offset, how);
            if (writes) quad_put(d_out + at + j, d);
            sum += d;
            products += d * (v - about);
        }
        if (!sums) continue;
        quad_put(out + j, quad_at(out + j) + sum);
        quad_put(out + c + j, quad_at(out + c + j) + products);
    }
    for (; j < c; j++)
        for (int r = 0; r < rows; r++) {
            size_t at = (size_t)r * c;
            float v = y[at + j], d = masked_one(dz[at + j], v, z + at, line, c, j, how);
            if (writes) d_out[at + j] = d;
            if (!sums) continue;
            out[j] += d;
            out[c + j] += d * (v - mean[j]);
        }
}

INLINE void sum_rows(size_t first, size_t last, int c, const float *line, const float *mean,
                     const float *y, const float *z, const float *dz, mask how, float *d_out,
                     bool writes, bool sums, float *out) {
    const size_t some = writes ? 2 : 4; /* more streams at a time are slower again */
    if (sums) memset(out, 0, 2 * (size_t)c * sizeof *out);
    size_t r = first;
    for (; r + some <= last; r += some)
        sum_some_rows((int)some, c, line, mean, y + r * c, z + r * c, dz + r * c, how,
                      writes ? d_out + r * c : NULL, writes, sums, out);
    for (; r < last; r++)
        sum_some_rows(1, c, line, mean, y + r * c, z + r * c, dz + r * c, how,
                      writes ? d_out + r * c : NULL, writes, sums, out);
}

/* partial: [blocks][2][c] -> sums [groups][2][c], dbeta, dgamma */
static void fold_back_sums(const device *dev, const norm_shape *s, const blocks *k,
                           const float *partial, const float *stat, bool add, float *sums,
                           float *dgamma, float *dbeta) {
    int c = s->c;
#pragma omp parallel for num_threads(threads_for(dev, (size_t)k->count *c)) schedule(static)
    for (int j = 0; j < c; j++) {
        double all_d = add ? dbeta[j] : 0, all_dx = add ? dgamma[j] : 0;
        for (int g = 0; g < s->groups; g++) {
            double d = 0, dx = 0;
            const float *from = partial + (size_t)g * k->in_group * 2 * c + j;
            for (int b = 0; b < k->in_group; b++, from += 2 * c) d += from[0], dx += from[c];
            dx *= stat[(2 * (size_t)g + 1) * c + j];
            sums[2 * (size_t)g * c + j] = (float)d;
            sums[(2 * (size_t)g + 1) * c + j] = (float)dx;
            all_d += d, all_dx += dx;
        }
        dbeta[j] = (float)all_d;
        dgamma[j] = (float)all_dx;
    }
}

static int cpu_norm_back_sums(device *dev, const norm_shape *s, const normed *y, const act *z,
                              bool relu, const act *dz, bool add, float *sums, float *dgamma,
                              float *dbeta, act *d_out) {
    int c = s->c;
    bool norm = y->stat != NULL;
    size_t lines = 2 * (size_t)s->groups * c;
    ASSERT(2 * lines <= CPU_SCRATCH);
    float *line = scratch_of(dev), *partial = line + lines;
    const float *v = (const float *)y->y, *sign = z ? (const float *)z : v, *g = (const float *)dz;
    float *to = (float *)d_out;
    blocks k = blocks_of(s, norm ? (CPU_SCRATCH - lines) / (2 * (size_t)c) : 1 << 16);
    mask how = !relu ? MASK_NONE : z ? MASK_Z : MASK_Y;
    line_of(y, s->groups, c, line);
#pragma omp parallel for num_threads(threads_for(dev, (size_t)s->n * s->hw * c)) schedule(static)
    for (int i = 0; i < k.count; i++) {
        int group;
        size_t a, b;
        block_rows(&k, i, &group, &a, &b);
        const float *l = line + 2 * (size_t)group * c;
        const float *mean = norm ? y->stat + 2 * (size_t)group * c : l;
        float *out = partial + (size_t)i * 2 * c;
        if (!norm)
            sum_rows(a, b, c, l, mean, v, sign, g, how, to, true, false, NULL);
        else if (how == MASK_Z && to)
            sum_rows(a, b, c, l, mean, v, sign, g, MASK_Z, to, true, true, out);
        else if (how == MASK_Y && !to)
            sum_rows(a, b, c, l, mean, v, sign, g, MASK_Y, to, false, true, out);
        else if (how == MASK_NONE && !to)
            sum_rows(a, b, c, l, mean, v, sign, g, MASK_NONE, to, false, true, out);
        else if (to)
            sum_rows(a, b, c, l, mean, v, sign, g, how, to, true, true, out);
        else
            sum_rows(a, b, c, l, mean, v, sign, g, how, to, false, true, out);
    }
    if (norm) fold_back_sums(dev, s, &k, partial, y->stat, add, sums, dgamma, dbeta);
    return 0;
}

/* dy = gamma*invstd*(d - sums[0]/count - xhat*sums[1]/count) = A d + B y + C: out[3][c] */
static void backward_line(const normed *y, int g, int c, const float *sums, double count,
                          float *out) {
    const float *mean = y->stat + 2 * (size_t)g * c, *invstd = mean + c;
    const float *sum_d = sums + 2 * (size_t)g * c, *sum_dx = sum_d + c;
    for (int j = 0; j < c; j++) {
        double a = (double)y->gamma[j] * invstd[j], b = -a * invstd[j] * sum_dx[j] / count;
        out[j] = (float)a;
        out[c + j] = (float)b;
        out[2 * c + j] = (float)(-a * sum_d[j] / count - b * mean[j]);
    }
}

/* Two rows at once: the coefficients are loaded less often. */
INLINE void back_some_rows(int rows, int c, const float *line, const float *back, const float *y,
                           const float *z, const float *dz, mask how, float *dy) {
    int j = 0;
    for (; j + 4 <= c; j += 4) {
        quad scale = quad_at(line + j), offset = quad_at(line + c + j);
        quad by_d = quad_at(back + j), by_y = quad_at(back + c + j),
             rest = quad_at(back + 2 * c + j);
        UNROLL for (int r = 0; r < rows; r++) {
            size_t at = (size_t)r * c;
            quad v = quad_at(y + at + j);
            quad d = masked(quad_at(dz + at + j), v, z + at, j, scale, offset, how);
            quad_put(dy + at + j, by_d * d + (by_y * v + rest));
        }
    }
    for (; j < c; j++)
        for (int r = 0; r < rows; r++) {
            size_t at = (size_t)r * c;
            float d = masked_one(dz[at + j], y[at + j], z + at, line, c, j, how);
            dy[at + j] = back[j] * d + (back[c + j] * y[at + j] + back[2 * c + j]);
        }
}

INLINE void back_rows(size_t first, size_t last, int c, const float *line, const float *back,
                      const float *y, const float *z, const float *dz, mask how, float *dy) {
    size_t r = first;
    for (; r + 2 <= last; r += 2)
        back_some_rows(2, c, line, back, y + r * c, z + r * c, dz + r * c, how, dy + r * c);
    for (; r < last; r++)
        back_some_rows(1, c, line, back, y + r * c, z + r * c, dz + r * c, how, dy + r * c);
}

static int cpu_norm_back_apply(device *dev, const norm_shape *s, const normed *y, const act *z,
                               bool relu, const act *dz, const float *sums, double count, act *dy) {
    int c = s->c, groups = s->groups;
    ASSERT(5 * (size_t)groups * c <= CPU_SCRATCH);
    float *line = scratch_of(dev), *back = line + 2 * (size_t)groups * c, *to = (float *)dy;
    const float *v = (const float *)y->y, *sign = z ? (const float *)z : v, *g = (const float *)dz;
    blocks k = blocks_of(s, 1 << 16);
    line_of(y, groups, c, line);
    for (int i = 0; i < groups; i++) backward_line(y, i, c, sums, count, back + 3 * (size_t)i * c);
#pragma omp parallel for num_threads(threads_for(dev, (size_t)s->n * s->hw * c)) schedule(static)
    for (int i = 0; i < k.count; i++) {
        int group;
        size_t a, b;
        block_rows(&k, i, &group, &a, &b);
        const float *l = line + 2 * (size_t)group * c, *bl = back + 3 * (size_t)group * c;
        if (!relu)
            back_rows(a, b, c, l, bl, v, sign, g, MASK_NONE, to);
        else if (z)
            back_rows(a, b, c, l, bl, v, sign, g, MASK_Z, to);
        else
            back_rows(a, b, c, l, bl, v, sign, g, MASK_Y, to);
    }
    return 0;
}

/* ---- top_k, weights -------------------------------------------------------------------------- */

static int cpu_top_k(device *dev, const float *s, int n, int m, int ld, int self, int k,
                     int32_t *ids, float *values) {
    device_ops ref;
    device_ref_ops(&ref);
#pragma omp parallel for num_threads(threads_for(dev, (size_t)n *m)) schedule(static)
    for (int i = 0; i < n; i++)
        ref.top_k(dev, s + (size_t)i * ld, 1, m, ld, self < 0 ? -1 : self + i, k,
                  ids + (size_t)i * k, values ? values + (size_t)i * k : NULL);
    return 0;
}

/* The expressions of the reference, hence the same bits. */
static int cpu_sgd(device *dev, const step_values *at, int which, bool average_first, float scale,
                   size_t n, float *w, const float *dw, float *v, float *average) {
    enum { PART = 1 << 14 };
    float m = at->average, momentum = at->momentum, decay = at->decay, lr = at->lr[which];
    long parts = (long)((n + PART - 1) / PART);
#pragma omp parallel for num_threads(threads_for(dev, n)) schedule(static)
    for (long i = 0; i < parts; i++) {
        size_t from = (size_t)i * PART, count = n - from < PART ? n - from : PART;
        float *restrict x = w + from, *restrict y = v + from, *restrict z = average + from;
        const float *restrict g = dw + from;
        if (average && average_first)
            for (size_t j = 0; j < count; j++) z[j] = m * z[j] + (1 - m) * x[j];
        for (size_t j = 0; j < count; j++) {
            y[j] = momentum * y[j] + (scale * g[j] + decay * x[j]);
            x[j] -= lr * y[j];
        }
        if (average && !average_first)
            for (size_t j = 0; j < count; j++) z[j] = m * z[j] + (1 - m) * x[j];
    }
    return 0;
}

static int cpu_average(device *dev, const step_values *at, size_t n, const float *w,
                       float *average) {
    enum { PART = 1 << 14 };
    float m = at->average;
    long parts = (long)((n + PART - 1) / PART);
#pragma omp parallel for num_threads(threads_for(dev, n)) schedule(static)
    for (long i = 0; i < parts; i++) {
        size_t from = (size_t)i * PART, count = n - from < PART ? n - from : PART;
        const float *restrict x = w + from;
        float *restrict z = average + from;
        for (size_t j = 0; j < count; j++) z[j] = m * z[j] + (1 - m) * x[j];
    }
    return 0;
}

void cpu_passes(device_ops *op) {
    op->norm_apply = cpu_norm_apply;
    op->norm_back_sums = cpu_norm_back_sums;
    op->norm_back_apply = cpu_norm_back_apply;
    op->top_k = cpu_top_k;
    op->average = cpu_average;
    op->sgd = cpu_sgd;
}
