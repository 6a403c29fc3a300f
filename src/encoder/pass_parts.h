/* pass_parts.h: what the parts of a pass share: pass_plan.c gives every tensor its place in memory,
 * pass.c allocates and runs the layers forward, pass_backward.c backward. */
#ifndef CONR_PASS_PARTS_H
#define CONR_PASS_PARTS_H

#include "encoder/pass.h"

/* The tensors that a layer may need memory for. */
enum {
    Y,      /* the output of the convolution or pool */
    Z,      /* after norm, add and ReLU */
    Y_BACK, /* Y recomputed for the backward sweep */
    Z_BACK, /* Z likewise */
    G,      /* gradient of the layer's output; then, masked by the ReLU, of what was added */
    KINDS
};

typedef struct buffer {
    size_t size, at;  /* in activations */
    int birth, death; /* first and last moment of use; birth < 0: not used */
    int home;         /* the buffer whose memory this one shares; usually itself */
} buffer;

struct pass {
    device *dev;
    ranks *ranks;
    const network *net;
    pass_options o;
    buffer *buffer;   /* [end * KINDS] */
    conv_plan **plan; /* [end], NULL for pools */
    size_t *stat_at;  /* [end], in floats: [groups][2][co] */
    size_t n_acts, n_floats, sums_at, workspace;
    act *acts;          /* [n_acts] */
    float *floats;      /* [n_floats]: statistics of all layers, then the sums of the current one */
    void *work;         /* [workspace] bytes */
    pass_mode mode;     /* of the last forward */
    bool *has_gradient; /* [end]: in backward, G of the layer holds something to add to */
    bool *restored;     /* [end]: in backward, Z_BACK of the layer has been recomputed */
    const float *added; /* of pass_add_gradient, or NULL */
    int added_end;
};

/* ---- pass_plan.c: which tensors exist, when, and where --------------------------------------- */

/* Fills p->buffer; *needed: activations in all. */
int pass_plan_memory(pass *p, size_t *needed);

buffer *pass_buffer(const pass *p, int layer, int kind);

/* The tensor that is the output of layer l. */
int pass_output_kind(const layer *l);
/* With recompute: whether Z of layer l is dropped after its use in the forward sweep, and later
 * recomputed from Y and what was added.  Outputs of the network's parts stay, for pass_output: no
 * part ends with norm and ReLU. */
bool pass_drops_z(const pass *p, int l);
/* Whether its Y is dropped, too.  True of the first convolution: it reads only the images, costs
 * little, and its output is the largest of all. */
bool pass_drops_y(const pass *p, int l);
/* The tensors that hold Y and the output of layer l during the backward sweep. */
int pass_y_in_backward(const pass *p, int l);
int pass_output_in_backward(const pass *p, int l);
/* Whether what layer l added is recomputed where the output of l will be, and l added to it there:
 * so a plain norm + ReLU that is needed again only much later, as that of the stem, does not stay
 * in memory until then. */
bool pass_adds_in_place(const pass *p, int l);
/* The layer whose backward takes the place of layer i's.  A projection shortcut follows the
 * convolution that reads the same input; its turn comes last, because then it only has to add at
 * the pixels that it read instead of writing all of them. */
int pass_backward_turn(const pass *p, int i);

/* ---- pass.c: the operands of a layer --------------------------------------------------------- */

act *pass_acts(const pass *p, int layer, int kind);
/* Activations of the output of the layer before `end`. */
size_t pass_output_count(const pass *p, int end);
const act *pass_input(const pass *p, const layer *x, const act *images, bool backward);
norm_shape pass_norm_shape(const pass *p, const layer *x);
pool_shape pass_pool_shape(const pass *p, const layer *x);
/* y: Y of layer l, wherever it is */
normed pass_normed(const pass *p, const parameters *at, int l, const act *y);
/* How many values a mean is over: those of one channel in one group, on all ranks that share it. */
double pass_values_per_mean(const pass *p, const layer *x);
/* Norm, add and ReLU of layer l.  residual: what is added; NULL if nothing is, or a projection */
int pass_apply_norm(pass *p, const parameters *at, int l, const act *y, const act *residual,
                    act *z);

#endif
