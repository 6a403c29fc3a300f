/* vit.h: vision transformers, inside.
 *
 *     vit_names.c      the names of tensors: which network a file holds
 *     vit_weights.c    from the file to one block of weights on the device
 *     vit_positions.c  position embeddings for another number of patches
 *     vit.c            the network: memory, forward, the family
 *
 * Patches become rows by a matrix product; class token and registers come before them.  A block is
 *     x += scale1 * proj(attention(norm1(x)))
 *     x += scale2 * fc2(gelu(fc1(norm2(x))))
 * CLIP has a norm before the first one.  The features are the normed class token, the mean of the
 * patches, or what a query attends to (SigLIP); CLIP's are projected. */
#ifndef CONR_PRETRAINED_VIT_H
#define CONR_PRETRAINED_VIT_H

#include "pretrained/family.h"

/* How position embeddings are interpolated: as whoever trained the network does. */
typedef enum vit_places {
    PLACES_PLAIN,    /* bicubic, four by four */
    PLACES_OFFSET,   /* the same with a scale that is off by 0.1 of a patch (DINO) */
    PLACES_ANTIALIAS /* with a wider filter when shrinking */
} vit_places;

/* The names that one kind of file has for the tensors.  NULL: the kind has none.  Names that end in
 * '.' or '_' go on with weight and bias. */
typedef struct vit_names {
    const char *form;
    const char *patch, *class_, *distilled, *registers, *position;
    const char *before, *after, *after_mean; /* norms */
    const char *block;                       /* "blocks.": a number and '.' follow */
    const char *norm1, *norm2;
    const char *qkv[3]; /* that make up [3d,d], one after another */
    const char *out, *fc1, *fc2, *scale1, *scale2;
    /* the head that pools */
    const char *probe, *head_qkv[2], *head_out, *head_norm, *head_fc1, *head_fc2;
    const char *project;    /* [d,features] */
    const char *project_to; /* [features,d]; a whole name, without prefix */
    const char *ignored[6]; /* names or beginnings of names that features do not need */
} vit_names;

typedef struct vit_config {
    encoder_about about;
    const vit_names *names;
    char prefix[64]; /* before all names */
    int patch, grid; /* pixels of a patch; patches in a row of the file's positions */
    int now;         /* patches in a row at the size that is wanted */
    int d, depth, heads, mlp, head_mlp;
    int registers; /* */
    bool distilled, has_class, placed_extra, patch_bias, before, after, after_mean, scaled;
    int projected; /* features of the projection; 0: none */
    dense_then gelu;
    pooling pool;
    vit_places places;
    float eps;
} vit_config;

/* Rows before the patches. */
static inline int vit_extra(const vit_config *c) {
    return c->has_class + c->distilled + c->registers;
}

/* Values of a patch, rounded up to whole vectors. */
static inline int vit_patch_row(const vit_config *c) {
    return (c->patch * c->patch * 3 + 7) / 8 * 8;
}

/* 1: the file holds a vision transformer; 0: it does not; or a CONR_E* code. */
int vit_recognize(const tensors *f, const encoder_settings *set, vit_config *out);
/* "PREFIXNAME", with a block's number: "PREFIXblocks.3.NAME". */
void vit_name(const vit_config *c, int block, const char *name, const char *end, char out[256]);

/* Where weights are in the block, in floats. */
typedef struct vit_norm {
    size_t gamma, beta;
} vit_norm;
typedef struct vit_dense {
    size_t w, bias;
} vit_dense;
typedef struct vit_block {
    vit_norm norm1, norm2;
    vit_dense qkv, out, fc1, fc2;
    size_t scale1, scale2;
} vit_block;
typedef struct vit_plan {
    vit_dense patch; /* [d][patch][patch][3], each row filled up with zeros */
    size_t first;    /* [extra,d] tokens with their positions */
    size_t place;    /* [patches,d] */
    vit_norm before, after;
    vit_block *block; /* [depth]; owned */
    size_t query;     /* [d], of the head; already through its dense layer */
    vit_dense head_kv, head_out, head_fc1, head_fc2;
    vit_norm head_norm;
    size_t project; /* [features,d] */
    size_t n;       /* floats in all */
} vit_plan;

/* Fills the plan, and a block of plan->n floats on the device: *out, released by op.free. */
int vit_load(device *dev, const tensors *f, const vit_config *c, vit_plan *plan, float **out);

/* Positions [from,from,d] for [to,to,d] patches. */
int vit_place(vit_places how, const float *in, int from, int to, int d, float *out);

#endif
