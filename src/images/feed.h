/* feed.h: brings images to the device: batches of two views, and images without augmentation.
 *
 * If the device can make views and all images have the same size and fit into its memory, they are
 * uploaded once as bytes.  Otherwise worker threads of the host make views ahead (loader.h) and
 * each step uploads its batch.  The values are the same either way but for rounding. */
#ifndef CONR_FEED_H
#define CONR_FEED_H

#include "device/device.h"
#include "images/loader.h"
#include "views/job.h"

typedef struct feed_options {
    loader_options load; /* each of its parts passes through the network on its own */
    int short_side;      /* of images without augmentation, as in pixels_plain */
} feed_options;

typedef struct feed {
    device *dev;
    const store *store;
    feed_options o;
    int64_t steps;           /* per epoch */
    int own;                 /* this rank's images of a batch */
    int plain;               /* batch without augmentation: own, or twice as many */
    size_t row;              /* elements of one image of the network's size */
    int32_t *ids;            /* device [2 batch]: images of this step, of all ranks */
    int32_t *host_ids;       /* the same on the host */
    float *host;             /* [own] rows: images without augmentation */
    float *staged[2];        /* device [own] rows per view; or NULL: */
    unsigned char *resident; /* device [n,h,w,c]: all images as bytes */
    views_job job;
    loader *loader;
    double waited; /* seconds that steps waited for views */
} feed;

/* The store must outlive the feed. */
int feed_open(device *dev, const store *s, const feed_options *o, feed *out);
void feed_close(feed *f); /* also after a failed open, or twice */

/* The next batch is step `step` of epoch `epoch`.  Epochs from `later` on use the options' later
 * policy; table: as in loader_options. */
int feed_seek(feed *f, uint32_t epoch, int64_t step, uint32_t later, const int32_t *table);

/* The host part of a step: ids, and views if the host makes them. */
int feed_next(feed *f, uint32_t epoch, int64_t step);
/* The device part, operations only: for each part its m = own/parts images in three blocks, view a,
 * view b, view a again: [parts][3][m] rows.  So the first two blocks are the views in one order,
 * the last two in the other. */
int feed_views(feed *f, const step_values *at, bool stage2, act *images);

/* This rank's share of the images first, first+1, ... (`plain` per rank) without augmentation,
 * again in a host part and a device part: images gets [plain] rows.  Past the end of the store its
 * last image is repeated. */
int feed_plain_next(feed *f, int64_t first);
int feed_plain(feed *f, const step_values *at, act *images);

#endif
