/* pass.h: a network at work on a batch of one size: memory, forward, backward.
 *
 * Everything is planned when the pass is made: each tensor's lifetime over the forward and backward
 * sweep is known, so tensors share memory where their lives do not meet, and the bytes are known
 * before anything is allocated.  A pass without backward keeps almost nothing; one with backward
 * keeps convolution outputs and, unless it recomputes them, the activations behind norms.
 * Weights belong to the caller, so online and target networks are two passes over one network. */
#ifndef CONR_PASS_H
#define CONR_PASS_H

#include "device/device.h"
#include "encoder/network.h"
#include "ranks/ranks.h"

typedef struct pass pass;

typedef struct pass_options {
    int n;          /* images in the batch of this rank, all views together */
    int groups;     /* of batch statistics: contiguous equal parts of the batch */
    int passes;     /* steps of the running statistics per batch; divides groups */
    int end;        /* run the layers before this one: network's encoder_end, ... */
    bool backward;  /* keep what the backward sweep needs */
    bool recompute; /* less memory: all but convolutions behind the first is computed again */
    bool shared;    /* statistics over all ranks: each rank holds a part of every group */
} pass_options;

/* A network's blocks in device memory, owned by the caller. */
typedef struct parameters {
    float *w, *running; /* [n_weights] (a target: [n_target]), [n_running] */
} parameters;

typedef enum pass_mode {
    PASS_TRAIN,  /* statistics of the batch; the running ones take a step */
    PASS_REPEAT, /* statistics of the batch; the running ones stay: a second look at a batch */
    PASS_EVAL    /* running statistics */
} pass_mode;

/* Plans and allocates.  Too much memory is one error that names the batch that fits.  dev, r and
 * net must outlive the pass. */
int pass_new(device *dev, ranks *r, const network *net, const pass_options *o, pass **out);
void pass_free(pass *p); /* NULL is fine */

/* Bytes of device memory that a pass with these options takes, without taking any. */
int pass_bytes(device *dev, const network *net, const pass_options *o, size_t *out);

/* images: [n,h,w,c] */
int pass_forward(pass *p, const parameters *at, const act *images, pass_mode mode);

/* The output of the layer before `end` (encoder_end, projector_end, ...) as floats [n, co]; valid
 * after pass_forward and, without backward, only for the pass's own end. */
int pass_output(pass *p, int end, float *out);

/* The gradient of the weights, dw: [n_weights], for the gradient d: [n, co] of the last output.
 * images, weights and statistics as in the last pass_forward.  add: dw grows, else it is set.
 * over: NULL, or the ranks over which dw is averaged, block by block as layers finish, beside the
 * backward pass of those before them; the caller waits by ranks_mean_end. */
int pass_backward(pass *p, const parameters *at, const act *images, const float *d, bool add,
                  ranks *over, float *dw);

#endif
