/* unreadable.c: see unreadable.h. */
#include "images/unreadable.h"

#include "base/status.h"
#include "images/source_forms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int unreadable_new(const source *s, unreadable *out) {
    *out = (unreadable){.bad = calloc((size_t)s->n + 1, 1),
                        .reason = calloc(SOURCE_REASONS, sizeof *out->reason)};
    if (out->bad && out->reason) return 0;
    unreadable_free(out);
    return fail_memory("list of images", (double)s->n);
}

void unreadable_free(unreadable *u) {
    for (int i = 0; i < u->n_reasons; i++) free(u->reason[i].text);
    free(u->reason);
    free(u->bad);
    *u = (unreadable){0};
}

/* Threads meet images in any order; the reasons kept are those of the first images all the same. */
static int keep_reason(unreadable *u, int64_t i) {
    int at = u->n_reasons;
    while (at > 0 && u->reason[at - 1].image > i) at--;
    if (at == SOURCE_REASONS) return 0;
    char *text = strdup(conr_error());
    if (!text) return fail_memory("list of images", 512);
    if (u->n_reasons == SOURCE_REASONS) free(u->reason[--u->n_reasons].text);
    memmove(u->reason + at + 1, u->reason + at, (size_t)(u->n_reasons - at) * sizeof *u->reason);
    u->reason[at] = (unreadable_reason){i, text};
    u->n_reasons++;
    return 0;
}

void unreadable_note(unreadable *u, int64_t i, int rc) {
#pragma omp critical
    {
        if (rc == CONR_EFORMAT) {
            u->bad[i] = 1;
            if (keep_reason(u, i) < 0) rc = CONR_ENOMEM;
        }
        if (rc != CONR_EFORMAT && !u->broken) {
            u->broken = rc;
            snprintf(u->message, sizeof u->message, "%s", conr_error());
        }
    }
}

int unreadable_check(const unreadable *u) {
    return u->broken ? fail(u->broken, "%s", u->message) : 0;
}

/* A cache file knows which images are bad, but not why. */
static int skip_untold(source *s, int64_t i) {
    char name[64], message[512];
    snprintf(message, sizeof message, "%s: cannot be decoded; repair or remove it",
             source_name(s, i, name, sizeof name));
    return source_skip(s, message);
}

int unreadable_drop(const unreadable *u, source *s, void *rows, size_t row_bytes) {
    int rc = 0, at = 0;
    unsigned char *row = rows;
    int64_t n = s->n, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (u->bad[i]) {
            bool told = at < u->n_reasons && u->reason[at].image == i;
            TRY(told ? source_skip(s, u->reason[at++].text) : skip_untold(s, i));
            continue;
        }
        if (row && kept < i)
            memcpy(row + (size_t)kept * row_bytes, row + (size_t)i * row_bytes, row_bytes);
        if (s->item) s->item[kept] = s->item[i];
        if (s->label) s->label[kept] = s->label[i];
        kept++;
    }
    ASSERT(s->item || kept == n); /* single images of an array cannot be damaged */
    s->n = kept;
    if (kept < n) TRY(source_check_skipped(s));
done:
    return rc;
}
