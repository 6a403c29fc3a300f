/* csv.c: see csv.h.
 *
 * The reader copies the file once and cuts the copy into cells in place: a cell is never longer
 * than its quoted form in the file. */
#include "base/csv.h"

#include "base/file.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char byte_order_mark[] = "\xEF\xBB\xBF";
enum { MARK = sizeof byte_order_mark - 1 };

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_break(char c) { return c == '\n' || c == '\r'; }

/* ---- reading --------------------------------------------------------------------------------- */

int csv_parse(const char *name, const void *bytes, size_t n, csv *out) {
    *out = (csv){.name = name, .most = 1};
    if (n && memchr(bytes, 0, n))
        return fail(CONR_EFORMAT, "%s: contains zero bytes; save it as CSV in UTF-8", name);
    out->text = malloc(n + 1);
    if (!out->text) return fail_memory(name, (double)n);
    if (n) memcpy(out->text, bytes, n);
    out->text[n] = 0;
    out->at = out->text;
    if (!strncmp(out->at, byte_order_mark, MARK)) out->at += MARK;
    for (const char *at = out->at; *at; at++) out->most += is_break(*at);
    return 0;
}

int csv_open(const char *path, csv *out) {
    int rc = 0;
    file_bytes file;
    *out = (csv){0};
    TRY(file_read_whole(path, &file));
    TRY(csv_parse(path, file.data, file.n, out));
done:
    file_bytes_free(&file);
    return rc;
}

void csv_close(csv *c) {
    free(c->text);
    free(c->cell);
    *c = (csv){0};
}

/* Copies a quoted text to *to, without the quotes.  from: past the opening quote.  Returns what
 * follows the closing one, or NULL if there is none. */
static char *unquote(char *from, char **to) {
    while (*from) {
        if (*from == '"' && *++from != '"') return from;
        *(*to)++ = *from++;
    }
    return NULL;
}

static int add_cell(csv *c, char *text) {
    if (c->n_cells == c->room) {
        size_t room = c->room ? 2 * c->room : 8;
        char **more = realloc(c->cell, room * sizeof *more);
        if (!more) return fail_memory(c->name, (double)room * sizeof *more);
        c->cell = more;
        c->room = room;
    }
    c->cell[c->n_cells++] = text;
    return 0;
}

/* Takes the cell at c->at and moves c->at past it and its separator: a comma, a line break, or 0 at
 * the end. */
static int take_cell(csv *c, char *separator) {
    char *text = c->at, *from = text, *to = text;
    if (*from == '"') {
        from = unquote(from + 1, &to);
        if (!from)
            return fail(CONR_EFORMAT, "%s: row %lld has a quote that is never closed; close it",
                        c->name, (long long)c->row);
        while (is_blank(*from)) from++;
        if (*from && *from != ',' && !is_break(*from))
            return fail(CONR_EFORMAT,
                        "%s: row %lld has text after a closing quote; double the quotes inside a "
                        "quoted cell",
                        c->name, (long long)c->row);
    } else {
        while (*from && *from != ',' && !is_break(*from)) from++;
        to = from;
    }
    *separator = *from; /* before *to, which may be the same byte */
    *to = 0;
    c->at = *separator ? from + 1 : from;
    return add_cell(c, text);
}

/* Also skips the LF of a CRLF, which looks like an empty line here. */
static void skip_blank_lines(csv *c) {
    for (char *at = c->at;; c->at = ++at) {
        while (is_blank(*at)) at++;
        if (!*at) c->at = at;
        if (!is_break(*at)) return;
    }
}

int csv_next(csv *c) {
    int rc = 0;
    char separator;
    size_t wanted = c->n_cells;
    skip_blank_lines(c);
    if (!*c->at) return 0;
    c->row++;
    c->n_cells = 0;
    do { TRY(take_cell(c, &separator)); } while (separator == ',');
    if (c->row > 1 && c->n_cells != wanted)
        TRY(fail(CONR_EFORMAT,
                 "%s: row %lld has %zu columns, not %zu; complete it, or quote cells with commas",
                 c->name, (long long)c->row, c->n_cells, wanted));
    return 1;
done:
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The byte order mark counts only at the start of a file, blanks only if they are all of a row, but
 * quotes do no harm elsewhere. */
static bool needs_quotes(const char *text) {
    size_t n = strlen(text);
    return n == 0 || is_blank(text[0]) || is_blank(text[n - 1]) || strpbrk(text, ",\"\r\n") ||
           !strncmp(text, byte_order_mark, MARK);
}

void csv_write(FILE *f, const char *text) {
    if (!needs_quotes(text)) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}
