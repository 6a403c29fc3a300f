/* pixels_test.c: pixels of views against torchvision, draws against its distributions.
 *
 *     pixels_test                                   the tests
 *     pixels_test --time [SIDE [SIZE [C [BLUR]]]]   views per second of SIDE x SIDE images with C
 *                                                   channels at SIZE x SIZE, blurred with
 *                                                   probability BLUR */
#include "views/pixels.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/tensors.h"
#include "base/test_help.h"
#include "views/pixels_resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- golden files ---------------------------------------------------------------------------- */

static const tensor *find(const tensors *t, const char *kind, int i, const char *name) {
    char full[64];
    snprintf(full, sizeof full, name ? "%s.%d.%s" : "%s.%d", kind, i, name);
    return tensors_find(t, full);
}

static float *take(const tensors *t, const tensor *x) {
    float *out = memory_new("golden", x->count, sizeof *out);
    assert_non_null(out);
    assert_ok(tensors_floats(t, x, out));
    return out;
}

static void take_into(const tensors *t, const char *kind, int i, const char *name, float *out) {
    const tensor *x = find(t, kind, i, name);
    assert_non_null(x);
    assert_ok(tensors_floats(t, x, out));
}

/* The golden image i as bytes. */
static unsigned char *take_image(const tensors *t, int i, int *w, int *h, int *c) {
    const tensor *x = find(t, "image", i, NULL);
    float *values = take(t, x);
    unsigned char *out = malloc(x->count);
    assert_non_null(out);
    for (size_t k = 0; k < x->count; k++) out[k] = (unsigned char)values[k];
    free(values);
    *h = (int)x->dim[0], *w = (int)x->dim[1], *c = (int)x->dim[2];
    return out;
}

static draw draw_of(const float v[18]) {
    return (draw){.x = (int)v[0],
                  .y = (int)v[1],
                  .w = (int)v[2],
                  .h = (int)v[3],
                  .flip = (int)v[4],
                  .jitter = (int)v[5],
                  .gray = (int)v[6],
                  .blur = (int)v[7],
                  .solarize = (int)v[8],
                  .order = {(int)v[9], (int)v[10], (int)v[11], (int)v[12]},
                  .brightness = v[13],
                  .contrast = v[14],
                  .saturation = v[15],
                  .hue = v[16],
                  .sigma = v[17]};
}

/* Both sides compute in float, in different orders: some units of 2^-24 per operation, of which
 * blur has the most.  1e-5 is 1/400 of an 8-bit level; the goal is 1 level on average, 3 at
 * most. Normalized values are up to 5 times larger than pixels. */
static void compare(const char *kind, int i, const float *got, const tensors *t, size_t n,
                    double bound) {
    const tensor *x = find(t, kind, i, "out");
    double most = 0, mean = 0;
    assert_int_equal(x->count, n);
    float *want = take(t, x);
    for (size_t k = 0; k < n; k++) {
        double e = fabs((double)got[k] - want[k]);
        if (!(e <= most)) most = e; /* NaN too */
        mean += e / (double)n;
    }
    free(want);
    if (!(most <= bound)) fail_msg("%s.%d: %.3g apart, %.3g on average", kind, i, most, mean);
}

static void views_are_torchvisions(void **state) {
    (void)state;
    tensors t;
    int n = 0;
    assert_ok(tensors_open(golden_path("views.safetensors"), &t));
    for (; find(&t, "view", n, "draw"); n++) {
        float v[18], shape[2], m[6];
        int w, h, c;
        take_into(&t, "view", n, "draw", v);
        take_into(&t, "view", n, "shape", shape);
        take_into(&t, "view", n, "norm", m);
        unsigned char *image = take_image(&t, (int)shape[0], &w, &h, &c);
        int size = (int)shape[1];
        size_t count = (size_t)size * (size_t)size * (size_t)c;
        pixels_norm norm = {{m[0], m[1], m[2]}, {m[3], m[4], m[5]}};
        float *out = memory_new("view", count, sizeof *out);
        draw d = draw_of(v);
        pixels *p;
        assert_ok(pixels_new(size, c, &p));
        assert_ok(pixels_view(p, image, w, h, &d, &norm, out));
        compare("view", n, out, &t, count, m[3] < 1 ? 5e-5 : 1e-5);
        pixels_free(p);
        free(out);
        free(image);
    }
    assert_int_equal(n, 20);
    tensors_close(&t);
}

static void plain_images_are_torchvisions(void **state) {
    (void)state;
    tensors t;
    int n = 0;
    assert_ok(tensors_open(golden_path("views.safetensors"), &t));
    for (; find(&t, "plain", n, "out"); n++) {
        float shape[3], m[6];
        int w, h, c;
        take_into(&t, "plain", n, "shape", shape);
        take_into(&t, "plain", n, "norm", m);
        unsigned char *image = take_image(&t, (int)shape[0], &w, &h, &c);
        int size = (int)shape[1];
        size_t count = (size_t)size * (size_t)size * (size_t)c;
        pixels_norm norm = {{m[0], m[1], m[2]}, {m[3], m[4], m[5]}};
        float *out = memory_new("view", count, sizeof *out);
        pixels *p;
        assert_ok(pixels_new(size, c, &p));
        assert_ok(pixels_plain(p, image, w, h, (int)shape[2], &norm, out));
        compare("plain", n, out, &t, count, m[3] < 1 ? 5e-5 : 1e-5);
        pixels_free(p);
        free(out);
        free(image);
    }
    assert_int_equal(n, 7);
    tensors_close(&t);
}

/* ---- distributions --------------------------------------------------------------------------- */

/* Kolmogorov-Smirnov: with 100,000 draws on either side two samples of one distribution are
 * farther apart than 0.012 with a probability of 1e-6 (2.69 sqrt(2 / 100000)).  The seeds are
 * fixed, so this test passes always or never. */
enum { DRAWS = 100000, GRID = 40 };
static const double apart_at_most = 0.0121;

static void check_cdf(const char *what, int column, const float *ours, const float *values,
                      const float *cdf) {
    for (int g = 0; g < GRID; g++) {
        int n = 0;
        for (int i = 0; i < DRAWS; i++)
            n += ours[i] <= values[g] + 2e-6f * fabsf(values[g]) + 1e-7f;
        if (fabs((double)n / DRAWS - cdf[g]) > apart_at_most)
            fail_msg("%s, column %d: %.4f of draws are <= %g, torchvision has %.4f", what, column,
                     (double)n / DRAWS, values[g], cdf[g]);
    }
}

static void crops_are_distributed_as_torchvisions(void **state) {
    (void)state;
    tensors t;
    int n = 0;
    float *ours = memory_new("draws", 4 * DRAWS, sizeof *ours);
    assert_non_null(ours);
    assert_ok(tensors_open(golden_path("draws.safetensors"), &t));
    for (; find(&t, "crop", n, "shape"); n++) {
        float shape[2], scale[2], fallback, values[4 * GRID], cdf[4 * GRID];
        take_into(&t, "crop", n, "shape", shape);
        take_into(&t, "crop", n, "scale", scale);
        take_into(&t, "crop", n, "fallback", &fallback);
        take_into(&t, "crop", n, "values", values);
        take_into(&t, "crop", n, "cdf", cdf);
        int w = (int)shape[0], h = (int)shape[1], central = 0;
        int fw = (int)lrint(h * 4 / 3.0) < w ? (int)lrint(h * 4 / 3.0) : w;
        int fh = (int)lrint(w * 4 / 3.0) < h ? (int)lrint(w * 4 / 3.0) : h;
        draw_policy p = draw_policy_default();
        p.scale_low = scale[0], p.scale_high = scale[1];
        for (int i = 0; i < DRAWS; i++) {
            draw d = draw_view(&p, 11, (uint32_t)n, (uint32_t)i, RNG_VIEW_A, w, h);
            ours[i] = (float)((double)d.w * d.h / ((double)w * h));
            ours[DRAWS + i] = logf((float)d.w / (float)d.h);
            ours[2 * DRAWS + i] = (float)d.x;
            ours[3 * DRAWS + i] = (float)d.y;
            central += d.w == fw && d.h == fh && d.x == (w - fw) / 2 && d.y == (h - fh) / 2;
        }
        for (int k = 0; k < 4; k++)
            check_cdf("crop", k, ours + k * DRAWS, values + k * GRID, cdf + k * GRID);
        /* 4.9 standard deviations of the difference of two shares: 1e-6 */
        double share = (double)central / DRAWS;
        double sd = sqrt(fmax(share * (1 - share), 1e-5) * 2 / DRAWS);
        if (fabs(share - fallback) > 4.9 * sd)
            fail_msg("crop %d: %.4f fall back, torchvision has %.4f", n, share, fallback);
    }
    assert_int_equal(n, 4);
    tensors_close(&t);
    free(ours);
}

static void colors_are_distributed_as_torchvisions(void **state) {
    (void)state;
    tensors t;
    float values[4 * GRID], cdf[4 * GRID], first[16], chance[5];
    double place[16] = {0}, share[5] = {0};
    float *ours = memory_new("draws", 4 * DRAWS, sizeof *ours);
    assert_non_null(ours);
    assert_ok(tensors_open(golden_path("draws.safetensors"), &t));
    assert_ok(tensors_take(&t, "jitter.values", 2, (int64_t[]){4, GRID}, values));
    assert_ok(tensors_take(&t, "jitter.cdf", 2, (int64_t[]){4, GRID}, cdf));
    assert_ok(tensors_take(&t, "jitter.first", 2, (int64_t[]){4, 4}, first));
    assert_ok(tensors_take(&t, "chance", 1, (int64_t[]){5}, chance));
    draw_policy p = draw_policy_default();
    p.blur = 0.5f, p.solarize = 0.2f;
    for (int i = 0; i < DRAWS; i++) {
        draw d = draw_view(&p, 12, 3, (uint32_t)i, RNG_VIEW_B, 32, 32);
        ours[i] = d.brightness, ours[DRAWS + i] = d.contrast;
        ours[2 * DRAWS + i] = d.saturation, ours[3 * DRAWS + i] = d.hue;
        for (int k = 0; k < 4; k++) place[4 * k + d.order[k]] += 1.0 / DRAWS;
        int is[5] = {d.flip, d.jitter, d.gray, d.blur, d.solarize};
        for (int k = 0; k < 5; k++) share[k] += (double)is[k] / DRAWS;
    }
    for (int k = 0; k < 4; k++)
        check_cdf("jitter", k, ours + k * DRAWS, values + k * GRID, cdf + k * GRID);
    /* 4.9 standard deviations (1e-6) of shares from 100,000 draws each; chances from 25,000 */
    for (int k = 0; k < 16; k++) assert_true(fabs(place[k] - first[k]) < 4.9 * 0.433 * sqrt(2e-5));
    for (int k = 0; k < 5; k++) assert_true(fabs(share[k] - chance[k]) < 4.9 * 0.5 * sqrt(5e-5));
    tensors_close(&t);
    free(ours);
}

/* ---- other promises -------------------------------------------------------------------------- */

static void a_flip_mirrors(void **state) {
    (void)state;
    unsigned char image[10 * 8 * 3];
    float a[8 * 8 * 3], b[8 * 8 * 3];
    pixels *p;
    pixels_norm norm = {{0}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof image; i++) image[i] = (unsigned char)(i * 37);
    draw d = {.x = 1, .y = 1, .w = 7, .h = 6};
    assert_ok(pixels_new(8, 3, &p));
    assert_ok(pixels_view(p, image, 10, 8, &d, &norm, a));
    d.flip = 1;
    assert_ok(pixels_view(p, image, 10, 8, &d, &norm, b));
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++)
            assert_memory_equal(a + (y * 8 + x) * 3, b + (y * 8 + 7 - x) * 3, 3 * sizeof *a);
    pixels_free(p);
}

/* An image of the right size is unchanged; a flat one stays flat at any size. */
static void plain_keeps(void **state) {
    (void)state;
    unsigned char image[20 * 20 * 3], flat[31 * 7];
    float out[20 * 20 * 3];
    pixels *p;
    pixels_norm norm = {{0}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof image; i++) image[i] = (unsigned char)(i * 53);
    memset(flat, 200, sizeof flat);
    assert_ok(pixels_new(20, 3, &p));
    assert_ok(pixels_plain(p, image, 20, 20, 0, &norm, out));
    for (size_t i = 0; i < sizeof image; i++)
        assert_true(fabsf(out[i] - (float)image[i] / 255) < 1e-6f);
    pixels_free(p);
    assert_ok(pixels_new(20, 1, &p));
    for (int side = 0; side < 60; side += 25) {
        assert_ok(pixels_plain(p, flat, 31, 7, side, &norm, out));
        for (int i = 0; i < 400; i++) assert_true(fabsf(out[i] - 200 / 255.0f) < 1e-6f);
    }
    pixels_free(p);
}

static void bytes_are_resized(void **state) {
    (void)state;
    unsigned char image[64 * 48], out[16 * 12];
    resizer r = {0};
    for (int y = 0; y < 48; y++)
        for (int x = 0; x < 64; x++) image[y * 64 + x] = (unsigned char)(2 * x + y);
    assert_ok(resizer_bytes(&r, PIXELS_BICUBIC, image, 64, 48, 1, 16, 12, out));
    for (int y = 1; y < 11; y++) /* a ramp stays a ramp, away from the edges */
        for (int x = 1; x < 15; x++)
            assert_true(abs(out[y * 16 + x] - (int)lrint(2 * (4 * x + 1.5) + 4 * y + 1.5)) <= 1);
    assert_ok(resizer_bytes(&r, PIXELS_BILINEAR, image, 64, 48, 1, 1, 1, out));
    assert_in_range(out[0], 84, 89); /* the mean is 86.5 */
    /* a window of 600 rows, whose weights would vanish as integers */
    unsigned char *tall = malloc(1200 * 2);
    assert_non_null(tall);
    memset(tall, 77, 1200 * 2);
    assert_ok(resizer_bytes(&r, PIXELS_BICUBIC, tall, 2, 1200, 1, 1, 2, out));
    assert_int_equal(out[0], 77);
    assert_int_equal(out[1], 77);
    free(tall);
    resizer_free(&r);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* this thread only, whatever else runs */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int time_views(int side, int size, int c, float blur) {
    enum { IMAGES = 64 };
    size_t bytes = (size_t)side * (size_t)side * (size_t)c;
    unsigned char *images = malloc(IMAGES * bytes);
    float *out = memory_new("view", (size_t)size * (size_t)size * (size_t)c, sizeof *out);
    pixels_norm norm = {{.5f, .5f, .5f}, {.2f, .2f, .2f}};
    draw_policy policy = draw_policy_default();
    pixels *p = NULL;
    double best = 1e30;
    if (!images || !out || pixels_new(size, c, &p) < 0) return 1;
    policy.blur = blur;
    rng r = rng_at(1, 0, 0, RNG_TEST);
    for (size_t i = 0; i < IMAGES * bytes; i++) images[i] = (unsigned char)rng_bits(&r);
    int count = 40000000 / (size * size * c);
    for (int turn = 0; turn < 5; turn++) {
        double start = now();
        for (int i = 0; i < count; i++) {
            draw d = draw_view(&policy, 1, 0, (uint32_t)i, RNG_VIEW_A, side, side);
            if (pixels_view(p, images + (size_t)(i % IMAGES) * bytes, side, side, &d, &norm, out) <
                0)
                return 1;
        }
        double took = (now() - start) / count;
        if (took < best) best = took;
    }
    printf("{\"side\": %d, \"size\": %d, \"channels\": %d, \"blur\": %g, \"views_per_s\": %.0f}\n",
           side, size, c, blur, 1 / best);
    pixels_free(p);
    free(images);
    free(out);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--time"))
        return time_views(argc > 2 ? atoi(argv[2]) : 32, argc > 3 ? atoi(argv[3]) : 32,
                          argc > 4 ? atoi(argv[4]) : 3, argc > 5 ? (float)atof(argv[5]) : 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_torchvisions),
        cmocka_unit_test(plain_images_are_torchvisions),
        cmocka_unit_test(crops_are_distributed_as_torchvisions),
        cmocka_unit_test(colors_are_distributed_as_torchvisions),
        cmocka_unit_test(a_flip_mirrors),
        cmocka_unit_test(plain_keeps),
        cmocka_unit_test(bytes_are_resized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
