/* stream.h: the images of batches, brought to the device as bytes ahead of the trainer.
 *
 * Worker threads gather the images of a unit, some rows of a batch, from the store and send them on
 * a ferry (device.h); neither waits for the trainer nor makes it wait.  Which images come in which
 * unit depends on its number alone, so the bits are the same for any number of workers. */
#ifndef CONR_STREAM_H
#define CONR_STREAM_H

#include "device/device.h"
#include "images/store.h"
#include "views/job.h"

typedef struct stream stream;

/* The images of unit k = 0, 1, ...: ids [rows].  Called by the workers. */
typedef void stream_order(const void *arg, int64_t k, int32_t *ids);

/* Units of `rows` images.  Fails with CONR_ENOMEM if host or device have no room for a few of them.
 * The store must outlive the stream. */
int stream_new(device *dev, const store *s, int rows, int workers, stream **out);
void stream_free(stream *s); /* NULL is fine */

/* Begins with unit 0 of an order, whose arg must stay as it is until the next start or stop. */
int stream_start(stream *s, stream_order *order, const void *arg);
void stream_stop(stream *s);

/* The next unit, in rows [rows] as for device_ops.views; operations queued from now on find it.  At
 * most STREAM_HELD units are held until: */
int stream_next(stream *s, views_row *rows);
/* Operations queued until now were the last that use the units taken. */
int stream_release(stream *s);

enum { STREAM_SLOTS = 4, STREAM_HELD = 2 };

const unsigned char *stream_pixels(const stream *s); /* where views_row.at counts from */
size_t stream_bytes(const stream *s);                /* of device memory */
double stream_waited(const stream *s);               /* seconds that stream_next waited */

#endif
