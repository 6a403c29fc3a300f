/* job.h: what a device needs to know to make views by itself, of images in its memory. */
#ifndef CONR_JOB_H
#define CONR_JOB_H

#include "views/draw.h"
#include "views/pixels.h"

#include <stdint.h>

typedef struct views_job {
    const unsigned char *pixels; /* [images,h,w,c], device memory, owned by the caller */
    int h, w, c;
    int size; /* side of a view; plain images (view 2) need h = w = size */
    uint64_t seed;
    draw_policy policy;
    pixels_norm norm;
} views_job;

#endif
