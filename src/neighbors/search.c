/* search.c: exact nearest neighbors by blocks of S = F F^T, which is never stored: for any n.
 *
 * S is symmetric, so only the blocks on and above its diagonal are computed, and each value is
 * offered to the lists of both its rows.  Two pairs of blocks that are processed at the same time
 * must not share rows.  So they are scheduled as a tournament, in which every block plays once per
 * round, as tasks that depend on their two blocks.  This needs no locks, and since the order
 * (value, index) is total, the lists do not depend on the order of the games either. */
#include "neighbors/search.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "neighbors/whole.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 512 * 1024 }; /* of packed rows: half of a second-level cache */
enum { MERGED = 1 << 20 };         /* list entries that ranks gather at a time */

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_masks __attribute__((vector_size(16)));

typedef struct search {
    const gemm_kernel *kernel;
    int n, d, k;
    int block;                /* rows; whole panels of both kinds */
    const float *tall, *wide; /* F in panels of mr and of nr rows */
    int32_t *ids;             /* [n,k] */
    float *values;            /* [n,k] */
    float *worst;             /* [blocks * block]: the value to beat; infinite past the last row */
} search;

static int common_multiple(int a, int b) {
    int m = a;
    while (m % b) m += a;
    return m;
}

static int block_rows(const gemm_kernel *g, int n, int d, int threads) {
    int unit = common_multiple(g->mr, g->nr);
    int most = BLOCK_BYTES / (int)sizeof(float) / d, fair = n / (4 * threads);
    int rows = most < fair ? most : fair;
    return (rows + unit - 1) / unit * unit + (rows == 0) * unit;
}

static void offer(const search *s, int i, int j, float value) {
    int32_t *ids = s->ids + (size_t)i * s->k + 1; /* after the row itself */
    float *values = s->values + (size_t)i * s->k + 1;
    search_offer(s->k - 1, ids, values, j, value);
    s->worst[i] = values[s->k - 2];
}

static bool any_set(four_masks m) {
    union {
        four_masks masks;
        uint64_t half[2];
    } u = {m};
    return (u.half[0] | u.half[1]) != 0;
}

/* Set where a value of S reaches the value to beat of its row or of its column; four at a time. */
static four_masks hits(const search *s, const float *value, float row, int j) {
    four values = *(const four *)value, to_beat = {row, row, row, row};
    return (values >= to_beat) | (values >= *(const four *)(s->worst + j));
}

/* Offers a tile, rows i.. and columns j.. of S, but only its pairs with row < column. */
static void offer_tile(const search *s, const float *tile, int i, int j) {
    int mr = s->kernel->mr, nr = s->kernel->nr;
    for (int r = 0; r < mr; r++, tile += nr) {
        four_masks any = {0};
        for (int c = 0; c < nr; c += 4) any |= hits(s, tile + c, s->worst[i + r], j + c);
        if (!any_set(any)) continue;
        for (int c0 = 0; c0 < nr; c0 += 4) {
            if (!any_set(hits(s, tile + c0, s->worst[i + r], j + c0))) continue;
            for (int c = c0; c < c0 + 4 && j + c < s->n; c++) {
                if (i + r >= j + c) continue;
                if (tile[c] >= s->worst[i + r]) offer(s, i + r, j + c, tile[c]);
                if (tile[c] >= s->worst[j + c]) offer(s, j + c, i + r, tile[c]);
            }
        }
    }
}

/* All pairs of a row of block a and a row of block b, a <= b. */
static void play(const search *s, int a, int b) {
    const gemm_kernel *g = s->kernel;
    float tile[GEMM_TILE];
    int i0 = a * s->block, j0 = b * s->block;
    int i1 = i0 + s->block < s->n ? i0 + s->block : s->n;
    int j1 = j0 + s->block < s->n ? j0 + s->block : s->n;
    for (int j = j0; j < j1; j += g->nr)
        for (int i = i0; i < i1 && i < j + g->nr; i += g->mr) {
            gemm_tile(g, s->d, s->tall + (size_t)i * s->d, s->wide + (size_t)j * s->d, tile);
            offer_tile(s, tile, i, j);
        }
}

/* Rounds first, first + step, ... before last: in round t block a meets block (t - a) mod blocks.
 * A game waits for the earlier games of its two blocks, not for the whole round. */
static void tournament(const search *s, int blocks, int first, int step, int last, int threads) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int t = first; t < last; t += step)
        for (int a = 0; a < blocks; a++) {
            int b = (t - a + blocks) % blocks;
            if (a == b) {
#pragma omp task depend(inout : s->worst[a * s->block])
                play(s, a, a);
            } else if (a < b) {
#pragma omp task depend(inout : s->worst[a * s->block], s->worst[b * s->block])
                play(s, a, b);
            }
        }
}

int search_merge(ranks *over, int n, int k, int32_t *ids, float *values) {
    int rc = 0, most = MERGED / k + 1; /* rows at a time */
    size_t each = (size_t)most * k;
    int32_t *others = memory_new("nearest neighbors", each * (size_t)over->count, sizeof *others);
    float *theirs = memory_new("nearest neighbors", each * (size_t)over->count, sizeof *theirs);
    TRY(others && theirs ? 0 : CONR_ENOMEM);
    for (int i0 = 0; i0 < n; i0 += most) {
        int rows = n - i0 < most ? n - i0 : most;
        size_t here = (size_t)rows * k, at = (size_t)i0 * k;
        TRY(ranks_all_gather(over, ids + at, here * sizeof *ids, others));
        TRY(ranks_all_gather(over, values + at, here * sizeof *values, theirs));
        for (int r = 0; r < over->count; r++)
            for (int i = 0; r != over->rank && i < rows; i++)
                for (int e = 1; e < k; e++) {
                    size_t from = (size_t)r * here + (size_t)i * k + e;
                    size_t to = at + (size_t)i * k + 1;
                    if (others[from] == INT32_MAX) break;
                    search_offer_once(k - 1, ids + to, values + to, others[from], theirs[from]);
                }
    }
done:
    free(others), free(theirs);
    return rc;
}

int search_rounds(device *dev, ranks *over, const float *f, int n, int d, int k, int32_t *ids,
                  float *values) {
    const gemm_kernel *g = gemm_kernel_best();
    search s = {.kernel = g, .n = n, .d = d, .k = k, .ids = ids, .values = values};
    int rank = over ? over->rank : 0, count = over ? over->count : 1, rc = 0;
    s.block = block_rows(g, n, d, dev->threads * count);
    if (over && (rc = ranks_broadcast(over, &s.block, sizeof s.block)) < 0) return rc;
    size_t padded = (size_t)((n + s.block - 1) / s.block) * s.block;
    size_t tall = gemm_panels_size(n, d, g->mr), wide = gemm_panels_size(n, d, g->nr);
    float *memory = memory_new("nearest neighbors", tall + wide + padded, sizeof *memory);
    if (!memory) return CONR_ENOMEM;
    s.worst = memory + tall + wide;
    s.tall = memory;
    s.wide = memory + tall;
    gemm_pack_all(f, n, d, g->mr, dev->threads, memory);
    gemm_pack_all(f, n, d, g->nr, dev->threads, memory + tall);
    for (size_t i = 0; i < padded; i++) s.worst[i] = (int)i < n && k > 1 ? -INFINITY : INFINITY;
    for (int i = 0; i < n; i++) {
        ids[(size_t)i * k] = i;
        values[(size_t)i * k] = 1;
        for (int at = 1; at < k; at++) {
            ids[(size_t)i * k + at] = INT32_MAX;
            values[(size_t)i * k + at] = -INFINITY;
        }
    }
    /* if it takes long, in a few parts, so that the caller gets reports and can stop it */
    int blocks = (n + s.block - 1) / s.block, part = blocks > 64 ? blocks / 16 : blocks;
    part = (part + count - 1) / count * count;
    for (int t = 0; t < blocks && rc == 0; t += part) {
        tournament(&s, blocks, t + rank, count, t + part < blocks ? t + part : blocks,
                   dev->threads);
        rc = device_report(dev, "nearest neighbors", t + part, blocks);
    }
    free(memory);
    /* each rank has played other rounds */
    if (rc == 0 && over) rc = search_merge(over, n, k, ids, values);
    return rc;
}

int search_nearest(device *dev, ranks *over, const float *f, int n, int d, int k, double *recall,
                   int32_t *ids, float *values) {
    ASSERT(k >= 1 && k <= n && *recall >= 0 && *recall <= 1);
    if (*recall == 0) *recall = n > SEARCH_EXACT ? SEARCH_RECALL : 1;
    if (n > WHOLE_ROWS && k > 1 && k <= SEARCH_LISTS && *recall < 1)
        return search_index(dev, over, f, n, d, k, recall, ids, values);
    *recall = 1;
    return n <= WHOLE_ROWS ? search_whole(dev, f, n, d, k, ids, values)
                           : search_rounds(dev, over, f, n, d, k, ids, values);
}
