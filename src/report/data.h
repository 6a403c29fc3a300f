/* data.h: RUN/data.json: what the images of a run are and where.  The training writes it, so that
 * reports made later find the images. */
#ifndef CONR_REPORT_DATA_H
#define CONR_REPORT_DATA_H

#include "base/memory.h"
#include "images/source.h"

#include <stdint.h>

enum { DATA_REASONS = 20 }; /* of the images that were skipped, as many as the report names */

/* Texts are kept in the arena given to data_read. */
typedef struct folder_data {
    const char *path;  /* absolute, but for a list of archives; NULL: not known */
    const char *words; /* "image folder"; NULL: not known */
    int64_t skipped;
    const char **reason;               /* [n_reasons]: why, for the first of them */
    int n_reasons;                     /* at most DATA_REASONS */
    int width[2], height[2], channels; /* 0: not known */
    const char **class_name;           /* [n_classes] */
    int n_classes;
} folder_data;

int report_write_data(const source *s, const char *run);

/* A missing or damaged file leaves everything unknown; one that cannot be read is an error. */
int data_read(const char *path, arena *memory, folder_data *out);

#endif
