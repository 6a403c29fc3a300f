/* settings.h: everything that can be set about a training, one line each. */
#ifndef CONR_SETTINGS_H
#define CONR_SETTINGS_H

#include "base/options.h"
#include "encoder/kinds.h"

#include <math.h>
#include <stdint.h>

/* clang-format off */
#define TRAIN_OPTIONS(X, T) \
    X(T, WORD, preset, "paper", "paper|released", "paper: batch 256; released: as the authors' code runs on CIFAR-10; a preset sets several other settings") \
    X(T, TEXT, note, "", "free text, kept with the run") \
    /* images */ \
    X(T, TEXT, split, "", "use only this part of the data: train, val, test or unlabeled") \
    X(T, TEXT, classes, "", "use only these class folders, separated by commas") \
    X(T, WORD, labels, "fine", "fine|coarse", "CIFAR-100: its 100 classes or its 20 superclasses") \
    X(T, FLOAT, long_tail, 1, 1, 1e6, "thin out the classes, the last to 1/x of the first; 1: leave them as they are") \
    X(T, INT, size, 32, 16, 4096, "side of the images that the encoder sees, in pixels") \
    X(T, INT, short_side, 0, 0, 8192, "images without augmentation: scale the short side to this, crop the center; 0: squash to a square") \
    X(T, INT, clusters, 10, 0, 1000000, "number of clusters, K; 0: estimate it once, from the features of stage 1") \
    X(T, INT, clusters_low, 2, 1, 1000000, "smallest K to try when estimating it") \
    X(T, INT, clusters_high, 50, 2, 1000000, "largest K to try") \
    /* networks */ \
    X(T, WORD, framework, "byol", "byol|simsiam|moco|propos", "what stage 1 trains and stage 2 builds on") \
    X(T, WORD, encoder, "resnet18", ENCODER_NAMES, "the network") \
    X(T, WORD, stem, "auto", "auto|" STEM_NAMES, "first layers of the network; auto: cifar up to 32 pixels, else imagenet; small for encoder small") \
    X(T, INT, width, 64, 1, 1024, "channels of the first stage") \
    X(T, INT, projector_layers, 2, 2, 3, "layers of the projector of simsiam") \
    X(T, INT, hidden, 4096, 1, 1000000, "hidden width of the projector") \
    X(T, INT, features, 256, 1, 1000000, "elements of a feature: outputs of projector and predictor") \
    X(T, INT, predictor_hidden, 4096, 1, 1000000, "hidden width of the predictor") \
    X(T, INT, bn_group, 0, 0, 1000000, "images that share batch statistics; 0, or more than a view has: a whole view") \
    X(T, BOOL, shuffle_bn, false, "draw the batch norm groups of the target network at random") \
    /* views */ \
    X(T, FLOAT, crop_scale, 0.08, 0.001, 1, "smallest fraction of an image's area that a view shows") \
    X(T, FLOAT, stage2_crop_scale, 0.45, 0.001, 1, "the same in stage 2") \
    X(T, FLOAT, ratio_low, 0.75, 0.01, 100, "smallest width / height of a crop") \
    X(T, FLOAT, ratio_high, 1.3333333333333333, 0.01, 100, "largest width / height of a crop") \
    X(T, FLOAT, flip, 0.5, 0, 1, "probability of a horizontal flip") \
    X(T, FLOAT, jitter, 0.8, 0, 1, "probability of color jitter") \
    X(T, FLOAT, brightness, 0.4, 0, 1, "strength of brightness jitter") \
    X(T, FLOAT, contrast, 0.4, 0, 1, "strength of contrast jitter") \
    X(T, FLOAT, saturation, 0.4, 0, 1, "strength of saturation jitter") \
    X(T, FLOAT, hue, 0.1, 0, 0.5, "strength of hue jitter, as a fraction of a full turn") \
    X(T, FLOAT, gray, 0.2, 0, 1, "probability of grayscale") \
    X(T, FLOAT, blur, 0, 0, 1, "probability of a Gaussian blur") \
    X(T, FLOAT, solarize, 0, 0, 1, "probability of inverting bright pixels") \
    /* schedule */ \
    X(T, INT, batch, 256, 2, 1000000, "images per step, over all ranks") \
    X(T, INT, epochs, 1000, 1, 1000000, "passes over the images, both stages together") \
    X(T, INT, until, 0, 0, 1000000, "stop after this epoch, with the schedules of the full run; 0: run all epochs") \
    X(T, INT, replan_epoch, 0, 0, 1000000, "until this epoch the schedules are those of replan_from epochs; --budget sets it; 0: never") \
    X(T, INT, replan_from, 0, 0, 1000000, "the number of epochs that was planned until replan_epoch") \
    X(T, INT, stage1_epochs, 800, 0, 1000000, "epochs of stage 1, the plain framework; at most epochs") \
    X(T, FLOAT, warmup_epochs, 50, 0, 1e6, "epochs over which the learning rate rises") \
    X(T, FLOAT, lr, 0.05, 0, 1000, "learning rate at its peak") \
    X(T, FLOAT, predictor_lr, 10, 0, 1000, "factor on the learning rate of the predictor in stage 1") \
    X(T, BOOL, predictor_lr_fixed, false, "keep the learning rate of the predictor constant") \
    X(T, FLOAT, stage2_lr, 0.1, 0, 1000, "factor on the learning rate in stage 2") \
    X(T, FLOAT, stage2_predictor_lr, 0.1, 0, 1000, "factor on the learning rate of the predictor in stage 2") \
    X(T, FLOAT, momentum, 0.9, 0, 0.9999, "momentum of SGD") \
    X(T, FLOAT, decay, 5e-4, 0, 1, "weight decay; applies to biases and batch norm too") \
    X(T, FLOAT, decay_by_length, 0, 0, 10, "set the weight decay by the length of the run instead: this, divided by the root of lr times all steps; 0: use decay") \
    X(T, FLOAT, average, 0.996, 0, 1, "m of the moving average that is the target network, at the start; rises to 1") \
    X(T, BOOL, average_fixed, false, "keep m constant") \
    X(T, FLOAT, average_share, 0, 0, 1, "set m by the length of the run instead: the average remembers this fraction of all steps, at least 10 and at most 250, and stays constant; 0: use average") \
    X(T, FLOAT, stage2_average, 0, 0, 1, "m of the target's moving average in stage 2; 0: the schedule of stage 1 continues") \
    X(T, WORD, target_update, "before", "before|after", "update the target from the weights before or after the SGD step (moco: before the forward pass)") \
    /* stage 1 */ \
    X(T, INT, early_k, 1, 1, 100000, "neighbors of the batch an image is pulled towards in stage 1, itself included; 1: only itself") \
    X(T, INT, early_epoch, 50, 0, 1000000, "first epoch, from 0, with these neighbors") \
    /* stage 2 */ \
    X(T, WORD, stage2, "conr", "conr|confident", "what stage 2 does: conr pulls an image towards its neighborhood; confident pulls together the images whose neighbors in the batch agree about their cluster") \
    X(T, WORD, neighborhood, "conaff", "none|local|conaff", "what an image is pulled towards: itself, its nearest neighbors, its contextually affinitive neighbors") \
    X(T, INT, k, 10, 1, 100000, "neighbors an image is pulled towards, itself included") \
    X(T, INT, k1, 10, 1, 100000, "neighbors that define the graph") \
    X(T, INT, k2, 2, 1, 100000, "neighbors that pass messages, itself included") \
    X(T, FLOAT, alpha, 2, 0, 1000, "exponent of the similarities in message passing") \
    X(T, INT, layers, 2, 0, 100, "layers of message passing") \
    X(T, BOOL, resymmetrize, true, "make the affinities symmetric again between layers") \
    X(T, BOOL, boundary, true, "hold back images near cluster boundaries") \
    X(T, FLOAT, fr0, 0.8, 0, 1, "fraction of a batch that passes the boundary filter at first") \
    X(T, BOOL, relaxation, true, "let that fraction grow to 1") \
    X(T, INT, relax_epochs, 50, 0, 1000000, "epochs of stage 2 over which it grows; 0: all of stage 2") \
    X(T, BOOL, normalize_centroids, false, "scale centroids to unit length for the boundary ratio") \
    X(T, WORD, loss_mean, "kept", "kept|batch", "average the loss over the images that pass the filter, or over the batch") \
    X(T, FLOAT, stage2_loss_scale, 1, 0, 1000, "factor on the gradient in stage 2") \
    X(T, FLOAT, temperature, 0.1, 0.001, 100, "softmax temperature of moco") \
    X(T, INT, queue, 65536, 1, 100000000, "keys in the queue of moco") \
    X(T, FLOAT, prototypes, 0.1, 0, 1000, "propos: weight of the prototype loss, the mean over both halves") \
    X(T, FLOAT, prototype_temperature, 0.5, 0.001, 100, "propos, confident: temperature of that loss") \
    X(T, INT, prototype_epoch, 50, 0, 1000000, "propos: first epoch, from 0, with prototypes and noise; needs clusters above 0") \
    X(T, FLOAT, positive_noise, 0.001, 0, 1000, "propos, confident: deviation of the noise on the projector's output") \
    X(T, BOOL, prototypes_stage2, false, "propos: prototypes and noise in stage 2 too") \
    X(T, INT, confident_k, 50, 1, 1000, "confident: most neighbors that must agree; how many is chosen for each batch") \
    X(T, FLOAT, confident_pull, 1, 0, 1000, "confident: weight of pulling confident images of a cluster together") \
    X(T, FLOAT, confident_prototypes, 1, 0, 1000, "confident: weight of the prototype loss of confident images, the mean over both halves; prototype_temperature is its temperature") \
    X(T, FLOAT, confident_byol, 1, 0, 1000, "confident: weight of pulling every image towards its own key") \
    X(T, WORD, balance, "none", "none|clusters", "clusters: in stage 2, draw images with probability inverse to the size of their cluster") \
    /* k-means */ \
    X(T, INT, restarts, 10, 1, 1000000, "restarts of k-means") \
    X(T, INT, iterations, 300, 1, 1000000, "most iterations of k-means per restart") \
    X(T, BOOL, kmeans_warm, true, "run k-means once more, from the last centroids") \
    X(T, WORD, kmeans_choice, "objective", "objective|neighbors", "if k-means ends lower from other centroids than the last ones: take its clusters, or only if clearly more of their images have their nearest neighbors in the same cluster (modularity); needs kmeans_warm") \
    /* work */ \
    X(T, INT, accumulate, 1, 1, 100000, "parts that a batch is split into, to save memory (gradient accumulation)") \
    X(T, BOOL, recompute, false, "save memory: recompute some activations in the backward pass") \
    X(T, INT, device_images, 0, 0, 100000000, "MiB of a GPU's memory that the images may take; if they need more, they are streamed to it; 0: a third of it") \
    X(T, INT, eval_every, 10, 0, 1000000, "epochs between evaluations; 0: only at the end of each stage") \
    X(T, BOOL, baseline, true, "at the end, also cluster the built-in descriptor, to compare with") \
    X(T, INT, checkpoint_every, 10, 1, 1000000, "epochs between checkpoints") \
    X(T, INT, keep_every, 0, 0, 1000000, "epochs between checkpoints that are kept for --from; 0: keep only the end of stage 1") \
    X(T, BOOL, compact, false, "also write kept checkpoints in the compact form, in pieces under 16 MB") \
    X(T, INT, log_every, 50, 1, 1000000, "steps between log lines") \
    X(T, INT, seed, 1, 0, 2147483647, "seed of everything random") \
    X(T, TEXT, version, "", "version of conr; written, never read") \
    X(T, TEXT, device, "", "device that trained; written, never read")
/* clang-format on */

typedef struct train_options {
    OPTIONS_STRUCT(TRAIN_OPTIONS)
} train_options;

/* The public conr_settings. */
struct conr_settings {
    train_options o;
};

/* Fails, naming them, if settings contradict each other. */
int settings_check(const train_options *o);

/* The stage that epoch 0, 1, ... belongs to: 1 is the plain framework, 2 is CoNR.  Everything that
 * depends on the stage asks here. */
static inline int stage_of(const train_options *o, int64_t epoch) {
    return epoch < o->stage1_epochs ? 1 : 2;
}

/* The epoch after which a run ends. */
static inline int last_epoch(const train_options *o) { return o->until ? o->until : o->epochs; }

/* Whether an epoch has the prototypes and noise of ProPos.  An estimated K comes too late for stage
 * 1. */
bool prototypes_in(const train_options *o, int64_t epoch);

/* Whether stage 2 is the confident one (train/confident.c). */
bool confident_stage2(const train_options *o);

/* Whether images are pulled towards neighbors in an epoch of stage 1. */
static inline bool neighbors_early(const train_options *o, int64_t epoch) {
    return stage_of(o, epoch) == 1 && o->early_k > 1 && epoch >= o->early_epoch;
}

/* Whether an epoch needs pseudo labels, so that the one before it ends with a clustering. */
static inline bool labels_in(const train_options *o, int64_t epoch) {
    return stage_of(o, epoch) == 2 || prototypes_in(o, epoch);
}

/* The settings as in RUN/options.yaml, in ASCII; empty if they do not fit. */
void settings_text(const train_options *o, char *out, size_t size);

/* The file RUN/options.yaml. */
int settings_write(const train_options *o, const char *path);
int settings_read(train_options *o, const char *path);

#endif
