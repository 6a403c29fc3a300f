/* steps.c: benchmarks of training steps: forward + backward of a network (network), or a whole step
 * of BYOL or CoNR as the trainer does it, views included (trainer). */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/profile.h"

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

/* What is timed. */
typedef struct timed {
    device *dev;
    ranks *ranks;
    float *dw; /* [n_weights], averaged over the ranks */
    size_t n_weights;
    double seconds; /* to repeat for */
    bench_steps *steps;
    void *arg;
} timed;

/* ---- forward + backward ---------------------------------------------------------------------- */

typedef struct plain {
    device *dev;
    ranks *ranks;
    network net;
    conr_bench_train_options o;
    int own; /* images of the batch on this rank */
    int d;
    pass *pass;
    float *w, *dw, *running, *y; /* y: [batch,d] */
    act *images;
    recording *recorded;
    size_t bytes; /* of device memory */
} plain;

static int spec_of(const conr_bench_train_options *o, network_spec *s) {
    *s = (network_spec){.width = o->width, .h = o->size, .w = o->size, .c = o->channels};
    if (!encoder_find(o->encoder, &s->encoder))
        return fail(CONR_EINVAL, "encoder %s: no such encoder; use one of %s", o->encoder,
                    ENCODER_NAMES);
    if (!stem_find(o->stem, &s->stem))
        return fail(CONR_EINVAL, "stem %s: no such stem; use one of %s", o->stem, STEM_NAMES);
    if (s->encoder == ENCODER_SMALL) s->stem = STEM_SMALL;
    return 0;
}

static int floats(plain *b, size_t count, float **out) {
    b->bytes += count * sizeof **out;
    return b->dev->op.alloc(b->dev, count * sizeof **out, (void **)out);
}

static int open_images(plain *b) {
    int rc = 0;
    size_t count = (size_t)b->own * b->o.size * b->o.size * b->o.channels;
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

static int open_weights(plain *b) {
    int rc = 0;
    device *dev = b->dev;
    size_t n = b->net.n_weights, m = b->net.n_running;
    float *w = memory_new("weights", n, sizeof *w), *running = memory_new("weights", m, sizeof *w);
    TRY(w && running ? 0 : CONR_ENOMEM);
    network_init(&b->net, 1, w, running);
    TRY(floats(b, n, &b->w));
    if (!b->o.forward) TRY(floats(b, n, &b->dw));
    TRY(floats(b, m, &b->running));
    TRY(dev->op.put(dev, b->w, w, n * sizeof *w));
    TRY(dev->op.put(dev, b->running, running, m * sizeof *w));
    TRY(dev->op.sync(dev));
done:
    free(w);
    free(running);
    return rc;
}

static int open_plain(conr *c, const conr_bench_train_options *o, plain *b) {
    int rc = 0;
    network_spec spec;
    size_t bytes = 0;
    TRY(spec_of(o, &spec));
    *b = (plain){.dev = c->dev, .o = *o, .ranks = &c->ranks, .own = o->batch / c->ranks.count};
    if (b->own * c->ranks.count != o->batch)
        TRY(fail(CONR_EINVAL, "batch %d: not a multiple of %d ranks; change one of them", o->batch,
                 c->ranks.count));
    TRY(network_new(&spec, &b->net));
    b->d = b->net.layer[b->net.n_layers - 1].co;
    pass_options p = {.n = b->own,
                      .groups = 1,
                      .passes = 1,
                      .end = b->net.n_layers,
                      .backward = !o->forward,
                      .recompute = o->recompute,
                      .shared = c->ranks.talks};
    TRY(open_weights(
        b)); /* first, so that the host copy is freed before activations are allocated */
    TRY(pass_bytes(b->dev, &b->net, &p, &bytes));
    b->bytes += bytes;
    TRY(pass_new(b->dev, b->ranks, &b->net, &p,
                 &b->pass)); /* a batch that is too large fails here */
    TRY(open_images(b));
    TRY(floats(b, (size_t)b->own * b->d, &b->y));
done:
    return rc;
}

static void close_plain(plain *b) {
    if (!b->dev) return;
    void *all[] = {b->w, b->dw, b->running, b->y, b->images};
    b->dev->op.recording_free(b->dev, b->recorded);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->dev->op.free(b->dev, all[i]);
    pass_free(b->pass);
    network_free(&b->net);
}

/* The loss is half the sum of squared features, whose gradient is the features: as in the PyTorch
 * benchmark of bench/. */
static int plain_step(void *arg) {
    int rc = 0;
    plain *b = arg;
    parameters at = {b->w, b->running};
    TRY(pass_forward(b->pass, &at, b->images, b->o.forward ? PASS_EVAL : PASS_TRAIN));
    TRY(pass_output(b->pass, b->net.n_layers, b->y));
    if (b->o.forward) return 0;
    TRY(pass_backward(b->pass, &at, b->images, b->y, false, b->ranks, b->dw));
    TRY(ranks_mean_end(b->ranks, b->dev));
done:
    return rc;
}

static int plain_steps(void *arg, int count, bool recorded) {
    int rc = 0;
    plain *b = arg;
    for (int i = 0; i < count; i++)
        TRY(recorded ? b->dev->op.repeat(b->dev, plain_step, b, &b->recorded) : plain_step(b));
    TRY(b->dev->op.sync(b->dev));
done:
    return rc;
}

/* ---- a whole step ---------------------------------------------------------------------------- */

typedef struct trainer_bench {
    store store; /* of noise; owned */
    unsigned char *pixels;
    trainer *t;
} trainer_bench;

static int set_number(conr_settings *s, const char *key, int value) {
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    return conr_settings_set(s, key, text);
}

int bench_settings(const conr_bench_train_options *o, conr_settings *s) {
    int rc = 0;
    TRY(conr_settings_set(s, "encoder", o->encoder));
    TRY(conr_settings_set(s, "stem", !strcmp(o->encoder, "small") ? "small" : o->stem));
    TRY(set_number(s, "width", o->width));
    TRY(set_number(s, "size", o->size));
    TRY(set_number(s, "batch", o->batch));
    TRY(set_number(s, "hidden", o->hidden));
    TRY(set_number(s, "predictor_hidden", o->hidden));
    TRY(set_number(s, "features", o->features));
    TRY(set_number(s, "stage1_epochs", o->conr ? 0 : 800));
    TRY(conr_settings_set(s, "recompute", o->recompute ? "true" : "false"));
done:
    return rc;
}

/* A trainer on images of noise, with arbitrary pseudo labels for stage 2. */
static int open_trainer_bench(conr *c, const conr_bench_train_options *o, trainer_bench *b) {
    enum { BATCHES = 4, K = 10 };
    int rc = 0;
    conr_settings *s = NULL;
    int32_t *label = NULL;
    float *centroids = NULL;
    pixels_norm norm = {{0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}};
    size_t row = (size_t)o->size * o->size * o->channels, n = (size_t)o->batch * BATCHES;
    *b = (trainer_bench){0};
    TRY(conr_settings_new(&s));
    TRY(bench_settings(o, s));
    b->pixels = memory_new("images", n * row, 1);
    b->store = (store){.n = (int64_t)n, .c = o->channels};
    b->store.image = memory_new("images", n, sizeof *b->store.image);
    label = memory_new("labels", n, sizeof *label);
    TRY(b->pixels && b->store.image && label ? 0 : CONR_ENOMEM);
    rng r = rng_at(1, 0, 0, RNG_TEST);
    for (size_t i = 0; i < n * row; i++) b->pixels[i] = (unsigned char)(rng_bits(&r) >> 24);
    for (size_t i = 0; i < n; i++) {
        b->store.image[i] = (stored){b->pixels + i * row, (uint16_t)o->size, (uint16_t)o->size};
        label[i] = (int32_t)(i % K);
    }
    TRY(trainer_open(c, &b->store, &norm, &s->o, &b->t));
    centroids = memory_new("centroids", (size_t)K * b->t->d, sizeof *centroids);
    TRY(centroids ? 0 : CONR_ENOMEM);
    for (int i = 0; i < K * b->t->d; i++) centroids[i] = rng_float(&r) - 0.5f;
    TRY(trainer_set_labels(b->t, label, centroids, K));
    TRY(trainer_seek(b->t));
done:
    conr_settings_free(s);
    free(label);
    free(centroids);
    return rc;
}

static void close_trainer_bench(trainer_bench *b) {
    trainer_close(b->t);
    free(b->store.image);
    free(b->pixels);
}

int bench_trainer_steps(void *arg, int count, bool recorded) {
    int rc = 0;
    trainer *t = arg;
    t->unrecorded = !recorded;
    for (int i = 0; i < count; i++) TRY(trainer_step(t));
    TRY(t->dev->op.sync(t->dev));
done:
    return rc;
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* The share of the gradient averaging over ranks that the backward pass hides, against the time
 * that the averaging takes by itself.  shown: seconds per step that remain visible. */
static int measure_overlap(const timed *x, double shown, double *overlap) {
    int rc = 0;
    double alone = 1e30;
    for (int i = 0; i < 3; i++) {
        TRY(x->dev->op.sync(x->dev));
        double before = clock_now();
        TRY(ranks_mean(x->ranks, x->dev, x->dw, x->n_weights));
        TRY(x->dev->op.sync(x->dev));
        if (clock_now() - before < alone) alone = clock_now() - before;
    }
    *overlap = shown < alone ? 1 - shown / alone : 0;
done:
    return rc;
}

/* The time per step spent in collectives; before: the clocks before the r->steps timed steps.
 * Inside a recorded step nothing can be timed, so a device that records runs a few more steps
 * without. */
static int measure_collectives(const timed *x, ranks_times before, conr_bench_train_result *r) {
    int rc = 0, steps = r->steps;
    if (x->dev->op.moment) {
        before = ranks_time();
        ranks_watch(true);
        TRY(x->steps(x->arg, steps = 3, false));
        ranks_watch(false);
    }
    ranks_times after = ranks_time();
    r->collectives = (after.all - before.all) / steps;
    TRY(measure_overlap(x, (after.mean - before.mean) / steps, &r->overlap));
done:
    ranks_watch(false);
    return rc;
}

/* Times whole steps first, then a few more by parts.  A device with a queue of its own is waited
 * for only once in 20 steps. */
static int measure(const timed *x, conr_bench_train_result *r) {
    int rc = 0, count = x->dev->op.moment ? 20 : 1;
    double start;
    TRY(x->steps(x->arg, 3, true)); /* warm up: pages, caches, choice of kernels, the recording */
    start = clock_now();
    r->seconds = 1e30;
    ranks_times spent = ranks_time();
    for (bool more = true; more;) {
        double before = clock_now();
        TRY(x->steps(x->arg, count, true));
        double took = (clock_now() - before) / count;
        if (took < r->seconds) r->seconds = took;
        r->steps += count;
        more = r->steps < 3 * count || clock_now() - start < x->seconds;
        TRY(ranks_broadcast(x->ranks, &more, sizeof more)); /* the clock of one counts for all */
    }
    r->ranks = x->ranks->count;
    if (x->ranks->talks && x->dw) TRY(measure_collectives(x, spent, r));
    TRY(bench_parts(x->dev, x->steps, x->arg, r));
done:
    return rc;
}

int bench_parts(device *dev, bench_steps *steps, void *arg, conr_bench_train_result *r) {
    double parts[PROFILE_KINDS], known = 0;
    profile_start(dev);
    double start = clock_now();
    int rc = steps(arg, 3, false);
    double total = clock_now() - start;
    profile_stop(dev, parts);
    if (rc < 0) return rc;
    r->n_parts = 0;
    for (int i = 0; i < PROFILE_KINDS; i++) {
        if (parts[i] == 0) continue;
        r->part[r->n_parts].name = profile_names[i];
        r->part[r->n_parts++].share = parts[i] / total;
        known += parts[i];
    }
    r->part[r->n_parts].name = "the rest";
    r->part[r->n_parts++].share = (total - known) / total;
    return 0;
}

/* Multiply-adds of the forward pass of one image through the layers before `end`. */
static double work_until(const network *net, int end) {
    double sum = 0;
    for (int i = 0; i < end; i++) {
        const layer *l = &net->layer[i];
        if (l->kind == LAYER_CONV) sum += (double)l->oh * l->ow * l->co * l->k * l->k * l->ci;
    }
    return sum;
}

/* A backward pass is twice the forward one, but the first layer needs no data gradient; a target
 * has no predictor and no backward. */
static double step_flops(const network *net, int images, bool target) {
    double forward = work_until(net, net->n_layers), first = work_until(net, 1);
    return 2.0 * images *
           (3 * forward - first + (target ? work_until(net, net->projector_end) : 0));
}

static int bench_network(conr *c, const conr_bench_train_options *o, conr_bench_train_result *out) {
    int rc = 0;
    plain b = {0};
    timed x = {.dev = c->dev, .seconds = o->seconds, .steps = plain_steps, .arg = &b};
    TRY(open_plain(c, o, &b));
    x.ranks = &c->ranks, x.dw = b.dw, x.n_weights = b.net.n_weights;
    TRY(measure(&x, out));
    out->flops =
        o->forward ? 2.0 * o->batch * network_work(&b.net) : step_flops(&b.net, o->batch, false);
    out->bytes = (double)b.bytes;
done:
    close_plain(&b);
    return rc;
}

static int bench_trainer(conr *c, const conr_bench_train_options *o, conr_bench_train_result *out) {
    int rc = 0;
    trainer_bench b = {0};
    timed x = {.dev = c->dev, .seconds = o->seconds, .steps = bench_trainer_steps};
    TRY(open_trainer_bench(c, o, &b));
    x.arg = b.t;
    x.ranks = &c->ranks, x.dw = b.t->dw, x.n_weights = b.t->net.n_weights;
    TRY(measure(&x, out));
    out->flops = step_flops(&b.t->net, 2 * o->batch, true);
    out->bytes = (double)b.t->bytes;
done:
    close_trainer_bench(&b);
    return rc;
}

int conr_bench_train(conr *c, const conr_bench_train_options *o, conr_bench_train_result *out) {
    *out = (conr_bench_train_result){0};
    if (o->forward && (o->byol || o->conr))
        return fail(CONR_EINVAL, "forward: a whole step goes backward, too; choose one of them");
    if (o->batch < 1) return fail(CONR_EINVAL, "batch %d: use at least 1", o->batch);
    out->images = o->batch;
    return o->byol || o->conr ? bench_trainer(c, o, out) : bench_network(c, o, out);
}
