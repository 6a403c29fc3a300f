/* gather_parts.h: the parts of a report.  Each gather_*.c fills its part; gather.c calls them in
 * order. */
#ifndef CONR_GATHER_PARTS_H
#define CONR_GATHER_PARTS_H

#include "context/context.h"
#include "report/pictures.h"
#include "report/report.h"

/* A random sample of the images, by the seed of the run; all images if they are few. */
typedef struct sample {
    int64_t *id;           /* [n] ascending; owned */
    const float *features; /* [n,d] */
    float *owned;          /* the same, if they had to be copied; else NULL */
    int n;
} sample;

int sample_draw(const folder *f, int most, sample *s);
void sample_free(sample *s);

/* Neighbors of every image of a sample, as rows of the sample; the image itself comes first. */
typedef struct lists {
    int32_t *near[2]; /* by distance: [n,wide]; by affinity: [n,k]; owned */
    int k, wide;      /* wide >= k */
} lists;

/* wide: neighbors wanted by distance; 0: as many as by affinity. */
int lists_find(conr *c, const folder *f, const sample *s, int wide, lists *l);
const int32_t *lists_row(const lists *l, int kind, int i);
void lists_free(lists *l);

/* Sizes, and the images shown of the largest clusters. */
int gather_clusters(report *r);
/* Scores, and which images are boundary images.  After gather_clusters. */
int gather_scores(conr *c, report *r);
/* Needs labels. */
int gather_purity(report *r, const sample *s, const lists *l);
/* The images shown with their neighbors: first those whose two neighborhoods differ most, from as
 * many clusters as possible; then some drawn at random. */
int gather_queries(report *r, const sample *s, const lists *l);
/* near: [s->n,wide] by distance, of which t-SNE takes the first k. */
int gather_map(conr *c, report *r, const sample *s, const int32_t *near, int wide, int k);
/* The neighbors that a click on the map shows; for a sample of all images. */
int gather_map_neighbors(report *r, const lists *l);
/* Thumbnails.  Last: shows what the others chose. */
int gather_pictures(conr *c, report *r, const pictures *p);

#endif
