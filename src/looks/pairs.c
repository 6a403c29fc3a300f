/* pairs.c: candidates by tables of bits of the hashes, and the pairs among them that are alike.
 *
 * However alike the images of a source are, each looks at a bounded number of entries of each table
 * and is compared with at most KEEP others, the nearest by their hashes: time and memory grow as the
 * number of images.  Of images with the same bytes only the first takes part. */
#include "looks/looks.h"

#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

enum {
    TABLES = 12,  /* each of other bits: a copy is missed only if a bit of each differs */
    APART = 18,   /* bits of 63 that a candidate may differ in */
    AROUND = 100, /* entries of a table that are looked at on either side of an image */
    PROBES = 4,   /* keys of a table that are looked up: the image's, and with a weak bit changed */
    KEEP = 16     /* candidates of an image that are compared */
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

static bool is_left_out(const conr_looks *l, int64_t i) {
    return l->look[i].plain || l->look[i].again;
}

static void fill(table *t, const conr_looks *l, int threads) {
    int64_t keys = (int64_t)1 << t->bits, at = 0;
    memset(t->first, 0, ((size_t)keys + 1) * sizeof *t->first);
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t i = 0; i < l->n; i++)
            for (int w = 0; w < LOOK_WINDOWS && !is_left_out(l, i); w++) {
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

/* ---- candidates ------------------------------------------------------------------------------ */

/* Another image, the window of it that is nearest, and how many bits that differs in. */
typedef struct candidate {
    int32_t image;
    unsigned char window, apart;
} candidate;

/* Those of all images: [n,KEEP], nearest first. */
typedef struct candidates {
    candidate *of;
    unsigned char *count; /* [n] */
} candidates;

static bool is_nearer(candidate a, candidate b) {
    if (a.apart != b.apart) return a.apart < b.apart;
    if (a.image != b.image) return a.image < b.image;
    return a.window < b.window;
}

/* Keeps the nearest KEEP, each image once. */
static void propose(candidate *list, unsigned char *count, candidate c) {
    int n = *count, at = 0;
    if (n == KEEP && !is_nearer(c, list[n - 1])) return;
    for (int j = 0; j < n; j++)
        if (list[j].image == c.image) {
            if (!is_nearer(c, list[j])) return;
            memmove(list + j, list + j + 1, (size_t)(n - j - 1) * sizeof *list);
            n--;
            break;
        }
    if (n == KEEP) n--;
    for (at = n; at > 0 && is_nearer(c, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = c;
    *count = (unsigned char)(n + 1);
}

/* The entries of a key around a hash. */
static void look_up(const table *t, uint32_t key, uint64_t hash, int32_t image, candidate *list,
                    unsigned char *count) {
    int64_t low = t->first[key], high = t->first[key + 1], a = low, b = high;
    while (a < b && high - low > 2 * AROUND) { /* where its own hash is, or would be */
        int64_t middle = a + (b - a) / 2;
        if (t->entry[middle].hash < hash)
            a = middle + 1;
        else
            b = middle;
    }
    if (high - low > 2 * AROUND) {
        if (a - AROUND > low) low = a - AROUND;
        if (a + AROUND < high) high = a + AROUND;
    }
    for (int64_t j = low; j < high; j++) {
        const entry *e = t->entry + j;
        int apart = __builtin_popcountll(e->hash ^ hash);
        if (e->image == image || apart > APART) continue;
        propose(list, count, (candidate){e->image, (unsigned char)e->window, (unsigned char)apart});
    }
}

/* Candidates of an image from one table. */
static void look_around(const conr_looks *l, const table *t, int64_t i, candidates *out) {
    const look *own = &l->look[i];
    candidate *list = out->of + i * KEEP;
    uint32_t key = key_of(t, own->hash[0]);
    look_up(t, key, own->hash[0], (int32_t)i, list, &out->count[i]);
    for (int w = 0, probes = 1; w < LOOK_WEAK && probes < PROBES; w++)
        for (int b = 0; b < t->bits; b++)
            if (t->bit[b] == own->weak[w]) {
                look_up(t, key ^ 1u << b, own->hash[0], (int32_t)i, list, &out->count[i]);
                probes++;
            }
}

static int find_candidates(conr *c, const conr_looks *l, candidates *out) {
    enum { AT_ONCE = 4096 };
    int rc = 0, threads = c->host->threads;
    table t = {.bits = 10};
    int64_t most = l->n * LOOK_WINDOWS;
    while (t.bits < 18 && (most >> t.bits) > 64) t.bits++; /* more would miss more copies */
    t.entry = memory_new("hashes", (size_t)most, sizeof *t.entry);
    t.first = memory_new("hashes", ((size_t)1 << t.bits) + 1, sizeof *t.first);
    TRY(t.entry && t.first ? 0 : CONR_ENOMEM);
    for (int which = 0; which < TABLES; which++) {
        choose_bits(&t, which);
        fill(&t, l, threads);
        for (int64_t from = 0; from < l->n; from += AT_ONCE) {
            int64_t to = from + AT_ONCE < l->n ? from + AT_ONCE : l->n;
            TRY(device_report(c->dev, "searching", which * l->n + from, TABLES * l->n));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 32)
            for (int64_t i = from; i < to; i++)
                if (!is_left_out(l, i)) look_around(l, &t, i, out);
        }
    }
done:
    free(t.entry), free(t.first);
    return rc;
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

static int by_similarity(const void *a, const void *b) {
    const look_pair *x = a, *y = b;
    if (x->similarity != y->similarity) return x->similarity > y->similarity ? -1 : 1;
    return by_pair(a, b);
}

/* Each pair once, with its best similarity, the most alike first. */
static void unite(list *l) {
    int64_t kept = 0;
    if (l->n) qsort(l->pair, (size_t)l->n, sizeof *l->pair, by_pair);
    for (int64_t i = 0; i < l->n; i++)
        if (!kept || l->pair[i].first != l->pair[kept - 1].first ||
            l->pair[i].second != l->pair[kept - 1].second)
            l->pair[kept++] = l->pair[i];
    l->n = kept;
    if (kept) qsort(l->pair, (size_t)kept, sizeof *l->pair, by_similarity);
}

/* Whether the other one compares these two: whole with whole is the same both ways. */
static bool is_done_there(const candidates *all, int64_t i, candidate c) {
    if (c.window != 0 || c.image > i) return false;
    const candidate *list = all->of + (int64_t)c.image * KEEP;
    for (int j = 0; j < all->count[c.image]; j++)
        if (list[j].image == i) return list[j].window == 0;
    return false;
}

/* Compares image i with its candidates. */
static bool compare_one(const conr_looks *l, const candidates *all, int64_t i, list *out) {
    float own[LOOK_OWN];
    bool ok = true;
    if (all->count[i] == 0 || !look_own(&l->look[i], own)) return true;
    for (int j = 0; j < all->count[i]; j++) {
        candidate c = all->of[i * KEEP + j];
        if (is_done_there(all, i, c)) continue;
        float s = look_compare(&l->look[i], own, &l->look[c.image], look_windows()[c.window]);
        if (s < LOOK_LEAST) continue;
        int32_t a = (int32_t)i, b = c.image;
        look_pair p = {a < b ? a : b, a < b ? b : a, s > 1 ? 1 : s};
#pragma omp critical
        ok = add(out, p) && ok;
    }
    return ok;
}

int looks_pair(conr *c, conr_looks *l) {
    enum { AT_ONCE = 4096 };
    int rc = 0, threads = c->host->threads;
    bool ok = true;
    list pairs = {0};
    candidates all = {memory_new("candidates", (size_t)l->n * KEEP, sizeof *all.of),
                      calloc((size_t)l->n + 1, 1)};
    TRY(all.of ? 0 : CONR_ENOMEM);
    if (!all.count) TRY(fail_memory("candidates", (double)l->n));
    TRY(find_candidates(c, l, &all));
    for (int64_t from = 0; from < l->n; from += AT_ONCE) {
        int64_t to = from + AT_ONCE < l->n ? from + AT_ONCE : l->n;
        TRY(device_report(c->dev, "comparing", from, l->n));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 32) reduction(&& : ok)
        for (int64_t i = from; i < to; i++) ok = compare_one(l, &all, i, &pairs) && ok;
        if (!ok) TRY(fail_memory("pairs", 12.0 * (double)pairs.n));
    }
    unite(&pairs);
    l->pair = pairs.pair, l->n_pairs = pairs.n, l->paired = true;
    pairs.pair = NULL;
done:
    free(pairs.pair), free(all.of), free(all.count);
    return rc;
}
