/* features_near.c: what neighbors among the features as they were given say about clusters.
 *
 * Not among the rows that are clustered: a head could make any clusters look dense. */
#include "run/features.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 20000, /* beyond that, neighbors are searched among a sample */
    NEAREST = 20,
    FEW = 50 /* of the modularity, at most one per FEW rows, but 2: edges must not leave a small
                class */
};

int features_near(features_run *r) {
    int rc = 0, m = r->n < ROWS ? (int)r->n : ROWS, k = m < 1 + NEAREST ? m : 1 + NEAREST;
    size_t d = (size_t)r->d;
    conr_neighbors_options o = conr_neighbors_defaults();
    float *sample = NULL;
    if (r->near.ids) return 0;
    rng_order order = rng_order_make((uint64_t)r->o.seed, 2, (uint32_t)r->n);
    r->near.m = m, r->near.k = k;
    r->near.row = memory_new("neighbors", (size_t)m, sizeof *r->near.row);
    r->near.ids = memory_new("neighbors", (size_t)m * (size_t)k, sizeof *r->near.ids);
    TRY(r->near.row && r->near.ids ? 0 : CONR_ENOMEM);
    if (m < r->n) {
        sample = memory_new("neighbors", (size_t)m * d, sizeof *sample);
        TRY(sample ? 0 : CONR_ENOMEM);
    }
    for (int i = 0; i < m; i++) {
        r->near.row[i] = sample ? (int32_t)rng_order_at(&order, (uint32_t)i) : i;
        if (sample)
            memcpy(sample + (size_t)i * d, r->given + (size_t)r->near.row[i] * d,
                   d * sizeof *sample);
    }
    o.local = 1, o.k = k;
    TRY(conr_neighbors(r->c, sample ? sample : r->given, m, r->d, &o, r->near.ids));
done:
    free(sample);
    return rc;
}

/* The share of the first `near` neighbors of a row that have its label. */
static double share(const features_run *r, const int32_t *label, int near) {
    int64_t same = 0;
    const int32_t *row = r->near.row;
    for (int i = 0; i < r->near.m; i++)
        for (int e = 1; e <= near; e++)
            same += label[row[i]] == label[row[r->near.ids[(size_t)i * (size_t)r->near.k + e]]];
    return (double)same / ((double)r->near.m * near);
}

double features_agreement(const features_run *r, const int32_t *label) {
    return r->near.k < 2 ? NAN : share(r, label, r->near.k - 1);
}

double features_modularity(const features_run *r, const int32_t *label) {
    int m = r->near.m, k = r->near.k, near = m / FEW < 2 ? 2 : m / FEW;
    double squares = 0, *ends = calloc((size_t)r->K, sizeof *ends);
    near = near < k - 1 ? near : k - 1;
    if (near < 1 || !ends) {
        free(ends);
        return 0;
    }
    for (int i = 0; i < m; i++) {
        ends[label[r->near.row[i]]] += near;
        for (int e = 1; e <= near; e++)
            ends[label[r->near.row[r->near.ids[(size_t)i * (size_t)k + e]]]]++;
    }
    for (int c = 0; c < r->K; c++) squares += pow(ends[c] / (2.0 * m * near), 2);
    free(ends);
    return share(r, label, near) - squares;
}
