/* images.h: the structure of a conr_images. */
#ifndef CONR_IMAGES_H
#define CONR_IMAGES_H

#include "images/source.h"

struct conr_images {
    source source;
    int64_t *count; /* [n_classes] */
    int64_t labeled;
    char name[4096]; /* conr_images_path */
};

#endif
