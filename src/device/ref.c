/* ref.c: the reference table.  Plain loops, one thread, sums in double: the definition of every
 * operation, and what the other tables are checked against.  Not written for speed. */
#include "base/memory.h"
#include "base/status.h"
#include "device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static void ref_close(device *dev) { (void)dev; }

/* Large blocks ask for large pages, of which the processor's table holds a step's memory. */
static int ref_alloc(device *dev, size_t bytes, void **out) {
    (void)dev;
    enum { SMALL = 256, PAGE = 2 << 20 };
    size_t align = bytes < 4 * (size_t)PAGE ? SMALL : PAGE;
    *out = NULL;
    if (bytes > SIZE_MAX - align) return fail_memory("device", (double)bytes);
    size_t rounded = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, rounded ? rounded : align);
    if (!p) return fail_memory("device", (double)bytes);
#ifdef MADV_HUGEPAGE
    if (align == PAGE) madvise(p, bytes / PAGE * PAGE, MADV_HUGEPAGE); /* a wish; no is fine */
#endif
    memset(p, 0, bytes);
    *out = p;
    return 0;
}

static void ref_free(device *dev, void *p) {
    (void)dev;
    free(p);
}

static int ref_copy(device *dev, void *to, const void *from, size_t bytes) {
    (void)dev;
    if (bytes) memcpy(to, from, bytes);
    return 0;
}

static int ref_zero(device *dev, void *p, size_t bytes) {
    (void)dev;
    if (bytes) memset(p, 0, bytes);
    return 0;
}

static int ref_sync(device *dev) {
    (void)dev;
    return 0;
}

/* Nothing to learn by heart: the body is run each time. */
static int ref_repeat(device *dev, int (*body)(void *arg), void *arg, recording **r) {
    (void)dev, (void)r;
    return body(arg);
}

static void ref_recording_free(device *dev, recording *r) { (void)dev, (void)r; }

static int ref_act_from(device *dev, const float *x, size_t count, act *out) {
    return ref_copy(dev, out, x, count * sizeof *x);
}

static int ref_act_to(device *dev, const act *x, size_t count, float *out) {
    return ref_copy(dev, out, x, count * sizeof *out);
}

/* ---- dense ----------------------------------------------------------------------------------- */

static int ref_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                    int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    (void)dev;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)(ta ? a[(size_t)l * lda + i] : a[(size_t)i * lda + l]) *
                       (tb ? b[(size_t)j * ldb + l] : b[(size_t)l * ldb + j]);
            float *to = c + (size_t)i * ldc + j;
            *to = (float)(alpha * sum + (beta == 0 ? 0 : (double)beta * *to));
        }
    return 0;
}

/* ---- convolution ----------------------------------------------------------------------------- */

static int ref_conv_plan_new(device *dev, const conv_shape *s, conv_plan **out) {
    (void)dev;
    ASSERT(s->groups > 0 && s->n % s->groups == 0);
    conv_plan *p = malloc(sizeof *p);
    *out = p;
    if (!p) return fail_memory("convolution", sizeof *p);
    *p = (conv_plan){.s = *s,
                     .oh = (s->h + 2 * s->pad - s->k) / s->stride + 1,
                     .ow = (s->w + 2 * s->pad - s->k) / s->stride + 1,
                     .workspace = sizeof(double) * (size_t)s->ci}; /* one row of sums */
    return 0;
}

static void ref_conv_plan_free(device *dev, conv_plan *p) {
    (void)dev;
    free(p);
}

/* The input pixel under tap (ky,kx) of output pixel (oy,ox): its offset in pixels, or -1 where it
 * lies in the padding. */
static ptrdiff_t tap(const conv_shape *s, int image, int oy, int ox, int ky, int kx) {
    int y = oy * s->stride - s->pad + ky, x = ox * s->stride - s->pad + kx;
    if (y < 0 || y >= s->h || x < 0 || x >= s->w) return -1;
    return ((ptrdiff_t)image * s->h + y) * s->w + x;
}

/* sums: [groups][2][c] of y about shift; y: [n,hw,c] */
static void group_sums(const norm_shape *s, const float *y, const float *shift, float *sums) {
    size_t rows = (size_t)s->n / s->groups * s->hw;
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < s->c; c++) {
            double sum = 0, squares = 0;
            for (size_t r = g * rows; r < (g + 1) * rows; r++) {
                double v = (double)y[r * s->c + c] - shift[c];
                sum += v;
                squares += v * v;
            }
            sums[(2 * g + 0) * s->c + c] = (float)sum;
            sums[(2 * g + 1) * s->c + c] = (float)squares;
        }
}

static int ref_conv_forward(device *dev, const conv_plan *p, const act *x_, const float *w,
                            const float *bias, act *y_, const float *shift, float *sums,
                            void *work) {
    (void)dev, (void)work;
    const conv_shape *s = &p->s;
    const float *x = (const float *)x_;
    float *y = (float *)y_;
    for (int i = 0; i < s->n; i++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++, y += s->co)
                for (int o = 0; o < s->co; o++) {
                    double sum = bias ? bias[o] : 0;
                    for (int ky = 0; ky < s->k; ky++)
                        for (int kx = 0; kx < s->k; kx++) {
                            ptrdiff_t at = tap(s, i, oy, ox, ky, kx);
                            if (at < 0) continue;
                            const float *from = x + at * s->ci;
                            const float *by = w + (((size_t)o * s->k + ky) * s->k + kx) * s->ci;
                            for (int c = 0; c < s->ci; c++) sum += (double)from[c] * by[c];
                        }
                    y[o] = (float)sum;
                }
    if (sums)
        group_sums(&(norm_shape){s->n, p->oh * p->ow, s->co, s->groups}, (const float *)y_, shift,
                   sums);
    return 0;
}

static int ref_conv_back_data(device *dev, const conv_plan *p, const act *dy_, const float *w,
                              bool add, act *dx_, void *work) {
    (void)dev;
    const conv_shape *s = &p->s;
    const float *dy = (const float *)dy_;
    float *dx = (float *)dx_;
    double *sum = work; /* [ci] */
    for (int i = 0; i < s->n; i++)
        for (int iy = 0; iy < s->h; iy++)
            for (int ix = 0; ix < s->w; ix++, dx += s->ci) {
                for (int c = 0; c < s->ci; c++) sum[c] = add ? dx[c] : 0;
                for (int ky = 0; ky < s->k; ky++)
                    for (int kx = 0; kx < s->k; kx++) {
                        int y = iy + s->pad - ky, x = ix + s->pad - kx;
                        if (y < 0 || x < 0 || y % s->stride || x % s->stride) continue;
                        y /= s->stride, x /= s->stride;
                        if (y >= p->oh || x >= p->ow) continue;
                        const float *d = dy + (((size_t)i * p->oh + y) * p->ow + x) * s->co;
                        for (int o = 0; o < s->co; o++) {
                            const float *by = w + (((size_t)o * s->k + ky) * s->k + kx) * s->ci;
                            for (int c = 0; c < s->ci; c++) sum[c] += (double)d[o] * by[c];
                        }
                    }
                for (int c = 0; c < s->ci; c++) dx[c] = (float)sum[c];
            }
    return 0;
}

static int ref_conv_back_filter(device *dev, const conv_plan *p, const act *x_, const act *dy_,
                                bool add, float *dw, float *dbias, void *work) {
    (void)dev;
    const conv_shape *s = &p->s;
    const float *x = (const float *)x_, *dy = (const float *)dy_;
    double *sum = work; /* [ci] */
    for (int o = 0; o < s->co; o++) {
        double total = dbias && add ? dbias[o] : 0;
        for (int ky = 0; ky < s->k; ky++)
            for (int kx = 0; kx < s->k; kx++, dw += s->ci) {
                for (int c = 0; c < s->ci; c++) sum[c] = add ? dw[c] : 0;
                for (int i = 0; i < s->n; i++)
                    for (int oy = 0; oy < p->oh; oy++)
                        for (int ox = 0; ox < p->ow; ox++) {
                            ptrdiff_t at = tap(s, i, oy, ox, ky, kx);
                            if (at < 0) continue;
                            double d = dy[(((size_t)i * p->oh + oy) * p->ow + ox) * s->co + o];
                            for (int c = 0; c < s->ci; c++) sum[c] += d * x[at * s->ci + c];
                        }
                for (int c = 0; c < s->ci; c++) dw[c] = (float)sum[c];
            }
        if (!dbias) continue;
        for (size_t r = 0; r < (size_t)s->n * p->oh * p->ow; r++) total += dy[r * s->co + o];
        dbias[o] = (float)total;
    }
    return 0;
}

/* ---- batch norm ------------------------------------------------------------------------------ */

static int ref_norm_finish(device *dev, int c, int groups, int passes, double count,
                           const float *sums, float momentum, float *running, float *stat) {
    (void)dev;
    ASSERT(passes > 0 && groups % passes == 0);
    float *running_mean = running, *running_var = running + c;
    double unbiased = count > 1 ? count / (count - 1) : 1;
    int per_pass = groups / passes;
    for (int j = 0; j < c; j++) {
        double shift = running_mean[j];
        for (int pass = 0; pass < passes; pass++) {
            double mean_sum = 0, var_sum = 0;
            for (int g = pass * per_pass; g < (pass + 1) * per_pass; g++) {
                double mean = sums[(2 * g + 0) * c + j] / count; /* about the shift */
                double var = sums[(2 * g + 1) * c + j] / count - mean * mean;
                if (var < 0) var = 0;
                stat[(2 * g + 0) * c + j] = (float)(mean + shift);
                stat[(2 * g + 1) * c + j] = (float)(1 / sqrt(var + NORM_EPS));
                mean_sum += mean + shift;
                var_sum += var;
            }
            if (momentum <= 0) continue;
            running_mean[j] += momentum * (float)(mean_sum / per_pass - running_mean[j]);
            running_var[j] += momentum * (float)(unbiased * var_sum / per_pass - running_var[j]);
        }
    }
    return 0;
}

static int ref_norm_from_running(device *dev, int c, const float *running, float *stat) {
    (void)dev;
    for (int j = 0; j < c; j++) {
        stat[j] = running[j];
        stat[c + j] = (float)(1 / sqrt(running[c + j] + NORM_EPS));
    }
    return 0;
}

/* Value of an operand at row r (of all n*hw), channel c, group g. */
static double normed_at(const normed *v, const norm_shape *s, int g, size_t r, int c) {
    double y = ((const float *)v->y)[r * s->c + c];
    if (!v->stat) return y;
    const float *mean = v->stat + 2 * (size_t)g * s->c, *invstd = mean + s->c;
    return (y - mean[c]) * invstd[c] * v->gamma[c] + v->beta[c];
}

static double xhat_at(const normed *v, const norm_shape *s, int g, size_t r, int c) {
    const float *mean = v->stat + 2 * (size_t)g * s->c, *invstd = mean + s->c;
    return ((double)((const float *)v->y)[r * s->c + c] - mean[c]) * invstd[c];
}

static int ref_norm_apply(device *dev, const norm_shape *s, const normed *y, const normed *shortcut,
                          const act *residual, bool relu, act *z) {
    (void)dev;
    size_t rows = (size_t)s->n / s->groups * s->hw;
    for (int g = 0; g < s->groups; g++)
        for (size_t r = g * rows; r < (g + 1) * rows; r++)
            for (int c = 0; c < s->c; c++) {
                double v = normed_at(y, s, g, r, c);
                if (shortcut) v += normed_at(shortcut, s, g, r, c);
                if (residual) v += ((const float *)residual)[r * s->c + c];
                ((float *)z)[r * s->c + c] = (float)(relu && v < 0 ? 0 : v);
            }
    return 0;
}

/* The gradient behind the ReLU at one place. */
static double masked(const normed *y, const norm_shape *s, const act *z, bool relu, const act *dz,
                     int g, size_t r, int c) {
    double d = ((const float *)dz)[r * s->c + c];
    if (!relu) return d;
    double sign = z ? ((const float *)z)[r * s->c + c] : normed_at(y, s, g, r, c);
    return sign > 0 ? d : 0;
}

static int ref_norm_back_sums(device *dev, const norm_shape *s, const normed *y, const act *z,
                              bool relu, const act *dz, bool add, float *sums, float *dgamma,
                              float *dbeta, act *d_out) {
    (void)dev;
    size_t rows = (size_t)s->n / s->groups * s->hw;
    for (int c = 0; c < s->c; c++) {
        double all_d = add && y->stat ? dbeta[c] : 0, all_dx = add && y->stat ? dgamma[c] : 0;
        for (int g = 0; g < s->groups; g++) {
            double sum_d = 0, sum_dx = 0;
            for (size_t r = g * rows; r < (g + 1) * rows; r++) {
                double d = masked(y, s, z, relu, dz, g, r, c);
                sum_d += d;
                if (y->stat) sum_dx += d * xhat_at(y, s, g, r, c);
                if (d_out) ((float *)d_out)[r * s->c + c] = (float)d;
            }
            if (!y->stat) continue;
            sums[(2 * g + 0) * s->c + c] = (float)sum_d;
            sums[(2 * g + 1) * s->c + c] = (float)sum_dx;
            all_d += sum_d;
            all_dx += sum_dx;
        }
        if (!y->stat) continue;
        dbeta[c] = (float)all_d;
        dgamma[c] = (float)all_dx;
    }
    return 0;
}

static int ref_norm_back_apply(device *dev, const norm_shape *s, const normed *y, const act *z,
                               bool relu, const act *dz, const float *sums, double count, act *dy) {
    (void)dev;
    size_t rows = (size_t)s->n / s->groups * s->hw;
    for (int g = 0; g < s->groups; g++) {
        const float *sum_d = sums + 2 * (size_t)g * s->c, *sum_dx = sum_d + s->c;
        const float *invstd = y->stat + (2 * (size_t)g + 1) * s->c;
        for (size_t r = g * rows; r < (g + 1) * rows; r++)
            for (int c = 0; c < s->c; c++) {
                double d = masked(y, s, z, relu, dz, g, r, c);
                double centered = d - (sum_d[c] + xhat_at(y, s, g, r, c) * sum_dx[c]) / count;
                ((float *)dy)[r * s->c + c] = (float)(y->gamma[c] * (double)invstd[c] * centered);
            }
    }
    return 0;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* The first maximum of the 3x3 window of output (oy,ox): its pixel within the image. */
static int window_max(const pool_shape *s, const float *image, int oy, int ox, int c) {
    int best = -1;
    for (int y = 2 * oy - 1; y <= 2 * oy + 1; y++)
        for (int x = 2 * ox - 1; x <= 2 * ox + 1; x++) {
            if (y < 0 || y >= s->h || x < 0 || x >= s->w) continue;
            int at = y * s->w + x;
            if (best < 0 || image[(size_t)at * s->c + c] > image[(size_t)best * s->c + c])
                best = at;
        }
    return best;
}

static int ref_max_pool(device *dev, const pool_shape *s, const act *x_, act *y_) {
    (void)dev;
    const float *x = (const float *)x_;
    float *y = (float *)y_;
    int oh = (s->h + 1) / 2, ow = (s->w + 1) / 2;
    for (int i = 0; i < s->n; i++, x += (size_t)s->h * s->w * s->c)
        for (int oy = 0; oy < oh; oy++)
            for (int ox = 0; ox < ow; ox++, y += s->c)
                for (int c = 0; c < s->c; c++)
                    y[c] = x[(size_t)window_max(s, x, oy, ox, c) * s->c + c];
    return 0;
}

static int ref_max_pool_back(device *dev, const pool_shape *s, const act *x_, const act *dy_,
                             act *dx_) {
    const float *x = (const float *)x_, *dy = (const float *)dy_;
    float *dx = (float *)dx_;
    size_t image = (size_t)s->h * s->w * s->c;
    int oh = (s->h + 1) / 2, ow = (s->w + 1) / 2;
    ref_zero(dev, dx, s->n * image * sizeof *dx);
    for (int i = 0; i < s->n; i++, x += image, dx += image)
        for (int oy = 0; oy < oh; oy++)
            for (int ox = 0; ox < ow; ox++, dy += s->c)
                for (int c = 0; c < s->c; c++)
                    dx[(size_t)window_max(s, x, oy, ox, c) * s->c + c] += dy[c];
    return 0;
}

static int ref_mean_pool(device *dev, const pool_shape *s, const act *x_, act *y_) {
    (void)dev;
    const float *x = (const float *)x_;
    float *y = (float *)y_;
    int hw = s->h * s->w;
    for (int i = 0; i < s->n; i++)
        for (int c = 0; c < s->c; c++) {
            double sum = 0;
            for (int r = 0; r < hw; r++) sum += x[((size_t)i * hw + r) * s->c + c];
            y[(size_t)i * s->c + c] = (float)(sum / hw);
        }
    return 0;
}

static int ref_mean_pool_back(device *dev, const pool_shape *s, const act *dy_, act *dx_) {
    (void)dev;
    const float *dy = (const float *)dy_;
    float *dx = (float *)dx_;
    int hw = s->h * s->w;
    for (int i = 0; i < s->n; i++)
        for (int r = 0; r < hw; r++)
            for (int c = 0; c < s->c; c++)
                dx[((size_t)i * hw + r) * s->c + c] = dy[(size_t)i * s->c + c] / (float)hw;
    return 0;
}

/* ---- rows, choice ---------------------------------------------------------------------------- */

static int ref_rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm) {
    (void)dev;
    for (int i = 0; i < n; i++, x += d, out += d) {
        double squares = 0;
        for (int j = 0; j < d; j++) squares += (double)x[j] * x[j];
        double size = sqrt(squares);
        norm[i] = (float)size;
        for (int j = 0; j < d; j++) out[j] = size > 0 ? (float)(x[j] / size) : 0;
    }
    return 0;
}

static int ref_rows_normalize_back(device *dev, const float *out, const float *norm,
                                   const float *dout, int n, int d, float *dx) {
    (void)dev;
    for (int i = 0; i < n; i++, out += d, dout += d, dx += d) {
        double along = 0;
        for (int j = 0; j < d; j++) along += (double)out[j] * dout[j];
        for (int j = 0; j < d; j++)
            dx[j] = norm[i] > 0 ? (float)((dout[j] - along * out[j]) / norm[i]) : 0;
    }
    return 0;
}

static int ref_rows_take(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                         void *to) {
    for (int i = 0; i < n; i++)
        ref_copy(dev, (char *)to + (size_t)i * row_bytes,
                 (const char *)from + (size_t)ids[i] * row_bytes, row_bytes);
    return 0;
}

static int ref_ring_put(device *dev, const step_values *at, const float *rows, int n, int d,
                        float *ring, int size) {
    ASSERT(n <= size);
    for (int i = 0; i < n; i++) {
        size_t place = (size_t)(((uint64_t)at->step * (uint64_t)n + (uint64_t)i) % (uint64_t)size);
        ref_copy(dev, ring + place * d, rows + (size_t)i * d, (size_t)d * sizeof *ring);
    }
    return 0;
}

static int ref_top_k(device *dev, const float *s, int n, int m, int ld, int self, int k,
                     int32_t *ids, float *values) {
    (void)dev;
    ASSERT(k <= m);
    for (int i = 0; i < n; i++, s += ld, ids += k) {
        int found = 0, own = self < 0 ? -1 : self + i;
        if (own >= 0 && k > 0) ids[found++] = own;
        int fixed = found; /* the own entry keeps its place */
        for (int j = 0; j < m; j++) {
            if (j == own || k == fixed) continue;
            if (found == k && !(s[j] > s[ids[k - 1]])) continue;
            int at = found < k ? found++ : k - 1;
            for (; at > fixed && s[j] > s[ids[at - 1]]; at--) ids[at] = ids[at - 1];
            ids[at] = j;
        }
        for (int j = 0; values && j < k; j++) values[(size_t)i * k + j] = s[ids[j]];
    }
    return 0;
}

/* ---- losses ---------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int d) {
    double sum = 0;
    for (int j = 0; j < d; j++) sum += (double)a[j] * b[j];
    return sum;
}

/* The row of key that is neighbor e of row i. */
static const float *near_row(const float *key, int d, const int32_t *near, int k, int i, int e) {
    return key + (size_t)(near ? near[(size_t)i * k + e] : i) * d;
}

static int ref_pull(device *dev, const float *q, const float *key, int n, int d,
                    const int32_t *near, int k, const float *weight, float factor, float *loss,
                    float *dq) {
    (void)dev;
    double value = 0;
    for (int i = 0; i < n; i++) {
        double each = -(double)factor * (weight ? weight[i] : 1.0 / n) / k;
        for (int e = 0; e < k; e++)
            value += each * dot(q + (size_t)i * d, near_row(key, d, near, k, i, e), d);
        for (int j = 0; j < d; j++) {
            double sum = 0;
            for (int e = 0; e < k; e++) sum += near_row(key, d, near, k, i, e)[j];
            dq[(size_t)i * d + j] = (float)(each * sum);
        }
    }
    *loss = (float)(*loss + value);
    return 0;
}

/* With Z = sum_m e^l_im and u = log Z - s_ij a term is log(1 + e^u), its derivative by s_ij is
 * -away and by l_im away * e^l_im / Z, where away = 1 / (1 + e^-u) = 1 - e^s/(e^s + Z). */
static int ref_contrast(device *dev, const float *q, const float *key, int n, int d,
                        const int32_t *near, int k, const float *weight, float factor,
                        const float *queue, int size, float temperature, float *logits, float *loss,
                        float *dq) {
    (void)dev;
    double value = 0;
    for (int i = 0; i < n; i++) {
        const float *own = q + (size_t)i * d;
        float *to = dq + (size_t)i * d, *l = logits + (size_t)i * size;
        double each = (double)factor * (weight ? weight[i] : 1.0 / n) / k;
        double most = -INFINITY, sum = 0, all_away = 0;
        for (int m = 0; m < size; m++) {
            l[m] = (float)(dot(own, queue + (size_t)m * d, d) / temperature);
            if (l[m] > most) most = l[m];
        }
        for (int m = 0; m < size; m++) sum += exp(l[m] - most);
        double log_sum = most + log(sum);
        for (int j = 0; j < d; j++) to[j] = 0;
        for (int e = 0; e < k; e++) {
            const float *other = near_row(key, d, near, k, i, e);
            double u = log_sum - dot(own, other, d) / temperature, away = 1 / (1 + exp(-u));
            value += each * (u > 0 ? u + log1p(exp(-u)) : log1p(exp(u)));
            all_away += away;
            for (int j = 0; j < d; j++) to[j] -= (float)(each / temperature * away * other[j]);
        }
        for (int m = 0; m < size; m++) l[m] = (float)exp(l[m] - log_sum);
        for (int j = 0; j < d; j++) {
            double pushed = 0;
            for (int m = 0; m < size; m++) pushed += (double)l[m] * queue[(size_t)m * d + j];
            to[j] += (float)(each / temperature * all_away * pushed);
        }
    }
    *loss = (float)(*loss + value);
    return 0;
}

/* |f - centroid| of the own and of the nearest other cluster -> r. */
static float boundary_ratio(const float *f, const float *centroids, int d, int K, int own) {
    double inside = 0, nearest = INFINITY;
    for (int c = 0; c < K; c++) {
        double sum = 0;
        for (int j = 0; j < d; j++) {
            double step = (double)f[j] - centroids[(size_t)c * d + j];
            sum += step * step;
        }
        if (c == own)
            inside = sqrt(sum);
        else if (sqrt(sum) < nearest)
            nearest = sqrt(sum);
    }
    if (isinf(nearest)) return 0;
    double larger = inside > nearest ? inside : nearest;
    return larger > 0 ? (float)(1 - (nearest - inside) / larger) : 1;
}

static int ref_boundary(device *dev, const step_values *at, const float *f, int n, int d,
                        const int32_t *ids, const int32_t *label, const float *centroids, int K,
                        bool over_batch, float *ratio, float *weight) {
    (void)dev;
    int kept = 0;
    float sigma = INFINITY; /* the smallest ratio that so many do not exceed */
    for (int i = 0; i < n; i++)
        ratio[i] = boundary_ratio(f + (size_t)i * d, centroids, d, K, label[ids[i]]);
    for (int i = 0; i < n; i++) {
        int below = 0;
        for (int j = 0; j < n; j++) below += ratio[j] <= ratio[i];
        if (below >= at->keep && ratio[i] < sigma) sigma = ratio[i];
    }
    for (int i = 0; i < n; i++) kept += ratio[i] <= sigma;
    for (int i = 0; i < n; i++)
        weight[i] = ratio[i] <= sigma ? 1.0f / (float)(over_batch ? n : kept) : 0;
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int ref_average(device *dev, const step_values *at, size_t n, const float *w,
                       float *average) {
    (void)dev;
    float m = at->average;
    for (size_t i = 0; i < n; i++) average[i] = m * average[i] + (1 - m) * w[i];
    return 0;
}

static int ref_sgd(device *dev, const step_values *at, int which, bool average_first, float scale,
                   size_t n, float *w, const float *dw, float *v, float *average) {
    (void)dev;
    float m = at->average;
    for (size_t i = 0; i < n; i++) {
        if (average && average_first) average[i] = m * average[i] + (1 - m) * w[i];
        v[i] = at->momentum * v[i] + (scale * dw[i] + at->decay * w[i]);
        w[i] -= at->lr[which] * v[i];
        if (average && !average_first) average[i] = m * average[i] + (1 - m) * w[i];
    }
    return 0;
}

void device_ref_ops(device_ops *op) {
    *op = (device_ops){
        .close = ref_close,
        .alloc = ref_alloc,
        .free = ref_free,
        .put = ref_copy,
        .get = ref_copy,
        .copy = ref_copy,
        .zero = ref_zero,
        .sync = ref_sync,
        .repeat = ref_repeat,
        .recording_free = ref_recording_free,
        .act_from = ref_act_from,
        .act_to = ref_act_to,
        .gemm = ref_gemm,
        .conv_plan_new = ref_conv_plan_new,
        .conv_plan_free = ref_conv_plan_free,
        .conv_forward = ref_conv_forward,
        .conv_back_data = ref_conv_back_data,
        .conv_back_filter = ref_conv_back_filter,
        .norm_finish = ref_norm_finish,
        .norm_from_running = ref_norm_from_running,
        .norm_apply = ref_norm_apply,
        .norm_back_sums = ref_norm_back_sums,
        .norm_back_apply = ref_norm_back_apply,
        .max_pool = ref_max_pool,
        .max_pool_back = ref_max_pool_back,
        .mean_pool = ref_mean_pool,
        .mean_pool_back = ref_mean_pool_back,
        .rows_normalize = ref_rows_normalize,
        .rows_normalize_back = ref_rows_normalize_back,
        .rows_take = ref_rows_take,
        .ring_put = ref_ring_put,
        .top_k = ref_top_k,
        .pull = ref_pull,
        .contrast = ref_contrast,
        .boundary = ref_boundary,
        .average = ref_average,
        .sgd = ref_sgd,
    };
}
