/* folder.h: the results in the folder of a run, read back for a report. */
#ifndef CONR_REPORT_FOLDER_H
#define CONR_REPORT_FOLDER_H

#include "base/memory.h"
#include "report/chart.h"
#include "report/data.h"
#include "settings/features.h"

#include <stdbool.h>
#include <stdint.h>

/* The curves of log.jsonl, over epochs. */
typedef struct folder_log {
    series loss, lr, nmi, acc, ari, knn, silhouette, stability, agreement, modularity, gap;
    double seconds, images_per_s; /* of the whole training */
    double step, counted, waited; /* so far: the last step, steps, and steps by images_per_s */
    const char **warning;         /* [n_warnings] of the last evaluation */
    int n_warnings, earlier;      /* earlier: of the evaluations before it */
    const char *note;             /* why it is these features; NULL: none */
    /* of the training, and of the built-in descriptor without training; NaN: not known */
    struct folder_side {
        double nmi, acc, ari, agreement, confirmed, silhouette, stability;
    } training, descriptor;
    int64_t baseline; /* images that these are of; 0: there are none */
} folder_log;

typedef struct folder {
    const char *path, *name; /* as given; the last part of the absolute path */
    train_options o;         /* of a run made from features: what it shares with trainings */
    bool of_features;        /* made from features, and */
    features_options made;   /* how */
    bool done;
    folder_log log;
    folder_data data;
    /* folder_read_images */
    int64_t n;
    int K;
    const char **image;         /* [n] names */
    int32_t *cluster;           /* [n] */
    float *distance, *boundary; /* [n] */
    int64_t *label;             /* [n], -1 unknown; NULL: no labels at all */
    float *features;            /* [n,d] */
    int64_t d;
    int decisions;             /* edits in force: the clusters are those that a person made, and */
    int found, used;           /* how many the run found; how many have images */
    const char **cluster_name; /* [K], NULL: none; NULL: nobody edited them */
    arena memory;
} folder;

/* options.yaml, log.jsonl, data.json.  The last may be missing. */
int folder_open(const char *path, folder *out);
/* The clusters that the run found: labels.csv, or untouched.csv beside edits. */
int folder_read_labels(folder *f);
/* The same, then embeddings.npy and the edits. */
int folder_read_images(folder *f);
void folder_close(folder *f); /* also after a failed open; may be called twice */

/* "Cluster 3", or the name that somebody gave it (static memory, good for the last four calls). */
const char *folder_cluster(const folder *f, int k);

/* What was clustered: the last part of the path of the images, of the file of features, or of the
 * run. */
const char *folder_title(const folder *f);

/* The name of a class, or its number if names are not known (static memory, good for the last four
 * calls). */
const char *folder_class(const folder *f, int64_t label);

/* The length of the folders that all n names share. */
size_t folder_shared(const char *const *name, int64_t n);

#endif
