/* loader.h: batches of views, prepared by worker threads ahead of the trainer.
 *
 * The position of an image in a batch and its random draws depend only on seed, epoch and image, so
 * the bits are the same for any number of workers and after a resume. */
#ifndef CONR_LOADER_H
#define CONR_LOADER_H

#include "images/store.h"
#include "views/draw.h"
#include "views/pixels.h"

typedef struct loader_options {
    uint64_t seed;
    int size;  /* side of a view */
    int batch; /* images per step, over all ranks; the last n mod batch images of an epoch are not
                  used */
    int rank, ranks; /* this process takes rows rank*batch/ranks .. (rank+1)*batch/ranks - 1; */
    int parts;       /* if over 1, that share of each of `parts` equal parts of the batch */
    int workers;     /* threads; at least 1 */
    int ahead;       /* batches prepared in advance; at least 1 */
    draw_policy policy, later; /* `later` applies from epoch `change` on: stage 2 of the method */
    uint32_t change;
    pixels_norm norm;
    const int32_t *table; /* [steps,batch] images of one epoch instead of the shuffled order, or
                             NULL; owned by the caller, valid only for that epoch */
} loader_options;

typedef struct loaded {
    uint32_t epoch;
    int64_t step;         /* in the epoch, from 0 */
    int n;                /* images of this rank */
    const int32_t *id;    /* [n] their indices in the store */
    const float *view[2]; /* [n,size,size,c] each */
} loaded;

typedef struct loader loader;

/* The images of a step, ids [batch], over all ranks, as a loader takes them from n. */
void loader_order(const loader_options *o, int64_t n, uint32_t epoch, int64_t step, int32_t *ids);

/* The same for this rank alone, ids [batch/ranks]. */
void loader_own(const loader_options *o, int64_t n, uint32_t epoch, int64_t step, int32_t *ids);

/* The row of the whole batch that is row i of this rank. */
int loader_row(const loader_options *o, int i);

/* Starts with batch `step` of epoch `epoch`.  The store must outlive the loader. */
int loader_open(const store *s, const loader_options *o, uint32_t epoch, int64_t step,
                loader **out);
/* The next batch, epoch after epoch, without end; valid until the next call. */
int loader_next(loader *l, loaded *out);
void loader_close(loader *l); /* ends the workers; l may be NULL */

int64_t loader_steps(const loader *l); /* per epoch */
double loader_waited(const loader *l); /* seconds that loader_next waited for workers */

#endif
