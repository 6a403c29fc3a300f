/* features.h: a run made from features, from start to finish.
 *
 *     features.c          the public calls: checks, the folder, the order of the steps
 *     features_cluster.c  refining, K, the method, clusters, scores
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

/* "none" or "conaff": what the caller asked for, or what suits the features. */
const char *features_refined(const features_run *r);

/* Fills everything under "what comes of it", and what it decides in r->o. */
int features_cluster(features_run *r);
/* 1 - cos of each row [n,d] to the centroid of its label. */
void features_distances(const float *rows, int64_t n, int64_t d, const float *centroids,
                        const int32_t *label, float *out);
/* Writes the files; the last is DONE. */
int features_results(features_run *r);

#endif
