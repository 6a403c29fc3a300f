/* unreadable.h: images that turn out to be unreadable while all threads work on them: noted one by
 * one, then dropped from the source together with their rows. */
#ifndef CONR_UNREADABLE_H
#define CONR_UNREADABLE_H

#include "images/source.h"

typedef struct unreadable {
    unsigned char *bad; /* [n]; owned */
    int broken;         /* the code of a failure that is not an image's; 0: none so far */
    int64_t first;      /* the image that `message` is about */
    char message[512];
} unreadable;

int unreadable_new(const source *s, unreadable *out);
void unreadable_free(unreadable *u); /* may be called twice, and after a failed new */

/* Image i failed with rc and conr_error(), in any thread: CONR_EFORMAT is the image's fault. */
void unreadable_note(unreadable *u, int64_t i, int rc);
/* Fails if something other than an image failed, with its message. */
int unreadable_check(const unreadable *u);
/* Drops the images noted, and their rows.  rows: [s->n][row_bytes] */
int unreadable_drop(const unreadable *u, source *s, void *rows, size_t row_bytes);

#endif
