/* job.h: what a device needs to know to make views by itself, of images in its memory. */
#ifndef CONR_JOB_H
#define CONR_JOB_H

#include "views/draw.h"
#include "views/pixels.h"

#include <stdint.h>

/* One image in device memory: bytes [h,w,c], of any size. */
typedef struct views_row {
    uint64_t at;   /* of its first byte, from views_job.pixels */
    int32_t id;    /* its number, for the draws */
    uint16_t w, h; /* at least 1 */
} views_row;

typedef struct views_job {
    const unsigned char *pixels; /* device memory, owned by the caller, aligned to 16 bytes and at
                                    least VIEWS_PAD bytes longer than its last image */
    int c;                       /* 1 or 3 */
    int size;                    /* side of a view */
    int short_side;              /* of images without randomness, as in pixels_plain */
    int w, h;                    /* no image is wider or taller (views_bound), */
    int box_w, box_h;            /* and no crop of one */
    uint64_t seed;
    draw_policy policy;
    pixels_norm norm;
} views_job;

enum { VIEWS_PAD = 16 };

/* Widens the bounds of a job for an image of w x h pixels and its crops. */
static inline void views_bound(views_job *job, const draw_policy *policy, int w, int h) {
    if (w > job->w) job->w = w;
    if (h > job->h) job->h = h;
    draw_box(policy, &w, &h);
    if (w > job->box_w) job->box_w = w;
    if (h > job->box_h) job->box_h = h;
}

#endif
