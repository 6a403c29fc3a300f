/* settings_test.c: presets and what overrides them, contradictions, and settings chosen for
 * images. */
#include "settings/settings.h"

#include "base/npy.h"
#include "base/test_help.h"

#include <stdlib.h>
#include <string.h>

static conr_settings *fresh(void) {
    conr_settings *s;
    assert_ok(conr_settings_new(&s));
    return s;
}

static void assert_setting(const conr_settings *s, const char *key, const char *want) {
    char text[256];
    assert_ok(conr_settings_get(s, key, text, sizeof text));
    assert_string_equal(text, want);
}

/* What is given after a preset, or on any line of a file that names one, holds. */
static void presets_are_overridden(void **state) {
    (void)state;
    static const char file[] = "batch: 64\npreset: released\n";
    conr_settings *s = fresh();
    assert_ok(conr_settings_set(s, "batch", "32"));
    assert_ok(conr_settings_set(s, "preset", "released"));
    assert_setting(s, "batch", "512");
    assert_setting(s, "shuffle_bn", "true");
    assert_ok(conr_settings_set(s, "batch", "64"));
    assert_setting(s, "batch", "64");
    conr_settings_free(s);
    s = fresh();
    assert_ok(conr_settings_read(s, temporary_file("preset.yaml", file, sizeof file - 1)));
    assert_setting(s, "batch", "64");
    assert_setting(s, "restarts", "40");
    assert_setting(s, "loss_mean", "batch");
    conr_settings_free(s);
}

static void contradictions(void **state) {
    (void)state;
    static const char *const bad[][5] = {
        {"epochs", "10", "stage1_epochs", "11", "stage1_epochs 11: more than the 10 epochs"},
        {"stage1_epochs", "5", "until", "1001", "until 1001: there are only 1000"},
        {"batch", "64", "accumulate", "3", "accumulate 3: does not divide"},
        {"batch", "64", "bn_group", "12", "bn_group 12: does not divide the 64"},
        {"batch", "64", "bn_group", "1", "one image has no variance"},
        {"batch", "64", "accumulate", "64", "one image has no variance"},
        {"shuffle_bn", "true", "accumulate", "2", "cannot shuffle"},
        {"framework", "moco", "queue", "511", "queue 511: less than the 512 keys"},
        {"framework", "moco", "stage2", "confident", "framework moco lacks"},
        {"stage2", "confident", "framework", "simsiam", "framework simsiam lacks"},
        {"clusters", "0", "clusters_low", "50", "clusters_low 50: not below"},
        {"ratio_low", "2", "ratio_high", "1", "ratio_low: above"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        conr_settings *s = fresh();
        for (int j = 0; j < 4; j += 2) assert_ok(conr_settings_set(s, bad[i][j], bad[i][j + 1]));
        assert_fails(CONR_EINVAL, bad[i][4], conr_settings_check(s));
        conr_settings_free(s);
    }
    conr_settings *s = fresh();
    assert_ok(conr_settings_check(s));
    assert_ok(conr_settings_set(s, "framework", "moco"));
    assert_ok(conr_settings_set(s, "queue", "512"));
    assert_ok(conr_settings_set(s, "until", "1000"));
    assert_ok(conr_settings_set(s, "bn_group", "300")); /* more than a view has: all of it */
    assert_ok(conr_settings_check(s));
    conr_settings_free(s);
}

/* ---- chosen for images ----------------------------------------------------------------------- */

static void note_fixed(const char *key, const char *value, const char *why, void *user) {
    (void)value;
    if (!why) strcat(strcat(user, key), " ");
}

/* n gray images of side x side pixels, and the settings chosen for them; the keys that were reported
 * as fixed go into told. */
static conr_settings *chosen(int64_t n, int side, const char *fixed, char *told) {
    conr *c;
    conr_images *m;
    conr_settings *s = fresh();
    conr_images_options io = conr_images_defaults();
    unsigned char *pixels = calloc((size_t)(n * side), (size_t)side);
    assert_non_null(pixels);
    assert_ok(
        npy_write(temporary_path("images.npy"), 'u', 1, 3, (int64_t[]){n, side, side}, pixels));
    free(pixels);
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(conr_images_open(c, temporary_path("images.npy"), &io, NULL, NULL, &m));
    *told = 0;
    assert_ok(conr_settings_set(s, "k1", "7"));
    assert_ok(conr_settings_choose(c, m, 0, fixed, s, note_fixed, told));
    assert_ok(conr_settings_check(s));
    conr_images_close(m);
    conr_close(c);
    return s;
}

static void chooses(void **state) {
    (void)state;
    char told[256];
    conr_settings *s = chosen(300, 10, " epochs k1 ", told);
    assert_string_equal(told, "epochs k1 "); /* and not k, whose name is a part of k1 */
    assert_setting(s, "k1", "7");
    assert_setting(s, "k", "3"); /* 32 images for 10 clusters */
    assert_setting(s, "batch", "32");
    assert_setting(s, "size", "16");
    assert_setting(s, "epochs", "1000"); /* the default, as it was fixed */
    assert_setting(s, "stage1_epochs", "625");
    conr_settings_free(s);
    s = chosen(520, 40, NULL, told); /* eight steps of 64 */
    assert_string_equal(told, "");
    assert_setting(s, "batch", "64");
    assert_setting(s, "size", "64");
    assert_setting(s, "k1", "6");
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_overridden),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
