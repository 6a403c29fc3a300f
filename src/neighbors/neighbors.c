/* neighbors.c: the public calls: checks the options, normalizes the features, chooses the algorithm
 * (host or device, batch or whole set); and the purity of lists. */
#include "neighbors/neighbors.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "context/context.h"
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
    if (!(o->recall >= 0 && o->recall <= 1))
        return fail(CONR_EINVAL,
                    "recall: %g; give a share of the neighbors above 0, 1 for all of them, or 0 to "
                    "leave it to the number of rows",
                    o->recall);
    return 0;
}

static int at_most(int value, int most) { return value < most ? value : most; }

/* The k best of S, without the values. */
static int neighbors_local(device *dev, ranks *over, const float *f, int n, int d, int k,
                           double recall, int32_t *ids) {
    float *values = memory_new("neighbors", (size_t)n * k, sizeof *values);
    int rc = values ? search_nearest(dev, over, f, n, d, k, &recall, ids, values) : CONR_ENOMEM;
    free(values);
    return rc;
}

/* For features in host memory. */
static int neighbors_host(device *dev, ranks *over, const float *f, int n, int d,
                          const conr_neighbors_options *o, int32_t *ids) {
    /* the search has the bits of kernels/gemm.h; a device with other bits computes S by its gemm */
    if (!dev->kernel_bits) return neighbors_dense(dev, f, n, d, o, ids);
    return o->local ? neighbors_local(dev, over, f, n, d, o->k, o->recall, ids)
                    : neighbors_sparse(dev, over, f, n, d, o, ids);
}

int neighbors_batch(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                    int32_t *ids, void *work) {
    if (dev->op.neighbors) return dev->op.neighbors(dev, f, n, d, o, ids, work);
    return neighbors_host(dev, NULL, f, n, d, o, ids);
}

enum { BATCH_ROWS = 8192 }; /* most rows for op.neighbors: its memory grows with their square */

/* A call on a device with memory of its own. */
typedef struct remote {
    device *dev;
    ranks *over;           /* that share the search of a whole set, or NULL */
    const float *features; /* [n,d] */
    int n, d;
    const conr_neighbors_options *o;
    int32_t *ids;   /* [n,k] */
    bool on_device; /* features and ids are in device memory */
} remote;

/* The features as unit rows into f, device memory. */
static int unit_rows(const remote *r, float *f) {
    int rc = 0;
    device *dev = r->dev;
    if (!r->on_device) TRY(dev->op.put(dev, f, r->features, (size_t)r->n * r->d * sizeof *f));
    TRY(dev->op.rows_normalize(dev, r->on_device ? r->features : f, r->n, r->d, f, NULL));
done:
    return rc;
}

/* A batch, all on the device and in one block of memory.  If the features are in device memory, the
 * block is the device's workspace, and nothing waits. */
static int batch_device(const remote *r) {
    int rc = 0;
    device *dev = r->dev;
    size_t at = 0, lists = (size_t)r->n * r->o->k * sizeof(int32_t);
    size_t f = span(&at, (size_t)r->n * r->d * sizeof(float), 1);
    size_t near = span(&at, r->on_device ? 0 : lists, 1);
    size_t work = (at + 255) / 256 * 256;
    size_t bytes = work + dev->op.neighbors_bytes(dev, r->n, r->d, r->o);
    void *block = NULL;
    TRY(r->on_device ? dev->op.work(dev, bytes, &block) : dev->op.alloc(dev, bytes, &block));
    char *base = block;
    int32_t *ids = r->on_device ? r->ids : (int32_t *)(base + near);
    TRY(unit_rows(r, (float *)(base + f)));
    TRY(neighbors_batch(dev, (float *)(base + f), r->n, r->d, r->o, ids, base + work));
    if (!r->on_device) TRY(dev->op.get(dev, r->ids, ids, lists));
done:
    if (!r->on_device) dev->op.free(dev, block);
    return rc;
}

/* Fails if a feature is not finite: then a similarity in its list is not, since NaN ranks first. */
static int check_similar(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return fail(CONR_ENUMBER,
                        "features: some are NaN or infinite; remove those rows first");
    return 0;
}

/* The best of S of all rows, [n,width]; each rank searches for an equal share of the rows, then all
 * gather all.  near, scores: device memory with room for what all ranks send. */
static int search_device(const remote *r, const float *f, int width, int rows, int32_t *near,
                         float *scores) {
    int rc = 0, rank = r->over ? r->over->rank : 0, first = rank * rows;
    int count = first >= r->n ? 0 : r->n - first < rows ? r->n - first : rows;
    device *dev = r->dev;
    int32_t *mine = near + (size_t)first * width;
    float *values = scores + (size_t)first * width;
    TRY(dev->op.search(dev, f, r->n, r->d, first, count, width, mine, values));
    if (!r->over) goto done;
    TRY(ranks_gather(r->over, dev, mine, (size_t)rows * width * sizeof *mine, near));
    TRY(ranks_gather(r->over, dev, values, (size_t)rows * width * sizeof *values, scores));
done:
    return rc;
}

/* The lists of S of a whole set, searched on the device, in host memory.  Exactly one of by_s
 * ([n,width], host) and keep (device memory, released by the caller) gets the names. */
static int lists_device(const remote *r, int width, int32_t *by_s, void **keep, float *values) {
    int rc = 0;
    device *dev = r->dev;
    size_t lists = (size_t)r->n * width;
    int ranks_all = r->over ? r->over->count : 1, rows = (r->n + ranks_all - 1) / ranks_all;
    size_t sent = (size_t)rows * ranks_all * width; /* the last rank's share may exceed n */
    void *f = NULL, *near = NULL, *scores = NULL;
    TRY(dev->op.alloc(dev, (size_t)r->n * r->d * sizeof(float), &f));
    TRY(dev->op.alloc(dev, sent * sizeof(int32_t), &near));
    TRY(dev->op.alloc(dev, sent * sizeof(float), &scores));
    TRY(unit_rows(r, f));
    TRY(search_device(r, f, width, rows, near, scores));
    TRY(dev->op.get(dev, values, scores, lists * sizeof *values));
    TRY(check_similar(values, lists));
    if (by_s)
        TRY(dev->op.get(dev, by_s, near, lists * sizeof *by_s));
    else
        *keep = near, near = NULL;
done:
    dev->op.free(dev, f), dev->op.free(dev, near), dev->op.free(dev, scores);
    return rc;
}

/* A whole set: the search, which is nearly all the work, on the device; the rest on the host. */
static int set_device(const remote *r) {
    int rc = 0, width = r->o->local ? r->o->k : affinity_width(r->o);
    device *dev = r->dev;
    size_t lists = (size_t)r->n * width, result = (size_t)r->n * r->o->k * sizeof(int32_t);
    void *near = NULL;
    int32_t *by_s = NULL, *ids = NULL;
    float *values = memory_new("neighbors", lists, sizeof *values);
    TRY(values ? 0 : CONR_ENOMEM);
    if (r->o->local) {
        TRY(lists_device(r, width, NULL, &near, values));
        TRY(r->on_device ? dev->op.copy(dev, r->ids, near, result)
                         : dev->op.get(dev, r->ids, near, result));
        goto done;
    }
    by_s = memory_new("neighbors", lists, sizeof *by_s);
    if (r->on_device) ids = memory_new("neighbors", result, 1);
    TRY(by_s && (ids || !r->on_device) ? 0 : CONR_ENOMEM);
    TRY(lists_device(r, width, by_s, NULL, values));
    TRY(neighbors_from_lists(dev, by_s, values, r->n, width, r->o, r->on_device ? ids : r->ids,
                             NULL));
    if (r->on_device) {
        TRY(dev->op.put(dev, r->ids, ids, result));
        TRY(dev->op.sync(dev));
    }
done:
    dev->op.free(dev, near);
    free(by_s), free(ids), free(values);
    return rc;
}

/* The same lists from the host's search. */
static int lists_host(conr *c, const float *features, int n, int d, int width, double recall,
                      int32_t *by_s, float *values) {
    int rc = 0;
    device *dev = c->host;
    float *unit = memory_new("neighbors", (size_t)n * d + n, sizeof *unit);
    TRY(unit ? 0 : CONR_ENOMEM);
    TRY(dev->op.rows_normalize(dev, features, n, d, unit, unit + (size_t)n * d));
    TRY(search_nearest(dev, context_together(c), unit, n, d, width, &recall, by_s, values));
done:
    free(unit);
    return rc;
}

int neighbors_affinities(conr *c, const float *features, int n, int d,
                         const conr_neighbors_options *o, int32_t *ids, float *affinity) {
    int rc = 0, width = o->local ? o->k : affinity_width(o);
    remote r = {c->dev, context_together(c), features, n, d, o, ids, false};
    size_t lists = (size_t)n * width;
    int32_t *by_s = NULL;
    float *values = NULL;
    TRY(check_options(o));
    by_s = memory_new("neighbors", lists, sizeof *by_s);
    values = memory_new("neighbors", lists, sizeof *values);
    TRY(by_s && values ? 0 : CONR_ENOMEM);
    if (c->dev->op.search && n > BATCH_ROWS)
        TRY(lists_device(&r, width, by_s, NULL, values));
    else
        TRY(lists_host(c, features, n, d, width, o->recall, by_s, values));
    if (o->local) {
        memcpy(ids, by_s, lists * sizeof *ids);
        for (size_t i = 0; i < lists; i++) affinity[i] = values[i] > 0 ? values[i] : 0;
    } else {
        TRY(neighbors_from_lists(c->host, by_s, values, n, width, o, ids, affinity));
    }
done:
    free(by_s), free(values);
    return rc;
}

int conr_neighbors(conr *c, const float *features, int64_t rows, int64_t width,
                   const conr_neighbors_options *options, int32_t *ids) {
    conr_neighbors_options o = *options;
    int rc = 0, there = ARRAYS_ON_DEVICE(c, features, ids);
    if (there < 0) return there;
    if ((rc = check_options(&o)) < 0) return rc;
    rc = there ? numbers_check_shape("features", features, rows, width)
               : numbers_check("features", features, rows, width);
    if (rc < 0) return rc;
    int n = (int)rows, d = (int)width;
    o.k = at_most(o.k, n), o.k1 = at_most(o.k1, n), o.k2 = at_most(o.k2, n);
    if (c->dev->op.search) {
        remote r = {c->dev, context_together(c), features, n, d, &o, ids, there};
        return n <= BATCH_ROWS ? batch_device(&r) : set_device(&r);
    }
    float *unit = memory_new("neighbors", (size_t)n * d + n, sizeof *unit);
    if (!unit) return CONR_ENOMEM;
    TRY(c->dev->op.rows_normalize(c->dev, features, n, d, unit, unit + (size_t)n * d));
    TRY(neighbors_host(c->dev, context_together(c), unit, n, d, &o, ids));
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
