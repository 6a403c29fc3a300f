/* csv_labels.c: see csv_labels.h. */
#include "base/csv_labels.h"

#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *trim(char *cell) {
    while (isspace((unsigned char)*cell)) cell++;
    char *end = cell + strlen(cell);
    while (end > cell && isspace((unsigned char)end[-1])) end--;
    *end = 0;
    return cell;
}

void csv_trim(csv *c) {
    for (size_t i = 0; i < c->n_cells; i++) c->cell[i] = trim(c->cell[i]);
}

bool csv_whole_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && end != text && !*end;
}

int csv_column(const csv *c, const char *title) {
    for (size_t i = 0; i < c->n_cells; i++)
        if (!strcmp(c->cell[i], title)) return (int)i;
    return -1;
}

int csv_find_labels(const csv *c, const char *wanted, int *column, bool *titled, bool *sure) {
    static const char *const usual[] = {"cluster", "label", "pred"};
    int64_t number;
    *column = wanted ? csv_column(c, wanted) : -1;
    if (wanted && *column < 0)
        return fail(CONR_EFORMAT, "%s: has no column '%s'; give one of the titles in its first row",
                    c->name, wanted);
    for (int u = 0; u < 3 && *column < 0; u++) *column = csv_column(c, usual[u]);
    *titled = *column >= 0 || !csv_whole_number(c->cell[c->n_cells - 1], &number);
    if (sure) *sure = !*titled || *column >= 0 || csv_column(c, "path") >= 0;
    if (*column < 0) *column = (int)c->n_cells - 1;
    return 0;
}
