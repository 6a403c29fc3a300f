/* store_test.c: decoded images in memory, in the source, in a cache file.
 *
 *     store_test                                the tests
 *     store_test --time SRC SIDE [THREADS]      loads SRC at that store side, prints seconds as
 * JSON */
#include "images/store.h"

#include "base/file.h"
#include "base/npy.h"
#include "base/test_help.h"
#include "views/pixels_resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

static const source_options from_source = {.threads = 2};

static void copy_golden(const char *to, const char *golden) {
    char path[256];
    file_map m;
    snprintf(path, sizeof path, "images/%s", golden);
    assert_ok(file_map_open(golden_path(path), &m));
    temporary_file(to, m.data, m.size);
    file_map_close(&m);
}

/* A folder of n images, one of them larger, one gray. */
static void make_folder(const char *folder, int n) {
    char name[256];
    mkdir(temporary_path(folder), 0777);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%03d.jpg", folder, i);
        copy_golden(name, i == 1 ? "large.jpg" : i == 2 ? "gray.jpg" : "rgb.jpg");
    }
}

static int count_progress(int64_t done, int64_t total, void *user) {
    assert_true(done <= total);
    ++*(int *)user;
    return 0;
}

static void images_are_kept_in_memory(void **state) {
    (void)state;
    source s;
    store st;
    image m = {0};
    int calls = 0;
    store_options o = {.side = 60, .threads = 2, .tell = {count_progress, &calls}};
    make_folder("memory", 5);
    assert_ok(source_open(temporary_path("memory"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    assert_string_equal(st.words, "memory");
    assert_int_equal(st.n, 5);
    assert_int_equal(st.c, 3);
    assert_true(calls > 0);
    assert_int_equal(st.image[0].w, 24); /* smaller than the side: as it is */
    assert_int_equal(st.image[0].h, 17);
    assert_int_equal(st.image[1].w, 80); /* 200 x 150, aspect kept */
    assert_int_equal(st.image[1].h, 60);
    assert_ok(source_read(&s, 0, 3, 0, &m));
    assert_memory_equal(st.image[0].pixels, m.pixels, 24 * 17 * 3);
    /* shrinking while decoding and then resizing is close to a single resize */
    resizer r = {0};
    unsigned char want[80 * 60 * 3];
    double off = 0;
    assert_ok(source_read(&s, 1, 3, 0, &m));
    assert_ok(resizer_bytes(&r, PIXELS_BICUBIC, m.pixels, 200, 150, 3, 80, 60, want));
    for (int i = 0; i < 80 * 60 * 3; i++)
        off += abs(want[i] - st.image[1].pixels[i]) / (80 * 60 * 3.0);
    assert_true(off < 2);
    resizer_free(&r);
    image_free(&m);
    store_close(&st);
    source_close(&s);
}

static void threads_make_no_difference(void **state) {
    (void)state;
    source s;
    store a, b;
    store_options o = {.side = 60, .threads = 1};
    make_folder("threads", 12);
    assert_ok(source_open(temporary_path("threads"), &from_source, &s));
    assert_ok(store_open(&s, &o, &a));
    o.threads = 3;
    assert_ok(store_open(&s, &o, &b));
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.owned, b.owned, a.bytes);
    store_close(&a);
    store_close(&b);
    source_close(&s);
}

static void arrays_in_memory_are_not_copied(void **state) {
    (void)state;
    source s;
    store st;
    image m = {0};
    store_options o = {.side = 64, .threads = 1};
    /* unpacked into memory */
    assert_ok(source_open(golden_path("images/idx/t10k-images-idx3-ubyte.gz"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    assert_string_equal(st.words, "source");
    assert_int_equal(st.c, 1);
    const source_block *b = &s.block[0];
    assert_ptr_equal(st.image[1].pixels, b->from.in_memory + b->at + b->stride);
    store_close(&st);
    source_close(&s);
    /* in a file */
    assert_ok(source_open(golden_path("images/gray.npy"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    assert_string_equal(st.words, "memory");
    assert_int_equal(st.c, 1);
    assert_ok(source_read(&s, 2, 1, 0, &m));
    assert_memory_equal(st.image[2].pixels, m.pixels, 35);
    store_close(&st);
    o.channels = 3; /* must become color */
    assert_ok(store_open(&s, &o, &st));
    assert_int_equal(st.image[2].pixels[5], m.pixels[1]);
    store_close(&st);
    image_free(&m);
    source_close(&s);
}

/* Another program truncates a file that we have open: an error, and not an image that is skipped. */
static void an_array_that_shrinks_is_an_error(void **state) {
    (void)state;
    static const char *const files[][2] = {
        {"cut/data_batch_1.bin", "cifar10/data_batch_1.bin"},
        {"cut/train-images-idx3-ubyte", "idx/train-images-idx3-ubyte"},
        {"cut/gray.npy", "gray.npy"}};
    mkdir(temporary_path("cut"), 0777);
    for (int i = 0; i < 3; i++) {
        char to[4096];
        source s;
        store st;
        image m = {0};
        uint64_t identity;
        store_options o = {.threads = 2};
        snprintf(to, sizeof to, "%s", temporary_path(files[i][0]));
        copy_golden(files[i][0], files[i][1]);
        assert_ok(source_open(i ? to : temporary_path("cut"), &from_source, &s));
        assert_ok(truncate(to, (off_t)s.block[0].bytes - 1));
        if (s.n > 1) assert_ok(source_read(&s, 0, 1, 0, &m));
        assert_fails(CONR_EFILE, "became shorter", source_read(&s, s.n - 1, 1, 0, &m));
        assert_fails(CONR_EFILE, "became shorter", store_open(&s, &o, &st));
        assert_fails(CONR_EFILE, "became shorter", source_identity(&s, 1 << 30, &identity));
        assert_int_equal(s.skipped, 0);
        store_close(&st);
        image_free(&m);
        source_close(&s);
        unlink(to);
    }
}

/* Damage that the header does not show is found while decoding; the image is dropped everywhere. */
static void damaged_images_are_dropped(void **state) {
    (void)state;
    source s;
    store st;
    file_map m;
    store_options o = {.side = 60, .threads = 2};
    make_folder("damaged", 30);
    assert_ok(file_map_open(golden_path("images/rgb.jpg"), &m));
    temporary_file("damaged/004.jpg", m.data, m.size * 8 / 10);
    assert_ok(source_open(temporary_path("damaged"), &from_source, &s));
    assert_int_equal(s.n, 30); /* its header is fine */
    assert_ok(store_open(&s, &o, &st));
    assert_int_equal(st.n, 29);
    assert_int_equal(s.n, 29);
    assert_int_equal(s.skipped, 1);
    assert_non_null(strstr(s.reason[0], "004.jpg"));
    assert_non_null(strstr(s.item[4].path, "005.jpg"));
    store_close(&st);
    source_close(&s);
    temporary_file("damaged/005.jpg", m.data, m.size * 8 / 10); /* 2 of 30: more than 5 % */
    file_map_close(&m);
    assert_ok(source_open(temporary_path("damaged"), &from_source, &s));
    assert_fails(CONR_EFORMAT, "2 of 30", store_open(&s, &o, &st));
    source_close(&s);
}

/* A source whose images have all gone: an error, and another one when it is tried again. */
static void none_is_left(void **state) {
    (void)state;
    source s;
    store st;
    store_options o = {.side = 60, .threads = 2};
    make_folder("gone", 1);
    assert_ok(source_open(temporary_path("gone"), &from_source, &s));
    assert_int_equal(unlink(temporary_path("gone/000.jpg")), 0);
    assert_fails(CONR_EFORMAT, "1 of 1", store_open(&s, &o, &st));
    assert_fails(CONR_EFORMAT, "open them again", store_open(&s, &o, &st));
    source_close(&s);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Opens the folder "cached" through the cache; returns whether an earlier file was used. */
static bool open_cached(int side, uint64_t *sum) {
    source s;
    store st;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", temporary_path("caches/inner"));
    store_options o = {.side = side, .place = STORE_CACHE, .folder = folder, .threads = 2};
    assert_ok(source_open(temporary_path("cached"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    assert_string_equal(st.words, "cache file");
    *sum = 0;
    for (int64_t i = 0; i < st.n; i++)
        for (int k = 0; k < st.image[i].w * st.image[i].h * st.c; k++)
            *sum = *sum * 31 + st.image[i].pixels[k];
    bool found = st.found;
    store_close(&st);
    source_close(&s);
    return found;
}

/* The path of the only cache file. */
static const char *cache_name(void) {
    static char name[512];
    char command[1024];
    snprintf(command, sizeof command, "ls -A '%s'", temporary_path("caches/inner"));
    FILE *f = popen(command, "r");
    char line[256] = "", more[256];
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_null(fgets(more, sizeof more, f)); /* no temporary file is left */
    pclose(f);
    line[strcspn(line, "\n")] = 0;
    snprintf(name, sizeof name, "caches/inner/%s", line);
    return name;
}

static void change_byte(const char *name, long at) {
    FILE *f = fopen(temporary_path(name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int old = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(old ^ 64, f);
    fclose(f);
}

static void the_cache_is_found_again(void **state) {
    (void)state;
    uint64_t first, sum;
    make_folder("cached", 25);
    assert_false(open_cached(60, &first));
    assert_true(open_cached(60, &sum));
    assert_int_equal(sum, first);
    const char *name = cache_name();

    change_byte(name, 20); /* damaged: header, entries, pixels, length */
    assert_false(open_cached(60, &sum));
    assert_int_equal(sum, first);
    change_byte(name, 64 + 24 * 3 + 2);
    assert_false(open_cached(60, &sum));
    change_byte(name, -100);
    assert_false(open_cached(60, &sum));
    assert_int_equal(sum, first);
    assert_int_equal(truncate(temporary_path(name), 100), 0);
    assert_false(open_cached(60, &sum));
    assert_true(open_cached(60, &sum));

    struct utimbuf earlier = {1000, 1000}; /* stale: a time, another picture, one more */
    assert_int_equal(utime(temporary_path("cached/000.jpg"), &earlier), 0);
    assert_false(open_cached(60, &sum));
    assert_int_equal(sum, first);
    copy_golden("cached/000.jpg", "full.jpg");
    assert_false(open_cached(60, &sum));
    assert_int_not_equal(sum, first);
    copy_golden("cached/100.jpg", "full.jpg");
    assert_false(open_cached(60, &sum));
    assert_true(open_cached(60, &sum));
    cache_name();                        /* still one file: a stale one is replaced */
    assert_false(open_cached(30, &sum)); /* another setting has its own */
    assert_true(open_cached(60, &sum));
    assert_true(open_cached(30, &sum));
}

/* A bad image is recorded: the second run drops it without decoding it again. */
static void the_cache_remembers_bad_images(void **state) {
    (void)state;
    source s;
    store st;
    file_map m;
    make_folder("half", 30);
    assert_ok(file_map_open(golden_path("images/rgb.jpg"), &m));
    temporary_file("half/000.jpg", m.data, m.size * 8 / 10);
    file_map_close(&m);
    char folder[256];
    snprintf(folder, sizeof folder, "%s", temporary_path("caches2"));
    store_options o = {.place = STORE_CACHE, .folder = folder, .threads = 1};
    for (int turn = 0; turn < 2; turn++) {
        assert_ok(source_open(temporary_path("half"), &from_source, &s));
        assert_ok(store_open(&s, &o, &st));
        assert_int_equal(st.found, turn);
        assert_int_equal(st.n, 29);
        assert_int_equal(s.skipped, 1);
        assert_int_equal(st.image[0].w, 200); /* the second one is now the first */
        store_close(&st);
        source_close(&s);
    }
}

static void what_does_not_fit_goes_to_the_cache(void **state) {
    (void)state;
    source s;
    store st;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", temporary_path("caches3"));
    store_options o = {.memory = 1000, .folder = folder, .threads = 1};
    make_folder("big", 3);
    assert_ok(source_open(temporary_path("big"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    assert_string_equal(st.words, "cache file");
    store_close(&st);
    o.folder = "/proc/nowhere";
    assert_fails(CONR_EFILE, "cache", store_open(&s, &o, &st));
    source_close(&s);
}

/* ---- statistics and sizes -------------------------------------------------------------------- */

static void mean_and_deviation(void **state) {
    (void)state;
    source s;
    store st;
    npy a;
    pixels_norm norm;
    double sum = 0, square = 0;
    store_options o = {.threads = 2};
    assert_ok(npy_read(golden_path("images/gray.npy"), &a));
    for (size_t i = 0; i < a.count; i++) {
        double v = ((unsigned char *)a.data)[i] / 255.0;
        sum += v, square += v * v;
    }
    assert_ok(source_open(golden_path("images/gray.npy"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    store_norm(&s, &st, 2, &norm);
    double mean = sum / (double)a.count;
    assert_true(fabs(norm.mean[0] - mean) < 1e-6);
    assert_true(fabs(norm.deviation[0] - sqrt(square / (double)a.count - mean * mean)) < 1e-6);
    npy_free(&a);
    store_close(&st);
    source_close(&s);
    assert_ok(source_open(golden_path("images/cifar100"), &from_source, &s));
    assert_ok(store_open(&s, &o, &st));
    store_norm(&s, &st, 2, &norm);
    assert_true(norm.mean[0] == .5071f && norm.deviation[2] == .2761f);
    store_close(&st);
    source_close(&s);
    assert_int_equal(store_side_for(32), 64);
    assert_int_equal(store_side_for(96), 192);
    assert_int_equal(store_side_for(224), 256);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec);
}

/* Only of this program; getrusage would count what the parent had before exec. */
static double peak_megabytes(void) {
    char line[128];
    double kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %lf", &kilobytes);
    if (f) fclose(f);
    return kilobytes * 1.024e-3;
}

static int time_loading(const char *path, int side, int threads) {
    source s;
    store st;
    double start = now(), start_cpu = cpu_seconds();
    source_options from = {.threads = threads};
    store_options o = {.side = side, .threads = threads, .place = STORE_MEMORY};
    if (source_open(path, &from, &s) < 0 || store_open(&s, &o, &st) < 0)
        return fprintf(stderr, "%s\n", conr_error()), 1;
    double took = now() - start, cpu = cpu_seconds() - start_cpu;
    double peak = peak_megabytes();
    printf("{\"images\": %lld, \"side\": %d, \"threads\": %d, \"seconds\": %.3f, "
           "\"core_seconds\": %.3f, \"images_per_core_second\": %.0f, \"store_MB\": %.1f, "
           "\"peak_MB\": %.1f}\n",
           (long long)st.n, side, threads, took, cpu, (double)st.n / cpu, (double)st.bytes * 1e-6,
           peak);
    store_close(&st);
    source_close(&s);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "--time"))
        return time_loading(argv[2], atoi(argv[3]), argc > 4 ? atoi(argv[4]) : 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_kept_in_memory),
        cmocka_unit_test(threads_make_no_difference),
        cmocka_unit_test(arrays_in_memory_are_not_copied),
        cmocka_unit_test(an_array_that_shrinks_is_an_error),
        cmocka_unit_test(damaged_images_are_dropped),
        cmocka_unit_test(none_is_left),
        cmocka_unit_test(the_cache_is_found_again),
        cmocka_unit_test(the_cache_remembers_bad_images),
        cmocka_unit_test(what_does_not_fit_goes_to_the_cache),
        cmocka_unit_test(mean_and_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
