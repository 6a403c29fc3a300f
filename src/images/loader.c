/* loader.c: a ring of batches between workers and trainer.
 *
 * Batches are numbered from 0 over all epochs; batch b uses slot b mod slots.  Workers take images
 * in order, a few at a time, and may start a batch once its slot is free.  The trainer holds one
 * slot, so there are ahead + 1. */
#include "images/loader.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4 }; /* images that a worker takes at a time */

typedef struct slot {
    int32_t *id;    /* [rows] */
    float *view[2]; /* [rows,size,size,c] */
    int finished;   /* images that are ready */
} slot;

struct loader {
    const store *store;
    loader_options o;
    int64_t steps; /* per epoch */
    int64_t start; /* number of the first batch over all epochs */
    int rows;      /* of a batch, on this rank */
    size_t row;    /* floats of one view of one image */
    slot *slot;
    int slots;

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* for workers: a slot is free; for the trainer: one is full */
    /* guarded by the lock: */
    int64_t begun; /* the batch that workers take images of, counted from `start` */
    int handed;    /* images of it that were taken */
    int64_t taken; /* batches that the trainer has requested */
    bool stop;
    int failure;       /* the CONR_E* code of a worker, or 0 */
    char message[512]; /* and its message */

    pthread_t *worker;
    int n_workers;
    double waited;
    float *memory;
};

/* ---- workers --------------------------------------------------------------------------------- */

static uint32_t image_at(const loader_options *o, const rng_order *order, int64_t at) {
    return o->table ? (uint32_t)o->table[at] : rng_order_at(order, (uint32_t)at);
}

void loader_order(const loader_options *o, int64_t n, uint32_t epoch, int64_t step, int32_t *ids) {
    rng_order order = rng_order_make(o->seed, epoch, (uint32_t)n);
    for (int i = 0; i < o->batch; i++) ids[i] = (int32_t)image_at(o, &order, step * o->batch + i);
}

int loader_row(const loader_options *o, int i) {
    int part = o->batch / (o->parts > 1 ? o->parts : 1), mine = part / o->ranks;
    return i / mine * part + o->rank * mine + i % mine;
}

void loader_own(const loader_options *o, int64_t n, uint32_t epoch, int64_t step, int32_t *ids) {
    rng_order order = rng_order_make(o->seed, epoch, (uint32_t)n);
    for (int i = 0; i < o->batch / o->ranks; i++)
        ids[i] = (int32_t)image_at(o, &order, step * o->batch + loader_row(o, i));
}

/* Both views of image `i` of batch `b`. */
static int make_views(const loader *l, pixels *p, int64_t b, int i) {
    int rc = 0;
    slot *s = &l->slot[b % l->slots];
    uint32_t epoch = (uint32_t)((l->start + b) / l->steps);
    int64_t step = (l->start + b) % l->steps;
    rng_order order = rng_order_make(l->o.seed, epoch, (uint32_t)l->store->n);
    uint32_t id = image_at(&l->o, &order, step * l->o.batch + loader_row(&l->o, i));
    const stored *m = &l->store->image[id];
    const draw_policy *policy = epoch >= l->o.change ? &l->o.later : &l->o.policy;
    s->id[i] = (int32_t)id;
    for (uint32_t v = 0; v < 2; v++) {
        draw d =
            draw_view(policy, l->o.seed, epoch, id, v == 0 ? RNG_VIEW_A : RNG_VIEW_B, m->w, m->h);
        TRY(pixels_view(p, m->pixels, m->w, m->h, &d, &l->o.norm, s->view[v] + (size_t)i * l->row));
    }
done:
    return rc;
}

/* Waits for work; false if the worker has to end. */
static bool take_work(loader *l, int64_t *batch, int *first, int *n) {
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->begun >= l->taken + l->slots - 1) pthread_cond_wait(&l->work, &l->lock);
    bool go_on = !l->stop;
    if (go_on) {
        *batch = l->begun;
        *first = l->handed;
        *n = l->rows - l->handed < CHUNK ? l->rows - l->handed : CHUNK;
        l->handed += *n;
        if (l->handed == l->rows) l->begun++, l->handed = 0;
    }
    pthread_mutex_unlock(&l->lock);
    return go_on;
}

static void give_work(loader *l, int64_t batch, int n, int rc) {
    pthread_mutex_lock(&l->lock);
    slot *s = &l->slot[batch % l->slots];
    s->finished += n;
    if (rc < 0 && !l->failure) {
        l->failure = rc;
        l->stop = true;
        snprintf(l->message, sizeof l->message, "%s", conr_error());
        pthread_cond_broadcast(&l->work);
    }
    if (s->finished == l->rows || rc < 0) pthread_cond_signal(&l->ready);
    pthread_mutex_unlock(&l->lock);
}

static void *work(void *user) {
    loader *l = user;
    pixels *p = NULL;
    int64_t batch;
    int first, n, rc = pixels_new(l->o.size, l->store->c, &p);
    if (rc < 0) give_work(l, 0, 0, rc);
    while (rc == 0 && take_work(l, &batch, &first, &n)) {
        for (int i = first; rc == 0 && i < first + n; i++) rc = make_views(l, p, batch, i);
        give_work(l, batch, n, rc);
    }
    pixels_free(p);
    return NULL;
}

/* ---- the trainer's side ---------------------------------------------------------------------- */

static int make_slots(loader *l) {
    size_t view = (size_t)l->rows * l->row, each = 2 * view + (size_t)l->rows;
    l->slot = calloc((size_t)l->slots, sizeof *l->slot);
    if (!l->slot) return fail_memory("batches", sizeof *l->slot);
    l->memory = memory_new("batches", (size_t)l->slots * each, sizeof *l->memory);
    if (!l->memory) return CONR_ENOMEM;
    for (int i = 0; i < l->slots; i++) {
        float *at = l->memory + (size_t)i * each;
        l->slot[i] = (slot){.view = {at, at + view}, .id = (int32_t *)(at + 2 * view)};
    }
    return 0;
}

static int start_workers(loader *l) {
    l->worker = calloc((size_t)l->o.workers, sizeof *l->worker);
    if (!l->worker) return fail_memory("workers", sizeof *l->worker);
    for (; l->n_workers < l->o.workers; l->n_workers++)
        if (pthread_create(&l->worker[l->n_workers], NULL, work, l)) break;
    if (l->n_workers) return 0; /* fewer than requested are enough */
    return fail(CONR_ENOMEM, "loader: cannot start a thread; raise the limit (ulimit -u)");
}

int loader_open(const store *s, const loader_options *o, uint32_t epoch, int64_t step,
                loader **out) {
    int rc = 0;
    *out = NULL;
    ASSERT(o->batch > 0 && o->ranks > 0 && o->rank >= 0 && o->rank < o->ranks && o->workers > 0 &&
           o->ahead > 0);
    if (s->n < o->batch)
        return fail(CONR_EINVAL, "batch: %d is more than the %lld images; make it smaller",
                    o->batch, (long long)s->n);
    if (o->batch % (o->ranks * (o->parts > 1 ? o->parts : 1)))
        return fail(CONR_EINVAL, "batch: %d is not a multiple of %d ranks; change one of them",
                    o->batch, o->ranks);
    loader *l = calloc(1, sizeof *l);
    if (!l) return fail_memory("loader", sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->store = s;
    l->o = *o;
    l->steps = s->n / o->batch;
    l->start = (int64_t)epoch * l->steps + step;
    l->rows = o->batch / o->ranks;
    l->row = (size_t)o->size * (size_t)o->size * (size_t)s->c;
    l->slots = o->ahead + 1;
    TRY(make_slots(l));
    TRY(start_workers(l));
    *out = l;
done:
    if (rc < 0) loader_close(l);
    return rc;
}

int loader_next(loader *l, loaded *out) {
    pthread_mutex_lock(&l->lock);
    int64_t b = l->taken;
    slot *s = &l->slot[b % l->slots];
    if (b > 0) l->slot[(b - 1) % l->slots].finished = 0; /* frees the previous one */
    l->taken++;
    pthread_cond_broadcast(&l->work);
    if (s->finished < l->rows && !l->failure) {
        double before = clock_now();
        while (s->finished < l->rows && !l->failure) pthread_cond_wait(&l->ready, &l->lock);
        l->waited += clock_now() - before;
    }
    int rc = l->failure;
    pthread_mutex_unlock(&l->lock);
    if (rc < 0) return fail(rc, "%s", l->message);
    *out = (loaded){.epoch = (uint32_t)((l->start + b) / l->steps),
                    .step = (l->start + b) % l->steps,
                    .n = l->rows,
                    .id = s->id,
                    .view = {s->view[0], s->view[1]}};
    return 0;
}

void loader_close(loader *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_workers; i++) pthread_join(l->worker[i], NULL);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l->worker);
    free(l->slot);
    free(l->memory);
    free(l);
}

int64_t loader_steps(const loader *l) { return l->steps; }
double loader_waited(const loader *l) { return l->waited; }
