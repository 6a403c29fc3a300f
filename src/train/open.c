/* open.c: building a trainer: the feed, the blocks of weights, the passes, the rows of a batch.
 *
 * All device memory is allocated here but for what depends on the number of clusters, which may not
 * be known yet. */
#include "train/train.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/confident.h"

#include <stdlib.h>
#include <string.h>

/* Device memory that the trainer owns. */
static int grab(trainer *t, size_t count, size_t size, void **out) {
    ASSERT(t->n_owned < (int)(sizeof t->owned / sizeof *t->owned));
    int rc = t->dev->op.alloc(t->dev, count * size, out);
    if (rc == 0) t->owned[t->n_owned++] = *out, t->bytes += count * size;
    return rc;
}
#define GRAB(field, count) TRY(grab(t, (size_t)(count), sizeof *t->field, (void **)&t->field))

static void spec_of(const trainer *t, network_spec *s) {
    const train_options *o = &t->o;
    *s = (network_spec){.width = o->width, .h = o->size, .w = o->size, .c = t->store->c};
    bool known = encoder_find(o->encoder, &s->encoder);
    ASSERT(known); /* one of the setting's choices */
    if (!stem_find(o->stem, &s->stem)) s->stem = stem_usual(s->encoder, o->size); /* auto */
    t->framework->heads(o, s);
}

int trainer_set_weights(trainer *t, const float *w, const float *running) {
    int rc = 0;
    device *dev = t->dev;
    size_t statistics = t->net.n_running * sizeof *running;
    TRY(dev->op.put(dev, t->w, w, t->net.n_weights * sizeof *w));
    TRY(dev->op.put(dev, t->running, running, statistics));
    if (t->framework->target) {
        TRY(dev->op.put(dev, t->target_w, w, t->net.n_target * sizeof *w));
        TRY(dev->op.put(dev, t->target_running, running, statistics));
    }
    TRY(dev->op.sync(dev));
done:
    return rc;
}

static int open_weights(trainer *t) {
    int rc = 0;
    size_t n = t->net.n_weights, m = t->net.n_running;
    float *w = memory_new("weights", n, sizeof *w);
    float *running = memory_new("weights", m + 1, sizeof *running);
    TRY(w && running ? 0 : CONR_ENOMEM);
    network_init(&t->net, (uint64_t)t->o.seed, w, running);
    GRAB(w, n);
    GRAB(dw, n);
    GRAB(v, n);
    GRAB(running, m);
    t->target_w = t->w, t->target_running = t->running;
    if (t->framework->target) {
        GRAB(target_w, t->net.n_target);
        GRAB(target_running, m);
    }
    TRY(trainer_set_weights(t, w, running));
done:
    free(w);
    free(running);
    return rc;
}

static int make_pass(trainer *t, const pass_options *o, pass **out) {
    int rc = 0;
    size_t bytes;
    TRY(pass_bytes(t->dev, &t->net, o, &bytes));
    TRY(pass_new(t->dev, &t->norm_ranks, &t->net, o, out));
    t->bytes += bytes;
done:
    return rc;
}

/* Which ranks share batch statistics: a group is part of a rank, or spans whole ranks. */
static int open_norms(trainer *t, int *groups) {
    int whole = t->m * t->ranks.count, span = t->o.bn_group;
    if (span == 0 || span > whole) span = whole;
    *groups = span < t->m ? t->m / span : 1;
    if (span <= t->m && t->m % span == 0) return ranks_part(&t->ranks, 1, &t->norm_ranks);
    if (span > t->m && span % t->m == 0 && t->ranks.count % (span / t->m) == 0)
        return ranks_part(&t->ranks, span / t->m, &t->norm_ranks);
    return fail(CONR_EINVAL,
                "bn_group %d: neither divides the %d images that each of %d ranks processes at "
                "once nor is a multiple of them; change bn_group or the number of ranks",
                span, t->m, t->ranks.count);
}

static int open_passes(trainer *t) {
    int rc = 0, groups = 1; /* of one view */
    TRY(open_norms(t, &groups));
    pass_options o = {.n = 2 * t->m,
                      .groups = 2 * groups,
                      .passes = 2,
                      .end = t->net.n_layers,
                      .backward = true,
                      .recompute = t->o.recompute,
                      .shared = t->norm_ranks.talks};
    TRY(make_pass(t, &o, &t->online_pass));
    o.backward = false;
    o.end = t->net.projector_end;
    if (t->framework->target) TRY(make_pass(t, &o, &t->target_pass));
    o.n = t->feed.plain, o.groups = o.passes = 1;
    TRY(make_pass(t, &o, &t->plain_pass));
done:
    return rc;
}

/* MoCo's queue starts as random unit rows. */
static int open_queue(trainer *t) {
    int rc = 0;
    size_t count = (size_t)t->o.queue * t->d;
    float *host = memory_new("queue", count + (size_t)t->o.queue, sizeof *host);
    float *on = NULL;
    TRY(host ? 0 : CONR_ENOMEM);
    rng r = rng_at((uint64_t)t->o.seed, 0, 0, RNG_QUEUE);
    for (size_t i = 0; i < count; i++) host[i] = (float)rng_normal(&r);
    GRAB(queue, count);
    GRAB(logits, (size_t)t->n * t->o.queue);
    TRY(t->dev->op.alloc(t->dev, (count + (size_t)t->o.queue) * sizeof *on, (void **)&on));
    TRY(t->dev->op.put(t->dev, on, host, count * sizeof *host));
    TRY(t->dev->op.rows_normalize(t->dev, on, t->o.queue, t->d, t->queue, on + count));
    TRY(t->dev->op.sync(t->dev));
done:
    t->dev->op.free(t->dev, on);
    free(host);
    return rc;
}

/* This rank's rows of the batch, and where they are in the whole. */
static int open_own_rows(trainer *t) {
    int rc = 0, n = t->n;
    size_t own = 2 * (size_t)t->own, wide = own * t->d;
    bool alone = !t->ranks.talks, shuffles = t->o.shuffle_bn && t->framework->target;
    size_t sets = (size_t)t->blocks / 2; /* q, key and perhaps z */
    t->own_q = t->q, t->own_key = t->key, t->own_dq = t->dq;
    t->own_z = t->z, t->own_dz = t->dz;
    if (alone && !shuffles) return 0;
    GRAB(own_q, sets * wide);
    t->own_key = t->own_q + wide;
    t->own_z = t->own_q + 2 * wide; /* if there is one */
    t->mixed = t->own_q;
    if (!alone) GRAB(own_dq, (sets - 1) * wide);
    if (!alone) t->own_dz = t->own_dq + wide;
    if (!alone) GRAB(mixed, sets * wide * (size_t)t->ranks.count);
    GRAB(sorted, 2 * (size_t)n);
    t->back = t->sorted;
    t->host_rows = memory_new("batch", 4 * (size_t)n + own, sizeof *t->host_rows);
    TRY(t->host_rows ? 0 : CONR_ENOMEM);
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < n; i++)
            t->host_rows[v * n + i] = trainer_gathered_row(t, t->blocks, v, i);
    TRY(t->dev->op.put(t->dev, t->sorted, t->host_rows, 2 * (size_t)n * sizeof *t->sorted));
    TRY(t->dev->op.sync(t->dev));
    if (!shuffles) goto done;
    GRAB(rows, own);
    GRAB(back, 2 * (size_t)n);
    TRY(grab(t, own * t->feed.row, t->dev->act_size, (void **)&t->shuffled));
    if (!alone) TRY(grab(t, 2 * (size_t)n * t->feed.row, t->dev->act_size, (void **)&t->gathered));
done:
    return rc;
}

static int open_rows(trainer *t) {
    int rc = 0;
    size_t rows = 2 * (size_t)t->n, own = 2 * (size_t)t->own, wide = rows * t->d;
    int k = t->o.k > t->o.early_k ? t->o.k : t->o.early_k, most = k > t->o.k1 ? k : t->o.k1;
    conr_neighbors_options o = {.k = k, .k1 = t->o.k1, .k2 = t->o.k2, .layers = t->o.layers};
    int sets = trainer_has_z(t) ? 3 : 2; /* q, key, perhaps z; all but key have gradients */
    t->blocks = 2 * sets;
    GRAB(q, sets * wide);
    t->key = t->q + wide, t->z = t->key + wide;
    GRAB(dq, (sets - 1) * wide);
    t->dz = t->dq + wide;
    GRAB(flat, own * t->d);
    GRAB(norm, (sets - 1) * own);
    t->norm_z = t->norm + own;
    GRAB(near, (size_t)t->n * most);
    GRAB(ratio, t->n);
    GRAB(weight, t->n);
    GRAB(loss, 1);
    GRAB(at, 1);
    GRAB(label_on, t->store->n);
    TRY(grab(t, own / 2 * 3 * t->feed.row, t->dev->act_size, (void **)&t->images));
    if (t->dev->op.neighbors_bytes)
        TRY(grab(t, t->dev->op.neighbors_bytes(t->dev, t->n, t->d, &o), 1, &t->work));
    TRY(open_own_rows(t));
    if (!confident_stage2(&t->o)) goto done;
    GRAB(alike, rows);
    TRY(grab(t, confident_bytes(t->n), 1, &t->alike_work));
done:
    return rc;
}

static draw_policy policy_of(const train_options *o, double scale) {
    draw_policy p = draw_policy_default();
    p.scale_low = (float)scale;
    draw_policy_ratio(&p, o->ratio_low, o->ratio_high);
    p.flip = (float)o->flip;
    p.jitter = (float)o->jitter;
    p.brightness = (float)o->brightness, p.contrast = (float)o->contrast;
    p.saturation = (float)o->saturation, p.hue = (float)o->hue;
    p.gray = (float)o->gray;
    p.blur = (float)o->blur;
    p.solarize = (float)o->solarize;
    return p;
}

static int open_feed(trainer *t, const pixels_norm *norm) {
    const train_options *o = &t->o;
    feed_options f = {.load = {.seed = (uint64_t)o->seed,
                               .size = o->size,
                               .batch = o->batch,
                               .rank = t->ranks.rank,
                               .ranks = t->ranks.count,
                               .parts = o->accumulate,
                               .workers = t->dev->threads > 1 ? t->dev->threads / 2 : 1,
                               .ahead = 3,
                               .policy = policy_of(o, o->crop_scale),
                               .later = policy_of(o, o->stage2_crop_scale),
                               .norm = *norm},
                      .short_side = o->short_side,
                      .most = (uint64_t)o->device_images << 20};
    return feed_open(t->dev, t->store, &f, &t->feed);
}

/* Host memory, and what does not depend on the network. */
static int open_host(trainer *t) {
    int64_t n = t->store->n;
    t->label = calloc((size_t)n, sizeof *t->label);
    if (!t->label) return fail_memory("labels", 4.0 * (double)n);
    if (strcmp(t->o.balance, "clusters")) return 0;
    t->table = memory_new("balanced order", (size_t)(t->steps * t->n), sizeof *t->table);
    return t->table ? 0 : CONR_ENOMEM;
}

/* If the host can read device memory, there is no second copy. */
static int open_features(trainer *t) {
    int rc = 0;
    size_t count = (size_t)t->store->n * t->d;
    GRAB(features_on, count);
    t->features =
        t->c->host == t->dev ? t->features_on : memory_new("features", count, sizeof *t->features);
    TRY(t->features ? 0 : CONR_ENOMEM);
done:
    return rc;
}

int trainer_open(conr *c, const store *s, const pixels_norm *norm, const train_options *o,
                 trainer **out) {
    int rc = settings_check(o);
    network_spec spec;
    *out = NULL;
    if (rc < 0) return rc;
    trainer *t = calloc(1, sizeof *t);
    if (!t) return fail_memory("trainer", sizeof *t);
    t->c = c, t->dev = c->dev, t->o = *o, t->store = s;
    t->framework = framework_find(o->framework);
    t->clustered = t->featured = t->fetched = -1;
    t->ranks = t->norm_ranks = c->ranks;
    t->n = o->batch, t->own = t->n / t->ranks.count, t->m = t->own / o->accumulate;
    if (t->m * o->accumulate * t->ranks.count != t->n)
        TRY(fail(
            CONR_EINVAL,
            "batch %d: cannot be shared by %d ranks in %d parts each; make it a multiple of %d",
            t->n, t->ranks.count, o->accumulate, t->ranks.count * o->accumulate));
    if (o->clusters > s->n)
        TRY(fail(CONR_EINVAL, "clusters %d: more than the %lld images; ask for fewer", o->clusters,
                 (long long)s->n));
    spec_of(t, &spec);
    TRY(network_new(&spec, &t->net));
    t->d = t->net.layer[t->net.projector_end - 1].co;
    TRY(open_feed(t, norm));
    t->steps = t->feed.steps;
    TRY(open_weights(t)); /* first: the host copy is freed before activations are allocated */
    TRY(open_passes(t));
    TRY(open_rows(t));
    if (t->framework->queue) TRY(open_queue(t));
    TRY(open_host(t));
    TRY(open_features(t));
    *out = t;
done:
    if (rc < 0) trainer_close(t);
    return rc;
}

void trainer_close(trainer *t) {
    if (!t) return;
    feed_close(&t->feed);
    trainer_forget_steps(t);
    t->dev->op.recording_free(t->dev, t->recorded_embedding);
    pass_free(t->online_pass);
    pass_free(t->target_pass);
    pass_free(t->plain_pass);
    if (t->features != t->features_on) free(t->features);
    for (int i = 0; i < t->n_owned; i++) t->dev->op.free(t->dev, t->owned[i]);
    t->dev->op.free(t->dev, t->centroids_on);
    t->dev->op.free(t->dev, t->scatter_work);
    network_free(&t->net);
    ranks_close(&t->norm_ranks);
    free(t->label), free(t->centroids), free(t->table), free(t->host_rows);
    free(t->tried);
    free(t);
}
