/* feed.c: see feed.h. */
#include "images/feed.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 }; /* of an image on the device */

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static size_t bytes_of(const feed *f, int64_t i) {
    const stored *m = &f->store->image[i];
    return (size_t)m->w * m->h * (size_t)f->store->c;
}

/* ---- where images are ------------------------------------------------------------------------ */

/* All that does not depend on where they are. */
static void make_job(feed *f) {
    const loader_options *o = &f->o.load;
    const draw_policy *policy[] = {&o->policy, &o->later};
    f->job = (views_job){.c = f->store->c,
                         .size = o->size,
                         .short_side = f->o.short_side,
                         .seed = o->seed,
                         .norm = o->norm};
    for (int64_t i = 0; i < f->store->n; i++)
        for (int k = 0; k < 2; k++)
            if (policy[k]->ratio_high > 0) /* an embedding has no later policy */
                views_bound(&f->job, policy[k], f->store->image[i].w, f->store->image[i].h);
}

/* Whether the device can make the views of both stages. */
static bool takes(feed *f) {
    bool can = true;
    const draw_policy *policy[] = {&f->o.load.policy, &f->o.load.later};
    for (int k = 0; k < 2; k++) {
        f->job.policy = *policy[k];
        can = can && f->dev->op.views_takes(f->dev, &f->job);
    }
    return can;
}

static int upload_all(feed *f) {
    int rc = 0;
    const store *s = f->store;
    enum { CHUNK = 32 << 20 };
    size_t room = CHUNK, filled = 0, sent = 0;
    unsigned char *chunk = NULL;
    f->at = memory_new("list of images", (size_t)s->n, sizeof *f->at);
    TRY(f->at ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < s->n; i++)
        if (aligned(bytes_of(f, i)) > room) room = aligned(bytes_of(f, i));
    TRY(f->dev->op.alloc(f->dev, f->bytes + VIEWS_PAD, (void **)&f->resident));
    chunk = memory_new("images", room, 1);
    TRY(chunk ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i <= s->n; i++) {
        if (i == s->n || filled + aligned(bytes_of(f, i)) > room) {
            TRY(f->dev->op.put(f->dev, f->resident + sent, chunk, filled));
            TRY(f->dev->op.sync(f->dev));
            sent += filled, filled = 0;
        }
        if (i == s->n) break;
        f->at[i] = sent + filled;
        memcpy(chunk + filled, s->image[i].pixels, bytes_of(f, i));
        filled += aligned(bytes_of(f, i));
    }
    ASSERT(sent == f->bytes);
    f->job.pixels = f->resident;
done:
    free(chunk);
    return rc;
}

static int open_stream(feed *f) {
    int workers = f->o.load.workers > 2 ? f->o.load.workers : 2;
    int rc = stream_new(f->dev, f->store, f->own, workers, &f->stream);
    if (rc < 0) return rc;
    f->job.pixels = stream_pixels(f->stream);
    f->bytes = stream_bytes(f->stream);
    f->next = -1;
    return 0;
}

static int open_host(feed *f) {
    int rc = 0;
    size_t count = (size_t)f->own * f->row;
    f->host = memory_new("batch", count, sizeof *f->host);
    TRY(f->host ? 0 : CONR_ENOMEM);
    for (int v = 0; v < 2; v++)
        TRY(f->dev->op.alloc(f->dev, count * sizeof(float), (void **)&f->staged[v]));
    f->bytes = 2 * count * sizeof(float);
done:
    return rc;
}

/* The first of device, stream and host that has room; or the one that was asked for. */
static int open_images(feed *f) {
    int rc = 0;
    device *dev = f->dev;
    uint64_t most = f->o.most ? f->o.most : dev->memory ? dev->memory / 3 : UINT64_MAX;
    bool free_choice = f->o.place == FEED_AUTO;
    make_job(f);
    for (int64_t i = 0; i < f->store->n; i++) f->bytes += aligned(bytes_of(f, i));
    f->place = !free_choice                             ? f->o.place
               : dev->host_memory || !takes(f)          ? FEED_HOST
               : (uint64_t)f->bytes + VIEWS_PAD <= most ? FEED_DEVICE
                                                        : FEED_STREAM;
    /* as many at once as both views, to keep a GPU busy; wherever they are, so that bits agree */
    f->plain = f->place == FEED_HOST ? f->own : STREAM_HELD * f->own;
    if (f->place == FEED_DEVICE) {
        rc = upload_all(f);
        if (rc != CONR_ENOMEM || !free_choice) goto done;
        dev->op.free(dev, f->resident), f->resident = NULL;
        free(f->at), f->at = NULL;
        f->place = FEED_STREAM;
    }
    if (f->place == FEED_STREAM) {
        rc = open_stream(f);
        if (rc != CONR_ENOMEM || !free_choice) goto done;
        f->place = FEED_HOST, f->plain = f->own;
    }
    TRY(open_host(f));
done:
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
    TRY(open_images(out));
    out->rows_at = aligned((size_t)n * sizeof *out->ids);
    size_t bytes = out->rows_at + (size_t)out->plain * sizeof *out->rows;
    out->list = memory_new("batch", bytes, 1);
    TRY(out->list ? 0 : CONR_ENOMEM);
    memset(out->list, 0, bytes);
    out->host_rows = (views_row *)(out->list + out->rows_at);
    TRY(dev->op.alloc(dev, bytes, (void **)&out->ids));
    out->rows = (views_row *)((unsigned char *)out->ids + out->rows_at);
done:
    if (rc < 0) feed_close(out);
    return rc;
}

void feed_close(feed *f) {
    if (!f->dev) return;
    loader_close(f->loader);
    stream_free(f->stream);
    f->dev->op.free(f->dev, f->ids);
    f->dev->op.free(f->dev, f->staged[0]);
    f->dev->op.free(f->dev, f->staged[1]);
    f->dev->op.free(f->dev, f->resident);
    free(f->list);
    free(f->host);
    free(f->at);
    *f = (feed){0};
}

const char *feed_words(const feed *f) {
    return f->place == FEED_HOST ? "host" : f->place == FEED_DEVICE ? "device memory" : "streamed";
}

double feed_waited(const feed *f) {
    return f->waited + (f->loader ? loader_waited(f->loader) : 0) +
           (f->stream ? stream_waited(f->stream) : 0);
}

/* ---- batches --------------------------------------------------------------------------------- */

int feed_seek(feed *f, uint32_t epoch, int64_t step, uint32_t later, const int32_t *table) {
    if (f->stream) stream_stop(f->stream), f->next = -1; /* its workers read what changes now */
    f->o.load.change = later;
    f->o.load.table = table;
    if (f->place != FEED_HOST) return 0;
    if (f->loader) f->waited += loader_waited(f->loader);
    loader_close(f->loader);
    f->loader = NULL;
    return loader_open(f->store, &f->o.load, epoch, step, &f->loader);
}

/* Unit k of a stream is batch f->from + k. */
static void step_order(const void *arg, int64_t k, int32_t *ids) {
    const feed *f = arg;
    int64_t batch = f->from + k;
    loader_own(&f->o.load, f->store->n, (uint32_t)(batch / f->steps), batch % f->steps, ids);
}

/* Image i of this rank's share of the batch from `first` on, without augmentation. */
static int32_t plain_image(const feed *f, int64_t first, int i) {
    int64_t at = first + (int64_t)f->o.load.rank * f->plain + i;
    return (int32_t)(at < f->store->n ? at : f->store->n - 1);
}

/* STREAM_HELD units are one batch of images without augmentation. */
static void plain_order(const void *arg, int64_t k, int32_t *ids) {
    const feed *f = arg;
    int64_t first = f->from + k / STREAM_HELD * f->plain * f->o.load.ranks;
    for (int i = 0; i < f->own; i++)
        ids[i] = plain_image(f, first, (int)(k % STREAM_HELD) * f->own + i);
}

/* Takes `units` units of the stream, which is moved if it is elsewhere.  by: the distance to the
 * next call, if it goes on as usual. */
static int take_units(feed *f, bool plain, int64_t at, int64_t by, int units) {
    int rc = 0;
    if (f->next != at || f->bringing_plain != plain) {
        stream_stop(f->stream);
        f->from = at, f->bringing_plain = plain;
        TRY(stream_start(f->stream, plain ? plain_order : step_order, f));
    }
    f->next = -1;
    TRY(stream_release(f->stream));
    for (int u = 0; u < units; u++)
        TRY(stream_next(f->stream, f->host_rows + (size_t)u * (size_t)f->own));
    f->next = at + by;
done:
    return rc;
}

static views_row resident_row(const feed *f, int32_t id) {
    return (views_row){f->at[id], id, f->store->image[id].w, f->store->image[id].h};
}

static int next_loaded(feed *f, uint32_t epoch, int64_t step, const int32_t *ids) {
    int rc = 0;
    loaded batch;
    TRY(loader_next(f->loader, &batch));
    ASSERT(batch.epoch == epoch && batch.step == step);
    ASSERT(batch.n == f->own && batch.id[0] == ids[loader_row(&f->o.load, 0)]);
    for (int v = 0; v < 2; v++)
        TRY(f->dev->op.put(f->dev, f->staged[v], batch.view[v],
                           (size_t)f->own * f->row * sizeof(float)));
done:
    return rc;
}

int feed_next(feed *f, uint32_t epoch, int64_t step) {
    int rc = 0;
    int32_t *ids = (int32_t *)f->list;
    size_t bytes = f->rows_at + (size_t)f->own * sizeof *f->rows;
    loader_order(&f->o.load, f->store->n, epoch, step, ids);
    if (f->place == FEED_HOST) {
        TRY(next_loaded(f, epoch, step, ids));
        bytes = (size_t)f->o.load.batch * sizeof *ids;
    } else if (f->place == FEED_STREAM) {
        TRY(take_units(f, false, (int64_t)epoch * f->steps + step, 1, 1));
        ASSERT(f->host_rows[0].id == ids[loader_row(&f->o.load, 0)]);
    } else {
        for (int i = 0; i < f->own; i++)
            f->host_rows[i] = resident_row(f, ids[loader_row(&f->o.load, i)]);
    }
    TRY(f->dev->op.put(f->dev, f->ids, f->list, bytes));
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
            TRY(f->place != FEED_HOST
                    ? dev->op.views(dev, at, &f->job, f->rows + (size_t)p * (size_t)m, m, v, to)
                    : dev->op.act_from(dev, f->staged[v] + (size_t)p * block, block, to));
        }
        TRY(dev->op.copy(dev, act_at(dev, a, 2 * block), a, block * dev->act_size));
    }
done:
    return rc;
}

/* ---- without augmentation -------------------------------------------------------------------- */

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
            const stored *m = &s->image[plain_image(f, first, i)];
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
    if (f->place == FEED_HOST) {
        TRY(plain_rows(f, first, n));
        TRY(dev->op.put(dev, f->staged[0], f->host, (size_t)n * f->row * sizeof *f->host));
        goto done;
    }
    if (f->place == FEED_STREAM)
        TRY(take_units(f, true, first, (int64_t)n * f->o.load.ranks, STREAM_HELD));
    for (int i = 0; f->place == FEED_DEVICE && i < n; i++)
        f->host_rows[i] = resident_row(f, plain_image(f, first, i));
    TRY(dev->op.put(dev, f->rows, f->host_rows, (size_t)n * sizeof *f->rows));
done:
    return rc;
}

int feed_plain(feed *f, const step_values *at, act *images) {
    device *dev = f->dev;
    int n = f->plain;
    return f->place != FEED_HOST ? dev->op.views(dev, at, &f->job, f->rows, n, 2, images)
                                 : dev->op.act_from(dev, f->staged[0], (size_t)n * f->row, images);
}
