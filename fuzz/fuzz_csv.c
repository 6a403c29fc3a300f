/* fuzz_csv.c: CSV files; what was read is written and read again. */
#include "fuzz.h"

#include "base/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes all rows that can be read. */
static void copy(const void *bytes, size_t n, FILE *to, int64_t *rows, int *rc) {
    csv c;
    *rc = csv_parse("fuzz", bytes, n, &c);
    while (*rc == 0 && (*rc = csv_next(&c)) > 0) {
        for (size_t i = 0; i < c.n_cells; i++) {
            if (i) fputc(',', to);
            csv_write(to, c.cell[i]);
        }
        fputc('\n', to);
        *rc = 0;
    }
    if ((size_t)c.row > c.most) abort();
    *rows = c.row;
    csv_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    int64_t rows, again;
    int rc;
    FILE *f = open_memstream(&a, &n_a);
    if (!f) return 0;
    copy(bytes, n, f, &rows, &rc);
    fclose(f);
    if (rc == 0 && (f = open_memstream(&b, &n_b))) {
        copy(a, n_a, f, &again, &rc);
        fclose(f);
        if (rc < 0 || rows != again || n_a != n_b || memcmp(a, b, n_a)) abort();
    }
    free(a);
    free(b);
    return 0;
}
