/* html_test.c: no name can break out of its place on the page. */
#include "base/test_help.h"

#include "report/chart.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void writer(FILE *f, const char *text);

static void check(writer *write, const char *in, const char *expected) {
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    write(f, in);
    fclose(f);
    assert_string_equal(out, expected);
    free(out);
}

static void test_text(void **state) {
    (void)state;
    check(html_text, "<script>alert('x')</script>",
          "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
    check(html_text, "a\"b&c", "a&quot;b&amp;c");
    check(html_text, "caf\xC3\xA9 \xF0\x9F\x98\x80", "caf\xC3\xA9 \xF0\x9F\x98\x80");
    /* invalid UTF-8: a lone byte, a truncated character, an overlong slash, a surrogate; a control
     * character; one that changes the writing direction */
    check(html_text, "\xFF|\xC3|\xC0\xAF|\xED\xA0\x80",
          "\xEF\xBF\xBD|\xEF\xBF\xBD|"
          "\xEF\xBF\xBD\xEF\xBF\xBD|"
          "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    check(html_text, "\x1B[2J\x7F", "\xEF\xBF\xBD[2J\xEF\xBF\xBD");
    check(html_text, "\xE2\x80\xAE", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

static void test_json(void **state) {
    (void)state;
    check(html_json, "</script>\"\\\n", "\"\\u003c/script\\u003e\\u0022\\u005c\\u000a\"");
    check(html_json, "\xFFx", "\"\\ufffdx\"");
}

static void base64(FILE *f, const char *text) { html_base64(f, text, strlen(text)); }

static void test_base64(void **state) { /* the examples of RFC 4648 */
    (void)state;
    check(base64, "", "");
    check(base64, "f", "Zg==");
    check(base64, "fo", "Zm8=");
    check(base64, "foo", "Zm9v");
    check(base64, "foobar", "Zm9vYmFy");
}

static void printed(FILE *f, const char *text) {
    html_print(f, "<b title=\"%s\">%d %lld %.2f %.3g %%</b>", text, -3, 1234567890123LL, 0.126,
               1e9);
}

static void test_print(void **state) {
    (void)state;
    check(printed, "\"><i>", "<b title=\"&quot;&gt;&lt;i&gt;\">-3 1234567890123 0.13 1e+09 %</b>");
    assert_string_equal(html_count(1234567), "1,234,567");
    assert_string_equal(html_count(-12), "-12");
    assert_string_equal(html_count(999), "999");
    assert_string_equal(html_time(59.6), "1 min 0 s");
    assert_string_equal(html_time(NAN), "0 s");
}

/* Charts of nothing, one point, equal values or NaN are drawn or left out, never broken. */
static void test_charts(void **state) {
    (void)state;
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    series s = {0}, none = {0};
    chart_line line[] = {{"<a>", &s, NULL, 0, false, true}, {"b", &none, NULL, 1, false, false}};
    chart c = {"\"t\"", "x", "y", line, 2, NAN, NAN, NAN, NULL};
    assert_false(chart_write(f, &c));
    assert_ok(series_add(&s, 1, NAN));
    assert_false(chart_write(f, &c));
    assert_ok(series_add(&s, 1, 5));
    assert_true(chart_write(f, &c));
    assert_ok(series_add(&s, 2, 5));
    for (int i = 0; i < 5000; i++) assert_ok(series_add(&s, i, -i));
    assert_true(chart_write(f, &c));
    fclose(f);
    assert_null(strstr(out, "nan"));
    assert_null(strstr(out, "inf"));
    assert_null(strstr(out, "<a>"));
    assert_non_null(strstr(out, "&quot;t&quot;"));
    assert_true(n < 200000); /* a long line is thinned; dots are left out */
    free(out);
    series_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),  cmocka_unit_test(test_json),   cmocka_unit_test(test_base64),
        cmocka_unit_test(test_print), cmocka_unit_test(test_charts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
