/* network.h: what a network is: a list of layers, and where its weights lie.
 *
 * A network is a ResNet (torchvision's shapes and names), then a projector, then a predictor, the
 * last two optional.  All its weights are one block of floats with one table of offsets, so that
 * gradients, momentum and the target network are blocks of the same layout.  The predictor comes
 * last, so a target without one is a shorter block with the same offsets.  Running statistics are a
 * second block.  This file holds no device memory and does no arithmetic on images: see pass.h. */
#ifndef CONR_NETWORK_H
#define CONR_NETWORK_H

#include "base/memory.h"
#include "base/tensors.h"
#include "encoder/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ENCODER_RESNET18, ..., STEM_CIFAR, ...: see kinds.h.  ENCODER_NONE: vectors [n,c] enter the heads
 * as they are (h = w = 1). */
#define ENCODER_ID(id, ...) ENCODER_##id,
#define STEM_ID(id, ...)    STEM_##id,
typedef enum encoder_kind { ENCODERS(ENCODER_ID, ) ENCODER_NONE } encoder_kind;
typedef enum stem_kind { STEMS(STEM_ID, ) STEM_KINDS } stem_kind;

const char *encoder_name(encoder_kind encoder);
const char *stem_name(stem_kind stem);
/* The kind of that name; false: there is none. */
bool encoder_find(const char *name, encoder_kind *out);
bool stem_find(const char *name, stem_kind *out);
/* The kind whose four stages have these numbers of basic blocks or bottlenecks; false: none. */
bool encoder_of_blocks(bool bottlenecks, const int blocks[4], encoder_kind *out);
/* The usual stem: small for the small encoder, else cifar up to 32 pixels and imagenet above. */
stem_kind stem_usual(encoder_kind encoder, int size);

/* Initial weights.  KAIMING: normal, sd sqrt(2 / (k^2 co)).  TORCH: uniform +-1/sqrt(fan-in), the
 * bias too.  NORMAL: sd 0.01, bias 0. */
typedef enum init_kind { INIT_KAIMING, INIT_TORCH, INIT_NORMAL } init_kind;

enum { MLP_LAYERS = 3, NETWORK_NAME = 64, NETWORK_SIDE = 16 /* smallest image, pixels */ };

/* A head: dense layers, each with an optional bias, batch norm and ReLU. */
typedef struct mlp_spec {
    int n; /* 0: no head */
    struct {
        int out;
        bool bias, norm, relu;
    } layer[MLP_LAYERS];
    init_kind init;
} mlp_spec;

typedef struct network_spec {
    encoder_kind encoder;
    stem_kind stem;
    int width;   /* channels of the first stage: 64 for the ResNets as published */
    int h, w, c; /* images: c is 1 or 3 */
    mlp_spec projector, predictor;
} network_spec;

/* BYOL's heads: Linear(hidden) - BN - ReLU - Linear(out), with biases; the predictor's initial
 * weights are small. */
mlp_spec mlp_byol_projector(int hidden, int out);
mlp_spec mlp_byol_predictor(int hidden, int out);

typedef enum layer_kind { LAYER_CONV, LAYER_MAX_POOL, LAYER_MEAN_POOL } layer_kind;

/* out = relu?(norm?(conv(out of `in`)) + out of `add`), or a pool of `in`. */
typedef struct layer {
    layer_kind kind;
    int in;  /* the layer it reads; -1: the images */
    int add; /* the layer added before the ReLU; -1: none */
    bool bias, norm, relu;
    bool joined;  /* a projection shortcut: its norm is applied by the layer that adds it */
    int h, w, ci; /* input */
    int oh, ow, co, k, stride, pad; /* output */
    init_kind init;
    char name[NETWORK_NAME];                 /* of weight and bias: "encoder.layer1.0.conv1" */
    char norm_name[NETWORK_NAME];            /* "encoder.layer1.0.bn1" */
    size_t w_at, bias_at, gamma_at, beta_at; /* in the block of weights; w: [co][k][k][ci] */
    size_t running_at;                       /* in the block of statistics: [2][co] mean, var */
} layer;

typedef struct network {
    network_spec spec;
    layer *layer; /* [n_layers], owned by memory */
    int n_layers;
    int encoder_end, projector_end, predictor_end; /* layers of each part come before these */
    size_t n_weights, n_running;                   /* floats in each block */
    size_t n_target; /* weights without the predictor: a prefix of the block */
    arena memory;
} network;

int network_new(const network_spec *spec, network *out);
void network_free(network *net); /* also after a failed new, or twice */

/* Initial weights and statistics into host blocks w [n_weights] and running [n_running]. */
void network_init(const network *net, uint64_t seed, float *w, float *running);

/* Weights and statistics, without the padding between them. */
size_t network_numbers(const network *net);

/* Multiply-adds of a forward pass, per image. */
double network_work(const network *net);

/* ---- files (weights.c) ----------------------------------------------------------------------- */

enum { PART_ENCODER = 1, PART_PROJECTOR = 2, PART_PREDICTOR = 4 };

/* Reads weights from a safetensors file into host blocks.  Encoder names are ours, torchvision's or
 * those of Hugging Face (names.h); torchvision's fc is ignored.  The encoder is required; a head is read if the file has it, else its weights stay as they are.  *parts, if not
 * NULL, reports what was found.  A missing tensor or a different shape is an error and leaves the
 * blocks unchanged. */
int network_load(const network *net, const char *path, float *w, float *running, int *parts);
/* The same to start a training: heads of a different shape are ignored, and an encoder of another
 * kind is named in the error. */
int network_start(const network *net, const char *path, float *w, float *running, int *parts);
/* The encoder from an open file; the heads stay as they are.  After an error the blocks may have
 * been written in part. */
int network_take(const network *net, const tensors *file, float *w, float *running);

/* The named parts as tensors with torch's names and order, from host blocks that must outlive them;
 * transposed copies are allocated from memory.  Includes BN's num_batches_tracked, which torch's
 * loader requires. */
int network_tensors(const network *net, int parts, const float *w, const float *running,
                    arena *memory, tensor **out, int *n);

/* Writes the named parts from host blocks, torch's names and order; notes become metadata. */
int network_save(const network *net, const char *path, int parts, const float *w,
                 const float *running, const tensor_note *note, int n_notes);

#endif
