/* scan.h: a few rows against many, by the matrix product.  Whoever searches packs its rows on one
 * side, the rows to be searched on the other, and gets the products in tiles. */
#ifndef CONR_SCAN_H
#define CONR_SCAN_H

#include "kernels/gemm.h"

#include <stdint.h>

enum {
    SCAN_QUERIES = 128, /* most rows that search at a time: their panels stay in the second cache */
    SCAN_ROWS = 768     /* most rows that are packed at a time to be searched */
};

/* What a thread needs: room for the panels of both sides. */
typedef struct scan_room {
    const gemm_kernel *kernel;
    int d;
    float *tall, *wide; /* [SCAN_QUERIES,d] and [SCAN_ROWS,d], each up to a whole panel */
} scan_room;

/* The floats that a room takes, and the room made of them. */
size_t scan_room_size(const gemm_kernel *g, int d);
scan_room scan_room_at(const gemm_kernel *g, int d, float *memory);

/* Packs the rows that search: those of x [.,d] that at[0..m-1] names, or the first m if at is NULL;
 * m <= SCAN_QUERIES. */
void scan_queries(const scan_room *r, const float *x, const int32_t *at, int m);
/* Packs `count` adjacent rows to be searched; count <= SCAN_ROWS. */
void scan_rows(const scan_room *r, const float *rows, int count);

/* Gets the products of the queries from i on and the rows from j on: tile[mr][nr].  Those past the
 * last query or row mean nothing. */
typedef void scan_take(void *to, const float *tile, int i, int j);

/* All products of m packed queries and `count` rows, which are panels as scan_rows packs them. */
void scan_tiles(const scan_room *r, int m, const float *wide, int count, scan_take *take, void *to);

/* Lists of the best of one block of queries: by descending value, then ascending name. */
typedef struct scan_lists {
    int w;                /* entries of a list, at least 1 */
    int32_t *ids;         /* [m,w] */
    float *values;        /* [m,w] */
    const int32_t *names; /* of the rows; NULL: 0, 1, ... */
    const int32_t *own;   /* [m], the name of the query, which is not offered; NULL: all are */
    int m, count;         /* queries, rows */
    int mr, nr;           /* of the kernel */
} scan_lists;

void scan_clear(int w, size_t lists, int32_t *ids, float *values); /* nothing found yet */
scan_take scan_offer; /* to: scan_lists *; offers all products of a tile */

#endif
