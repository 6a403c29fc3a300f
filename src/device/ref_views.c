/* ref_views.c: the reference table's views: those of the host (views/pixels.h), one after the other;
 * and its ferry, where nothing is sent: the host writes where operations read. */
#include "device/ref.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "views/job.h"

#include <stdlib.h>

/* Unlike the entries of faster tables it allocates: pixels_new. */
static int ref_views(device *dev, const step_values *at, const struct views_job *job,
                     const struct views_row *rows, int n, int view, act *out) {
    int rc = 0;
    size_t one = (size_t)job->size * (size_t)job->size * (size_t)job->c;
    pixels *tools = NULL;
    float *line = memory_new("views", one, sizeof *line);
    TRY(line ? 0 : CONR_ENOMEM);
    TRY(pixels_new(job->size, job->c, &tools));
    for (int i = 0; i < n; i++) {
        const views_row *r = &rows[i];
        const unsigned char *image = job->pixels + r->at;
        if (view == 2) {
            TRY(pixels_plain(tools, image, r->w, r->h, job->short_side, &job->norm, line));
        } else {
            draw d = draw_view(&job->policy, job->seed, at->epoch, (uint32_t)r->id,
                               view == 0 ? RNG_VIEW_A : RNG_VIEW_B, r->w, r->h);
            ASSERT(d.w <= job->box_w && d.h <= job->box_h);
            TRY(pixels_view(tools, image, r->w, r->h, &d, &job->norm, line));
        }
        TRY(dev->op.act_from(dev, line, one, act_at(dev, out, (size_t)i * one)));
    }
done:
    pixels_free(tools);
    free(line);
    return rc;
}

static bool ref_views_takes(device *dev, const struct views_job *job) {
    (void)dev, (void)job;
    return true;
}

static void ref_ferry_free(device *dev, ferry *f) {
    if (f) dev->op.free(dev, f->on);
    free(f);
}

static int ref_ferry_new(device *dev, int slots, size_t bytes, ferry **out) {
    int rc = 0;
    ferry *f = *out = calloc(1, sizeof *f);
    if (!f) return fail_memory("ferry", sizeof *f);
    *f = (ferry){.slots = slots, .bytes = bytes};
    TRY(dev->op.alloc(dev, (size_t)slots * bytes + VIEWS_PAD, (void **)&f->on));
    f->host = f->on;
done:
    if (rc < 0) ref_ferry_free(dev, f), *out = NULL;
    return rc;
}

static int ref_ferry_slot(device *dev, ferry *f, int slot) {
    (void)dev;
    ASSERT(slot >= 0 && slot < f->slots);
    return 0;
}

static int ref_ferry_send(device *dev, ferry *f, int slot, size_t bytes) {
    ASSERT(bytes <= f->bytes);
    return ref_ferry_slot(dev, f, slot);
}

void ref_views_ops(device_ops *op) {
    op->views = ref_views;
    op->views_takes = ref_views_takes;
    op->ferry_new = ref_ferry_new;
    op->ferry_free = ref_ferry_free;
    op->ferry_fill = op->ferry_take = op->ferry_done = ref_ferry_slot;
    op->ferry_send = ref_ferry_send;
}
