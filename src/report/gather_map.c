/* gather_map.c: the positions of the points of the map, by t-SNE. */
#include "report/gather_parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "report/tsne.h"

#include <stdlib.h>
#include <string.h>

static int on_progress(int done, int total, void *user) {
    return device_report(user, "drawing the map", done, total) < 0;
}

int gather_map(conr *c, report *r, const sample *s, const int32_t *near, int wide, int k) {
    int rc = 0;
    tsne_options o = tsne_defaults();
    int32_t *fit = NULL;
    o.seed = (uint64_t)r->f->o.seed;
    o.threads = c->host->threads;
    o.progress = on_progress, o.user = c->dev;
    r->n_points = s->n;
    r->point = memory_new("map", (size_t)s->n, sizeof *r->point);
    r->xy = memory_new("map", 2 * (size_t)s->n, sizeof *r->xy);
    fit = memory_new("map", (size_t)s->n * k, sizeof *fit);
    TRY(r->point && r->xy && fit ? 0 : CONR_ENOMEM);
    memcpy(r->point, s->id, (size_t)s->n * sizeof *s->id);
    for (int i = 0; i < s->n; i++)
        memcpy(fit + (size_t)i * k, near + (size_t)i * wide, (size_t)k * sizeof *fit);
    TRY(tsne(s->features, s->n, (int)r->f->d, fit, k, &o, r->xy));
done:
    free(fit);
    return rc;
}

int gather_map_neighbors(report *r, const lists *l) {
    int k = 1 + REPORT_NEAR;
    if (l->k < k) return 0;
    for (int kind = 0; kind < 2; kind++) {
        r->map_near[kind] = memory_new("map", (size_t)r->n * k, sizeof **r->map_near);
        if (!r->map_near[kind]) return CONR_ENOMEM;
        for (int64_t i = 0; i < r->n; i++)
            memcpy(r->map_near[kind] + i * k, lists_row(l, kind, (int)i),
                   (size_t)k * sizeof **r->map_near);
    }
    return 0;
}
