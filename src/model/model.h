/* model.h: a trained network in one file that suffices to embed. */
#ifndef CONR_MODEL_H
#define CONR_MODEL_H

#include "train/train.h"

/* What stands behind a `conr_model *`. */
struct conr_model {
    network net;
    pixels_norm norm;
    int short_side, channels;
    char framework[32];
    float *w, *running; /* host */
    float *centroids;   /* [K,d] or NULL */
    int64_t K;
};

const char *model_stem(const conr_model *m); /* "cifar", "imagenet", "small" */

/* The network that is clustered, under torchvision's names, and all that embedding needs to know as
 * metadata. */
int model_save(trainer *t, const pixels_norm *norm, const char *path);

#endif
