/* folder_test.c: the files of a run read back: names with commas, quotes and line breaks; lines
 * that were cut short; broken files. */
#include "base/test_help.h"

#include "base/npy.h"
#include "report/folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *put(const char *name, const char *text) {
    return temporary_file(name, text, strlen(text));
}

static const char *here(void) { /* the folder of the temporary files */
    static char path[4096];
    snprintf(path, sizeof path, "%s", temporary_path("x"));
    *strrchr(path, '/') = 0;
    return path;
}

static void write_run(const char *labels, int rows) {
    float f[8] = {1, 0, 1, 0, 0, 1, 0, 1};
    put("options.yaml", "epochs: 3\nstage1_epochs: 2\nseed: 7\n");
    put("labels.csv", labels);
    assert_ok(npy_write(temporary_path("embeddings.npy"), 'f', 4, 2, (int64_t[]){rows, 2}, f));
}

static void test_run(void **state) {
    (void)state;
    folder f;
    write_run("path,cluster,distance,boundary,label\n"
              "a.png,0,0.5,0.25,1\n\"b,\"\"c\"\"\nd.png\",2,1e-3,1.5,-1\nx#1,1,0,0,0\n",
              3);
    put("log.jsonl",
        "{\"step\":1,\"epoch\":0.5,\"loss\":-1.5,\"lr\":0.1,\"images_per_s\":50,\"seconds\":2}\n"
        "{\"step\":4,\"epoch\":2,\"images_per_s\":300,\"seconds\":3}\n"
        "{\"epoch\":1,\"objective\":3,\"nmi\":0.4,\"acc\":0.5,\"ari\":0.3}\n"
        "{\"epoch\":1,\"warning\":\"warning: old\"}\n"
        "{\"epoch\":3,\"objective\":2,\"nmi\":0.6,\"acc\":0.7,\"ari\":0.5,"
        "\"neighbor_agreement\":0.8,\"modularity\":0.7,\"gap\":0.01}\n"
        "{\"epoch\":3,\"warning\":\"warning: new\"}\n{\"epoch\":4,\"nm");
    put("data.json", "{\"path\":\"/p\",\"kind\":\"image folder\",\"skipped\":2,\"skipped_files\":"
                     "[\"a: cut\",null,\"b: empty\"],\"width\":[1,2],"
                     "\"height\":[3,4],\"channels\":3,\"classes\":[\"cat\",\"5\"]}");
    assert_ok(folder_open(here(), &f));
    assert_ok(folder_read_images(&f));
    assert_int_equal(f.n, 3);
    assert_int_equal(f.K, 3);
    assert_int_equal(f.o.seed, 7);
    assert_string_equal(f.image[1], "b,\"c\"\nd.png");
    assert_int_equal(f.cluster[1], 2);
    assert_int_equal(f.label[1], -1);
    assert_true(f.boundary[1] == 1.5f && f.distance[0] == 0.5f);
    assert_int_equal(f.log.loss.n, 1);
    assert_int_equal(f.log.acc.n, 2);
    assert_true(f.log.agreement.n == 1 && f.log.agreement.x[0] == 3 && f.log.agreement.y[0] == 0.8);
    assert_true(f.log.modularity.n == 1 && f.log.modularity.y[0] == 0.7);
    assert_true(f.log.gap.n == 1 && f.log.gap.y[0] == 0.01);
    /* over all steps: one at 50 and three at 300 images per second make four at 133 */
    assert_float_equal(f.log.images_per_s, 4 / (1 / 50.0 + 3 / 300.0), 1e-4);
    assert_int_equal(f.log.n_warnings, 1);
    assert_int_equal(f.log.earlier, 1);
    assert_string_equal(f.log.warning[0], "new");
    assert_int_equal(f.data.skipped, 2);
    assert_int_equal(f.data.n_reasons, 2);
    assert_string_equal(f.data.reason[1], "b: empty");
    assert_string_equal(folder_class(&f, 0), "cat");
    assert_string_equal(folder_class(&f, 1), "class 5");
    assert_string_equal(folder_class(&f, 9), "class 9");
    assert_string_equal(folder_class(&f, -1), "no label");
    folder_close(&f);
    folder_close(&f);
}

static void test_broken(void **state) {
    (void)state;
    static const struct {
        const char *labels, *text;
        int rows;
    } cases[] = {{"", "its columns are not", 1},
                 {"path,cluster,distance,boundary\n", "has no images", 1},
                 {"path,cluster,distance,boundary\na,x,0,0\n", "row 2", 1},
                 {"path,cluster,distance,boundary\na,0,0\n", "row 2", 1},
                 {"path,cluster,distance,boundary\na,-1,0,0\n", "row 2", 1},
                 {"path,cluster,distance,boundary\n\"a,0,0,0\n", "row 2", 1},
                 {"path,cluster,distance,boundary\na,0,nan,0\n", "row 2", 1},
                 {"path,cluster,distance,boundary\na,0,0,0\n", "2 rows", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder f;
        write_run(cases[i].labels, cases[i].rows);
        assert_ok(folder_open(here(), &f));
        assert_fails(CONR_EFORMAT, cases[i].text, folder_read_images(&f));
        folder_close(&f);
    }
    folder f;
    assert_fails(CONR_EFILE, "holds no run", folder_open("/nowhere", &f));
    /* a log that opens but cannot be read, as on a bad disk, is not an empty one */
    remove(temporary_path("log.jsonl"));
    assert_int_equal(mkdir(temporary_path("log.jsonl"), 0777), 0);
    assert_fails(CONR_EFILE, "log.jsonl: cannot be read", folder_open(here(), &f));
    assert_int_equal(rmdir(temporary_path("log.jsonl")), 0);
    assert_ok(folder_open(here(), &f));
    folder_close(&f);
}

static void test_shared(void **state) {
    (void)state;
    static const char *const names[] = {"a/bc/x.png", "a/bc/y.png", "a/bd/z.png", "z.png"};
    assert_int_equal(folder_shared(names, 0), 0);
    assert_int_equal(folder_shared(names, 1), 5);
    assert_int_equal(folder_shared(names, 2), 5);
    assert_int_equal(folder_shared(names, 3), 2); /* whole folders, not letters */
    assert_int_equal(folder_shared(names, 4), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
