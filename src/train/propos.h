/* propos.h: the parts of a step that ProPos adds (t->scatters); the confident stage 2 has them too,
 * but for the loss. */
#ifndef CONR_PROPOS_H
#define CONR_PROPOS_H

#include "train/train.h"

/* The online network over a part of the batch, with noise between projector and predictor; unit
 * rows of the projector's output, before the noise, go to t->own_z. */
int propos_forward(trainer *t, int part, const act *images, pass_mode mode);
/* Both halves' prototypes: t->loss grows, t->dz is set. */
int propos_loss(trainer *t);
/* t->dz of the whole batch -> t->own_dz, the gradient of the projector's output. */
int propos_back(trainer *t);
/* Hands a part of it to the backward pass that comes next. */
int propos_back_part(trainer *t, int part);
/* Workspace for K clusters. */
int propos_room(trainer *t, int K);

#endif
