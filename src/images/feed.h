/* feed.h: brings images to the device: batches of two views, and images without augmentation.
 *
 * A device with memory of its own makes views itself, from the bytes of the images: they are
 * uploaded once if they fit into its memory, else each batch is streamed to it (stream.h).  The bits
 * are the same either way.  For a device in the host's memory, and for views that the device cannot
 * make (views_takes), worker threads of the host make them ahead (loader.h). */
#ifndef CONR_FEED_H
#define CONR_FEED_H

#include "device/device.h"
#include "images/loader.h"
#include "images/stream.h"
#include "views/job.h"

typedef enum feed_place { FEED_AUTO, FEED_HOST, FEED_DEVICE, FEED_STREAM } feed_place;

typedef struct feed_options {
    loader_options load; /* each of its parts passes through the network on its own */
    int short_side;      /* of images without augmentation, as in pixels_plain */
    uint64_t most;       /* bytes of images that the device may keep; 0: a third of its memory */
    feed_place place;    /* other than AUTO: for tests */
} feed_options;

typedef struct feed {
    device *dev;
    const store *store;
    feed_options o;
    feed_place place;        /* of the images; never AUTO */
    int64_t steps;           /* per epoch */
    int own;                 /* this rank's images of a batch */
    int plain;               /* batch without augmentation: own, or a multiple of it */
    size_t row;              /* elements of one image of the network's size */
    size_t bytes;            /* of device memory that images take */
    int32_t *ids;            /* device [batch]: images of this step, of all ranks */
    views_row *rows;         /* device [plain]: where this rank's images are; follows the ids */
    unsigned char *list;     /* host: the same, ids and rows */
    views_row *host_rows;    /* in it */
    size_t rows_at;          /* bytes from ids to rows */
    float *host;             /* HOST: [own] rows: images without augmentation */
    float *staged[2];        /* HOST: device [own] rows per view */
    loader *loader;          /* HOST */
    unsigned char *resident; /* DEVICE: the bytes of all images */
    uint64_t *at;            /* DEVICE: [n] where each image is in them */
    stream *stream;          /* STREAM, and what it brings: */
    bool bringing_plain;     /*   images without augmentation, or those of steps */
    int64_t from, next;      /*   the first and the next batch or image; next < 0: none */
    views_job job;
    double waited; /* seconds that steps waited for loaders that are closed */
} feed;

/* The store must outlive the feed. */
int feed_open(device *dev, const store *s, const feed_options *o, feed *out);
void feed_close(feed *f); /* also after a failed open, or twice */

/* The next batch is step `step` of epoch `epoch`.  Epochs from `later` on use the options' later
 * policy; table: as in loader_options. */
int feed_seek(feed *f, uint32_t epoch, int64_t step, uint32_t later, const int32_t *table);

/* The host part of a step: ids, where the images are, and views if the host makes them. */
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

/* In words: "host", "device memory" or "streamed"; and the seconds waited for the host so far. */
const char *feed_words(const feed *f);
double feed_waited(const feed *f);

#endif
