/* model.h: a trained network in one file that suffices to embed. */
#ifndef CONR_MODEL_H
#define CONR_MODEL_H

#include "train.h"

/* The network that is clustered, under torchvision's names, and all that embedding needs to know as
 * metadata. */
int model_save(trainer *t, const pixels_norm *norm, const char *path);

#endif
