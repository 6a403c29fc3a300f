/* pass.h: runs a network on batches of one size: memory, forward, backward.
 *
 * Everything is planned when the pass is made: the lifetime of each tensor over the forward and
 * backward sweep is known, so tensors that are not alive at the same time share memory, and the
 * bytes are known before anything is allocated.  A pass without backward keeps almost nothing; one
 * with backward keeps the outputs of convolutions and, unless it recomputes them, the activations
 * after norms.  Weights belong to the caller, so the online and the target network are two passes
 * over one network. */
#ifndef CONR_PASS_H
#define CONR_PASS_H

#include "device/device.h"
#include "encoder/network.h"
#include "ranks/ranks.h"

typedef struct pass pass;

typedef struct pass_options {
    int n;          /* images in the batch of this rank, all views together */
    int groups;     /* of batch statistics: contiguous equal parts of the batch */
    int passes;     /* updates of the running statistics per batch; divides groups */
    int end;        /* run the layers before this one: encoder_end of the network, ... */
    bool backward;  /* keep what the backward sweep needs */
    bool recompute; /* save memory: keep only convolutions after the first, recompute the rest */
    bool shared;    /* statistics over all ranks: each rank holds a part of every group */
} pass_options;

/* The parameters of a network in device memory, owned by the caller. */
typedef struct parameters {
    float *w, *running; /* [n_weights] ([n_target] of a target network), [n_running] */
} parameters;

typedef enum pass_mode {
    PASS_TRAIN,  /* statistics of the batch; running statistics are updated */
    PASS_REPEAT, /* statistics of the batch; running statistics stay: the batch a second time */
    PASS_EVAL    /* running statistics */
} pass_mode;

/* Plans and allocates.  If the device has too little memory, the error names the batch that fits.
 * dev, r and net must outlive the pass. */
int pass_new(device *dev, ranks *r, const network *net, const pass_options *o, pass **out);
void pass_free(pass *p); /* NULL is fine */

/* Bytes of device memory that a pass with these options needs; allocates none. */
int pass_bytes(device *dev, const network *net, const pass_options *o, size_t *out);

/* images: [n,h,w,c] */
int pass_forward(pass *p, const parameters *at, const act *images, pass_mode mode);

/* Only its layers first .. last-1; those before them must have been run.  So an output can be
 * changed on the way (pass_activations). */
int pass_forward_layers(pass *p, const parameters *at, const act *images, pass_mode mode, int first,
                        int last);

/* The output of the layer before `end` (encoder_end, projector_end, ...) as floats [n, co]; valid
 * after pass_forward and, without backward, only for the `end` of the pass. */
int pass_output(pass *p, int end, float *out);

/* Where that output is, [n, co], in a pass with backward: the following layers see what is written
 * there, in both directions. */
act *pass_activations(pass *p, int end);

/* The next pass_backward adds d: [n, co] to the gradient of the output of the layer before `end`,
 * which must not be the last; d must stay until then. */
void pass_add_gradient(pass *p, int end, const float *d);

/* The gradient of the weights, dw: [n_weights], from the gradient d: [n, co] of the last output.
 * images, weights and statistics as in the last pass_forward.  add: add to dw instead of setting
 * it. over: NULL, or the ranks that average dw: block by block as layers finish, in parallel with
 * the backward of the layers before them; the caller waits with ranks_mean_end. */
int pass_backward(pass *p, const parameters *at, const act *images, const float *d, bool add,
                  ranks *over, float *dw);

#endif
