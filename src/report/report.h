/* report.h: everything that the report of one run shows, as gather.c collects it and section_*.c
 * write it. */
#ifndef CONR_REPORT_H
#define CONR_REPORT_H

#include "conr.h"
#include "report/folder.h"
#include "report/thumbs.h"

enum {
    REPORT_NEAR = 10,   /* neighbors shown per image */
    REPORT_PURITY = 30, /* purity is shown for up to this many neighbors */
    REPORT_MAP = 20000  /* most points of the map */
};

/* The images of one cluster that are shown. */
typedef struct report_cluster {
    int64_t size;
    int64_t *central, *boundary; /* owned */
    int n_central, n_boundary;
} report_cluster;

/* An image and its neighbors. */
typedef struct report_query {
    int64_t id, near[2][REPORT_NEAR]; /* by distance, by contextual affinity; -1: none */
} report_query;

typedef struct report {
    const folder *f;
    int64_t n;
    int K;
    report_cluster *cluster; /* [K] */
    /* pictures of images that are shown one by one */
    const char *no_pictures; /* the reason why there are none; NULL: there are pictures */
    bool never_pictures;     /* they are features without images: nothing is missing */
    int64_t *shown;          /* [n_shown] images, ascending */
    webp *picture;           /* [n_shown]; empty if it could not be read */
    int n_shown, side;       /* pixels */
    /* scores */
    bool labeled;
    conr_scores scores;
    conr_confusion confusion; /* with labels */
    double silhouette;        /* NaN with labels, or with a single cluster */
    unsigned char *kept;      /* [n] 0: a boundary image */
    double fraction;          /* of the images that are not boundary images */
    int64_t n_boundary;
    /* neighbors */
    report_query *query; /* [n_queries], the first n_telling chosen, the others random */
    int n_queries, n_telling;
    int64_t pool;     /* images that neighbors were searched among */
    series purity[4]; /* Euclidean, ConAff; then both without boundary images */
    /* the map */
    int64_t *point; /* [n_points] images, ascending */
    float *xy;      /* [n_points,2] */
    int n_points;
    webp *sheet; /* [n_sheets] */
    int n_sheets, sheet_side;
    /* [n_points,1+REPORT_NEAR] by distance and by affinity, as points; NULL if the map is a sample
     * */
    int32_t *map_near[2];
} report;

#endif
