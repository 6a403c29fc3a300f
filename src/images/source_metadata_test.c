/* source_metadata_test.c: labels from metadata.csv and metadata.jsonl. */
#include "images/source_test_help.h"

#include <stdlib.h>
#include <unistd.h>

static void metadata_labels(void **state) {
    (void)state;
    source s;
    source_options test = {.split = "test", .threads = 1};
    const char *const names[] = {"1.png", "2.png", "3.png", "sub/4.png"};
    char path[64];
    for (int form = 0; form < 3; form++)
        for (int i = 0; i < 4; i++) {
            snprintf(path, sizeof path, "hf%d/%s%s", form,
                     form == 2 ? i < 2 ? "train/" : "test/" : "", names[i]);
            put_golden(path, "rgb.png");
        }
    put_text("hf0/metadata.csv", "file_name,text,label\n./sub/4.png,\"a, b\",dog\n1.png,x,cat\n"
                                 "2.png,y,\n1.png,again,cat\n");
    open_ok("hf0", &plain, &s);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.n_classes, 2);
    check_item(&s, 0, "1.png", "cat");
    check_item(&s, 1, "2.png", NULL);
    check_item(&s, 2, "3.png", NULL);
    check_item(&s, 3, "4.png", "dog");
    assert_true(source_has_file(&s, temporary_path("hf0/metadata.csv")));
    source_close(&s);
    put_text("hf1/metadata.jsonl", "{\"file_name\": \"1.png\", \"labels\": 2}\n\n"
                                   "{\"file_name\": \"2.png\", \"labels\": 0}\r\n"
                                   "{\"file_name\": \"3.png\", \"labels\": null}\n"
                                   "{\"file_name\": \"sub/4.png\"}");
    open_ok("hf1", &plain, &s);
    assert_int_equal(s.n_classes, 3); /* numbers are kept */
    assert_int_equal(source_label(&s, 0), 2);
    assert_int_equal(source_label(&s, 1), 0);
    check_item(&s, 2, "3.png", NULL);
    source_close(&s);
    put_text("hf2/metadata.csv", "file_name,class\ntrain/1.png,b\ntrain/2.png,a\n");
    put_text("hf2/test/metadata.csv", "file_name,class\n3.png,a\nsub/4.png,b\n");
    open_ok("hf2", &plain, &s);
    assert_int_equal(s.n_classes, 2);
    check_item(&s, 0, "train/1.png", "b");
    check_item(&s, 2, "test/3.png", "a");
    source_close(&s);
    open_ok("hf2", &test, &s);
    assert_int_equal(s.n, 2);
    check_item(&s, 1, "sub/4.png", "b");
    source_close(&s);
    /* images in one folder below the metadata; captions without labels; class folders win */
    put_golden("hf3/images/1.png", "rgb.png");
    put_golden("hf3/images/2.png", "rgb.png");
    put_text("hf3/metadata.csv", "file_name,label\nimages/1.png,images\nimages/2.png,b\n");
    open_ok("hf3", &plain, &s);
    assert_int_equal(s.n_classes, 2);
    check_item(&s, 0, "1.png", "images");
    source_close(&s);
    put_text("hf3/metadata.csv", "file_name,text\nimages/1.png,hello\n");
    open_ok("hf3", &plain, &s);
    assert_int_equal(s.n_classes, 0);
    source_close(&s);
    put_golden("hf3/other/3.png", "rgb.png");
    put_text("hf3/metadata.csv", "file_name,label\nimages/1.png,x\nimages/2.png,y\n");
    open_ok("hf3", &plain, &s);
    check_item(&s, 0, "1.png", "images");
    source_close(&s);
}

static void hostile_metadata(void **state) {
    (void)state;
    source s;
    static const struct {
        const char *name, *text, *error;
    } bad[] = {
        {"metadata.csv", "path,label\n1.png,a\n", "metadata.csv: has no file_name"},
        {"metadata.csv", "", "metadata.csv: "},
        {"metadata.csv", "file_name,label\n1.png,a\n2.png\n", "metadata.csv: "},
        {"metadata.csv", "file_name,label\nno.png,a\n", "row 2: 'no.png' is not there"},
        {"metadata.csv", "file_name,label\na/../../1.png,a\n", "leaves the folder"},
        {"metadata.csv", "file_name,label\n..,a\n", "leaves the folder"},
        {"metadata.csv", "file_name,label\n/etc/passwd,a\n", "leaves the folder"},
        {"metadata.csv", "file_name,label\n,a\n", "names no file"},
        {"metadata.csv", "file_name,label\n1.png,a\n1.png,b\n", "row 3: '1.png' has two labels"},
        {"metadata.jsonl", "{\"label\": 1}\n", "has no file_name"},
        {"metadata.jsonl", "\n[1]\n", "row 2 is no JSON object"},
        {"metadata.jsonl", "{\"file_name\": \"1.png\", \"label\": [1]}", "no whole number"},
    };
    put_golden("hf4/1.png", "rgb.png");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[64];
        snprintf(path, sizeof path, "hf4/%s", bad[i].name);
        put_text(path, bad[i].text);
        assert_fails(CONR_EFORMAT, bad[i].error, source_open(temporary_path("hf4"), &plain, &s));
        unlink(temporary_path(path));
    }
    size_t n = (1 << 20) + 10;
    char *line = malloc(n);
    assert_non_null(line);
    memset(line, ' ', n);
    put("hf4/metadata.jsonl", line, n);
    assert_fails(CONR_EFORMAT, "row 1 has more than 1 MiB",
                 source_open(temporary_path("hf4"), &plain, &s));
    put("hf4/metadata.jsonl", "{}\0{}", 5);
    assert_fails(CONR_EFORMAT, "no JSON object", source_open(temporary_path("hf4"), &plain, &s));
    unlink(temporary_path("hf4/metadata.jsonl"));
    memcpy(line, "file_name,label\n1.png,", 22);
    memset(line + 22, 'x', 2000);
    put("hf4/metadata.csv", line, 2022);
    assert_fails(CONR_EFORMAT, "more than 1,000 bytes",
                 source_open(temporary_path("hf4"), &plain, &s));
    put_text("hf4/metadata.jsonl", "");
    assert_fails(CONR_EFORMAT, "keep one", source_open(temporary_path("hf4"), &plain, &s));
    free(line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_labels),
        cmocka_unit_test(hostile_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
