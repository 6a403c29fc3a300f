/* unreadable.h: images that turn out to be unreadable while all threads work on them: noted one by
 * one, then dropped from the source together with their rows. */
#ifndef CONR_UNREADABLE_H
#define CONR_UNREADABLE_H

#include "images/source.h"

/* Why an image cannot be read. */
typedef struct unreadable_reason {
    int64_t image;
    char *text; /* owned */
} unreadable_reason;

typedef struct unreadable {
    unsigned char *bad;        /* [n]; owned */
    unreadable_reason *reason; /* [n_reasons], those of the first images, in their order; owned */
    int n_reasons;             /* at most SOURCE_REASONS */
    int broken;                /* the code of a failure that is not an image's; 0: none so far */
    char message[512];         /* of that failure */
} unreadable;

int unreadable_new(const source *s, unreadable *out);
void unreadable_free(unreadable *u); /* may be called twice, and after a failed new */

/* Image i failed with rc and conr_error(), in any thread: CONR_EFORMAT is the image's fault. */
void unreadable_note(unreadable *u, int64_t i, int rc);
/* Fails if something other than an image failed, with its message. */
int unreadable_check(const unreadable *u);
/* Drops the images noted, and their rows, and counts them as skipped; fails if more than 5 % were
 * skipped.  rows: [s->n][row_bytes], or NULL */
int unreadable_drop(const unreadable *u, source *s, void *rows, size_t row_bytes);

#endif
