/* bench_train.c: a training step, timed: a network's forward + backward, or all of BYOL's step on
 * given images (online and target passes, loss, backward, update). */
#include "conr_context.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/profile.h"
#include "encoder/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

conr_bench_train_options conr_bench_train_defaults(void) {
    return (conr_bench_train_options){.encoder = "resnet18",
                                      .stem = "cifar",
                                      .width = 64,
                                      .size = 32,
                                      .channels = 3,
                                      .batch = 32,
                                      .seconds = 3};
}

/* Everything of one timed training. */
typedef struct bench {
    device *dev;
    ranks ranks;
    network net;
    conr_bench_train_options o;
    int n, end, d; /* images in a pass; layers; features */
    pass *online, *target;
    float *w, *dw, *v, *running;      /* online */
    float *average, *average_running; /* target */
    float *q, *k, *norm, *dq, *flat;  /* [n,d]; norm: [n] */
    act *images;
    step_values *at;
    recording *recorded;
    size_t bytes; /* of device memory */
} bench;

static int choose(const char *what, const char *word, const char *const *words, int *out) {
    for (*out = 0; words[*out]; ++*out)
        if (!strcmp(words[*out], word)) return 0;
    return fail(CONR_EINVAL, "%s %s: no such %s; use %s, %s or %s", what, word, what, words[0],
                words[1], words[2]);
}

static int spec_of(const conr_bench_train_options *o, network_spec *s) {
    static const char *const encoders[] = {"resnet18", "resnet34", "small", NULL};
    static const char *const stems[] = {"cifar", "imagenet", "small", NULL};
    int encoder = 0, stem = 0, rc = 0;
    TRY(choose("encoder", o->encoder, encoders, &encoder));
    TRY(choose("stem", o->stem, stems, &stem));
    *s = (network_spec){.encoder = (encoder_kind)encoder,
                        .stem = (stem_kind)stem,
                        .width = o->width,
                        .h = o->size,
                        .w = o->size,
                        .c = o->channels};
    if (encoder == ENCODER_SMALL) s->stem = STEM_SMALL;
    if (!o->byol) return 0;
    s->projector = mlp_byol_projector(o->hidden, o->features);
    s->predictor = mlp_byol_predictor(o->hidden, o->features);
done:
    return rc;
}

static int floats(bench *b, size_t count, float **out) {
    b->bytes += count * sizeof **out;
    return b->dev->op.alloc(b->dev, count * sizeof **out, (void **)out);
}

static int open_images(bench *b) {
    int rc = 0;
    size_t count = (size_t)b->n * b->o.size * b->o.size * b->o.channels;
    float *host = memory_new("images", count, sizeof *host), *on = NULL;
    if (!host) return CONR_ENOMEM;
    rng r = rng_at(1, 0, 0, RNG_TEST);
    for (size_t i = 0; i < count; i++) host[i] = 2 * rng_float(&r) - 1;
    TRY(b->dev->op.alloc(b->dev, count * b->dev->act_size, (void **)&b->images));
    TRY(b->dev->op.alloc(b->dev, count * sizeof *on, (void **)&on));
    TRY(b->dev->op.put(b->dev, on, host, count * sizeof *on));
    TRY(b->dev->op.act_from(b->dev, on, count, b->images));
    TRY(b->dev->op.sync(b->dev));
done:
    b->dev->op.free(b->dev, on);
    free(host);
    return rc;
}

static int open_weights(bench *b) {
    int rc = 0;
    device *dev = b->dev;
    size_t n = b->net.n_weights, m = b->net.n_running;
    float *w = memory_new("weights", n, sizeof *w), *running = memory_new("weights", m, sizeof *w);
    if (!w || !running) {
        rc = CONR_ENOMEM;
        goto done;
    }
    network_init(&b->net, 1, w, running);
    TRY(floats(b, n, &b->w));
    TRY(floats(b, n, &b->dw));
    TRY(floats(b, m, &b->running));
    TRY(dev->op.put(dev, b->w, w, n * sizeof *w));
    TRY(dev->op.put(dev, b->running, running, m * sizeof *w));
    if (b->o.byol) {
        TRY(floats(b, n, &b->v));
        TRY(floats(b, b->net.n_target, &b->average));
        TRY(floats(b, m, &b->average_running));
        TRY(dev->op.put(dev, b->average, w, b->net.n_target * sizeof *w));
        TRY(dev->op.put(dev, b->average_running, running, m * sizeof *w));
    }
    TRY(dev->op.sync(dev));
done:
    free(w);
    free(running);
    return rc;
}

static int open_passes(bench *b) {
    int rc = 0, views = b->o.byol ? 2 : 1;
    size_t bytes = 0;
    pass_options o = {.n = b->n,
                      .groups = views,
                      .passes = views,
                      .end = b->end,
                      .backward = true,
                      .recompute = b->o.recompute};
    TRY(pass_bytes(b->dev, &b->net, &o, &bytes));
    b->bytes += bytes;
    TRY(pass_new(b->dev, &b->ranks, &b->net, &o, &b->online));
    if (!b->o.byol) goto done;
    o.backward = false;
    o.end = b->net.projector_end;
    TRY(pass_bytes(b->dev, &b->net, &o, &bytes));
    b->bytes += bytes;
    TRY(pass_new(b->dev, &b->ranks, &b->net, &o, &b->target));
done:
    return rc;
}

static int open_bench(conr *c, const conr_bench_train_options *o, bench *b) {
    int rc = 0;
    network_spec spec;
    *b = (bench){.dev = c->dev, .o = *o};
    if (o->batch < 1) return fail(CONR_EINVAL, "batch %d: use at least 1", o->batch);
    TRY(spec_of(o, &spec));
    TRY(network_new(&spec, &b->net));
    TRY(ranks_open(&b->ranks));
    b->n = o->byol ? 2 * o->batch : o->batch;
    b->end = b->net.n_layers;
    b->d = b->net.layer[b->end - 1].co;
    TRY(open_weights(b)); /* first: the host's copy is gone before the activations come */
    TRY(open_passes(b));  /* a batch that does not fit fails here, before its images are drawn */
    TRY(open_images(b));
    TRY(floats(b, (size_t)b->n * b->d, &b->q));
    TRY(floats(b, (size_t)b->n * b->d, &b->k));
    TRY(floats(b, (size_t)b->n * b->d, &b->dq));
    TRY(floats(b, (size_t)b->n * b->d, &b->flat));
    TRY(floats(b, (size_t)b->n, &b->norm));
    step_values at = {.lr = {0.01f, 0.1f}, .momentum = 0.9f, .decay = 5e-4f, .average = 0.996f};
    TRY(b->dev->op.alloc(b->dev, sizeof at, (void **)&b->at));
    TRY(b->dev->op.put(b->dev, b->at, &at, sizeof at));
    TRY(b->dev->op.sync(b->dev));
done:
    return rc;
}

static void close_bench(bench *b) {
    b->dev->op.recording_free(b->dev, b->recorded);
    void *all[] = {b->w,    b->dw, b->v,    b->running, b->average, b->average_running, b->q, b->k,
                   b->norm, b->dq, b->flat, b->images,  b->at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->dev->op.free(b->dev, all[i]);
    pass_free(b->online);
    pass_free(b->target);
    network_free(&b->net);
    ranks_close(&b->ranks);
}

/* Forward and backward alone, as PyTorch's bench does it: the gradient of the sum of features. */
static int plain_step(void *arg) {
    int rc = 0;
    bench *b = arg;
    parameters online = {b->w, b->running};
    TRY(pass_forward(b->online, &online, b->images, PASS_TRAIN));
    TRY(pass_output(b->online, b->end, b->q));
    TRY(pass_backward(b->online, &online, b->images, b->q, false, b->dw));
done:
    return rc;
}

/* loss = -[mean <q_a,k_b> + mean <q_b,k_a>], so the gradient of unit q is -k of the other view over
 * the batch; minus and batch go into the update's scale. */
static int byol_step(void *arg) {
    int rc = 0;
    bench *b = arg;
    device *dev = b->dev;
    parameters online = {b->w, b->running}, target = {b->average, b->average_running};
    size_t half = (size_t)b->n / 2 * b->d, tail = b->net.n_weights - b->net.n_target;
    float scale = -1.0f / (float)b->o.batch;
    TRY(pass_forward(b->online, &online, b->images, PASS_TRAIN));
    TRY(pass_output(b->online, b->end, b->flat));
    TRY(dev->op.rows_normalize(dev, b->flat, b->n, b->d, b->q, b->norm));
    TRY(pass_forward(b->target, &target, b->images, PASS_TRAIN));
    TRY(pass_output(b->target, b->net.projector_end, b->flat));
    TRY(dev->op.copy(dev, b->k, b->flat + half, half * sizeof *b->k));
    TRY(dev->op.copy(dev, b->k + half, b->flat, half * sizeof *b->k));
    TRY(dev->op.rows_normalize(dev, b->k, b->n, b->d, b->flat, b->dq)); /* dq: norms, not used */
    TRY(dev->op.rows_normalize_back(dev, b->q, b->norm, b->flat, b->n, b->d, b->dq));
    TRY(pass_backward(b->online, &online, b->images, b->dq, false, b->dw));
    TRY(dev->op.sgd(dev, b->at, 0, true, scale, b->net.n_target, b->w, b->dw, b->v, b->average));
    size_t at = b->net.n_target;
    TRY(dev->op.sgd(dev, b->at, 1, true, scale, tail, b->w + at, b->dw + at, b->v + at, NULL));
done:
    return rc;
}

/* `count` steps as a training would queue them, then a wait. */
static int steps(bench *b, int count) {
    int rc = 0;
    for (int i = 0; i < count; i++)
        TRY(b->dev->op.repeat(b->dev, b->o.byol ? byol_step : plain_step, b, &b->recorded));
    TRY(b->dev->op.sync(b->dev));
done:
    return rc;
}

/* Times whole steps first, then once more by parts.  A device with a queue of its own is only
 * waited for now and then. */
static int measure(bench *b, conr_bench_train_result *r) {
    int rc = 0, count = b->dev->op.moment ? 20 : 1;
    double start, parts[PROFILE_KINDS];
    TRY(steps(b, 3)); /* warm: pages, caches, threads; engines chosen, the step recorded */
    start = clock_now();
    r->seconds = 1e30;
    while (r->steps < 3 * count || clock_now() - start < b->o.seconds) {
        double before = clock_now();
        TRY(steps(b, count));
        double took = (clock_now() - before) / count;
        if (took < r->seconds) r->seconds = took;
        r->steps += count;
    }
    profile_start(b->dev);
    start = clock_now();
    for (int i = 0; i < 3 && rc == 0; i++) rc = b->o.byol ? byol_step(b) : plain_step(b);
    if (rc == 0) rc = b->dev->op.sync(b->dev);
    double total = clock_now() - start, known = 0;
    profile_stop(b->dev, parts);
    if (rc < 0) goto done;
    r->n_parts = 0;
    for (int i = 0; i < PROFILE_KINDS; i++) {
        if (parts[i] == 0) continue;
        r->part[r->n_parts].name = profile_names[i];
        r->part[r->n_parts++].share = parts[i] / total;
        known += parts[i];
    }
    r->part[r->n_parts].name = "the rest";
    r->part[r->n_parts++].share = (total - known) / total;
done:
    return rc;
}

int conr_bench_train(conr *c, const conr_bench_train_options *o, conr_bench_train_result *out) {
    int rc = 0;
    bench b;
    *out = (conr_bench_train_result){0};
    TRY(open_bench(c, o, &b));
    TRY(measure(&b, out));
    /* a backward pass is twice the forward one; the target has no predictor and no backward */
    double work = network_work(&b.net), first = 0;
    const layer *stem = &b.net.layer[0]; /* which needs no data gradient */
    first = (double)stem->oh * stem->ow * stem->co * stem->k * stem->k * stem->ci;
    double target = 0;
    for (int i = 0; o->byol && i < b.net.projector_end; i++) {
        const layer *l = &b.net.layer[i];
        if (l->kind == LAYER_CONV) target += (double)l->oh * l->ow * l->co * l->k * l->k * l->ci;
    }
    out->flops = 2 * b.n * (3 * work - first + target);
    out->bytes = (double)b.bytes;
    out->images = o->batch;
done:
    close_bench(&b);
    return rc;
}
