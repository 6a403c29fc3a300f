/* pairs.c: candidates by tables of bits of the hashes, and the pairs among them that are alike. */
#include "looks/looks.h"

#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLES = 12,  /* each of other bits: a copy is missed only if a bit of each differs */
    APART = 18,   /* bits of 63 that a candidate may differ in */
    AROUND = 100, /* entries of a table that are looked at on either side of an image */
    NEAREST = 10  /* candidates from a table that are compared */
};

/* A window of an image under its hash. */
typedef struct entry {
    uint64_t hash;
    int32_t image, window;
} entry;

typedef struct table {
    entry *entry;   /* [m], by key and then by hash */
    int64_t *first; /* [2^bits+1] */
    int64_t m;
    int bits;
    unsigned char bit[32]; /* which bits of the hash make the key */
} table;

static uint32_t key_of(const table *t, uint64_t hash) {
    uint32_t key = 0;
    for (int b = 0; b < t->bits; b++) key |= (uint32_t)(hash >> t->bit[b] & 1) << b;
    return key;
}

static int by_hash(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    return (x->window > y->window) - (x->window < y->window);
}

/* Low frequencies change least: they are drawn more often. */
static void choose_bits(table *t, int which) {
    uint64_t used = 1, state = 0x9E3779B97F4A7C15u * (uint64_t)(which + 1);
    for (int b = 0; b < t->bits;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int row = (int)(state >> 33 & 7), column = (int)(state >> 43 & 7);
        if ((int)(state >> 53 & 7) < (row > column ? row : column) - 2) continue;
        int bit = row * 8 + column;
        if (used >> bit & 1) continue;
        used |= (uint64_t)1 << bit;
        t->bit[b++] = (unsigned char)bit;
    }
}

static void fill(table *t, const conr_looks *l, int threads) {
    int64_t keys = (int64_t)1 << t->bits, at = 0;
    memset(t->first, 0, ((size_t)keys + 1) * sizeof *t->first);
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t i = 0; i < l->n; i++)
            for (int w = 0; w < LOOK_WINDOWS && !l->look[i].plain; w++) {
                uint32_t key = key_of(t, l->look[i].hash[w]);
                if (turn)
                    t->entry[t->first[key]++] = (entry){l->look[i].hash[w], (int32_t)i, w};
                else
                    t->first[key]++;
            }
        for (int64_t k = 0; !turn && k <= keys; k++) { /* counts become beginnings */
            int64_t count = t->first[k];
            t->first[k] = at;
            at += count;
        }
    }
    t->m = at;
    for (int64_t k = keys; k > 0; k--) t->first[k] = t->first[k - 1]; /* ends become beginnings */
    t->first[0] = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 64)
    for (int64_t k = 0; k < keys; k++)
        qsort(t->entry + t->first[k], (size_t)(t->first[k + 1] - t->first[k]), sizeof *t->entry,
              by_hash);
}

/* ---- one image ------------------------------------------------------------------------------- */

/* Candidates of one image: the best window of each other one. */
typedef struct found {
    int32_t image, window, apart;
} found;

static int by_image(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    if (x->apart != y->apart) return x->apart < y->apart ? -1 : 1;
    return (x->window > y->window) - (x->window < y->window);
}

static int by_apart(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->apart != y->apart) return x->apart < y->apart ? -1 : 1;
    return (x->image > y->image) - (x->image < y->image);
}

static int look_up(const table *t, const look *own, int32_t image, found *out) {
    uint64_t hash = own->hash[0];
    uint32_t key = key_of(t, hash);
    int64_t low = t->first[key], high = t->first[key + 1], a = low, b = high;
    int n = 0;
    while (a < b) { /* where its own hash is, or would be */
        int64_t middle = a + (b - a) / 2;
        if (t->entry[middle].hash < hash)
            a = middle + 1;
        else
            b = middle;
    }
    if (a - AROUND > low) low = a - AROUND;
    if (a + AROUND < high) high = a + AROUND;
    for (int64_t j = low; j < high; j++) {
        const entry *e = t->entry + j;
        int apart = __builtin_popcountll(e->hash ^ hash);
        if (e->image == image || apart > APART) continue;
        out[n++] = (found){e->image, e->window, apart};
    }
    return n;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

typedef struct list {
    look_pair *pair;
    int64_t n, room;
} list;

static bool add(list *l, look_pair p) {
    if (l->n == l->room) {
        int64_t room = l->room ? 2 * l->room : 1024;
        look_pair *more = realloc(l->pair, (size_t)room * sizeof *more);
        if (!more) return false;
        l->pair = more, l->room = room;
    }
    l->pair[l->n++] = p;
    return true;
}

static int by_pair(const void *a, const void *b) {
    const look_pair *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->second != y->second) return x->second < y->second ? -1 : 1;
    return (x->similarity < y->similarity) - (x->similarity > y->similarity);
}

/* Each pair once, with its best similarity. */
static void unite(list *l) {
    int64_t kept = 0;
    if (l->n) qsort(l->pair, (size_t)l->n, sizeof *l->pair, by_pair);
    for (int64_t i = 0; i < l->n; i++)
        if (!kept || l->pair[i].first != l->pair[kept - 1].first ||
            l->pair[i].second != l->pair[kept - 1].second)
            l->pair[kept++] = l->pair[i];
    l->n = kept;
}

/* What was compared lately, so that it is not compared again for another table: a place may be taken
 * by another, and then something is computed twice, to the same result. */
enum { SEEN = 1 << 20 };

static bool was_seen(_Atomic uint64_t *seen, int64_t i, const found *f) {
    uint64_t key =
        ((uint64_t)i << 32 | (uint32_t)f->image) * LOOK_WINDOWS + (uint64_t)f->window + 1;
    _Atomic uint64_t *at = seen + (key * 0x9E3779B97F4A7C15u >> 44);
    if (atomic_load_explicit(at, memory_order_relaxed) == key) return true;
    atomic_store_explicit(at, key, memory_order_relaxed);
    return false;
}

/* The candidates of images from .. to-1 in one table, compared. */
static bool compare_some(const conr_looks *l, const table *t, int64_t from, int64_t to, int threads,
                         _Atomic uint64_t *seen, list *out) {
    bool ok = true;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 32)
    for (int64_t i = from; i < to; i++) {
        found near[2 * AROUND];
        if (l->look[i].plain) continue;
        int n = look_up(t, &l->look[i], (int32_t)i, near);
        qsort(near, (size_t)n, sizeof *near, by_image);
        int kept = 0;
        for (int j = 0; j < n; j++)
            if (j == 0 || near[j].image != near[kept - 1].image) near[kept++] = near[j];
        qsort(near, (size_t)kept, sizeof *near, by_apart);
        for (int j = 0; j < kept && j < NEAREST; j++) {
            if (was_seen(seen, i, &near[j])) continue;
            float s =
                look_compare(&l->look[i], &l->look[near[j].image], look_windows()[near[j].window]);
            if (s < LOOK_LEAST) continue;
            int32_t a = (int32_t)i, b = near[j].image;
            look_pair p = {a < b ? a : b, a < b ? b : a, s > 1 ? 1 : s};
#pragma omp critical
            ok = add(out, p) && ok;
        }
    }
    return ok;
}

int looks_pair(conr *c, conr_looks *l) {
    enum { AT_ONCE = 4096 };
    int rc = 0, threads = c->host->threads;
    list all = {0};
    _Atomic uint64_t *seen = calloc(SEEN, sizeof *seen);
    table t = {.bits = 10};
    int64_t most = l->n * LOOK_WINDOWS;
    while (t.bits < 22 && (most >> t.bits) > 64) t.bits++;
    if (t.bits > 18) t.bits = 18; /* more bits would miss more copies */
    t.entry = memory_new("hashes", (size_t)most, sizeof *t.entry);
    t.first = memory_new("hashes", ((size_t)1 << t.bits) + 1, sizeof *t.first);
    TRY(t.entry && t.first ? 0 : CONR_ENOMEM);
    if (!seen) TRY(fail_memory("pairs", 8.0 * SEEN));
    for (int which = 0; which < TABLES; which++) {
        choose_bits(&t, which);
        fill(&t, l, threads);
        for (int64_t from = 0; from < l->n; from += AT_ONCE) {
            int64_t to = from + AT_ONCE < l->n ? from + AT_ONCE : l->n;
            TRY(device_report(c->dev, "comparing", which * l->n + from, TABLES * l->n));
            if (!compare_some(l, &t, from, to, threads, seen, &all))
                TRY(fail_memory("pairs", 12.0 * (double)all.n));
        }
        unite(&all);
    }
    l->pair = all.pair, l->n_pairs = all.n, l->paired = true;
    all.pair = NULL;
done:
    free(all.pair), free(t.entry), free(t.first), free(seen);
    return rc;
}
