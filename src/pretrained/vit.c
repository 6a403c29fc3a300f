/* vit.c: a vision transformer on a device: memory for a batch, and the forward pass. */
#include "pretrained/vit.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct vit {
    device *dev;
    vit_config c;
    vit_plan p;
    float *w; /* the block of weights */
    int batch;
    int patches, rows; /* of an image */
    /* activations */
    act *in;         /* [batch*patches, values of a patch] */
    act *x, *y, *z;  /* [batch*rows,d] */
    act *wide;       /* [batch*rows, the widest of 3d and mlp] */
    float *staging;  /* device: [batch*patches, values of a patch], then features */
    int32_t *picked; /* [batch*patches] rows that pooling takes */
    void *work;      /* of attention */
} vit;

static int recognize(const tensors *f, const encoder_settings *set, encoder_about *about) {
    vit_config c;
    int rc = vit_recognize(f, set, &c);
    if (rc > 0) *about = c.about;
    return rc;
}

static void vit_close(void *net) {
    vit *v = net;
    if (!v) return;
    void *all[] = {v->w, v->in, v->x, v->y, v->z, v->wide, v->staging, v->picked, v->work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) v->dev->op.free(v->dev, all[i]);
    free(v->p.block);
    free(v);
}

/* Values of a patch: zeros at the end make rows that every device multiplies fast. */
static int pixels_of(const vit *v) { return vit_patch_row(&v->c); }

static size_t values_of(const void *net) {
    const vit *v = net;
    return (size_t)v->patches * (size_t)pixels_of(v);
}

static attention_shape self_attention(const vit *v, int n, int queries) {
    size_t d = (size_t)v->c.d, rows = (size_t)v->rows;
    return (attention_shape){.n = n,
                             .queries = queries,
                             .keys = v->rows,
                             .heads = v->c.heads,
                             .d = v->c.d / v->c.heads,
                             .q_row = 3 * d,
                             .q_image = 3 * d * rows,
                             .k_row = 3 * d,
                             .k_image = 3 * d * rows,
                             .o_row = d,
                             .o_image = d * (size_t)queries,
                             .scale = 1 / sqrtf((float)(v->c.d / v->c.heads))};
}

/* One query for all images; keys and values in rows of 2d. */
static attention_shape head_attention(const vit *v, int n) {
    attention_shape s = self_attention(v, n, 1);
    s.q_image = 0;
    s.k_row = 2 * (size_t)v->c.d, s.k_image = s.k_row * (size_t)v->rows;
    return s;
}

/* The rows of the patches if they are averaged, else the first of each image. */
static int fill_picked(vit *v) {
    bool mean = v->c.pool == POOL_MEAN;
    int each = mean ? v->patches : 1, rc = 0;
    size_t n = (size_t)v->batch * (size_t)each;
    int32_t *row = memory_new("network", n, sizeof *row);
    TRY(row ? 0 : CONR_ENOMEM);
    for (int i = 0; i < v->batch; i++)
        for (int j = 0; j < each; j++)
            row[i * each + j] = i * v->rows + (mean ? vit_extra(&v->c) : 0) + j;
    TRY(v->dev->op.put(v->dev, v->picked, row, n * sizeof *row));
    TRY(v->dev->op.sync(v->dev));
done:
    free(row);
    return rc;
}

static int vit_open(device *dev, const tensors *f, const encoder_settings *set, int batch,
                    void **out) {
    int rc = 0;
    vit *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return fail_memory("network", sizeof *v);
    v->dev = dev, v->batch = batch;
    TRY(vit_recognize(f, set, &v->c));
    const vit_config *c = &v->c;
    v->patches = c->now * c->now, v->rows = v->patches + vit_extra(c);
    TRY(vit_load(dev, f, c, &v->p, &v->w));
    size_t rows = (size_t)batch * (size_t)v->rows * dev->act_size, d = (size_t)c->d;
    size_t wide = (size_t)(3 * c->d > c->mlp ? 3 * c->d : c->mlp);
    if (c->head_mlp > (int)wide) wide = (size_t)c->head_mlp;
    if (c->projected > (int)wide) wide = (size_t)c->projected;
    size_t in = (size_t)batch * (size_t)v->patches * (size_t)pixels_of(v);
    size_t features = (size_t)batch * (size_t)c->about.features;
    attention_shape s = self_attention(v, batch, v->rows), h = head_attention(v, batch);
    size_t work = dev->op.attention_bytes(dev, &s), more = dev->op.attention_bytes(dev, &h);
    TRY(dev->op.alloc(dev, in * dev->act_size, (void **)&v->in));
    TRY(dev->op.alloc(dev, rows * d, (void **)&v->x));
    TRY(dev->op.alloc(dev, rows * d, (void **)&v->y));
    TRY(dev->op.alloc(dev, rows * d, (void **)&v->z));
    TRY(dev->op.alloc(dev, rows * wide, (void **)&v->wide));
    TRY(dev->op.alloc(dev, (in > features ? in : features) * sizeof(float), (void **)&v->staging));
    TRY(dev->op.alloc(dev, (size_t)batch * (size_t)v->patches * sizeof(int32_t),
                      (void **)&v->picked));
    TRY(dev->op.alloc(dev, work > more ? work : more, &v->work));
    TRY(fill_picked(v));
    *out = v;
done:
    if (rc < 0) vit_close(v);
    return rc;
}

/* Patch after patch, each with its pixels in order. */
static void arrange(const void *net, const float *image, float *out) {
    const vit *v = net;
    size_t line = (size_t)v->c.patch * 3, row = (size_t)v->c.now * line;
    size_t rest = (size_t)pixels_of(v) - line * (size_t)v->c.patch;
    for (int py = 0; py < v->c.now; py++)
        for (int px = 0; px < v->c.now; px++) {
            const float *from = image + (size_t)py * (size_t)v->c.patch * row + (size_t)px * line;
            for (int y = 0; y < v->c.patch; y++, out += line, from += row)
                memcpy(out, from, line * sizeof *out);
            for (size_t i = 0; i < rest; i++) *out++ = 0;
        }
}

/* ---- forward --------------------------------------------------------------------------------- */

static int norm(vit *v, int rows, vit_norm at, const act *x, act *y) {
    return v->dev->op.layer_norm(v->dev, rows, v->c.d, v->c.eps, x, v->w + at.gamma, v->w + at.beta,
                                 y);
}

static int dense(vit *v, int rows, int in, int out, dense_then then, vit_dense at, const act *x,
                 act *y) {
    dense_shape s = {rows, in, out, then};
    return v->dev->op.dense(v->dev, &s, x, v->w + at.w, v->w + at.bias, NULL, NULL, y);
}

/* y = residual + scale * (x w' + bias) */
static int dense_add(vit *v, int rows, int in, vit_dense at, size_t scale, const act *x,
                     const act *residual, act *y) {
    dense_shape s = {rows, in, v->c.d, DENSE_PLAIN};
    return v->dev->op.dense(v->dev, &s, x, v->w + at.w, v->w + at.bias,
                            v->c.scaled ? v->w + scale : NULL, residual, y);
}

/* From patches to the first block's input, in x. */
static int start(vit *v, int n) {
    int rc = 0;
    const vit_config *c = &v->c;
    device *dev = v->dev;
    TRY(dev->op.act_from(dev, v->staging, (size_t)n * (size_t)v->patches * (size_t)pixels_of(v),
                         v->in));
    TRY(dense(v, n * v->patches, pixels_of(v), c->d, DENSE_PLAIN, v->p.patch, v->in, v->y));
    TRY(dev->op.tokens(dev, n, vit_extra(c), v->patches, c->d, v->y, v->w + v->p.first,
                       v->w + v->p.place, v->x));
    if (c->before) TRY(norm(v, n * v->rows, v->p.before, v->x, v->x));
done:
    return rc;
}

/* x -> x.  one: only the first row of each image goes on, as n rows. */
static int block(vit *v, const vit_block *b, int n, bool one) {
    int rc = 0, d = v->c.d, rows = n * v->rows, left = one ? n : rows;
    device *dev = v->dev;
    attention_shape s = self_attention(v, n, one ? 1 : v->rows);
    const act *from = v->x;
    TRY(norm(v, rows, b->norm1, v->x, v->z));
    TRY(dense(v, rows, d, 3 * d, DENSE_PLAIN, b->qkv, v->z, v->wide));
    TRY(dev->op.attention(dev, &s, v->wide, act_at(dev, v->wide, (size_t)d),
                          act_at(dev, v->wide, 2 * (size_t)d), v->z, v->work));
    if (one) {
        from = v->wide; /* queries, keys and values are used up */
        TRY(dev->op.rows_take(dev, v->x, (size_t)d * dev->act_size, v->picked, n, v->wide));
    }
    TRY(dense_add(v, left, d, b->out, b->scale1, v->z, from, v->y));
    TRY(norm(v, left, b->norm2, v->y, v->z));
    TRY(dense(v, left, d, v->c.mlp, v->c.gelu, b->fc1, v->z, v->wide));
    TRY(dense_add(v, left, v->c.mlp, b->fc2, b->scale2, v->wide, v->y, v->x));
done:
    return rc;
}

/* What a learned query attends to, in z. */
static int pool_head(vit *v, int n) {
    int rc = 0, d = v->c.d;
    device *dev = v->dev;
    attention_shape s = head_attention(v, n);
    TRY(norm(v, n * v->rows, v->p.after, v->x, v->z));
    TRY(dense(v, n * v->rows, d, 2 * d, DENSE_PLAIN, v->p.head_kv, v->z, v->wide));
    TRY(dev->op.act_from(dev, v->w + v->p.query, (size_t)d, v->y));
    TRY(dev->op.attention(dev, &s, v->y, v->wide, act_at(dev, v->wide, (size_t)d), v->z, v->work));
    TRY(dense(v, n, d, d, DENSE_PLAIN, v->p.head_out, v->z, v->x));
    TRY(norm(v, n, v->p.head_norm, v->x, v->z));
    TRY(dense(v, n, d, v->c.head_mlp, v->c.gelu, v->p.head_fc1, v->z, v->wide));
    dense_shape last = {n, v->c.head_mlp, d, DENSE_PLAIN};
    TRY(dev->op.dense(dev, &last, v->wide, v->w + v->p.head_fc2.w, v->w + v->p.head_fc2.bias, NULL,
                      v->x, v->z));
done:
    return rc;
}

/* The mean of the patches, in z; normed before or, if the network was trained so, after. */
static int pool_mean(vit *v, int n) {
    int rc = 0;
    device *dev = v->dev;
    pool_shape s = {n, v->patches, 1, v->c.d};
    const act *x = v->x;
    if (v->c.after) {
        TRY(norm(v, n * v->rows, v->p.after, v->x, v->z));
        x = v->z;
    }
    TRY(dev->op.rows_take(dev, x, (size_t)v->c.d * dev->act_size, v->picked, n * v->patches, v->y));
    TRY(dev->op.mean_pool(dev, &s, v->y, v->z));
    if (!v->c.after) TRY(norm(v, n, v->p.after, v->z, v->z));
done:
    return rc;
}

static int encode(void *net, const float *images, int n, float *features) {
    int rc = 0;
    vit *v = net;
    device *dev = v->dev;
    const vit_config *c = &v->c;
    int d = c->about.features;
    ASSERT(n >= 1 && n <= v->batch);
    size_t in = (size_t)n * (size_t)v->patches * (size_t)pixels_of(v);
    TRY(dev->op.put(dev, v->staging, images, in * sizeof *images));
    TRY(start(v, n));
    /* of the last block, only the class token is needed if it is all that counts */
    for (int i = 0; i < c->depth; i++)
        TRY(block(v, &v->p.block[i], n, i == c->depth - 1 && c->pool == POOL_CLASS));
    act *out = v->z;
    if (c->pool == POOL_CLASS)
        TRY(norm(v, n, v->p.after, v->x, v->z));
    else
        TRY(c->pool == POOL_MEAN ? pool_mean(v, n) : pool_head(v, n));
    if (c->projected && c->pool == POOL_CLASS) {
        dense_shape s = {n, c->d, c->projected, DENSE_PLAIN};
        TRY(dev->op.dense(dev, &s, v->z, v->w + v->p.project, NULL, NULL, NULL, v->wide));
        out = v->wide;
    }
    TRY(dev->op.act_to(dev, out, (size_t)n * (size_t)d, v->staging));
    TRY(dev->op.get(dev, features, v->staging, (size_t)n * (size_t)d * sizeof *features));
done:
    return rc;
}

const family family_vit = {recognize, vit_open, vit_close, arrange, values_of, encode};
