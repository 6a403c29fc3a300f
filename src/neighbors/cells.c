/* cells.c: k-means by cosine on a sample of the rows, then the nearest centers of every row.
 *
 * It need not be good k-means: a worse partition only means that more cells are searched.  So a few
 * steps on a sample, from random rows, are enough. */
#include "neighbors/cells.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/quad.h"
#include "kernels/rows.h"
#include "neighbors/scan.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 4, /* of k-means */
    EACH = 50, /* rows of the sample for each center */
    TIES = 32, /* cells that copies of one row are shared out to, at most */
    PARTS = 4, /* between reports, when all rows are sorted */
    SEED = 27  /* any number: it draws the sample */
};

static const char what[] = "nearest neighbors";

void cells_free(cells *c) {
    free(c->rows), free(c->name), free(c->place), free(c->start), free(c->probe), free(c->likeness);
    free(c->centers);
    *c = (cells){0};
}

/* Centers, packed to be searched, and room for the threads. */
typedef struct centers {
    const gemm_kernel *kernel;
    int count, d;
    float *at;     /* [count,d]; of the cells */
    float *panels; /* the same, packed */
    float *room;   /* [threads][size] */
    size_t size;
} centers;

static void centers_free(centers *c) { free(c->panels), free(c->room); }

static int centers_new(device *dev, const cells *o, centers *out) {
    const gemm_kernel *g = gemm_kernel_best();
    int count = o->count, d = o->d;
    *out = (centers){
        .kernel = g, .count = count, .d = d, .at = o->centers, .size = scan_room_size(g, d)};
    out->panels = memory_new(what, gemm_panels_size(count, d, g->nr), sizeof *out->panels);
    out->room = memory_new(what, out->size * dev->threads, sizeof *out->room);
    return out->panels && out->room ? 0 : CONR_ENOMEM;
}

/* The w nearest centers of each of the rows x [n,d]: ids, values: [n,w]. */
static void find_centers(device *dev, const centers *c, const float *x, int n, int w, int32_t *ids,
                         float *values) {
    scan_clear(w, (size_t)n, ids, values);
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int i = 0; i < n; i += SCAN_QUERIES) {
        scan_room r = scan_room_at(c->kernel, c->d, c->room + c->size * omp_get_thread_num());
        scan_lists l = {.w = w,
                        .ids = ids + (size_t)i * w,
                        .values = values + (size_t)i * w,
                        .m = least(SCAN_QUERIES, n - i),
                        .count = c->count,
                        .mr = c->kernel->mr,
                        .nr = c->kernel->nr};
        scan_queries(&r, x + (size_t)i * c->d, NULL, l.m);
        scan_tiles(&r, l.m, c->panels, c->count, scan_offer, &l);
    }
}

/* Sorts 0 .. n-1 by label[i * stride]; ascending within a label.  start: [count+1], order: [n]. */
static void sort_by(const int32_t *label, size_t stride, int n, int count, int32_t *start,
                    int32_t *order) {
    memset(start, 0, ((size_t)count + 1) * sizeof *start);
    for (int i = 0; i < n; i++) start[label[(size_t)i * stride] + 1]++;
    for (int c = 0; c < count; c++) start[c + 1] += start[c];
    for (int i = 0; i < n; i++) order[start[label[(size_t)i * stride]]++] = i;
    for (int c = count; c > 0; c--) start[c] = start[c - 1];
    start[0] = 0;
}

/* Each center becomes the direction of the mean of its rows; one without rows stays. */
static void move_centers(device *dev, const centers *c, const float *x, const int32_t *start,
                         const int32_t *order) {
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int s = 0; s < c->count; s++) {
        float *center = c->at + (size_t)s * c->d;
        if (start[s] == start[s + 1]) continue;
        memset(center, 0, (size_t)c->d * sizeof *center);
        for (int e = start[s]; e < start[s + 1]; e++) {
            const float *row = x + (size_t)order[e] * c->d;
            for (int j = 0; j < c->d; j++) center[j] += row[j];
        }
        rows_normalize(1, center, 1, c->d, center, NULL);
    }
}

static void pack_centers(device *dev, centers *c) {
    gemm_pack_all(c->at, c->count, c->d, c->kernel->nr, dev->threads, c->panels);
}

/* k-means of a sample.  The arrays of `o` are not filled yet and serve as room. */
static int make_centers(device *dev, const float *f, const cells *o, centers *c) {
    int rc = 0, d = c->d, m = o->n / EACH < c->count ? o->n : c->count * EACH;
    rng_order order = rng_order_make(SEED, 0, (uint32_t)o->n);
    for (int i = 0; i < m; i++)
        memcpy(o->rows + (size_t)i * d, f + rng_order_at(&order, (uint32_t)i) * (size_t)d,
               (size_t)d * sizeof *f);
    memcpy(c->at, o->rows, (size_t)c->count * d * sizeof *c->at);
    pack_centers(dev, c);
    for (int step = 0; step < STEPS; step++) {
        find_centers(dev, c, o->rows, m, 1, o->name, o->likeness);
        sort_by(o->name, 1, m, c->count, o->start, o->place);
        move_centers(dev, c, o->rows, o->start, o->place);
        pack_centers(dev, c);
        TRY(device_report(dev, "sorting into cells", step + 1, STEPS + PARTS));
    }
done:
    return rc;
}

/* Copies of one row may have several centers that are equally near, because some of the copies were
 * among the first centers.  They are shared out: else all copies would lie in one cell, and would
 * all search it. */
static void share_ties(int32_t *probe, const float *likeness, int probes, int row) {
    int ties = 1;
    while (ties < least(probes, TIES) && likeness[ties] == likeness[0]) ties++;
    int first = row % ties;
    int32_t own = probe[first];
    memmove(probe + 1, probe, (size_t)first * sizeof *probe);
    probe[0] = own;
}

static void sort_rows(device *dev, const float *f, cells *o) {
    sort_by(o->probe, (size_t)o->probes, o->n, o->count, o->start, o->name);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int p = 0; p < o->n; p++) {
        o->place[o->name[p]] = p;
        memcpy(o->rows + (size_t)p * o->d, f + (size_t)o->name[p] * o->d, (size_t)o->d * sizeof *f);
    }
}

/* The nearest centers of every row. */
static int find_probes(device *dev, const float *f, const centers *c, cells *o) {
    int rc = 0, probes = o->probes;
    for (int part = 0; part < PARTS; part++) {
        size_t i = (size_t)o->n * part / PARTS, end = (size_t)o->n * (part + 1) / PARTS;
        find_centers(dev, c, f + i * o->d, (int)(end - i), probes, o->probe + i * probes,
                     o->likeness + i * probes);
        TRY(device_report(dev, "sorting into cells", STEPS + part + 1, STEPS + PARTS));
    }
    for (int i = 0; i < o->n; i++)
        share_ties(o->probe + (size_t)i * probes, o->likeness + (size_t)i * probes, probes, i);
done:
    return rc;
}

static int new_probes(int probes, cells *o) {
    o->probes = least(probes, o->count);
    o->probe = memory_new(what, (size_t)o->n * o->probes, sizeof *o->probe);
    o->likeness = memory_new(what, (size_t)o->n * o->probes, sizeof *o->likeness);
    return o->probe && o->likeness ? 0 : CONR_ENOMEM;
}

int cells_make(device *dev, const float *f, int n, int d, int count, int probes, cells *out) {
    int rc = 0;
    cells *o = out;
    centers c = {0};
    *o = (cells){.n = n, .d = d, .count = count};
    o->rows = memory_new(what, (size_t)n * d, sizeof *o->rows);
    o->name = memory_new(what, (size_t)n, sizeof *o->name);
    o->place = memory_new(what, (size_t)n, sizeof *o->place);
    o->start = memory_new(what, (size_t)count + 1, sizeof *o->start);
    o->centers = memory_new(what, (size_t)count * d, sizeof *o->centers);
    TRY(o->rows && o->name && o->place && o->start && o->centers ? 0 : CONR_ENOMEM);
    TRY(new_probes(probes, o));
    TRY(centers_new(dev, o, &c));
    TRY(make_centers(dev, f, o, &c));
    TRY(find_probes(dev, f, &c, o));
    sort_rows(dev, f, o);
done:
    centers_free(&c);
    if (rc < 0) cells_free(o);
    return rc;
}

int cells_widen(device *dev, const float *f, int probes, cells *o) {
    int rc = 0;
    centers c = {0};
    free(o->probe), free(o->likeness);
    o->probe = NULL, o->likeness = NULL;
    TRY(new_probes(probes, o));
    TRY(centers_new(dev, o, &c));
    pack_centers(dev, &c);
    TRY(find_probes(dev, f, &c, o));
done:
    centers_free(&c);
    return rc;
}
