/* ref_transformers.c: the reference for dense layers, layer norm and attention. */
#include "device/ref.h"

#include <math.h>

static double after(dense_then then, double x) {
    switch (then) {
    case DENSE_GELU: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case DENSE_GELU_QUICK: return x / (1 + exp(-1.702 * x));
    case DENSE_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default: return x;
    }
}

static int ref_dense(device *dev, const dense_shape *s, const act *x, const float *w,
                     const float *bias, const float *scale, const act *residual, act *y) {
    (void)dev;
    const float *in = (const float *)x, *more = (const float *)residual;
    float *out = (float *)y;
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->co; j++) {
            const float *a = in + (size_t)i * s->ci, *b = w + (size_t)j * s->ci;
            size_t at = (size_t)i * s->co + j;
            double sum = bias ? bias[j] : 0;
            for (int l = 0; l < s->ci; l++) sum += (double)a[l] * b[l];
            out[at] = (float)((more ? more[at] : 0) +
                              (double)(scale ? scale[j] : 1) * after(s->then, sum));
        }
    return 0;
}

static int ref_layer_norm(device *dev, int n, int d, float eps, const act *x, const float *gamma,
                          const float *beta, act *y) {
    (void)dev;
    const float *in = (const float *)x;
    float *out = (float *)y;
    for (int i = 0; i < n; i++, in += d, out += d) {
        double mean = 0, variance = 0;
        for (int j = 0; j < d; j++) mean += in[j];
        mean /= d;
        for (int j = 0; j < d; j++) variance += (in[j] - mean) * (in[j] - mean);
        double invstd = 1 / sqrt(variance / d + eps);
        for (int j = 0; j < d; j++) out[j] = (float)(gamma[j] * (in[j] - mean) * invstd + beta[j]);
    }
    return 0;
}

/* The scores of one query. */
static size_t ref_attention_bytes(device *dev, const attention_shape *s) {
    (void)dev;
    return (size_t)s->keys * sizeof(double);
}

static int ref_attention(device *dev, const attention_shape *s, const act *q, const act *k,
                         const act *v, act *out, void *work) {
    (void)dev;
    double *p = work;
    for (int i = 0; i < s->n; i++)
        for (int h = 0; h < s->heads; h++)
            for (int a = 0; a < s->queries; a++) {
                size_t head = (size_t)h * s->d, from = (size_t)i * s->k_image + head;
                const float *own = (const float *)q + (size_t)i * s->q_image + a * s->q_row + head;
                const float *key = (const float *)k + from, *value = (const float *)v + from;
                float *to = (float *)out + (size_t)i * s->o_image + a * s->o_row + head;
                double most = -INFINITY, sum = 0;
                for (int b = 0; b < s->keys; b++) {
                    p[b] = 0;
                    for (int j = 0; j < s->d; j++) p[b] += (double)own[j] * key[b * s->k_row + j];
                    p[b] *= s->scale;
                    if (p[b] > most) most = p[b];
                }
                for (int b = 0; b < s->keys; b++) sum += p[b] = exp(p[b] - most);
                for (int j = 0; j < s->d; j++) {
                    double mean = 0;
                    for (int b = 0; b < s->keys; b++) mean += p[b] * value[b * s->k_row + j];
                    to[j] = (float)(mean / sum);
                }
            }
    return 0;
}

static int ref_tokens(device *dev, int n, int extra, int m, int d, const act *x, const float *first,
                      const float *place, act *out) {
    (void)dev;
    const float *in = (const float *)x;
    float *to = (float *)out;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < extra * d; j++) *to++ = first[j];
        for (int j = 0; j < m * d; j++) *to++ = *in++ + place[j];
    }
    return 0;
}

void ref_transformers(device_ops *op) {
    op->dense = ref_dense;
    op->layer_norm = ref_layer_norm;
    op->attention_bytes = ref_attention_bytes;
    op->attention = ref_attention;
    op->tokens = ref_tokens;
}
