/* gather_neighbors.c: the Euclidean and the contextually affinitive neighbors of the images, their
 * purity, and the images whose neighbors are shown. */
#include "report/gather_parts.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "report/order.h"

#include <stdlib.h>
#include <string.h>

enum {
    TELLING = 6, /* images shown because their two neighborhoods differ most */
    DRAWN = 4    /* and images drawn at random */
};

/* ---- the search ------------------------------------------------------------------------------ */

int sample_draw(const folder *f, int most, sample *s) {
    s->n = f->n < most ? (int)f->n : most;
    s->id = memory_new("sample", (size_t)s->n, sizeof *s->id);
    if (!s->id) return CONR_ENOMEM;
    rng_order o = rng_order_make((uint64_t)f->o.seed, 0, (uint32_t)f->n);
    for (int i = 0; i < s->n; i++)
        s->id[i] = s->n < f->n ? (int64_t)rng_order_at(&o, (uint32_t)i) : i;
    qsort(s->id, (size_t)s->n, sizeof *s->id, by_id);
    s->features = f->features;
    if (s->n == f->n) return 0;
    s->owned = memory_new("sample", (size_t)s->n * f->d, sizeof *s->owned);
    if (!s->owned) return CONR_ENOMEM;
    for (int i = 0; i < s->n; i++)
        memcpy(s->owned + (size_t)i * f->d, f->features + s->id[i] * f->d,
               (size_t)f->d * sizeof *s->owned);
    s->features = s->owned;
    return 0;
}

void sample_free(sample *s) { free(s->id), free(s->owned); }

int lists_find(conr *c, const folder *f, const sample *s, int wide, lists *l) {
    int rc = 0;
    conr_neighbors_options o = conr_neighbors_defaults();
    l->k = s->n < REPORT_PURITY + 1 ? s->n : REPORT_PURITY + 1;
    l->wide = wide > l->k ? wide : l->k;
    for (int kind = 0; kind < 2; kind++) {
        o.local = kind == 0;
        o.k = kind == 0 ? l->wide : l->k;
        if (kind == 1) {
            o.k1 = f->o.k1, o.k2 = f->o.k2, o.layers = f->o.layers;
            o.alpha = f->o.alpha, o.resymmetrize = f->o.resymmetrize;
        }
        l->near[kind] = memory_new("neighbors", (size_t)s->n * o.k, sizeof **l->near);
        TRY(l->near[kind] ? 0 : CONR_ENOMEM);
        TRY(conr_neighbors(c, s->features, s->n, f->d, &o, l->near[kind]));
    }
done:
    return rc;
}

const int32_t *lists_row(const lists *l, int kind, int i) {
    return l->near[kind] + (size_t)i * (kind == 0 ? l->wide : l->k);
}

void lists_free(lists *l) { free(l->near[0]), free(l->near[1]); }

/* ---- what is shown of it --------------------------------------------------------------------- */

int gather_purity(report *r, const sample *s, const lists *l) {
    int rc = 0, k = l->k;
    double purity[REPORT_PURITY + 1];
    int32_t *ids = memory_new("purity", (size_t)s->n * k, sizeof *ids);
    int64_t *label = memory_new("purity", (size_t)s->n, sizeof *label);
    unsigned char *kept = malloc((size_t)s->n);
    if (!ids || !label || !kept) TRY(fail_memory("purity", 4.0 * s->n * k));
    for (int i = 0; i < s->n; i++) {
        label[i] = r->f->label[s->id[i]];
        kept[i] = r->kept[s->id[i]];
    }
    for (int which = 0; which < 4 && k > 1; which++) {
        for (int i = 0; i < s->n; i++)
            memcpy(ids + (size_t)i * k, lists_row(l, which & 1, i), (size_t)k * sizeof *ids);
        TRY(conr_purity(ids, s->n, k, label, which & 2 ? kept : NULL, purity));
        for (int at = 1; at < k; at++) TRY(series_add(&r->purity[which], at, purity[at - 1]));
    }
done:
    free(ids), free(label), free(kept);
    return rc;
}

/* How much an image shows of the difference between its two neighborhoods: how many more neighbors
 * of its class ConAff finds or, without labels, how many that are not among the nearest. */
static double telling(const report *r, const sample *s, const lists *l, int i, int shown) {
    const int32_t *near = lists_row(l, 0, i), *affine = lists_row(l, 1, i);
    int fresh = 0, right[2] = {0};
    int64_t own = r->labeled ? r->f->label[s->id[i]] : -1;
    for (int at = 1; at <= shown; at++) {
        bool among = false;
        for (int b = 1; b <= shown; b++) among = among || near[b] == affine[at];
        fresh += !among;
        if (own >= 0) {
            right[0] += r->f->label[s->id[near[at]]] == own;
            right[1] += r->f->label[s->id[affine[at]]] == own;
        }
    }
    return own >= 0 ? right[1] - right[0] + 0.01 * fresh : fresh;
}

static void add_query(report *r, const sample *s, const lists *l, int i, int shown) {
    report_query *q = &r->query[r->n_queries++];
    q->id = s->id[i];
    for (int kind = 0; kind < 2; kind++)
        for (int at = 0; at < REPORT_NEAR; at++)
            q->near[kind][at] = at < shown ? s->id[lists_row(l, kind, i)[at + 1]] : -1;
}

int gather_queries(report *r, const sample *s, const lists *l) {
    int rc = 0, shown = l->k - 1 < REPORT_NEAR ? l->k - 1 : REPORT_NEAR;
    ranked *list = malloc((size_t)s->n * sizeof *list);
    bool *used = calloc((size_t)r->K, sizeof *used);
    r->query = calloc(TELLING + DRAWN, sizeof *r->query);
    if (!list || !used || !r->query) TRY(fail_memory("neighbors", 16.0 * s->n));
    if (shown < 1) goto done;
    for (int i = 0; i < s->n; i++) list[i] = (ranked){-telling(r, s, l, i, shown), i};
    qsort(list, (size_t)s->n, sizeof *list, by_rank);
    int clusters = 0;
    for (int i = 0; i < s->n && r->n_queries < TELLING; i++) {
        int k = r->f->cluster[s->id[list[i].id]];
        if (used[k] && clusters < r->K) continue;
        clusters += !used[k];
        used[k] = true;
        add_query(r, s, l, (int)list[i].id, shown);
    }
    r->n_telling = r->n_queries;
    rng_order o = rng_order_make((uint64_t)r->f->o.seed, 1, (uint32_t)s->n);
    for (int i = 0; i < s->n && r->n_queries < r->n_telling + DRAWN; i++)
        add_query(r, s, l, (int)rng_order_at(&o, (uint32_t)i), shown);
done:
    free(list), free(used);
    return rc;
}
