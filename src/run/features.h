/* features.h: a run made from features, from start to finish.
 *
 *     features.c          the public calls: checks, the folder, the order of the steps
 *     features_cluster.c  refining, K, the method, clusters, scores
 *     features_near.c     what neighbors say about clusters
 *     features_results.c  the files, the report, DONE
 *     clustering.c        such a run, or a training, applied to new rows and images
 *
 * Nothing is saved on the way: a run takes seconds or minutes, and one that was stopped is started
 * over. */
#ifndef CONR_RUN_FEATURES_H
#define CONR_RUN_FEATURES_H

#include "base/lock.h"
#include "context/context.h"
#include "report/folder.h"
#include "run/evaluate.h"
#include "settings/features.h"
#include "json/json.h"

#include <stdio.h>

/* Neighbors among the features as given: of all rows, or of a sample. */
typedef struct features_neighbors {
    int32_t *ids; /* [m,k], indices into row; each itself first */
    int32_t *row; /* [m] */
    int m, k;
} features_neighbors;

typedef struct features_run {
    conr *c;
    const conr_features_options *to;
    features_options o; /* options.yaml, filled as things are decided */
    folder_lock lock;
    FILE *log;
    double began;
    /* what is clustered */
    conr_images *images;     /* NULL: none */
    const char *again;       /* the run whose embeddings these are; NULL: none */
    const float *given;      /* [n,d] */
    float *described;        /* the same if they were made here; owned */
    int64_t n, d;            /* */
    const char *const *name; /* [n] without images; NULL: numbered */
    int64_t *truth;          /* [n], or NULL if there are no labels; owned */
    /* what comes of it */
    conr_head *head; /* NULL: not refined */
    float *rows;     /* [n,width] unit rows that are clustered; owned */
    int64_t width;
    int K;
    float *centroids;           /* [K,width]; owned */
    int32_t *label;             /* [n]; owned */
    float *distance, *boundary; /* [n]; owned */
    features_neighbors near;    /* owned; without ids: not searched yet */
    double objective;
    evaluation scores;
    double silhouette, agreement;
    char path[4096];
} features_run;

/* OUT/name; valid until the next call. */
const char *features_path(features_run *r, const char *name);

/* Writes one log line: the object, which is taken over. */
int features_log(features_run *r, json_t *line);
/* Shows the caller a message. */
void features_message(features_run *r, const char *message);

/* Whether a head is trained, and kept if the neighbors say so. */
typedef enum refining { REFINE_NO, REFINE_YES, REFINE_CHOOSE } refining;
refining features_refines(const features_run *r);

/* Searches the neighbors, once. */
int features_near(features_run *r);
/* After that: the share of a row's 20 nearest that have its label [n]; NaN for a single row. */
double features_agreement(const features_run *r, const int32_t *label);
/* Modularity of the labels [n], in 0 .. K-1: the share of neighbors within a cluster, minus what the
 * sizes of the clusters explain. */
double features_modularity(const features_run *r, const int32_t *label);

/* Fills everything under "what comes of it", and what it decides in r->o. */
int features_cluster(features_run *r);
/* 1 - cos of each row [n,d] to the centroid of its label. */
void features_distances(const float *rows, int64_t n, int64_t d, const float *centroids,
                        const int32_t *label, float *out);
/* Writes the files; the last is DONE. */
int features_results(features_run *r);

#endif
