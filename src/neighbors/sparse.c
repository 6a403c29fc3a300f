/* sparse.c: contextually affinitive neighbors row by row, for batches and whole data sets.
 *
 * The matrices of neighbors.h have a few dozen entries per row.  They are stored as rows of
 * (column, value) in ascending order of the column; sums of rows are merges, and H H^T is computed
 * through the columns of H: only pairs that share a column are ever visited. */
#include "neighbors/neighbors.h"

#include "base/memory.h"
#include "base/status.h"
#include "neighbors/affinity.h"
#include "neighbors/search.h"
#include "neighbors/whole.h"

#include <float.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    PART = 10000, /* rows ranked between two reports */
    SMALL = 512   /* rows for which one thread is enough, except in the expensive steps */
};

typedef struct entry {
    int32_t col;
    float value;
} entry;

typedef struct matrix { /* square, sparse */
    int n;
    size_t *start; /* [n+1]: row i is entry[start[i]] .. entry[start[i+1]-1] */
    entry *entry;  /* both owned */
} matrix;

static void matrix_free(matrix *m) {
    free(m->start);
    free(m->entry);
    *m = (matrix){0};
}

/* Allocates room for `entries` in total; start is zeroed. */
static int matrix_new(int n, size_t entries, matrix *out) {
    out->n = n;
    out->start = memory_new("neighbors", (size_t)n + 1, sizeof *out->start);
    out->entry = memory_new("neighbors", entries, sizeof *out->entry);
    if (!out->start || !out->entry) return matrix_free(out), CONR_ENOMEM;
    memset(out->start, 0, ((size_t)n + 1) * sizeof *out->start);
    return 0;
}

/* The first entry of a row whose column is at least col. */
static const entry *from_column(const entry *row, const entry *end, int col) {
    while (row < end) {
        const entry *middle = row + (end - row) / 2;
        if (middle->col < col)
            row = middle + 1;
        else
            end = middle;
    }
    return row;
}

/* Each thread fills its own rows of the result from its columns of all rows of m, and waits for no
 * other: the number of entries before its columns is where its own begin. */
static int transpose(const matrix *m, int threads, matrix *out) {
    int n = m->n, rc = matrix_new(n, m->start[n], out);
    if (rc < 0) return rc;
#pragma omp parallel num_threads(n < SMALL ? 1 : threads)
    {
        int id = omp_get_thread_num(), count = omp_get_num_threads();
        int low = (int)((long)n * id / count), high = (int)((long)n * (id + 1) / count);
        size_t at = 0;
        for (int i = 0; i < n; i++) {
            const entry *row = m->entry + m->start[i], *end = m->entry + m->start[i + 1];
            const entry *e = from_column(row, end, low);
            at += (size_t)(e - row);
            for (; e < end && e->col < high; e++) out->start[e->col + 1]++;
        }
        /* counts become offsets, shifted by one row: filling moves start[i+1] from the first entry
         * of row i to its end, where it belongs */
        for (int i = low; i < high; i++) {
            size_t entries = out->start[i + 1];
            out->start[i + 1] = at;
            at += entries;
        }
        for (int i = 0; i < n; i++) {
            const entry *end = m->entry + m->start[i + 1];
            const entry *e = from_column(m->entry + m->start[i], end, low);
            for (; e < end && e->col < high; e++)
                out->entry[out->start[e->col + 1]++] = (entry){i, e->value};
        }
    }
    return 0;
}

/* Closes the gaps: rows were given more room than they used.  count: [n] */
static void compact(matrix *m, const size_t *count) {
    size_t to = 0;
    for (int i = 0; i < m->n; i++) {
        size_t from = m->start[i];
        memmove(m->entry + to, m->entry + from, count[i] * sizeof *m->entry);
        m->start[i] = to;
        to += count[i];
    }
    m->start[m->n] = to;
    entry *smaller = realloc(m->entry, (to ? to : 1) * sizeof *smaller);
    if (smaller) m->entry = smaller;
}

/* out = row i of a + row i of b; returns the number of entries. */
static size_t add_rows(const matrix *a, const matrix *b, int i, entry *out) {
    const entry *x = a->entry + a->start[i], *x_end = a->entry + a->start[i + 1];
    const entry *y = b->entry + b->start[i], *y_end = b->entry + b->start[i + 1];
    const entry *start = out;
    while (x < x_end || y < y_end) {
        if (y == y_end || (x < x_end && x->col < y->col)) {
            *out++ = *x++;
        } else if (x == x_end || y->col < x->col) {
            *out++ = *y++;
        } else {
            *out++ = (entry){x->col, x->value + y->value};
            x++, y++;
        }
    }
    return (size_t)(out - start);
}

/* m <- m + m^T */
static int symmetrize(matrix *m, int threads) {
    int rc = 0, n = m->n;
    matrix turned = {0}, sum = {0};
    size_t *count = memory_new("neighbors", (size_t)n, sizeof *count);
    TRY(count ? 0 : CONR_ENOMEM);
    TRY(transpose(m, threads, &turned));
    TRY(matrix_new(n, 2 * m->start[n], &sum));
#pragma omp parallel for num_threads(n < SMALL ? 1 : threads) schedule(static)
    for (int i = 0; i < n; i++) {
        sum.start[i] = m->start[i] + turned.start[i];
        count[i] = add_rows(m, &turned, i, sum.entry + sum.start[i]);
    }
    compact(&sum, count);
    matrix_free(m);
    *m = sum;
    sum = (matrix){0};
done:
    matrix_free(&turned);
    matrix_free(&sum);
    free(count);
    return rc;
}

/* A = (R + R^T)/2 of the first k1 of each list.  ids: [n,width] */
static int adjacency(const int32_t *ids, int n, int width, int k1, int threads, matrix *a) {
    int rc = matrix_new(n, (size_t)n * k1, a);
    if (rc < 0) return rc;
#pragma omp parallel for num_threads(n < SMALL ? 1 : threads) schedule(static)
    for (int i = 0; i < n; i++) {
        entry *row = a->entry + (size_t)i * k1;
        for (int e = 0; e < k1; e++) { /* sorted by insertion: k1 is small */
            int32_t col = ids[(size_t)i * width + e];
            int at = e;
            for (; at > 0 && row[at - 1].col > col; at--) row[at] = row[at - 1];
            row[at] = (entry){col, 0.5f};
        }
        a->start[i + 1] = (size_t)(i + 1) * k1;
    }
    return symmetrize(a, threads);
}

/* ---- propagation ----------------------------------------------------------------------------- */

/* A row of sums under construction. */
typedef struct sums {
    int32_t *col;  /* [room] */
    double *value; /* [room] */
    size_t count;
} sums;

/* out = in + weight * row */
static void merge(const sums *in, float weight, const entry *row, const entry *end, sums *out) {
    size_t x = 0, to = 0;
    while (x < in->count || row < end) {
        bool left = row == end || (x < in->count && in->col[x] <= row->col);
        bool right = row < end && (x == in->count || row->col <= in->col[x]);
        out->col[to] = left ? in->col[x] : row->col;
        double sum = left ? in->value[x++] : 0;
        if (right) sum += (double)weight * row++->value;
        out->value[to++] = sum;
    }
    out->count = to;
}

/* Writes row i of the next H to `to`; returns the number of entries.  edge: [k2], of row i;
 * scratch, two rows of sums, and unit have room for the entries of all rows that are added. */
static size_t propagate_row(const matrix *a, const affinity_edge *edge, int k2, sums scratch[2],
                            float *unit, entry *to) {
    scratch[0].count = 0;
    for (int e = 0; e < k2; e++) {
        const entry *row = a->entry + a->start[edge[e].to];
        merge(&scratch[e & 1], edge[e].weight, row, a->entry + a->start[edge[e].to + 1],
              &scratch[!(e & 1)]);
    }
    const sums *sum = &scratch[k2 & 1];
    affinity_unit(sum->value, sum->count, unit);
    size_t count = 0;
    for (size_t c = 0; c < sum->count; c++)
        if (unit[c] != 0) to[count++] = (entry){sum->col[c], unit[c]};
    return count;
}

/* An upper bound on the entries of row i of the next H. */
static size_t row_room(const matrix *a, const affinity_edge *edge, int k2) {
    size_t room = 0;
    for (int e = 0; e < k2; e++) room += a->start[edge[e].to + 1] - a->start[edge[e].to];
    return room < (size_t)a->n ? room : (size_t)a->n;
}

/* h = the next H of a.  edges: [n,k2] */
static int propagate(const device *dev, const matrix *a, const affinity_edge *edges, int k2,
                     matrix *h) {
    int rc = 0, n = a->n;
    size_t total = 0, most = 0;
    size_t *count = memory_new("neighbors", (size_t)n, sizeof *count);
    char *scratch = NULL;
    TRY(count ? 0 : CONR_ENOMEM);
    for (int i = 0; i < n; i++) {
        size_t room = row_room(a, edges + (size_t)i * k2, k2);
        total += room;
        if (room > most) most = room;
    }
    TRY(matrix_new(n, total, h));
    for (int i = 0; i < n; i++)
        h->start[i + 1] = h->start[i] + row_room(a, edges + (size_t)i * k2, k2);
    size_t one = (most + 8) * (2 * (sizeof(double) + sizeof(int32_t)) + sizeof(float));
    one = (one + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    scratch = memory_new("neighbors", one, (size_t)dev->threads);
    TRY(scratch ? 0 : CONR_ENOMEM);
#pragma omp parallel num_threads(dev->threads)
    {
        double *values = (double *)(scratch + one * omp_get_thread_num());
        int32_t *columns = (int32_t *)(values + 2 * most);
        sums rows[2] = {{columns, values, 0}, {columns + most, values + most, 0}};
        float *unit = (float *)(columns + 2 * most);
#pragma omp for schedule(dynamic, 64)
        for (int i = 0; i < n; i++)
            count[i] =
                propagate_row(a, edges + (size_t)i * k2, k2, rows, unit, h->entry + h->start[i]);
    }
    compact(h, count);
done:
    free(count);
    free(scratch);
    return rc;
}

/* ---- ranking --------------------------------------------------------------------------------- */

/* What one thread needs to rank rows; sum is all zero between two rows. */
typedef struct ranker {
    double *sum;      /* [n] */
    int32_t *touched; /* [n+1] */
    float *values;    /* [k] */
} ranker;

static size_t ranker_bytes(int n, int k) {
    size_t bytes = (size_t)(n + 1) * (sizeof(double) + sizeof(int32_t)) + (size_t)k * sizeof(float);
    return (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

/* The ranker of a thread, in ranker_bytes of memory. */
static ranker ranker_at(void *memory, int n) {
    ranker r = {.sum = memory};
    r.touched = (int32_t *)(r.sum + n);
    r.values = (float *)(r.touched + n + 1);
    memset(r.sum, 0, (size_t)n * sizeof *r.sum);
    return r;
}

/* sum += value * column, recording which sums are new; returns the number recorded so far.  Without
 * a branch, which could not be predicted: this is where the time is spent. */
static inline int accumulate(double value, const entry *at, const entry *end, ranker *r,
                             int touched) {
    for (; at < end; at++) {
        double old = r->sum[at->col];
        r->sum[at->col] = old + value * at->value;
        r->touched[touched] = at->col;
        touched += old == 0;
    }
    return touched;
}

/* Inserts row j, if it is above zero and was not taken before, into the list after out[0]. */
static inline void take(ranker *r, int32_t j, int k, int32_t *out) {
    float value = (float)r->sum[j];
    r->sum[j] = 0;
    if (value > 0 && value >= r->values[k - 2]) search_offer(k - 1, out + 1, r->values, j, value);
}

/* After the row itself and the `listed` best of H H^T, adds the best of S that are not listed. */
static void fill_up(int listed, const int32_t *by_s, int k, int32_t *out) {
    for (int at = 1, found = listed; found < k - 1; at++) {
        bool there = false;
        for (int l = 1; l <= listed; l++) there |= out[l] == by_s[at];
        if (!there) out[1 + found++] = by_s[at];
    }
}

/* The k best of row i of H H^T, filled up from S.  by_s: the row's list of S; out: [k] */
static void rank_row(const matrix *h, const matrix *columns, int i, const int32_t *by_s, int k,
                     ranker *r, int32_t *out) {
    int touched = 0, listed = k - 1;
    if (k == 1) {
        out[0] = i;
        return;
    }
    for (size_t e = h->start[i]; e < h->start[i + 1]; e++) {
        size_t col = (size_t)h->entry[e].col;
        touched = accumulate(h->entry[e].value, columns->entry + columns->start[col],
                             columns->entry + columns->start[col + 1], r, touched);
    }
    out[0] = i;
    for (int at = 0; at < k - 1; at++) out[1 + at] = INT32_MAX, r->values[at] = 0;
    r->sum[i] = 0;
    /* the near ones first: most others then fail the first comparison */
    for (int at = 1; at < k; at++) take(r, by_s[at], k, out);
    for (int t = 0; t < touched; t++) take(r, r->touched[t], k, out);
    while (listed > 0 && r->values[listed - 1] == 0) listed--;
    fill_up(listed, by_s, k, out);
}

/* The values of H H^T of a list that was just ranked: 0 where it was filled up.  out: [k] */
static void keep_values(const ranker *r, int k, float *out) {
    out[0] = 1;
    for (int e = 1; e < k; e++) out[e] = r->values[e - 1] > 0 ? r->values[e - 1] : 0;
}

/* ids, affinity (or NULL): [n,k]; by_s: [n,width] */
static int rank(device *dev, const matrix *h, const int32_t *by_s, int width, int k, int32_t *ids,
                float *affinity) {
    int rc = 0, n = h->n;
    matrix columns = {0};
    size_t one = ranker_bytes(n, k);
    char *memory = memory_new("neighbors", one, (size_t)dev->threads);
    TRY(memory ? 0 : CONR_ENOMEM);
    TRY(transpose(h, dev->threads, &columns));
    for (int first = 0; first < n; first += PART) {
        int last = first + PART < n ? first + PART : n;
#pragma omp parallel num_threads(dev->threads)
        {
            ranker r = ranker_at(memory + one * omp_get_thread_num(), n);
#pragma omp for schedule(dynamic, 32)
            for (int i = first; i < last; i++) {
                rank_row(h, &columns, i, by_s + (size_t)i * width, k, &r, ids + (size_t)i * k);
                if (affinity) keep_values(&r, k, affinity + (size_t)i * k);
            }
        }
        TRY(device_report(dev, "ranking", last, n));
    }
done:
    matrix_free(&columns);
    free(memory);
    return rc;
}

/* ---- ranking of a batch ---------------------------------------------------------------------- */

/* H H^T is symmetric.  If it can be stored, each element above zero is computed once, for the lower
 * of its two rows, and copied to the other row afterwards by the thread that will rank that row. */
typedef struct pairs {
    int pitch;
    int32_t *ids;  /* [n,pitch]: the partners of row i, those after i first */
    float *values; /* [n,pitch]: of H H^T */
    int *after;    /* [n]: number of partners after i */
    int *count;    /* [n]: number of all partners */
} pairs;

/* As accumulate, for the entries after row i in a column that has row i; end: of the column. */
static inline int accumulate_after(double value, const entry *end, int i, ranker *r, int touched) {
    for (const entry *at = end - 1; at->col > i; at--) {
        double old = r->sum[at->col];
        r->sum[at->col] = old + value * at->value;
        r->touched[touched] = at->col;
        touched += old == 0;
    }
    return touched;
}

/* Pairs row i with the rows after it. */
static void pair_row(const matrix *h, const matrix *columns, int i, ranker *r, const pairs *p) {
    int32_t *ids = p->ids + (size_t)i * p->pitch;
    float *values = p->values + (size_t)i * p->pitch;
    int touched = 0;
    for (size_t e = h->start[i]; e < h->start[i + 1]; e++) {
        size_t end = columns->start[h->entry[e].col + 1];
        touched = accumulate_after(h->entry[e].value, columns->entry + end, i, r, touched);
    }
    for (int t = 0; t < touched; t++) {
        int32_t j = ids[t] = r->touched[t];
        values[t] = (float)r->sum[j];
        r->sum[j] = 0;
    }
    p->after[i] = p->count[i] = touched;
}

/* Pairs rows low .. high-1 with the rows before them. */
static void pair_back(const pairs *p, int low, int high) {
    for (int i = 0; i < high; i++) {
        const int32_t *ids = p->ids + (size_t)i * p->pitch;
        const float *values = p->values + (size_t)i * p->pitch;
        for (int t = 0; t < p->after[i]; t++) {
            int32_t j = ids[t];
            if (j < low || j >= high) continue;
            size_t at = (size_t)j * p->pitch + p->count[j]++;
            p->ids[at] = i;
            p->values[at] = values[t];
        }
    }
}

/* As rank_row, from the pairs of row i. */
static void rank_pairs(const pairs *p, int i, const int32_t *by_s, int k, ranker *r, int32_t *out) {
    size_t row = (size_t)i * p->pitch;
    out[0] = i;
    if (k == 1) return;
    int listed = whole_best(p->values + row, p->ids + row, p->count[i], FLT_TRUE_MIN, k - 1,
                            r->touched, out + 1, r->values);
    fill_up(listed, by_s, k, out);
}

/* As rank, by pairs. */
static int rank_batch(device *dev, const matrix *h, const int32_t *by_s, int width, int k,
                      int32_t *ids, float *affinity) {
    int rc = 0, n = h->n;
    matrix columns = {0};
    size_t one = ranker_bytes(n, k), square = (size_t)n * whole_pitch(n);
    pairs p = {.pitch = whole_pitch(n)};
    char *memory = memory_new("neighbors", one, (size_t)dev->threads);
    p.ids = memory_new("neighbors", square, sizeof *p.ids);
    p.values = memory_new("neighbors", square, sizeof *p.values);
    p.after = memory_new("neighbors", 2 * (size_t)n, sizeof *p.after);
    TRY(memory && p.ids && p.values && p.after ? 0 : CONR_ENOMEM);
    p.count = p.after + n;
    TRY(transpose(h, dev->threads, &columns));
#pragma omp parallel num_threads(dev->threads)
    {
        int id = omp_get_thread_num(), count = omp_get_num_threads();
        int low = (int)((long)n * id / count), high = (int)((long)n * (id + 1) / count);
        ranker r = ranker_at(memory + one * id, n);
#pragma omp for schedule(dynamic, 16)
        for (int i = 0; i < n; i++) pair_row(h, &columns, i, &r, &p);
        pair_back(&p, low, high);
        for (int i = low; i < high; i++) {
            rank_pairs(&p, i, by_s + (size_t)i * width, k, &r, ids + (size_t)i * k);
            if (affinity) keep_values(&r, k, affinity + (size_t)i * k);
        }
    }
    TRY(device_report(dev, "ranking", n, n));
done:
    matrix_free(&columns);
    free(p.ids), free(p.values), free(p.after), free(memory);
    return rc;
}

int neighbors_from_lists(device *dev, const int32_t *by_s, const float *values, int n, int width,
                         const conr_neighbors_options *o, int32_t *ids, float *affinity) {
    int rc = 0, k2 = o->k2;
    matrix a = {0}, h = {0};
    affinity_edge *edges = memory_new("neighbors", (size_t)n * k2, sizeof *edges);
    TRY(edges ? 0 : CONR_ENOMEM);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < n; i++)
        affinity_edges(by_s + (size_t)i * width, values + (size_t)i * width, o,
                       edges + (size_t)i * k2);
    TRY(adjacency(by_s, n, width, o->k1, dev->threads, &a));
    for (int layer = 0; layer < o->layers; layer++) {
        if (layer > 0 && o->resymmetrize) TRY(symmetrize(&a, dev->threads));
        TRY(propagate(dev, &a, edges, k2, &h));
        matrix_free(&a);
        a = h;
        h = (matrix){0};
    }
    TRY((n <= WHOLE_ROWS ? rank_batch : rank)(dev, &a, by_s, width, o->k, ids, affinity));
done:
    matrix_free(&a);
    matrix_free(&h);
    free(edges);
    return rc;
}

int neighbors_sparse(device *dev, ranks *over, const float *f, int n, int d,
                     const conr_neighbors_options *o, int32_t *ids) {
    int rc = 0, width = affinity_width(o);
    double recall = o->recall;
    float *values = memory_new("neighbors", (size_t)n * width, sizeof *values);
    int32_t *by_s = memory_new("neighbors", (size_t)n * width, sizeof *by_s);
    TRY(values && by_s ? 0 : CONR_ENOMEM);
    TRY(search_nearest(dev, over, f, n, d, width, &recall, by_s, values));
    TRY(neighbors_from_lists(dev, by_s, values, n, width, o, ids, NULL));
done:
    free(values), free(by_s);
    return rc;
}
