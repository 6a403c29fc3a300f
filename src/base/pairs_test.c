/* pairs_test.c: labels of two files, matched by path or by order; words as labels. */
#include "base/test_help.h"

#include <stdio.h>
#include <string.h>

static const char *text_file(const char *name, const char *text) {
    return temporary_file(name, text, strlen(text));
}

static int read_pair(const char *truth, const char *pred, int64_t **t, int64_t **p, int64_t *n) {
    return conr_read_pair(text_file("t.csv", truth), NULL, text_file("p.csv", pred), NULL, t, p, n);
}

static void gives(const char *truth, const char *pred, const int64_t *t, const int64_t *p,
                  int64_t n) {
    int64_t *a, *b, count;
    assert_ok(read_pair(truth, pred, &a, &b, &count));
    assert_int_equal(count, n);
    assert_memory_equal(a, t, (size_t)n * sizeof *t);
    assert_memory_equal(b, p, (size_t)n * sizeof *p);
    conr_free(a);
    conr_free(b);
}

static void refused(const char *text, const char *truth, const char *pred) {
    int64_t *a, *b, n;
    assert_fails(CONR_EFORMAT, text, read_pair(truth, pred, &a, &b, &n));
    assert_null(a);
    assert_null(b);
}

static void matches_by_path(void **state) {
    (void)state;
    const int64_t t[] = {5, 6, 7}, p[] = {1, 2, 3};
    gives("path,label\na,5\nb,6\nc,7\n", "path,cluster,distance\nc,3,0\na,1,0\nb,2,0\n", t, p, 3);
    gives("label,path\n5,a\n6,b\n7,\"c,\"\n", "cluster,path\n3,\"c,\"\n2,b\n1,a\n", t, p, 3);
    /* one of them without paths: in their order */
    const int64_t as_they_are[] = {3, 1, 2};
    gives("5\n6\n7\n", "path,cluster\nc,3\na,1\nb,2\n", t, as_they_are, 3);
    /* no titles: the word path is a path like any other */
    const int64_t one[] = {5}, two[] = {9};
    gives("path,5\n", "other,9\n", one, two, 1);
}

static void takes_words(void **state) {
    (void)state;
    const int64_t t[] = {0, 1, 0, -1}, p[] = {7, 8, 7, 8};
    gives("path,label\na,cat\nb,dog\nc,cat\nd,\n", "path,cluster\nd,8\nc,7\nb,8\na,7\n", t, p, 4);
    const int64_t mixed[] = {1, 0, 2}, q[] = {0, 1, 2};
    gives("label\n1\n01x\ncat\n", "0\n1\n2\n", mixed, q, 3);
    const int64_t numbers[] = {2, -1, 10}; /* not words: their values stay */
    gives("label\n2\n\"\"\n10\n", "0\n1\n2\n", numbers, q, 3);
    const int64_t words[] = {1, 0, 1};
    gives("0\n1\n2\n", "name,pred\nx,red\ny,blue\nz,red\n", q, words, 3);
}

static void refuses(void **state) {
    (void)state;
    refused("p.csv: 1 of its 2 paths are not in", "path,label\na,1\nb,2\n",
            "path,label\na,1\nx,2\n");
    refused("t.csv: 1 of its 3 paths are not in", "path,label\na,1\nb,2\nc,3\n",
            "path,label\na,1\nb,2\n");
    refused("such as 'x'", "path,label\na,1\nb,2\n", "path,label\na,1\nx,2\n");
    refused("p.csv: the path 'a' is in rows 2 and 4", "path,label\na,1\nb,2\n",
            "path,label\na,1\nb,2\na,1\n");
    refused("t.csv: the path 'a' is in rows 2 and 3", "path,label\na,1\na,2\n",
            "path,label\na,1\nb,2\n");
    refused("p.csv: 1 labels, but ", "1\n2\n", "1\n");
    refused("p.csv: label 2 is empty", "1\n2\n", "a,cluster\nx,1\ny,\n");
    refused("'cat' in its first row could be one or a title", "a,cat\nb,dog\n", "1\n2\n");
    refused("no labels", "path,label\n", "1\n");
}

/* Files of a finished run are compared with the checksums that its DONE lists. */
static void damage_is_noticed(void **state) {
    (void)state;
    const int64_t t[] = {5, 6}, p[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "xxh64 0123456789abcdef %c.csv\n", "tp"[i]);
        const char *done = text_file("DONE", line);
        refused("does not match its checksum", "5\n6\n", "1\n2\n");
        assert_int_equal(remove(done), 0);
    }
    gives("5\n6\n", "1\n2\n", t, p, 2);
    const char npy[] = "\x93NUMPY\1\0:\0{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n"
                       "\3\0\0\0\0\0\0";
    const char *done = text_file("DONE", "xxh64 0123456789abcdef p.npy\n");
    int64_t *a, *b, n;
    assert_fails(CONR_EFORMAT, "does not match its checksum",
                 conr_read_pair(text_file("t.csv", "5\n"), NULL,
                                temporary_file("p.npy", npy, sizeof npy), NULL, &a, &b, &n));
    assert_int_equal(remove(done), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_by_path),
                                       cmocka_unit_test(takes_words), cmocka_unit_test(refuses),
                                       cmocka_unit_test(damage_is_noticed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
