/* arrays_test.c: labels from CSV and .npy files: which column, which rows, what is refused. */
#include "base/test_help.h"

#include <string.h>

static void read_text(const char *text, const char *column, const int64_t *wanted, int64_t n) {
    int64_t *labels, count;
    assert_ok(
        conr_read_labels(temporary_file("l.csv", text, strlen(text)), column, &labels, &count));
    assert_int_equal(count, n);
    assert_memory_equal(labels, wanted, n * sizeof *wanted);
    conr_free(labels);
}

static void reads_labels(void **state) {
    (void)state;
    const int64_t wanted[] = {3, -1, 0};
    read_text("3\n-1\n0\n", NULL, wanted, 3);
    read_text("3\r\n-1\r\n\r\n0", NULL, wanted, 3);
    read_text("path,cluster,distance\na.png,3,0.1\n\"b,c.png\",-1,0.2\nc,0,1\n", NULL, wanted, 3);
    read_text("\xEF\xBB\xBFlabel\n3\n-1\n0\n", NULL, wanted, 3);
    read_text("path,cluster,label\na,9,3\nb,9,-1\nc,9,0\n", "label", wanted, 3);
    read_text("a,3\nb, -1\nc,0\n", NULL, wanted, 3);
    read_text("name;ignored,what\nx,3\ny,-1\nz,0\n", NULL, wanted, 3);
    read_text("path, cluster \n\"a \"\"b\"\",\r\nc\",3\n\"\"\"\",\"-1\"\n\" \", 0 \n", NULL, wanted,
              3);
    int64_t *labels, n;
    assert_fails(CONR_EFORMAT, "no column 'x'",
                 conr_read_labels(temporary_file("a.csv", "y\n1\n", 4), "x", &labels, &n));
    assert_fails(CONR_EFORMAT, "row 2 has '1.5'",
                 conr_read_labels(temporary_file("a.csv", "1\n1.5\n", 6), NULL, &labels, &n));
    assert_fails(
        CONR_EFORMAT, "row 3 has 1 columns",
        conr_read_labels(temporary_file("a.csv", "a,label\n1,2\n1\n", 14), NULL, &labels, &n));
    assert_fails(CONR_EFORMAT, "no labels",
                 conr_read_labels(temporary_file("a.csv", "", 0), NULL, &labels, &n));
    assert_fails(CONR_EFILE, "nowhere", conr_read_labels("/nowhere.csv", NULL, &labels, &n));
    const int32_t ints[] = {3, -1, 0};
    assert_ok(conr_write_ints(temporary_path("l.npy"), ints, 3, 0));
    assert_ok(conr_read_labels(temporary_path("l.npy"), NULL, &labels, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(labels, wanted, sizeof wanted);
    conr_free(labels);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
