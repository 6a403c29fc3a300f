/* source_test.c: every form of SRC, its labels and order; odd names, links, damage.  Long because
 * each form has cases of its own. */
#include "images/source_forms.h"

#include "base/npy.h"
#include "images/source_test_help.h"
#include "images/unreadable.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders --------------------------------------------------------------------------------- */

static void flat_folder(void **state) {
    (void)state;
    source s;
    put_golden("flat/b.PNG", "rgb.png");
    put_golden("flat/a.jpeg", "rgb.jpg");
    put_golden("flat/c.webp", "lossless.webp");
    put_text("flat/notes.txt", "no image");
    put_text("flat/.hidden.png", "no image");
    open_ok("flat", &plain, &s);
    assert_int_equal(s.kind, SOURCE_FOLDER);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.n_classes, 0);
    check_item(&s, 0, "flat/a.jpeg", NULL);
    check_item(&s, 1, "flat/b.PNG", NULL);
    check_item(&s, 2, "flat/c.webp", NULL);
    assert_int_equal(s.w_low, 24);
    assert_int_equal(s.h_high, 17);
    assert_false(s.gray);
    source_close(&s);
    put_golden("gray/a.png", "gray.png");
    open_ok("gray", &plain, &s);
    assert_true(s.gray);
    source_close(&s);
}

static void classes_and_splits(void **state) {
    (void)state;
    source s;
    source_options o = plain;
    put_golden("sets/train/dog/x/deep.png", "rgb.png"); /* deeper folders belong to their class */
    put_golden("sets/train/cat/1.png", "rgb.png");
    put_golden("sets/val/cat/2.png", "rgb.png");
    put_golden("sets/val/bird/3.png", "rgb.png");
    put_text("sets/train/empty/readme.txt", "no class");
    open_ok("sets", &o, &s);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.n_classes, 3);
    check_item(&s, 0, "train/cat/1.png", "cat");
    check_item(&s, 1, "train/dog/x/deep.png", "dog");
    check_item(&s, 2, "val/bird/3.png", "bird");
    check_item(&s, 3, "val/cat/2.png", "cat");
    assert_string_equal(s.class_name[0], "bird"); /* sorted */
    source_close(&s);
    o.split = "val";
    open_ok("sets", &o, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.n_classes, 2);
    source_close(&s);
    o.split = "test";
    assert_fails(CONR_EINVAL, "no split 'test'", source_open(temporary_path("sets"), &o, &s));
    o.split = NULL, o.classes = "dog,bird";
    open_ok("sets", &o, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.n_classes, 2);
    source_close(&s);
    /* a class that happens to be called train */
    put_golden("vehicles/train/1.png", "rgb.png");
    put_golden("vehicles/bus/1.png", "rgb.png");
    open_ok("vehicles", &plain, &s);
    assert_int_equal(s.n_classes, 2);
    source_close(&s);
    /* one folder beside images is not a class */
    put_golden("loose/1.png", "rgb.png");
    put_golden("loose/more/2.png", "rgb.png");
    open_ok("loose", &plain, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.n_classes, 0);
    check_item(&s, 1, "more/2.png", NULL);
    source_close(&s);
    /* the only folder of an unpacked archive */
    put_golden("archive/inner/a/1.png", "rgb.png");
    put_golden("archive/inner/b/1.png", "rgb.png");
    open_ok("archive", &plain, &s);
    assert_int_equal(s.n_classes, 2);
    source_close(&s);
}

static void odd_names_and_links(void **state) {
    (void)state;
    source s;
    put_golden("odd/a\nb/new\nline.png", "rgb.png");
    put_golden("odd/\xff\xfe/bad \xc3.png", "rgb.png");
    put_golden("odd/z/plain.png", "rgb.png");
    assert_int_equal(symlink("..", temporary_path("odd/z/up")), 0); /* a cycle */
    assert_int_equal(symlink(".", temporary_path("odd/self")), 0);  /* another */
    assert_int_equal(symlink("plain.png", temporary_path("odd/z/link.png")), 0);
    open_ok("odd", &plain, &s);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.n_classes, 3);
    check_item(&s, 0, "new\nline.png", "a\nb");
    check_item(&s, 1, "z/link.png", "z");
    check_item(&s, 3, "bad \xc3.png", "\xff\xfe");
    source_close(&s);
}

static void bad_files_are_counted(void **state) {
    (void)state;
    source s;
    char name[64];
    for (int i = 0; i < 38; i++) {
        snprintf(name, sizeof name, "most/%02d.png", i);
        put_golden(name, "rgb.png");
    }
    put("most/a_empty.png", "", 0);
    put_text("most/b_text.jpg", "this is not a picture");
    open_ok("most", &plain, &s);
    assert_int_equal(s.n, 38);
    assert_int_equal(s.skipped, 2);
    assert_int_equal(s.n_reasons, 2);
    assert_non_null(strstr(s.reason[0], "a_empty.png"));
    assert_non_null(strstr(s.reason[1], "b_text.jpg"));
    source_close(&s);
    assert_int_equal(symlink("nowhere", temporary_path("most/c_dangling.png")), 0); /* 3 of 41 */
    assert_fails(CONR_EFORMAT, "3 of 41", source_open(temporary_path("most"), &plain, &s));
    mkdir(temporary_path("none"), 0777);
    put_text("none/readme.txt", "nothing");
    assert_fails(CONR_EFILE, "contains no images", source_open(temporary_path("none"), &plain, &s));
    assert_fails(CONR_EFILE, "nowhere", source_open(temporary_path("nowhere"), &plain, &s));
    put("zero/1.png", "", 0);
    assert_fails(CONR_EFORMAT, "1 of 1", source_open(temporary_path("zero"), &plain, &s));
}

/* A file that looks like an image and is not read is counted, but is no reason to stop. */
static void none_vanishes(void **state) {
    (void)state;
    source s;
    put_golden("mixed/a/1.png", "rgb.png");
    put_golden("mixed/a/2.png", "rgb.png");
    put_text("mixed/a/notes.txt", "no picture");
    put_golden("mixed/a/3.part", "rgb.jpg");
    put_text("mixed/b/1.CR2", "raw");
    put_text("mixed/b/2.jxl", "new");
    open_ok("mixed", &plain, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.skipped, 3);
    assert_int_equal(s.foreign, 3);
    assert_int_equal(s.n_reasons, 3); /* each by its name */
    assert_non_null(strstr(s.reason[0], "3.part: is JPEG by its content"));
    assert_non_null(strstr(s.reason[1], "1.CR2: is of a format"));
    assert_non_null(strstr(s.reason[2], "2.jxl: is of a format"));
    source_close(&s);
    put("mixed/a/4.png", "", 0); /* one of three that conr should be able to read */
    assert_fails(CONR_EFORMAT, "4 of 6", source_open(temporary_path("mixed"), &plain, &s));
    put_text("raw/1.nef", "raw");
    assert_fails(CONR_EFORMAT, "1.nef: is of a format",
                 source_open(temporary_path("raw"), &plain, &s));
}

/* Whatever the order in which threads meet bad images: the reasons of the first ones are kept. */
static void the_first_reasons_are_kept(void **state) {
    (void)state;
    enum { N = 60 * SOURCE_REASONS, BAD = SOURCE_REASONS + 500 };
    source s;
    unreadable u;
    char text[64];
    assert_ok(source_new("many", &s));
    for (int i = 0; i < N; i++) assert_ok(source_add_item(&s, "x.png", "x.png", -1));
    assert_ok(unreadable_new(&s, &u));
    for (int k = 0; k < BAD; k++) {
        int i = 7 * k % BAD; /* 7 and BAD have no common factor: each of them once */
        unreadable_note(&u, i, fail(CONR_EFORMAT, "image %d", i));
    }
    assert_ok(unreadable_check(&u));
    assert_ok(unreadable_drop(&u, &s, NULL, 0));
    assert_int_equal(s.n, N - BAD);
    assert_int_equal(s.skipped, BAD);
    assert_int_equal(s.n_reasons, SOURCE_REASONS);
    for (int i = 0; i < SOURCE_REASONS; i++) {
        snprintf(text, sizeof text, "image %d", i);
        assert_string_equal(s.reason[i], text);
    }
    unreadable_free(&u);
    source_close(&s);
}

static int stop_at_once(int64_t done, int64_t total, void *user) {
    (void)done, (void)total;
    ++*(int *)user;
    return 1;
}

static void probing_can_be_stopped(void **state) {
    (void)state;
    source s;
    int calls = 0;
    char text[300 * 16] = "";
    put_golden("stop/x.png", "rgb.png");
    for (int i = 0; i < 300; i++) strcat(text, "x.png\n");
    put_text("stop/list.txt", text);
    source_options o = {.threads = 1, .tell = {stop_at_once, &calls}};
    assert_fails(CONR_ESTOPPED, "stopped", source_open(temporary_path("stop/list.txt"), &o, &s));
    assert_int_equal(calls, 1);
}

static void tiny_imagenet(void **state) {
    (void)state;
    source s;
    source_options o = plain;
    put_golden("tiny/train/n02/images/n02_0.JPEG", "rgb.jpg");
    put_golden("tiny/train/n01/images/n01_0.JPEG", "rgb.jpg");
    put_golden("tiny/val/images/val_1.JPEG", "rgb.jpg");
    put_golden("tiny/val/images/val_0.JPEG", "gray.jpg");
    put_golden("tiny/test/images/test_0.JPEG", "rgb.jpg");
    put_text("tiny/val/val_annotations.txt",
             "val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n");
    open_ok("tiny", &o, &s);
    assert_int_equal(s.kind, SOURCE_TINY);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.n_classes, 2);
    check_item(&s, 0, "n01_0.JPEG", "n01");
    check_item(&s, 2, "val_0.JPEG", "n02");
    check_item(&s, 3, "val_1.JPEG", "n01");
    source_close(&s);
    o.split = "train";
    open_ok("tiny", &o, &s);
    assert_int_equal(s.n, 2);
    source_close(&s);
    o.split = "test";
    open_ok("tiny", &o, &s);
    assert_int_equal(s.n, 1);
    check_item(&s, 0, "test_0.JPEG", NULL);
    source_close(&s);
}

static void lists(void **state) {
    (void)state;
    source s;
    char text[4096];
    put_golden("list/sub/a b.png", "rgb.png");
    put_golden("list/c.png", "rgb.png");
    snprintf(text, sizeof text, "sub/a b.png\tzebra\r\n\n%s\tant\nc.png\n",
             temporary_path("list/c.png"));
    put_text("list/some.txt", text);
    open_ok("list/some.txt", &plain, &s);
    assert_int_equal(s.kind, SOURCE_LIST);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.n_classes, 2);
    check_item(&s, 0, "sub/a b.png", "zebra");
    assert_string_equal(s.item[0].path, "sub/a b.png"); /* as in the list */
    check_item(&s, 1, "c.png", "ant");
    check_item(&s, 2, "c.png", NULL);
    source_close(&s);
    put_text("list/numbers.txt", "c.png\t7\nc.png\t10\nc.png\t-1\nc.png"); /* kept as they are */
    open_ok("list/numbers.txt", &plain, &s);
    assert_int_equal(source_label(&s, 0), 7);
    assert_int_equal(source_label(&s, 1), 10);
    assert_int_equal(source_label(&s, 2), -1);
    assert_int_equal(source_label(&s, 3), -1);
    assert_int_equal(s.n_classes, 11);
    source_close(&s);
    put_text("list/bad.txt", "c.png\nmissing.png\n");
    assert_fails(CONR_EFORMAT, "1 of 2", source_open(temporary_path("list/bad.txt"), &plain, &s));
    put_text("list/blank.txt", "\n\n");
    assert_fails(CONR_EFORMAT, "lists no images",
                 source_open(temporary_path("list/blank.txt"), &plain, &s));
    put_text("list/label.txt", "\tcat\n");
    assert_fails(CONR_EFORMAT, "no path",
                 source_open(temporary_path("list/label.txt"), &plain, &s));
    open_ok("list/c.png", &plain, &s); /* a single image is a source too */
    assert_int_equal(s.kind, SOURCE_IMAGE);
    assert_int_equal(s.n, 1);
    source_close(&s);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void compare_to(const source *s, const char *golden) {
    char path[64];
    image m = {0};
    npy want;
    snprintf(path, sizeof path, "images/%s", golden);
    assert_ok(npy_read(golden_path(path), &want));
    assert_int_equal(s->n, want.dim[0]);
    size_t each = want.count / (size_t)want.dim[0];
    for (int64_t i = 0; i < s->n; i++) {
        assert_ok(source_read(s, i, s->gray ? 1 : 3, 0, &m));
        assert_int_equal(m.w * m.h * m.c, each);
        assert_memory_equal(m.pixels, (unsigned char *)want.data + (size_t)i * each, each);
    }
    npy_free(&want);
    image_free(&m);
}

static void cifar(void **state) {
    (void)state;
    source s;
    source_options o = plain;
    float mean[3], deviation[3];
    assert_ok(source_open(golden_path("images/cifar10"), &o, &s));
    assert_int_equal(s.kind, SOURCE_CIFAR10);
    compare_to(&s, "cifar10.npy");
    check_item(&s, 0, "data_batch_1.bin#0", "name3");
    check_item(&s, 1, "test_batch.bin#0", "name9");
    assert_true(source_known_norm(&s, mean, deviation) && mean[0] == .4914f);
    source_close(&s);
    assert_ok(source_open(golden_path("images/cifar100"), &o, &s));
    assert_int_equal(s.kind, SOURCE_CIFAR100);
    assert_int_equal(s.n_classes, 100);
    assert_int_equal(source_label(&s, 0), 99);
    assert_int_equal(source_label(&s, 1), 41);
    source_close(&s);
    o.coarse = true;
    assert_ok(source_open(golden_path("images/cifar100"), &o, &s));
    assert_int_equal(s.n_classes, 20);
    assert_int_equal(source_label(&s, 0), 19);
    source_close(&s);
    assert_fails(CONR_EINVAL, "coarse", source_open(golden_path("images/cifar10"), &o, &s));
    o.coarse = false, o.split = "test";
    assert_ok(source_open(golden_path("images/cifar10"), &o, &s));
    assert_int_equal(s.n, 1);
    source_close(&s);
    char bytes[3072] = {0};
    put("cut/data_batch_1.bin", bytes, sizeof bytes);
    assert_fails(CONR_EFORMAT, "cut short", source_open(temporary_path("cut"), &plain, &s));
    char record[3073] = {11};
    put("wrong/data_batch_1.bin", record, sizeof record);
    assert_fails(CONR_EFORMAT, "label 11", source_open(temporary_path("wrong"), &plain, &s));
}

/* The planes of STL are stored column by column. */
static unsigned char stl_value(int n, int k, int y, int x) {
    return (unsigned char)(n * 91 + k * 50 + y * 3 + x * 7);
}

static void stl(void **state) {
    (void)state;
    enum { SIDE = 96, BYTES = SIDE * SIDE * 3 };
    source s;
    image m = {0};
    unsigned char *x = malloc(2 * BYTES);
    assert_non_null(x);
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 3; k++)
            for (int column = 0; column < SIDE; column++)
                for (int row = 0; row < SIDE; row++)
                    x[n * BYTES + (k * SIDE + column) * SIDE + row] = stl_value(n, k, row, column);
    put("stl/train_X.bin", x, 2 * BYTES);
    put("stl/train_y.bin", "\x0a\x01", 2);
    put("stl/unlabeled_X.bin", x, BYTES);
    put("stl/test_X.bin", x, BYTES);
    put("stl/test_y.bin", "\x03", 1);
    put_text("stl/class_names.txt",
             "airplane\nbird\ncar\ncat\ndeer\ndog\nhorse\nmonkey\nship\ntruck\n");
    open_ok("stl", &plain, &s);
    assert_int_equal(s.kind, SOURCE_STL10);
    assert_int_equal(s.n, 4);
    check_item(&s, 0, "train_X.bin#0", "truck");
    check_item(&s, 1, "train_X.bin#1", "airplane");
    check_item(&s, 2, "test_X.bin#0", "car");
    check_item(&s, 3, "unlabeled_X.bin#0", NULL);
    assert_ok(source_read(&s, 1, 3, 0, &m));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(m.pixels[i], stl_value(1, i % 3, i / 3 / SIDE, i / 3 % SIDE));
    source_close(&s);
    source_options o = plain;
    o.split = "unlabeled";
    open_ok("stl", &o, &s);
    assert_int_equal(s.n, 1);
    source_close(&s);
    put("stl/test_y.bin", "\x0b", 1);
    assert_fails(CONR_EFORMAT, "label 11", source_open(temporary_path("stl"), &plain, &s));
    put("stl/test_y.bin", "", 0);
    assert_fails(CONR_EFORMAT, "labels", source_open(temporary_path("stl"), &plain, &s));
    image_free(&m);
    free(x);
}

static void idx_files(void **state) {
    (void)state;
    source s;
    source_options o = plain;
    assert_ok(source_open(golden_path("images/idx"), &o, &s)); /* train plain, t10k gzipped */
    assert_int_equal(s.kind, SOURCE_IDX);
    assert_true(s.gray);
    compare_to(&s, "gray.npy");
    check_item(&s, 0, "train-images-idx3-ubyte#0", "1");
    check_item(&s, 4, "t10k-images-idx3-ubyte.gz#0", "2");
    assert_int_equal(s.n_classes, 4);
    source_close(&s);
    o.split = "test";
    assert_ok(source_open(golden_path("images/idx"), &o, &s));
    assert_int_equal(s.n, 2);
    source_close(&s);
    assert_ok(source_open(golden_path("images/idx/t10k-images-idx3-ubyte.gz"), &plain, &s));
    assert_int_equal(s.n, 2);
    assert_int_equal(source_label(&s, 1), 2); /* found by name, beside it */
    source_close(&s);
    file_map m;
    assert_ok(file_map_open(golden_path("images/idx/t10k-images-idx3-ubyte.gz"), &m));
    put("cut.idx.gz", m.data, m.size / 2);
    file_map_close(&m);
    assert_fails(CONR_EFORMAT, "gzip", source_open(temporary_path("cut.idx.gz"), &plain, &s));
    static const unsigned char huge[] = {0,   0,   8,   3,   255, 255, 255, 255,
                                         255, 255, 255, 255, 255, 255, 255, 255};
    put("huge.idx", huge, sizeof huge);
    assert_fails(CONR_EFORMAT, "huge.idx", source_open(temporary_path("huge.idx"), &plain, &s));
}

static void npy_arrays(void **state) {
    (void)state;
    source s;
    float x[4] = {0};
    assert_ok(source_open(golden_path("images/gray.npy"), &plain, &s));
    assert_int_equal(s.kind, SOURCE_NPY);
    compare_to(&s, "gray.npy");
    check_item(&s, 3, "gray.npy#3", NULL);
    source_close(&s);
    assert_ok(source_open(golden_path("images/cifar10.npy"), &plain, &s));
    compare_to(&s, "cifar10.npy");
    assert_false(s.gray);
    source_close(&s);
    assert_ok(npy_write(temporary_path("f.npy"), 'f', 4, 2, (int64_t[]){2, 2}, x));
    assert_fails(CONR_EFORMAT, "uint8", source_open(temporary_path("f.npy"), &plain, &s));
    assert_ok(npy_write(temporary_path("u.npy"), 'u', 1, 4, (int64_t[]){1, 2, 2, 4}, x));
    assert_fails(CONR_EFORMAT, "2 x 2 x 4", source_open(temporary_path("u.npy"), &plain, &s));
    assert_ok(npy_write(temporary_path("e.npy"), 'u', 1, 3, (int64_t[]){0, 2, 2}, x));
    assert_fails(CONR_EFORMAT, "e.npy", source_open(temporary_path("e.npy"), &plain, &s));
}

/* Class c of C keeps the first f^(-c/(C-1)) of its images, unchanged. */
static void long_tail(void **state) {
    (void)state;
    source all, thin;
    image a = {0}, b = {0};
    char name[2][256];
    int count[10] = {0};
    assert_ok(source_open(CONR_GOLDEN "/../samples/fashion-mnist", &plain, &all));
    assert_ok(source_open(CONR_GOLDEN "/../samples/fashion-mnist", &plain, &thin));
    assert_ok(source_thin(&thin, 10));
    for (int64_t i = 0; i < thin.n; i++) count[source_label(&thin, i)]++;
    assert_int_equal(count[0], 1000);
    assert_int_equal(count[4], 359); /* 1000 * 10^(-4/9) = 359.4 */
    assert_int_equal(count[9], 100);
    for (int64_t i = 0; i < thin.n; i += 97) {
        int64_t at = thin.pick[i];
        assert_string_equal(source_name(&thin, i, name[0], sizeof name[0]),
                            source_name(&all, at, name[1], sizeof name[1]));
        assert_int_equal(source_label(&thin, i), source_label(&all, at));
        assert_ok(source_read(&thin, i, 1, 0, &a));
        assert_ok(source_read(&all, at, 1, 0, &b));
        assert_memory_equal(a.pixels, b.pixels, (size_t)a.w * (size_t)a.h);
    }
    image_free(&a);
    image_free(&b);
    source_close(&all);
    source_close(&thin);
}

static void strange_files(void **state) {
    (void)state;
    source s;
    static const unsigned char noise[] = {7, 0, 9, 0, 200, 1, 2, 3};
    put("noise", noise, sizeof noise);
    assert_fails(CONR_EFORMAT, "is not an image", source_open(temporary_path("noise"), &plain, &s));
    put("nothing", "", 0);
    assert_fails(CONR_EFORMAT, "empty", source_open(temporary_path("nothing"), &plain, &s));
    assert_fails(CONR_EFILE, "device", source_open("/dev/null", &plain, &s));
}

/* The identity of an array of ten images of 4 x 4 pixels of which one byte is changed. */
static uint64_t identity_with(const char *name, uint64_t most, int image) {
    unsigned char file[128 + 160] = "\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': "
                                    "False, 'shape': (10, 4, 4), }";
    uint64_t out;
    source s;
    source_options o = {.threads = 1};
    size_t n = 10 + strlen((char *)file + 10);
    memset(file + n, ' ', 127 - n);
    file[127] = '\n';
    for (int i = 0; i < 160; i++) file[128 + i] = (unsigned char)(i * 7);
    if (image >= 0) file[128 + 16 * image + 5] ^= 1;
    assert_ok(source_open(temporary_file(name, file, sizeof file), &o, &s));
    assert_int_equal(s.n, 10);
    assert_ok(source_identity(&s, most, &out));
    source_close(&s);
    return out;
}

/* All bytes count if they are few, else those of every second, third, ... image. */
static void identity_of_a_sample(void **state) {
    (void)state;
    uint64_t all = identity_with("a.npy", 1000, -1), some = identity_with("a.npy", 60, -1);
    assert_int_equal(all, identity_with("b.npy", 1000, -1));
    for (int i = 0; i < 10; i++) {
        assert_int_not_equal(all, identity_with("a.npy", 1000, i));
        assert_int_equal(some != identity_with("a.npy", 60, i), i % 3 == 0); /* 160 / 60 + 1 */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_folder),
        cmocka_unit_test(classes_and_splits),
        cmocka_unit_test(odd_names_and_links),
        cmocka_unit_test(bad_files_are_counted),
        cmocka_unit_test(none_vanishes),
        cmocka_unit_test(the_first_reasons_are_kept),
        cmocka_unit_test(probing_can_be_stopped),
        cmocka_unit_test(tiny_imagenet),
        cmocka_unit_test(lists),
        cmocka_unit_test(cifar),
        cmocka_unit_test(stl),
        cmocka_unit_test(idx_files),
        cmocka_unit_test(npy_arrays),
        cmocka_unit_test(long_tail),
        cmocka_unit_test(strange_files),
        cmocka_unit_test(identity_of_a_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
