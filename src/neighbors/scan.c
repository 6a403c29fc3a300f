/* scan.c: a few rows against many, and lists of their best. */
#include "neighbors/scan.h"

#include "base/status.h"
#include "kernels/quad.h"
#include "neighbors/search.h"

#include <math.h>

size_t scan_room_size(const gemm_kernel *g, int d) {
    size_t floats =
        gemm_panels_size(SCAN_QUERIES, d, g->mr) + gemm_panels_size(SCAN_ROWS, d, g->nr);
    return (floats + LINE - 1) / LINE * LINE; /* threads must not share a cache line */
}

scan_room scan_room_at(const gemm_kernel *g, int d, float *memory) {
    return (scan_room){.kernel = g,
                       .d = d,
                       .tall = memory,
                       .wide = memory + gemm_panels_size(SCAN_QUERIES, d, g->mr)};
}

void scan_queries(const scan_room *r, const float *x, const int32_t *at, int m) {
    int mr = r->kernel->mr, d = r->d;
    ASSERT(m <= SCAN_QUERIES);
    for (int q = 0; q < m; q += mr) {
        int rows = least(mr, m - q);
        float *panel = r->tall + (size_t)q * d;
        if (!at) {
            gemm_pack(true, x + (size_t)q * d, d, rows, d, mr, panel);
            continue;
        }
        for (int s = 0; s < mr; s++) {
            const float *row = x + (size_t)at[s < rows ? q + s : q] * d;
            for (int j = 0; j < d; j++) panel[(size_t)j * mr + s] = s < rows ? row[j] : 0;
        }
    }
}

void scan_rows(const scan_room *r, const float *rows, int count) {
    int nr = r->kernel->nr;
    ASSERT(count <= SCAN_ROWS);
    for (int j = 0; j < count; j += nr)
        gemm_pack(true, rows + (size_t)j * r->d, r->d, least(nr, count - j), r->d, nr,
                  r->wide + (size_t)j * r->d);
}

void scan_tiles(const scan_room *r, int m, const float *wide, int count, scan_take *take,
                void *to) {
    const gemm_kernel *g = r->kernel;
    float tile[GEMM_TILE];
    for (int j = 0; j < count; j += g->nr)
        for (int i = 0; i < m; i += g->mr) {
            gemm_tile(g, r->d, r->tall + (size_t)i * r->d, wide + (size_t)j * r->d, tile);
            take(to, tile, i, j);
        }
}

void scan_clear(int w, size_t lists, int32_t *ids, float *values) {
    for (size_t e = 0; e < lists * (size_t)w; e++) ids[e] = INT32_MAX, values[e] = -INFINITY;
}

/* Nearly all products fail: four are compared at a time. */
static bool any_reaches(const float *x, quad beat) {
    union {
        quad_mask mask;
        uint64_t half[2];
    } u = {quad_at(x) >= beat};
    return (u.half[0] | u.half[1]) != 0;
}

void scan_offer(void *to, const float *tile, int i, int j) {
    const scan_lists *l = to;
    int count = least(l->nr, l->count - j);
    for (int q = i; q < least(i + l->mr, l->m); q++, tile += l->nr) {
        int32_t *ids = l->ids + (size_t)q * l->w, own = l->own ? l->own[q] : -1;
        float *values = l->values + (size_t)q * l->w;
        for (int c0 = 0; c0 < count; c0 += 4) {
            if (!any_reaches(tile + c0, quad_of(values[l->w - 1]))) continue;
            for (int c = c0; c < least(c0 + 4, count); c++) {
                int32_t name = l->names ? l->names[j + c] : j + c;
                if (name != own) search_offer(l->w, ids, values, name, tile[c]);
            }
        }
    }
}
