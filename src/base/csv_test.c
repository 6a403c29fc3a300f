/* csv_test.c: what is written is read back; the forms of other programs; files that are not CSV. */
#include "base/test_help.h"

#include "base/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows of a text, written plainly: cells between <>, a | after each row. */
static const char *rows_of(const char *text) {
    static char out[4096];
    size_t at = 0;
    int rc;
    csv c;
    out[0] = 0;
    assert_ok(csv_parse("t", text, strlen(text), &c));
    while ((rc = csv_next(&c)) > 0) {
        assert_true((size_t)c.row <= c.most);
        for (size_t i = 0; i < c.n_cells; i++)
            at += (size_t)snprintf(out + at, sizeof out - at, "<%s>", c.cell[i]);
        at += (size_t)snprintf(out + at, sizeof out - at, "|");
    }
    if (rc < 0) fail_msg("%s: %s", text, conr_error());
    csv_close(&c);
    csv_close(&c);
    return out;
}

static void reads(void **state) {
    (void)state;
    static const struct {
        const char *text, *rows;
    } cases[] = {
        {"", ""},
        {"\n\r\n \t\n", ""},
        {"a,b\n1,2\n", "<a><b>|<1><2>|"},
        {"a,b\n1,2", "<a><b>|<1><2>|"},
        {"a,b\r\n1,2\r\n", "<a><b>|<1><2>|"},
        {"a,b\r1,2\r", "<a><b>|<1><2>|"},
        {"a\n\n  \nb\n \t", "<a>|<b>|"},
        {"\xEF\xBB\xBFx\n\xEF\xBB\xBFy\n", "<x>|<\xEF\xBB\xBFy>|"},
        {"\xEF\xBB\xBF\"x,y\"\n", "<x,y>|"},
        {",\n", "<><>|"},
        {",,x", "<><><x>|"},
        {"a,", "<a><>|"},
        {"\"\"", "<>|"},
        {"\"a,\"\"b\"\"\r\nc\",2\n", "<a,\"b\"\r\nc><2>|"},
        {"\"\"\"\"\"\",\"\"\"\"", "<\"\"><\">|"},
        {"\"a\" ,\"b\"\t\n", "<a><b>|"},
        {" a , b\n", "< a >< b>|"},
        {"a\"b\",c\"\n", "<a\"b\"><c\">|"},
        {"\xFF\x01,\xC3\n", "<\xFF\x01><\xC3>|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(rows_of(cases[i].text), cases[i].rows);
}

/* Reads to the end or the first error. */
static int read_all(const char *text, size_t n) {
    csv c;
    int rc = csv_parse("t", text, n, &c);
    while (rc == 0 && (rc = csv_next(&c)) > 0) rc = 0;
    csv_close(&c);
    return rc;
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"a,b\n\n1\n", "t: row 2 has 1 columns, not 2;"},
        {"a,b\n\"x\ny\",2\n1,2,3\n", "t: row 3 has 3 columns, not 2;"},
        {"a\n\"b\n", "t: row 2 has a quote that is never closed;"},
        {"\"", "t: row 1 has a quote that is never closed;"},
        {"\"\"\"", "t: row 1 has a quote that is never closed;"},
        {"a,\"b\"c\n", "t: row 1 has text after a closing quote;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(CONR_EFORMAT, cases[i].why, read_all(cases[i].text, strlen(cases[i].text)));
    assert_fails(CONR_EFORMAT, "zero bytes", read_all("a\0b\n", 4));
    csv c;
    assert_fails(CONR_EFILE, "nowhere", csv_open("/nowhere.csv", &c));
    csv_close(&c);
}

/* ---- written and read ------------------------------------------------------------------------ */

enum { ROWS = 300, MOST = 12 };

/* Cells of all bytes but NUL, those that matter to the format most of all. */
static void random_cell(char *out) {
    static const char often[] = ",\"\r\n \t\xEF\xBB\xBF";
    int n = rand() % MOST;
    for (int i = 0; i < n; i++)
        out[i] = rand() % 2 ? often[rand() % (int)(sizeof often - 1)] : (char)(1 + rand() % 255);
    out[n] = 0;
}

static void writes_what_it_reads(void **state) {
    (void)state;
    srand(1);
    for (int columns = 1; columns <= 3; columns++) {
        static char cell[ROWS][3][MOST];
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < columns; k++) random_cell(cell[i][k]);
        strcpy(cell[0][0], "\xEF\xBB\xBF"
                           "a"); /* must not be taken for a byte order mark */
        strcpy(cell[1][0], "");  /* nor this for an empty line */
        strcpy(cell[2][0], " ");
        FILE *f = fopen(temporary_path("w.csv"), "wb");
        assert_non_null(f);
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < columns; k++) {
                csv_write(f, cell[i][k]);
                if (k < columns - 1 || i < ROWS - 1) fputs(k < columns - 1 ? "," : "\r\n", f);
            }
        assert_int_equal(fclose(f), 0);
        csv c;
        assert_ok(csv_open(temporary_path("w.csv"), &c));
        for (int i = 0; i < ROWS; i++) {
            int rc = csv_next(&c);
            if (rc < 0) fail_msg("%s", conr_error());
            assert_int_equal(rc, 1);
            assert_int_equal(c.row, i + 1);
            assert_int_equal(c.n_cells, columns);
            for (int k = 0; k < columns; k++) assert_string_equal(c.cell[k], cell[i][k]);
        }
        assert_int_equal(csv_next(&c), 0);
        assert_int_equal(csv_next(&c), 0);
        csv_close(&c);
    }
}

static void quotes_only_where_needed(void **state) {
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    csv_write(f, "a b.png"), fputc(',', f);
    csv_write(f, "\xC3\xA4"), fputc(',', f);
    csv_write(f, "a\"b"), fputc(',', f);
    csv_write(f, " a"), fputc(',', f); /* other programs drop blanks at the ends */
    csv_write(f, "a ");
    fclose(f);
    assert_string_equal(text, "a b.png,\xC3\xA4,\"a\"\"b\",\" a\",\"a \"");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(refuses),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(quotes_only_where_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
