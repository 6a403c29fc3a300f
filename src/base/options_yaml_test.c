/* options_yaml_test.c: files of settings: read, refused, and read back as written. */
#include "base/options_test.h"

#include "base/file.h"

#include <locale.h>
#include <stdlib.h>

static int read_text(model_options *o, const char *text) {
    return options_read_yaml_text(LIST, o, "t.yaml", text, strlen(text));
}

/* The YAML of the settings, static memory. */
static const char *written(const model_options *o) {
    static char text[1 << 16];
    FILE *stream = fmemopen(text, sizeof text, "w");
    options_write_yaml(LIST, o, stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_round_trip(const model_options *o) {
    model_options back = defaults();
    back.before = o->before;
    back.after = o->after;
    assert_ok(read_text(&back, written(o)));
    assert_memory_equal(&back, o, sizeof back);
}

static void reads_yaml(void **state) {
    (void)state;
    model_options o = defaults();
    assert_ok(read_text(&o, "\357\273\277# a recipe\n"
                            "---\n"
                            "encoder: small   # the network\n"
                            "\n"
                            "'size': 64\r\n"
                            "lr: 1.5e-2\n"
                            "\"flip\": no\n"
                            "note: 'it''s # no comment'\n"
                            "weight-decay: 0\n"
                            "...\n"));
    assert_string_equal(o.encoder, "small");
    assert_int_equal(o.size, 64);
    assert_true(o.lr == 1.5e-2);
    assert_false(o.flip);
    assert_string_equal(o.note, "it's # no comment");
    assert_true(o.weight_decay == 0);
    assert_int_equal(o.any_int, -3); /* not named: as before */
    assert_ok(read_text(&o, "{size: 65, note: \"a\\u00e9\\n\"}"));
    assert_int_equal(o.size, 65);
    assert_string_equal(o.note, "a\303\251\n");
    assert_ok(read_text(&o, "note: |\n  two\n  lines\n"));
    assert_string_equal(o.note, "two\nlines\n");
    assert_ok(read_text(&o, "{}"));
    assert_true(o.before == 11 && o.after == 22);
}

static void refuses_wrong_yaml(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *text, *message;
    } bad[] = {
        {CONR_EFORMAT, "", "t.yaml:1: no settings in it"},
        {CONR_EFORMAT, "# only a comment\n", "no settings in it"},
        {CONR_EFORMAT, "---\n", "no settings"},
        {CONR_EFORMAT, "size\n", "t.yaml:1: no settings"},
        {CONR_EFORMAT, "- size: 3\n", "t.yaml:1: no settings"},
        {CONR_EFORMAT, "size: [32]\n", "t.yaml:1: size: a list or mapping where one value belongs"},
        {CONR_EFORMAT, "lr: 1\nsize:\n  min: 3\n", "t.yaml:3: size: a list or mapping"},
        {CONR_EFORMAT, "[size]: 3\n", "t.yaml:1: a list or mapping"},
        {CONR_EFORMAT, "? {a: b}\n: 3\n", "a list or mapping"},
        {CONR_EFORMAT, "size: &a 32\n", "an anchor"},
        {CONR_EFORMAT, "size: *a\n", "an alias"},
        {CONR_EFORMAT, "size: !!int 32\n", "a tag"},
        {CONR_EFORMAT, "size: 32\nlr: 1\nsize: 33\n", "t.yaml:3: size: already set on line 1"},
        {CONR_EFORMAT, "weight_decay: 1\nweight-decay: 1\n", "already set on line 1"},
        {CONR_EFORMAT, "size:\n", "size: no value"},
        {CONR_EFORMAT, "note:\nsize: 32\n", "note: no value"},
        {CONR_EFORMAT, "note: \"a\\0b\"\n", "a zero byte"},
        {CONR_EFORMAT, "\"size\\0\": 32\n", "a zero byte"},
        {CONR_EFORMAT, "size: 32\n---\nsize: 33\n", "t.yaml:2: a second document"},
        {CONR_EFORMAT, "size: 32\nlr: 3: 4\n", "t.yaml:2: not YAML"},
        {CONR_EFORMAT, "size: 32\nnote: \"open\n", "not YAML"},
        {CONR_EFORMAT, "size: 32\nlr: 1\nnote: \377\n", "t.yaml:3: not YAML"},
        {CONR_EFORMAT, "size: 32\nnote: \001\n", "t.yaml:2: not YAML"},
        {CONR_EFORMAT, "\tsize: 32\n", "t.yaml:1: not YAML"},
        {CONR_EINVAL, "lr: 1\nsiez: 32\n", "t.yaml:2: siez: no such setting; did you mean size?"},
        {CONR_EINVAL, "\"a\\nb\": 32\n", "t.yaml:1: a?b: no such setting"},
        {CONR_EINVAL, "<<: 32\n", "<<: no such setting"},
        {CONR_EINVAL, "lr: 1\n\nsize: abc\n", "t.yaml:3: size=abc: not a whole number; give 16 to"},
        {CONR_EINVAL, "size: 5000\n", "t.yaml:1: size=5000: out of range"},
        {CONR_EINVAL, "flip: 2\n", "t.yaml:1: flip=2: neither"},
        {CONR_EINVAL, "lr: .nan\n", "t.yaml:1: lr=.nan: not a number"},
        {CONR_EINVAL, "encoder: null\n", "not one of its choices"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_options o = defaults(), before = o;
        assert_fails(bad[i].code, bad[i].message, read_text(&o, bad[i].text));
        assert_memory_equal(&o, &before, sizeof o);
    }
}

/* The good lines before a wrong one must not be kept. */
static void a_failed_read_changes_nothing(void **state) {
    (void)state;
    model_options o = defaults(), before = o;
    assert_fails(CONR_EINVAL, "t.yaml:3", read_text(&o, "size: 64\nnote: new\nlr: -1\n"));
    assert_memory_equal(&o, &before, sizeof o);
}

static void deep_nesting_and_long_files_end_soon(void **state) {
    (void)state;
    enum { N = (1 << 20) + 1 };
    model_options o = defaults();
    char *text = malloc(N);
    static const char openings[] = "[{-?&*!|>\"'#";
    for (const char *c = openings; *c; c++) {
        memset(text, *c, N);
        assert_true(options_read_yaml_text(LIST, &o, "deep", text, 1 << 16) < 0);
    }
    assert_fails(CONR_EFORMAT, "has 1048577 bytes, too many",
                 options_read_yaml_text(LIST, &o, "long", text, N));
    memset(text, ' ', N);
    memcpy(text, "size: ", 6);
    memset(text + 6, '9', N - 6);
    assert_fails(CONR_EINVAL, "size=9999", options_read_yaml_text(LIST, &o, "digits", text, N - 1));
    free(text);
}

/* Each prefix reads as a shorter file, or fails and changes nothing.  In memory of exactly its
 * size, so that the sanitizer sees a read past its end. */
static void survives_every_cut_and_changed_byte(void **state) {
    (void)state;
    model_options o = defaults();
    assert_ok(options_set(LIST, &o, "note", "\"quoted\"\n\342\202\254"));
    char *whole = strdup(written(&o));
    size_t n = strlen(whole);
    int n_failed = 0;
    for (size_t length = 0; length < n; length++) {
        char *copy = malloc(length ? length : 1);
        memcpy(copy, whole, length);
        model_options got = defaults(), before = got;
        if (options_read_yaml_text(LIST, &got, "cut", copy, length) < 0) {
            n_failed++;
            assert_memory_equal(&got, &before, sizeof got);
        }
        free(copy);
    }
    assert_true(n_failed > 50);
    for (size_t at = 0; at < n; at++)
        for (int value = 0; value < 256; value += 5) {
            model_options got = defaults();
            char kept = whole[at];
            whole[at] = (char)value;
            options_read_yaml_text(LIST, &got, "changed", whole, n);
            assert_true(got.size >= 16 && got.size <= 4096 && got.lr >= 0 && got.lr <= 100);
            whole[at] = kept;
        }
    free(whole);
}

static void texts_survive_writing_and_reading(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "yes",
        "No",
        "null",
        "~",
        "y",
        "1e3",
        "0x10",
        ".inf",
        "12",
        "2001-01-01",
        "plain",
        "path/to-it_2.x",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "-",
        "?",
        "{a}",
        "[a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "'",
        "\"",
        "it's \"so\" \\n",
        " leading",
        "trailing ",
        "  ",
        "two\nlines",
        "\n",
        "\r\n\t\v\f\b\a\033\001\177",
        "trailing\n\n",
        "---",
        "...",
        "key: [value]",
        "\303\251\342\202\254\360\237\230\200",
        "\302\205\302\200\302\240\342\200\250\342\200\251\357\273\277\357\277\276\357\277\277",
        "\357\273\277first",
    };
    model_options o = defaults();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_ok(options_set(LIST, &o, "note", texts[i]));
        assert_string_equal(o.note, texts[i]);
        assert_round_trip(&o);
    }
    char longest[OPTION_TEXT_SIZE] = {0};
    for (int byte = 1; byte < 128; byte++) {
        memset(longest, byte, OPTION_TEXT_SIZE - 1);
        assert_ok(options_set(LIST, &o, "note", longest));
        assert_round_trip(&o);
    }
    assert_ok(options_set(LIST, &o, "answer", "no way"));
    assert_round_trip(&o);
    assert_ok(options_set(LIST, &o, "answer", "1"));
    assert_round_trip(&o);
}

static void numbers_survive_writing_and_reading(void **state) {
    (void)state;
    static const double special[] = {0,    -0.0,  0.1,   1.0 / 3, 5e-324,   2.2250738585072014e-308,
                                     1e-5, -1e-5, 1e5,   1e15,    1e16,     123456789012345680,
                                     0.3,  1e22,  1e23,  100,     3,        1.7976931348623157e308,
                                     5e-4, 0.999, 1e300, -2.5,    16777217, 1 + 0x1p-52};
    model_options o = defaults();
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        o.any_number = special[i];
        assert_round_trip(&o);
    }
    uint64_t bits = 1; /* any double: all bits drawn by a linear congruence */
    for (int i = 0; i < 2000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        uint64_t mixed = bits ^ bits >> 29;
        memcpy(&o.any_number, &mixed, sizeof mixed);
        if (isfinite(o.any_number)) assert_round_trip(&o);
    }
}

/* A snapshot; PyYAML 6.0.3 reads it as the same values. */
static void writes_one_line_per_setting(void **state) {
    (void)state;
    model_options o = defaults();
    assert_ok(options_set(LIST, &o, "note", "it's \"so\"\n\303\251\t\342\200\250"));
    assert_string_equal(written(&o), "encoder: resnet18\n"
                                     "size: 32\n"
                                     "lr: 0.05\n"
                                     "flip: true\n"
                                     "note: \"it's \\\"so\\\"\\n\303\251\\u0009\\u2028\"\n"
                                     "any_number: -1.0e-05\n"
                                     "any_int: -3\n"
                                     "weight_decay: 0.0005\n"
                                     "answer: \"yes\"\n");
}

static void reads_and_writes_files(void **state) {
    (void)state;
    model_options o = defaults(), back = defaults();
    const char *path = temporary_path("options.yaml");
    file_new f;
    o.size = 100;
    assert_ok(file_new_open(&f, path));
    options_write_yaml(LIST, &o, f.stream);
    assert_ok(file_new_commit(&f));
    assert_ok(options_read_yaml(LIST, &back, path));
    assert_memory_equal(&back, &o, sizeof o);
    assert_fails(CONR_EFILE, "No such file",
                 options_read_yaml(LIST, &o, temporary_path("missing.yaml")));
    assert_fails(CONR_EFILE, "is a folder", options_read_yaml(LIST, &o, "/tmp"));
    assert_fails(CONR_EFORMAT, "empty.yaml:1: no settings in it",
                 options_read_yaml(LIST, &o, temporary_file("empty.yaml", "", 0)));
    assert_fails(CONR_EINVAL, "bad.yaml:2: size=1: out of range",
                 options_read_yaml(LIST, &o, temporary_file("bad.yaml", "lr: 1\nsize: 1", 13)));
}

static void the_locale_does_not_matter(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8", "pt_BR.UTF-8"};
    char text[OPTION_TEXT_SIZE], before[64];
    snprintf(before, sizeof before, "%s", setlocale(LC_ALL, NULL));
    size_t i = 0;
    while (i < 4 && !setlocale(LC_ALL, names[i])) i++;
    if (i == 4) skip(); /* none with a decimal comma is installed */
    assert_string_equal(localeconv()->decimal_point, ",");
    model_options o = defaults();
    assert_true(o.lr == 0.05);
    assert_ok(options_set(LIST, &o, "lr", "0.25"));
    assert_true(o.lr == 0.25);
    assert_ok(options_get_text(LIST, &o, "lr", text));
    assert_string_equal(text, "0.25");
    assert_fails(CONR_EINVAL, "not a number", options_set(LIST, &o, "lr", "0,25"));
    assert_round_trip(&o);
    assert_string_equal(localeconv()->decimal_point, ","); /* and the caller's locale is kept */
    setlocale(LC_ALL, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_yaml),
        cmocka_unit_test(refuses_wrong_yaml),
        cmocka_unit_test(a_failed_read_changes_nothing),
        cmocka_unit_test(deep_nesting_and_long_files_end_soon),
        cmocka_unit_test(survives_every_cut_and_changed_byte),
        cmocka_unit_test(texts_survive_writing_and_reading),
        cmocka_unit_test(numbers_survive_writing_and_reading),
        cmocka_unit_test(writes_one_line_per_setting),
        cmocka_unit_test(reads_and_writes_files),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
