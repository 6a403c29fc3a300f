/* swap.c: one step of local search on a finished run: a center jumps to a place that Lloyd's
 * iteration, which moves centers only a little at a time, cannot reach. */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64 }; /* of rows, summed separately; fixed: sums must not depend on threads */

typedef struct swap {
    const points *p;
    int K, slots;  /* slots: centers in whole panels of mr */
    float *tall;   /* panels of the centers */
    float *half;   /* [slots] */
    int32_t *slot; /* [n, whole panels]: the nearest center */
    float *d2;     /* [n, whole panels]: to it */
    double *part;  /* [BLOCKS][K][2]: the objective of a cluster; how much more its rows would cost
                      without its center */
} swap;

static int pack_centers(swap *s, const double *mean) {
    const points *p = s->p;
    int d = p->d;
    float *w = memory_new("k-means", (size_t)(s->slots + 1) * d, sizeof *w);
    if (!w) return CONR_ENOMEM;
    memset(w, 0, (size_t)s->slots * d * sizeof *w);
    float *centroid = w + (size_t)s->slots * d;
    for (int c = 0; c < s->slots; c++) s->half[c] = INFINITY;
    for (int c = 0; c < s->K; c++) {
        for (int j = 0; j < d; j++) centroid[j] = (float)(mean[(size_t)c * d + j] + p->shift[j]);
        s->half[c] = points_center(p, centroid, w + (size_t)c * d);
    }
    gemm_pack_all(w, s->slots, d, p->kernel->mr, 1, s->tall);
    free(w);
    return 0;
}

/* The nearest two centers of each row of block b. */
static void visit_block(const swap *s, int b) {
    const points *p = s->p;
    const gemm_kernel *g = p->kernel;
    long panels = (p->n + g->nr - 1) / g->nr;
    int first = (int)(panels * b / BLOCKS) * g->nr, last = (int)(panels * (b + 1) / BLOCKS) * g->nr;
    double *part = s->part + (size_t)b * 2 * s->K;
    memset(part, 0, 2 * (size_t)s->K * sizeof *part);
    for (int i = first; i < last; i += g->nr) {
        float score[GEMM_NR], next[GEMM_NR], tile[GEMM_TILE];
        points_best best = {score, next, s->slot + i};
        points_best_clear(p, &best);
        for (int c = 0; c < s->slots; c += g->mr) {
            gemm_tile(g, p->d, s->tall + (size_t)c * p->d, p->wide + (size_t)i * p->d, tile);
            points_offer(p, tile, s->half + c, c, g->mr, &best);
        }
        for (int r = 0; r < g->nr && i + r < p->n; r++) {
            float d2 = p->square[i + r] - 2 * score[r];
            s->d2[i + r] = d2 > 0 ? d2 : 0;
            part[2 * s->slot[i + r]] += s->d2[i + r];
            part[2 * s->slot[i + r] + 1] += 2 * ((double)score[r] - next[r]);
        }
    }
}

/* *from: the cluster with the rank-th largest objective; *center: another, the least loss. */
static void choose(const swap *s, int rank, int *from, int *center) {
    double *all = s->part;
    for (int b = 1; b < BLOCKS; b++)
        for (int k = 0; k < 2 * s->K; k++) all[k] += s->part[(size_t)b * 2 * s->K + k];
    *from = 0;
    for (int k = 0; k < s->K; k++) {
        int before = 0;
        for (int l = 0; l < s->K; l++)
            before += all[2 * l] > all[2 * k] || (all[2 * l] == all[2 * k] && l < k);
        if (before == rank % s->K) *from = k;
    }
    *center = *from == 0;
    for (int k = 0; k < s->K; k++)
        if (k != *from && all[2 * k + 1] < all[2 * *center + 1]) *center = k;
}

/* A row of a cluster, drawn in proportion to d2; -1 if all are zero. */
static int draw(const swap *s, int cluster, rng *random) {
    int row = -1;
    double at = rng_float(random) * s->part[2 * cluster];
    for (int i = 0; i < s->p->n; i++) {
        if (s->slot[i] != cluster || s->d2[i] == 0) continue;
        row = i;
        if (at < s->d2[i]) break;
        at -= s->d2[i];
    }
    return row;
}

int swap_center(device *dev, const points *p, int K, uint64_t seed, int round, int rank,
                double *mean) {
    int rc = 0, mr = p->kernel->mr, nr = p->kernel->nr, from, center;
    size_t rounded = (size_t)(p->n + nr - 1) / nr * nr;
    swap s = {.p = p, .K = K, .slots = (K + mr - 1) / mr * mr};
    rng random = rng_at(seed, (uint32_t)round, 1, RNG_KMEANS);
    s.tall = memory_new("k-means", (size_t)s.slots * p->d, sizeof *s.tall);
    s.half = memory_new("k-means", (size_t)s.slots, sizeof *s.half);
    s.slot = memory_new("k-means", rounded, sizeof *s.slot);
    s.d2 = memory_new("k-means", rounded, sizeof *s.d2);
    s.part = memory_new("k-means", 2 * (size_t)BLOCKS * K, sizeof *s.part);
    TRY(s.tall && s.half && s.slot && s.d2 && s.part ? 0 : CONR_ENOMEM);
    TRY(pack_centers(&s, mean));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int b = 0; b < BLOCKS; b++) visit_block(&s, b);
    choose(&s, rank, &from, &center);
    int row = draw(&s, from, &random);
    for (int j = 0; row >= 0 && j < p->d; j++)
        mean[(size_t)center * p->d + j] = p->x[(size_t)row * p->d + j];
done:
    free(s.tall), free(s.half), free(s.slot), free(s.d2), free(s.part);
    return rc;
}
