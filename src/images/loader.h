/* loader.h: batches of views, made ahead of the trainer by worker threads.
 *
 * Which image stands where in a batch and what is drawn for it depend on seed, epoch and image
 * alone, so the same bits come out for any number of workers, and after a resume. */
#ifndef CONR_LOADER_H
#define CONR_LOADER_H

#include "images/store.h"
#include "views/draw.h"
#include "views/pixels.h"

typedef struct loader_options {
    uint64_t seed;
    int size;  /* side of a view */
    int batch; /* images a step, over all ranks; the last n mod batch images of an epoch are left
                  out */
    int rank, ranks; /* this process takes rows rank*batch/ranks .. (rank+1)*batch/ranks - 1; or, */
    int parts;       /* if over 1, such a share of each of so many equal parts of the batch */
    int workers;     /* threads; at least 1 */
    int ahead;       /* batches made before they are asked for; at least 1 */
    draw_policy policy, later; /* `later` holds from epoch `change` on: the method's stage 2 */
    uint32_t change;
    pixels_norm norm;
    const int32_t *table; /* [steps,batch] images of one epoch in place of the shuffled order, or
                             NULL; the caller's, and good for that epoch alone */
} loader_options;

typedef struct loaded {
    uint32_t epoch;
    int64_t step;         /* in the epoch, from 0 */
    int n;                /* images of this rank */
    const int32_t *id;    /* [n] their numbers in the store */
    const float *view[2]; /* [n,size,size,c] each */
} loaded;

typedef struct loader loader;

/* The images ids [batch] of a step, over all ranks, as a loader would take them from n. */
void loader_order(const loader_options *o, int64_t n, uint32_t epoch, int64_t step, int32_t *ids);

/* The row of the batch that is this rank's row i. */
int loader_row(const loader_options *o, int i);

/* Starts with batch `step` of epoch `epoch`.  The store must outlive the loader. */
int loader_open(const store *s, const loader_options *o, uint32_t epoch, int64_t step,
                loader **out);
/* The next batch, epoch after epoch without end; valid until the next call. */
int loader_next(loader *l, loaded *out);
void loader_close(loader *l); /* ends the workers; NULL is fine */

int64_t loader_steps(const loader *l); /* an epoch */
double loader_waited(const loader *l); /* seconds that loader_next waited for workers */

#endif
