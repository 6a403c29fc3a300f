/* index.c: nearest neighbors by cells, for sets on which all pairs would take too long.
 *
 * Every row searches its own cell, and visits those whose centers are not much further from it than
 * its own: by at most `reach`.  A product is offered to the lists of both its rows, so a pair is
 * found if either of the two visits the other.  How far to reach is known before most of the work is
 * done: the neighbors of a sample of rows are searched exactly, and so is known which visits would
 * have found them.
 *
 * A cell is packed once and meets all its visitors in the matrix product.  Threads share out the
 * cells, not the lists; a lock guards each change of a list.  The order (value, index) is total, so
 * lists do not depend on who came first. */
#include "neighbors/search.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/quad.h"
#include "neighbors/cells.h"
#include "neighbors/scan.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 1024, /* rows that are searched exactly */
    SEED = 28,     /* any number: it draws them */
    FEW = 32,      /* nearest cells that are known of each row, and */
    MANY = 96,     /* if that is not enough */
    LOCKS = 1024,
    PARTS = 16 /* between reports */
};

static const char what[] = "nearest neighbors";

typedef struct index {
    device *dev;
    ranks *over;
    const float *f; /* [n,d], by row */
    const gemm_kernel *kernel;
    cells c;
    int k;
    int32_t *ids;     /* [n,k], by row: the result */
    float *values;    /* [n,k] */
    float *beat;      /* [n], by position: the last value of each list */
    size_t *start;    /* [count+1]: visitors of each cell */
    int32_t *visitor; /* positions */
    omp_lock_t *lock; /* [LOCKS] */
    float *room;      /* [threads][size] */
    size_t size;
    int32_t *sample;    /* [SAMPLE], rows */
    int32_t *true_ids;  /* [SAMPLE,k-1]: their neighbors */
    float *true_values; /* [SAMPLE,k-1] */
} search_state;

static scan_room room_of(const search_state *x) {
    return scan_room_at(x->kernel, x->c.d, x->room + x->size * omp_get_thread_num());
}

/* ---- lists that threads share ---------------------------------------------------------------- */

static float beat_at(const search_state *x, int position) {
    float value;
    __atomic_load(x->beat + position, &value, __ATOMIC_RELAXED);
    return value;
}

/* Offers one position to the list of another; returns the value to beat from now on. */
static float offer(const search_state *x, int to, int position, float value) {
    int row = x->c.name[to], w = x->k - 1;
    omp_lock_t *lock = x->lock + row % LOCKS;
    int32_t *ids = x->ids + (size_t)row * x->k + 1;
    float *values = x->values + (size_t)row * x->k + 1, beat;
    omp_set_lock(lock);
    search_offer_once(w, ids, values, x->c.name[position], value);
    beat = values[w - 1];
    __atomic_store(x->beat + to, &beat, __ATOMIC_RELAXED);
    omp_unset_lock(lock);
    return beat;
}

/* Some rows that meet a part of a cell. */
typedef struct meeting {
    const search_state *x;
    const int32_t *guest; /* [m], positions */
    int m, first, count;  /* the part of the cell: positions first .. first+count-1 */
    float to_beat[SCAN_QUERIES], hosts[SCAN_ROWS + GEMM_NR];
} meeting;

static void take_tile(void *to, const float *tile, int i, int j) {
    meeting *t = to;
    int mr = t->x->kernel->mr, nr = t->x->kernel->nr;
    for (int q = i; q < least(i + mr, t->m); q++, tile += nr)
        for (int c0 = 0; c0 < nr; c0 += 4) {
            quad values = quad_at(tile + c0);
            union {
                quad_mask mask;
                uint64_t half[2];
            } u = {(values >= quad_of(t->to_beat[q])) | (values >= quad_at(t->hosts + j + c0))};
            if (!(u.half[0] | u.half[1])) continue;
            for (int c = c0; c < c0 + 4 && j + c < t->count; c++) {
                int guest = t->guest[q], host = t->first + j + c;
                if (guest == host) continue;
                if (tile[c] >= t->to_beat[q]) t->to_beat[q] = offer(t->x, guest, host, tile[c]);
                if (tile[c] >= t->hosts[j + c]) t->hosts[j + c] = offer(t->x, host, guest, tile[c]);
            }
        }
}

/* Positions guest[0..m-1] meet all rows of a cell. */
static void meet(const search_state *x, int cell, const int32_t *guest, size_t m, bool at_home) {
    scan_room r = room_of(x);
    meeting t = {.x = x};
    int end = x->c.start[cell + 1];
    for (t.first = x->c.start[cell]; m > 0 && t.first < end; t.first += SCAN_ROWS) {
        t.count = least(SCAN_ROWS, end - t.first);
        scan_rows(&r, x->c.rows + (size_t)t.first * x->c.d, t.count);
        for (size_t q0 = 0; q0 < m; q0 += SCAN_QUERIES) {
            t.m = m - q0 < SCAN_QUERIES ? (int)(m - q0) : SCAN_QUERIES;
            t.guest = guest + q0;
            for (int q = 0; q < t.m; q++) t.to_beat[q] = beat_at(x, t.guest[q]);
            for (int h = 0; h < t.count + GEMM_NR; h++)
                t.hosts[h] = h < t.count && !at_home ? beat_at(x, t.first + h) : INFINITY;
            scan_queries(&r, x->c.rows, t.guest, t.m);
            scan_tiles(&r, t.m, r.wide, t.count, take_tile, &t);
        }
    }
}

/* ---- the sample ------------------------------------------------------------------------------ */

/* The exact lists of m rows: ids, values: [m,w], the row itself left out. */
static void search_rows(const search_state *x, const int32_t *row, int m, int32_t *ids,
                        float *values) {
    const cells *c = &x->c;
    int w = x->k - 1, step = m / x->dev->threads;
    step = step < 16 ? 16 : step < SCAN_QUERIES ? step : SCAN_QUERIES;
    scan_clear(w, (size_t)m, ids, values);
#pragma omp parallel for num_threads(x->dev->threads) schedule(dynamic)
    for (int q = 0; q < m; q += step) {
        scan_room r = room_of(x);
        scan_lists l = {.w = w,
                        .ids = ids + (size_t)q * w,
                        .values = values + (size_t)q * w,
                        .own = row + q,
                        .m = least(step, m - q),
                        .mr = x->kernel->mr,
                        .nr = x->kernel->nr};
        scan_queries(&r, x->f, row + q, l.m);
        for (int p = 0; p < c->n; p += SCAN_ROWS) {
            l.names = c->name + p, l.count = least(SCAN_ROWS, c->n - p);
            scan_rows(&r, c->rows + (size_t)p * c->d, l.count);
            scan_tiles(&r, l.m, r.wide, l.count, scan_offer, &l);
        }
    }
}

/* How many of the first w values of a row's list are as good as its true neighbors. */
static int found(const search_state *x, int s) {
    int w = x->k - 1, count = 0;
    const float *values = x->values + (size_t)x->sample[s] * x->k + 1;
    while (count < w && values[count] >= x->true_values[(size_t)s * w + w - 1]) count++;
    return count;
}

/* How far row i must reach to visit a cell; INFINITY if it never does. */
static float reach_of(const cells *c, int i, int cell) {
    const int32_t *probe = c->probe + (size_t)i * c->probes;
    const float *likeness = c->likeness + (size_t)i * c->probes;
    for (int r = 1; r < c->probes; r++)
        if (probe[r] == cell && likeness[r] < likeness[0]) return likeness[0] - likeness[r];
    return INFINITY;
}

/* Mean of the shares that a reach finds of the sample, less two standard errors: so other rows
 * fare as well. */
static double share_at(const int *at_home, const float *needs, int w, float reach) {
    double sum = 0, squares = 0;
    for (int s = 0; s < SAMPLE; s++) {
        int hits = at_home[s];
        for (int e = 0; e < w; e++) hits += needs[(size_t)s * w + e] <= reach;
        double share = (double)least(hits, w) / w;
        sum += share, squares += share * share;
    }
    double mean = sum / SAMPLE, variance = squares / SAMPLE - mean * mean;
    return mean - 2 * sqrt(variance > 0 ? variance / SAMPLE : 0);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The least reach that finds the share `recall` of the sample's neighbors; INFINITY: none does. */
static int choose_reach(const search_state *x, double recall, float *reach) {
    const cells *c = &x->c;
    int rc = 0, w = x->k - 1, low = 0, high = SAMPLE * w; /* the answer is below high, or none */
    int *at_home = memory_new(what, SAMPLE, sizeof *at_home);
    float *needs = memory_new(what, (size_t)SAMPLE * w, sizeof *needs);
    float *order = memory_new(what, (size_t)SAMPLE * w, sizeof *order);
    TRY(at_home && needs && order ? 0 : CONR_ENOMEM);
    for (int s = 0; s < SAMPLE; s++) {
        int i = x->sample[s], own = c->probe[(size_t)i * c->probes];
        at_home[s] = found(x, s);
        for (int e = 0; e < w; e++) {
            int j = x->true_ids[(size_t)s * w + e], other = c->probe[(size_t)j * c->probes];
            float there = reach_of(c, i, other), back = reach_of(c, j, own);
            needs[(size_t)s * w + e] = other == own ? INFINITY : there < back ? there : back;
        }
    }
    memcpy(order, needs, (size_t)SAMPLE * w * sizeof *order);
    qsort(order, (size_t)SAMPLE * w, sizeof *order, by_value);
    while (high > 0 && order[high - 1] == INFINITY) high--;
    *reach = 0;
    if (share_at(at_home, needs, w, 0) >= recall) goto done;
    *reach = INFINITY;
    if (high == 0 || share_at(at_home, needs, w, order[high - 1]) < recall) goto done;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (share_at(at_home, needs, w, order[middle]) >= recall)
            high = middle;
        else
            low = middle + 1;
    }
    *reach = order[low];
done:
    free(at_home), free(needs), free(order);
    return rc;
}

/* ---- visits ---------------------------------------------------------------------------------- */

/* The end of a row's probes within reach.  Not all before it are visits: not the first, its own
 * cell, nor those as near as its own, which hold copies of what that holds (cells.c). */
static int visits_of(const cells *c, int i, float reach) {
    const float *likeness = c->likeness + (size_t)i * c->probes;
    int last = 1;
    while (last < c->probes && likeness[0] - likeness[last] <= reach) last++;
    return last;
}

/* Whether probe r of row i is a visit, r < visits_of. */
static bool is_visit(const cells *c, int i, int r) {
    const float *likeness = c->likeness + (size_t)i * c->probes;
    return r > 0 && likeness[r] < likeness[0];
}

/* Fills start and visitor; *pairs: products that all visits and homes take. */
static int plan_visits(search_state *x, float reach, double *pairs) {
    const cells *c = &x->c;
    size_t *start = x->start;
    memset(start, 0, ((size_t)c->count + 1) * sizeof *start);
    for (int i = 0; i < c->n; i++)
        for (int r = 0, end = visits_of(c, i, reach); r < end; r++)
            if (is_visit(c, i, r)) start[c->probe[(size_t)i * c->probes + r] + 1]++;
    *pairs = 0;
    for (int cell = 0; cell < c->count; cell++) {
        double size = c->start[cell + 1] - c->start[cell];
        *pairs += size * (size + (double)start[cell + 1]);
        start[cell + 1] += start[cell];
    }
    free(x->visitor);
    x->visitor = memory_new(what, start[c->count] + 1, sizeof *x->visitor);
    if (!x->visitor) return CONR_ENOMEM;
    for (int p = 0; p < c->n; p++) {
        int i = c->name[p];
        for (int r = 0, end = visits_of(c, i, reach); r < end; r++)
            if (is_visit(c, i, r)) x->visitor[start[c->probe[(size_t)i * c->probes + r]]++] = p;
    }
    memmove(start + 1, start, (size_t)c->count * sizeof *start);
    start[0] = 0;
    return 0;
}

/* Rows meet those of their own cell. */
static int search_homes(const search_state *x) {
    int32_t *all = memory_new(what, (size_t)x->c.n, sizeof *all);
    if (!all) return CONR_ENOMEM;
    for (int p = 0; p < x->c.n; p++) all[p] = p;
#pragma omp parallel for num_threads(x->dev->threads) schedule(dynamic)
    for (int cell = 0; cell < x->c.count; cell++)
        meet(x, cell, all + x->c.start[cell], (size_t)(x->c.start[cell + 1] - x->c.start[cell]),
             true);
    free(all);
    return 0;
}

/* Visitors meet the rows of each cell; ranks share out the cells. */
static int search_visits(const search_state *x) {
    int rc = 0, count = x->c.count;
    int rank = x->over ? x->over->rank : 0, step = x->over ? x->over->count : 1;
    for (int part = 0; part < PARTS; part++) {
        int first = (int)((long)count * part / PARTS),
            last = (int)((long)count * (part + 1) / PARTS);
#pragma omp parallel for num_threads(x->dev->threads) schedule(dynamic)
        for (int cell = first; cell < last; cell++)
            if (cell % step == rank)
                meet(x, cell, x->visitor + x->start[cell], x->start[cell + 1] - x->start[cell],
                     false);
        TRY(device_report(x->dev, what, part + 1, PARTS));
    }
    if (x->over) TRY(search_merge(x->over, x->c.n, x->k, x->ids, x->values));
done:
    return rc;
}

/* Rows that met too few others are searched exactly. */
static int complete(const search_state *x) {
    int rc = 0, w = x->k - 1, m = 0;
    int32_t row[SAMPLE];
    for (int i = 0; i < x->c.n; i++) {
        if (x->ids[(size_t)i * x->k + w] == INT32_MAX) row[m++] = i;
        if (m < SAMPLE && (m == 0 || i + 1 < x->c.n)) continue;
        search_rows(x, row, m, x->true_ids, x->true_values);
        for (int s = 0; s < m; s++) {
            size_t to = (size_t)row[s] * x->k + 1, from = (size_t)s * w;
            memcpy(x->ids + to, x->true_ids + from, (size_t)w * sizeof *x->ids);
            memcpy(x->values + to, x->true_values + from, (size_t)w * sizeof *x->values);
        }
        m = 0;
        TRY(device_report(x->dev, what, i + 1, x->c.n));
    }
done:
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void say(const search_state *x, double recall, double pairs) {
    char text[200];
    if (!x->dev->on_progress) return;
    snprintf(text, sizeof text,
             "nearest neighbors: %.2f %% found, measured on %d rows, by comparing each row with "
             "%.2g %% of the others",
             100 * recall, SAMPLE, 100 * pairs / x->c.n / x->c.n);
    conr_progress p = {.stage = what, .message = text};
    x->dev->on_progress(&p, x->dev->progress_user);
}

static int open_state(search_state *x) {
    int n = x->c.n, w = x->k - 1;
    rng_order order = rng_order_make(SEED, 0, (uint32_t)n);
    x->size = scan_room_size(x->kernel, x->c.d);
    x->room = memory_new(what, x->size * x->dev->threads, sizeof *x->room);
    x->beat = memory_new(what, (size_t)n, sizeof *x->beat);
    x->start = memory_new(what, (size_t)x->c.count + 1, sizeof *x->start);
    x->sample = memory_new(what, SAMPLE, sizeof *x->sample);
    x->true_ids = memory_new(what, (size_t)SAMPLE * w, sizeof *x->true_ids);
    x->true_values = memory_new(what, (size_t)SAMPLE * w, sizeof *x->true_values);
    if (!x->room || !x->beat || !x->start || !x->sample || !x->true_ids || !x->true_values)
        return CONR_ENOMEM;
    if (!(x->lock = memory_new(what, LOCKS, sizeof *x->lock))) return CONR_ENOMEM;
    for (int l = 0; l < LOCKS; l++) omp_init_lock(x->lock + l);
    for (int s = 0; s < SAMPLE; s++) x->sample[s] = (int32_t)rng_order_at(&order, (uint32_t)s);
    scan_clear(x->k, (size_t)n, x->ids, x->values);
    for (int i = 0; i < n; i++) {
        x->beat[i] = -INFINITY;
        x->ids[(size_t)i * x->k] = i, x->values[(size_t)i * x->k] = 1;
    }
    return 0;
}

static void close_state(search_state *x) {
    for (int l = 0; x->lock && l < LOCKS; l++) omp_destroy_lock(x->lock + l);
    cells_free(&x->c);
    free(x->beat), free(x->start), free(x->visitor), free(x->lock), free(x->room);
    free(x->sample), free(x->true_ids), free(x->true_values);
}

/* Bytes besides the results, with FEW probes and visits of each row; MANY of them, which few sets
 * need, are not counted. */
static double bytes_needed(const device *dev, double n, double d, double count) {
    double room = (double)scan_room_size(gemm_kernel_best(), (int)d) * dev->threads;
    return sizeof(float) * (n * d + 2 * count * d + room + n * (2 * FEW + FEW + 4));
}

int search_index(device *dev, ranks *over, const float *f, int n, int d, int k, double *recall,
                 int32_t *ids, float *values) {
    int rc = 0, count = (int)(2 * sqrt(n));
    double pairs = 0, all = (double)n * n / 2; /* products of the exact search */
    float reach;
    search_state x = {.dev = dev,
                      .over = over,
                      .f = f,
                      .kernel = gemm_kernel_best(),
                      .k = k,
                      .ids = ids,
                      .values = values};
    ASSERT(n > SAMPLE && k > 1 && k <= SEARCH_LISTS && *recall > 0 && *recall < 1);
    TRY(memory_check(what, bytes_needed(dev, n, d, count)));
    TRY(cells_make(dev, f, n, d, count, FEW, &x.c));
    TRY(open_state(&x));
    search_rows(&x, x.sample, SAMPLE, x.true_ids, x.true_values);
    TRY(plan_visits(&x, -1, &pairs)); /* only what the homes take */
    if (pairs < all) {
        TRY(search_homes(&x));
        TRY(choose_reach(&x, *recall, &reach));
        if (reach == INFINITY) {
            TRY(cells_widen(dev, f, MANY, &x.c));
            TRY(choose_reach(&x, *recall, &reach));
        }
        TRY(reach < INFINITY ? plan_visits(&x, reach, &pairs) : 0);
    }
    if (pairs >= all || reach == INFINITY) {
        close_state(&x);
        *recall = 1;
        return search_rounds(dev, over, f, n, d, k, ids, values);
    }
    TRY(search_visits(&x));
    *recall = 0;
    for (int s = 0; s < SAMPLE; s++) *recall += (double)found(&x, s) / (k - 1) / SAMPLE;
    TRY(complete(&x));
    say(&x, *recall, pairs);
done:
    close_state(&x);
    return rc;
}
