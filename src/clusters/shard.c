/* shard.c: see shard.h. */
#include "clusters/shard.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "clusters/points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FOR_SHIFT = 4096 }; /* rows whose mean is the shift */

void shard_free(shard *s) {
    free(s->starts), free(s->shift), free(s->by), free(s->square);
    *s = (shard){0};
}

int shard_sum(const shard *s, int64_t *x, size_t n) {
    return s->over ? ranks_sum_ints(s->over, x, n) : 0;
}

void shard_row(const shard *s, int i, float *to) {
    const float *from = s->features + (size_t)i * s->d;
    if (s->by) {
        float by = s->by[i];
        for (int j = 0; j < s->d; j++) to[j] = from[j] * by;
    } else {
        for (int j = 0; j < s->d; j++) to[j] = (from[j] - s->shift[j]) * s->unit;
    }
}

int shard_sample(const shard *s, int64_t count, uint64_t seed, int run, float *out) {
    int rc = 0, ranks = s->over ? s->over->count : 1, rank = s->over ? s->over->rank : 0;
    int64_t each = s->total / count, rest = s->total % count;
    int64_t *before = memory_new("k-means", (size_t)ranks + 1, sizeof *before);
    TRY(before ? 0 : CONR_ENOMEM);
    /* one row of each of `count` stretches of equal length; before[r]: those on ranks before r */
    for (int64_t i = 0, r = -1; i <= count; i++) {
        int64_t row = s->total;
        if (i < count) {
            int64_t low = i * each + i * rest / count;
            int64_t high = (i + 1) * each + (i + 1) * rest / count;
            rng random = rng_at(seed, (uint32_t)run, (uint32_t)i, RNG_SAMPLE);
            row = low + rng_below(&random, (uint32_t)(high - low));
        }
        while (r < ranks && row >= s->starts[r + 1]) before[++r] = i;
        if (r == rank) shard_row(s, (int)(row - s->first), out + i * s->d);
    }
    for (int r = 0; s->over && r < ranks; r++)
        TRY(ranks_broadcast_from(s->over, r, out + before[r] * s->d,
                                 (size_t)(before[r + 1] - before[r]) * s->d * sizeof *out));
done:
    free(before);
    return rc;
}

int shard_max(const shard *s, float *x) {
    int rc = 0;
    if (!s->over) return 0;
    float *all = memory_new("k-means", (size_t)s->over->count, sizeof *all);
    TRY(all ? 0 : CONR_ENOMEM);
    TRY(ranks_all_gather(s->over, x, sizeof *x, all));
    for (int r = 0; r < s->over->count; r++) *x = fmaxf(*x, all[r]);
done:
    free(all);
    return rc;
}

static int find_starts(shard *s) {
    int rc = 0, ranks = s->over ? s->over->count : 1, rank = s->over ? s->over->rank : 0;
    int64_t mine = s->n;
    s->starts = memory_new("k-means", (size_t)ranks + 1, sizeof *s->starts);
    TRY(s->starts ? 0 : CONR_ENOMEM);
    s->starts[0] = 0, s->starts[1] = mine;
    if (s->over) TRY(ranks_all_gather(s->over, &mine, sizeof mine, s->starts + 1));
    for (int r = 0; r < ranks; r++) s->starts[r + 1] += s->starts[r];
    s->first = s->starts[rank], s->total = s->starts[ranks];
done:
    return rc;
}

/* The shift, the mean of some rows, and the unit. */
static int center(shard *s) {
    int rc = 0, bad = s->n, d = s->d, exponent;
    int64_t count = s->total < FOR_SHIFT ? s->total : FOR_SHIFT;
    float most = 0, *sample = memory_new("k-means", (size_t)(count * d), sizeof *sample);
    TRY(sample ? 0 : CONR_ENOMEM);
    TRY(shard_sample(s, count, 0, 0, sample));
    points_middle(sample, count, d, s->shift);
#pragma omp parallel for num_threads(s->dev->threads) reduction(max : most) reduction(min : bad)
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < d; j++) {
            float x = fabsf(s->features[(size_t)i * d + j] - s->shift[j]);
            if (!isfinite(x) && i < bad) bad = i;
            most = x > most ? x : most;
        }
    if (bad < s->n) TRY(points_overflow(s->first + bad));
    TRY(shard_max(s, &most));
    frexpf(most, &exponent);
    exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
    s->unit = most > 0 ? ldexpf(1, -exponent) : 1;
done:
    free(sample);
    return rc;
}

static double length2(const shard *s, int i) {
    double sum = 0;
    const float *x = s->features + (size_t)i * s->d;
    for (int j = 0; j < s->d; j++) {
        double value = s->by ? x[j] : (x[j] - s->shift[j]) * s->unit;
        sum += value * value;
    }
    return sum;
}

int shard_open(device *dev, ranks *over, const float *features, int n, int d, conr_metric metric,
               shard *out) {
    int rc = 0, rows, columns;
    *out = (shard){.dev = dev, .over = over, .features = features, .n = n, .d = d};
    out->metric = metric, out->unit = 1;
    out->shift = memory_new("k-means", (size_t)d, sizeof *out->shift);
    out->square = memory_new("k-means", (size_t)n, sizeof *out->square);
    if (metric == CONR_COSINE) out->by = memory_new("k-means", (size_t)n, sizeof *out->by);
    TRY(out->shift && out->square && (out->by || metric != CONR_COSINE) ? 0 : CONR_ENOMEM);
    memset(out->shift, 0, (size_t)d * sizeof *out->shift);
    TRY(find_starts(out));
    if (metric != CONR_COSINE) TRY(center(out));
    frexp((double)out->total, &rows), frexp(d, &columns);
    out->in_units = ldexp(1, 61 - rows);
    double in_units = ldexp(1, 61 - rows - columns); /* a square is at most d */
    int64_t squares = 0;
#pragma omp parallel for num_threads(dev->threads) reduction(+ : squares)
    for (int i = 0; i < n; i++) {
        double square = length2(out, i);
        if (out->by) out->by[i] = square > 0 ? (float)(1 / sqrt(square)) : 0;
        out->square[i] = out->by ? 2 : (float)square;
        squares += llrint(square * (out->by ? 0 : in_units));
    }
    TRY(shard_sum(out, &squares, 1));
    out->squares = out->by ? (double)out->total : (double)squares / in_units;
done:
    if (rc < 0) shard_free(out);
    return rc;
}
