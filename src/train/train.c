/* train.c: the conductor.  The only file that knows the order of the method's stages; Algorithm 1
 * of the paper is `step` below, and the loop over epochs is in run.c.
 *
 *     views a, b of each image of a batch
 *     q = online(a, b), key = target(b, a)                      unit rows
 *     stage 1:  every row is pulled towards its own key
 *     stage 2:  towards the keys of its neighborhood, and rows near cluster boundaries are held
 * back gradient, moving average of the target, SGD */
#include "train/train.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "clusters/kmeans.h"
#include "neighbors/neighbors.h"
#include "train/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one step -------------------------------------------------------------------------------- */

/* q: unit rows of both views, part by part. */
static int online_features(trainer *t, int part, pass_mode mode) {
    int rc = 0;
    parameters online = {t->w, t->running};
    size_t block = (size_t)t->m * t->d;
    act *images = act_at(t->dev, t->images, (size_t)part * 3 * t->m * t->feed.row);
    TRY(pass_forward(t->online, &online, images, mode));
    if (mode == PASS_REPEAT) goto done; /* the features are known, the way to them was not kept */
    TRY(pass_output(t->online, t->net.n_layers, t->flat));
    for (int v = 0; v < 2; v++) {
        size_t at = (size_t)v * t->own + (size_t)part * t->m;
        TRY(t->dev->op.rows_normalize(t->dev, t->flat + v * block, t->m, t->d, t->own_q + at * t->d,
                                      t->norm + at));
    }
done:
    return rc;
}

/* q and key of the whole batch out of every rank's part, in the batch's order. */
static int gather_features(trainer *t) {
    int rc = 0;
    size_t row = (size_t)t->d * sizeof *t->q;
    if (t->own_q == t->q) return 0;
    TRY(ranks_gather(&t->ranks, t->dev, t->own_q, 4 * (size_t)t->own * row, t->mixed));
    TRY(t->dev->op.rows_take(t->dev, t->mixed, row, t->sorted, 2 * t->n, t->q));
    TRY(t->dev->op.rows_take(t->dev, t->mixed + 2 * (size_t)t->own * t->d, row, t->back, 2 * t->n,
                             t->key));
done:
    return rc;
}

/* Whom the rows of a half are pulled to, and with which weight, by the keys they are pulled to. */
static int refine(trainer *t, half *h) {
    int rc = 0;
    const train_options *o = &t->o;
    conr_neighbors_options list = {.k = o->k < t->n ? o->k : t->n,
                                   .k1 = o->k1 < t->n ? o->k1 : t->n,
                                   .k2 = o->k2 < t->n ? o->k2 : t->n,
                                   .layers = o->layers,
                                   .alpha = o->alpha,
                                   .resymmetrize = o->resymmetrize,
                                   .local = !strcmp(o->neighborhood, "local")};
    if (strcmp(o->neighborhood, "none")) {
        TRY(neighbors_batch(t->dev, h->key, t->n, t->d, &list, t->near, t->work));
        h->near = t->near, h->k = list.k;
    }
    if (o->boundary) {
        TRY(t->dev->op.boundary(t->dev, t->at, h->key, t->n, t->d, t->feed.ids, t->label_on,
                                t->centroids_on, t->K, !strcmp(o->loss_mean, "batch"), t->ratio,
                                t->weight));
        h->weight = t->weight;
    }
done:
    return rc;
}

/* The gradient of the weights, part by part, and its mean over the ranks on the way. */
static int backward(trainer *t) {
    int rc = 0, parts = t->o.accumulate;
    device *dev = t->dev;
    parameters online = {t->w, t->running};
    size_t block = (size_t)t->m * t->d;
    float *own = t->own_dq;
    for (int i = 0; i < 2 * parts; i++) /* of both views */
        TRY(ranks_gather_back(&t->ranks, dev, t->dq + (size_t)i * block * t->ranks.count, block,
                              own + (size_t)i * block));
    TRY(dev->op.rows_normalize_back(dev, t->own_q, t->norm, own, 2 * t->own, t->d, own));
    for (int p = 0; p < parts; p++) {
        float *d = own; /* one part: as it lies */
        if (parts > 1) {
            TRY(online_features(t, p, PASS_REPEAT));
            d = t->flat;
            for (int v = 0; v < 2; v++)
                TRY(dev->op.copy(dev, d + v * block,
                                 own + ((size_t)v * t->own + (size_t)p * t->m) * t->d,
                                 block * sizeof *d));
        }
        act *images = act_at(dev, t->images, (size_t)p * 3 * t->m * t->feed.row);
        ranks *over = p == parts - 1 ? &t->ranks : NULL;
        TRY(pass_backward(t->online, &online, images, d, p > 0, over, t->dw));
    }
    TRY(ranks_mean_end(&t->ranks, dev));
done:
    return rc;
}

/* Where ranks keep batch statistics to themselves, the running ones are the mean of theirs: then
 * they are what one rank with as many groups would have. */
static int even_statistics(trainer *t) {
    int rc = 0;
    size_t n = t->net.n_running;
    if (t->norm_ranks.count == t->ranks.count) return 0;
    TRY(ranks_mean(&t->ranks, t->dev, t->running, n));
    if (t->way->target) TRY(ranks_mean(&t->ranks, t->dev, t->average_running, n));
done:
    return rc;
}

/* SGD, and the target's step where it does not lead. */
static int update(trainer *t) {
    int rc = 0;
    device *dev = t->dev;
    size_t n = t->net.n_target, tail = t->net.n_weights - n;
    bool follows = t->way->target && !t->way->target_leads;
    bool first = !strcmp(t->o.target_update, "before");
    float scale = t->stage == 2 ? (float)t->o.stage2_loss_scale : 1;
    TRY(dev->op.sgd(dev, t->at, 0, first, scale, n, t->w, t->dw, t->v,
                    follows ? t->average : NULL));
    if (tail)
        TRY(dev->op.sgd(dev, t->at, 1, first, scale, tail, t->w + n, t->dw + n, t->v + n, NULL));
done:
    return rc;
}

/* Algorithm 1, once: nothing but operations of the device. */
static int step(void *arg) {
    int rc = 0;
    trainer *t = arg;
    size_t rows = (size_t)t->n * t->d;
    if (t->way->target_leads)
        TRY(t->dev->op.average(t->dev, t->at, t->net.n_target, t->w, t->average));
    for (int p = 0; p < t->o.accumulate; p++) {
        TRY(online_features(t, p, PASS_TRAIN));
        TRY(t->way->keys(t, p));
    }
    TRY(gather_features(t));
    for (int v = 0; v < 2; v++) {
        half h = {.q = t->q + v * rows, .key = t->key + v * rows, .k = 1, .dq = t->dq + v * rows};
        if (t->stage == 2) TRY(refine(t, &h));
        TRY(t->way->loss(t, &h));
    }
    if (t->way->queue)
        TRY(t->dev->op.ring_put(t->dev, t->at, t->key, 2 * t->n, t->d, t->queue, t->o.queue));
    TRY(backward(t));
    TRY(even_statistics(t));
    TRY(update(t));
done:
    return rc;
}

static int views_and_step(void *arg) {
    trainer *t = arg;
    int rc = feed_views(&t->feed, t->at, t->stage == 2, t->images);
    return rc < 0 ? rc : step(t);
}

int trainer_step_on(trainer *t, const step_values *at) {
    int rc = 0;
    t->stage = stage_of(&t->o, at->epoch);
    TRY(t->dev->op.put(t->dev, t->at, at, sizeof *at));
    TRY(step(t));
    t->step++;
done:
    return rc;
}

/* Where row i of the batch lies after a gather of every rank's `blocks` blocks of rows. */
static int32_t gathered_at(const trainer *t, int blocks, int block, int i) {
    int part = t->m * t->ranks.count, rank = i % part / t->m, own = i / part * t->m + i % t->m;
    return (rank * blocks + block) * t->own + own;
}

/* The order in which the target sees the rows of each view. */
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
        for (int i = 0; i < n; i++) back[rows[v * n + i]] = gathered_at(t, 4, v, i);
        for (int i = 0; i < own; i++) /* images of the rows that are ours in this order */
            mine[v * own + i] =
                gathered_at(t, 2, v, rows[v * n + loader_row(&t->feed.o.load, i)] - v * n);
    }
    TRY(t->dev->op.put(t->dev, t->back, back, (size_t)2 * n * sizeof *back));
    TRY(t->dev->op.put(t->dev, t->rows, mine, (size_t)2 * own * sizeof *mine));
done:
    return rc;
}

int trainer_step(trainer *t) {
    int rc = 0;
    step_values at;
    schedule_at(&t->o, t->step, t->steps, &at);
    t->stage = stage_of(&t->o, at.epoch);
    if (t->step % t->steps == 0 && t->stage == 2 && t->table) TRY(trainer_seek(t));
    TRY(feed_next(&t->feed, at.epoch, t->step % t->steps));
    TRY(t->dev->op.put(t->dev, t->at, &at, sizeof at));
    if (t->shuffled) TRY(shuffle_rows(t, at.step));
    TRY(t->unrecorded ? views_and_step(t)
                      : t->dev->op.repeat(t->dev, views_and_step, t, &t->step_of[t->stage - 1]));
    t->step++;
done:
    return rc;
}

/* An epoch's images drawn by the inverse size of their clusters: a cluster evenly, then an image of
 * it evenly.  Depends on seed, epoch and pseudo labels alone. */
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
        while (first[c + 1] == first[c]); /* k-means leaves none empty, but ties might */
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

int trainer_loss(trainer *t, double *sum) {
    int rc = 0;
    float value = 0;
    TRY(t->dev->op.get(t->dev, &value, t->loss, sizeof value));
    TRY(t->dev->op.zero(t->dev, t->loss, sizeof value));
    *sum = value;
done:
    return rc;
}

/* ---- clustering ------------------------------------------------------------------------------ */

/* A batch's features, unit rows, into t->dq: each rank embeds its share. */
static int embed_batch(void *arg) {
    int rc = 0;
    trainer *t = arg;
    parameters at = trainer_clustered(t);
    TRY(feed_plain(&t->feed, t->at, t->images));
    TRY(pass_forward(t->plain, &at, t->images, PASS_EVAL));
    TRY(pass_output(t->plain, t->net.projector_end, t->flat));
    TRY(t->dev->op.rows_normalize(t->dev, t->flat, t->feed.plain, t->d, t->own_dq, t->norm));
    TRY(ranks_gather(&t->ranks, t->dev, t->own_dq, (size_t)t->feed.plain * t->d * sizeof *t->dq,
                     t->dq));
done:
    return rc;
}

/* All images', into features_on. */
static int embed(trainer *t) {
    int rc = 0, n = t->feed.plain * t->ranks.count;
    device *dev = t->dev;
    if (t->featured == t->step) return 0;
    for (int64_t first = 0; first < t->store->n; first += n) {
        int64_t count = t->store->n - first < n ? t->store->n - first : n;
        TRY(device_report(dev, "embedding", first, t->store->n));
        TRY(feed_plain_next(&t->feed, first));
        TRY(dev->op.repeat(dev, embed_batch, t, &t->embedding));
        TRY(dev->op.copy(dev, t->features_on + first * t->d, t->dq,
                         (size_t)count * t->d * sizeof *t->features_on));
    }
    t->featured = t->step;
    t->fetched = -1;
done:
    return rc;
}

int trainer_features(trainer *t) {
    int rc = 0;
    TRY(embed(t));
    if (t->features == t->features_on || t->fetched == t->featured) goto done;
    TRY(t->dev->op.get(t->dev, t->features, t->features_on,
                       (size_t)t->store->n * t->d * sizeof *t->features));
    t->fetched = t->featured;
done:
    return rc;
}

/* out: unit rows; a zero row stays zero. */
static void scale_rows(const float *x, int n, int d, float *out) {
    for (int i = 0; i < n; i++, x += d, out += d) {
        double square = 0;
        for (int j = 0; j < d; j++) square += (double)x[j] * x[j];
        for (int j = 0; j < d; j++) out[j] = square > 0 ? (float)(x[j] / sqrt(square)) : 0;
    }
}

int trainer_set_labels(trainer *t, const int32_t *label, const float *centroids, int K) {
    int rc = 0;
    device *dev = t->dev;
    size_t bytes = (size_t)t->store->n * sizeof *label, block = (size_t)K * t->d;
    float *unit = NULL;
    if (K != t->K) {
        free(t->centroids);
        dev->op.free(dev, t->centroids_on);
        t->centroids_on = NULL;
        t->K = 0;
        t->centroids = memory_new("centroids", block, sizeof *t->centroids);
        TRY(t->centroids ? 0 : CONR_ENOMEM);
        TRY(dev->op.alloc(dev, block * sizeof(float), (void **)&t->centroids_on));
        t->K = K;
        for (int s = 0; s < 2; s++) { /* they hold the old pointer */
            dev->op.recording_free(dev, t->step_of[s]);
            t->step_of[s] = NULL;
        }
    }
    if (label != t->label) memcpy(t->label, label, bytes);
    if (centroids != t->centroids) memcpy(t->centroids, centroids, block * sizeof *centroids);
    TRY(dev->op.put(dev, t->label_on, t->label, bytes));
    if (t->o.normalize_centroids) {
        unit = memory_new("centroids", block, sizeof *unit);
        TRY(unit ? 0 : CONR_ENOMEM);
        scale_rows(t->centroids, K, t->d, unit);
    }
    TRY(dev->op.put(dev, t->centroids_on, unit ? unit : t->centroids, block * sizeof *unit));
done:
    free(unit);
    return rc;
}

/* Where the runs of k-means ended, to see whether they agree. */
static int note_runs(trainer *t, const conr_kmeans_history *h) {
    int n = 0;
    for (int i = 0; i < h->steps; i++)
        n += i + 1 == h->steps || h->step[i + 1].run != h->step[i].run;
    float *tried = realloc(t->tried, (size_t)(n + 1) * sizeof *tried);
    if (!tried) return fail_memory("k-means", (double)n * sizeof *tried);
    t->tried = tried, t->n_tried = 0;
    for (int i = 0; i < h->steps; i++)
        if (i + 1 == h->steps || h->step[i + 1].run != h->step[i].run)
            tried[t->n_tried++] = (float)h->step[i].objective;
    return 0;
}

/* The ranks share the runs of k-means; what it comes to is told by rank 0, so that all have the
 * same bits whatever their machines are. */
int trainer_cluster(trainer *t) {
    int rc = 0;
    bool leads = t->ranks.rank == 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history history = {0};
    float *centroids = NULL;
    int32_t *label = NULL;
    int64_t n = t->store->n;
    TRY(embed(t));
    o.restarts = t->o.restarts;
    o.iterations = t->o.iterations;
    o.seed = (uint64_t)t->o.seed;
    if (t->o.clusters == 0) TRY(trainer_features(t));
    if (t->o.clusters == 0 && leads)
        TRY(conr_choose_clusters(t->c, t->features, n, t->d, &o, t->o.clusters_low,
                                 t->o.clusters_high, &t->o.clusters, NULL));
    TRY(ranks_tell(&t->ranks, &t->o.clusters, sizeof t->o.clusters));
    o.clusters = t->o.clusters;
    if (t->o.kmeans_warm && t->K == o.clusters) o.start = t->centroids;
    centroids = memory_new("centroids", (size_t)o.clusters * t->d, sizeof *centroids);
    label = memory_new("labels", (size_t)n, sizeof *label);
    TRY(centroids && label ? 0 : CONR_ENOMEM);
    TRY(kmeans_on_device(t->c, t->ranks.talks ? &t->ranks : NULL, t->features_on, n, t->d, &o,
                         centroids, label, &history));
    t->objective = history.objective;
    TRY(note_runs(t, &history));
    TRY(ranks_tell(&t->ranks, &t->objective, sizeof t->objective));
    TRY(ranks_tell(&t->ranks, label, (size_t)n * sizeof *label));
    TRY(ranks_tell(&t->ranks, centroids, (size_t)o.clusters * t->d * sizeof *centroids));
    TRY(trainer_set_labels(t, label, centroids, o.clusters));
    t->clustered = t->step;
done:
    conr_kmeans_history_free(&history);
    free(centroids);
    free(label);
    return rc;
}

/* ---- opening and closing --------------------------------------------------------------------- */

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
    t->way->heads(o, s);
}

static int open_weights(trainer *t) {
    int rc = 0;
    device *dev = t->dev;
    size_t n = t->net.n_weights, m = t->net.n_running, target = t->net.n_target;
    float *w = memory_new("weights", n, sizeof *w);
    float *running = memory_new("weights", m + 1, sizeof *running);
    TRY(w && running ? 0 : CONR_ENOMEM);
    network_init(&t->net, (uint64_t)t->o.seed, w, running);
    GRAB(w, n);
    GRAB(dw, n);
    GRAB(v, n);
    GRAB(running, m);
    TRY(dev->op.put(dev, t->w, w, n * sizeof *w));
    TRY(dev->op.put(dev, t->running, running, m * sizeof *w));
    t->average = t->w, t->average_running = t->running;
    if (t->way->target) {
        GRAB(average, target);
        GRAB(average_running, m);
        TRY(dev->op.put(dev, t->average, w, target * sizeof *w));
        TRY(dev->op.put(dev, t->average_running, running, m * sizeof *w));
    }
    TRY(dev->op.sync(dev));
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

/* Who shares batch statistics: a group lies within a rank, or over whole ranks. */
static int open_norms(trainer *t, int *groups) {
    int whole = t->m * t->ranks.count, span = t->o.bn_group;
    if (span == 0 || span > whole) span = whole;
    *groups = span < t->m ? t->m / span : 1;
    if (span <= t->m && t->m % span == 0) return ranks_part(&t->ranks, 1, &t->norm_ranks);
    if (span > t->m && span % t->m == 0 && t->ranks.count % (span / t->m) == 0)
        return ranks_part(&t->ranks, span / t->m, &t->norm_ranks);
    return fail(CONR_EINVAL,
                "bn_group %d: the %d images that each of %d ranks takes at once are no multiple of "
                "it, nor it of them; use another bn_group, or another number of ranks",
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
    TRY(make_pass(t, &o, &t->online));
    o.backward = false;
    o.end = t->net.projector_end;
    if (t->way->target) TRY(make_pass(t, &o, &t->target));
    o.n = t->feed.plain, o.groups = o.passes = 1;
    TRY(make_pass(t, &o, &t->plain));
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

/* This rank's rows of the batch, and how they find their places in the whole. */
static int open_own_rows(trainer *t) {
    int rc = 0, n = t->n;
    size_t own = 2 * (size_t)t->own, wide = own * t->d;
    bool alone = !t->ranks.talks, shuffles = t->o.shuffle_bn && t->way->target;
    t->own_q = t->q, t->own_key = t->key, t->own_dq = t->dq;
    if (alone && !shuffles) return 0;
    GRAB(own_q, 2 * wide);
    t->own_key = t->own_q + wide;
    t->mixed = t->own_q;
    if (!alone) GRAB(own_dq, wide);
    if (!alone) GRAB(mixed, 2 * wide * (size_t)t->ranks.count);
    GRAB(sorted, 2 * (size_t)n);
    t->back = t->sorted;
    t->host_rows = memory_new("batch", 4 * (size_t)n + own, sizeof *t->host_rows);
    TRY(t->host_rows ? 0 : CONR_ENOMEM);
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < n; i++) t->host_rows[v * n + i] = gathered_at(t, 4, v, i);
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
    int most = t->o.k > t->o.k1 ? t->o.k : t->o.k1;
    conr_neighbors_options o = {.k = t->o.k, .k1 = t->o.k1, .k2 = t->o.k2, .layers = t->o.layers};
    GRAB(q, 2 * wide);
    t->key = t->q + wide;
    GRAB(dq, wide);
    GRAB(flat, own * t->d);
    GRAB(norm, own);
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
                      .short_side = o->short_side};
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

/* Where the host reaches the device's memory, its features are the device's own. */
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
    t->way = framework_find(o->framework);
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
    TRY(open_weights(t)); /* first: the host's copy is gone before the activations come */
    TRY(open_passes(t));
    TRY(open_rows(t));
    if (t->way->queue) TRY(open_queue(t));
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
    for (int s = 0; s < 2; s++) t->dev->op.recording_free(t->dev, t->step_of[s]);
    t->dev->op.recording_free(t->dev, t->embedding);
    pass_free(t->online);
    pass_free(t->target);
    pass_free(t->plain);
    if (t->features != t->features_on) free(t->features);
    for (int i = 0; i < t->n_owned; i++) t->dev->op.free(t->dev, t->owned[i]);
    t->dev->op.free(t->dev, t->centroids_on);
    network_free(&t->net);
    ranks_close(&t->norm_ranks);
    free(t->label), free(t->centroids), free(t->table), free(t->host_rows);
    free(t->tried);
    free(t);
}
