/* train_test_help.h: a small set of images and the settings of a tiny training, for tests. */
#ifndef CONR_TRAIN_TEST_HELP_H
#define CONR_TRAIN_TEST_HELP_H

#include "base/rng.h"
#include "base/test_help.h"

#include <string.h>

enum { TEST_IMAGES = 72, TEST_SIDE = 16 };

/* Image i, gray: stripes along, stripes across or a disk, with noise from r. */
static inline void draw_test_image(rng *r, int i, unsigned char out[TEST_SIDE * TEST_SIDE]) {
    for (int y = 0; y < TEST_SIDE; y++)
        for (int x = 0; x < TEST_SIDE; x++) {
            int dx = x - 8, dy = y - 8, kind = i % 3;
            bool on = kind == 0 ? x / 3 % 2 : kind == 1 ? y / 3 % 2 : dx * dx + dy * dy < 30;
            out[y * TEST_SIDE + x] = (unsigned char)((on ? 150 : 40) + rng_below(r, 60));
        }
}

/* TEST_IMAGES of them as a .npy file; its path. */
static inline const char *test_images_file(void) {
    static unsigned char file[128 + TEST_IMAGES * TEST_SIDE * TEST_SIDE];
    char header[119];
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = 118, file[9] = 0;
    snprintf(header, sizeof header,
             "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", TEST_IMAGES,
             TEST_SIDE, TEST_SIDE);
    memset(file + 10, ' ', 118);
    memcpy(file + 10, header, strlen(header));
    file[127] = '\n';
    rng r = rng_at(7, 0, 0, RNG_TEST);
    for (int i = 0; i < TEST_IMAGES; i++)
        draw_test_image(&r, i, file + 128 + i * TEST_SIDE * TEST_SIDE);
    return temporary_file("images.npy", file, sizeof file);
}

/* Four epochs, two of them in stage 1. */
static inline conr_settings *test_settings(const char *framework) {
    static const char *const pairs[][2] = {
        {"encoder", "small"},
        {"width", "4"},
        {"size", "16"},
        {"hidden", "16"},
        {"features", "8"},
        {"predictor_hidden", "8"},
        {"batch", "16"},
        {"epochs", "4"},
        {"stage1_epochs", "2"},
        {"warmup_epochs", "1"},
        {"clusters", "3"},
        {"k", "4"},
        {"k1", "4"},
        {"queue", "64"},
        {"lr", "0.1"},
        {"checkpoint_every", "1"},
        {"eval_every", "2"},
        {"log_every", "2"},
        {"relax_epochs", "2"},
        {"prototype_epoch", "1"},
        {"restarts", "2"},
    };
    conr_settings *s;
    assert_ok(conr_settings_new(&s));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_ok(conr_settings_set(s, pairs[i][0], pairs[i][1]));
    assert_ok(conr_settings_set(s, "framework", framework));
    return s;
}

#endif
