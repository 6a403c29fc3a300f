/* graph_make.c: the graph of a set of rows: from lists of neighbors to one connected, symmetric
 * graph. */
#include "clusters/graph.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOSTS = 256,  /* components that others can be joined to: the largest */
    SEATS = 4096, /* rows of them that are compared, at most */
};

void graph_free(graph *g) {
    free(g->start), free(g->to), free(g->weight);
    *g = (graph){0};
}

typedef struct link {
    int32_t a, b;
    float weight;
} link;

/* Counts become offsets. */
static void add_up(size_t *start, int n) {
    for (int i = 0; i < n; i++) start[i + 1] += start[i];
}

/* Sorts a row by `to` and adds up edges to the same row; returns how many are left. */
static size_t tidy_row(int32_t *to, float *weight, size_t count) {
    size_t kept = 0;
    for (size_t e = 1; e < count; e++) { /* the two halves of the row are sorted or short */
        int32_t t = to[e];
        float w = weight[e];
        size_t at = e;
        for (; at > 0 && to[at - 1] > t; at--) to[at] = to[at - 1], weight[at] = weight[at - 1];
        to[at] = t, weight[at] = w;
    }
    for (size_t e = 0; e < count; e++) {
        if (kept && to[kept - 1] == to[e])
            weight[kept - 1] += weight[e];
        else
            to[kept] = to[e], weight[kept++] = weight[e];
    }
    return kept;
}

/* The graph of links, each of which counts in both directions. */
static int from_links(const link *links, size_t count, int n, graph *out) {
    int rc = 0;
    size_t to = 0;
    size_t *fill = memory_new("graph", (size_t)n + 1, sizeof *fill);
    *out = (graph){.n = n};
    out->start = memory_new("graph", (size_t)n + 1, sizeof *out->start);
    out->to = memory_new("graph", 2 * count + 1, sizeof *out->to);
    out->weight = memory_new("graph", 2 * count + 1, sizeof *out->weight);
    TRY(fill && out->start && out->to && out->weight ? 0 : CONR_ENOMEM);
    memset(fill, 0, ((size_t)n + 1) * sizeof *fill);
    for (size_t l = 0; l < count; l++) fill[links[l].a + 1]++, fill[links[l].b + 1]++;
    add_up(fill, n);
    memcpy(out->start, fill, ((size_t)n + 1) * sizeof *fill);
    for (size_t l = 0; l < count; l++) {
        size_t a = fill[links[l].a]++, b = fill[links[l].b]++;
        out->to[a] = links[l].b, out->to[b] = links[l].a;
        out->weight[a] = out->weight[b] = links[l].weight;
    }
    for (int i = 0; i < n; i++) {
        size_t from = out->start[i], kept = out->start[i + 1] - from;
        kept = tidy_row(out->to + from, out->weight + from, kept);
        memmove(out->to + to, out->to + from, kept * sizeof *out->to);
        memmove(out->weight + to, out->weight + from, kept * sizeof *out->weight);
        out->start[i] = to;
        to += kept;
    }
    out->start[n] = to;
done:
    free(fill);
    if (rc < 0) graph_free(out);
    return rc;
}

int graph_make(const int32_t *ids, const float *affinity, int n, int k, graph *out) {
    size_t count = 0;
    link *links = memory_new("graph", (size_t)n * k, sizeof *links);
    if (!links) return CONR_ENOMEM;
    for (int i = 0; i < n; i++)
        for (size_t e = (size_t)i * k; e < (size_t)(i + 1) * k; e++)
            if (ids[e] != i && affinity[e] > 0) links[count++] = (link){i, ids[e], affinity[e] / 2};
    int rc = from_links(links, count, n, out);
    free(links);
    return rc;
}

/* ---- components ------------------------------------------------------------------------------ */

typedef struct components {
    int count;
    int32_t *of;    /* [n]: the component of each row, by descending size, then first row */
    int32_t *size;  /* [count] */
    float *mean;    /* [count,d]: of unit rows, itself of length 1 */
    float *similar; /* [n]: scratch */
} components;

static void components_free(components *p) {
    free(p->of), free(p->size), free(p->mean), free(p->similar);
}

/* Names each row's component in the order of their first rows; returns how many there are.
 * queue: [n] */
static int find(const graph *g, int32_t *of, int32_t *queue) {
    int count = 0;
    for (int i = 0; i < g->n; i++) of[i] = -1;
    for (int i = 0; i < g->n; i++) {
        if (of[i] >= 0) continue;
        int head = 0, tail = 0;
        of[i] = count;
        queue[tail++] = i;
        while (head < tail) {
            int32_t a = queue[head++];
            for (size_t e = g->start[a]; e < g->start[a + 1]; e++)
                if (of[g->to[e]] < 0) of[g->to[e]] = count, queue[tail++] = g->to[e];
        }
        count++;
    }
    return count;
}

typedef struct sized {
    int32_t size, name;
} sized;

static int larger_first(const void *a, const void *b) {
    const sized *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
                              : (x->name > y->name) - (x->name < y->name);
}

/* Renames the components by descending size. */
static int order(int n, components *p) {
    int rc = 0;
    sized *list = memory_new("graph", (size_t)p->count, sizeof *list);
    int32_t *rank = memory_new("graph", (size_t)p->count, sizeof *rank);
    p->size = memory_new("graph", (size_t)p->count, sizeof *p->size);
    TRY(list && rank && p->size ? 0 : CONR_ENOMEM);
    for (int c = 0; c < p->count; c++) list[c] = (sized){0, c};
    for (int i = 0; i < n; i++) list[p->of[i]].size++;
    qsort(list, (size_t)p->count, sizeof *list, larger_first);
    for (int c = 0; c < p->count; c++) rank[list[c].name] = c, p->size[c] = list[c].size;
    for (int i = 0; i < n; i++) p->of[i] = rank[p->of[i]];
done:
    free(list), free(rank);
    return rc;
}

static double dot(const float *a, const float *b, int d) {
    double sum = 0;
    for (int j = 0; j < d; j++) sum += (double)a[j] * b[j];
    return sum;
}

/* unit: [n,d] */
static int means(const float *unit, int n, int d, components *p) {
    double *sum = calloc((size_t)p->count * d, sizeof *sum);
    p->mean = memory_new("graph", (size_t)p->count * d, sizeof *p->mean);
    if (!sum || !p->mean) {
        free(sum);
        return fail_memory("graph", 8.0 * p->count * d);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) sum[(size_t)p->of[i] * d + j] += unit[(size_t)i * d + j];
    for (int c = 0; c < p->count; c++) {
        double squares = 0, *row = sum + (size_t)c * d;
        for (int j = 0; j < d; j++) squares += row[j] * row[j];
        double by = squares > 0 ? 1 / sqrt(squares) : 0;
        for (int j = 0; j < d; j++) p->mean[(size_t)c * d + j] = (float)(row[j] * by);
    }
    free(sum);
    return 0;
}

/* The component before c, among the largest, that is most like it. */
static int host_of(const components *p, int c, int d) {
    int last = c < HOSTS ? c : HOSTS, best = 0;
    double most = -INFINITY;
    for (int h = 0; h < last; h++) {
        double s = dot(p->mean + (size_t)h * d, p->mean + (size_t)c * d, d);
        if (s > most) most = s, best = h;
    }
    return best;
}

/* door[c]: the row of c that is most like its host. */
static void find_doors(device *dev, const float *unit, int n, int d, const components *p,
                       const int32_t *host, int32_t *door) {
    float *similar = p->similar;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < n; i++) {
        int c = p->of[i];
        similar[i] =
            c ? (float)dot(unit + (size_t)i * d, p->mean + (size_t)host[c] * d, d) : -INFINITY;
    }
    for (int c = 0; c < p->count; c++) door[c] = -1;
    for (int i = 0; i < n; i++) {
        int c = p->of[i];
        if (door[c] < 0 || similar[i] > similar[door[c]]) door[c] = i;
    }
}

/* The row that is most like the row `guest`, of a component with these rows: [count]; or of SEATS of
 * them. */
static int32_t find_seat(device *dev, const float *unit, int d, const components *p,
                         const int32_t *rows, int count, int32_t guest) {
    float *similar = p->similar;
    int step = (count + SEATS - 1) / SEATS, best = 0;
#pragma omp parallel for num_threads(dev->threads) schedule(static) if (count > 256)
    for (int r = 0; r < count; r += step)
        similar[r] = (float)dot(unit + (size_t)rows[r] * d, unit + (size_t)guest * d, d);
    for (int r = step; r < count; r += step)
        if (similar[r] > similar[best]) best = r;
    return rows[best];
}

/* The old edges and the new ones. */
static int add_links(const graph *g, const link *extra, size_t count, graph *out) {
    size_t at = 0;
    link *links = memory_new("graph", g->start[g->n] / 2 + count, sizeof *links);
    if (!links) return CONR_ENOMEM;
    for (int i = 0; i < g->n; i++)
        for (size_t e = g->start[i]; e < g->start[i + 1]; e++)
            if (g->to[e] > i) links[at++] = (link){i, g->to[e], g->weight[e]};
    memcpy(links + at, extra, count * sizeof *extra);
    int rc = from_links(links, at + count, g->n, out);
    free(links);
    return rc;
}

/* The mean weight of an edge; 1 if there are none. */
static float mean_weight(const graph *g) {
    double sum = 0;
    size_t edges = g->start[g->n];
    for (size_t e = 0; e < edges; e++) sum += g->weight[e];
    return edges ? (float)(sum / (double)edges) : 1;
}

/* Joins the components of p.  unit: [n,d] */
static int join(device *dev, const float *unit, int d, int small, const components *p, graph *g) {
    int rc = 0, n = g->n, C = p->count;
    size_t links = 0;
    float weight = mean_weight(g);
    graph whole = {0};
    int32_t *host = memory_new("graph", 4 * (size_t)C + 1, sizeof *host);
    int32_t *rows = memory_new("graph", (size_t)n, sizeof *rows);
    link *extra = memory_new("graph", (size_t)n, sizeof *extra);
    TRY(host && rows && extra ? 0 : CONR_ENOMEM);
    int32_t *door = host + C, *seat = host + 2 * (size_t)C, *first = host + 3 * (size_t)C;
    for (int c = 0; c < C; c++) host[c] = c ? host_of(p, c, d) : 0;
    find_doors(dev, unit, n, d, p, host, door);
    first[0] = 0;
    for (int c = 0; c < C; c++) first[c + 1] = first[c] + p->size[c];
    for (int i = 0; i < n; i++) rows[first[p->of[i]]++] = i; /* first[c]: now its end */
    for (int c = 1; c < C; c++) {
        int h = host[c], from = first[h] - p->size[h];
        seat[c] = find_seat(dev, unit, d, p, rows + from, p->size[h], door[c]);
    }
    for (int i = 0; i < n; i++) {
        int c = p->of[i];
        if (c && (p->size[c] < small || i == door[c])) extra[links++] = (link){i, seat[c], weight};
    }
    TRY(add_links(g, extra, links, &whole));
    graph_free(g);
    *g = whole;
done:
    free(host), free(rows), free(extra);
    return rc;
}

int graph_join(device *dev, const float *features, int d, int small, graph *g) {
    int rc = 0, n = g->n;
    components p = {0};
    float *unit = NULL;
    int32_t *queue = memory_new("graph", (size_t)n, sizeof *queue);
    p.of = memory_new("graph", (size_t)n, sizeof *p.of);
    TRY(queue && p.of ? 0 : CONR_ENOMEM);
    p.count = find(g, p.of, queue);
    if (p.count == 1) goto done;
    unit = memory_new("graph", (size_t)n * d + n, sizeof *unit);
    p.similar = memory_new("graph", (size_t)n, sizeof *p.similar);
    TRY(unit && p.similar ? 0 : CONR_ENOMEM);
    rows_normalize(dev->threads, features, n, d, unit, unit + (size_t)n * d);
    TRY(order(n, &p));
    TRY(means(unit, n, d, &p));
    TRY(join(dev, unit, d, small, &p, g));
done:
    rc = rc < 0 ? rc : p.count;
    components_free(&p);
    free(queue), free(unit);
    return rc;
}

int graph_modularity(const graph *g, const int32_t *labels, int K, double resolution, double *out) {
    double within = 0, all = 0, squares = 0;
    double *ends = calloc((size_t)K, sizeof *ends);
    if (!ends) return fail_memory("graph", 8.0 * K);
    for (int i = 0; i < g->n; i++)
        for (size_t e = g->start[i]; e < g->start[i + 1]; e++) {
            ends[labels[i]] += g->weight[e];
            if (labels[i] == labels[g->to[e]]) within += g->weight[e];
        }
    for (int k = 0; k < K; k++) all += ends[k];
    for (int k = 0; k < K; k++) squares += ends[k] * ends[k];
    *out = all > 0 ? within / all - resolution * squares / (all * all) : 0;
    free(ends);
    return 0;
}
