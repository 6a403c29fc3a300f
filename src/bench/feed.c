/* feed.c: the rate of a training on real images beside that of the step alone: whatever the images
 * cost, decoded, brought to the device and made into views of many sizes, shows in the
 * difference. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/status.h"
#include "images/images.h"

#include <stdio.h>

conr_bench_feed_options conr_bench_feed_defaults(void) {
    return (conr_bench_feed_options){.train = conr_bench_train_defaults()};
}

static int set_all(const conr_bench_feed_options *o, conr_settings *s) {
    int rc = 0;
    char text[32];
    TRY(bench_settings(&o->train, s));
    snprintf(text, sizeof text, "%g", o->blur);
    TRY(conr_settings_set(s, "blur", text));
    snprintf(text, sizeof text, "%d", o->device_images);
    TRY(conr_settings_set(s, "device_images", text));
done:
    return rc;
}

/* Steps as a run makes them: all of them count, and now and then the loss is fetched. */
static int time_steps(trainer *t, double seconds, conr_bench_feed_result *r) {
    int rc = 0;
    double loss, inside = 0;
    TRY(bench_trainer_steps(t, 5, true)); /* pages, choice of kernels, the recording */
    double waited = feed_waited(&t->feed), start = clock_now();
    do {
        double before = clock_now();
        TRY(trainer_step(t));
        inside += clock_now() - before;
        if (++r->steps % t->o.log_every == 0) TRY(trainer_loss(t, &loss));
    } while (r->steps < 20 || clock_now() - start < seconds);
    TRY(t->dev->op.sync(t->dev));
    r->seconds = (clock_now() - start) / r->steps;
    r->waited = (feed_waited(&t->feed) - waited) / r->steps;
    r->queueing = inside / r->steps - r->waited;
done:
    return rc;
}

/* All images; twice, as the first time chooses kernels. */
static int time_embedding(trainer *t, double *each) {
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        t->featured = -1;
        double start = clock_now();
        TRY(trainer_features(t));
        TRY(t->dev->op.sync(t->dev));
        *each = (clock_now() - start) / (double)t->store->n;
    }
done:
    return rc;
}

static int time_training(conr *c, const store *s, const pixels_norm *norm,
                         const conr_bench_feed_options *o, conr_bench_feed_result *r) {
    int rc = 0;
    trainer *t = NULL;
    conr_settings *settings = NULL;
    conr_bench_train_result parts = {0};
    TRY(conr_settings_new(&settings));
    TRY(set_all(o, settings));
    TRY(trainer_open(c, s, norm, &settings->o, &t));
    TRY(trainer_seek(t));
    r->fed = feed_words(&t->feed);
    r->bytes = (double)t->feed.bytes;
    TRY(time_steps(t, o->train.seconds, r));
    if (c->dev->op.moment) TRY(time_embedding(t, &r->embedding));
    TRY(bench_parts(c->dev, bench_trainer_steps, t, &parts));
    for (r->n_parts = 0; r->n_parts < parts.n_parts; r->n_parts++) {
        r->part[r->n_parts].name = parts.part[r->n_parts].name;
        r->part[r->n_parts].share = parts.part[r->n_parts].share;
    }
done:
    trainer_close(t);
    conr_settings_free(settings);
    return rc;
}

int conr_bench_feed(conr *c, conr_images *images, const conr_bench_feed_options *o,
                    conr_bench_feed_result *out) {
    int rc = 0;
    store s = {0};
    pixels_norm norm;
    conr_bench_train_options alone = o->train;
    store_options so = {.side = store_side_for(o->train.size), .threads = c->dev->threads};
    *out = (conr_bench_feed_result){0};
    if (o->train.batch < 1) return fail(CONR_EINVAL, "batch %d: use at least 1", o->train.batch);
    double start = clock_now();
    TRY(store_open(&images->source, &so, &s));
    out->load = clock_now() - start;
    out->images = (double)s.n, out->stored = s.words;
    store_norm(&images->source, &s, c->dev->threads, &norm);
    alone.byol = 1, alone.conr = 0, alone.channels = s.c;
    TRY(conr_bench_train(c, &alone, &out->step));
    TRY(time_training(c, &s, &norm, o, out));
done:
    store_close(&s);
    return rc;
}
