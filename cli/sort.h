/* sort.h: --sort-into of cluster and assign. */
#ifndef CLI_SORT_H
#define CLI_SORT_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define SORT_FLAGS                                                                                 \
    {"sort-into", "DIR", NULL, "one folder a cluster there, with links to the images"},            \
    {"copy", NULL, NULL, "with --sort-into: copies instead of links"}
/* clang-format on */

/* Whether the folder will do, before long work; 0, or an exit code after a message. */
int sort_check(const arguments *a);
/* Sorts where it was asked for; labels: [n].  0, or an exit code after a message. */
int sort_images(const arguments *a, conr *c, conr_images *m, const int32_t *labels, int64_t n,
                int clusters);
/* The same with the labels.csv of a run. */
int sort_run(const arguments *a, conr *c, conr_images *m, const char *run, int clusters);

#endif
