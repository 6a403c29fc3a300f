/* settings.h: everything that can be set about a training, one line each. */
#ifndef CONR_SETTINGS_H
#define CONR_SETTINGS_H

#include "base/options.h"
#include "encoder/kinds.h"

#include <math.h>
#include <stdint.h>

/* clang-format off */
#define TRAIN_OPTIONS(X, T) \
    X(T, WORD, preset, "paper", "paper|released", "paper: batch 256; released: as the authors' code runs on CIFAR-10; sets the settings it stands for") \
    X(T, TEXT, note, "", "free text, kept with the run") \
    /* images */ \
    X(T, TEXT, split, "", "only this part of the data: train, val, test or unlabeled") \
    X(T, TEXT, classes, "", "only these class folders, with commas between") \
    X(T, WORD, labels, "fine", "fine|coarse", "of CIFAR-100: its 100 classes or 20 superclasses") \
    X(T, FLOAT, long_tail, 1, 1, 1e6, "thins classes out, the last to 1/x of the first; 1: as they are") \
    X(T, INT, size, 32, 16, 4096, "side of the images that the encoder sees, pixels") \
    X(T, INT, short_side, 0, 0, 8192, "images without randomness: short side to this, then the center; 0: squashed") \
    X(T, INT, clusters, 10, 0, 1000000, "K; 0: estimated once from the features of stage 1") \
    X(T, INT, clusters_low, 2, 1, 1000000, "least K that is tried when it is estimated") \
    X(T, INT, clusters_high, 50, 2, 1000000, "greatest K that is tried") \
    /* networks */ \
    X(T, WORD, framework, "byol", "byol|simsiam|moco", "what stage 1 is, and stage 2 builds on") \
    X(T, WORD, encoder, "resnet18", ENCODER_NAMES, "the network") \
    X(T, WORD, stem, "auto", "auto|" STEM_NAMES, "its first layers; auto: cifar up to 32 pixels, else imagenet") \
    X(T, INT, width, 64, 1, 1024, "channels of the first stage") \
    X(T, INT, projector_layers, 2, 2, 3, "of simsiam's projector") \
    X(T, INT, hidden, 4096, 1, 1000000, "width of the heads inside") \
    X(T, INT, features, 256, 1, 1000000, "numbers of a feature: the heads' outputs") \
    X(T, INT, predictor_hidden, 4096, 1, 1000000, "width of the predictor inside") \
    X(T, INT, bn_group, 0, 0, 1000000, "images that share batch statistics; 0, or more than a view has: a whole view") \
    X(T, BOOL, shuffle_bn, false, "the target's groups are drawn at random") \
    /* views */ \
    X(T, FLOAT, crop_scale, 0.08, 0.001, 1, "least share of an image that a view shows") \
    X(T, FLOAT, stage2_crop_scale, 0.45, 0.001, 1, "the same in stage 2") \
    X(T, FLOAT, ratio_low, 0.75, 0.01, 100, "least width / height of a crop") \
    X(T, FLOAT, ratio_high, 1.3333333333333333, 0.01, 100, "greatest") \
    X(T, FLOAT, flip, 0.5, 0, 1, "probability of a mirror image") \
    X(T, FLOAT, jitter, 0.8, 0, 1, "probability of other colors") \
    X(T, FLOAT, brightness, 0.4, 0, 1, "how far colors change") \
    X(T, FLOAT, contrast, 0.4, 0, 1, "the same") \
    X(T, FLOAT, saturation, 0.4, 0, 1, "the same") \
    X(T, FLOAT, hue, 0.1, 0, 0.5, "the same, of a full turn") \
    X(T, FLOAT, gray, 0.2, 0, 1, "probability of no colors") \
    X(T, FLOAT, blur, 0, 0, 1, "probability of a Gaussian blur") \
    X(T, FLOAT, solarize, 0, 0, 1, "probability of bright pixels inverted") \
    /* schedule */ \
    X(T, INT, batch, 256, 2, 1000000, "images a step, over all ranks") \
    X(T, INT, epochs, 1000, 1, 1000000, "passes over the images, both stages") \
    X(T, INT, until, 0, 0, 1000000, "the last epoch that is run, schedules staying those of all; 0: all are") \
    X(T, INT, stage1_epochs, 800, 0, 1000000, "of them in stage 1, the plain framework; at most epochs") \
    X(T, FLOAT, warmup_epochs, 50, 0, 1e6, "over which the learning rate rises") \
    X(T, FLOAT, lr, 0.05, 0, 1000, "learning rate at its peak") \
    X(T, FLOAT, predictor_lr, 10, 0, 1000, "times this for the predictor in stage 1") \
    X(T, BOOL, predictor_lr_fixed, false, "the predictor's rate does not follow the schedule") \
    X(T, FLOAT, stage2_lr, 0.1, 0, 1000, "learning rate times this in stage 2") \
    X(T, FLOAT, stage2_predictor_lr, 0.1, 0, 1000, "the predictor's, times this in stage 2") \
    X(T, FLOAT, momentum, 0.9, 0, 0.9999, "of SGD") \
    X(T, FLOAT, decay, 5e-4, 0, 1, "of weights, biases and norms too") \
    X(T, FLOAT, average, 0.996, 0, 1, "m of the target's moving average at the start; rises to 1") \
    X(T, BOOL, average_fixed, false, "m stays as it is") \
    X(T, WORD, target_update, "before", "before|after", "the target follows the weights before or after a step's update (moco: before the forward pass)") \
    /* stage 2 */ \
    X(T, WORD, neighborhood, "conaff", "none|local|conaff", "whom an image is pulled to: itself, its nearest, its contextually affinitive neighbors") \
    X(T, INT, k, 10, 1, 100000, "neighbors, itself included") \
    X(T, INT, k1, 10, 1, 100000, "neighbors that make the graph") \
    X(T, INT, k2, 2, 1, 100000, "neighbors that pass messages, itself included") \
    X(T, FLOAT, alpha, 2, 0, 1000, "power of the similarities on the way") \
    X(T, INT, layers, 2, 0, 100, "of message passing") \
    X(T, BOOL, resymmetrize, true, "affinities are made symmetric between layers") \
    X(T, BOOL, boundary, true, "images near cluster boundaries are held back") \
    X(T, FLOAT, fr0, 0.8, 0, 1, "share that is let through at first") \
    X(T, BOOL, relaxation, true, "that share grows to 1") \
    X(T, INT, relax_epochs, 50, 0, 1000000, "over so many epochs of stage 2; 0: over all of it") \
    X(T, BOOL, normalize_centroids, false, "centroids are scaled to length 1 for the boundary ratio") \
    X(T, WORD, loss_mean, "kept", "kept|batch", "the loss is a mean over the images let through, or over all") \
    X(T, FLOAT, stage2_loss_scale, 1, 0, 1000, "times the gradient in stage 2") \
    X(T, FLOAT, temperature, 0.1, 0.001, 100, "of moco") \
    X(T, INT, queue, 65536, 1, 100000000, "keys that moco remembers") \
    X(T, WORD, balance, "none", "none|clusters", "clusters: stage 2 draws images by the inverse size of their cluster") \
    /* k-means */ \
    X(T, INT, restarts, 10, 1, 1000000, "of k-means") \
    X(T, INT, iterations, 300, 1, 1000000, "of one start of k-means, at most") \
    X(T, BOOL, kmeans_warm, true, "the last centroids are one more start") \
    /* work */ \
    X(T, INT, accumulate, 1, 1, 100000, "parts that a batch's backward pass is cut into, to save memory") \
    X(T, BOOL, recompute, false, "less memory: some activations are computed again") \
    X(T, INT, eval_every, 10, 0, 1000000, "epochs between evaluations; 0: only at the end of each stage") \
    X(T, INT, checkpoint_every, 10, 1, 1000000, "epochs between checkpoints") \
    X(T, INT, keep_every, 0, 0, 1000000, "epochs between checkpoints that are kept for --from; 0: the end of stage 1 alone") \
    X(T, BOOL, compact, false, "also keeps them in the compact form, pieces under 16 MB") \
    X(T, INT, log_every, 50, 1, 1000000, "steps between lines of the log") \
    X(T, INT, seed, 1, 0, 2147483647, "of everything random") \
    X(T, TEXT, version, "", "of conr; written, never read") \
    X(T, TEXT, device, "", "written, never read")
/* clang-format on */

typedef struct train_options {
    OPTIONS_STRUCT(TRAIN_OPTIONS)
} train_options;

/* What stands behind conr_settings. */
struct conr_settings {
    train_options o;
};

/* Settings that contradict each other are an error that names them. */
int settings_check(const train_options *o);

/* The stage that epoch 0, 1, ... belongs to: 1 is the plain framework, 2 is CoNR.  Everything that
 * depends on the stage asks here. */
static inline int stage_of(const train_options *o, int64_t epoch) {
    return epoch < o->stage1_epochs ? 1 : 2;
}

/* The epoch after which a run ends. */
static inline int last_epoch(const train_options *o) { return o->until ? o->until : o->epochs; }

/* RUN/options.yaml */
int settings_write(const train_options *o, const char *path);
int settings_read(train_options *o, const char *path);

#endif
