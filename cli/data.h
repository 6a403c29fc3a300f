/* data.h: the flags that choose images, and opening them as every verb does. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define DATA_FLAGS                                                                               \
    {"split", "NAME", NULL, "only this part: train, val, test, unlabeled"},                        \
    {"labels", "WORD", "fine", "fine or coarse, of CIFAR-100"},                                    \
    {"classes", "A,B", NULL, "only these class folders"},                                          \
    {"long-tail", "X", "1", "thin classes out, the last to 1/X of the first"}
/* clang-format on */

/* What the flags say; texts belong to the arguments.  0, or EXIT_USAGE after a message. */
int data_options(const arguments *a, conr_images_options *out);

/* Opens with a line of progress and warns of images that cannot be read; 0, or an exit code after
 * a message.  The context's progress has been started. */
int data_open(conr *c, const char *src, const conr_images_options *o, conr_images **out);

/* Warns of images that were dropped since `skipped` of them were known. */
void data_warn(const conr_images *m, int64_t skipped);

#endif
