/* paths.h: a text file of paths beside features: which row belongs to which image. */
#ifndef CLI_PATHS_H
#define CLI_PATHS_H

#include "conr.h"

typedef struct paths {
    char *text;  /* the file; owned */
    char **line; /* [n]: its paths, in text; owned */
    int64_t n;
} paths;

/* One path per line, or, if the file has zero bytes, before each zero byte (conr info --paths0).
 * Empty lines are skipped.  0, or EXIT_FAILED after a message. */
int paths_read(const char *file, paths *out);
void paths_free(paths *p); /* may be called twice */

/* at[i]: the image of line i, as an index.  Matched by name: of all images, the one that shares the
 * most last parts of its path with the line.  *missing: the number of images without a
 * line; *first: the first of them, or -1.  0, or EXIT_FAILED after a message about a line
 * that fits no image, or several, or the same as another line. */
int paths_match(const char *file, const paths *p, conr_images *m, int64_t n_images, int64_t *at,
                int64_t *missing, int64_t *first);

#endif
