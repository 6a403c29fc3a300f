/* thumbs_test.c: center squares of images, single and on sheets; pictures that are not available.
 * */
#include "base/test_help.h"

#include "base/status.h"
#include "images/decode.h"
#include "report/thumbs.h"

#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

/* Image i: 40 x 20, its center square in a color that depends on i, the rest black; every seventh
 * is missing. */
static int read_image(void *user, int64_t i, int least, image *out) {
    (void)user, (void)least;
    if (i % 7 == 6) return 1;
    if (image_reserve(out, 40, 20, 3) < 0) return CONR_ENOMEM;
    memset(out->pixels, 0, 40 * 20 * 3);
    for (int y = 0; y < 20; y++)
        for (int x = 10; x < 30; x++) {
            unsigned char *p = out->pixels + (y * 40 + x) * 3;
            p[0] = (unsigned char)(i * 5), p[1] = 128, p[2] = (unsigned char)(255 - i * 5);
        }
    return 0;
}

static void test_alone(void **state) {
    (void)state;
    enum { N = 9 };
    thumbs_source from = {read_image, NULL, 3};
    int64_t ids[N];
    thumbs t;
    webp out[N];
    for (int i = 0; i < N; i++) ids[i] = i;
    assert_ok(thumbs_make(&from, ids, N, 10, 2, &t));
    for (int i = 0; i < N; i++) {
        assert_int_equal(t.missing[i], i % 7 == 6);
        if (!t.missing[i]) assert_int_equal(t.pixels[(i * 100 + 55) * 3], i * 5);
    }
    assert_ok(thumbs_encode(&t, 80, 2, out));
    for (int i = 0; i < N; i++) {
        int w = 0, h = 0;
        assert_int_equal(out[i].n == 0, i % 7 == 6);
        if (out[i].n)
            assert_true(WebPGetInfo(out[i].bytes, out[i].n, &w, &h) && w == 10 && h == 10);
        webp_free(&out[i]);
    }
    thumbs_free(&t);
}

static void test_sheets(void **state) {
    (void)state;
    enum { N = SHEET_THUMBS + 40, SIDE = 4 };
    thumbs_source from = {read_image, NULL, 3};
    int64_t *ids = malloc(N * sizeof *ids);
    thumbs t;
    webp out[2];
    for (int i = 0; i < N; i++) ids[i] = i % 6 * 8 % 48; /* none that is missing */
    for (int i = 0; i < N; i++)
        if (ids[i] % 7 == 6) ids[i]++;
    assert_int_equal(thumbs_sheets(N), 2);
    assert_int_equal(thumbs_sheets(SHEET_THUMBS), 1);
    assert_ok(thumbs_make(&from, ids, N, SIDE, 2, &t));
    assert_ok(thumbs_encode_sheets(&t, 101, 2, out));
    for (int s = 0; s < 2; s++) {
        int w, h;
        uint8_t *rgb = WebPDecodeRGB(out[s].bytes, out[s].n, &w, &h);
        assert_non_null(rgb);
        assert_int_equal(w, SHEET_COLUMNS * SIDE);
        assert_int_equal(h, (s ? 2 : SHEET_COLUMNS) * SIDE);
        for (int i = s * SHEET_THUMBS; i < N && i < (s + 1) * SHEET_THUMBS; i++) {
            int at = i % SHEET_THUMBS, x = at % SHEET_COLUMNS * SIDE, y = at / SHEET_COLUMNS * SIDE;
            assert_int_equal(rgb[(y * w + x) * 3], ids[i] * 5 % 256);
        }
        WebPFree(rgb);
        webp_free(&out[s]);
    }
    thumbs_free(&t);
    free(ids);
}

/* A picture that cannot be read is no missing one: the message of the thread that read it arrives. */
static int read_or_fail(void *user, int64_t i, int least, image *out) {
    if (i == 5) return fail(CONR_EFILE, "5.png: cannot be read");
    return read_image(user, i, least, out);
}

static void test_fails(void **state) {
    (void)state;
    thumbs_source from = {read_or_fail, NULL, 3};
    int64_t ids[] = {1, 2, 3, 4, 5, 6, 7};
    thumbs t;
    for (int threads = 1; threads < 4; threads++)
        assert_fails(CONR_EFILE, "5.png: cannot be read",
                     thumbs_make(&from, ids, 7, 10, threads, &t));
    assert_ok(thumbs_make(&from, ids, 4, 10, 2, &t));
    thumbs_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_sheets),
                                       cmocka_unit_test(test_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
