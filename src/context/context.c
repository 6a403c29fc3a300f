/* context.c: opens and closes a context; the device, the host device and the ranks behind it. */
#include "context/context.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

int conr_open(const char *device_name, int threads, conr **out) {
    *out = NULL;
    conr *c = calloc(1, sizeof *c);
    if (!c) return fail_memory("context", sizeof *c);
    int rc = ranks_open(&c->ranks), local = c->ranks.local, locals = c->ranks.locals;
    if (rc == 0) rc = device_open_shared(device_name, threads, local, locals, &c->dev);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->host = c->dev;
    if (!c->dev->host_memory &&
        (rc = device_open_shared("cpu", threads, local, locals, &c->host)) < 0) {
        device_close(c->dev);
        free(c);
        return rc;
    }
    if (c->dev->words)
        snprintf(c->words, sizeof c->words, "%s", c->dev->words);
    else
        snprintf(c->words, sizeof c->words, "%s, %d thread%s", c->dev->name, c->dev->threads,
                 c->dev->threads == 1 ? "" : "s");
    *out = c;
    return 0;
}

void conr_close(conr *c) {
    if (!c) return;
    if (c->host != c->dev) device_close(c->host);
    device_close(c->dev);
    ranks_close(&c->ranks);
    free(c);
}

int conr_rank(int *count) {
    ranks r;
    int rc = ranks_open(&r);
    if (count) *count = r.count;
    return rc < 0 ? rc : r.rank;
}

const char *conr_device(const conr *c) { return c->words; }

void conr_set_together(conr *c, int yes) { c->together = yes; }

ranks *context_together(conr *c) { return c->together && c->ranks.talks ? &c->ranks : NULL; }

int conr_set_stream(conr *c, void *stream) {
    if (c->dev->op.set_stream) return c->dev->op.set_stream(c->dev, stream);
    return fail(CONR_EINVAL, "stream: %s has none; open a cuda device", c->dev->name);
}

int context_arrays_on_device(const conr *c, const void *const *arrays, int n) {
    int on_device = 0, on_host = 0;
    if (!c->dev->op.reaches) return 0;
    for (int i = 0; i < n; i++) {
        int rc = arrays[i] ? c->dev->op.reaches(c->dev, arrays[i]) : 0;
        if (rc < 0) return rc;
        on_device += rc, on_host += arrays[i] && !rc;
    }
    if (on_device && on_host)
        return fail(CONR_EINVAL,
                    "arrays: %d in GPU memory, %d in host memory; give all arrays of a call in the "
                    "same memory",
                    on_device, on_host);
    return on_device > 0;
}

void conr_set_progress(conr *c, conr_on_progress *on_progress, void *user) {
    c->dev->on_progress = c->host->on_progress = on_progress;
    c->dev->progress_user = c->host->progress_user = user;
}
