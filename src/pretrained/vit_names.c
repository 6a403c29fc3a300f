/* vit_names.c: which vision transformer a file holds, by the names and shapes of its tensors. */
#include "pretrained/vit.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vit_names forms[] = {
    {.form = "timm",
     .patch = "patch_embed.proj.",
     .class_ = "cls_token",
     .distilled = "dist_token",
     .registers = "reg_token",
     .position = "pos_embed",
     .before = "norm_pre.",
     .after = "norm.",
     .after_mean = "fc_norm.",
     .block = "blocks.",
     .norm1 = "norm1.",
     .norm2 = "norm2.",
     .qkv = {"attn.qkv."},
     .out = "attn.proj.",
     .fc1 = "mlp.fc1.",
     .fc2 = "mlp.fc2.",
     .scale1 = "ls1.gamma",
     .scale2 = "ls2.gamma",
     .probe = "attn_pool.latent",
     .head_qkv = {"attn_pool.q.", "attn_pool.kv."},
     .head_out = "attn_pool.proj.",
     .head_norm = "attn_pool.norm.",
     .head_fc1 = "attn_pool.mlp.fc1.",
     .head_fc2 = "attn_pool.mlp.fc2.",
     .ignored = {"head.", "head_dist.", "mask_token"}},
    {.form = "Hugging Face",
     .patch = "embeddings.patch_embeddings.projection.",
     .class_ = "embeddings.cls_token",
     .distilled = "embeddings.distillation_token",
     .registers = "embeddings.register_tokens",
     .position = "embeddings.position_embeddings",
     .after = "layernorm.",
     .block = "encoder.layer.",
     .norm1 = "norm1.",
     .norm2 = "norm2.",
     .qkv = {"attention.attention.query.", "attention.attention.key.",
             "attention.attention.value."},
     .out = "attention.output.dense.",
     .fc1 = "mlp.fc1.",
     .fc2 = "mlp.fc2.",
     .scale1 = "layer_scale1.lambda1",
     .scale2 = "layer_scale2.lambda1",
     .ignored = {"embeddings.mask_token", "pooler.", "classifier."}},
    {.form = "Hugging Face", /* the same with other names inside a block: ViT, DeiT, DINO */
     .patch = "embeddings.patch_embeddings.projection.",
     .class_ = "embeddings.cls_token",
     .distilled = "embeddings.distillation_token",
     .position = "embeddings.position_embeddings",
     .after = "layernorm.",
     .block = "encoder.layer.",
     .norm1 = "layernorm_before.",
     .norm2 = "layernorm_after.",
     .qkv = {"attention.attention.query.", "attention.attention.key.",
             "attention.attention.value."},
     .out = "attention.output.dense.",
     .fc1 = "intermediate.dense.",
     .fc2 = "output.dense.",
     .ignored = {"embeddings.mask_token", "pooler.", "classifier.", "cls_classifier.",
                 "distillation_classifier."}},
    {.form = "OpenAI",
     .patch = "conv1.",
     .class_ = "class_embedding",
     .position = "positional_embedding",
     .before = "ln_pre.",
     .after = "ln_post.",
     .block = "transformer.resblocks.",
     .norm1 = "ln_1.",
     .norm2 = "ln_2.",
     .qkv = {"attn.in_proj_"},
     .out = "attn.out_proj.",
     .fc1 = "mlp.c_fc.",
     .fc2 = "mlp.c_proj.",
     .project = "proj"},
    {.form = "Hugging Face",
     .patch = "embeddings.patch_embedding.",
     .class_ = "embeddings.class_embedding",
     .position = "embeddings.position_embedding.weight",
     .before = "pre_layrnorm.", /* sic */
     .after = "post_layernorm.",
     .block = "encoder.layers.",
     .norm1 = "layer_norm1.",
     .norm2 = "layer_norm2.",
     .qkv = {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."},
     .out = "self_attn.out_proj.",
     .fc1 = "mlp.fc1.",
     .fc2 = "mlp.fc2.",
     .probe = "head.probe",
     .head_qkv = {"head.attention.in_proj_"},
     .head_out = "head.attention.out_proj.",
     .head_norm = "head.layernorm.",
     .head_fc1 = "head.mlp.fc1.",
     .head_fc2 = "head.mlp.fc2.",
     .project_to = "visual_projection.weight",
     .ignored = {"embeddings.position_ids"}},
};

/* The original DINOv2 says register_tokens where timm says reg_token. */
static const char original_registers[] = "register_tokens";

/* ---- looking for names ----------------------------------------------------------------------- */

void vit_name(const vit_config *c, int block, const char *name, const char *end, char out[256]) {
    if (block < 0)
        snprintf(out, 256, "%s%s%s", c->prefix, name, end);
    else
        snprintf(out, 256, "%s%s%d.%s%s", c->prefix, c->names->block, block, name, end);
}

static const tensor *find(const tensors *f, const vit_config *c, int block, const char *name,
                          const char *end) {
    char full[256];
    if (!name) return NULL;
    vit_name(c, block, name, end, full);
    return tensors_find(f, full);
}

static bool begins(const char *text, const char *with) {
    return with && !strncmp(text, with, strlen(with));
}

/* The form of the names, and what comes before them. */
static bool find_form(const tensors *f, vit_config *c) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char end[128];
        int n = snprintf(end, sizeof end, "%sweight", forms[i].patch);
        c->names = &forms[i];
        for (int j = 0; j < f->n; j++) {
            const char *name = f->tensor[j].name;
            size_t length = strlen(name);
            if (length < (size_t)n || strcmp(name + length - (size_t)n, end)) continue;
            if (length - (size_t)n >= sizeof c->prefix) continue;
            memcpy(c->prefix, name, length - (size_t)n);
            c->prefix[length - (size_t)n] = 0;
            /* a convolution of another network may have the name, too */
            if (f->tensor[j].n_dims == 4 && find(f, c, -1, forms[i].position, "") &&
                find(f, c, 0, forms[i].norm1, "weight"))
                return true;
        }
    }
    return false;
}

static const char *registers_of(const tensors *f, const vit_config *c) {
    return find(f, c, -1, original_registers, "") ? original_registers : c->names->registers;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int lying(const tensors *f, const tensor *t, const char *why) {
    return fail(CONR_EFORMAT, "%s: tensor '%.100s' %s; is the file whole?", f->path, t->name, why);
}

static int count_blocks(const tensors *f, const vit_config *c) {
    int n = 0;
    while (n < 1000 && find(f, c, n, c->names->norm1, "weight")) n++;
    return n;
}

static int read_sizes(const tensors *f, vit_config *c) {
    const vit_names *k = c->names;
    const tensor *patch = find(f, c, -1, k->patch, "weight");
    const tensor *place = find(f, c, -1, k->position, "");
    const tensor *fc1 = find(f, c, 0, k->fc1, "weight");
    const tensor *registers = find(f, c, -1, registers_of(f, c), "");
    const tensor *project = find(f, c, -1, k->project, "");
    if (k->project_to) project = tensors_find(f, k->project_to);
    if (patch->dim[0] < 1 || patch->dim[0] > 8192 || patch->dim[1] != 3 || patch->dim[2] < 1 ||
        patch->dim[2] > 256 || patch->dim[3] != patch->dim[2])
        return lying(f, patch, "is no embedding of square patches of color images");
    c->d = (int)patch->dim[0], c->patch = (int)patch->dim[2];
    c->depth = count_blocks(f, c);
    c->has_class = find(f, c, -1, k->class_, "") != NULL;
    c->distilled = find(f, c, -1, k->distilled, "") != NULL;
    c->scaled = find(f, c, 0, k->scale1, "") != NULL;
    c->before = find(f, c, -1, k->before, "weight") != NULL;
    c->patch_bias = !c->before || find(f, c, -1, k->patch, "bias"); /* CLIP has none */
    c->after_mean = find(f, c, -1, k->after_mean, "weight") != NULL;
    c->after = find(f, c, -1, k->after, "weight") != NULL;
    if (registers) {
        if (registers->n_dims < 2 || registers->dim[registers->n_dims - 2] < 1 ||
            registers->dim[registers->n_dims - 2] > 256)
            return lying(f, registers, "does not hold registers");
        c->registers = (int)registers->dim[registers->n_dims - 2];
    }
    if (!fc1) {
        char name[256];
        vit_name(c, 0, k->fc1, "weight", name);
        return fail(CONR_EFORMAT,
                    "%s: has no tensor '%s'; only blocks with two dense layers are known (no "
                    "SwiGLU)",
                    f->path, name);
    }
    if (fc1->n_dims != 2 || fc1->dim[0] < 1 || fc1->dim[0] > 65536)
        return lying(f, fc1, "is no dense layer");
    c->mlp = (int)fc1->dim[0];
    if (project && project->n_dims != 2) return lying(f, project, "is no projection");
    if (project) {
        int64_t wide = project->dim[k->project_to ? 0 : 1];
        if (wide < 1 || wide > 8192) return lying(f, project, "is no projection");
        c->projected = (int)wide;
    }
    const tensor *head = find(f, c, -1, k->head_fc1, "weight");
    if (head && (head->n_dims != 2 || head->dim[0] < 1 || head->dim[0] > 65536))
        return lying(f, head, "is no dense layer");
    c->head_mlp = head ? (int)head->dim[0] : 1;
    if (place->n_dims < 2) return lying(f, place, "holds no positions");
    int64_t rows = place->dim[place->n_dims - 2];
    int extra = c->has_class + c->distilled;
    /* positions for patches only, or for the tokens before them, too */
    for (int more = 0; more <= extra; more += extra ? extra : 1) {
        int64_t grid = (int64_t)lrint(sqrt((double)(rows - more)));
        if (rows > more && rows < 1 << 15 && grid * grid == rows - more)
            c->grid = (int)grid, c->placed_extra = more > 0;
    }
    if (!c->grid) return lying(f, place, "does not hold a square of positions");
    return 0;
}

/* ---- families -------------------------------------------------------------------------------- */

static const pixels_norm of_clip = {{0.48145466f, 0.4578275f, 0.40821073f},
                                    {0.26862954f, 0.26130258f, 0.27577711f}};
static const pixels_norm of_half = {{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

static void be(vit_config *c, const char *family, const pixels_norm *norm, double resize) {
    int size = c->grid * c->patch;
    c->about.family = family;
    c->about.prepare = (preparation){
        .size = size, .side = (int)(size * resize), .filter = PIXELS_BICUBIC, .norm = *norm};
}

static void be_dinov2(vit_config *c, vit_places places) {
    be(c, "DINOv2", &settings_imagenet, 1);
    c->places = places;
    /* trained for 518 pixels, used with 224 */
    int size = 224 / c->patch * c->patch;
    if (c->grid * c->patch > size) c->about.prepare.size = size;
    c->about.prepare.side = c->about.prepare.size * 8 / 7;
}

static void find_family(const tensors *f, vit_config *c) {
    const vit_names *k = c->names;
    bool masks = find(f, c, -1, "mask_token", "") != NULL;
    bool head = find(f, c, -1, "head.", "weight") != NULL;
    bool original = find(f, c, -1, original_registers, "") != NULL;
    bool timm = k == &forms[0], pooler = find(f, c, -1, "pooler.", "dense.weight") != NULL;
    c->eps = 1e-6f;
    c->gelu = DENSE_GELU;
    c->places = timm ? PLACES_ANTIALIAS : PLACES_PLAIN;
    c->about.form = k->form;
    if (find(f, c, -1, k->probe, "")) {
        be(c, "SigLIP", &of_half, 0);
        if (!timm) c->gelu = DENSE_GELU_TANH;
        c->pool = POOL_HEAD;
    } else if (c->before) {
        be(c, "CLIP", &of_clip, 1);
        c->eps = 1e-5f;
        if (!timm) c->gelu = DENSE_GELU_QUICK;
    } else if (timm && (masks || original)) {
        be_dinov2(c, original ? PLACES_ANTIALIAS : PLACES_OFFSET);
        c->about.form = "facebookresearch";
    } else if (timm && c->scaled && !head) {
        be_dinov2(c, PLACES_ANTIALIAS);
    } else if (c->scaled && !timm) {
        be_dinov2(c, c->registers ? PLACES_ANTIALIAS : PLACES_PLAIN);
    } else if (c->distilled) {
        be(c, "DeiT", &settings_imagenet, timm ? 1 / 0.9 : 8 / 7.0);
        if (!timm) c->eps = 1e-12f;
    } else if (timm && !head && !c->after_mean) {
        be(c, "DINO", &settings_imagenet, 8 / 7.0);
        c->places = PLACES_OFFSET;
    } else if (timm) {
        be(c, "ViT", &settings_imagenet, 1 / 0.9);
    } else { /* DINO's files have no pooler */
        bool dino = !pooler && !strlen(c->prefix);
        be(c, dino ? "DINO" : "ViT", dino ? &settings_imagenet : &of_half, 0);
        c->about.prepare.filter = dino ? PIXELS_BICUBIC : PIXELS_BILINEAR;
        c->eps = 1e-12f;
    }
    if ((c->after_mean && !c->after) || (c->pool == POOL_CLASS && !c->has_class))
        c->pool = POOL_MEAN;
}

/* ---- settings, words ------------------------------------------------------------------------- */

/* 64 values each, but for a few large ones. */
static int usual_heads(int d) { return d == 1152 || d == 1280 || d == 1408 ? 16 : d / 64; }

static int apply(const tensors *f, const encoder_settings *set, vit_config *c) {
    int rc = settings_prepare(set, &c->about.prepare);
    if (rc < 0) return rc;
    if (set->size && set->size % c->patch)
        return fail(CONR_EINVAL, "size=%d: is no multiple of the patches of %d pixels; use %d",
                    set->size, c->patch,
                    set->size < c->patch ? c->patch : set->size / c->patch * c->patch);
    if (set->size && set->size / c->patch > 128)
        return fail(CONR_EINVAL, "size=%d: more than 128 patches in a row; use less", set->size);
    if (set->gelu >= 0) c->gelu = (dense_then)set->gelu;
    if (set->pool >= 0) {
        if (set->pool == POOL_HEAD && c->pool != POOL_HEAD)
            return fail(CONR_EINVAL, "pool=head: %s has no such head; use class or mean", f->path);
        if (set->pool == POOL_CLASS && !c->has_class)
            return fail(CONR_EINVAL, "pool=class: %s has no class token; use mean", f->path);
        c->pool = (pooling)set->pool;
    }
    c->now = c->about.prepare.size / c->patch;
    c->heads = set->heads ? set->heads : usual_heads(c->d);
    if (c->heads < 1 || c->d % c->heads)
        return fail(CONR_EINVAL, "%s: %d values do not divide into %d heads; set heads=N", f->path,
                    c->d, c->heads);
    return 0;
}

static void describe(vit_config *c) {
    static const struct {
        int d, depth;
        const char *name;
    } known[] = {{192, 12, "Ti"},      {384, 12, "S"},  {768, 12, "B"}, {1024, 24, "L"},
                 {1152, 27, "So400m"}, {1280, 32, "H"}, {1408, 40, "g"}};
    encoder_about *a = &c->about;
    char size[32], registers[32] = "";
    snprintf(size, sizeof size, "%dx%d", c->d, c->depth);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].d == c->d && known[i].depth == c->depth)
            snprintf(size, sizeof size, "%s", known[i].name);
    if (c->registers) snprintf(registers, sizeof registers, " with %d registers", c->registers);
    snprintf(a->network, sizeof a->network, "ViT-%s/%d%s", size, c->patch, registers);
    a->unit = c->patch;
    a->features = c->projected && c->pool == POOL_CLASS ? c->projected : c->d;
    a->pool = settings_pools[c->pool], a->gelu = settings_gelus[c->gelu];
    a->heads = c->heads;
}

int vit_recognize(const tensors *f, const encoder_settings *set, vit_config *c) {
    int rc = 0;
    *c = (vit_config){0};
    if (!find_form(f, c)) return 0;
    TRY(read_sizes(f, c));
    find_family(f, c);
    TRY(apply(f, set, c));
    describe(c);
    for (int i = 0; i < f->n; i++)
        if (begins(f->tensor[i].name, c->prefix)) c->about.weights += f->tensor[i].count;
    rc = 1;
done:
    return rc;
}
