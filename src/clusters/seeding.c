/* seeding.c: greedy k-means++, all runs side by side.
 *
 * A step of one run compares a handful of candidates with every row: too few to keep the
 * micro-kernel busy, and every row would be read again for each run.  So the runs take their steps
 * together, and the candidates of all of them go through one pass over the rows. */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_PANELS = 32, /* of rows, summed together; fixed: sums must not depend on threads */
    MOST_DISTANCES = 24 << 20, /* in memory: further runs wait for the next batch */
    SMALL = 4096               /* rows for which one thread is enough */
};

typedef struct seeding {
    const points *p;
    int K, runs, trials, blocks;
    int candidates; /* of this step: runs * trials, but runs * 1 in the first */
    int32_t *row;   /* [runs*trials]: the candidates */
    float *tall;    /* their panels */
    float *half;    /* [runs*trials, whole panels] */
    float **d2;     /* [runs*trials][n, whole panels]: to the nearest center, if the candidate
                       became one */
    float **best;   /* [runs][n, whole panels]: as it is now; d2 and best swap their buffers */
    double *part;   /* [runs*trials][blocks]: sums of d2 */
    double *sum;    /* [runs][blocks]: of best */
    rng *random;    /* [runs] */
} seeding;

/* d2 of one block of rows for every candidate, and their sums. */
static void visit_block(const seeding *s, int block) {
    const points *p = s->p;
    const gemm_kernel *g = p->kernel;
    float tile[GEMM_TILE];
    int first = block * BLOCK_PANELS * g->nr, last = first + BLOCK_PANELS * g->nr;
    for (int c = 0; c < s->candidates; c++) s->part[(size_t)c * s->blocks + block] = 0;
    for (int i = first; i < last && i < p->n; i += g->nr)
        for (int c0 = 0; c0 < s->candidates; c0 += g->mr) {
            gemm_tile(g, p->d, s->tall + (size_t)c0 * p->d, p->wide + (size_t)i * p->d, tile);
            for (int c = c0; c < c0 + g->mr && c < s->candidates; c++) {
                const float *dot = tile + (c - c0) * g->nr;
                const float *old = s->best[c * s->runs / s->candidates] + i;
                float half = s->half[c], *to = s->d2[c] + i;
                double sum = 0;
                for (int r = 0; r < g->nr; r++) {
                    float square = p->square[i + r], d2 = square - 2 * (dot[r] - half);
                    if (d2 < points_slack(square, half))
                        d2 = 0; /* the same point, up to rounding */
                    to[r] = d2 < old[r] ? d2 : old[r];
                    if (i + r < p->n) sum += to[r];
                }
                s->part[(size_t)c * s->blocks + block] += sum;
            }
        }
}

static double total(const double *part, int blocks) {
    double sum = 0;
    for (int b = 0; b < blocks; b++) sum += part[b];
    return sum;
}

/* A row drawn in proportion to d2; uniformly if all are zero. */
static int draw(const seeding *s, int run) {
    const double *sum = s->sum + (size_t)run * s->blocks;
    const float *d2 = s->best[run];
    int n = s->p->n, rows = BLOCK_PANELS * s->p->kernel->nr, block = 0;
    double all = total(sum, s->blocks);
    if (!(all > 0)) return (int)rng_below(&s->random[run], (uint32_t)n);
    /* 53 bits: with 24 the tail of a large set could never be drawn */
    double high = rng_bits(&s->random[run]) >> 5, low = rng_bits(&s->random[run]) >> 6;
    double at = (high * 67108864 + low) / 9007199254740992.0 * all;
    for (; block < s->blocks - 1 && at >= sum[block]; block++) at -= sum[block];
    int i = block * rows, end = i + rows < n ? i + rows : n, last = -1;
    for (; i < end; i++) {
        if (d2[i] > 0) last = i;
        if (d2[i] > 0 && at < d2[i]) return i;
        at -= d2[i];
    }
    /* rounding led past the end of the block: take its last row that is not a center, or, if it has
     * none, the first in the set */
    for (i = 0; last < 0; i++)
        if (d2[i] > 0) last = i;
    return last;
}

/* Packs the candidates into panels, then computes all d2. */
static void visit(const device *dev, seeding *s) {
    const points *p = s->p;
    const gemm_kernel *g = p->kernel;
    float *rows = s->tall + gemm_panels_size(s->runs * s->trials, p->d, g->mr);
    for (int c = 0; c < s->candidates; c++) {
        memcpy(rows + (size_t)c * p->d, p->x + (size_t)s->row[c] * p->d,
               (size_t)p->d * sizeof *rows);
        s->half[c] = p->metric == CONR_COSINE ? 0 : p->square[s->row[c]] / 2;
    }
    gemm_pack_all(rows, s->candidates, p->d, g->mr, 1, s->tall);
#pragma omp parallel for num_threads(p->n < SMALL ? 1 : dev->threads) schedule(dynamic)
    for (int b = 0; b < s->blocks; b++) visit_block(s, b);
}

/* The best candidate of a run becomes a center. */
static int32_t take_best(seeding *s, int run) {
    int per_run = s->candidates / s->runs, best = run * per_run;
    double least = INFINITY;
    for (int c = run * per_run; c < (run + 1) * per_run; c++) {
        double sum = total(s->part + (size_t)c * s->blocks, s->blocks);
        if (sum < least) least = sum, best = c;
    }
    float *spare = s->best[run];
    s->best[run] = s->d2[best];
    s->d2[best] = spare;
    memcpy(s->sum + (size_t)run * s->blocks, s->part + (size_t)best * s->blocks,
           (size_t)s->blocks * sizeof *s->sum);
    return s->row[best];
}

static int choose_batch(const device *dev, seeding *s, int32_t *chosen) {
    int n = s->p->n;
    size_t rounded = (size_t)(n + s->p->kernel->nr - 1) / s->p->kernel->nr * s->p->kernel->nr;
    for (int run = 0; run < s->runs; run++)
        for (size_t i = 0; i < rounded; i++) s->best[run][i] = INFINITY;
    for (int step = 0; step < s->K; step++) {
        int per_run = step ? s->trials : 1;
        s->candidates = s->runs * per_run;
        for (int c = 0; c < s->candidates; c++)
            s->row[c] = step ? draw(s, c / per_run) : (int)rng_below(&s->random[c], (uint32_t)n);
        visit(dev, s);
        for (int run = 0; run < s->runs; run++)
            chosen[(size_t)run * s->K + step] = take_best(s, run);
    }
    return 0;
}

int seeding_choose(device *dev, const points *p, int K, int first, int runs, uint64_t seed,
                   int32_t *chosen) {
    int rc = 0, nr = p->kernel->nr;
    if (runs == 0) return 0;
    seeding s = {.p = p, .K = K, .trials = 2 + (int)log(K)};
    size_t rounded = (size_t)(p->n + nr - 1) / nr * nr;
    size_t batch = MOST_DISTANCES / (rounded * (s.trials + 1));
    if (batch < 1) batch = 1;
    if (batch > (size_t)runs) batch = (size_t)runs;
    s.blocks = (p->n + BLOCK_PANELS * nr - 1) / (BLOCK_PANELS * nr);
    size_t most = batch * s.trials, padded = most + GEMM_MR;
    size_t panels = gemm_panels_size((int)most, p->d, p->kernel->mr);
    float *memory = memory_new("k-means", (most + batch) * rounded, sizeof *memory);
    s.tall = memory_new("k-means", panels + most * p->d, sizeof *s.tall);
    s.half = memory_new("k-means", padded, sizeof *s.half);
    s.row = memory_new("k-means", most, sizeof *s.row);
    s.d2 = memory_new("k-means", most, sizeof *s.d2);
    s.best = memory_new("k-means", batch, sizeof *s.best);
    s.part = memory_new("k-means", most * s.blocks, sizeof *s.part);
    s.sum = memory_new("k-means", batch * s.blocks, sizeof *s.sum);
    s.random = memory_new("k-means", batch, sizeof *s.random);
    TRY(memory && s.tall && s.half && s.row && s.d2 && s.best && s.part && s.sum && s.random
            ? 0
            : CONR_ENOMEM);
    for (size_t c = 0; c < most; c++) s.d2[c] = memory + c * rounded;
    for (size_t r = 0; r < batch; r++) s.best[r] = memory + (most + r) * rounded;
    for (int done = 0; done < runs; done += s.runs) {
        s.runs = runs - done < (int)batch ? runs - done : (int)batch;
        for (int r = 0; r < s.runs; r++)
            s.random[r] = rng_at(seed, (uint32_t)(first + done + r), 0, RNG_KMEANS);
        TRY(choose_batch(dev, &s, chosen + (size_t)done * K));
    }
done:
    free(memory), free(s.tall), free(s.half), free(s.row), free(s.d2), free(s.best);
    free(s.part), free(s.sum), free(s.random);
    return rc;
}
