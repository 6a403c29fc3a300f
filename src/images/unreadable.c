/* unreadable.c: see unreadable.h. */
#include "images/unreadable.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int unreadable_new(const source *s, unreadable *out) {
    *out = (unreadable){.first = s->n, .bad = calloc((size_t)s->n + 1, 1)};
    return out->bad ? 0 : fail_memory("list of images", (double)s->n);
}

void unreadable_free(unreadable *u) {
    free(u->bad);
    u->bad = NULL;
}

void unreadable_note(unreadable *u, int64_t i, int rc) {
#pragma omp critical
    {
        if (rc == CONR_EFORMAT) u->bad[i] = 1;
        if (!u->broken && (rc != CONR_EFORMAT || i < u->first)) {
            if (rc != CONR_EFORMAT) u->broken = rc;
            u->first = i;
            snprintf(u->message, sizeof u->message, "%s", conr_error());
        }
    }
}

int unreadable_check(const unreadable *u) {
    return u->broken ? fail(u->broken, "%s", u->message) : 0;
}

int unreadable_drop(const unreadable *u, source *s, void *rows, size_t row_bytes) {
    unsigned char *row = rows;
    int64_t n = s->n, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (u->bad[i]) continue;
        if (kept < i)
            memcpy(row + (size_t)kept * row_bytes, row + (size_t)i * row_bytes, row_bytes);
        kept++;
    }
    return kept < n ? source_drop(s, u->bad, u->message) : 0;
}
