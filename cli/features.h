/* features.h: features in place of a training: their flags, reading them, clustering them. */
#ifndef CLI_FEATURES_H
#define CLI_FEATURES_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define FEATURES_FLAGS                                                                             \
    {"features", "F.npy|hog", NULL, "cluster these in place of training; hog: the built-in descriptor"}, \
    {"paths", "P.txt", NULL, "the image of each row of F.npy, one path per line; default: as info --paths"}, \
    {"refine", "WORD", NULL, "conaff: train a head on the features first; none; auto (default): conaff if neighbors confirm its clusters better; none for hog"}, \
    {"method", "WORD", NULL, "with --features or RUN: kmeans, graph or auto (default)"}
/* clang-format on */

/* Features and the images they belong to. */
typedef struct features {
    conr_images *images;   /* NULL: none */
    float *rows;           /* [n,d] in the order of the images; NULL: the library makes them, */
    conr_encoder *encoder; /* by this, or if it is NULL by the descriptor (hog) */
    int64_t n, d;
    conr_images_options selection;
} features;

/* Whether the flags ask for this in place of a training, or the operand is a finished run. */
bool features_wanted(const arguments *a);

/* Refuses flags that only a training has.  again: a run is clustered again.  0, or EXIT_USAGE. */
int features_check_flags(const arguments *a, bool again);

/* The keys that --set and --grid may name. */
bool features_has_key(const char *key);
/* method and refine, which are flags, and in a sweep may be keys of --grid. */
bool features_has_word(const char *key);
int features_set_word(const char *key, const char *value, conr_features_options *o);
/* Fills o from --clusters, --seed, --method, --refine and s.  Of the settings of neighborhoods,
 * those count that --set names or, in a sweep, --grid. */
int features_options(const arguments *a, const conr_settings *s, bool grid,
                     conr_features_options *o);

/* Opens the images (src may be NULL) and reads the features that belong to them.  0, or an exit code
 * after a message. */
int features_open(const arguments *a, conr *c, const char *src, features *f);
void features_close(features *f);

/* Clusters them into the folder o->out.  *why: the code that the library returned; may be NULL.  0,
 * or an exit code after a message. */
int features_run(const arguments *a, conr *c, features *f, conr_features_options *o,
                 conr_features_result *result, int *why);

/* conr cluster, with all its flags. */
int features_cluster(const arguments *a);

#endif
