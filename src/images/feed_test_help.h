/* feed_test_help.h: images of many sizes, and all that a feed makes of them in some steps. */
#ifndef CONR_FEED_TEST_HELP_H
#define CONR_FEED_TEST_HELP_H

#include "base/rng.h"
#include "base/test_help.h"
#include "images/feed.h"

#include <stdlib.h>

typedef struct picture_set {
    store s;
    unsigned char *bytes;
} picture_set;

/* n images of 5 to side x 2 side pixels. */
static void make_pictures(int n, int c, int side, picture_set *out) {
    size_t total = 0, one = (size_t)(2 * side * side * c);
    rng r = rng_at(31, 0, (uint32_t)side, RNG_TEST);
    *out = (picture_set){.s = {.n = n, .c = c}};
    out->bytes = malloc((size_t)n * one);
    out->s.image = calloc((size_t)n, sizeof *out->s.image);
    assert_non_null(out->bytes);
    assert_non_null(out->s.image);
    for (int i = 0; i < n; i++) {
        int w = 5 + (int)rng_below(&r, (uint32_t)(2 * side - 4));
        int h = 5 + (int)rng_below(&r, (uint32_t)(side - 4));
        out->s.image[i] = (stored){out->bytes + total, (uint16_t)w, (uint16_t)h};
        for (size_t k = 0; k < (size_t)(w * h * c); k++)
            out->bytes[total + k] = (unsigned char)rng_below(&r, 256);
        total += (size_t)(w * h * c);
    }
    out->s.bytes = total;
}

static void drop_pictures(picture_set *p) {
    free(p->s.image);
    free(p->bytes);
}

static feed_options feed_options_of(int size, int batch) {
    feed_options o = {.load = {.seed = 3,
                               .size = size,
                               .batch = batch,
                               .ranks = 1,
                               .parts = 1,
                               .workers = 2,
                               .ahead = 2,
                               .policy = draw_policy_default(),
                               .norm = {{.5f, .4f, .3f}, {.25f, .2f, .3f}}}};
    o.load.policy.blur = 0.3f;
    o.load.policy.solarize = 0.2f;
    o.load.later = o.load.policy;
    o.load.later.scale_low = 0.45f;
    return o;
}

typedef struct collector {
    feed f;
    device *dev;
    act *images;
    step_values *at;
    bool stage2, plain;
} collector;

static int make_batch(void *arg) {
    collector *c = arg;
    return c->plain ? feed_plain(&c->f, c->at, c->images)
                    : feed_views(&c->f, c->at, c->stage2, c->images);
}

static void *on_device(device *dev, size_t bytes) {
    void *p;
    assert_ok(dev->op.alloc(dev, bytes, &p));
    return p;
}

/* Steps from (epoch, step) on, and all images without augmentation after `plain_after` of them (< 0:
 * never); the values of all of them, one after the other, plain ones by image.  Like the trainer, it
 * records what the device does and does not wait for it.  The caller frees the result. */
static float *collect(device *dev, const store *s, const feed_options *o, uint32_t epoch,
                      int64_t step, int steps, int plain_after, const int32_t *table,
                      size_t *count) {
    collector c = {.dev = dev};
    recording *made = NULL, *plain = NULL;
    assert_ok(feed_open(dev, s, o, &c.f));
    size_t batch = 3 * (size_t)c.f.own * c.f.row, rows = (size_t)c.f.plain * c.f.row, at = 0;
    size_t most = (size_t)steps * batch + (size_t)s->n * c.f.row;
    act *all = on_device(dev, most * dev->act_size);
    float *out = malloc(most * sizeof *out);
    assert_non_null(out);
    c.images = on_device(dev, (batch > rows ? batch : rows) * dev->act_size);
    c.at = on_device(dev, sizeof *c.at);
    assert_ok(feed_seek(&c.f, epoch, step, 1, table));
    for (int i = 0; i < steps; i++) {
        int64_t now = (int64_t)epoch * c.f.steps + step + i;
        step_values values = {.epoch = (uint32_t)(now / c.f.steps)};
        c.stage2 = values.epoch >= 1, c.plain = false;
        if (i > 0 && c.stage2 && now % c.f.steps == 0 && values.epoch == 1)
            dev->op.recording_free(dev, made), made = NULL; /* another policy */
        assert_ok(feed_next(&c.f, values.epoch, now % c.f.steps));
        assert_ok(dev->op.put(dev, c.at, &values, sizeof values));
        assert_ok(dev->op.repeat(dev, make_batch, &c, &made));
        assert_ok(dev->op.copy(dev, act_at(dev, all, at), c.images, batch * dev->act_size));
        at += batch;
        if (i != plain_after) continue;
        c.plain = true;
        for (int64_t first = 0; first < s->n; first += (int64_t)c.f.plain * o->load.ranks) {
            int64_t mine = first + (int64_t)o->load.rank * c.f.plain, n = s->n - mine;
            if (n > c.f.plain) n = c.f.plain;
            assert_ok(feed_plain_next(&c.f, first));
            assert_ok(dev->op.repeat(dev, make_batch, &c, &plain));
            if (n <= 0) continue;
            size_t bytes = (size_t)n * c.f.row * dev->act_size;
            assert_ok(dev->op.copy(dev, act_at(dev, all, at), c.images, bytes));
            at += (size_t)n * c.f.row;
        }
    }
    float *floats = on_device(dev, at * sizeof *floats);
    assert_ok(dev->op.act_to(dev, all, at, floats));
    assert_ok(dev->op.get(dev, out, floats, at * sizeof *floats));
    dev->op.free(dev, floats);
    dev->op.free(dev, all);
    *count = at;
    dev->op.recording_free(dev, made);
    dev->op.recording_free(dev, plain);
    dev->op.free(dev, c.images);
    dev->op.free(dev, c.at);
    feed_close(&c.f);
    return out;
}

#endif
