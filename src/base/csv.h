/* csv.h: comma-separated values, read and written (RFC 4180).
 *
 * The only reader and the only writer of the format, so that whatever conr writes it can read.
 * A cell holds any bytes but NUL; one with commas, quotes or line breaks stands in quotes, and a
 * quote inside those is doubled.  Lines end with LF, CRLF or CR, the last one optionally; blank
 * lines and a UTF-8 byte order mark are skipped.  What cells mean is left to the caller.
 *
 *     csv c;
 *     TRY(csv_open(path, &c));
 *     while ((rc = csv_next(&c)) > 0) use(c.cell[0], c.n_cells, c.row);
 *   done: csv_close(&c); */
#ifndef CONR_CSV_H
#define CONR_CSV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct csv {
    char **cell;    /* [n_cells], the current row, each ended by a NUL; the list is valid until
                       csv_next, the texts until csv_close */
    size_t n_cells; /* the same in every row */
    int64_t row;    /* number of the current row, from 1 (the titles, if there are any) */
    size_t most;    /* an upper bound on the number of rows, known from the start */

    const char *name; /* in messages; the caller's, must outlive the reader */
    char *text, *at;  /* the file in memory (owned), and the next row in it */
    size_t room;      /* of cell */
} csv;

int csv_open(const char *path, csv *out);
/* The same from memory: the n bytes of a file, which messages call `name`. */
int csv_parse(const char *name, const void *bytes, size_t n, csv *out);
/* 1: the next row is in c->cell; 0: there are no more; negative: not a CSV, or a row with fewer or
 * more cells than the first. */
int csv_next(csv *c);
void csv_close(csv *c); /* may follow a failed open, and may be called twice */

/* Writes one cell, in quotes if needed.  Commas, line breaks and plain numbers are written by the
 * caller.  Errors stay in the stream. */
void csv_write(FILE *f, const char *text);

#endif
