/* pictures.h: where the pictures of a report come from: the image files that the run was trained
 * on, or the copy that a training still has in memory. */
#ifndef CONR_REPORT_PICTURES_H
#define CONR_REPORT_PICTURES_H

#include "conr.h"
#include "images/images.h"
#include "images/store.h"
#include "report/folder.h"
#include "report/thumbs.h"

typedef struct pictures {
    conr_images *images; /* opened here; NULL: none */
    const store *store;  /* if set, pixels come from here */
    int64_t *at;         /* [n]: row i of the run is image at[i] of the source, -1: gone; NULL: i */
    int channels;
    int native; /* the shortest side of any image */
} pictures;

/* Opens the images at `given` or, if that is NULL, those that the run was trained on.  Only `given`
 * images must exist; otherwise `why` gets the reason why there are none, or becomes empty.  Images
 * that are there and cannot be read are an error. */
int pictures_open(conr *c, const folder *f, const char *given, pictures *p, char *why, size_t size);
void pictures_close(pictures *p);

pictures pictures_from_store(const store *images);

/* Of images that are open already, in the order of the run; not to be closed. */
pictures pictures_from_images(conr_images *images);

/* p must outlive what is returned. */
thumbs_source pictures_thumbs(const pictures *p);

#endif
