/* features.h: what is recorded about a run that was made from features, one line each: its
 * options.yaml.  The key `source`, which no recipe has, tells it from that of a training. */
#ifndef CONR_SETTINGS_FEATURES_H
#define CONR_SETTINGS_FEATURES_H

#include "settings/settings.h"

/* clang-format off */
#define FEATURES_OPTIONS(X, T) \
    X(T, WORD, source, "file", "file|hog|encoder|run", "where the features came from: somebody's file or array, the built-in descriptor, a pretrained network, another run") \
    X(T, TEXT, from, "", "that file or run") \
    X(T, INT, rows, 0, 0, 2147483647, "rows of the features") \
    X(T, INT, columns, 0, 0, 2147483647, "features per row, as given") \
    X(T, TEXT, content, "", "checksum of the features (XXH64 of the float32 rows)") \
    X(T, WORD, takes, "features", "features|hog|model|encoder", "what assign and embed take: features, or images through the descriptor, the model or the pretrained network") \
    X(T, TEXT, encoder, "", "the weights of the pretrained network; not copied") \
    X(T, TEXT, encoder_sum, "", "their checksum (XXH64 of the file)") \
    X(T, TEXT, encoder_set, "", "its settings: how images are prepared") \
    X(T, TEXT, split, "", "images: only this part of the data") \
    X(T, TEXT, classes, "", "images: only these class folders") \
    X(T, WORD, labels, "fine", "fine|coarse", "images: classes of CIFAR-100") \
    X(T, FLOAT, long_tail, 1, 1, 1e6, "images: classes thinned out to 1/x") \
    X(T, INT, clusters, 10, 1, 1000000, "number of clusters, K") \
    X(T, INT, clusters_low, 0, 0, 1000000, "smallest K that was tried to estimate it; 0: K was given") \
    X(T, INT, clusters_high, 0, 0, 1000000, "largest K that was tried") \
    X(T, WORD, method, "kmeans", "kmeans|graph", "what found the clusters") \
    X(T, BOOL, refine_chosen, false, "refining was chosen by signs that need no labels") \
    X(T, BOOL, method_chosen, false, "the method was chosen by signs that need no labels") \
    X(T, WORD, refine, "none", "none|conaff", "conaff: a head was trained on the features before they were clustered") \
    X(T, INT, k, -1, -1, 100000, "neighbors of a row, itself included; -1, here and below: the default of the head and of the graph") \
    X(T, INT, k1, -1, -1, 100000, "neighbors that define the graph") \
    X(T, INT, k2, -1, -1, 100000, "neighbors that pass messages, itself included") \
    X(T, FLOAT, alpha, -1, -1, 1000, "exponent of the similarities in message passing") \
    X(T, INT, layers, -1, -1, 100, "layers of message passing") \
    X(T, INT, resymmetrize, -1, -1, 1, "1: make the affinities symmetric again between layers") \
    X(T, INT, restarts, 10, 1, 1000000, "restarts of k-means") \
    X(T, INT, seed, 1, 0, 2147483647, "seed of everything random") \
    X(T, TEXT, version, "", "version of conr") \
    X(T, TEXT, device, "", "device that clustered")
/* clang-format on */

typedef struct features_options {
    OPTIONS_STRUCT(FEATURES_OPTIONS)
} features_options;

void features_default(features_options *o);
/* Puts a text that may be long, or not UTF-8, into a TEXT: its end, odd bytes as '?'. */
void features_text(char out[OPTION_TEXT_SIZE], const char *text);

int features_write(const features_options *o, const char *path);
/* Reads the options.yaml of a run: 1 if the run was made from features; 0 if not, and then *o has
 * its defaults. */
int features_read(features_options *o, const char *path);

/* Setting i = 0, 1, ...: returns false past the last one.  value: as text; initial: its default. */
bool features_at(const features_options *o, int i, const option **about,
                 char value[OPTION_TEXT_SIZE], char initial[OPTION_TEXT_SIZE]);

/* The settings of a training that such a run shares, for whoever only knows those. */
void features_as_training(const features_options *o, train_options *out);

#endif
