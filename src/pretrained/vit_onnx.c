/* vit_onnx.c: a vision transformer as an ONNX graph.
 *
 * Values between nodes are rows [N*rows,d], as in vit.c, so that dense layers are Gemm with the
 * weights as they are.  Tokens before the patches are rows of zeros to which their values are added
 * together with the positions: nothing in the graph depends on N. */
#include "pretrained/export.h"
#include "pretrained/vit.h"

#include "base/memory.h"
#include "base/status.h"
#include "onnx/onnx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPSET = 17 /* of 2022, the first with LayerNormalization */, NAME = 64, PREFIX = 24 };

typedef struct writer {
    onnx_graph *g;
    const vit_config *c;
    const float *w;  /* the block of weights */
    char at[PREFIX]; /* what names of values begin with: "blocks.3." */
    char x[NAME];    /* the value at hand */
} writer;

/* "blocks.3.NAMEend" */
static const char *full(const writer *v, const char *name, const char *end, char out[NAME]) {
    snprintf(out, NAME, "%s%s%s", v->at, name, end);
    return out;
}

/* Adds the node whose output is the value at hand from now on. */
static void then(writer *v, onnx_message node, const char *out) {
    onnx_put(v->g, &node);
    snprintf(v->x, NAME, "%s", out);
}

/* The value at hand through an operation with one more operand; NULL: none. */
static void apply(writer *v, const char *op, const char *with, const char *name) {
    char out[NAME];
    const char *in[] = {v->x, with};
    full(v, name, "", out);
    then(v, onnx_node(op, out, in, with ? 2 : 1), out);
}

static void transpose(writer *v, const char *from, int n, const int *order, const char *name) {
    char out[NAME];
    full(v, name, "", out);
    onnx_message node = ONNX_NODE("Transpose", out, from);
    onnx_add_ints(&node, "perm", n, order);
    then(v, node, out);
}

static void softmax(writer *v, const char *name) {
    char out[NAME];
    full(v, name, "", out);
    onnx_message node = ONNX_NODE("Softmax", out, v->x);
    onnx_add_int(&node, "axis", -1);
    then(v, node, out);
}

/* One of several along an axis, which goes away. */
static void gather(writer *v, const char *from, const char *index, int axis, const char *name) {
    char out[NAME];
    full(v, name, "", out);
    onnx_message node = ONNX_NODE("Gather", out, from, index);
    onnx_add_int(&node, "axis", axis);
    then(v, node, out);
}

static void norm(writer *v, const char *name, vit_norm at) {
    char weight[NAME], bias[NAME], out[NAME];
    full(v, name, ".weight", weight), full(v, name, ".bias", bias), full(v, name, ".out", out);
    onnx_tensor(v->g, weight, 1, (int64_t[]){v->c->d}, v->w + at.gamma);
    onnx_tensor(v->g, bias, 1, (int64_t[]){v->c->d}, v->w + at.beta);
    onnx_message node = ONNX_NODE("LayerNormalization", out, v->x, weight, bias);
    onnx_add_int(&node, "axis", -1);
    onnx_add_float(&node, "epsilon", v->c->eps);
    then(v, node, out);
}

static void dense(writer *v, const char *name, int out_d, int in_d, const float *w,
                  const float *b) {
    char weight[NAME], bias[NAME], out[NAME];
    full(v, name, ".weight", weight), full(v, name, ".bias", bias), full(v, name, ".out", out);
    onnx_tensor(v->g, weight, 2, (int64_t[]){out_d, in_d}, w);
    if (b) onnx_tensor(v->g, bias, 1, (int64_t[]){out_d}, b);
    const char *in[] = {v->x, weight, bias};
    onnx_message node = onnx_node("Gemm", out, in, b ? 3 : 2);
    onnx_add_int(&node, "transB", 1);
    then(v, node, out);
}

static void dense_at(writer *v, const char *name, int out_d, int in_d, vit_dense at) {
    dense(v, name, out_d, in_d, v->w + at.w, v->w + at.bias);
}

/* Opset 17 has no GELU. */
static void gelu(writer *v) {
    char x[NAME];
    snprintf(x, sizeof x, "%s", v->x);
    if (v->c->gelu == DENSE_GELU_QUICK) { /* x sigmoid(1.702 x) */
        apply(v, "Mul", "gelu_slope", "gelu.scaled");
        apply(v, "Sigmoid", NULL, "gelu.gate");
        apply(v, "Mul", x, "gelu.out");
        return;
    }
    if (v->c->gelu == DENSE_GELU_TANH) { /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
        apply(v, "Mul", x, "gelu.square");
        apply(v, "Mul", "gelu_cubic", "gelu.part");
        apply(v, "Add", "one", "gelu.factor");
        apply(v, "Mul", x, "gelu.inner");
        apply(v, "Mul", "gelu_slope", "gelu.scaled");
        apply(v, "Tanh", NULL, "gelu.curve");
    } else { /* x/2 (1 + erf(x / sqrt(2))) */
        apply(v, "Mul", "gelu_slope", "gelu.scaled");
        apply(v, "Erf", NULL, "gelu.curve");
    }
    apply(v, "Add", "one", "gelu.raised");
    apply(v, "Mul", x, "gelu.gated");
    apply(v, "Mul", "half", "gelu.out");
}

/* softmax(q k') v as rows [*,d].  q: a value [heads,1,dh], or NULL: from the value at hand [*,parts*d],
 * as keys and values are. */
static void attention(writer *v, const char *q) {
    char query[NAME], key[NAME], value[NAME], all[NAME];
    apply(v, "Reshape", q ? "split_2" : "split_3", "split");
    transpose(v, v->x, 5, (int[]){2, 0, 3, 1, 4}, "heads"); /* [parts,N,heads,rows,dh] */
    snprintf(all, sizeof all, "%s", v->x);
    if (!q) {
        gather(v, all, "index_0", 0, "query");
        q = strcpy(query, v->x);
    }
    gather(v, all, q == query ? "index_2" : "index_1", 0, "value");
    strcpy(value, v->x);
    gather(v, all, q == query ? "index_1" : "index_0", 0, "key");
    transpose(v, v->x, 4, (int[]){0, 1, 3, 2}, "key.turned");
    strcpy(key, v->x);
    strcpy(v->x, q);
    apply(v, "MatMul", key, "products");
    apply(v, "Mul", "attention_scale", "scores");
    softmax(v, "weights");
    apply(v, "MatMul", value, "attended");
    transpose(v, v->x, 4, (int[]){0, 2, 1, 3}, "attended.turned");
    apply(v, "Reshape", "rows_d", "attended.rows");
}

/* before + scale * the value at hand */
static void scale_add(writer *v, const char *before, size_t scale, const char *name) {
    char gamma[NAME];
    full(v, name, ".scale", gamma);
    if (v->c->scaled) {
        onnx_tensor(v->g, gamma, 1, (int64_t[]){v->c->d}, v->w + scale);
        apply(v, "Mul", gamma, strcmp(name, "attn") ? "mlp.scaled" : "attn.scaled");
    }
    apply(v, "Add", before, strcmp(name, "attn") ? "mlp.sum" : "attn.sum");
}

static void block(writer *v, int i, const vit_block *b) {
    char before[NAME];
    int d = v->c->d;
    snprintf(v->at, PREFIX, "blocks.%d.", i);
    snprintf(before, NAME, "%s", v->x);
    norm(v, "norm1", b->norm1);
    dense_at(v, "attn.qkv", 3 * d, d, b->qkv);
    attention(v, NULL);
    dense_at(v, "attn.proj", d, d, b->out);
    scale_add(v, before, b->scale1, "attn");
    snprintf(before, NAME, "%s", v->x);
    norm(v, "norm2", b->norm2);
    dense_at(v, "mlp.fc1", v->c->mlp, d, b->fc1);
    gelu(v);
    dense_at(v, "mlp.fc2", d, v->c->mlp, b->fc2);
    scale_add(v, before, b->scale2, "mlp");
    v->at[0] = 0;
}

/* Only those that the graph uses: a runtime warns of others. */
static void put_constants(writer *v) {
    const vit_config *c = v->c;
    int rows = c->now * c->now + vit_extra(c), dh = c->d / c->heads;
    bool quick = c->gelu == DENSE_GELU_QUICK, tanh = c->gelu == DENSE_GELU_TANH;
    bool head = c->pool == POOL_HEAD;
    if (!quick) onnx_number(v->g, "one", 1), onnx_number(v->g, "half", 0.5f);
    if (tanh) onnx_number(v->g, "gelu_cubic", 0.044715f);
    onnx_number(v->g, "gelu_slope",
                quick  ? 1.702f
                : tanh ? 0.797884561f   /* sqrt(2/pi) */
                       : 0.707106781f); /* 1/sqrt(2) */
    onnx_number(v->g, "attention_scale", 1 / sqrtf((float)dh));
    onnx_index(v->g, "index_0", 0);
    onnx_index(v->g, "index_1", 1);
    onnx_index(v->g, "index_2", 2);
    onnx_list(v->g, "split_3", 5, (int64_t[]){-1, rows, 3, c->heads, dh});
    if (head) onnx_list(v->g, "split_2", 5, (int64_t[]){-1, rows, 2, c->heads, dh});
    if (!head) onnx_list(v->g, "images_rows_d", 3, (int64_t[]){-1, rows, c->d});
    onnx_list(v->g, "rows_d", 2, (int64_t[]){-1, c->d});
}

/* From images to the rows of the first block. */
static int start(writer *v, const vit_plan *p, arena *memory) {
    const vit_config *c = v->c;
    int rc = 0, side = c->patch, area = side * side;
    int64_t d = c->d, patches = (int64_t)c->now * c->now, extra = vit_extra(c);
    size_t wide = (size_t)d, row = (size_t)vit_patch_row(c);
    float *turned = arena_alloc(memory, wide * 3 * (size_t)area * sizeof *turned);
    float *added = arena_alloc(memory, (size_t)(patches + extra) * wide * sizeof *added);
    TRY(turned && added ? 0 : CONR_ENOMEM);
    for (size_t i = 0; i < wide; i++) /* back to [d,3,patch,patch] */
        for (size_t k = 0; k < 3; k++)
            for (size_t j = 0; j < (size_t)area; j++)
                turned[(i * 3 + k) * (size_t)area + j] = v->w[p->patch.w + i * row + j * 3 + k];
    memcpy(added, v->w + p->first, (size_t)extra * wide * sizeof *added);
    memcpy(added + (size_t)extra * wide, v->w + p->place, (size_t)patches * wide * sizeof *added);
    onnx_tensor(v->g, "patch.weight", 4, (int64_t[]){d, 3, side, side}, turned);
    onnx_tensor(v->g, "tokens_and_positions", 2, (int64_t[]){patches + extra, d}, added);
    onnx_list(v->g, "d_patches", 3, (int64_t[]){-1, d, patches});
    onnx_message conv;
    if (c->patch_bias) {
        onnx_tensor(v->g, "patch.bias", 1, (int64_t[]){d}, v->w + p->patch.bias);
        conv = ONNX_NODE("Conv", "patch.out", "normalized", "patch.weight", "patch.bias");
    } else {
        conv = ONNX_NODE("Conv", "patch.out", "normalized", "patch.weight");
    }
    onnx_add_window(&conv, side, side, 0);
    then(v, conv, "patch.out");
    apply(v, "Reshape", "d_patches", "patch.columns");
    transpose(v, v->x, 3, (int[]){0, 2, 1}, "patch.rows");
    if (extra) {
        onnx_list(v->g, "before_patches", 6, (int64_t[]){0, extra, 0, 0, 0, 0});
        apply(v, "Pad", "before_patches", "patch.after_tokens");
    }
    apply(v, "Add", "tokens_and_positions", "tokens");
    apply(v, "Reshape", "rows_d", "tokens.rows");
    if (c->before) norm(v, "norm_pre", p->before);
done:
    return rc;
}

static void pool_mean(writer *v, const vit_plan *p) {
    const int64_t from = vit_extra(v->c), to = from + (int64_t)v->c->now * v->c->now, axis = 1;
    if (v->c->after) norm(v, "norm", p->after);
    apply(v, "Reshape", "images_rows_d", "pool.images");
    onnx_list(v->g, "patches_from", 1, &from);
    onnx_list(v->g, "patches_to", 1, &to);
    onnx_list(v->g, "patches_axis", 1, &axis);
    then(v, ONNX_NODE("Slice", "pool.patches", v->x, "patches_from", "patches_to", "patches_axis"),
         "pool.patches");
    onnx_message mean = ONNX_NODE("ReduceMean", "pool.mean", v->x);
    onnx_add_ints(&mean, "axes", 1, (int[]){1});
    onnx_add_int(&mean, "keepdims", 0);
    then(v, mean, "pool.mean");
    if (!v->c->after) norm(v, "norm", p->after);
}

static void pool_head(writer *v, const vit_plan *p) {
    char before[NAME];
    int d = v->c->d, heads = v->c->heads;
    norm(v, "norm", p->after);
    snprintf(v->at, PREFIX, "head.");
    onnx_tensor(v->g, "head.query", 3, (int64_t[]){heads, 1, d / heads}, v->w + p->query);
    dense_at(v, "kv", 2 * d, d, p->head_kv);
    attention(v, "head.query");
    dense_at(v, "proj", d, d, p->head_out);
    snprintf(before, NAME, "%s", v->x);
    norm(v, "norm", p->head_norm);
    dense_at(v, "mlp.fc1", v->c->head_mlp, d, p->head_fc1);
    gelu(v);
    dense_at(v, "mlp.fc2", d, v->c->head_mlp, p->head_fc2);
    apply(v, "Add", before, "sum");
    v->at[0] = 0;
}

static int put_network(writer *v, const vit_plan *p, arena *memory) {
    const vit_config *c = v->c;
    int rc = 0;
    put_constants(v);
    TRY(start(v, p, memory));
    for (int i = 0; i < c->depth; i++) block(v, i, &p->block[i]);
    if (c->pool == POOL_CLASS) {
        apply(v, "Reshape", "images_rows_d", "pool.images");
        gather(v, v->x, "index_0", 1, "pool.class");
        norm(v, "norm", p->after);
    } else if (c->pool == POOL_MEAN) {
        pool_mean(v, p);
    } else {
        pool_head(v, p);
    }
    if (c->projected && c->pool == POOL_CLASS)
        dense(v, "projection", c->projected, c->d, v->w + p->project, NULL);
    then(v, ONNX_NODE("Identity", "encoder", v->x), "encoder");
    onnx_features(v->g, "encoder", c->about.features, c->about.features);
done:
    return rc;
}

int vit_onnx(device *host, const tensors *f, const encoder_settings *set, const tensor_note *note,
             int n_notes, const char *path) {
    int rc = 0;
    arena memory = {0};
    onnx_graph graph = {0};
    vit_config c;
    vit_plan p = {0};
    float *w = NULL;
    TRY(vit_recognize(f, set, &c));
    TRY(vit_load(host, f, &c, &p, &w));
    const preparation *prepare = &c.about.prepare;
    onnx_images(&graph, 3, prepare->size, prepare->norm.mean, prepare->norm.deviation);
    writer v = {.g = &graph, .c = &c, .w = w, .x = "normalized"};
    TRY(put_network(&v, &p, &memory));
    TRY(onnx_write(&graph, OPSET, note, n_notes, path));
done:
    onnx_free(&graph);
    arena_free(&memory);
    free(p.block);
    if (w) host->op.free(host, w);
    return rc < 0 ? rc : 0;
}
