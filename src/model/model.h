/* model.h: a trained network in one file: all that embedding needs. */
#ifndef CONR_MODEL_H
#define CONR_MODEL_H

#include "conr.h"
#include "encoder/network.h"
#include "views/pixels.h"

/* The public conr_model. */
struct conr_model {
    network net;
    pixels_norm norm;
    int short_side, channels;
    char framework[32];
    float *w,
        *running;     /* host blocks of the network; only the encoder and the projector are read */
    float *centroids; /* [K,d] or NULL */
    int64_t K;
};

const char *model_stem(const conr_model *m); /* "cifar", "imagenet", "small" */

/* Encoder and projector under torchvision's names, and everything that embedding needs to know as
 * metadata.  Centroids are not part of the file. */
int model_save(const conr_model *m, const char *path);

/* conr_write_clusters for whoever holds the lock of the folder. */
int model_write_clusters(const char *path, conr_images *images, const int32_t *labels,
                         const float *distances, const float *boundary, int64_t n);

#endif
