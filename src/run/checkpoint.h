/* checkpoint.h: the state of a training in a file, whole or compact.
 *
 * Whole: every number as it is, so that going on from it gives the same bits as never stopping.
 * Compact: weights in half precision, no momentum, cut into pieces under 16 MB: to keep, to send,
 * to start another stage from; a folder. */
#ifndef CONR_CHECKPOINT_H
#define CONR_CHECKPOINT_H

#include "train/train.h"

/* What is not in the trainer. */
typedef struct checkpoint_state {
    int64_t steps;      /* an epoch of that training */
    int64_t closed;     /* epochs whose clustering and evaluation are done */
    int64_t log_bytes;  /* of log.jsonl when it was written */
    int64_t loss_steps; /* since the last line of the log, and */
    double loss_sum;    /* their losses */
    double epoch_sum;   /* losses of the epoch so far */
    double seconds;     /* trained so far */
    uint64_t images;    /* a hash of the images' names */
} checkpoint_state;

int checkpoint_save(trainer *t, const checkpoint_state *s, const char *path);
int checkpoint_save_compact(trainer *t, const checkpoint_state *s, const char *folder);

/* path: a file, or the folder of a compact one.  Another network is an error.  Labels and centroids
 * are taken where they belong to as many images.  t->step becomes the one it was. */
int checkpoint_load(trainer *t, const char *path, checkpoint_state *out);

#endif
