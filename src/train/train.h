/* train.h: a model in training: its state on the device, one step, one clustering.
 *
 *     train.c          the method: one step, and which images it sees
 *     frameworks.c     what differs between BYOL, SimSiam, MoCo and ProPos
 *     propos.c         the parts of a step that only ProPos has
 *     confident.c      the other stage 2
 *     schedule.c       learning rates and other values that depend on the step number
 *     pseudo_labels.c  features of all images, and their clusters
 *     open.c           building a trainer
 *
 * The loop over epochs and the folder of a run are in src/run. */
#ifndef CONR_TRAIN_H
#define CONR_TRAIN_H

#include "context/context.h"
#include "encoder/pass.h"
#include "images/feed.h"
#include "ranks/ranks.h"
#include "settings/settings.h"

typedef struct trainer trainer;

/* One half of a loss: half v pulls the rows of view v towards the keys of the other view. */
typedef struct half {
    const float *q, *key; /* [n,d] unit rows */
    const int32_t *near;  /* [n,k] rows of key; NULL: each row its own */
    int k;
    const float *weight; /* [n]; NULL: 1/n each */
    float *dq;           /* [n,d] out */
} half;

/* A framework owns its networks (heads), its targets (keys) and its loss.  Neighborhoods and the
 * boundary filter are the same for all. */
typedef struct framework {
    const char *name;
    bool target;       /* keys come from a target network: the moving average, without predictor */
    bool target_leads; /* it is updated before the forward pass, not with SGD */
    bool queue;        /* old keys are kept as negatives */
    bool prototypes;   /* propos.c: the projector's output has a loss of its own */
    void (*heads)(const train_options *o, network_spec *spec);
    /* Of part p: the keys of both halves, views b then a, unit rows. */
    int (*keys)(trainer *t, int part);
    int (*loss)(trainer *t, const half *h);
} framework;

const framework *framework_find(const char *name); /* one of the setting's choices */

/* Memory is on the device unless it says host. */
struct trainer {
    conr *c;
    device *dev;
    ranks ranks, norm_ranks; /* all; those that share batch statistics with this one */
    train_options o;
    const framework *framework;
    network net;
    const store *store;
    feed feed;
    int64_t steps; /* per epoch */
    int n, own, m; /* images of a batch; this rank's share; one part of that share */
    int d;         /* elements of a feature */

    /* blocks with the network's offsets */
    float *w, *dw, *v, *running;      /* online: weights, gradient, momentum, statistics */
    float *target_w, *target_running; /* the online blocks themselves if there is no target */
    pass *online_pass, *target_pass;  /* both views of one part */
    pass *plain_pass;                 /* images without augmentation, to be clustered */
    act *images;                      /* [parts][3][m] rows, see feed.h */

    float *q, *key, *dq; /* [2n,d], whole batch: block v is what half v sees */
    /* [2 own,d]: this rank's rows; with one rank and no shuffling the same memory as above */
    float *own_q, *own_key, *own_dq;
    int blocks; /* [own,d] blocks from own_q on: two each of q, key and perhaps z */
    /* propos, confident: the projector's output, in the same order as q, own_q, norm, dq and own_dq */
    float *z, *own_z, *norm_z, *dz, *own_dz;
    void *scatter_work;    /* workspace of prototypes */
    int32_t *alike;        /* confident: [2n], labels of the rows of each half; -1: not confident */
    void *alike_work;      /* and the workspace of that choice */
    float *mixed;          /* [ranks][blocks][own,d]: own_q and what follows it, of all ranks */
    int32_t *sorted;       /* [2n]: where in `mixed` the rows of q are, counted from block 0 */
    int32_t *back;         /* [2n]: those of key, from block 2; the same unless they are shuffled */
    float *flat, *norm;    /* [2 own,d], [2 own] */
    int32_t *near;         /* [n,k] */
    float *ratio, *weight; /* [n] */
    void *work;            /* workspace of the neighbor search */
    float *queue, *logits; /* [queue,d], [n,queue] */
    act *shuffled;         /* [2 own] rows: the target's images in random order, taken from */
    act *gathered;         /* [ranks][2 own] rows: all of them; one rank: those of `images` */
    int32_t *rows;         /* [2 own]: that order, in `gathered` */
    int32_t *host_rows;    /* host: [2n] the random order of the whole batch; `back`; `rows` */
    float *loss;           /* [1]: accumulates until it is read */
    step_values *at;
    recording *recorded_step[3][2]; /* stage 1, stage 2, early; without, with prototypes */
    recording *recorded_embedding;  /* one batch of it */
    int stage;                      /* of the current step: 1 or 2 */
    bool early;                     /* it pulls towards neighbors in stage 1 */
    bool scatters;                  /* the current step has prototypes and noise */
    bool confident;                 /* and is one of the confident stage 2 */
    bool unrecorded;                /* run steps operation by operation, for profiling */
    size_t bytes;                   /* of device memory */

    /* pseudo labels of all images, on the host and (_on) on the device */
    int K;                     /* 0: not known yet */
    int32_t *label, *label_on; /* [images] */
    float *centroids;          /* host [K,d], plain means */
    float *centroids_on;       /* [K,d], unit rows if normalize_centroids is set */
    float *features_on;        /* [images,d], of the last embedding */
    float *features;           /* host: the same, after trainer_features */
    int64_t featured, fetched; /* steps at which they were computed, and fetched; -1: never */
    double objective;          /* of the last k-means */
    float *tried;              /* host [n_tried]: of each of its runs, if known */
    int n_tried;
    int32_t *table; /* host [steps,n]: the balanced order of an epoch, or NULL */

    int64_t step;      /* steps done; the number of the next one */
    int64_t clustered; /* the step at which label and centroids were computed; -1: never */
    void *owned[48];
    int n_owned;
};

/* store, norm: of the images.  Weights are drawn from the seed. */
int trainer_open(conr *c, const store *s, const pixels_norm *norm, const train_options *o,
                 trainer **out);
void trainer_close(trainer *t); /* NULL is fine */

/* First weights and statistics, for both networks, from host blocks. */
int trainer_set_weights(trainer *t, const float *w, const float *running);

/* Prepares for the step t->step: before the first one, and after t->step or t->o was changed. */
int trainer_seek(trainer *t);
/* One training step. */
int trainer_step(trainer *t);
/* The sum of losses since the last call; waits for the device. */
int trainer_loss(trainer *t, double *sum);
/* Features of all images by the network that is clustered, on the host: t->features.  All ranks
 * call it. */
int trainer_features(trainer *t);
/* Embeds and clusters all images: pseudo labels, centroids.  Estimates K if it is not known. */
int trainer_cluster(trainer *t);
/* Whether clusters of this modularity are better than the last ones by more than chance: by two
 * standard errors of the share of neighbors `within` the last ones, over `rows` rows. */
bool neighbors_confirm(double modularity, double last, double within, int64_t rows);

/* The step on images that are already in t->images, for tests; ids in t->feed.ids. */
int trainer_step_on(trainer *t, const step_values *at);
/* Steps are recorded again before they are next run. */
void trainer_forget_steps(trainer *t);
/* New pseudo labels from host arrays: label [images], centroids [K,d]. */
int trainer_set_labels(trainer *t, const int32_t *label, const float *centroids, int K);

/* Whether some steps have a loss of the projector's output. */
static inline bool trainer_has_z(const trainer *t) {
    return t->framework->prototypes || confident_stage2(&t->o);
}

/* The network that is clustered: the target, or the online network if there is none. */
static inline parameters trainer_clustered(const trainer *t) {
    return (parameters){t->target_w, t->target_running};
}

/* Where row i of the batch is after gathering `blocks` blocks of rows from every rank: its row in
 * block `block`. */
int32_t trainer_gathered_row(const trainer *t, int blocks, int block, int i);

#endif
