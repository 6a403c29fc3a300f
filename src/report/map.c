/* map.c: the map of any features, as the report draws it. */
#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"
#include "report/tsne.h"

#include <stdlib.h>

static int on_progress(int done, int total, void *user) {
    return device_report(user, "drawing the map", done, total) < 0;
}

int conr_map(conr *c, const float *features, int64_t n, int64_t d, uint64_t seed, float *xy) {
    enum { MOST = 20000 };
    int rc = 0;
    tsne_options o = tsne_defaults();
    conr_neighbors_options near = conr_neighbors_defaults();
    int32_t *ids = NULL;
    if (n < 1 || n > MOST || d < 1)
        TRY(fail(CONR_EINVAL, "map: %lld rows are out of range; give 1 to %d", (long long)n, MOST));
    near.local = 1, near.k = tsne_width((int)n, o.perplexity);
    o.seed = seed, o.threads = c->host->threads, o.progress = on_progress, o.user = c->dev;
    ids = memory_new("map", (size_t)n * (size_t)near.k, sizeof *ids);
    TRY(ids ? 0 : CONR_ENOMEM);
    TRY(conr_neighbors(c, features, n, d, &near, ids));
    TRY(tsne(features, (int)n, (int)d, ids, near.k, &o, xy));
done:
    free(ids);
    return rc;
}
