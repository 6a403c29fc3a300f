/* data.h: the flags that select images, and opening them. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define DATA_FLAGS                                                                                 \
    {"split", "NAME", NULL, "use only this part: train, val, test, unlabeled"},                    \
    {"labels", "WORD", "fine", "labels of CIFAR-100: fine or coarse"},                             \
    {"classes", "A,B", NULL, "use only these class folders"},                                      \
    {"long-tail", "X", "1", "thin out the classes, the last one to 1/X of the first"}
/* clang-format on */

/* Reads the flags; strings belong to the arguments.  0, or EXIT_USAGE after a message. */
int data_options(const arguments *a, conr_images_options *out);

/* Opens the images with a progress line (call progress_start first) and warns about those that
 * cannot be read.  0, or an exit code after a message. */
int data_open(conr *c, const char *src, const conr_images_options *o, conr_images **out);

/* Refuses to write to `out` if that is one of the files of the images (m may be NULL), the file
 * `input` (may be NULL), or a file of a run.  0, or an exit code after a message. */
int data_refuse_output(const char *out, const char *input, const conr_images *m);

/* Reads features from a file and embeds them as the run does: *rows [n,width], released by free.  0,
 * or an exit code after a message. */
int data_embed_features(conr *c, const conr_clustering *k, const char *run, const char *file,
                        float **rows, int64_t *n);

/* The images that cannot be read, each with the reason; of more than 1,000 the first 1,000. */
json_t *data_skipped(const conr_images *m);

/* Adds how many images cannot be read, and which, to the result of a verb. */
json_t *data_add_skipped(json_t *object, const conr_images *m);

/* Warns if more than `skipped` images have been dropped by now. */
void data_warn(const conr_images *m, int64_t skipped);

#endif
