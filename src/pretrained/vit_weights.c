/* vit_weights.c: from a file to one block of weights on the device.
 *
 * Every tensor is converted, checked and put into its place one after another, so that besides the
 * file and the block there is room for one tensor only. */
#include "pretrained/vit.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---------------------------------------------------------------------------------- */

static size_t room(vit_plan *p, size_t count) { return span(&p->n, count, sizeof(float)); }

static vit_norm room_norm(vit_plan *p, int d) {
    vit_norm n = {.gamma = room(p, (size_t)d)};
    n.beta = room(p, (size_t)d);
    return n;
}

static vit_dense room_dense(vit_plan *p, int out, int in) {
    vit_dense n = {.w = room(p, (size_t)out * (size_t)in)};
    n.bias = room(p, (size_t)out);
    return n;
}

static int plan_weights(const vit_config *c, vit_plan *p) {
    int d = c->d;
    *p = (vit_plan){.block = calloc((size_t)c->depth, sizeof *p->block)};
    if (!p->block) return fail_memory("network", (double)c->depth * sizeof *p->block);
    p->patch = room_dense(p, d, vit_patch_row(c));
    p->first = room(p, (size_t)vit_extra(c) * (size_t)d);
    p->place = room(p, (size_t)c->now * (size_t)c->now * (size_t)d);
    p->before = room_norm(p, d);
    p->after = room_norm(p, d);
    for (int i = 0; i < c->depth; i++) {
        vit_block *b = &p->block[i];
        b->norm1 = room_norm(p, d), b->norm2 = room_norm(p, d);
        b->qkv = room_dense(p, 3 * d, d), b->out = room_dense(p, d, d);
        b->fc1 = room_dense(p, c->mlp, d), b->fc2 = room_dense(p, d, c->mlp);
        b->scale1 = room(p, (size_t)d), b->scale2 = room(p, (size_t)d);
    }
    if (c->pool == POOL_HEAD) {
        p->query = room(p, (size_t)d);
        p->head_kv = room_dense(p, 2 * d, d), p->head_out = room_dense(p, d, d);
        p->head_fc1 = room_dense(p, c->head_mlp, d), p->head_fc2 = room_dense(p, d, c->head_mlp);
        p->head_norm = room_norm(p, d);
    }
    if (c->projected) p->project = room(p, (size_t)c->projected * (size_t)d);
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct loader {
    device *dev;
    const tensors *f;
    const vit_config *c;
    bool *used;    /* [f->n] */
    float *values; /* [room], the tensor at hand */
    size_t room;
    float *out; /* device */
} loader;

static int reserve(loader *l, size_t count) {
    if (count <= l->room) return 0;
    free(l->values);
    l->room = 0;
    l->values = memory_new(l->f->path, count, sizeof *l->values);
    if (!l->values) return CONR_ENOMEM;
    l->room = count;
    return 0;
}

static int check_numbers(const loader *l, const tensor *t) {
    for (size_t i = 0; i < t->count; i++)
        if (!isfinite(l->values[i]))
            return fail(CONR_ENUMBER, "%s: tensor '%.100s' holds NaN or infinity; is it damaged?",
                        l->f->path, t->name);
    return 0;
}

/* The tensor as floats in l->values. */
static int read_shape(loader *l, const char *full, int n_dims, const int64_t *dim) {
    int rc = 0;
    size_t count = 1;
    const tensor *t = tensors_find(l->f, full);
    for (int i = 0; i < n_dims; i++) count *= (size_t)dim[i];
    TRY(reserve(l, count));
    TRY(tensors_take(l->f, full, n_dims, dim, l->values));
    l->used[t - l->f->tensor] = true;
    TRY(check_numbers(l, t));
done:
    return rc;
}

static int read_named(loader *l, int block, const char *name, const char *end, int64_t rows,
                      int64_t columns) {
    char full[256];
    int64_t dim[2] = {rows, columns};
    vit_name(l->c, block, name, end, full);
    return read_shape(l, full, columns ? 2 : 1, dim);
}

/* Tokens: [rows,d], also as [1,rows,d], and [d] if it is one row. */
static int read_tokens(loader *l, const char *name, int64_t rows) {
    char full[256];
    int64_t d = l->c->d, dim[3] = {1, rows, d};
    vit_name(l->c, -1, name, "", full);
    const tensor *t = tensors_find(l->f, full);
    int n = t && t->n_dims <= 3 ? t->n_dims : 3;
    if (n == 1 && rows != 1) n = 2;
    return read_shape(l, full, n ? n : 1, dim + 3 - (n ? n : 1));
}

static int put(loader *l, size_t at, const float *values, size_t count) {
    return l->dev->op.put(l->dev, l->out + at, values, count * sizeof *values);
}

static int load_norm(loader *l, int block, const char *name, vit_norm to) {
    int rc = 0, d = l->c->d;
    TRY(read_named(l, block, name, "weight", d, 0));
    TRY(put(l, to.gamma, l->values, (size_t)d));
    TRY(read_named(l, block, name, "bias", d, 0));
    TRY(put(l, to.beta, l->values, (size_t)d));
done:
    return rc;
}

/* A layer, or the part of one that starts at row `first`. */
static int load_dense(loader *l, int block, const char *name, int out, int in, int first,
                      vit_dense to) {
    int rc = 0;
    TRY(read_named(l, block, name, "weight", out, in));
    TRY(put(l, to.w + (size_t)first * (size_t)in, l->values, (size_t)out * (size_t)in));
    TRY(read_named(l, block, name, "bias", out, 0));
    TRY(put(l, to.bias + (size_t)first, l->values, (size_t)out));
done:
    return rc;
}

static int load_scale(loader *l, int block, const char *name, size_t to) {
    int rc = read_named(l, block, name, "", l->c->d, 0);
    return rc < 0 ? rc : put(l, to, l->values, (size_t)l->c->d);
}

static int load_block(loader *l, int i, const vit_block *b) {
    int rc = 0, d = l->c->d;
    const vit_names *k = l->c->names;
    int parts = k->qkv[2] ? 3 : 1;
    TRY(load_norm(l, i, k->norm1, b->norm1));
    TRY(load_norm(l, i, k->norm2, b->norm2));
    for (int j = 0; j < parts; j++)
        TRY(load_dense(l, i, k->qkv[j], 3 * d / parts, d, j * d, b->qkv));
    TRY(load_dense(l, i, k->out, d, d, 0, b->out));
    TRY(load_dense(l, i, k->fc1, l->c->mlp, d, 0, b->fc1));
    TRY(load_dense(l, i, k->fc2, d, l->c->mlp, 0, b->fc2));
    if (l->c->scaled) {
        TRY(load_scale(l, i, k->scale1, b->scale1));
        TRY(load_scale(l, i, k->scale2, b->scale2));
    }
done:
    return rc;
}

/* [d,3,patch,patch] becomes [d][patch][patch][3], the order of the pixels of an image. */
static int load_patch(loader *l, vit_dense to) {
    const vit_config *c = l->c;
    int rc = 0, area = c->patch * c->patch;
    int64_t dim[4] = {c->d, 3, c->patch, c->patch};
    char full[256];
    size_t row = (size_t)vit_patch_row(c), count = (size_t)c->d * row;
    float *turned = calloc(count, sizeof *turned);
    TRY(turned ? 0 : fail_memory(l->f->path, 4.0 * (double)count));
    vit_name(c, -1, c->names->patch, "weight", full);
    TRY(read_shape(l, full, 4, dim));
    for (int i = 0; i < c->d; i++)
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < area; j++)
                turned[(size_t)i * row + (size_t)j * 3 + (size_t)k] =
                    l->values[((size_t)i * 3 + k) * area + j];
    TRY(put(l, to.w, turned, count));
    if (c->patch_bias) {
        TRY(read_named(l, -1, c->names->patch, "bias", c->d, 0));
        TRY(put(l, to.bias, l->values, (size_t)c->d));
    }
done:
    free(turned);
    return rc;
}

/* Class token, the other one of DeiT, registers; all but registers may have a position. */
static int load_tokens(loader *l, const vit_plan *p) {
    const vit_config *c = l->c;
    const vit_names *k = c->names;
    int rc = 0, placed = c->has_class + c->distilled;
    int rows = c->grid * c->grid + (c->placed_extra ? placed : 0);
    size_t d = (size_t)c->d, patches = (size_t)c->now * (size_t)c->now;
    float *first = memory_new(l->f->path, (size_t)vit_extra(c) * d + 1, sizeof *first);
    float *place = memory_new(l->f->path, patches * d, sizeof *place);
    char original[256];
    const char *name[2] = {c->has_class ? k->class_ : k->distilled, k->distilled};
    TRY(first && place ? 0 : CONR_ENOMEM);
    for (int i = 0; i < placed; i++) {
        TRY(read_tokens(l, name[i], 1));
        memcpy(first + (size_t)i * d, l->values, d * sizeof *first);
    }
    vit_name(c, -1, "register_tokens", "", original);
    if (c->registers) {
        TRY(read_tokens(l, tensors_find(l->f, original) ? "register_tokens" : k->registers,
                        c->registers));
        memcpy(first + (size_t)placed * d, l->values, (size_t)c->registers * d * sizeof *first);
    }
    TRY(read_tokens(l, k->position, rows));
    for (size_t i = 0; c->placed_extra && i < (size_t)placed * d; i++) first[i] += l->values[i];
    const float *grid = l->values + (c->placed_extra ? (size_t)placed * d : 0);
    if (c->now == c->grid)
        memcpy(place, grid, patches * d * sizeof *place);
    else
        TRY(vit_place(c->places, grid, c->grid, c->now, c->d, place));
    TRY(put(l, p->first, first, (size_t)vit_extra(c) * d));
    TRY(put(l, p->place, place, patches * d));
done:
    free(first), free(place);
    return rc;
}

/* The query of the head is the same for all images, so it goes through its dense layer here. */
static int load_head(loader *l, const vit_plan *p) {
    const vit_config *c = l->c;
    const vit_names *k = c->names;
    int rc = 0, d = c->d, rows = k->head_qkv[1] ? d : 3 * d;
    size_t wide = (size_t)d, skip = k->head_qkv[1] ? 0 : wide;
    float *probe = memory_new(l->f->path, 2 * wide, sizeof *probe), *query = probe + wide;
    TRY(probe ? 0 : CONR_ENOMEM);
    TRY(read_tokens(l, k->probe, 1));
    memcpy(probe, l->values, wide * sizeof *probe);
    TRY(read_named(l, -1, k->head_qkv[0], "weight", rows, d));
    for (size_t i = 0; i < wide; i++) {
        double sum = 0;
        for (size_t j = 0; j < wide; j++) sum += (double)l->values[i * wide + j] * probe[j];
        query[i] = (float)sum;
    }
    if (skip) TRY(put(l, p->head_kv.w, l->values + skip * wide, 2 * wide * wide));
    TRY(read_named(l, -1, k->head_qkv[0], "bias", rows, 0));
    for (size_t i = 0; i < wide; i++) query[i] += l->values[i];
    if (skip) TRY(put(l, p->head_kv.bias, l->values + skip, 2 * wide));
    if (!skip) TRY(load_dense(l, -1, k->head_qkv[1], 2 * d, d, 0, p->head_kv));
    TRY(put(l, p->query, query, wide));
    TRY(load_dense(l, -1, k->head_out, d, d, 0, p->head_out));
    TRY(load_norm(l, -1, k->head_norm, p->head_norm));
    TRY(load_dense(l, -1, k->head_fc1, c->head_mlp, d, 0, p->head_fc1));
    TRY(load_dense(l, -1, k->head_fc2, d, c->head_mlp, 0, p->head_fc2));
done:
    free(probe);
    return rc;
}

/* [features,d], or [d,features], which is turned. */
static int load_project(loader *l, const vit_plan *p) {
    const vit_config *c = l->c;
    int rc = 0, d = c->d, n = c->projected;
    float *turned = NULL;
    if (c->names->project_to) {
        int64_t dim[2] = {n, d};
        TRY(read_shape(l, c->names->project_to, 2, dim));
        TRY(put(l, p->project, l->values, (size_t)n * (size_t)d));
        goto done;
    }
    TRY(read_named(l, -1, c->names->project, "", d, n));
    turned = memory_new(l->f->path, (size_t)n * (size_t)d, sizeof *turned);
    TRY(turned ? 0 : CONR_ENOMEM);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) turned[(size_t)i * d + j] = l->values[(size_t)j * n + i];
    TRY(put(l, p->project, turned, (size_t)n * (size_t)d));
done:
    free(turned);
    return rc;
}

/* ---- what is left over ----------------------------------------------------------------------- */

static bool is_ignored(const vit_config *c, const char *name) {
    size_t n = strlen(c->prefix);
    if (strncmp(name, c->prefix, n)) return true; /* another part of a larger model */
    for (int i = 0; i < 6 && c->names->ignored[i]; i++)
        if (!strncmp(name + n, c->names->ignored[i], strlen(c->names->ignored[i]))) return true;
    if (c->names->project_to && !strcmp(name, c->names->project_to)) return true;
    /* the norm that another pooling would use, the head that is not asked for */
    if (c->names->after_mean && !strncmp(name + n, "attn_pool.", 10) && c->pool != POOL_HEAD)
        return true;
    return !strncmp(name + n, "head.", 5) && c->names->probe && c->pool != POOL_HEAD;
}

/* Tensors that nothing asked for: the network would not be the one that was trained. */
static int check_rest(const loader *l) {
    char list[400] = "";
    int n = 0;
    for (int i = 0; i < l->f->n; i++) {
        const char *name = l->f->tensor[i].name;
        if (l->used[i] || is_ignored(l->c, name)) continue;
        size_t at = strlen(list);
        if (n < 3) snprintf(list + at, sizeof list - at, "%s'%.100s'", n ? ", " : "", name);
        n++;
    }
    if (!n) return 0;
    return fail(CONR_EFORMAT,
                "%s: has %d tensor%s that %s with %d blocks does not have: %s%s; is a layer "
                "missing, or is it another network?",
                l->f->path, n, n == 1 ? "" : "s", l->c->about.family, l->c->depth, list,
                n > 3 ? ", ..." : "");
}

int vit_load(device *dev, const tensors *f, const vit_config *c, vit_plan *p, float **out) {
    int rc = 0;
    const vit_names *k = c->names;
    loader l = {.dev = dev, .f = f, .c = c};
    *out = NULL;
    TRY(plan_weights(c, p));
    l.used = calloc((size_t)f->n + 1, sizeof *l.used);
    TRY(l.used ? 0 : fail_memory(f->path, (double)f->n));
    TRY(dev->op.alloc(dev, p->n * sizeof(float), (void **)&l.out));
    TRY(load_patch(&l, p->patch));
    TRY(load_tokens(&l, p));
    if (c->before) TRY(load_norm(&l, -1, k->before, p->before));
    TRY(load_norm(&l, -1, c->after ? k->after : k->after_mean, p->after));
    for (int i = 0; i < c->depth; i++) TRY(load_block(&l, i, &p->block[i]));
    if (c->pool == POOL_HEAD) TRY(load_head(&l, p));
    if (c->projected) TRY(load_project(&l, p));
    TRY(check_rest(&l));
    TRY(dev->op.sync(dev));
    *out = l.out, l.out = NULL;
done:
    free(l.used), free(l.values);
    if (l.out) dev->op.free(dev, l.out);
    if (rc < 0) free(p->block), p->block = NULL;
    return rc;
}
