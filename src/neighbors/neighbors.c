/* neighbors.c: the public calls: options checked, features normalized, a route chosen; and the
 * purity of lists. */
#include "neighbors/neighbors.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "conr_context.h"
#include "device/cpu_gemm.h"
#include "neighbors/affinity.h"
#include "neighbors/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

conr_neighbors_options conr_neighbors_defaults(void) {
    return (conr_neighbors_options){
        .k = 10, .k1 = 10, .k2 = 2, .layers = 2, .alpha = 2, .resymmetrize = 1};
}

static int check_options(const conr_neighbors_options *o) {
    const struct {
        const char *name;
        int value;
    } counts[] = {{"k", o->k}, {"k1", o->k1}, {"k2", o->k2}};
    for (int i = 0; i < 3; i++)
        if (counts[i].value < 1)
            return fail(CONR_EINVAL, "%s: %d neighbors; give at least 1", counts[i].name,
                        counts[i].value);
    if (o->layers < 0 || o->layers > 100)
        return fail(CONR_EINVAL, "layers: %d; give 0 to 100", o->layers);
    if (!(o->alpha >= 0 && o->alpha <= 1000))
        return fail(CONR_EINVAL, "alpha: %g; give a number from 0 to 1000", o->alpha);
    return 0;
}

static int at_most(int value, int most) { return value < most ? value : most; }

/* The k best of S, without the values. */
static int neighbors_local(device *dev, const float *f, int n, int d, int k, int32_t *ids) {
    float *values = memory_new("neighbors", (size_t)n * k, sizeof *values);
    int rc = values ? search_nearest(dev, f, n, d, k, ids, values) : CONR_ENOMEM;
    free(values);
    return rc;
}

int neighbors_batch(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids, void *work) {
    if (dev->op.neighbors) return dev->op.neighbors(dev, f, n, d, o, ids, work);
    /* the search shares its bits with cpu_gemm alone; any other device takes the plain way */
    if (dev->op.gemm != cpu_gemm) return neighbors_dense(dev, f, n, d, o, ids);
    return o->local ? neighbors_local(dev, f, n, d, o->k, ids)
                    : neighbors_sparse(dev, f, n, d, o, ids);
}

enum {
    BATCH_ROWS = 8192
}; /* that a device's `neighbors` takes: its memory grows with their square */

/* Features of the host on a device with memory of its own: a batch all there; of a whole set the
 * search there, which is nearly all the work, and the rest here. */
static int neighbors_there(device *dev, const float *features, int n, int d,
                           const conr_neighbors_options *o, int32_t *ids) {
    bool batch = n <= BATCH_ROWS;
    int rc = 0, width = batch || o->local ? o->k : affinity_width(o);
    size_t size = (size_t)n * d * sizeof(float), lists = (size_t)n * width;
    void *f = NULL, *norm = NULL, *near = NULL, *scores = NULL, *work = NULL;
    int32_t *by_s = NULL;
    float *values = NULL;
    TRY(dev->op.alloc(dev, size, &f));
    TRY(dev->op.alloc(dev, (size_t)n * sizeof(float), &norm));
    TRY(dev->op.alloc(dev, lists * sizeof(int32_t), &near));
    TRY(dev->op.put(dev, f, features, size));
    TRY(dev->op.rows_normalize(dev, f, n, d, f, norm));
    if (batch) {
        TRY(dev->op.alloc(dev, dev->op.neighbors_bytes(dev, n, d, o), &work));
        TRY(neighbors_batch(dev, f, n, d, o, near, work));
    } else {
        TRY(dev->op.alloc(dev, lists * sizeof(float), &scores));
        TRY(dev->op.search(dev, f, n, d, width, near, scores));
    }
    if (batch || o->local) {
        TRY(dev->op.get(dev, ids, near, lists * sizeof(int32_t)));
        goto done;
    }
    by_s = memory_new("neighbors", lists, sizeof *by_s);
    values = memory_new("neighbors", lists, sizeof *values);
    TRY(by_s && values ? 0 : CONR_ENOMEM);
    TRY(dev->op.get(dev, by_s, near, lists * sizeof *by_s));
    TRY(dev->op.get(dev, values, scores, lists * sizeof *values));
    TRY(neighbors_from_lists(dev, by_s, values, n, width, o, ids));
done:
    dev->op.free(dev, f), dev->op.free(dev, norm), dev->op.free(dev, near);
    dev->op.free(dev, scores), dev->op.free(dev, work);
    free(by_s), free(values);
    return rc;
}

int conr_neighbors(conr *c, const float *features, int64_t rows, int64_t width,
                   const conr_neighbors_options *options, int32_t *ids) {
    conr_neighbors_options o = *options;
    int rc = 0;
    if ((rc = check_options(&o)) < 0 || (rc = numbers_check("features", features, rows, width)) < 0)
        return rc;
    int n = (int)rows, d = (int)width;
    o.k = at_most(o.k, n), o.k1 = at_most(o.k1, n), o.k2 = at_most(o.k2, n);
    if (c->dev->op.search) return neighbors_there(c->dev, features, n, d, &o, ids);
    float *unit = memory_new("neighbors", (size_t)n * d + n, sizeof *unit);
    if (!unit) return CONR_ENOMEM;
    TRY(c->dev->op.rows_normalize(c->dev, features, n, d, unit, unit + (size_t)n * d));
    TRY(neighbors_batch(c->dev, unit, n, d, &o, ids, NULL));
done:
    free(unit);
    return rc;
}

int conr_purity(const int32_t *ids, int64_t n, int k, const int64_t *labels,
                const unsigned char *kept, double *purity) {
    if (n < 1 || k < 2)
        return fail(CONR_EINVAL,
                    "purity: %lld lists of %d; give at least one, and a neighbor beside itself",
                    (long long)n, k);
    double *sums = calloc((size_t)k, sizeof *sums);
    if (!sums) return fail_memory("purity", (double)k * sizeof *sums);
    int64_t *anchors = calloc((size_t)k, sizeof *anchors);
    if (!anchors) {
        free(sums);
        return fail_memory("purity", (double)k * sizeof *anchors);
    }
    for (int64_t i = 0; i < n; i++, ids += k) {
        if (labels[i] == -1 || (kept && !kept[i])) continue;
        int same = 0, known = 0;
        for (int at = 1; at < k; at++) {
            ASSERT(ids[at] >= 0 && ids[at] < n);
            known += labels[ids[at]] != -1;
            same += labels[ids[at]] == labels[i];
            if (known) sums[at] += (double)same / known, anchors[at]++;
        }
    }
    for (int at = 1; at < k; at++) purity[at - 1] = anchors[at] ? sums[at] / anchors[at] : NAN;
    free(sums);
    free(anchors);
    return 0;
}
