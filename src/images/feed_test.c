/* feed_test.c: what a feed brings has the same bits wherever the images are: made by workers of the
 * host, kept by the device, streamed to it. */
#include "images/feed_test_help.h"

/* With several ranks, which of them embeds an image depends on how many it takes at once, and the
 * host takes fewer. */
static void same_everywhere(const picture_set *p, feed_options o, uint32_t epoch, int64_t step,
                            int steps, int plain_after, const int32_t *table) {
    device *dev;
    size_t n, m;
    assert_ok(device_open("cpu", 2, &dev));
    o.place = o.load.ranks > 1 && plain_after >= 0 ? FEED_DEVICE : FEED_HOST;
    float *want = collect(dev, &p->s, &o, epoch, step, steps, plain_after, table, &n);
    for (; o.place <= FEED_STREAM; o.place++) {
        float *got = collect(dev, &p->s, &o, epoch, step, steps, plain_after, table, &m);
        assert_int_equal(m, n);
        assert_memory_equal(got, want, n * sizeof *want);
        free(got);
    }
    free(want);
    device_close(dev);
}

/* Into the second epoch, with another policy, and an embedding in the middle. */
static void places_do_not_change_bits(void **state) {
    (void)state;
    for (int c = 1; c <= 3; c += 2) {
        picture_set p;
        make_pictures(37, c, 30, &p);
        feed_options o = feed_options_of(16, 6);
        same_everywhere(&p, o, 0, 0, 14, 4, NULL);
        o.short_side = 20;
        same_everywhere(&p, o, 3, 5, 3, 0, NULL);
        same_everywhere(&p, o, 0, 2, 2, -1, NULL);
        drop_pictures(&p);
    }
}

static void parts_and_ranks_agree(void **state) {
    (void)state;
    picture_set p;
    make_pictures(50, 3, 20, &p);
    feed_options o = feed_options_of(16, 12);
    for (o.load.ranks = 1; o.load.ranks <= 3; o.load.ranks++)
        for (o.load.rank = 0; o.load.rank < o.load.ranks; o.load.rank++)
            for (o.load.parts = 1; o.load.parts <= 2; o.load.parts++)
                for (int plain = -1; plain <= 2; plain += 3)
                    same_everywhere(&p, o, 0, 1, 5, plain, NULL);
    drop_pictures(&p);
}

/* What several ranks embed is what one does: each takes its rows of every batch. */
static void ranks_share_the_images(void **state) {
    (void)state;
    enum { N = 50, BATCH = 12, RANKS = 3, AT_ONCE = STREAM_HELD * BATCH / RANKS };
    device *dev;
    picture_set p;
    size_t n, m, seen = 0, row = 16 * 16 * 3;
    make_pictures(N, 3, 20, &p);
    feed_options o = feed_options_of(16, BATCH);
    assert_ok(device_open("cpu", 2, &dev));
    o.place = FEED_HOST;
    float *want = collect(dev, &p.s, &o, 0, 0, 1, 0, NULL, &n), *all = want + n - N * row;
    o.place = FEED_STREAM, o.load.ranks = RANKS;
    for (o.load.rank = 0; o.load.rank < RANKS; o.load.rank++) {
        float *got = collect(dev, &p.s, &o, 0, 0, 1, 0, NULL, &m);
        size_t at = 3 * (size_t)(BATCH / RANKS) * row; /* the step */
        for (size_t i = 0; i < N; i++) {
            if ((int)(i / AT_ONCE % RANKS) != o.load.rank) continue;
            assert_memory_equal(got + at, all + i * row, row * sizeof *got);
            at += row, seen++;
        }
        assert_int_equal(at, m);
        free(got);
    }
    assert_int_equal(seen, N);
    free(want);
    device_close(dev);
    drop_pictures(&p);
}

/* The same image several times in a batch, and only the largest ones. */
static void images_may_repeat(void **state) {
    (void)state;
    enum { BATCH = 8, STEPS = 5, N = 44 };
    int32_t table[BATCH * STEPS];
    picture_set p;
    make_pictures(N, 3, 25, &p);
    feed_options o = feed_options_of(16, BATCH);
    for (int i = 0; i < BATCH * STEPS; i++) table[i] = i < 16 ? 7 : i * i % N;
    same_everywhere(&p, o, 1, 0, STEPS, 1, table);
    drop_pictures(&p);
}

/* A device in the host's memory has the loader's threads, whatever the limit. */
static void the_cpu_uses_the_loader(void **state) {
    (void)state;
    device *dev;
    feed f;
    picture_set p;
    make_pictures(20, 3, 20, &p);
    feed_options o = feed_options_of(16, 4);
    assert_ok(device_open("cpu", 2, &dev));
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "host");
    feed_close(&f);
    o.most = 1;
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "host");
    feed_close(&f);
    /* as if it had memory of its own */
    dev->host_memory = false;
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "streamed");
    feed_close(&f);
    o.most = 0;
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "device memory");
    feed_close(&f);
    dev->host_memory = true;
    device_close(dev);
    drop_pictures(&p);
}

static int no_ferry(device *dev, ferry *f, int slot, size_t bytes) {
    (void)dev, (void)f, (void)bytes;
    return slot == 2 ? fail(CONR_EDEVICE, "cuda: gone; start again") : 0;
}

/* An upload that fails is reported by a step, and the feed can be closed. */
static void a_failed_upload_is_reported(void **state) {
    (void)state;
    device *dev;
    feed f;
    picture_set p;
    make_pictures(20, 3, 20, &p);
    feed_options o = feed_options_of(16, 4);
    o.place = FEED_STREAM;
    assert_ok(device_open("cpu", 2, &dev));
    dev->op.ferry_send = no_ferry;
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_ok(feed_seek(&f, 0, 0, 1, NULL));
    int rc = 0;
    for (int i = 0; rc == 0 && i < 5; i++) rc = feed_next(&f, 0, i);
    assert_int_equal(rc, CONR_EDEVICE);
    assert_string_equal(conr_error(), "cuda: gone; start again");
    feed_close(&f);
    device_close(dev);
    drop_pictures(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_do_not_change_bits), cmocka_unit_test(parts_and_ranks_agree),
        cmocka_unit_test(ranks_share_the_images),    cmocka_unit_test(images_may_repeat),
        cmocka_unit_test(the_cpu_uses_the_loader),   cmocka_unit_test(a_failed_upload_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
