/* feed.c: see feed.h. */
#include "images/feed.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Whether the device can hold the images: all have the network's size, and a third of its memory is
 * enough. */
static bool can_reside(const feed *f) {
    const store *s = f->store;
    int size = f->o.load.size;
    if (!f->dev->op.views || f->o.short_side) return false;
    for (int64_t i = 0; i < s->n; i++)
        if (s->image[i].w != size || s->image[i].h != size) return false;
    return !f->dev->memory || (size_t)s->n * f->row < f->dev->memory / 3;
}

static int upload_all(feed *f) {
    int rc = 0;
    enum { CHUNK = 1024 };
    const store *s = f->store;
    unsigned char *chunk = memory_new("images", CHUNK * f->row, 1);
    if (!chunk) return CONR_ENOMEM;
    TRY(f->dev->op.alloc(f->dev, (size_t)s->n * f->row, (void **)&f->resident));
    for (int64_t first = 0; first < s->n; first += CHUNK) {
        int64_t n = s->n - first < CHUNK ? s->n - first : CHUNK;
        for (int64_t i = 0; i < n; i++)
            memcpy(chunk + (size_t)i * f->row, s->image[first + i].pixels, f->row);
        TRY(f->dev->op.put(f->dev, f->resident + (size_t)first * f->row, chunk,
                           (size_t)n * f->row));
        TRY(f->dev->op.sync(f->dev));
    }
    f->job = (views_job){.pixels = f->resident,
                         .h = f->o.load.size,
                         .w = f->o.load.size,
                         .c = s->c,
                         .size = f->o.load.size,
                         .seed = f->o.load.seed,
                         .norm = f->o.load.norm};
done:
    free(chunk);
    return rc;
}

int feed_open(device *dev, const store *s, const feed_options *o, feed *out) {
    int rc = 0, n = o->load.batch, own = n / o->load.ranks;
    *out = (feed){.dev = dev, .store = s, .o = *o, .steps = s->n / n, .own = own};
    out->row = (size_t)o->load.size * (size_t)o->load.size * (size_t)s->c;
    ASSERT(o->load.parts > 0 && n % (o->load.ranks * o->load.parts) == 0);
    if (s->n < n)
        return fail(CONR_EINVAL, "batch %d: more than the %lld images; make it smaller", n,
                    (long long)s->n);
    out->host_ids = memory_new("batch", 2 * (size_t)n, sizeof *out->host_ids);
    TRY(out->host_ids ? 0 : CONR_ENOMEM);
    TRY(dev->op.alloc(dev, 2 * (size_t)n * sizeof *out->ids, (void **)&out->ids));
    out->plain = own;
    if (can_reside(out)) {
        out->plain = 2 * own; /* as many as both views, to keep a GPU busy */
        TRY(upload_all(out));
        goto done;
    }
    out->host = memory_new("batch", (size_t)own * out->row, sizeof *out->host);
    TRY(out->host ? 0 : CONR_ENOMEM);
    for (int v = 0; v < 2; v++)
        TRY(dev->op.alloc(dev, (size_t)own * out->row * sizeof(float), (void **)&out->staged[v]));
done:
    if (rc < 0) feed_close(out);
    return rc;
}

void feed_close(feed *f) {
    if (!f->dev) return;
    loader_close(f->loader);
    f->dev->op.free(f->dev, f->ids);
    f->dev->op.free(f->dev, f->staged[0]);
    f->dev->op.free(f->dev, f->staged[1]);
    f->dev->op.free(f->dev, f->resident);
    free(f->host_ids);
    free(f->host);
    *f = (feed){0};
}

int feed_seek(feed *f, uint32_t epoch, int64_t step, uint32_t later, const int32_t *table) {
    f->o.load.change = later;
    f->o.load.table = table;
    if (f->resident) return 0;
    if (f->loader) f->waited += loader_waited(f->loader);
    loader_close(f->loader);
    f->loader = NULL;
    return loader_open(f->store, &f->o.load, epoch, step, &f->loader);
}

int feed_next(feed *f, uint32_t epoch, int64_t step) {
    int rc = 0;
    int n = f->o.load.batch;
    loader_order(&f->o.load, f->store->n, epoch, step, f->host_ids);
    if (!f->resident) {
        loaded batch;
        TRY(loader_next(f->loader, &batch));
        ASSERT(batch.epoch == epoch && batch.step == step);
        ASSERT(batch.n == f->own && batch.id[0] == f->host_ids[loader_row(&f->o.load, 0)]);
        for (int v = 0; v < 2; v++)
            TRY(f->dev->op.put(f->dev, f->staged[v], batch.view[v],
                               (size_t)f->own * f->row * sizeof(float)));
    }
    TRY(f->dev->op.put(f->dev, f->ids, f->host_ids, (size_t)n * sizeof *f->ids));
done:
    return rc;
}

int feed_views(feed *f, const step_values *at, bool stage2, act *images) {
    int rc = 0, parts = f->o.load.parts, m = f->own / parts;
    device *dev = f->dev;
    size_t block = (size_t)m * f->row;
    f->job.policy = stage2 ? f->o.load.later : f->o.load.policy;
    for (int p = 0; p < parts; p++) {
        act *a = act_at(dev, images, (size_t)p * 3 * block);
        for (int v = 0; v < 2; v++) {
            act *to = act_at(dev, a, (size_t)v * block);
            const int32_t *ids = f->ids + loader_row(&f->o.load, p * m);
            TRY(f->resident ? dev->op.views(dev, at, &f->job, ids, m, v, to)
                            : dev->op.act_from(dev, f->staged[v] + (size_t)p * block, block, to));
        }
        TRY(dev->op.copy(dev, act_at(dev, a, 2 * block), a, block * dev->act_size));
    }
done:
    return rc;
}

/* Rows of floats, computed by all threads of the host. */
static int plain_rows(feed *f, int64_t first, int count) {
    const store *s = f->store;
    int failed = 0;
#pragma omp parallel num_threads(f->dev->threads)
    {
        pixels *tools = NULL;
        int rc = pixels_new(f->o.load.size, s->c, &tools);
#pragma omp for schedule(static)
        for (int i = 0; i < count; i++) {
            const stored *m = &s->image[first + i < s->n ? first + i : s->n - 1];
            if (rc == 0)
                rc = pixels_plain(tools, m->pixels, m->w, m->h, f->o.short_side, &f->o.load.norm,
                                  f->host + (size_t)i * f->row);
        }
        pixels_free(tools);
#pragma omp atomic
        failed |= rc < 0;
    }
    /* messages are per thread, and the only possible cause is memory */
    return failed ? fail_memory("images", (double)f->row * sizeof *f->host) : 0;
}

int feed_plain_next(feed *f, int64_t first) {
    int rc = 0, n = f->plain;
    device *dev = f->dev;
    first += (int64_t)f->o.load.rank * n;
    if (f->resident) {
        for (int i = 0; i < n; i++)
            f->host_ids[i] = (int32_t)(first + i < f->store->n ? first + i : f->store->n - 1);
        return dev->op.put(dev, f->ids, f->host_ids, (size_t)n * sizeof *f->ids);
    }
    TRY(plain_rows(f, first, n));
    TRY(dev->op.put(dev, f->staged[0], f->host, (size_t)n * f->row * sizeof *f->host));
done:
    return rc;
}

int feed_plain(feed *f, const step_values *at, act *images) {
    device *dev = f->dev;
    int n = f->plain;
    return f->resident ? dev->op.views(dev, at, &f->job, f->ids, n, 2, images)
                       : dev->op.act_from(dev, f->staged[0], (size_t)n * f->row, images);
}
