/* decode_test.c: image files of many kinds against Pillow; damaged files and absurd sizes. */
#include "images/decode.h"

#include "base/file.h"
#include "base/npy.h"
#include "base/rng.h"
#include "base/test_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

/* Lossless files may differ from Pillow by a level when 16 bits become 8.  JPEG and lossy WebP are
 * decoded by libraries that may round differently from Pillow's: 3 levels, and half of one on
 * average; on one machine they share the library and the bytes are equal.  HEIC and
 * AVIF: the same, from other decoders. */
static const struct {
    const char *name;
    int most;
    double mean;
} kinds[] = {
    {"rgb.png", 0, 0},
    {"gray.png", 0, 0},
    {"bits1.png", 0, 0},
    {"bits2.png", 0, 0},
    {"palette.png", 0, 0},
    {"rgba.png", 0, 0},
    {"la.png", 0, 0},
    {"rgb16.png", 1, 1},
    {"gray16.png", 1, 1},
    {"interlaced.png", 0, 0},
    {"turned.png", 0, 0},
    {"lossless.webp", 0, 0},
    {"alpha.webp", 0, 0},
    {"turned.webp", 0, 0},
    {"lossy.webp", 3, 0.5},
    {"rgb.jpg", 3, 0.5},
    {"gray.jpg", 3, 0.5},
    {"full.jpg", 3, 0.5},
    {"progressive.jpg", 3, 0.5},
    {"cmyk.jpg", 3, 0.5},
    {"turned2.jpg", 3, 0.5},
    {"turned3.jpg", 3, 0.5},
    {"turned4.jpg", 3, 0.5},
    {"turned5.jpg", 3, 0.5},
    {"turned6.jpg", 3, 0.5},
    {"turned7.jpg", 3, 0.5},
    {"turned8.jpg", 3, 0.5},
    {"formats/rgb.bmp", 0, 0},
    {"formats/gray.bmp", 0, 0},
    {"formats/bits1.bmp", 0, 0},
    {"formats/palette.bmp", 0, 0},
    {"formats/down.bmp", 0, 0},
    {"formats/rgba.bmp", 0, 0},
    {"formats/rle8.bmp", 0, 0},
    {"formats/rle4.bmp", 0, 0},
    {"formats/bits16.bmp", 0, 0},
    {"formats/palette.gif", 0, 0},
    {"formats/gray.gif", 0, 0},
    {"formats/interlaced.gif", 0, 0},
    {"formats/animated.gif", 0, 0},
    {"formats/canvas.gif", 0, 0},
    {"formats/rgb.tif", 0, 0},
    {"formats/gray.tif", 0, 0},
    {"formats/lzw.tif", 0, 0},
    {"formats/deflate.tif", 0, 0},
    {"formats/fax.tif", 0, 0},
    {"formats/palette.tif", 0, 0},
    {"formats/cmyk.tif", 0, 0},
    {"formats/turned.tif", 0, 0},
    {"formats/pages.tif", 0, 0},
    {"formats/white.tif", 0, 0},
    {"formats/planes.tif", 0, 0},
    {"formats/tiles.tif", 0, 0},
    {"formats/planes-tiles.tif", 0, 0},
    {"formats/big.tif", 0, 0},
    {"formats/motorola.tif", 0, 0},
    {"formats/rgba.tif", 0, 0},
    {"formats/premultiplied.tif", 0, 0},
    {"formats/gray16.tif", 0, 0},
    {"formats/rgb16.tif", 0, 0},
    {"formats/rgb16-motorola.tif", 0, 0},
    {"formats/jpeg.tif", 3, 0.5},
    {"formats/animated.webp", 0, 0},
    {"formats/rgb.heic", 3, 0.5},
    {"formats/turned.heic", 3, 0.5},
    {"formats/rgb.avif", 3, 0.5},
    {"formats/turned.avif", 3, 0.5},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *image_path(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "images/", name);
    return golden_path(path);
}

static void open_image(const char *name, file_map *m) {
    assert_ok(file_map_open(image_path(name), m));
}

/* Whether the library of its format was there. */
static bool is_built_in(const file_map *m) {
    const char *format = decode_format(m->data, m->size), *one;
    bool there = false;
    assert_non_null(format);
    for (int i = 0; (one = decode_built_in(i, &there)); i++)
        if (!strcmp(one, format)) break;
    assert_non_null(one);
    return there;
}

static void compare(const char *name, const image *got, const npy *want, int most, double mean) {
    double sum = 0;
    assert_int_equal(got->h, want->dim[0]);
    assert_int_equal(got->w, want->dim[1]);
    if (got->c != (want->n_dims == 3 ? 3 : 1)) fail_msg("%s: %d channels", name, got->c);
    for (size_t i = 0; i < want->count; i++) {
        int e = abs(got->pixels[i] - ((const unsigned char *)want->data)[i]);
        if (e > most) fail_msg("%s: byte %zu is %d levels off", name, i, e);
        sum += e;
    }
    if (sum > mean * (double)want->count) fail_msg("%s: %g levels a byte off", name, sum);
}

static void pixels_are_pillows(void **state) {
    (void)state;
    image got = {0};
    for (int k = 0; k < N_KINDS; k++) {
        char name[64];
        file_map m;
        npy want;
        decode_head head;
        open_image(kinds[k].name, &m);
        if (!is_built_in(&m)) {
            assert_fails(CONR_EFORMAT, "is not built in; install lib",
                         decode(kinds[k].name, m.data, m.size, 0, 0, &got));
            file_map_close(&m);
            continue;
        }
        snprintf(name, sizeof name, "%s.npy", kinds[k].name);
        assert_ok(npy_read(image_path(name), &want));
        assert_ok(decode(kinds[k].name, m.data, m.size, 0, 0, &got));
        compare(kinds[k].name, &got, &want, kinds[k].most, kinds[k].mean);
        assert_ok(decode_probe(kinds[k].name, m.data, m.size, m.size, &head, NULL));
        assert_int_equal(head.w, got.w);
        assert_int_equal(head.h, got.h);
        assert_int_equal(head.gray, got.c == 1);
        npy_free(&want);
        file_map_close(&m);
    }
    image_free(&got);
}

static void gray_and_color_change(void **state) {
    (void)state;
    image color = {0}, gray = {0}, back = {0};
    file_map m;
    open_image("rgb.png", &m);
    assert_ok(decode("rgb.png", m.data, m.size, 3, 0, &color));
    assert_ok(decode("rgb.png", m.data, m.size, 1, 0, &gray));
    assert_int_equal(gray.c, 1);
    for (int i = 0; i < gray.w * gray.h; i++) {
        const unsigned char *p = color.pixels + 3 * i;
        assert_true(abs(gray.pixels[i] - (int)(0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2] + 0.5)) <=
                    1);
    }
    file_map_close(&m);
    open_image("gray.png", &m);
    assert_ok(decode("gray.png", m.data, m.size, 3, 0, &back));
    assert_int_equal(back.c, 3);
    for (int i = 0; i < back.w * back.h; i++)
        assert_memory_equal(back.pixels + 3 * i, back.pixels + 3 * i + 1, 2);
    file_map_close(&m);
    image_free(&color);
    image_free(&gray);
    image_free(&back);
}

/* 200 x 150 decoded for a short side of 40: an eighth is too small, 3/8 is 57. */
static void large_jpegs_are_scaled(void **state) {
    (void)state;
    image full = {0}, small = {0};
    file_map m;
    open_image("large.jpg", &m);
    assert_ok(decode("large.jpg", m.data, m.size, 3, 0, &full));
    assert_ok(decode("large.jpg", m.data, m.size, 3, 40, &small));
    assert_int_equal(full.w, 200);
    assert_in_range(small.h, 40, 80);
    double mean[2] = {0};
    for (int i = 0; i < full.w * full.h * 3; i++)
        mean[0] += full.pixels[i] / (full.w * full.h * 3.0);
    for (int i = 0; i < small.w * small.h * 3; i++)
        mean[1] += small.pixels[i] / (small.w * small.h * 3.0);
    assert_true(mean[0] - mean[1] < 1 && mean[1] - mean[0] < 1);
    assert_ok(
        decode("large.jpg", m.data, m.size, 3, 150, &small)); /* never below the requested size */
    assert_int_equal(small.h, 150);
    file_map_close(&m);
    image_free(&full);
    image_free(&small);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    image out = {0};
    for (int k = 0; k < N_KINDS; k++) {
        file_map m;
        open_image(kinds[k].name, &m);
        /* the first of several frames or pages may be whole */
        bool several = strstr(kinds[k].name, "animated") || strstr(kinds[k].name, "pages");
        for (size_t n = 0; n < m.size * (several ? 2 : 9) / 10; n += 1 + m.size / 23)
            assert_fails(CONR_EFORMAT, kinds[k].name, decode(kinds[k].name, m.data, n, 3, 0, &out));
        file_map_close(&m);
    }
    image_free(&out);
}

/* Whatever is changed, the result is pixels or an error; the sanitizers watch. */
static void damage_is_survived(void **state) {
    (void)state;
    image out = {0};
    rng r = rng_at(7, 0, 0, RNG_TEST);
    for (int k = 0; k < N_KINDS; k++) {
        file_map m;
        open_image(kinds[k].name, &m);
        unsigned char *copy = malloc(m.size);
        assert_non_null(copy);
        for (int turn = 0; turn < 60; turn++) {
            memcpy(copy, m.data, m.size);
            for (int i = 0; i < 1 + turn / 10; i++)
                copy[rng_below(&r, (uint32_t)m.size)] = (unsigned char)rng_bits(&r);
            int rc = decode("changed", copy, m.size, 3, turn % 2 ? 8 : 0, &out);
            if (rc && rc != CONR_EFORMAT)
                fail_msg("%s: turn %d: %d: %s", kinds[k].name, turn, rc, conr_error());
        }
        free(copy);
        file_map_close(&m);
    }
    image_free(&out);
}

/* ---- absurd sizes ---------------------------------------------------------------------------- */

static void put32(unsigned char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (24 - 8 * i));
}

static size_t put_chunk(unsigned char *out, const char *kind, const unsigned char *body,
                        uint32_t n) {
    put32(out, n);
    memcpy(out + 4, kind, 4);
    if (n) memcpy(out + 8, body, n);
    put32(out + 8 + n, (uint32_t)crc32(0, out + 4, n + 4));
    return n + 12;
}

/* A gray PNG of zeros; rows: the number that it really has. */
static size_t make_png(uint32_t w, uint32_t h, uint32_t rows, unsigned char *out, size_t room) {
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    unsigned char head[13] = {0};
    uLong raw = (uLong)rows * (w + 1);
    uLongf packed = compressBound(raw);
    unsigned char *zeros = calloc(1, raw + 1), *data = malloc(packed);
    assert_true(zeros && data);
    assert_int_equal(compress(data, &packed, zeros, raw), Z_OK);
    assert_true(packed + 64 < room);
    memcpy(out, signature, 8);
    put32(head, w);
    put32(head + 4, h);
    head[8] = 8;
    size_t at = 8 + put_chunk(out + 8, "IHDR", head, 13);
    at += put_chunk(out + at, "IDAT", data, (uint32_t)packed);
    at += put_chunk(out + at, "IEND", NULL, 0);
    free(zeros);
    free(data);
    return at;
}

static void absurd_sizes_are_refused(void **state) {
    (void)state;
    enum { ROOM = 1 << 20 };
    image out = {0};
    decode_head head;
    unsigned char *png = malloc(ROOM);
    assert_non_null(png);
    size_t n = make_png(65535, 65535, 1, png, ROOM);
    assert_fails(CONR_EFORMAT, "65535 x 65535", decode("huge.png", png, n, 3, 0, &out));
    assert_fails(CONR_EFORMAT, "65535 x 65535", decode_probe("huge.png", png, n, n, &head, NULL));
    n = make_png(65536, 1, 1, png, ROOM);
    assert_fails(CONR_EFORMAT, "huge.png", decode("huge.png", png, n, 3, 0, &out));
    n = make_png(8000, 8000, 1, png, ROOM); /* within the limit, but not in so few bytes */
    assert_fails(CONR_EFORMAT, "bytes", decode("huge.png", png, n, 3, 0, &out));
    n = make_png(65535, 3, 1, png, ROOM); /* rows missing */
    assert_fails(CONR_EFORMAT, "huge.png", decode("huge.png", png, n, 3, 0, &out));
    assert_int_equal(out.capacity > 65535 * 9, 0);
    n = make_png(65535, 3, 3, png, ROOM); /* wide, but true */
    assert_ok(decode("wide.png", png, n, 1, 0, &out));
    assert_int_equal(out.w, 65535);
    free(png);
    image_free(&out);

    file_map m;
    open_image("rgb.jpg", &m);
    unsigned char *jpeg = malloc(m.size);
    assert_non_null(jpeg);
    memcpy(jpeg, m.data, m.size);
    for (size_t i = 2; i + 9 < m.size; i++)
        if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0) /* SOF0: length, precision, height, width */
            memcpy(jpeg + i + 5, "\xff\xdc\xff\xdc", 4);
    assert_fails(CONR_EFORMAT, "65500 x 65500", decode("huge.jpg", jpeg, m.size, 3, 32, &out));
    assert_int_equal(out.capacity, 0);
    free(jpeg);
    file_map_close(&m);
}

static void others_are_told(void **state) {
    (void)state;
    image out = {0};
    assert_fails(CONR_EFORMAT, "is empty", decode("a", NULL, 0, 3, 0, &out));
    assert_fails(CONR_EFORMAT, "not an image that conr reads",
                 decode("a.jpg", (const unsigned char *)"BMW and others", 14, 3, 0, &out));
    assert_null(decode_format((const unsigned char *)"\0\0\0\x18"
                                                     "ftypisom\0\0\0\0mp42isom",
                              24));
    assert_string_equal(decode_format((const unsigned char *)"\0\0\0\x18"
                                                             "ftypmif1\0\0\0\0avifmif1",
                                      24),
                        "AVIF");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_pillows),     cmocka_unit_test(gray_and_color_change),
        cmocka_unit_test(large_jpegs_are_scaled), cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(damage_is_survived),     cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(others_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
