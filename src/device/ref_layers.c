/* ref_layers.c: the reference for the layers of a network: convolution, batch norm, pools. */
#include "device/ref.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The input pixel under tap (ky,kx) of output pixel (oy,ox): its offset in pixels, or -1 if it lies
 * in the padding. */
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

/* The value of an operand at row r (of all n*hw), channel c, group g. */
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

/* The gradient before the ReLU, of one element. */
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
    (void)dev;
    const float *x = (const float *)x_, *dy = (const float *)dy_;
    float *dx = (float *)dx_;
    size_t image = (size_t)s->h * s->w * s->c;
    int oh = (s->h + 1) / 2, ow = (s->w + 1) / 2;
    memset(dx, 0, s->n * image * sizeof *dx);
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

void ref_layers(device_ops *op) {
    op->conv_plan_new = ref_conv_plan_new;
    op->conv_plan_free = ref_conv_plan_free;
    op->conv_forward = ref_conv_forward;
    op->conv_back_data = ref_conv_back_data;
    op->conv_back_filter = ref_conv_back_filter;
    op->norm_finish = ref_norm_finish;
    op->norm_from_running = ref_norm_from_running;
    op->norm_apply = ref_norm_apply;
    op->norm_back_sums = ref_norm_back_sums;
    op->norm_back_apply = ref_norm_back_apply;
    op->max_pool = ref_max_pool;
    op->max_pool_back = ref_max_pool_back;
    op->mean_pool = ref_mean_pool;
    op->mean_pool_back = ref_mean_pool_back;
}
