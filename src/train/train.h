/* train.h: a model in training: its state on the device, one step, one clustering.
 *
 * train.c conducts: it alone knows the order in which the method's stages follow each other.
 * frameworks.c says what differs between BYOL, SimSiam and MoCo; run.c keeps the run's folder. */
#ifndef CONR_TRAIN_H
#define CONR_TRAIN_H

#include "context/context.h"
#include "encoder/pass.h"
#include "images/feed.h"
#include "ranks/ranks.h"
#include "settings/settings.h"

typedef struct trainer trainer;

/* What both halves of a loss have in common.  Half v pulls view v's rows towards the other view's
 * keys. */
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
    bool target;       /* keys come from a moving average of the network, without the predictor */
    bool target_leads; /* which takes its step before the forward pass */
    bool queue;        /* old keys are kept */
    void (*heads)(const train_options *o, network_spec *spec);
    /* Of part p: key rows b, a of the other views, unit length. */
    int (*keys)(trainer *t, int part);
    int (*loss)(trainer *t, const half *h);
} framework;

const framework *framework_find(const char *name); /* one of the settings' words */

/* Memory is the device's unless it says host. */
struct trainer {
    conr *c;
    device *dev;
    ranks ranks, norm_ranks; /* all; those that share batch statistics with this one */
    train_options o;
    const framework *way;
    network net;
    const store *store;
    feed feed;
    int64_t steps; /* an epoch */
    int n, own, m; /* images of a batch; this rank's of them; of one part of these */
    int d;         /* numbers of a feature */

    /* blocks with the network's offsets */
    float *w, *dw, *v, *running;      /* online */
    float *average, *average_running; /* the target; without one: the online blocks themselves */
    pass *online, *target, *plain;    /* plain: for clustering */
    act *images;                      /* [parts][3][m] rows, see feed.h */

    float *q, *key, *dq; /* [2n,d]: block v is what half v sees, of the whole batch */
    /* [2 own,d]: this rank's rows of them; alone and in order they are the same memory */
    float *own_q, *own_key, *own_dq;
    float *mixed;       /* [ranks][4][own,d]: own_q and own_key of all ranks, as they come in */
    int32_t *sorted;    /* [2n]: where the rows of q lie in it, from its first block on */
    int32_t *back;      /* [2n]: those of key, from its third; the same unless they are shuffled */
    float *flat, *norm; /* [2 own,d], [2 own] */
    int32_t *near;      /* [n,k] */
    float *ratio, *weight; /* [n] */
    void *work;            /* of neighbors */
    float *queue, *logits; /* [queue,d], [n,queue] */
    act *shuffled;         /* [2 own] rows: the target's images in drawn order, out of */
    act *gathered;         /* [ranks][2 own] rows: all of them; alone: those of images */
    int32_t *rows;         /* [2 own]: that order, in `gathered` */
    int32_t *host_rows;    /* host: [2n] the drawn order of the whole batch; `back`; `rows` */
    float *loss;           /* [1]: grows until it is read */
    step_values *at;
    recording *step_of[2]; /* a step of either stage, learned by heart; and */
    recording *embedding;  /* a batch of the embedding */
    int stage;             /* of the current step: 1 or 2 */
    bool unrecorded;       /* steps are run operation by operation, to be looked at */
    size_t bytes;          /* of device memory */

    /* pseudo labels: of all images, on the host and on the device */
    int K;                     /* 0: not known yet */
    int32_t *label, *label_on; /* [images] */
    float *centroids;          /* host [K,d], plain means */
    float *centroids_on;       /* [K,d], scaled where normalize_centroids is set */
    float *features_on;        /* [images,d], of the last embedding */
    float *features;           /* host: the same, once trainer_features was called */
    int64_t featured, fetched; /* the step at which they were taken, and came here; -1: never */
    double objective;          /* of the last k-means; and */
    float *tried;              /* host [n_tried]: of each of its runs, where they are known */
    int n_tried;
    int32_t *table; /* host [steps,n]: balanced order of an epoch, or NULL */

    int64_t step;      /* done so far; the next one's number */
    int64_t clustered; /* the step at which label and centroids were made; -1: never */
    void *owned[48];
    int n_owned;
};

/* store, norm: of the images.  Weights are drawn from the seed. */
int trainer_open(conr *c, const store *s, const pixels_norm *norm, const train_options *o,
                 trainer **out);
void trainer_close(trainer *t); /* NULL is fine */

/* The next step starts here: after loading a state, or a stop. */
int trainer_seek(trainer *t);
/* One training step. */
int trainer_step(trainer *t);
/* The sum of losses since the last call; waits for the device. */
int trainer_loss(trainer *t, double *sum);
/* Features of all images by the network that is clustered, on the host: t->features.  All ranks
 * call it. */
int trainer_features(trainer *t);
/* Embeds and clusters all images: pseudo labels, centroids.  Estimates K where it is not known. */
int trainer_cluster(trainer *t);

/* The step on images that already lie in t->images, for tests; ids in t->feed.ids. */
int trainer_step_on(trainer *t, const step_values *at);
/* New pseudo labels from host arrays: label [images], centroids [K,d]. */
int trainer_set_labels(trainer *t, const int32_t *label, const float *centroids, int K);

/* The network that is clustered: the target, or the online one where there is none. */
static inline parameters trainer_clustered(const trainer *t) {
    return (parameters){t->average, t->average_running};
}

#endif
