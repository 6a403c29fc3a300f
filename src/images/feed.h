/* feed.h: images on their way to the device: batches of two views, and images as they are.
 *
 * Where the device can make views itself and all images have one size and fit, they are uploaded
 * once as bytes; else worker threads of the host make views ahead (images/loader.h) and each step
 * uploads its batch.  The numbers are the same either way but for rounding. */
#ifndef CONR_FEED_H
#define CONR_FEED_H

#include "device/device.h"
#include "images/loader.h"
#include "views/job.h"

typedef struct feed_options {
    loader_options load; /* each of its parts goes through the network for itself */
    int short_side;      /* of images without randomness, as pixels_plain */
} feed_options;

typedef struct feed {
    device *dev;
    const store *store;
    feed_options o;
    int64_t steps;           /* an epoch */
    int own;                 /* images of a batch that are this rank's */
    int plain;               /* of one of images without randomness: own, or twice as many */
    size_t row;              /* numbers of one image of the network's size */
    int32_t *ids;            /* device [2 batch]: images of this step, all ranks' */
    int32_t *host_ids;       /* the same on the host */
    float *host;             /* [own] rows: images without randomness */
    float *staged[2];        /* device [own] rows a view; or NULL: */
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

/* The host's half of a step: ids, and views where the host makes them. */
int feed_next(feed *f, uint32_t epoch, int64_t step);
/* The device's half, operations alone: for each part its m = own/parts images in three blocks, view
 * a, view b, view a again: [parts][3][m] rows.  So the first two blocks are the views in one
 * order, the last two in the other. */
int feed_views(feed *f, const step_values *at, bool stage2, act *images);

/* This rank's share of the images first, first+1, ... (`plain` a rank) without randomness, in two
 * halves likewise: images gets [plain] rows.  Behind the last image of the store the last is
 * repeated. */
int feed_plain_next(feed *f, int64_t first);
int feed_plain(feed *f, const step_values *at, act *images);

#endif
