/* describe_test.c: the descriptor against NumPy's, and what it promises about sets of images. */
#include "base/test_help.h"

#include "base/npy.h"
#include "base/tensors.h"
#include "describe/describe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tensors file;

static const tensor *find(const char *name) {
    const tensor *t = tensors_find(&file, name);
    if (!t) fail_msg("describe.safetensors lacks %s", name);
    return t;
}

/* The images of golden/make_describe.py. */
static unsigned char *draw_image(int h, int w, int c, bool flat) {
    unsigned char *out = malloc((size_t)h * w * c), *to = out;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                *to++ =
                    flat ? 77
                         : (x * (3 + 2 * k) + y * (5 + k) + x / 9 * (y / 7) * 13 * (k + 1)) % 256;
    return out;
}

static float *describe_one(const unsigned char *image, int h, int w, int c) {
    describer *d;
    float *out = malloc(DESCRIBE_SIZE * sizeof *out);
    assert_ok(describer_new(c, &d));
    assert_ok(describe_image(d, image, w, h, out));
    describer_free(d);
    return out;
}

/* Sums of a few thousand floats, and two resizings that round differently: 1e-5.  A texture that
 * counts one pixel otherwise is off by 1e-3. */
static void as_numpy(void **state) {
    (void)state;
    static const char *const name[] = {"gradients", "layout", "colors", "texture"};
    static const int cut[] = {0, 90, 120, 248, 484};
    const tensor *shapes = find("shape"), *whole = find("whole");
    assert_int_equal(DESCRIBE_SIZE, cut[4]);
    int cases = (int)shapes->count / 3;
    assert_true(cases >= 6);
    for (int i = 0; i < cases; i++) {
        int32_t shape[3];
        float wanted[DESCRIBE_SIZE];
        memcpy(shape, (const char *)shapes->data + i * sizeof shape, sizeof shape);
        memcpy(wanted, (const char *)whole->data + i * sizeof wanted, sizeof wanted);
        unsigned char *image = draw_image(shape[0], shape[1], shape[2], i == cases - 1);
        float *got = describe_one(image, shape[0], shape[1], shape[2]);
        for (int p = 0; p < 4; p++)
            assert_close(name[p], got + cut[p], wanted + cut[p], cut[p + 1] - cut[p], 1e-5);
        free(image);
        free(got);
    }
}

/* The first values of all, before anything is scaled: an error there is easier to find. */
static void parts_as_numpy(void **state) {
    (void)state;
    const tensor *parts = find("parts");
    describe_plane *rgb = calloc(3, sizeof *rgb);
    float got[DESCRIBE_SIZE], wanted[DESCRIBE_SIZE];
    memcpy(wanted, parts->data, sizeof wanted);
    unsigned char *image = draw_image(64, 64, 3, false);
    for (int k = 0; k < 3; k++)
        for (int y = -1; y <= 64; y++)
            for (int x = -1; x <= 64; x++) {
                int row = y < 0 ? 0 : y > 63 ? 63 : y, column = x < 0 ? 0 : x > 63 ? 63 : x;
                rgb[k].at[y + 1][x + 1] = (float)image[(row * 64 + column) * 3 + k] / 255;
            }
    describe_gradients(rgb, got);
    describe_colors(rgb, got + 90, got + 120);
    describe_texture(rgb, got + 248);
    for (int i = 120; i < DESCRIBE_SIZE; i++) got[i] = sqrtf(got[i]);
    assert_close("gradients", got, wanted, 90, 1e-5);
    assert_close("layout", got + 90, wanted + 90, 30, 1e-5);
    assert_close("colors", got + 120, wanted + 120, 128, 1e-5);
    assert_close("texture", got + 248, wanted + 248, 236, 1e-6);
    free(image);
    free(rgb);
}

/* Gray is three equal channels; one color all over has no gradients, and gives numbers too. */
static void gray_and_flat(void **state) {
    (void)state;
    unsigned char *gray = draw_image(40, 50, 1, false), color[40 * 50 * 3], black[16] = {0};
    for (int i = 0; i < 40 * 50; i++) memset(color + 3 * i, gray[i], 3);
    float *a = describe_one(gray, 40, 50, 1), *b = describe_one(color, 40, 50, 3);
    float *none = describe_one(black, 4, 4, 1);
    assert_close("gray", a, b, DESCRIBE_SIZE, 1e-6);
    double square = 0;
    for (int i = 0; i < DESCRIBE_SIZE; i++) {
        assert_true(isfinite(none[i]));
        square += (double)a[i] * a[i];
    }
    assert_true(fabs(square - (2 + 2 * 1.3 * 1.3)) < 1e-4);
    free(gray), free(a), free(b), free(none);
}

static float *describe_path(const char *path, int threads, int64_t *n, int64_t *skipped) {
    conr *c;
    conr_images *m;
    conr_images_info about;
    conr_images_options o = conr_images_defaults();
    float *out = NULL;
    int64_t d = 0;
    assert_ok(conr_open("cpu", threads, &c));
    assert_ok(conr_images_open(c, path, &o, NULL, NULL, &m));
    assert_ok(conr_describe(c, m, &out, n, &d));
    assert_int_equal(d, DESCRIBE_SIZE);
    conr_images_about(m, &about);
    assert_int_equal(about.n, *n);
    *skipped = about.skipped;
    conr_images_close(m);
    conr_close(c);
    return out;
}

/* Row i is image i, on any number of threads, to the bit. */
static void sets(void **state) {
    (void)state;
    enum { N = 1500, SIDE = 20, BYTES = SIDE * SIDE * 3 };
    const int64_t shape[] = {N, SIDE, SIDE, 3};
    unsigned char *all = malloc((size_t)N * BYTES);
    int64_t n, skipped;
    for (int i = 0; i < N; i++) {
        unsigned char *one = draw_image(SIDE, SIDE, 3, false);
        for (int j = 0; j < BYTES; j++) all[i * BYTES + j] = (unsigned char)(one[j] * (i % 97) / 7);
        free(one);
    }
    assert_ok(npy_write(temporary_path("set.npy"), 'u', 1, 4, shape, all));
    float *one = describe_path(temporary_path("set.npy"), 1, &n, &skipped);
    assert_int_equal(n, N);
    float *three = describe_path(temporary_path("set.npy"), 3, &n, &skipped);
    assert_memory_equal(one, three, (size_t)N * DESCRIBE_SIZE * sizeof *one);
    for (int i = 0; i < N; i += 499) {
        float *alone = describe_one(all + i * BYTES, SIDE, SIDE, 3);
        assert_memory_equal(alone, one + i * DESCRIBE_SIZE, DESCRIBE_SIZE * sizeof *one);
        free(alone);
    }
    conr_free(one), conr_free(three), free(all);
}

static void copy_file(const char *from, const char *to, size_t most) {
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    assert_true(f && g);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fwrite(bytes, 1, most && most < n ? most : n, g);
    fclose(f), fclose(g);
}

/* An image whose pixels are damaged is dropped with its row. */
static void damaged(void **state) {
    (void)state;
    enum { N = 30, BAD = 7 };
    char path[4096];
    int64_t n, skipped;
    mkdir(temporary_path("photos"), 0777);
    for (int i = 0; i < N; i++) {
        snprintf(path, sizeof path, "%s/%02d.png", temporary_path("photos"), i);
        copy_file(golden_path(i % 2 ? "images/rgb.png" : "images/gray.png"), path,
                  i == BAD ? 120 : 0);
    }
    float *got = describe_path(temporary_path("photos"), 2, &n, &skipped);
    assert_int_equal(n, N - 1);
    assert_int_equal(skipped, 1);
    const size_t row = DESCRIBE_SIZE * sizeof *got;
    /* images 6, 8, 9: gray, gray, color */
    assert_memory_equal(got + 6 * DESCRIBE_SIZE, got + 7 * DESCRIBE_SIZE, row);
    assert_memory_equal(got + 5 * DESCRIBE_SIZE, got + 8 * DESCRIBE_SIZE, row);
    assert_true(memcmp(got, got + DESCRIBE_SIZE, row) != 0);
    conr_free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_numpy), cmocka_unit_test(parts_as_numpy),
                                       cmocka_unit_test(gray_and_flat), cmocka_unit_test(sets),
                                       cmocka_unit_test(damaged)};
    assert_ok(tensors_open(golden_path("describe.safetensors"), &file));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tensors_close(&file);
    return failed;
}
