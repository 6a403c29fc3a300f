/* lloyd.c: one run of k-means.
 *
 * Lloyd's iteration: rows move to their nearest center, centers to the mean of their rows.  Most
 * rows stay where they are, and the triangle inequality shows which ones must, without computing
 * their distances (Yinyang k-means, Ding et al. 2015).  Stored for every row:
 *     upper            at least the distance to its own center
 *     lower[group]     at most the distance to any other center of that group
 * When centers move, the bounds move by the same amount.  A row whose upper bound is below all its
 * lower bounds is skipped; for the others the groups in question are computed, one row at a time:
 * they are one or two of many, and different ones for the next row.  (Gathering such rows into
 * panels for the micro-kernel was tried: copying them cost more than it saved.)  In the first two
 * iterations, when nothing can be skipped, all distances come from the micro-kernel.
 *
 * The bounds allow for the rounding of float sums.  Should rounding matter nevertheless: the labels
 * that a user sees are assigned from scratch at the end (kmeans.c). */
#include "clusters/kmeans.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_GROUPS = 64,
    MAX_NEARBY = 4096 /* with more centers, they are grouped in the given order */
};

typedef struct lloyd {
    device *dev;
    const points *p;
    int K, groups, per_group;   /* per_group: slots of a group, whole panels of nr */
    int slots;                  /* in total, rounded up to panels of mr too */
    int32_t *slot_of;           /* [K]: the slot of each center */
    int32_t *center_of;         /* [slots]: -1 if empty */
    double *mean, *sum;         /* [K,d]: the centers as plain means (the caller's); sums of rows */
    int64_t *count;             /* [K] */
    float *center;              /* [slots,d]: w of points.h */
    float *tall, *wide;         /* center in panels of mr and of nr rows */
    float *half;                /* [slots]: infinite if empty */
    float *drift, *group_drift; /* [slots], [groups]: how far centers moved in the last step */
    int32_t *slot, *before;     /* [n]: of each row, -1 at first; and before the last step */
    float *upper, *lower;       /* [n], [n,groups] */
    int32_t *moved;             /* [n]: rows whose slot changed */
    float *own;                 /* [n]: d2 to the own center; only while refilling clusters */
    float *scratch;             /* [threads, scratch_size] */
    size_t scratch_size;
} lloyd;

/* ---- groups of centers ----------------------------------------------------------------------- */

/* Puts centers near each other into the same group: repeatedly, the first free one and its nearest
 * free ones. */
static int group_centers(lloyd *l) {
    int K = l->K, d = l->p->d, rc = 0, slot = 0;
    for (int s = 0; s < l->slots; s++) l->center_of[s] = -1;
    for (int c = 0; c < K; c++) l->slot_of[c] = -1;
    float *w = NULL, *dot = NULL;
    if (l->groups == 1 || K > MAX_NEARBY) {
        for (int c = 0; c < K; c++) l->slot_of[c] = c, l->center_of[c] = c;
        return 0;
    }
    w = memory_new("k-means", (size_t)K * d, sizeof *w);
    dot = memory_new("k-means", (size_t)K * K, sizeof *dot);
    TRY(w && dot ? 0 : CONR_ENOMEM);
    for (size_t i = 0; i < (size_t)K * d; i++) w[i] = (float)l->mean[i];
    TRY(gemm(l->dev->threads, false, true, K, K, d, 1, w, d, w, d, 0, dot, K));
    for (int first = 0; first < K; first++) {
        if (l->slot_of[first] >= 0) continue;
        for (int next = first, n = 0; next >= 0 && n < l->per_group; n++) {
            l->slot_of[next] = slot, l->center_of[slot++] = next;
            next = -1;
            double least = INFINITY;
            for (int c = first + 1; c < K; c++) {
                double d2 = (double)dot[(size_t)c * K + c] - 2.0 * dot[(size_t)first * K + c];
                if (l->slot_of[c] < 0 && d2 < least) least = d2, next = c;
            }
        }
    }
done:
    free(w), free(dot);
    return rc;
}

/* ---- assignment ------------------------------------------------------------------------------ */

static float dot(const float *a, const float *b, int d) {
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    four sum[4] = {{0}};
    int j = 0;
    for (; j + 16 <= d; j += 16)
        for (int v = 0; v < 4; v++)
            sum[v] += *(const four *)(a + j + 4 * v) * *(const four *)(b + j + 4 * v);
    four all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float rest = 0;
    for (; j < d; j++) rest += a[j] * b[j];
    return (all[0] + all[1]) + (all[2] + all[3]) + rest;
}

static float distance_above(float d2, float slack) { return sqrtf(d2 > 0 ? d2 + slack : slack); }
static float distance_below(float d2, float slack) { return d2 > slack ? sqrtf(d2 - slack) : 0; }

/* d2 of row i to the center in a slot. */
static float row_to_center(const lloyd *l, int i, int slot) {
    const points *p = l->p;
    float score = dot(p->x + (size_t)i * p->d, l->center + (size_t)slot * p->d, p->d);
    return p->square[i] - 2 * (score - l->half[slot]);
}

/* The best two of one group for row i. */
typedef struct pair {
    float score, next;
    int slot;
} pair;

static pair row_to_group(const lloyd *l, int i, int group) {
    const points *p = l->p;
    int first = group * l->per_group, nr = p->kernel->nr;
    pair best = {-INFINITY, -INFINITY, -1};
    float dots[GEMM_NR];
    for (int slot = first; slot < first + l->per_group; slot += nr) {
        p->kernel->run_one(p->d, p->x + (size_t)i * p->d, l->wide + (size_t)slot * p->d, dots);
        for (int s = 0; s < nr; s++) {
            /* without branches, which could not be predicted */
            float score = dots[s] - l->half[slot + s];
            bool higher = score > best.score;
            float second = higher ? best.score : score;
            best.next = second > best.next ? second : best.next;
            best.slot = higher ? slot + s : best.slot;
            best.score = higher ? score : best.score;
        }
    }
    return best;
}

/* Assigns row i after the centers moved: its bounds move along; if they no longer decide, its
 * distances are computed. */
static void assign_row(lloyd *l, int i) {
    int own = l->slot[i], asked[MAX_GROUPS], n_asked = 0, best = own;
    float *lower = l->lower + (size_t)i * l->groups, square = l->p->square[i], least = INFINITY;
    l->upper[i] += l->drift[own];
    for (int g = 0; g < l->groups; g++) {
        lower[g] -= l->group_drift[g];
        least = lower[g] < least ? lower[g] : least;
    }
    if (l->upper[i] <= least) return;

    float own_d2 = row_to_center(l, i, own), own_slack = points_slack(square, l->half[own]);
    l->upper[i] = distance_above(own_d2, own_slack);
    for (int g = 0; g < l->groups; g++)
        if (l->upper[i] > lower[g]) asked[n_asked++] = g;
    least = own_d2;
    pair found[MAX_GROUPS];
    for (int a = 0; a < n_asked; a++) {
        found[a] = row_to_group(l, i, asked[a]);
        float d2 = square - 2 * found[a].score;
        if (found[a].slot != own && d2 < least) least = d2, best = found[a].slot;
    }
    for (int a = 0; a < n_asked; a++) {
        float score = found[a].slot == best ? found[a].next : found[a].score;
        lower[asked[a]] = distance_below(square - 2 * score, points_slack(square, l->half[best]));
    }
    if (best == own) return;
    l->slot[i] = best;
    l->upper[i] = distance_above(least, points_slack(square, l->half[best]));
    float *of_own = &lower[own / l->per_group], d = distance_below(own_d2, own_slack);
    if (d < *of_own) *of_own = d; /* the old center is now one of the others */
}

/* Assigns the rows of one panel, i .., from scratch, against all centers.  scratch: the best two of
 * each group, [groups,nr] each. */
static void assign_panel(lloyd *l, int i, float *scratch) {
    const points *p = l->p;
    int mr = p->kernel->mr, nr = p->kernel->nr, all = l->groups * nr;
    float *score = scratch, *next = scratch + all, tile[GEMM_TILE];
    int32_t *slot = (int32_t *)(scratch + 2 * all);
    for (int g = 0; g < l->groups; g++)
        points_best_clear(p, &(points_best){score + g * nr, next + g * nr, slot + g * nr});
    for (int s = 0; s < l->groups * l->per_group; s += mr) {
        gemm_tile(p->kernel, p->d, l->tall + (size_t)s * p->d, p->wide + (size_t)i * p->d, tile);
        for (int r = 0, count; r < mr && s + r < l->groups * l->per_group; r += count) {
            int g = (s + r) / l->per_group, left = (g + 1) * l->per_group - (s + r);
            count = mr - r < left ? mr - r : left;
            points_best best = {score + g * nr, next + g * nr, slot + g * nr};
            points_offer(p, tile + r * nr, l->half + s + r, s + r, count, &best);
        }
    }
    for (int c = 0; c < nr && i + c < p->n; c++) {
        float square = p->square[i + c], *lower = l->lower + (size_t)(i + c) * l->groups;
        int best = 0;
        for (int g = 1; g < l->groups; g++)
            if (score[g * nr + c] > score[best * nr + c]) best = g;
        int own = slot[best * nr + c];
        float slack = points_slack(square, l->half[own]);
        l->slot[i + c] = own;
        l->upper[i + c] = distance_above(square - 2 * score[best * nr + c], slack);
        for (int g = 0; g < l->groups; g++)
            lower[g] = distance_below(
                square - 2 * (g == best ? next[g * nr + c] : score[g * nr + c]), slack);
    }
}

static void assign(lloyd *l, int iteration) {
    int nr = l->p->kernel->nr, n = l->p->n;
    if (iteration <= 2) {
#pragma omp parallel for num_threads(l->dev->threads) schedule(dynamic, 8)
        for (int i = 0; i < n; i += nr)
            assign_panel(l, i, l->scratch + l->scratch_size * omp_get_thread_num());
    } else {
#pragma omp parallel for num_threads(l->dev->threads) schedule(dynamic, 256)
        for (int i = 0; i < n; i++) assign_row(l, i);
    }
}

/* ---- centers --------------------------------------------------------------------------------- */

/* Updates sums and counts after the slots changed from `before` to `slot`; returns the number of
 * changes.  Every thread owns some columns, so each sum is taken in the order of the rows whatever
 * the number of threads.  If changes are few, only differences are added. */
static int64_t update_sums(lloyd *l) {
    const points *p = l->p;
    int32_t *moved = l->moved;
    int d = p->d, threads = l->dev->threads, changes = 0;
    for (int i = 0; i < p->n; i++)
        if (l->slot[i] != l->before[i]) moved[changes++] = i;
    bool fresh = changes > p->n / 3;
    int64_t rows = fresh ? p->n : changes;
    if (fresh) memset(l->sum, 0, (size_t)l->K * d * sizeof *l->sum);
    if (fresh) memset(l->count, 0, (size_t)l->K * sizeof *l->count);
    for (int64_t m = 0; m < rows; m++) {
        int i = fresh ? (int)m : moved[m];
        if (!fresh) l->count[l->center_of[l->before[i]]]--;
        l->count[l->center_of[l->slot[i]]]++;
    }
    int width = ((d + threads - 1) / threads + 15) / 16 * 16;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int j0 = 0; j0 < d; j0 += width) {
        int j1 = j0 + width < d ? j0 + width : d;
        for (int64_t m = 0; m < rows; m++) {
            int i = fresh ? (int)m : moved[m];
            const float *x = p->x + (size_t)i * d;
            double *to = l->sum + (size_t)l->center_of[l->slot[i]] * d;
            for (int j = j0; j < j1; j++) to[j] += x[j];
            if (fresh) continue;
            double *from = l->sum + (size_t)l->center_of[l->before[i]] * d;
            for (int j = j0; j < j1; j++) from[j] -= x[j];
        }
    }
    memcpy(l->before, l->slot, (size_t)p->n * sizeof *l->slot);
    return changes;
}

/* Gives row i to the empty cluster c. */
static void move_row(lloyd *l, int i, int c) {
    const float *x = l->p->x + (size_t)i * l->p->d;
    double *from = l->sum + (size_t)l->center_of[l->slot[i]] * l->p->d;
    double *to = l->sum + (size_t)c * l->p->d;
    for (int j = 0; j < l->p->d; j++) from[j] -= x[j], to[j] = x[j];
    l->count[l->center_of[l->slot[i]]]--;
    l->count[c] = 1;
    l->slot[i] = l->before[i] = l->slot_of[c];
    l->upper[i] = INFINITY; /* its bounds are no longer valid */
    memset(l->lower + (size_t)i * l->groups, 0, (size_t)l->groups * sizeof *l->lower);
}

/* An empty cluster takes the row that is farthest from its own center, from a cluster of two or
 * more.  If every row is on its center (fewer distinct rows than clusters) it stays empty.  Returns
 * the number of clusters refilled. */
static int refill(lloyd *l) {
    const points *p = l->p;
    int refilled = 0, empty = 0;
    for (int c = 0; c < l->K; c++) empty += l->count[c] == 0;
    if (!empty) return 0;
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int i = 0; i < p->n; i++) {
        int own = l->slot[i];
        l->own[i] = row_to_center(l, i, own);
        if (l->own[i] < points_slack(p->square[i], l->half[own])) l->own[i] = 0;
    }
    for (int c = 0; c < l->K; c++) {
        if (l->count[c]) continue;
        int farthest = -1;
        for (int i = 0; i < p->n; i++)
            if (l->own[i] > 0 && l->count[l->center_of[l->slot[i]]] > 1 &&
                (farthest < 0 || l->own[i] > l->own[farthest]))
                farthest = i;
        if (farthest < 0) break;
        move_row(l, farthest, c);
        l->own[farthest] = 0;
        refilled++;
    }
    return refilled;
}

/* w of center c from its mean; returns how far it moved, rounded up. */
static float place_center(lloyd *l, int c) {
    const points *p = l->p;
    const double *mean = l->mean + (size_t)c * p->d;
    int slot = l->slot_of[c];
    float *w = l->center + (size_t)slot * p->d;
    double squares = 0, moved = 0, old_squares = 0, by = 1;
    for (int j = 0; j < p->d; j++) squares += mean[j] * mean[j];
    if (p->metric == CONR_COSINE) by = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = 0; j < p->d; j++) {
        float to = (float)(mean[j] * by);
        old_squares += (double)w[j] * w[j];
        moved += ((double)to - w[j]) * ((double)to - w[j]);
        w[j] = to;
    }
    l->half[slot] = p->metric == CONR_COSINE ? 0 : (float)(squares / 2);
    /* a zero center is sqrt(2) from every unit row, so its shift does not bound the change */
    if (p->metric == CONR_COSINE && (squares == 0) != (old_squares == 0)) return 2;
    return (float)(sqrt(moved) * (1 + 1e-6));
}

static void place_centers(lloyd *l) {
    const points *p = l->p;
    for (int g = 0; g < l->groups; g++) l->group_drift[g] = 0;
#pragma omp parallel for num_threads(l->dev->threads) schedule(static)
    for (int c = 0; c < l->K; c++) l->drift[l->slot_of[c]] = place_center(l, c);
    for (int c = 0; c < l->K; c++) {
        int slot = l->slot_of[c];
        float *of_group = &l->group_drift[slot / l->per_group];
        if (l->drift[slot] > *of_group) *of_group = l->drift[slot];
    }
    gemm_pack_all(l->center, l->slots, p->d, p->kernel->mr, l->dev->threads, l->tall);
    gemm_pack_all(l->center, l->slots, p->d, p->kernel->nr, l->dev->threads, l->wide);
}

/* Means of the sums; an empty cluster keeps its center.  Returns the sum of squared shifts. */
static double update_means(lloyd *l) {
    double shift = 0;
    for (int c = 0; c < l->K; c++) {
        if (!l->count[c]) continue;
        for (int j = 0; j < l->p->d; j++) {
            size_t at = (size_t)c * l->p->d + j;
            double mean = l->sum[at] / (double)l->count[c];
            shift += (mean - l->mean[at]) * (mean - l->mean[at]);
            l->mean[at] = mean;
        }
    }
    return shift;
}

/* Sum over the rows of d2 (or 1 - cos) to the mean of their cluster, from the sums of the clusters
 * only: sum |x|^2 - sum |S|^2 / count, or n - sum |S|. */
static double objective(const lloyd *l) {
    double sum = l->p->squares;
    for (int c = 0; c < l->K; c++) {
        double own = 0;
        for (int j = 0; j < l->p->d; j++) {
            double s = l->sum[(size_t)c * l->p->d + j];
            own += s * s;
        }
        if (l->count[c]) sum -= l->p->metric == CONR_COSINE ? sqrt(own) : own / (double)l->count[c];
    }
    return sum > 0 ? sum : 0;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void lloyd_free(lloyd *l) {
    free(l->slot_of), free(l->center_of), free(l->sum), free(l->count), free(l->center);
    free(l->tall), free(l->wide), free(l->half), free(l->drift), free(l->group_drift);
    free(l->slot), free(l->before), free(l->upper), free(l->lower), free(l->moved);
    free(l->own), free(l->scratch);
}

static int lloyd_new(lloyd *l) {
    const points *p = l->p;
    int mr = p->kernel->mr, nr = p->kernel->nr, panels = (l->K + nr - 1) / nr;
    int per_group = (panels + MAX_GROUPS - 1) / MAX_GROUPS;
    l->per_group = per_group * nr;
    l->groups = (panels + per_group - 1) / per_group;
    l->slots = (l->groups * l->per_group + mr - 1) / mr * mr;
    size_t slots = (size_t)l->slots, n = (size_t)p->n, d = (size_t)p->d;
    l->scratch_size = (3 * (size_t)l->groups * nr + 15) / 16 * 16;
    l->slot_of = memory_new("k-means", (size_t)l->K, sizeof *l->slot_of);
    l->center_of = memory_new("k-means", slots, sizeof *l->center_of);
    l->sum = memory_new("k-means", l->K * d, sizeof *l->sum);
    l->count = memory_new("k-means", (size_t)l->K, sizeof *l->count);
    l->center = memory_new("k-means", slots * d, sizeof *l->center);
    l->tall = memory_new("k-means", slots * d, sizeof *l->tall);
    l->wide = memory_new("k-means", gemm_panels_size(l->slots, p->d, nr), sizeof *l->wide);
    l->half = memory_new("k-means", slots, sizeof *l->half);
    l->drift = memory_new("k-means", slots, sizeof *l->drift);
    l->group_drift = memory_new("k-means", (size_t)l->groups, sizeof *l->group_drift);
    l->slot = memory_new("k-means", n, sizeof *l->slot);
    l->before = memory_new("k-means", n, sizeof *l->before);
    l->upper = memory_new("k-means", n, sizeof *l->upper);
    l->lower = memory_new("k-means", n * l->groups, sizeof *l->lower);
    l->moved = memory_new("k-means", n, sizeof *l->moved);
    l->own = memory_new("k-means", n, sizeof *l->own);
    l->scratch = memory_new("k-means", l->scratch_size * l->dev->threads, sizeof *l->scratch);
    if (!(l->slot_of && l->center_of && l->sum && l->count && l->center && l->tall && l->wide &&
          l->half && l->drift && l->group_drift && l->slot && l->before && l->upper && l->lower &&
          l->moved && l->own && l->scratch))
        return CONR_ENOMEM;
    memset(l->center, 0, slots * d * sizeof *l->center);
    for (size_t s = 0; s < slots; s++) l->half[s] = INFINITY, l->drift[s] = 0;
    for (size_t i = 0; i < n; i++) l->slot[i] = l->before[i] = -1;
    return 0;
}

static double imbalance(const lloyd *l) {
    double sum = 0, n = l->p->n;
    for (int c = 0; c < l->K; c++) sum += (l->count[c] / n) * (l->count[c] / n);
    return sum * l->K;
}

int lloyd_run(device *dev, const points *p, const conr_kmeans_options *o, int run, double *mean,
              double *result, lloyd_on_step *on_step, void *user) {
    int rc = 0;
    lloyd l = {.dev = dev, .p = p, .K = o->clusters, .mean = mean};
    TRY(lloyd_new(&l));
    TRY(group_centers(&l));
    place_centers(&l);
    for (int iteration = 1; iteration <= o->iterations; iteration++) {
        assign(&l, iteration);
        int64_t moved = update_sums(&l);
        int refilled = refill(&l);
        double shift = update_means(&l);
        place_centers(&l);
        *result = objective(&l);
        conr_kmeans_step step = {run, iteration, *result, imbalance(&l), moved, refilled};
        if (on_step) on_step(&step, user);
        if (!refilled && (moved == 0 || shift <= o->tolerance * p->variance)) break;
    }
done:
    lloyd_free(&l);
    return rc;
}
