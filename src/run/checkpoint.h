/* checkpoint.h: the state of a training in a file, whole or compact.
 *
 * Whole: every value as it is, so that continuing from it gives the same bits as never stopping.
 * Compact: a folder; weights in half precision, no momentum, cut into pieces under 16 MB: to keep,
 * to send, to start another stage from. */
#ifndef CONR_CHECKPOINT_H
#define CONR_CHECKPOINT_H

#include "train/train.h"

/* What is not part of the trainer. */
typedef struct checkpoint_state {
    int64_t steps;      /* per epoch of that training */
    int64_t closed;     /* epochs that have been clustered and evaluated */
    int64_t log_bytes;  /* of log.jsonl when it was written */
    int64_t loss_steps; /* since the last log line, and */
    double loss_sum;    /* their losses */
    double epoch_sum;   /* of the losses of this epoch so far */
    double seconds;     /* trained so far */
    uint64_t images;    /* source_identity, valid if */
    bool identified;    /* it is not an older file, which has only */
    uint64_t names;     /* a hash of the images' names */
    int64_t clusters;   /* K as far as it was known; 0: not yet; -1: a file that does not say */
    uint64_t log_sum;   /* checksum of those log_bytes, valid if */
    bool summed;        /* the file has it */
    char options[8192]; /* settings_text; empty: a file that does not say */
} checkpoint_state;

int checkpoint_save(trainer *t, const checkpoint_state *s, const char *path);
int checkpoint_save_compact(trainer *t, const checkpoint_state *s, const char *folder);

/* path: a file, or the folder of a compact one.  A different network is an error.  Labels and
 * centroids are loaded if the number of images is the same.  Sets t->step. */
int checkpoint_load(trainer *t, const char *path, checkpoint_state *out);

#endif
