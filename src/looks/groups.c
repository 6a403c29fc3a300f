/* groups.c: copies as groups, each around the image to keep.
 *
 * Pairs join groups, the most alike first.  Being alike is not handed on for ever: simple pictures
 * would form chains whose ends have little in common.  So two groups become one only if the images to
 * keep of both are alike, too. */
#include "looks/looks.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

static int32_t root_of(int32_t *up, int32_t i) {
    while (up[i] != i) i = up[i] = up[up[i]];
    return i;
}

/* Whether a is rather to be kept than b: more pixels, then sharper, then more bytes, then earlier.
 * Sharpness is measured at the same size, so a copy that was enlarged does not win by it. */
static bool better(const conr_looks *l, int64_t a, int64_t b) {
    const conr_look *x = &l->look[a].about, *y = &l->look[b].about;
    int64_t p = (int64_t)x->width * x->height, q = (int64_t)y->width * y->height;
    if (p != q) return p > q;
    if (fabsf(x->sharpness - y->sharpness) > 0.02f * y->sharpness)
        return x->sharpness > y->sharpness;
    if (x->bytes != y->bytes) return x->bytes > y->bytes;
    return a < b;
}

/* The groups being made. */
typedef struct groups {
    conr_looks *l;
    int32_t *up;   /* [n] towards the root of the group */
    int32_t *keep; /* [n] of a root: the image to keep */
} groups;

static void join(groups *g, int32_t a, int32_t b) {
    a = root_of(g->up, a), b = root_of(g->up, b);
    int32_t to = a < b ? a : b, from = a < b ? b : a;
    if (to == from) return;
    g->up[from] = to;
    if (better(g->l, g->keep[from], g->keep[to])) g->keep[to] = g->keep[from];
}

/* How alike the whole of one is to the nearest window of the other, by its hash. */
static float alike_one_way(const look *a, const look *b) {
    float own[LOOK_OWN];
    int best = 0, least = 64;
    for (int w = 0; w < LOOK_WINDOWS; w++) {
        int apart = __builtin_popcountll(a->hash[0] ^ b->hash[w]);
        if (apart < least) least = apart, best = w;
    }
    return look_own(a, own) ? look_compare(a, own, b, look_windows()[best]) : 0;
}

/* Joins the groups of a pair, if the images to keep of both are alike. */
static bool join_alike(groups *g, const look_pair *p, double threshold) {
    int32_t a = g->keep[root_of(g->up, p->first)], b = g->keep[root_of(g->up, p->second)];
    bool known = (a == p->first && b == p->second) || a == b;
    if (!known && alike_one_way(&g->l->look[a], &g->l->look[b]) < threshold &&
        alike_one_way(&g->l->look[b], &g->l->look[a]) < threshold)
        return false;
    join(g, p->first, p->second);
    return true;
}

typedef struct summed {
    uint64_t sum;
    int64_t bytes;
    int32_t image;
} summed;

static int by_sum(const void *a, const void *b) {
    const summed *x = a, *y = b;
    if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->image > y->image) - (x->image < y->image);
}

/* Images with the same bytes; *same: [n], whether there is another. */
static int join_identical(groups *g, unsigned char *same) {
    conr_looks *l = g->l;
    summed *all = malloc(((size_t)l->n + 1) * sizeof *all);
    int64_t m = 0;
    if (!all) return fail_memory("duplicates", 24.0 * (double)l->n);
    for (int64_t i = 0; i < l->n; i++)
        if (l->look[i].about.readable)
            all[m++] = (summed){l->look[i].sum, l->look[i].about.bytes, (int32_t)i};
    qsort(all, (size_t)m, sizeof *all, by_sum);
    for (int64_t j = 1; j < m; j++)
        if (all[j].sum == all[j - 1].sum && all[j].bytes == all[j - 1].bytes) {
            join(g, all[j].image, all[j - 1].image);
            same[all[j].image] = same[all[j - 1].image] = 1;
            l->look[all[j].image].again = true;
        }
    free(all);
    return 0;
}

int conr_duplicates(conr *c, conr_looks *l, double threshold, conr_duplicate *out, int *count) {
    int rc = 0;
    groups g = {l, memory_new("duplicates", (size_t)l->n, sizeof *g.up),
                memory_new("duplicates", (size_t)l->n, sizeof *g.keep)};
    int32_t *size = calloc((size_t)l->n + 1, sizeof *size);
    unsigned char *same = calloc((size_t)l->n + 1, 1);
    *count = 0;
    if (!g.up || !g.keep || !size || !same) TRY(fail_memory("duplicates", 13.0 * (double)l->n));
    if (!(threshold >= LOOK_LEAST - 1e-6 && threshold <= 1))
        TRY(fail(CONR_EINVAL, "threshold: %g is out of range; give %g to 1", threshold,
                 (double)LOOK_LEAST));
    for (int64_t i = 0; i < l->n; i++) {
        g.up[i] = g.keep[i] = (int32_t)i;
        out[i] = (conr_duplicate){-1, -1, 0, 0};
    }
    TRY(join_identical(&g, same));
    if (!l->paired && threshold < 1) TRY(looks_pair(c, l));
    for (int64_t j = 0; threshold < 1 && j < l->n_pairs; j++) {
        const look_pair *p = &l->pair[j];
        if (p->similarity < threshold || !join_alike(&g, p, threshold)) continue;
        out[p->first].similarity = fmaxf(out[p->first].similarity, p->similarity);
        out[p->second].similarity = fmaxf(out[p->second].similarity, p->similarity);
    }
    for (int64_t i = 0; i < l->n; i++) size[root_of(g.up, (int32_t)i)]++;
    for (int64_t i = 0; i < l->n; i++) {
        int32_t root = root_of(g.up, (int32_t)i);
        if (size[root] < 2) continue;
        out[i].group =
            root == i ? (*count)++ : out[root].group; /* a root is the first of its own */
        out[i].keep = g.keep[root];
        out[i].identical = same[i];
        if (same[i]) out[i].similarity = 1;
    }
done:
    free(g.up), free(g.keep), free(size), free(same);
    return rc;
}
