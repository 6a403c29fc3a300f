/* large.c: one run of k-means on a large set, its rows spread over ranks: see large.h.
 *
 * Every row has a bound above the distance to its own center and one below the distances to the
 * others that it was compared with; they move with the centers, as in lloyd.c.  Rows that the
 * bounds do not settle are sorted by their center, so that those of one center meet the same
 * candidates, and the micro-kernel compares whole panels.  Long because assignment, sums, refills
 * and jumps share one state. */
#include "clusters/large.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEARBY = 48,      /* centers that a row is compared with */
    LISTS_EVERY = 3,  /* iterations between searches for them */
    ITEM = 384,       /* rows that a thread takes at a time */
    PANELS = 16,      /* of them in the cache, while candidates pass by */
    LAST_MEND = 10,   /* the last iteration in which centers may jump */
    MOST_REFILLS = 64 /* in one iteration */
};

typedef struct large {
    const shard *s;
    device *dev;
    points frame;           /* only kernel, for points_offer */
    int K, slots, near;     /* slots: K in whole panels of mr; near: candidates of a row */
    double *mean;           /* [K,d]: the caller's */
    float *w, *tall, *half; /* [slots,d], its panels, [slots]: as in points.h */
    float *drift;           /* [K]: how far centers moved in the last step */
    float *list_drift;      /* [K]: at most, any candidate of the center's rows */
    int32_t *list;          /* [K,near]: candidates, nearest first */
    int64_t *own, *all;     /* [K,d+1]: sums of rows and their number, here and on all ranks */
    int32_t *slot, *to;     /* [n]: center of each row, -1 at first; after this step */
    float *upper, *lower;   /* [n] */
    int32_t *order, *ends;  /* [n]: rows to visit, by owner; [K+1] */
    int32_t *item;          /* [n/ITEM+K+1][3]: owner, first and last in order */
    float *scratch;         /* [threads, scratch_size] */
    size_t scratch_size;
} large;

/* ---- candidates ------------------------------------------------------------------------------ */

/* Whether a is a better candidate than b: a higher score, among equals the lower index. */
typedef struct candidate {
    float score;
    int32_t id;
} candidate;

static bool better(candidate a, candidate b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

static int by_score(const void *a, const void *b) {
    return better(*(const candidate *)a, *(const candidate *)b) ? -1 : 1;
}

/* Puts c in place of the worst, heap[0]. */
static void replace_worst(candidate *heap, int size, candidate c) {
    int at = 0;
    for (int child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && better(heap[child], heap[child + 1])) child++;
        if (!better(c, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = c;
}

/* The `count` centers nearest to each of the targets [T,d], nearest first.  lists: [T,count] */
static int find_nearby(const large *l, const float *targets, int T, int count, int32_t *lists) {
    const gemm_kernel *g = l->frame.kernel;
    int d = l->s->d, nr = g->nr, failed = 0;
#pragma omp parallel for num_threads(l->dev->threads) schedule(dynamic)
    for (int t = 0; t < T; t += nr) {
        int rows = T - t < nr ? T - t : nr;
        float *panel = malloc(((size_t)nr * d + (size_t)l->slots * nr) * sizeof *panel);
        candidate heap[2 * NEARBY];
        if (!panel) {
#pragma omp atomic write
            failed = 1;
            continue;
        }
        float *score = panel + (size_t)nr * d;
        gemm_pack(true, targets + (size_t)t * d, d, rows, d, nr, panel);
        for (int c = 0; c < l->slots; c += g->mr)
            gemm_tile(g, d, l->tall + (size_t)c * d, panel, score + (size_t)c * nr);
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < count; c++) heap[c] = (candidate){-INFINITY, INT32_MAX};
            for (int c = 0; c < l->K; c++) {
                candidate new = {score[(size_t)c * nr + r] - l->half[c], c};
                if (better(new, heap[0])) replace_worst(heap, count, new);
            }
            qsort(heap, (size_t)count, sizeof *heap, by_score);
            for (int c = 0; c < count; c++) lists[(size_t)(t + r) * count + c] = heap[c].id;
        }
        free(panel);
    }
    return failed ? fail_memory("k-means", 4.0 * nr * (d + l->slots)) : 0;
}

/* ---- assignment ------------------------------------------------------------------------------ */

static float distance_above(float d2, float slack) { return sqrtf(d2 > 0 ? d2 + slack : slack); }
static float distance_below(float d2, float slack) { return d2 > slack ? sqrtf(d2 - slack) : 0; }

/* What a thread compares rows with: centers in panels. */
typedef struct against {
    const float *tall, *half;
    const int32_t *id; /* NULL: 0, 1, ... */
    int slots;
} against;

/* Assigns rows [count], at most PANELS panels. */
static void assign_block(large *l, const int32_t *row, int count, const against *a,
                         float *scratch) {
    const gemm_kernel *g = l->frame.kernel;
    int d = l->s->d, nr = g->nr;
    float *x = scratch, *wide = x + (size_t)nr * d, tile[GEMM_TILE];
    float score[PANELS * GEMM_NR], next[PANELS * GEMM_NR];
    int32_t slot[PANELS * GEMM_NR];
    for (int i = 0; i < count; i += nr) {
        int rows = count - i < nr ? count - i : nr;
        for (int r = 0; r < rows; r++) shard_row(l->s, row[i + r], x + (size_t)r * d);
        gemm_pack(true, x, d, rows, d, nr, wide + (size_t)i * d);
        points_best_clear(&l->frame, &(points_best){score + i, next + i, slot + i});
    }
    for (int c = 0; c < a->slots; c += g->mr)
        for (int i = 0; i < count; i += nr) {
            points_best best = {score + i, next + i, slot + i};
            gemm_tile(g, d, a->tall + (size_t)c * d, wide + (size_t)i * d, tile);
            points_offer(&l->frame, tile, a->half + c, c, g->mr, &best);
        }
    for (int i = 0; i < count; i++) {
        float square = l->s->square[row[i]], slack = points_slack(square, a->half[slot[i]]);
        l->to[row[i]] = a->id ? a->id[slot[i]] : slot[i];
        l->upper[row[i]] = distance_above(square - 2 * score[i], slack);
        l->lower[row[i]] = distance_below(square - 2 * next[i], slack);
    }
}

/* Assigns the rows of one item to the nearest of `near` centers `id`; NULL: of all. */
static void assign_item(large *l, const int32_t *item, const int32_t *id, int near,
                        float *scratch) {
    const gemm_kernel *g = l->frame.kernel;
    int d = l->s->d, mr = g->mr, slots = (near + mr - 1) / mr * mr, most = PANELS * g->nr;
    against a = {l->tall, l->half, id, l->slots};
    if (id) { /* the candidates, in panels */
        float *rows = scratch, *tall = rows + (size_t)mr * d, *half = tall + (size_t)slots * d;
        for (int c = 0; c < slots; c += mr) {
            int count = near - c < mr ? near - c : mr;
            for (int r = 0; r < mr; r++) half[c + r] = r < count ? l->half[id[c + r]] : INFINITY;
            for (int r = 0; r < count; r++)
                memcpy(rows + (size_t)r * d, l->w + (size_t)id[c + r] * d,
                       (size_t)d * sizeof *rows);
            gemm_pack(true, rows, d, count, d, mr, tall + (size_t)c * d);
        }
        a = (against){tall, half, id, slots};
        scratch = half + slots;
    }
    for (int i = item[1]; i < item[2]; i += most)
        assign_block(l, l->order + i, item[2] - i < most ? item[2] - i : most, &a, scratch);
}

/* Compares rows with the candidates of their owner: rows with settled bounds stay where they are.
 * owner: [n], in 0 .. owners-1; list: [owners,near], or NULL: all centers. */
static void assign(large *l, const int32_t *owner, int owners, const int32_t *list, int near) {
    int n = l->s->n, items = 0;
    memset(l->ends, 0, ((size_t)owners + 1) * sizeof *l->ends);
    for (int i = 0; i < n; i++) {
        l->to[i] = l->slot[i];
        if (l->upper[i] > l->lower[i]) l->ends[owner[i] + 1]++;
    }
    for (int o = 0; o < owners; o++) l->ends[o + 1] += l->ends[o];
    for (int o = 0; o < owners; o++)
        for (int i = l->ends[o]; i < l->ends[o + 1]; i += ITEM, items++) {
            int32_t *item = l->item + 3 * (size_t)items;
            item[0] = o, item[1] = i;
            item[2] = l->ends[o + 1] - i < ITEM ? l->ends[o + 1] : i + ITEM;
        }
    for (int i = 0; i < n; i++)
        if (l->upper[i] > l->lower[i]) l->order[l->ends[owner[i]]++] = i;
#pragma omp parallel for num_threads(l->dev->threads) schedule(dynamic)
    for (int k = 0; k < items; k++) {
        const int32_t *item = l->item + 3 * (size_t)k;
        assign_item(l, item, list ? list + (size_t)item[0] * near : NULL, near,
                    l->scratch + l->scratch_size * omp_get_thread_num());
    }
}

/* The first assignment: the nearest of the rough centers, then the nearest of the centers around
 * that. */
static int assign_first(large *l, const float *rough) {
    int rc = 0, n = l->s->n, G = large_coarse(l->K);
    size_t d = (size_t)l->s->d;
    int near = 2 * l->near < l->K ? 2 * l->near : l->K;
    int32_t *list = NULL;
    for (int i = 0; i < n; i++) l->upper[i] = INFINITY, l->lower[i] = 0;
    memset(l->to, 0, (size_t)n * sizeof *l->to);
    int32_t *owner = memory_new("k-means", (size_t)n, sizeof *owner);
    TRY(owner ? 0 : CONR_ENOMEM);
    memset(owner, 0, (size_t)n * sizeof *owner);
    if (rough) {
        list = memory_new("k-means", (size_t)G * near, sizeof *list);
        TRY(list ? 0 : CONR_ENOMEM);
        TRY(find_nearby(l, rough, G, near, list));
        TRY(assign_features(l->dev, l->s->features, n, l->s->d, l->s->metric, rough + G * d, G,
                            owner, NULL));
    }
    assign(l, owner, rough ? G : 1, list, near);
done:
    free(owner), free(list);
    return rc;
}

/* ---- centers --------------------------------------------------------------------------------- */

/* Adds a row to a sum, or takes it away. */
static void add_row(const large *l, const float *x, int64_t *sum, int sign) {
    double by = sign * l->s->in_units;
    for (int j = 0; j < l->s->d; j++) sum[j] += (int64_t)(x[j] * by);
    sum[l->s->d] += sign;
}

/* Brings the sums of this rank from `slot` to `to`, then sums over the ranks.  Each thread owns some
 * centers.  *moved: rows of all ranks. */
static int update_sums(large *l, int64_t *moved) {
    int rc = 0, n = l->s->n, threads = l->dev->threads, changes = 0;
    size_t width = (size_t)l->s->d + 1;
    for (int i = 0; i < n; i++)
        if (l->to[i] != l->slot[i]) l->order[changes++] = i;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int first = (int)((int64_t)l->K * t / threads),
            last = (int)((int64_t)l->K * (t + 1) / threads);
        float *x = l->scratch + l->scratch_size * t;
        for (int m = 0; m < changes; m++) {
            int i = l->order[m], from = l->slot[i], to = l->to[i];
            bool leaves = from >= first && from < last, enters = to >= first && to < last;
            if (!leaves && !enters) continue;
            shard_row(l->s, i, x);
            if (leaves) add_row(l, x, l->own + from * width, -1);
            if (enters) add_row(l, x, l->own + to * width, 1);
        }
    }
    memcpy(l->slot, l->to, (size_t)n * sizeof *l->slot);
    *moved = changes;
    TRY(shard_sum(l->s, moved, 1));
    if (l->all != l->own) memcpy(l->all, l->own, l->K * width * sizeof *l->all);
    if (l->all != l->own) TRY(shard_sum(l->s, l->all, l->K * width));
done:
    return rc;
}

/* A row far from its center, for an empty cluster; its values follow it in memory. */
typedef struct far_row {
    float d2;
    int32_t from;
    int64_t row; /* of all ranks; -1: none */
} far_row;

static bool farther(const far_row *a, const far_row *b) {
    return a->d2 > b->d2 || (a->d2 == b->d2 && a->row < b->row);
}

/* The `count` rows of this rank farthest from their centers, in order.  record: [count], of `size`
 * bytes each. */
static void find_far(const large *l, int count, char *record, size_t size) {
    const shard *s = l->s;
    float *x = l->scratch;
    int found = 0;
    for (int k = 0; k < count; k++) *(far_row *)(record + k * size) = (far_row){0, -1, -1};
    for (int i = 0; i < s->n; i++) {
        int own = l->slot[i], at;
        far_row last = found == count ? *(far_row *)(record + (count - 1) * size) : (far_row){0};
        /* the bound is enough to pass over most rows */
        if (l->upper[i] * l->upper[i] <= last.d2 || l->all[own * ((size_t)s->d + 1) + s->d] < 2)
            continue;
        shard_row(s, i, x);
        double dot = 0;
        for (int j = 0; j < s->d; j++) dot += (double)x[j] * l->w[(size_t)own * s->d + j];
        far_row new = {(float)(s->square[i] - 2 * (dot - l->half[own])), own, s->first + i};
        if (new.d2 <= points_slack(s->square[i], l->half[own])) continue;
        if (found == count && !farther(&new, &last)) continue;
        found += found < count;
        for (at = found - 1; at && farther(&new, (far_row *)(record + (at - 1) * size)); at--)
            memcpy(record + at * size, record + (at - 1) * size, size);
        *(far_row *)(record + at * size) = new;
        memcpy(record + at * size + sizeof new, x, (size_t)s->d * sizeof *x);
    }
}

/* Gives row f, with its values, to the empty cluster c, on every rank. */
static void give_row(large *l, const far_row *f, int c) {
    size_t width = (size_t)l->s->d + 1;
    const float *x = (const float *)(f + 1);
    bool mine = f->row >= l->s->first && f->row < l->s->first + l->s->n;
    add_row(l, x, l->all + f->from * width, -1);
    add_row(l, x, l->all + c * width, 1);
    if (!mine) return;
    int i = (int)(f->row - l->s->first);
    l->slot[i] = c, l->upper[i] = INFINITY;
    if (l->all == l->own) return;
    add_row(l, x, l->own + f->from * width, -1);
    add_row(l, x, l->own + c * width, 1);
}

/* Empty clusters take the rows that are farthest from their own centers, from clusters of two or
 * more.  If every row is on its center, they stay empty. */
static int refill(large *l, int *refilled) {
    int rc = 0, empty = 0, ranks = l->s->over ? l->s->over->count : 1;
    size_t width = (size_t)l->s->d + 1;
    size_t size = (sizeof(far_row) + (size_t)l->s->d * sizeof(float) + 7) / 8 * 8;
    char *mine = NULL, *all = NULL;
    *refilled = 0;
    for (int c = 0; c < l->K; c++) empty += l->all[c * width + l->s->d] == 0;
    if (!empty) return 0;
    int count = empty < MOST_REFILLS ? empty : MOST_REFILLS;
    mine = memory_new("k-means", count * size, 1);
    all = memory_new("k-means", count * size * ranks, 1);
    TRY(mine && all ? 0 : CONR_ENOMEM);
    memset(mine, 0, count * size);
    find_far(l, count, mine, size);
    if (l->s->over)
        TRY(ranks_all_gather(l->s->over, mine, count * size, all));
    else
        memcpy(all, mine, count * size);
    for (int c = 0; c < l->K && *refilled < count; c++) {
        if (l->all[c * width + l->s->d]) continue;
        far_row *best = NULL;
        for (int k = 0; k < count * ranks; k++) {
            far_row *f = (far_row *)(all + k * size);
            if (f->row >= 0 && l->all[f->from * width + l->s->d] > 1 && (!best || farther(f, best)))
                best = f;
        }
        if (!best) break;
        give_row(l, best, c);
        best->row = -1;
        ++*refilled;
    }
done:
    free(mine), free(all);
    return rc;
}

/* w and half of the centers from their means; drift: how far they moved, rounded up. */
static void place_centers(large *l) {
    int d = l->s->d;
    bool cosine = l->s->metric == CONR_COSINE;
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int c = 0; c < l->K; c++) {
        const double *mean = l->mean + (size_t)c * d;
        float *w = l->w + (size_t)c * d;
        double squares = 0, moved = 0;
        for (int j = 0; j < d; j++) squares += mean[j] * mean[j];
        double by = !cosine ? 1 : squares > 0 ? 1 / sqrt(squares) : 0;
        for (int j = 0; j < d; j++) {
            float to = (float)(mean[j] * by);
            moved += ((double)to - w[j]) * ((double)to - w[j]);
            w[j] = to;
        }
        l->half[c] = cosine ? 0 : (float)(squares / 2);
        l->drift[c] = (float)(sqrt(moved) * (1 + 1e-6));
    }
    gemm_pack_all(l->w, l->slots, d, l->frame.kernel->mr, l->dev->threads, l->tall);
}

/* Means of the sums; an empty cluster keeps its center.  Returns the objective, as lloyd.c has it. */
static double update_means(large *l) {
    int d = l->s->d;
    double sum = l->s->squares;
    for (int c = 0; c < l->K; c++) {
        const int64_t *from = l->all + c * ((size_t)d + 1);
        double own = 0, count = (double)from[d];
        if (!from[d]) continue;
        for (int j = 0; j < d; j++) {
            double s = (double)from[j] / l->s->in_units;
            own += s * s;
            l->mean[(size_t)c * d + j] = s / count;
        }
        sum -= l->s->metric == CONR_COSINE ? sqrt(own) : own / count;
    }
    return sum > 0 ? sum : 0;
}

/* Moves the bounds along with the centers. */
static void move_bounds(large *l) {
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int c = 0; c < l->K; c++) {
        l->list_drift[c] = 0;
        for (int k = 0; k < l->near; k++)
            l->list_drift[c] = fmaxf(l->list_drift[c], l->drift[l->list[(size_t)c * l->near + k]]);
    }
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int i = 0; i < l->s->n; i++) {
        l->upper[i] += l->drift[l->slot[i]];
        l->lower[i] -= l->list_drift[l->slot[i]];
    }
}

/* ---- centers that jump ----------------------------------------------------------------------- */

/* What the centers would cost and gain, each [K]. */
typedef struct market {
    double *cost;     /* more for the rows of the cluster, without its center */
    double *gain;     /* less for them, with a second center on the row `row` */
    int32_t *row;     /* drawn in proportion to d2; -1: none */
    double *key;      /* the row's in the draw */
    int32_t *by_cost; /* clusters, in these orders */
    int32_t *by_gain;
    float *change; /* [n]: of each row */
    float *place;  /* [K,d]: row */
    bool *busy;    /* takes part in a jump already */
} market;

static void market_free(market *m) {
    free(m->cost), free(m->gain), free(m->row), free(m->key), free(m->by_cost), free(m->by_gain);
    free(m->change), free(m->place), free(m->busy);
}

static int market_new(const large *l, market *m) {
    size_t K = (size_t)l->K, n = (size_t)l->s->n;
    m->cost = memory_new("k-means", K, sizeof *m->cost);
    m->gain = memory_new("k-means", K, sizeof *m->gain);
    m->row = memory_new("k-means", K, sizeof *m->row);
    m->key = memory_new("k-means", K, sizeof *m->key);
    m->by_cost = memory_new("k-means", K, sizeof *m->by_cost);
    m->by_gain = memory_new("k-means", K, sizeof *m->by_gain);
    m->change = memory_new("k-means", n, sizeof *m->change);
    m->place = memory_new("k-means", K * l->s->d, sizeof *m->place);
    m->busy = memory_new("k-means", K, sizeof *m->busy);
    if (!(m->cost && m->gain && m->row && m->key && m->by_cost && m->by_gain && m->change &&
          m->place && m->busy))
        return CONR_ENOMEM;
    for (size_t c = 0; c < K; c++) {
        m->cost[c] = m->gain[c] = 0, m->key[c] = -INFINITY, m->row[c] = -1;
        m->by_cost[c] = m->by_gain[c] = (int32_t)c, m->busy[c] = false;
    }
    return 0;
}

static int by_value(const void *a, const void *b, void *values) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    double p = ((double *)values)[x], q = ((double *)values)[y];
    return p < q ? -1 : p > q ? 1 : x - y;
}

static void appraise(large *l, uint64_t seed, int round, market *m) {
    const shard *s = l->s;
    int d = s->d;
    for (int i = 0; i < s->n; i++) {
        int c = l->slot[i];
        double own = (double)l->upper[i] * l->upper[i], next = (double)l->lower[i] * l->lower[i];
        m->cost[c] += next > own ? next - own : 0;
        /* the largest of log(u) / weight is a draw by weight */
        rng random = rng_at(seed, (uint32_t)round, (uint32_t)i, RNG_JUMP);
        double key =
            own > 0 ? log(((double)rng_bits(&random) + 1) / 4294967297.0) / own : -INFINITY;
        if (key > m->key[c]) m->key[c] = key, m->row[c] = i;
    }
    for (int c = 0; c < l->K; c++)
        if (m->row[c] >= 0) shard_row(s, m->row[c], m->place + (size_t)c * d);
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int i = 0; i < s->n; i++) {
        const float *to = m->place + (size_t)l->slot[i] * d;
        float *x = l->scratch + l->scratch_size * omp_get_thread_num();
        double d2 = 0, own = (double)l->upper[i] * l->upper[i];
        shard_row(s, i, x);
        for (int j = 0; j < d; j++) d2 += (double)(x[j] - to[j]) * (x[j] - to[j]);
        m->change[i] = m->row[l->slot[i]] >= 0 && own > d2 ? (float)(own - d2) : 0;
    }
    for (int i = 0; i < s->n; i++) m->gain[l->slot[i]] += m->change[i];
    qsort_r(m->by_cost, (size_t)l->K, sizeof *m->by_cost, by_value, m->cost);
    qsort_r(m->by_gain, (size_t)l->K, sizeof *m->by_gain, by_value, m->gain);
}

/* Moves centers whose loss costs less than they gain elsewhere.  All bounds are fresh.  owner: [n],
 * the center near which each row now is.  *jumps: how many. */
static int jump(large *l, uint64_t seed, int round, int32_t *owner, int *jumps) {
    int rc = 0, K = l->K, d = l->s->d;
    market m = {0};
    *jumps = 0;
    TRY(market_new(l, &m));
    appraise(l, seed, round, &m);
    for (int a = 0, b = K - 1; a < K && b >= 0;) {
        int from = m.by_cost[a], to = m.by_gain[b];
        const int32_t *list = l->list + (size_t)from * l->near;
        int heir = list[0] == from ? list[1] : list[0]; /* takes the rows over */
        if (!(m.gain[to] > m.cost[from])) break;
        if (m.busy[from] || m.busy[heir] || from == to) {
            a++;
            continue;
        }
        if (m.busy[to] || heir == to) {
            b--;
            continue;
        }
        for (int j = 0; j < d; j++) l->mean[(size_t)from * d + j] = m.place[(size_t)to * d + j];
        m.busy[from] = m.busy[heir] = m.busy[to] = true;
        m.key[from] = heir;
        m.row[from] = -2; /* gone */
        a++, b--, ++*jumps;
    }
    for (int i = 0; i < l->s->n; i++) {
        int c = l->slot[i];
        owner[i] = m.row[c] == -2 ? (int32_t)m.key[c] : c;
    }
done:
    market_free(&m);
    return rc;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void large_free(large *l) {
    free(l->w), free(l->tall), free(l->half), free(l->drift), free(l->list_drift), free(l->list);
    if (l->all != l->own) free(l->all);
    free(l->own), free(l->slot), free(l->to), free(l->upper), free(l->lower);
    free(l->order), free(l->ends), free(l->item), free(l->scratch);
}

static int large_new(large *l) {
    const gemm_kernel *g = l->frame.kernel;
    size_t n = (size_t)l->s->n, d = (size_t)l->s->d, K = (size_t)l->K;
    size_t slots = (K + g->mr - 1) / g->mr * g->mr, near = 2 * (size_t)NEARBY + g->mr;
    l->slots = (int)slots;
    l->near = l->K < NEARBY ? l->K : NEARBY;
    l->scratch_size = (g->mr * d + near * (d + 1) + (PANELS + 1) * g->nr * d + 15) / 16 * 16;
    l->w = memory_new("k-means", slots * d, sizeof *l->w);
    l->tall = memory_new("k-means", slots * d, sizeof *l->tall);
    l->half = memory_new("k-means", slots, sizeof *l->half);
    l->drift = memory_new("k-means", K, sizeof *l->drift);
    l->list_drift = memory_new("k-means", K, sizeof *l->list_drift);
    l->list = memory_new("k-means", K * l->near, sizeof *l->list);
    l->own = l->all = memory_new("k-means", K * (d + 1), sizeof *l->own);
    if (l->s->over) l->all = memory_new("k-means", K * (d + 1), sizeof *l->all);
    l->slot = memory_new("k-means", n, sizeof *l->slot);
    l->to = memory_new("k-means", n, sizeof *l->to);
    l->upper = memory_new("k-means", n, sizeof *l->upper);
    l->lower = memory_new("k-means", n, sizeof *l->lower);
    l->order = memory_new("k-means", n, sizeof *l->order);
    l->ends = memory_new("k-means", K + 2, sizeof *l->ends);
    l->item = memory_new("k-means", 3 * (n / ITEM + K + 1), sizeof *l->item);
    l->scratch = memory_new("k-means", l->scratch_size * l->dev->threads, sizeof *l->scratch);
    if (!(l->w && l->tall && l->half && l->drift && l->list_drift && l->list && l->own && l->all &&
          l->slot && l->to && l->upper && l->lower && l->order && l->ends && l->item && l->scratch))
        return CONR_ENOMEM;
    memset(l->w, 0, slots * d * sizeof *l->w);
    memset(l->own, 0, K * (d + 1) * sizeof *l->own);
    for (size_t c = 0; c < slots; c++) l->half[c] = INFINITY;
    for (size_t i = 0; i < n; i++) l->slot[i] = -1;
    return 0;
}

static double imbalance(const large *l) {
    double sum = 0;
    for (int c = 0; c < l->K; c++) {
        double share = (double)l->all[c * ((size_t)l->s->d + 1) + l->s->d] / (double)l->s->total;
        sum += share * share;
    }
    return sum * l->K;
}

/* Steps in which centers may jump. */
static bool mends(bool mend, int iteration) {
    return mend && iteration > 1 && iteration <= LAST_MEND && iteration % 2 == 0;
}

/* One assignment.  owner: of each row, if centers have just jumped. */
static int assign_again(large *l, int iteration, bool fresh, const int32_t *owner) {
    int rc = 0;
    bool anew = iteration == 2 || iteration % LISTS_EVERY == 0 || owner;
    if (anew) TRY(find_nearby(l, l->w, l->K, l->near, l->list));
    if (iteration > 2) move_bounds(l);
    if (iteration == 2 || fresh || owner)
        for (int i = 0; i < l->s->n; i++) l->upper[i] = INFINITY;
    assign(l, owner ? owner : l->slot, l->K, l->list, l->near);
done:
    return rc;
}

int large_run(const shard *s, const conr_kmeans_options *o, int run, const float *rough, bool mend,
              double *mean, double *objective, lloyd_on_step *on_step, void *user) {
    int rc = 0, refilled, jumps = 0;
    int64_t moved;
    double before = INFINITY;
    int32_t *owner = NULL;
    large l = {.s = s, .dev = s->dev, .K = o->clusters, .mean = mean};
    l.frame = (points){.d = s->d, .metric = s->metric, .kernel = gemm_kernel_best()};
    TRY(large_new(&l));
    mend = mend && l.near > 1;
    if (mend) owner = memory_new("k-means", (size_t)s->n, sizeof *owner);
    TRY(owner || !mend ? 0 : CONR_ENOMEM);
    place_centers(&l);
    for (int iteration = 1; iteration <= o->iterations; iteration++) {
        bool mending = mends(mend, iteration);
        TRY(iteration == 1 ? assign_first(&l, rough)
                           : assign_again(&l, iteration, mending, jumps ? owner : NULL));
        TRY(update_sums(&l, &moved));
        TRY(refill(&l, &refilled));
        *objective = update_means(&l);
        jumps = 0;
        if (mending && !refilled) TRY(jump(&l, o->seed, iteration, owner, &jumps));
        place_centers(&l);
        conr_kmeans_step step = {run, iteration, *objective, imbalance(&l), moved, refilled};
        if (on_step) on_step(&step, user);
        bool still = moved == 0 || before - *objective <= o->tolerance * *objective;
        if (iteration > (mend ? LAST_MEND : 2) && still && !refilled) break;
        before = *objective;
    }
done:
    large_free(&l);
    free(owner);
    return rc;
}
