/* train.c: the method.  The only file that knows the order of its stages: Algorithm 1 of the paper
 * is `step` below, and the loop over epochs is in run/loop.c.
 *
 *     views a, b of each image of a batch
 *     q   = online(a, b)      unit rows, with gradients
 *     key = target(b, a)      unit rows, without
 *     stage 1:  every row is pulled towards its own key (early_k: and those of its nearest)
 *     stage 2:  every row is pulled towards the keys of its neighborhood,
 *               and rows near cluster boundaries are held back
 *     propos:   and the clusters of the batch are kept apart
 *     confident: another stage 2 (confident.c)
 *     gradient, moving average of the target, SGD */
#include "train/train.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "neighbors/neighbors.h"
#include "train/confident.h"
#include "train/propos.h"
#include "train/schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- forward --------------------------------------------------------------------------------- */

/* own_q of one part: unit rows of both views. */
static int online_features(trainer *t, int part, pass_mode mode) {
    int rc = 0;
    parameters online = {t->w, t->running};
    size_t block = (size_t)t->m * t->d;
    act *images = act_at(t->dev, t->images, (size_t)part * 3 * t->m * t->feed.row);
    TRY(t->scatters ? propos_forward(t, part, images, mode)
                    : pass_forward(t->online_pass, &online, images, mode));
    if (mode == PASS_REPEAT) goto done; /* only the activations were missing */
    TRY(pass_output(t->online_pass, t->net.n_layers, t->flat));
    for (int v = 0; v < 2; v++) {
        size_t at = (size_t)v * t->own + (size_t)part * t->m;
        TRY(t->dev->op.rows_normalize(t->dev, t->flat + v * block, t->m, t->d, t->own_q + at * t->d,
                                      t->norm + at));
    }
done:
    return rc;
}

int32_t trainer_gathered_row(const trainer *t, int blocks, int block, int i) {
    int part = t->m * t->ranks.count, rank = i % part / t->m, own = i / part * t->m + i % t->m;
    return (rank * blocks + block) * t->own + own;
}

/* q, key and perhaps z of the whole batch, in its order, from the rows of every rank. */
static int gather_features(trainer *t) {
    int rc = 0;
    size_t row = (size_t)t->d * sizeof *t->q;
    if (t->own_q == t->q) return 0;
    TRY(ranks_gather(&t->ranks, t->dev, t->own_q, (size_t)t->blocks * t->own * row, t->mixed));
    TRY(t->dev->op.rows_take(t->dev, t->mixed, row, t->sorted, 2 * t->n, t->q));
    TRY(t->dev->op.rows_take(t->dev, t->mixed + 2 * (size_t)t->own * t->d, row, t->back, 2 * t->n,
                             t->key));
    if (t->scatters)
        TRY(t->dev->op.rows_take(t->dev, t->mixed + 4 * (size_t)t->own * t->d, row, t->sorted,
                                 2 * t->n, t->z));
done:
    return rc;
}

/* ---- neighborhoods and filter --------------------------------------------------------------------------------- */

/* The k rows of the batch that each row of a half is pulled towards, found among the keys. */
static int befriend(trainer *t, half *h, int k) {
    int rc = 0;
    const train_options *o = &t->o;
    conr_neighbors_options list = {.k = k < t->n ? k : t->n,
                                   .k1 = o->k1 < t->n ? o->k1 : t->n,
                                   .k2 = o->k2 < t->n ? o->k2 : t->n,
                                   .layers = o->layers,
                                   .alpha = o->alpha,
                                   .resymmetrize = o->resymmetrize,
                                   .local = !strcmp(o->neighborhood, "local")};
    if (!strcmp(o->neighborhood, "none")) return 0;
    TRY(neighbors_batch(t->dev, h->key, t->n, t->d, &list, t->near, t->work));
    h->near = t->near, h->k = list.k;
done:
    return rc;
}

/* The neighborhood and the weight of each row of a half, from the keys it is pulled towards. */
static int refine(trainer *t, half *h) {
    int rc = 0;
    const train_options *o = &t->o;
    TRY(befriend(t, h, o->k));
    if (o->boundary) {
        TRY(t->dev->op.boundary(t->dev, t->at, h->key, t->n, t->d, t->feed.ids, t->label_on,
                                t->centroids_on, t->K, !strcmp(o->loss_mean, "batch"), t->ratio,
                                t->weight));
        h->weight = t->weight;
    }
done:
    return rc;
}

/* ---- backward and update --------------------------------------------------------------------- */

/* The gradient of the weights, summed over the parts; averaged over the ranks during the last. */
static int backward(trainer *t) {
    int rc = 0, parts = t->o.accumulate;
    device *dev = t->dev;
    parameters online = {t->w, t->running};
    size_t block = (size_t)t->m * t->d;
    float *own = t->own_dq;
    for (int i = 0; i < 2 * parts; i++) /* parts of both views */
        TRY(ranks_gather_back(&t->ranks, dev, t->dq + (size_t)i * block * t->ranks.count, block,
                              own + (size_t)i * block));
    TRY(dev->op.rows_normalize_back(dev, t->own_q, t->norm, own, 2 * t->own, t->d, own));
    if (t->scatters) TRY(propos_back(t));
    for (int p = 0; p < parts; p++) {
        float *d = own; /* one part: already in order */
        if (parts > 1) {
            TRY(online_features(t, p, PASS_REPEAT));
            d = t->flat;
            for (int v = 0; v < 2; v++)
                TRY(dev->op.copy(dev, d + v * block,
                                 own + ((size_t)v * t->own + (size_t)p * t->m) * t->d,
                                 block * sizeof *d));
        }
        act *images = act_at(dev, t->images, (size_t)p * 3 * t->m * t->feed.row);
        if (t->scatters) TRY(propos_back_part(t, p));
        ranks *over = p == parts - 1 ? &t->ranks : NULL;
        TRY(pass_backward(t->online_pass, &online, images, d, p > 0, over, t->dw));
    }
    TRY(ranks_mean_end(&t->ranks, dev));
done:
    return rc;
}

/* If ranks do not share batch statistics, the running ones are averaged over the ranks, so that
 * they are what one rank with the same groups would have. */
static int average_statistics(trainer *t) {
    int rc = 0;
    size_t n = t->net.n_running;
    if (t->norm_ranks.count == t->ranks.count) return 0;
    TRY(ranks_mean(&t->ranks, t->dev, t->running, n));
    if (t->framework->target) TRY(ranks_mean(&t->ranks, t->dev, t->target_running, n));
done:
    return rc;
}

/* SGD, and the target's update unless it came before the forward pass. */
static int update(trainer *t) {
    int rc = 0;
    device *dev = t->dev;
    size_t n = t->net.n_target, tail = t->net.n_weights - n;
    bool follows = t->framework->target && !t->framework->target_leads;
    bool first = !strcmp(t->o.target_update, "before");
    float scale = t->stage == 2 ? (float)t->o.stage2_loss_scale : 1;
    TRY(dev->op.sgd(dev, t->at, 0, first, scale, n, t->w, t->dw, t->v,
                    follows ? t->target_w : NULL));
    if (tail)
        TRY(dev->op.sgd(dev, t->at, 1, first, scale, tail, t->w + n, t->dw + n, t->v + n, NULL));
done:
    return rc;
}

/* ---- shuffled batch statistics --------------------------------------------------------------- */

/* Draws the order in which the target sees the rows of each view. */
static int shuffle_rows(trainer *t, uint32_t step_number) {
    int rc = 0, n = t->n, own = t->own;
    rng r = rng_at((uint64_t)t->o.seed, step_number, 0, RNG_GROUPS);
    int32_t *rows = t->host_rows, *back = rows + 2 * n, *mine = back + 2 * n;
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < n; i++) {
            int j = (int)rng_below(&r, (uint32_t)i + 1);
            rows[v * n + i] = rows[v * n + j];
            rows[v * n + j] = v * n + i;
        }
    for (int v = 0; v < 2; v++) {
        for (int i = 0; i < n; i++)
            back[rows[v * n + i]] = trainer_gathered_row(t, t->blocks, v, i);
        for (int i = 0; i < own; i++) /* where the images of our rows are, in this order */
            mine[v * own + i] =
                trainer_gathered_row(t, 2, v, rows[v * n + loader_row(&t->feed.o.load, i)] - v * n);
    }
    TRY(t->dev->op.put(t->dev, t->back, back, (size_t)2 * n * sizeof *back));
    TRY(t->dev->op.put(t->dev, t->rows, mine, (size_t)2 * own * sizeof *mine));
done:
    return rc;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Algorithm 1, once.  Only queues operations of the device, so that it can be recorded. */
static int step(void *arg) {
    int rc = 0;
    trainer *t = arg;
    size_t rows = (size_t)t->n * t->d;
    if (t->framework->target_leads)
        TRY(t->dev->op.average(t->dev, t->at, t->net.n_target, t->w, t->target_w));
    for (int p = 0; p < t->o.accumulate; p++) {
        TRY(online_features(t, p, PASS_TRAIN)); /* q = online(a, b) */
        TRY(t->framework->keys(t, p));          /* key = target(b, a) */
    }
    TRY(gather_features(t));
    for (int v = 0; v < 2; v++) {
        half h = {.q = t->q + v * rows, .key = t->key + v * rows, .k = 1, .dq = t->dq + v * rows};
        if (t->confident) {
            TRY(confident_half(t, &h, v));
            continue;
        }
        if (t->stage == 2) TRY(refine(t, &h)); /* neighborhoods, boundary filter */
        if (t->early) TRY(befriend(t, &h, t->o.early_k));
        TRY(t->framework->loss(t, &h));
    }
    if (t->scatters) TRY(t->confident ? confident_prototypes(t) : propos_loss(t));
    if (t->framework->queue)
        TRY(t->dev->op.ring_put(t->dev, t->at, t->key, 2 * t->n, t->d, t->queue, t->o.queue));
    TRY(backward(t));
    TRY(average_statistics(t));
    TRY(update(t));
done:
    return rc;
}

/* What kind of step an epoch has. */
static void choose_step(trainer *t, uint32_t epoch) {
    t->stage = stage_of(&t->o, epoch);
    t->early = neighbors_early(&t->o, epoch);
    t->confident = t->stage == 2 && t->K > 0 && confident_stage2(&t->o);
    t->scatters = t->confident || (t->K > 0 && prototypes_in(&t->o, epoch));
}

static int views_and_step(void *arg) {
    trainer *t = arg;
    int rc = feed_views(&t->feed, t->at, t->stage == 2, t->images);
    return rc < 0 ? rc : step(t);
}

int trainer_step(trainer *t) {
    int rc = 0;
    step_values at;
    schedule_at(&t->o, t->step, t->steps, &at);
    choose_step(t, at.epoch);
    if (t->step % t->steps == 0 && t->stage == 2 && t->table) TRY(trainer_seek(t));
    TRY(feed_next(&t->feed, at.epoch, t->step % t->steps));
    TRY(t->dev->op.put(t->dev, t->at, &at, sizeof at));
    if (t->shuffled) TRY(shuffle_rows(t, at.step));
    recording **recorded = &t->recorded_step[t->early ? 2 : t->stage - 1][t->scatters];
    TRY(t->unrecorded ? views_and_step(t) : t->dev->op.repeat(t->dev, views_and_step, t, recorded));
    t->step++;
done:
    return rc;
}

int trainer_step_on(trainer *t, const step_values *at) {
    int rc = 0;
    choose_step(t, at->epoch);
    TRY(t->dev->op.put(t->dev, t->at, at, sizeof *at));
    TRY(step(t));
    t->step++;
done:
    return rc;
}

int trainer_loss(trainer *t, double *sum) {
    int rc = 0;
    float value = 0;
    TRY(t->dev->op.get(t->dev, &value, t->loss, sizeof value));
    TRY(t->dev->op.zero(t->dev, t->loss, sizeof value));
    *sum = value;
done:
    return rc;
}

/* ---- which images come next ------------------------------------------------------------------ */

/* The images of an epoch, drawn with probability inverse to the size of their cluster: first a
 * cluster, then an image of it, both uniformly.  Depends only on seed, epoch and pseudo labels. */
static int balanced_table(trainer *t, uint32_t epoch) {
    int64_t n = t->store->n, total = t->steps * t->n;
    int32_t *first = calloc((size_t)t->K + 2, sizeof *first);
    int32_t *member = memory_new("balanced order", (size_t)n, sizeof *member);
    if (!first || !member) {
        free(first), free(member);
        return fail_memory("balanced order", (double)n * sizeof *member);
    }
    for (int64_t i = 0; i < n; i++) first[t->label[i] + 2]++;
    for (int c = 0; c <= t->K; c++) first[c + 1] += first[c];
    for (int64_t i = 0; i < n; i++) member[first[t->label[i] + 1]++] = (int32_t)i;
    rng r = rng_at((uint64_t)t->o.seed, epoch, 0, RNG_BALANCE);
    for (int64_t i = 0; i < total; i++) {
        int c;
        do c = (int)rng_below(&r, (uint32_t)t->K);
        while (first[c + 1] == first[c]); /* k-means leaves no cluster empty, but ties might */
        t->table[i] = member[first[c] + (int)rng_below(&r, (uint32_t)(first[c + 1] - first[c]))];
    }
    free(first);
    free(member);
    return 0;
}

int trainer_seek(trainer *t) {
    int rc = 0;
    uint32_t epoch = (uint32_t)(t->step / t->steps);
    bool balanced = t->table && stage_of(&t->o, epoch) == 2 && t->K;
    if (balanced) TRY(balanced_table(t, epoch));
    TRY(feed_seek(&t->feed, epoch, t->step % t->steps, (uint32_t)t->o.stage1_epochs,
                  balanced ? t->table : NULL));
done:
    return rc;
}
