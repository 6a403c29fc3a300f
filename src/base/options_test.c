/* options_test.c: one list of settings: defaults, values as text, wrong values, help. */
#include "base/options_test.h"

static void the_list_gives_fields_and_defaults(void **state) {
    (void)state;
    model_options o = defaults();
    assert_string_equal(o.encoder, "resnet18");
    assert_int_equal(o.size, 32);
    assert_true(o.lr == 0.05);
    assert_true(o.flip);
    assert_string_equal(o.note, "");
    assert_true(o.any_number == -1e-5);
    assert_int_equal(o.any_int, -3);
    assert_true(o.before == 11 && o.after == 22);
    assert_int_equal(sizeof model_list / sizeof *model_list, 9);
}

static void sets_by_text(void **state) {
    (void)state;
    model_options o = defaults();
    char text[OPTION_TEXT_SIZE];
    assert_ok(options_set(LIST, &o, "encoder", "small"));
    assert_string_equal(o.encoder, "small");
    assert_ok(options_set(LIST, &o, "size", "+4096"));
    assert_int_equal(o.size, 4096);
    assert_ok(options_set(LIST, &o, "any_int", "-2147483648"));
    assert_int_equal(o.any_int, INT_MIN);
    assert_ok(options_set(LIST, &o, "lr", "1e-3"));
    assert_true(o.lr == 1e-3);
    assert_ok(options_set(LIST, &o, "lr", "1."));
    assert_ok(options_set(LIST, &o, "lr", ".5E+1"));
    assert_true(o.lr == 5);
    assert_ok(options_set_pair(LIST, &o, "flip=off"));
    assert_false(o.flip);
    assert_ok(options_set_pair(LIST, &o, "flip=True"));
    assert_true(o.flip);
    assert_ok(options_set_pair(LIST, &o, "note=a=b, 'c'"));
    assert_string_equal(o.note, "a=b, 'c'");
    assert_ok(options_set_pair(LIST, &o, "note="));
    assert_string_equal(o.note, "");
    assert_ok(options_set_pair(LIST, &o, "any-number=-0.5")); /* as a flag would be spelled */
    assert_true(o.any_number == -0.5);
    assert_ok(options_get_text(LIST, &o, "any_number", text));
    assert_string_equal(text, "-0.5");
    assert_ok(options_get_text(LIST, &o, "flip", text));
    assert_string_equal(text, "true");
    assert_ok(options_get_text(LIST, &o, "encoder", text));
    assert_string_equal(text, "small");
    assert_ok(options_get_text(LIST, &o, "any_int", text));
    assert_string_equal(text, "-2147483648");
    assert_fails(CONR_EINVAL, "siz: no such setting; did you mean size?",
                 options_get_text(LIST, &o, "siz", text));
}

static void refuses_wrong_values(void **state) {
    (void)state;
    char longer[300] = "note=";
    memset(longer + 5, 'x', 256);
    const struct {
        const char *pair, *message;
    } bad[] = {
        {"size=15", "size=15: out of range; give 16 to 4096"},
        {"size=4097", "out of range"},
        {"size=", "size=: not a whole number"},
        {"size= 32", "not a whole number"},
        {"size=32 ", "not a whole number"},
        {"size=32.0", "not a whole number"},
        {"size=1e3", "not a whole number"},
        {"size=0x20", "not a whole number"},
        {"size=-", "not a whole number"},
        {"size=99999999999999999999", "out of range"},
        {"any_int=2147483648", "out of range; give -2147483648 to 2147483647"},
        {"lr=-0.1", "lr=-0.1: out of range; give 0 to 100"},
        {"lr=abc", "not a number"},
        {"lr=0,5", "not a number"},
        {"lr=1e", "not a number"},
        {"lr=.", "not a number"},
        {"lr=e5", "not a number"},
        {"lr=0x1p3", "not a number"},
        {"lr=nan", "not a number"},
        {"any_number=inf", "not a number"},
        {"any_number=1e999", "too large for a number; give any number"},
        {"weight_decay=-1", "weight_decay=-1: out of range; give at least 0"},
        {"flip=maybe", "flip=maybe: neither true nor false; give true|false"},
        {"encoder=resnet", "not one of its choices; give resnet18|resnet34|small"},
        {"encoder=resnet18|resnet34", "not one of its choices"},
        {"encoder=", "not one of its choices"},
        {"encoder=|", "not one of its choices"},
        {longer, "xxx...: longer than 255 bytes"},
        {"note=\377", "not UTF-8"},
        {"note=\300\200", "not UTF-8"},     /* a 0 in two bytes */
        {"note=\355\240\200", "not UTF-8"}, /* half of a surrogate pair */
        {"note=\364\220\200\200", "not UTF-8"},
        {"note=\342\202", "not UTF-8"},
        {"size=a\nb", "size=a?b: not a whole number"},
        {"lrr=1", "lrr: no such setting; did you mean lr?"},
        {"weight_decya=1", "did you mean weight_decay?"},
        {"Encoder=small", "did you mean encoder?"},
        {"size", "size: not a setting; give key=value"},
        {"=3", "=3: not a setting"},
        {"", "not a setting"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_options o = defaults(), before = o;
        assert_fails(CONR_EINVAL, bad[i].message, options_set_pair(LIST, &o, bad[i].pair));
        assert_memory_equal(&o, &before, sizeof o);
    }
}

/* A text of only continuation bytes has no character start to cut at. */
static void shows_any_bytes_in_one_line(void **state) {
    (void)state;
    model_options o = defaults();
    for (int byte = 1; byte < 256; byte++) {
        char text[200] = {0};
        memset(text, byte, sizeof text - 1);
        assert_fails(CONR_EINVAL, "", options_set(LIST, &o, "size", text));
        assert_fails(CONR_EINVAL, "did you mean", options_set(LIST, &o, text, "1"));
    }
}

static void writes_numbers_short(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.05, "0.05"},     {5e-4, "0.0005"},    {1e-5, "1.0e-05"},
                 {100000, "100000"}, {0.1, "0.1"},        {1e22, "1.0e+22"},
                 {-2, "-2"},         {1.5e-7, "1.5e-07"}, {1. / 3, "0.3333333333333333"}};
    char text[OPTION_TEXT_SIZE];
    model_options o = defaults();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.any_number = cases[i].value;
        assert_ok(options_get_text(LIST, &o, "any_number", text));
        assert_string_equal(text, cases[i].text);
    }
}

static void helps_in_columns(void **state) {
    (void)state;
    char text[4096];
    FILE *stream = fmemopen(text, sizeof text, "w");
    options_help(model_list, 5, stream);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(
        text, "  encoder  resnet18  resnet18|resnet34|small  the network\n"
              "  size     32        16 to 4096               side of the input image, pixels\n"
              "  lr       0.05      0 to 100                 learning rate at its peak\n"
              "  flip     true      true|false               mirror images at random\n"
              "  note     \"\"        text                     free text, kept with the run\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_gives_fields_and_defaults),
        cmocka_unit_test(sets_by_text),
        cmocka_unit_test(refuses_wrong_values),
        cmocka_unit_test(shows_any_bytes_in_one_line),
        cmocka_unit_test(writes_numbers_short),
        cmocka_unit_test(helps_in_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
