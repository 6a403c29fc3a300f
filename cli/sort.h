/* sort.h: --sort-into, for cluster and assign. */
#ifndef CLI_SORT_H
#define CLI_SORT_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define SORT_FLAGS                                                                                 \
    {"sort-into", "DIR", NULL, "link the images into one folder per cluster: DIR/cluster-00, ..."},\
    {"copy", NULL, NULL, "with --sort-into: copy the files instead of linking them"}
/* clang-format on */

/* Checks the folder before long work.  0, or an exit code after a message. */
int sort_check(const arguments *a);
/* Sorts the images if --sort-into was given; labels: [n].  0, or an exit code after a message. */
int sort_images(const arguments *a, conr *c, conr_images *m, const int32_t *labels, int64_t n,
                int clusters);
/* The same with names for the folders, [clusters], and labels as conr_sort_named takes them. */
int sort_named(const arguments *a, conr *c, conr_images *m, const int32_t *labels, int64_t n,
               const char *const *names, int clusters);
/* conr cluster RUN --sort-into DIR: the images of a finished run, as edited. */
int sort_finished(const arguments *a, const char *run);
/* The same with the labels from the labels.csv of a run. */
int sort_run(const arguments *a, conr *c, conr_images *m, const char *run, int clusters);

#endif
