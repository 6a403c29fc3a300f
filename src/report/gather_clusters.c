/* gather_clusters.c: the sizes of the clusters, the images shown for each, and the scores. */
#include "report/gather_parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "report/order.h"

#include <math.h>
#include <stdlib.h>

enum { SHEET_CLUSTERS = 200 }; /* clusters that are shown: the largest */

static int take(const ranked *list, int64_t n, int most, int64_t **out, int *count) {
    *count = n < most ? (int)n : most;
    *out = memory_new("clusters", (size_t)*count + 1, sizeof **out);
    for (int i = 0; *out && i < *count; i++) (*out)[i] = list[i].id;
    return *out ? 0 : CONR_ENOMEM;
}

int gather_clusters(report *r) {
    int rc = 0, central = r->K <= 20 ? 24 : r->K <= 60 ? 16 : 10, boundary = central / 2;
    const folder *f = r->f;
    ranked *list = malloc((size_t)r->n * sizeof *list), *order = NULL;
    r->cluster = calloc((size_t)r->K, sizeof *r->cluster);
    order = calloc((size_t)r->K, sizeof *order);
    if (!list || !order || !r->cluster) TRY(fail_memory("clusters", 16.0 * (double)r->n));
    for (int64_t i = 0; i < r->n; i++) r->cluster[f->cluster[i]].size++;
    for (int k = 0; k < r->K; k++) order[k] = (ranked){-(double)r->cluster[k].size, k};
    qsort(order, (size_t)r->K, sizeof *order, by_rank);
    for (int k = 0; k < r->K && k < SHEET_CLUSTERS; k++) {
        report_cluster *c = &r->cluster[order[k].id];
        int64_t m = 0, own = c->size;
        for (int64_t i = 0; i < r->n; i++)
            if (f->cluster[i] == order[k].id) list[m++] = (ranked){f->distance[i], i};
        qsort(list, (size_t)own, sizeof *list, by_rank);
        TRY(take(list, own, central, &c->central, &c->n_central));
        for (int64_t i = 0; i < own; i++) list[i].value = -f->boundary[list[i].id];
        qsort(list, (size_t)own, sizeof *list, by_rank);
        if (own > central) TRY(take(list, own, boundary, &c->boundary, &c->n_boundary));
    }
done:
    free(list), free(order);
    return rc;
}

/* ---- scores ---------------------------------------------------------------------------------- */

int gather_scores(conr *c, report *r) {
    int rc = 0;
    const folder *f = r->f;
    int64_t *cluster = memory_new("scores", (size_t)r->n, sizeof *cluster), left;
    r->kept = malloc((size_t)r->n);
    if (!cluster || !r->kept) TRY(fail_memory("scores", 9.0 * (double)r->n));
    for (int64_t i = 0; i < r->n; i++) cluster[i] = f->cluster[i];
    r->labeled = f->label != NULL;
    r->silhouette = NAN;
    int used = 0;
    for (int k = 0; k < r->K; k++) used += r->cluster[k].size > 0;
    if (r->labeled) {
        TRY(conr_metrics(f->label, cluster, r->n, &r->scores));
        TRY(conr_confusion_make(f->label, cluster, r->n, &r->confusion));
    } else if (used > 1) {
        TRY(conr_silhouette(c, f->features, r->n, f->d, CONR_COSINE, f->cluster,
                            (uint64_t)f->o.seed, &r->silhouette, NULL));
    }
    r->fraction = f->o.fr0 > 0 && f->o.fr0 < 1 ? f->o.fr0 : 0.8;
    left = conr_boundary_keep(f->boundary, r->n, r->fraction, r->kept, NULL);
    TRY(left < 0 ? (int)left : 0);
    r->n_boundary = r->n - left;
done:
    free(cluster);
    return rc;
}
