/* parts.c: where new images go: the parts of the edited clusters, each with a centroid.
 *
 * The images of a part that are still in the cluster that owns it give its centroid; as long as none
 * was moved away or marked, a cluster of the run keeps the centroid that the run found.  The images of
 * a part that were moved to another cluster are a part of that one: what is like them follows them.
 * Marked images count nowhere, and a part without images is none. */
#include "edits/edits.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    int32_t part, cluster;
    int64_t image;
} member;

static int by_part(const void *a, const void *b) {
    const member *x = a, *y = b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    if (x->cluster != y->cluster) return x->cluster < y->cluster ? -1 : 1;
    return (x->image > y->image) - (x->image < y->image);
}

/* The images that count, [*m], by part and cluster; NULL: no memory. */
static member *list_members(const conr_edits *e, int64_t *m) {
    member *all = malloc(((size_t)e->n + 1) * sizeof *all);
    *m = 0;
    for (int64_t i = 0; all && i < e->n; i++)
        if (!e->mark[i]) all[(*m)++] = (member){e->part[i], e->cluster[i], i};
    if (all) qsort(all, (size_t)*m, sizeof *all, by_part);
    return all;
}

static void mean_of(const member *of, int64_t m, const float *features, size_t d, double *sum,
                    float *out) {
    memset(sum, 0, d * sizeof *sum);
    for (int64_t j = 0; j < m; j++)
        for (size_t k = 0; k < d; k++) sum[k] += features[(size_t)of[j].image * d + k];
    for (size_t k = 0; k < d; k++) out[k] = (float)(sum[k] / (double)m);
}

int edits_parts(const conr_edits *e, const float *centroids, const float *features, int64_t d,
                float **out, int32_t **owner, int *P) {
    int rc = 0;
    size_t width = (size_t)d, most = (size_t)e->K; /* a cluster of the run may have no image */
    int64_t m = 0, *size = calloc((size_t)e->K + 1, sizeof *size); /* as the run found them */
    double *sum = calloc(width, sizeof *sum);
    member *all = list_members(e, &m);
    *P = 0, *out = NULL, *owner = NULL;
    if (!size || !sum || !all) TRY(fail_memory("clusters", 16.0 * (double)e->n));
    for (int64_t i = 0; i < e->n; i++) size[e->untouched[i]]++;
    for (int64_t i = 0; i < m; i++)
        most += i == 0 || all[i].part != all[i - 1].part || all[i].cluster != all[i - 1].cluster;
    *out = memory_new("clusters", most * width, sizeof **out);
    *owner = memory_new("clusters", most, sizeof **owner);
    TRY(*out && *owner ? 0 : CONR_ENOMEM);
    for (int64_t p = 0, at = 0; p < e->n_parts; p++) {
        if (p < e->K && size[p] == 0 && e->owner[p] >= 0) {
            memcpy(*out + (size_t)*P * width, centroids + (size_t)p * width, width * sizeof **out);
            (*owner)[(*P)++] = e->owner[p];
        }
        for (int64_t end; at < m && all[at].part == p; at = end) {
            int32_t k = all[at].cluster;
            for (end = at + 1; end < m && all[end].part == p && all[end].cluster == k;) end++;
            float *to = *out + (size_t)*P * width;
            if (p < e->K && k == e->owner[p] && end - at == size[p])
                memcpy(to, centroids + (size_t)p * width, width * sizeof *to);
            else
                mean_of(all + at, end - at, features, width, sum, to);
            (*owner)[(*P)++] = k;
        }
    }
    if (*P == 0)
        TRY(fail(CONR_EINVAL, "%s: every image is marked as outlier or wrong; undo some", e->run));
done:
    free(size), free(sum), free(all);
    if (rc < 0) free(*out), free(*owner), *out = NULL, *owner = NULL;
    return rc;
}
