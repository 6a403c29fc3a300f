/* archive.h: the images in a .zip or .tar, compressed or not, without unpacking it to the disk.
 *
 * Images in a plain .tar are read where they lie, whenever they are needed.  A file in a compressed
 * archive can only be reached through all before it: their bytes are kept in memory, within half of
 * what is at hand. */
#ifndef CONR_ARCHIVE_H
#define CONR_ARCHIVE_H

#include "images/source_forms.h"

/* An image in an archive. */
typedef struct packed_image {
    const char *path;       /* in the archive, without leading slashes, "." and double slashes */
    const char *archive;    /* path of it */
    const char *label;      /* what WebDataset's key.cls or key.json says; NULL: nothing */
    const source_bytes *in; /* its bytes lie there, */
    uint64_t at, bytes;     /* from here on, so many */
} packed_image;

typedef struct packed_list {
    packed_image *image; /* [n]; owned; all else is in the memory of the source */
    int64_t n, room;
    uint64_t kept, most; /* bytes in memory, and the most that there may be */
    int64_t labels;      /* images with one */
} packed_list;

bool name_is_archive(const char *name);
/* Whether these first bytes of a file are those of a .zip or .tar. */
bool bytes_are_archive(const unsigned char *bytes, size_t n);

/* Adds the images of one archive.  Those that cannot be read are counted as skipped. */
int archive_list(source *s, const source_options *o, const char *path, packed_list *l);

#endif
