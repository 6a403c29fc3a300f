/* stream.c: a ring of slots on a ferry, between workers and trainer.
 *
 * Unit k uses slot k mod STREAM_SLOTS.  A worker takes whole units, in order, once the unit that was
 * in the slot before has been released. */
#include "images/stream.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 }; /* of an image in a slot */

struct stream {
    device *dev;
    const store *store;
    int rows;
    ferry *ferry;
    views_row *row; /* [slots,rows] */
    int32_t *id;    /* [slots,rows] */
    int32_t *place; /* [slots,places] a hash table of the rows of a unit, by image; 0: empty */
    int places;
    stream_order *order;
    const void *arg;

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* for workers: a slot is free; for the trainer: one was sent */
    /* guarded by the lock: */
    int64_t begun, taken, released; /* units, since the start */
    bool sent[STREAM_SLOTS];
    bool stop;
    int failure;       /* the CONR_E* code of a worker, or 0 */
    char message[512]; /* and its message */

    pthread_t worker[STREAM_SLOTS];
    int most_workers, n_workers;
    double waited;
};

static size_t image_bytes(const store *s, int64_t i) {
    size_t bytes = (size_t)s->image[i].w * s->image[i].h * (size_t)s->c;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* The row of the unit that has this image already, or -1; then row i is noted as the one. */
static int earlier_row(stream *s, int slot, int i) {
    const int32_t *id = s->id + (size_t)slot * (size_t)s->rows;
    int32_t *place = s->place + (size_t)slot * (size_t)s->places;
    uint32_t at = (uint32_t)id[i] * 2654435769u;
    for (;; at++) {
        int32_t *p = &place[at & (uint32_t)(s->places - 1)];
        if (!*p) {
            *p = i + 1;
            return -1;
        }
        if (id[*p - 1] == id[i]) return *p - 1;
    }
}

/* Gathers unit k and sends it.  An image that comes twice, as in the order of balanced clusters or
 * past the end of the images, is sent once: so a slot has room for any unit. */
static int bring(stream *s, int64_t k) {
    int rc = 0, slot = (int)(k % STREAM_SLOTS);
    size_t at = 0, base = (size_t)slot * s->ferry->bytes;
    int32_t *id = s->id + (size_t)slot * (size_t)s->rows;
    views_row *row = s->row + (size_t)slot * (size_t)s->rows;
    s->order(s->arg, k, id);
    memset(s->place + (size_t)slot * (size_t)s->places, 0, (size_t)s->places * sizeof *s->place);
    TRY(s->dev->op.ferry_fill(s->dev, s->ferry, slot));
    for (int i = 0; i < s->rows; i++) {
        const stored *m = &s->store->image[id[i]];
        int earlier = earlier_row(s, slot, i);
        row[i] = (views_row){base + at, id[i], m->w, m->h};
        if (earlier >= 0) {
            row[i].at = row[earlier].at;
            continue;
        }
        ASSERT(at + image_bytes(s->store, id[i]) <= s->ferry->bytes);
        memcpy(s->ferry->host + base + at, m->pixels, (size_t)m->w * m->h * (size_t)s->store->c);
        at += image_bytes(s->store, id[i]);
    }
    TRY(s->dev->op.ferry_send(s->dev, s->ferry, slot, at));
done:
    return rc;
}

static void *work(void *user) {
    stream *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->stop && s->begun >= s->released + STREAM_SLOTS)
            pthread_cond_wait(&s->work, &s->lock);
        if (s->stop) break;
        int64_t k = s->begun++;
        pthread_mutex_unlock(&s->lock);
        int rc = bring(s, k);
        pthread_mutex_lock(&s->lock);
        s->sent[k % STREAM_SLOTS] = true;
        if (rc < 0 && !s->failure) {
            s->failure = rc;
            s->stop = true;
            snprintf(s->message, sizeof s->message, "%s", conr_error());
            pthread_cond_broadcast(&s->work);
        }
        pthread_cond_signal(&s->ready);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the trainer's side ---------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b) {
    size_t x, y;
    memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
    return (x < y) - (x > y);
}

/* Bytes that suffice for any `rows` different images. */
static int slot_bytes(const store *s, int rows, size_t *out) {
    size_t *bytes = memory_new("list of images", (size_t)s->n, sizeof *bytes);
    *out = 0;
    if (!bytes) return CONR_ENOMEM;
    for (int64_t i = 0; i < s->n; i++) bytes[i] = image_bytes(s, i);
    qsort(bytes, (size_t)s->n, sizeof *bytes, larger_first);
    for (int64_t i = 0; i < s->n && i < rows; i++) *out += bytes[i];
    free(bytes);
    return 0;
}

int stream_new(device *dev, const store *s, int rows, int workers, stream **out) {
    int rc = 0;
    size_t bytes;
    *out = NULL;
    stream *x = calloc(1, sizeof *x);
    if (!x) return fail_memory("stream", sizeof *x);
    ASSERT(rows > 0 && workers > 0);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->ready, NULL);
    x->dev = dev, x->store = s, x->rows = rows;
    x->most_workers = workers < STREAM_SLOTS ? workers : STREAM_SLOTS;
    for (x->places = 1; x->places < 2 * rows;) x->places *= 2;
    x->row = memory_new("stream", (size_t)rows * STREAM_SLOTS, sizeof *x->row);
    x->id = memory_new("stream", (size_t)rows * STREAM_SLOTS, sizeof *x->id);
    x->place = memory_new("stream", (size_t)x->places * STREAM_SLOTS, sizeof *x->place);
    TRY(x->row && x->id && x->place ? 0 : CONR_ENOMEM);
    TRY(slot_bytes(s, rows, &bytes));
    TRY(dev->op.ferry_new(dev, STREAM_SLOTS, bytes, &x->ferry));
    *out = x;
done:
    if (rc < 0) stream_free(x);
    return rc;
}

int stream_start(stream *s, stream_order *order, const void *arg) {
    stream_stop(s);
    s->order = order, s->arg = arg;
    s->begun = s->taken = s->released = 0;
    memset(s->sent, 0, sizeof s->sent);
    s->stop = false, s->failure = 0;
    for (; s->n_workers < s->most_workers; s->n_workers++)
        if (pthread_create(&s->worker[s->n_workers], NULL, work, s)) break;
    if (s->n_workers) return 0; /* fewer than requested are enough */
    return fail(CONR_ENOMEM, "images: cannot start a thread; raise the limit (ulimit -u)");
}

int stream_next(stream *s, views_row *rows) {
    ASSERT(s->n_workers > 0 && s->taken - s->released < STREAM_HELD);
    int slot = (int)(s->taken % STREAM_SLOTS);
    pthread_mutex_lock(&s->lock);
    if (!s->sent[slot] && !s->failure) {
        double before = clock_now();
        while (!s->sent[slot] && !s->failure) pthread_cond_wait(&s->ready, &s->lock);
        s->waited += clock_now() - before;
    }
    int failure = s->failure;
    s->sent[slot] = false;
    s->taken++;
    pthread_mutex_unlock(&s->lock);
    if (failure) return fail(failure, "%s", s->message);
    memcpy(rows, s->row + (size_t)slot * (size_t)s->rows, (size_t)s->rows * sizeof *rows);
    return s->dev->op.ferry_take(s->dev, s->ferry, slot);
}

int stream_release(stream *s) {
    int rc = 0;
    for (int64_t k = s->released; rc == 0 && k < s->taken; k++)
        rc = s->dev->op.ferry_done(s->dev, s->ferry, (int)(k % STREAM_SLOTS));
    if (rc < 0) return rc;
    pthread_mutex_lock(&s->lock);
    s->released = s->taken;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

void stream_stop(stream *s) {
    if (!s->n_workers) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_workers; i++) pthread_join(s->worker[i], NULL);
    s->n_workers = 0;
    /* whatever comes next into these slots waits for what is queued; if that fails, so will the
     * next call */
    (void)stream_release(s);
}

void stream_free(stream *s) {
    if (!s) return;
    stream_stop(s);
    pthread_cond_destroy(&s->ready);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    s->dev->op.ferry_free(s->dev, s->ferry);
    free(s->row);
    free(s->id);
    free(s->place);
    free(s);
}

const unsigned char *stream_pixels(const stream *s) { return s->ferry->on; }
size_t stream_bytes(const stream *s) { return STREAM_SLOTS * s->ferry->bytes; }
double stream_waited(const stream *s) { return s->waited; }
