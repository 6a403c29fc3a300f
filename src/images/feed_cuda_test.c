/* feed_cuda_test.c: images on a GPU: kept there and streamed to it give the same bits, and those of
 * the host within rounding; images far into a large block of memory.  Needs a GPU. */
#include "images/feed_test_help.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double difference(const float *a, const float *b, size_t n) {
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) d += pow((double)a[i] - b[i], 2), s += pow(b[i], 2);
    return sqrt(d / (s > 0 ? s : 1));
}

/* bound: rounding, as for the cases of views */
static void check_places(const char *name, int c, int size, int side, int n, int batch, int steps,
                         double bound) {
    device *dev, *cpu;
    picture_set p;
    size_t m, k;
    make_pictures(n, c, side, &p);
    feed_options o = feed_options_of(size, batch);
    o.short_side = side % 2 ? 0 : size + 8;
    o.load.workers = 4;
    assert_ok(device_open(name, 4, &dev));
    assert_ok(device_open("cpu", 0, &cpu));
    float *want = collect(cpu, &p.s, &o, 0, 0, steps, steps / 3, NULL, &m);
    o.place = FEED_DEVICE;
    float *kept = collect(dev, &p.s, &o, 0, 0, steps, steps / 3, NULL, &k);
    assert_int_equal(k, m);
    double e = difference(kept, want, m);
    print_message("%s, %d images to %d pixels: error %.2g\n", name, n, size, e);
    assert_true(e <= bound);
    for (int again = 0; again < 3; again++) {
        o.place = FEED_STREAM;
        o.load.workers = 1 + again;
        float *streamed = collect(dev, &p.s, &o, 0, 0, steps, steps / 3, NULL, &k);
        assert_int_equal(k, m);
        assert_memory_equal(streamed, kept, m * sizeof *kept);
        free(streamed);
    }
    free(want), free(kept);
    drop_pictures(&p);
    device_close(dev);
    device_close(cpu);
}

static void places_do_not_change_bits(void **state) {
    (void)state;
    check_places("cuda-f32", 3, 32, 41, 300, 32, 40, 1e-5);
    check_places("cuda-f32", 1, 28, 30, 300, 32, 40, 1e-5);
    check_places("cuda-f32", 3, 96, 131, 200, 32, 20, 1e-5);
    check_places("cuda", 3, 96, 130, 400, 64, 24, 5e-3);
    check_places("cuda", 3, 224, 250, 96, 32, 9, 5e-3);
}

/* A limit decides whether they are kept; what the host would have to make is not. */
static void a_limit_forces_streaming(void **state) {
    (void)state;
    device *dev;
    feed f;
    picture_set p;
    make_pictures(40, 3, 60, &p);
    feed_options o = feed_options_of(32, 8);
    assert_ok(device_open("cuda", 2, &dev));
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "device memory");
    feed_close(&f);
    o.most = 1000;
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "streamed");
    feed_close(&f);
    o.load.size = 4096; /* blurred, that is more than shared memory takes */
    assert_ok(feed_open(dev, &p.s, &o, &f));
    assert_string_equal(feed_words(&f), "host");
    feed_close(&f);
    device_close(dev);
    drop_pictures(&p);
}

/* The same image at the start of a block of 9 GiB, and beyond 2, 4 and 8 GiB: the same views. */
static void images_may_be_far_away(void **state) {
    (void)state;
    enum { W = 50, H = 41, SIZE = 32, ROWS = 4 };
    const size_t total = (size_t)9 << 30;
    const uint64_t place[ROWS] = {0, ((uint64_t)1 << 31) + 5, ((uint64_t)1 << 32) + 3,
                                  total - W * H * 3 - VIEWS_PAD};
    device *dev;
    unsigned char image[W * H * 3], *block;
    views_row rows[ROWS];
    step_values values = {.epoch = 4};
    assert_ok(device_open("cuda-f32", 1, &dev));
    if (dev->memory < total + ((size_t)1 << 30)) {
        device_close(dev);
        skip();
    }
    block = on_device(dev, total);
    for (int i = 0; i < W * H * 3; i++) image[i] = (unsigned char)(i * 7 + i / 50);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = (views_row){place[i], 12, W, H};
        assert_ok(dev->op.put(dev, block + place[i], image, sizeof image));
    }
    views_job job = {
        .pixels = block, .c = 3, .size = SIZE, .policy = draw_policy_default(), .seed = 1};
    for (int k = 0; k < 3; k++) job.norm.deviation[k] = 1;
    views_bound(&job, &job.policy, W, H);
    views_row *rows_on = on_device(dev, sizeof rows);
    step_values *at = on_device(dev, sizeof *at);
    size_t one = SIZE * SIZE * 3;
    act *out = on_device(dev, ROWS * one * dev->act_size);
    float *got = malloc(ROWS * one * sizeof *got);
    assert_non_null(got);
    assert_ok(dev->op.put(dev, rows_on, rows, sizeof rows));
    assert_ok(dev->op.put(dev, at, &values, sizeof values));
    for (int blur = 0; blur < 2; blur++)
        for (int view = 0; view < 3; view++) {
            job.policy.blur = (float)blur;
            assert_ok(dev->op.views(dev, at, &job, rows_on, ROWS, view, out));
            assert_ok(dev->op.get(dev, got, out, ROWS * one * sizeof *got));
            for (int i = 1; i < ROWS; i++)
                assert_memory_equal(got + (size_t)i * one, got, one * sizeof *got);
            double sum = 0;
            for (size_t i = 0; i < one; i++) sum += got[i];
            assert_true(sum / (double)one > 0.2 && sum / (double)one < 0.8);
        }
    free(got);
    void *all[] = {block, rows_on, at, out};
    for (int i = 0; i < 4; i++) dev->op.free(dev, all[i]);
    device_close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_do_not_change_bits),
        cmocka_unit_test(a_limit_forces_streaming),
        cmocka_unit_test(images_may_be_far_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
