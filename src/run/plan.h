/* plan.h: what the end of an epoch asks for.
 *
 * The training loop carries the plan out and the budget adds up what it costs, so that neither can
 * forget what the other does. */
#ifndef CONR_PLAN_H
#define CONR_PLAN_H

#include "settings/settings.h"

typedef struct epoch_plan {
    bool cluster;  /* embed and cluster all images */
    bool choose;   /* K, as part of that clustering: it was not known yet */
    bool evaluate; /* score and log the clusters */
    bool keep;     /* write a checkpoint that is never replaced, for --from RUN@EPOCH */
    bool save;     /* replace the checkpoint that --resume continues from */
} epoch_plan;

/* After `done` epochs; 0: before the first one, which asks for something only if it needs
 * pseudo labels.  o->clusters: 0 until K has been chosen. */
epoch_plan plan_epoch_end(const train_options *o, int done);

#endif
