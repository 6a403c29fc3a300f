/* images_test.c: the public calls about a source. */
#include "base/test_help.h"

#include <string.h>

static void a_source_is_described(void **state) {
    (void)state;
    conr *c;
    conr_images *m;
    conr_images_info i;
    int64_t count;
    conr_images_options o = conr_images_defaults();
    assert_ok(conr_open("ref", 2, &c));
    assert_ok(conr_images_open(c, golden_path("images/cifar10"), &o, NULL, NULL, &m));
    conr_images_about(m, &i);
    assert_string_equal(i.kind, "CIFAR-10 binary files");
    assert_int_equal(i.n, 2);
    assert_int_equal(i.labeled, 2);
    assert_int_equal(i.skipped, 0);
    assert_null(i.first_skipped);
    assert_int_equal(i.width[1], 32);
    assert_int_equal(i.channels, 3);
    assert_int_equal(i.classes, 10);
    assert_string_equal(conr_images_class(m, 9, &count), "name9");
    assert_int_equal(count, 1);
    conr_images_class(m, 4, &count);
    assert_int_equal(count, 0);
    assert_int_equal(conr_images_label(m, 1), 9);
    assert_string_equal(conr_images_path(m, 1), "test_batch.bin#0");
    float *x;
    int64_t n, d;
    assert_ok(conr_images_pixels(c, m, 32, &x, &n, &d));
    assert_int_equal(n, 2);
    assert_int_equal(d, 32 * 32 * 3);
    bool varied = false;
    for (int64_t j = 0; j < n * d; j++) {
        assert_true(x[j] >= 0 && x[j] <= 1);
        varied |= x[j] != x[0];
    }
    assert_true(varied);
    conr_free(x);
    assert_fails(CONR_EINVAL, "size: 0 pixels", conr_images_pixels(c, m, 0, &x, &n, &d));
    conr_images_close(m);
    conr_images_close(NULL);
    o.split = "val";
    assert_fails(CONR_EINVAL, "no split 'val'",
                 conr_images_open(c, golden_path("images/cifar10"), &o, NULL, NULL, &m));
    assert_null(m);
    o.split = NULL, o.coarse = 1;
    assert_ok(conr_images_open(c, golden_path("images/cifar100"), &o, NULL, NULL, &m));
    conr_images_about(m, &i);
    assert_int_equal(i.classes, 20);
    conr_images_close(m);
    conr_close(c);
}

/* The golden folder itself: nested, of every format, some gray. */
static void a_folder_is_described(void **state) {
    (void)state;
    conr *c;
    conr_images *m;
    conr_images_info i;
    conr_images_options o = conr_images_defaults();
    char folder[4096];
    strcpy(folder, golden_path("images"));
    assert_ok(conr_open("ref", 1, &c));
    assert_ok(conr_images_open(c, folder, &o, NULL, NULL, &m));
    conr_images_about(m, &i);
    assert_string_equal(i.kind, "image folder");
    assert_int_equal(i.n, 28);
    assert_int_equal(i.labeled, 0);
    assert_int_equal(i.width[0], 17); /* turned by a quarter */
    assert_int_equal(i.width[1], 200);
    assert_int_equal(i.channels, 3);
    assert_int_equal(conr_images_label(m, 0), -1);
    assert_non_null(strstr(conr_images_path(m, 0), "images/alpha.webp"));
    conr_images_close(m);
    conr_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_is_described),
        cmocka_unit_test(a_folder_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
