/* frameworks.c: BYOL, SimSiam, MoCo v2 and ProPos: heads, keys and losses. */
#include "train/train.h"

#include "base/status.h"

#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------ */

/* Rows of part p, [2][m,d] in `from`, into their places in [2][own,d] as unit rows. */
static int place_keys(trainer *t, int part, const float *from) {
    int rc = 0;
    size_t block = (size_t)t->m * t->d;
    for (int v = 0; v < 2; v++) {
        float *to = t->own_key + ((size_t)v * t->own + (size_t)part * t->m) * t->d;
        TRY(t->dev->op.rows_normalize(t->dev, from + v * block, t->m, t->d, to, t->ratio));
    }
done:
    return rc;
}

/* From the target network, which sees view b, then view a: the keys of half a, then of half b. */
static int target_keys(trainer *t, int part) {
    int rc = 0;
    device *dev = t->dev;
    parameters target = {t->target_w, t->target_running};
    size_t row = t->feed.row, block = (size_t)t->m * row;
    act *images = act_at(dev, t->images, ((size_t)part * 3 + 1) * block);
    if (t->shuffled) { /* batch statistics over random groups of the images of all ranks */
        act *all = t->gathered ? t->gathered : images;
        TRY(ranks_gather(&t->ranks, dev, images, 2 * block * dev->act_size, all));
        TRY(dev->op.rows_take(dev, all, row * dev->act_size, t->rows, 2 * t->m, t->shuffled));
        images = t->shuffled; /* gathering puts the keys back in order */
    }
    TRY(pass_forward(t->target_pass, &target, images, PASS_TRAIN));
    TRY(pass_output(t->target_pass, t->net.projector_end, t->flat));
    TRY(place_keys(t, part, t->flat));
done:
    return rc;
}

/* SimSiam: the projector's output for the other view; no gradient flows through it. */
static int own_keys(trainer *t, int part) {
    int rc = 0;
    size_t bytes = (size_t)t->m * t->d * sizeof *t->flat;
    TRY(pass_output(t->online_pass, t->net.projector_end, t->dq));
    TRY(t->dev->op.copy(t->dev, t->flat, t->dq + (size_t)t->m * t->d, bytes));
    TRY(t->dev->op.copy(t->dev, t->flat + (size_t)t->m * t->d, t->dq, bytes));
    TRY(place_keys(t, part, t->flat));
done:
    return rc;
}

/* ---- losses ---------------------------------------------------------------------------------- */

static int pull(trainer *t, const half *h, float factor) {
    return t->dev->op.pull(t->dev, h->q, h->key, t->n, t->d, h->near, h->k, h->weight, factor,
                           t->loss, h->dq);
}

static int byol_loss(trainer *t, const half *h) { return pull(t, h, 1); }
static int simsiam_loss(trainer *t, const half *h) { return pull(t, h, 0.5f); }

static int moco_loss(trainer *t, const half *h) {
    return t->dev->op.contrast(t->dev, h->q, h->key, t->n, t->d, h->near, h->k, h->weight, 1,
                               t->queue, t->o.queue, (float)t->o.temperature, t->logits, t->loss,
                               h->dq);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void byol_heads(const train_options *o, network_spec *s) {
    s->projector = mlp_byol_projector(o->hidden, o->features);
    s->predictor = mlp_byol_predictor(o->predictor_hidden, o->features);
}

/* Batch norm after every layer of the projector; only the last has a bias, and no ReLU. */
static void simsiam_heads(const train_options *o, network_spec *s) {
    int last = o->projector_layers - 1;
    s->projector = (mlp_spec){.n = last + 1, .init = INIT_TORCH};
    for (int i = 0; i < last; i++) {
        s->projector.layer[i].out = o->hidden;
        s->projector.layer[i].norm = s->projector.layer[i].relu = true;
    }
    s->projector.layer[last].out = o->features;
    s->projector.layer[last].bias = s->projector.layer[last].norm = true;
    s->predictor = mlp_byol_projector(o->predictor_hidden, o->features);
    s->predictor.layer[0].bias = false;
}

static void moco_heads(const train_options *o, network_spec *s) {
    s->projector = mlp_byol_projector(o->hidden, o->features);
    s->projector.layer[0].norm = false;
}

static const framework frameworks[] = {
    {.name = "byol", .target = true, .heads = byol_heads, .keys = target_keys, .loss = byol_loss},
    {.name = "simsiam", .heads = simsiam_heads, .keys = own_keys, .loss = simsiam_loss},
    {.name = "moco",
     .target = true,
     .target_leads = true,
     .queue = true,
     .heads = moco_heads,
     .keys = target_keys,
     .loss = moco_loss},
    {.name = "propos", /* BYOL, and what propos.c adds */
     .target = true,
     .prototypes = true,
     .heads = byol_heads,
     .keys = target_keys,
     .loss = byol_loss},
};

const framework *framework_find(const char *name) {
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
        if (!strcmp(frameworks[i].name, name)) return &frameworks[i];
    ASSERT(!"framework names are checked when they are set");
    return NULL;
}
