/* cells.h: rows sorted into cells around centers, so that near rows lie in few cells. */
#ifndef CONR_CELLS_H
#define CONR_CELLS_H

#include "device/device.h"

typedef struct cells {
    int n, d, count;
    float *rows;     /* [n,d]: the rows, cell by cell; a position is an index into it */
    int32_t *name;   /* [n]: the row at each position */
    int32_t *place;  /* [n]: the position of each row */
    int32_t *start;  /* [count+1]: cell c has the positions start[c] .. start[c+1]-1 */
    int probes;      /* cells that are known of each row: */
    int32_t *probe;  /* [n,probes], by row, the nearest first; the first is its own */
    float *likeness; /* [n,probes]: the product of the row with the center of that cell */
    float *centers;  /* [count,d] */
} cells;

/* f: [n,d], unit rows; 1 <= count <= n; probes is cut to count.  The same bits for any number of
 * threads. */
int cells_make(device *dev, const float *f, int n, int d, int count, int probes, cells *out);
/* The same cells with more probes of each row; fails with CONR_ENOMEM if there is no room. */
int cells_widen(device *dev, const float *f, int probes, cells *c);
void cells_free(cells *c);

#endif
