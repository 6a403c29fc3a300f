/* confident.h: a step of the confident stage 2 (t->confident).  Its forward and backward passes are
 * those of propos.h: noise before the predictor, and a gradient of the projector's output. */
#ifndef CONR_TRAIN_CONFIDENT_H
#define CONR_TRAIN_CONFIDENT_H

#include "train/train.h"

/* Chooses the confident rows of half v, and pulls: every row towards its own key, confident rows of
 * one label together.  t->loss grows, h->dq and half v of t->alike are set. */
int confident_half(trainer *t, const half *h, int v);
/* Both halves' prototypes of confident rows: t->loss grows, t->dz is set. */
int confident_prototypes(trainer *t);

#endif
