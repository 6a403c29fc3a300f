/* sort_test.c: images sorted into folders: names, links from a relative source, copies with their
 * times, and nothing left behind by a failure. */
#include "base/file.h"
#include "base/test_help.h"
#include "conr.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { N = 3 };

static conr *c;
static conr_images *images;
static const int32_t labels[N] = {0, 1, 0};

/* Three images, opened by a path relative to the folder that holds them. */
static int set_up(void **state) {
    (void)state;
    char name[64], here[4096];
    file_map m;
    conr_images_options o = conr_images_defaults();
    assert_ok(file_map_open(golden_path("images/gray.png"), &m));
    assert_int_equal(mkdir(temporary_path("photos"), 0777), 0);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "photos/%d.png", i);
        temporary_file(name, m.data, m.size);
        struct timeval old[2] = {{.tv_sec = 1000000000 + i}, {.tv_sec = 1000000000 + i}};
        assert_int_equal(utimes(temporary_path(name), old), 0);
    }
    file_map_close(&m);
    snprintf(here, sizeof here, "%s", temporary_path("x"));
    *strrchr(here, '/') = 0;
    assert_int_equal(chdir(here), 0);
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(conr_images_open(c, "photos", &o, NULL, NULL, &images));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    conr_images_close(images);
    conr_close(c);
    return chdir("/");
}

static bool exists(const char *path) {
    struct stat at;
    return stat(path, &at) == 0; /* follows links */
}

/* The entries of a folder, without . and .. */
static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void links_lead_back(void **state) {
    (void)state;
    char target[4096];
    struct stat at;
    assert_ok(conr_sort_images(c, images, labels, N, 2, "sorted/", 0));
    assert_int_equal(entries("sorted"), 2);
    assert_true(exists("sorted/cluster-00/0.png") && exists("sorted/cluster-00/2.png"));
    assert_true(exists("sorted/cluster-01/1.png"));
    ssize_t n = readlink("sorted/cluster-01/1.png", target, sizeof target);
    assert_true(n > 0 && target[0] == '/'); /* so that it also holds from elsewhere */
    assert_int_equal(stat("sorted", &at), 0);
    assert_int_equal(at.st_mode & 0777, 0755);
    assert_fails(CONR_EFILE, "is not empty", conr_sort_check("sorted"));
    assert_fails(CONR_EFILE, "is not empty",
                 conr_sort_images(c, images, labels, N, 2, "sorted", 0));
}

static void copies_keep_their_times(void **state) {
    (void)state;
    struct stat at;
    assert_ok(conr_sort_images(c, images, labels, N, 2, "copies", 1));
    assert_int_equal(lstat("copies/cluster-00/2.png", &at), 0);
    assert_true(S_ISREG(at.st_mode));
    assert_int_equal(at.st_mtime, 1000000002);
}

/* Two digits up to 100 clusters, three from 101 on. */
static void digits(void **state) {
    (void)state;
    int32_t high[N] = {0, 99, 99};
    assert_ok(conr_sort_images(c, images, high, N, 100, "hundred", 0));
    assert_true(exists("hundred/cluster-99/1.png"));
    high[1] = 100;
    assert_ok(conr_sort_images(c, images, high, N, 101, "more", 0));
    assert_true(exists("more/cluster-100/1.png") && exists("more/cluster-099/2.png"));
}

static void failures_leave_nothing(void **state) {
    (void)state;
    int before = entries(".");
    int32_t bad[N] = {0, 1, 2};
    assert_fails(CONR_EINVAL, "has cluster 2 of only 2",
                 conr_sort_images(c, images, bad, N, 2, "bad", 0));
    assert_fails(CONR_EINVAL, "2 labels for 3 images",
                 conr_sort_images(c, images, labels, 2, 2, "bad", 0));
    assert_fails(CONR_EFILE, "", conr_sort_images(c, images, labels, N, 2, "no/such/place", 0));
    assert_fails(CONR_EFILE, "", conr_sort_images(c, images, labels, N, 2, "photos/0.png", 0));
    assert_int_equal(rename("photos/1.png", "away.png"), 0); /* it vanishes midway */
    assert_fails(CONR_EFILE, "1.png: cannot be read",
                 conr_sort_images(c, images, labels, N, 2, "bad", 0));
    assert_int_equal(rename("away.png", "photos/1.png"), 0);
    assert_int_equal(entries("."), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_lead_back),
        cmocka_unit_test(copies_keep_their_times),
        cmocka_unit_test(digits),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
