/* trial_views.c: trials of views: images of many sizes, one after the other in memory and with gaps,
 * smooth in places and noise in others. */
#include "device/trial.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <stdlib.h>

enum { MOST_IMAGES = 40 }; /* more rows than that show some of them again */

/* Sizes and places; the first image has the largest size.  Rows are in another order than images,
 * and ids are those of a large set. */
static size_t place(const op_case *c, int images, views_row *image) {
    size_t at = 0;
    rng r = rng_at(21, 0, (uint32_t)(c->h * 1000 + c->w), RNG_TEST);
    for (int i = 0; i < images; i++) {
        bool largest = c->variant & 4 || i == 0;
        int w = largest ? c->w : 1 + (int)rng_below(&r, (uint32_t)c->w);
        int h = largest ? c->h : 1 + (int)rng_below(&r, (uint32_t)c->h);
        image[i] = (views_row){at, (int32_t)(1000003 * (int64_t)(i + 1) % 2000000011), (uint16_t)w,
                               (uint16_t)h};
        at += (size_t)w * (size_t)h * (size_t)c->ci;
        if (i % 3 == 1) at += rng_below(&r, 7); /* at odd addresses, too */
        if (i % 3 == 2) at = (at + 15) / 16 * 16;
    }
    return at;
}

static void draw_bytes(size_t n, unsigned char *out) {
    rng r = rng_at(21, 1, 0, RNG_TEST);
    int level = 100;
    for (size_t i = 0; i < n; i++) {
        if (i % 61 == 0) level = (int)rng_below(&r, 200);
        out[i] = (unsigned char)(i % 5 ? level + (int)rng_below(&r, 56) : (int)rng_below(&r, 256));
    }
}

int trial_open_views(trial *t) {
    int rc = 0, images = t->n < MOST_IMAGES ? t->n : MOST_IMAGES;
    const op_case *c = &t->c;
    step_values at = {.epoch = 7};
    unsigned char *bytes = NULL;
    views_row image[MOST_IMAGES], *rows = memory_new("case", (size_t)t->n, sizeof *rows);
    views_job *job = &t->job;
    size_t total = place(c, images, image) + VIEWS_PAD;
    bytes = memory_new("case", total, 1);
    TRY(rows && bytes ? 0 : CONR_ENOMEM);
    draw_bytes(total, bytes);
    *job = (views_job){.c = c->ci, .size = c->co, .short_side = c->stride, .seed = 0x1234567890ull};
    job->policy = draw_policy_default();
    job->policy.blur = c->variant & 1 ? 0.5f : 0;
    job->policy.solarize = c->variant & 2 ? 0.4f : 0;
    if (c->variant & 8) job->policy.scale_low = 0.45f;
    for (int k = 0; k < 3; k++)
        job->norm.mean[k] = 0.4f + 0.05f * (float)k, job->norm.deviation[k] = 0.2f;
    for (int i = 0; i < images; i++) views_bound(job, &job->policy, image[i].w, image[i].h);
    for (int i = 0; i < t->n; i++) rows[i] = image[(i * 7 + 3) % images];
    TRY(trial_alloc(t, total, (void **)&t->bytes));
    TRY(trial_alloc(t, (size_t)t->n * sizeof *rows, (void **)&t->rows));
    TRY(trial_alloc(t, sizeof at, (void **)&t->at));
    TRY(t->dev->op.put(t->dev, t->bytes, bytes, total));
    TRY(t->dev->op.put(t->dev, t->rows, rows, (size_t)t->n * sizeof *rows));
    TRY(t->dev->op.put(t->dev, t->at, &at, sizeof at));
    TRY(t->dev->op.sync(t->dev));
    job->pixels = t->bytes;
    ASSERT(t->dev->op.views_takes(t->dev, job));
    TRY(trial_result_acts(t, (size_t)t->n * (size_t)c->co * (size_t)c->co * (size_t)c->ci, &t->x));
done:
    free(rows);
    free(bytes);
    return rc;
}

int trial_run_views(trial *t) {
    return t->dev->op.views(t->dev, t->at, &t->job, t->rows, t->n, t->c.k, t->x);
}
