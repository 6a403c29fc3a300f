/* loader_test.c: batches have the same bits for any number of workers.
 *
 *     loader_test                                  the tests
 *     loader_test --time SRC SIZE WORKERS STEPS    two views per image, batches of 256, as JSON */
#include "images/loader.h"

#include "base/rng.h"
#include "base/test_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* 37 gray images of 9 x 11 pixels: number i is all i in one corner. */
enum { N = 37, W = 9, H = 11 };

static void make_store(store *s, unsigned char *bytes, stored *list) {
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < W * H; k++) bytes[i * W * H + k] = (unsigned char)(i * 5 + k);
        list[i] = (stored){bytes + i * W * H, W, H};
    }
    *s = (store){.n = N, .c = 1, .image = list, .bytes = N * W * H};
}

static loader_options options(int workers) {
    loader_options o = {.seed = 9,
                        .size = 8,
                        .batch = 10,
                        .ranks = 1,
                        .workers = workers,
                        .ahead = 2,
                        .policy = draw_policy_default(),
                        .change = 1,
                        .norm = {{.5f}, {.25f}}};
    o.later = o.policy;
    o.later.scale_low = 0.45f;
    return o;
}

/* A checksum of some batches. */
static uint64_t run(const store *s, const loader_options *o, uint32_t epoch, int64_t step,
                    int count) {
    uint64_t sum = 0;
    loader *l;
    loaded b;
    assert_ok(loader_open(s, o, epoch, step, &l));
    for (int i = 0; i < count; i++) {
        assert_ok(loader_next(l, &b));
        assert_int_equal(b.n, o->batch / o->ranks);
        for (int v = 0; v < 2; v++)
            for (int k = 0; k < b.n * 64; k++) {
                uint32_t bits;
                memcpy(&bits, &b.view[v][k], 4);
                sum = (sum ^ bits) * 0x100000001B3u;
            }
        for (int k = 0; k < b.n; k++) sum = (sum ^ (uint32_t)b.id[k]) * 0x100000001B3u;
    }
    loader_close(l);
    return sum;
}

static void workers_make_no_difference(void **state) {
    (void)state;
    store s;
    unsigned char bytes[N * W * H];
    stored list[N];
    make_store(&s, bytes, list);
    loader_options o = options(1);
    uint64_t want = run(&s, &o, 0, 0, 8);
    for (int workers = 2; workers <= 5; workers++) {
        o = options(workers);
        o.ahead = workers;
        assert_int_equal(run(&s, &o, 0, 0, 8), want);
    }
    o.seed++;
    assert_int_not_equal(run(&s, &o, 0, 0, 8), want);
}

static void epochs_cover_all(void **state) {
    (void)state;
    store s;
    unsigned char bytes[N * W * H];
    stored list[N];
    loader *l;
    loaded b;
    make_store(&s, bytes, list);
    loader_options o = options(2);
    assert_ok(loader_open(&s, &o, 0, 0, &l));
    assert_int_equal(loader_steps(l), 3);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        int seen[N] = {0}, total = 0;
        for (int step = 0; step < 3; step++) {
            assert_ok(loader_next(l, &b));
            assert_int_equal(b.epoch, epoch);
            assert_int_equal(b.step, step);
            for (int i = 0; i < b.n; i++) assert_int_equal(seen[b.id[i]]++, 0);
            total += b.n;
        }
        assert_int_equal(total, 30); /* 37 mod 10 are left out */
    }
    loader_close(l);
}

/* Starting in the middle gives the same as continuing; ranks share a batch. */
static void resume_and_ranks(void **state) {
    (void)state;
    store s;
    unsigned char bytes[N * W * H];
    stored list[N];
    loader *l, *part[2];
    loaded b, c;
    make_store(&s, bytes, list);
    loader_options o = options(2);
    assert_ok(loader_open(&s, &o, 0, 0, &l));
    for (int i = 0; i < 5; i++) assert_ok(loader_next(l, &b)); /* epoch 1, step 1 */
    o.ranks = 2;
    for (o.rank = 0; o.rank < 2; o.rank++) assert_ok(loader_open(&s, &o, 1, 1, &part[o.rank]));
    for (int r = 0; r < 2; r++) {
        assert_ok(loader_next(part[r], &c));
        assert_int_equal(c.n, 5);
        assert_int_equal(c.epoch, 1);
        assert_memory_equal(c.id, b.id + 5 * r, 5 * sizeof *c.id);
        for (int v = 0; v < 2; v++)
            assert_memory_equal(c.view[v], b.view[v] + 5 * r * 64, 5 * 64 * sizeof(float));
        loader_close(part[r]);
    }
    loader_close(l);
}

/* A batch contains what draw and pixels make of the image, with the policy of its epoch. */
static void batches_hold_what_was_drawn(void **state) {
    (void)state;
    store s;
    unsigned char bytes[N * W * H];
    stored list[N];
    loader *l;
    loaded b;
    pixels *p;
    float want[64];
    make_store(&s, bytes, list);
    loader_options o = options(3);
    assert_ok(pixels_new(8, 1, &p));
    assert_ok(loader_open(&s, &o, 0, 2, &l));
    for (int turn = 0; turn < 2; turn++) {
        assert_ok(loader_next(l, &b));
        const draw_policy *policy = b.epoch >= 1 ? &o.later : &o.policy;
        for (int i = 0; i < b.n; i++)
            for (uint32_t v = 0; v < 2; v++) {
                draw d = draw_view(policy, 9, b.epoch, (uint32_t)b.id[i], v, W, H);
                assert_ok(pixels_view(p, list[b.id[i]].pixels, W, H, &d, &o.norm, want));
                assert_memory_equal(want, b.view[v] + i * 64, sizeof want);
            }
    }
    loader_close(l);
    pixels_free(p);
}

static void wrong_batches(void **state) {
    (void)state;
    store s;
    unsigned char bytes[N * W * H];
    stored list[N];
    loader *l;
    make_store(&s, bytes, list);
    loader_options o = options(1);
    o.batch = 38;
    assert_fails(CONR_EINVAL, "37 images", loader_open(&s, &o, 0, 0, &l));
    o.batch = 9, o.ranks = 2;
    assert_fails(CONR_EINVAL, "2 ranks", loader_open(&s, &o, 0, 0, &l));
    o.batch = 37, o.ranks = 1;
    assert_ok(loader_open(&s, &o, 0, 0, &l)); /* closed without taking anything */
    loader_close(l);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double core_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int time_views(const char *path, int size, int workers, int64_t steps) {
    source s;
    store st;
    loader *l;
    loaded b;
    double start = now();
    source_options from = {.threads = workers};
    store_options so = {.side = store_side_for(size), .threads = workers};
    if (source_open(path, &from, &s) < 0 || store_open(&s, &so, &st) < 0)
        return fprintf(stderr, "%s\n", conr_error()), 1;
    double loaded_in = now() - start;
    loader_options o = {
        .seed = 1, .size = size, .batch = 256, .ranks = 1, .workers = workers, .ahead = 3};
    o.policy = o.later = draw_policy_default();
    store_norm(&s, &st, workers, &o.norm);
    start = now();
    double cpu = core_seconds();
    if (loader_open(&st, &o, 0, 0, &l) < 0) return fprintf(stderr, "%s\n", conr_error()), 1;
    if (steps == 0) steps = loader_steps(l); /* an epoch */
    for (int64_t i = 0; i < steps; i++)
        if (loader_next(l, &b) < 0) return fprintf(stderr, "%s\n", conr_error()), 1;
    double took = now() - start, views = 2.0 * 256 * (double)steps;
    loader_close(l);
    cpu = core_seconds() - cpu;
    printf("{\"images\": %lld, \"load_seconds\": %.3f, \"workers\": %d, \"views\": %.0f, "
           "\"seconds\": %.3f, \"views_per_s\": %.0f, \"views_per_core_s\": %.0f}\n",
           (long long)st.n, loaded_in, workers, views, took, views / took, views / cpu);
    store_close(&st);
    source_close(&s);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 5 && !strcmp(argv[1], "--time"))
        return time_views(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_make_no_difference),
        cmocka_unit_test(epochs_cover_all),
        cmocka_unit_test(resume_and_ranks),
        cmocka_unit_test(batches_hold_what_was_drawn),
        cmocka_unit_test(wrong_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
