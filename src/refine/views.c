/* views.c: two views of a row and of its neighbors: components that are set to 0 at random. */
#include "refine/refine.h"

#include "base/rng.h"

#include <string.h>

/* One view: each component is dropped with probability dropout (in steps of 2^-16), and the others
 * grow so that their mean stays. */
static void view(const refine_draw *v, const float *row, rng r, float *out) {
    uint32_t dropped = (uint32_t)(v->dropout * 65536), bits = 0;
    float grow = 65536.0f / (float)(65536 - dropped);
    for (int j = 0; j < v->d; j++) {
        bits = j % 2 ? bits >> 16 : rng_bits(&r);
        out[j] = (bits & 0xffff) < dropped ? 0 : row[j] * grow;
    }
}

/* The neighbor that view `which` of row i is pulled to: any of its list but the row itself. */
static int64_t neighbor(const refine_draw *v, uint32_t step, int32_t row, int i, int which) {
    rng r = rng_at(v->seed, step, (uint32_t)(2 * i + which), RNG_NEAR);
    if (v->k < 2) return row;
    return v->ids[(size_t)row * v->k + 1 + rng_below(&r, (uint32_t)v->k - 1)];
}

void refine_views(const refine_draw *v, uint32_t step, const int32_t *row, int batch, float *out) {
    size_t d = (size_t)v->d, block = (size_t)batch * d;
#pragma omp parallel for num_threads(v->threads) schedule(static)
    for (int i = 0; i < batch; i++) {
        const float *own = v->x + (size_t)row[i] * d;
        float *to = out + (size_t)i * d;
        uint32_t at = 2 * (uint32_t)i;
        view(v, own, rng_at(v->seed, step, at, RNG_VIEW_A), to);
        view(v, own, rng_at(v->seed, step, at, RNG_VIEW_B), to + block);
        memcpy(to + 3 * block, to, d * sizeof *to);
        view(v, v->x + (size_t)neighbor(v, step, row[i], i, 1) * d,
             rng_at(v->seed, step, at + 1, RNG_VIEW_B), to + 2 * block);
        view(v, v->x + (size_t)neighbor(v, step, row[i], i, 0) * d,
             rng_at(v->seed, step, at + 1, RNG_VIEW_A), to + 4 * block);
    }
}
