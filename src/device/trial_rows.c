/* trial_rows.c: trials of the operations on rows of features and on weights: products, choices,
 * updates, losses. */
#include "device/trial.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/confident.h"
#include "device/prototypes.h"

#include <math.h>
#include <stdlib.h>

/* Three quarters of the rows pass the boundary filter; the ring is about to wrap around. */
static int step_of(trial *t) {
    int rc = 0;
    step_values at = {.lr = {0.01f, 0.1f}, .momentum = 0.9f, .decay = 5e-4f, .average = 0.99f};
    at.keep = t->n * 3 / 4;
    at.step = t->c.op == CASE_RING_PUT ? (uint32_t)(t->c.co / t->n) : 3;
    TRY(trial_alloc(t, sizeof at, (void **)&t->at));
    TRY(t->dev->op.put(t->dev, t->at, &at, sizeof at));
    TRY(t->dev->op.sync(t->dev));
done:
    return rc;
}

int trial_open_rows(trial *t) {
    int rc = 0, ci = t->c.ci, co = t->c.co;
    size_t n = (size_t)t->n, size = n * ci;
    switch (t->c.op) {
    case CASE_GEMM: /* [n,co] x [co,ci] */
        TRY(trial_floats(t, n * co, 1, 0, &t->a));
        TRY(trial_floats(t, (size_t)ci * co, 1, 0, &t->b));
        TRY(trial_result_floats(t, size, &t->cc));
        break;
    case CASE_ROWS:
        TRY(trial_floats(t, size, 3, 0, &t->a));
        TRY(trial_result_floats(t, size, &t->b));
        TRY(trial_result_floats(t, n, &t->cc));
        break;
    case CASE_ROWS_BACK:
        TRY(trial_floats(t, size, 1 / sqrt(ci), 0, &t->a));
        TRY(trial_floats(t, n, 0.1, 2, &t->b));
        TRY(trial_floats(t, size, 1, 0, &t->cc));
        TRY(trial_result_floats(t, size, &t->v));
        break;
    case CASE_TOP_K: /* only values are compared: other devices may order equal ones differently */
        TRY(trial_floats(t, size, 1, 0, &t->a));
        TRY(trial_alloc(t, n * co * sizeof *t->ids, (void **)&t->ids));
        TRY(trial_result_floats(t, n * co, &t->cc));
        break;
    default:
        TRY(trial_floats(t, n, 1, 0, &t->w));
        TRY(trial_floats(t, n, 1, 0, &t->average));
        trial_is_output(t, t->average, n, false);
        TRY(step_of(t));
        if (t->c.op == CASE_AVERAGE) break;
        TRY(trial_floats(t, n, 1, 0, &t->dw));
        TRY(trial_floats(t, n, 1, 0, &t->v));
        trial_is_output(t, t->w, n, false);
        trial_is_output(t, t->v, n, false);
    }
done:
    return rc;
}

int trial_run_rows(trial *t) {
    device *dev = t->dev;
    int n = t->n, ci = t->c.ci, co = t->c.co;
    bool ta = t->c.variant & 1, tb = t->c.variant & 2;
    switch (t->c.op) {
    case CASE_GEMM:
        return dev->op.gemm(dev, ta, tb, n, ci, co, 1, t->a, ta ? n : co, t->b, tb ? co : ci, 0,
                            t->cc, ci);
    case CASE_ROWS: return dev->op.rows_normalize(dev, t->a, n, ci, t->b, t->cc);
    case CASE_ROWS_BACK: return dev->op.rows_normalize_back(dev, t->a, t->b, t->cc, n, ci, t->v);
    case CASE_TOP_K:
        return dev->op.top_k(dev, t->a, n, ci, ci, t->c.variant && n <= ci ? 0 : -1, co, t->ids,
                             t->cc);
    case CASE_AVERAGE: return dev->op.average(dev, t->at, (size_t)n, t->w, t->average);
    default:
        return dev->op.sgd(dev, t->at, 1, t->c.variant, 1, (size_t)n, t->w, t->dw, t->v,
                           t->average);
    }
}

/* ---- losses, and what they need -------------------------------------------------------------- */

/* Unit rows; with times > 1 each is repeated about that often. */
static int unit_rows(trial *t, int n, int d, int times, float **out) {
    int rc = 0;
    float *drawn, *norm;
    int32_t *ids;
    TRY(trial_floats(t, (size_t)n * d, 1, 0, &drawn));
    TRY(trial_floats(t, (size_t)n, 0, 0, &norm));
    TRY(trial_alloc(t, (size_t)n * d * sizeof **out, (void **)out));
    TRY(t->dev->op.rows_normalize(t->dev, drawn, n, d, *out, norm));
    if (times > 1) {
        TRY(trial_ints(t, (size_t)n, 0, n / times, &ids));
        TRY(t->dev->op.copy(t->dev, drawn, *out, (size_t)n * d * sizeof **out));
        TRY(t->dev->op.rows_take(t->dev, drawn, (size_t)d * sizeof **out, ids, n, *out));
    }
    TRY(t->dev->op.sync(t->dev));
done:
    return rc;
}

/* Weights of the rows, some of them zero, as from the boundary filter. */
static int weights_of(trial *t) {
    int rc = 0;
    float *host = memory_new("case", (size_t)t->n, sizeof *host);
    if (!host) return CONR_ENOMEM;
    for (int i = 0; i < t->n; i++) host[i] = i % 5 == 2 ? 0 : 1.25f / (float)t->n;
    TRY(trial_alloc(t, (size_t)t->n * sizeof *host, (void **)&t->w));
    TRY(t->dev->op.put(t->dev, t->w, host, (size_t)t->n * sizeof *host));
    TRY(t->dev->op.sync(t->dev));
done:
    free(host);
    return rc;
}

int trial_open_loss(trial *t) {
    int rc = 0, n = t->n, d = t->c.ci, co = t->c.co;
    size_t size = (size_t)n * d;
    switch (t->c.op) {
    case CASE_ROWS_TAKE:
        TRY(trial_floats(t, (size_t)co * d, 1, 0, &t->a));
        TRY(trial_ints(t, (size_t)n, 0, co, &t->ids));
        TRY(trial_result_floats(t, size, &t->b));
        break;
    case CASE_RING_PUT:
        TRY(step_of(t));
        TRY(trial_floats(t, size, 1, 0, &t->a));
        TRY(trial_floats(t, (size_t)co * d, 1, 0, &t->b));
        trial_is_output(t, t->b, (size_t)co * d, false);
        break;
    case CASE_BOUNDARY:
        TRY(step_of(t));
        TRY(unit_rows(t, n, d, t->c.variant & 1 ? 3 : 1, &t->a));
        TRY(trial_floats(t, (size_t)co * d, 0.5 / sqrt(d), 0, &t->b));
        TRY(trial_ints(t, (size_t)n, 0, 3 * n, &t->ids));
        TRY(trial_ints(t, 3 * (size_t)n, 0, co, &t->label));
        TRY(trial_result_floats(t, (size_t)n, &t->cc));
        TRY(trial_result_floats(t, (size_t)n, &t->v));
        break;
    case CASE_PROTOTYPES:
        TRY(unit_rows(t, n, d, 1, &t->a));
        TRY(unit_rows(t, n, d, 1, &t->b));
        if (!t->c.variant) TRY(trial_ints(t, (size_t)n, 0, 3 * n, &t->ids));
        TRY(trial_ints(t, 3 * (size_t)n, t->c.variant ? -1 : 0, co, &t->label));
        TRY(trial_alloc(t, prototypes_bytes(n, d, co), &t->work));
        TRY(trial_floats(t, 1, 0, 0, &t->loss));
        trial_is_output(t, t->loss, 1, false);
        TRY(trial_result_floats(t, size, &t->cc));
        break;
    case CASE_PULL_ALIKE:
        TRY(unit_rows(t, n, d, 1, &t->a));
        TRY(unit_rows(t, n, d, 1, &t->b));
        TRY(trial_ints(t, (size_t)n, -1, n > 1 ? co : 0, &t->label));
        TRY(trial_alloc(t, prototypes_bytes(n, d, co), &t->work));
        TRY(trial_floats(t, 1, 0, 0, &t->loss));
        TRY(trial_floats(t, size, 0.01, 0, &t->cc));
        trial_is_output(t, t->loss, 1, false);
        trial_is_output(t, t->cc, size, false);
        break;
    default: /* pull, contrast */
        TRY(unit_rows(t, n, d, 1, &t->a));
        TRY(unit_rows(t, n, d, 1, &t->b));
        if (t->c.variant & 1) TRY(trial_ints(t, (size_t)n * co, 0, n, &t->ids));
        if (t->c.variant & 2) TRY(weights_of(t));
        TRY(trial_floats(t, 1, 0, 0, &t->loss));
        trial_is_output(t, t->loss, 1, false);
        TRY(trial_result_floats(t, size, &t->cc));
        if (t->c.op == CASE_PULL) break;
        TRY(unit_rows(t, t->c.k, d, 1, &t->queue));
        TRY(trial_floats(t, (size_t)n * t->c.k, 0, 0, &t->logits));
    }
done:
    return rc;
}

int trial_run_loss(trial *t) {
    device *dev = t->dev;
    int n = t->n, d = t->c.ci, co = t->c.co, k = t->ids ? co : 1;
    switch (t->c.op) {
    case CASE_ROWS_TAKE:
        return dev->op.rows_take(dev, t->a, (size_t)d * sizeof *t->a, t->ids, n, t->b);
    case CASE_RING_PUT: return dev->op.ring_put(dev, t->at, t->a, n, d, t->b, co);
    case CASE_PULL:
        return dev->op.pull(dev, t->a, t->b, n, d, t->ids, k, t->w, 0.5f, t->loss, t->cc);
    case CASE_CONTRAST:
        return dev->op.contrast(dev, t->a, t->b, n, d, t->ids, k, t->w, 0.5f, t->queue, t->c.k,
                                0.1f, t->logits, t->loss, t->cc);
    case CASE_PROTOTYPES:
        return dev->op.prototypes(dev, t->a, t->b, n, d, t->ids, t->label, co, 0.5f, 0.1f, t->work,
                                  t->loss, t->cc);
    case CASE_PULL_ALIKE:
        return dev->op.pull_alike(dev, t->a, t->b, n, d, t->label, co, 0.5f, t->work, t->loss,
                                  t->cc);
    default:
        return dev->op.boundary(dev, t->at, t->a, n, d, t->ids, t->label, t->b, co,
                                t->c.variant & 2, t->cc, t->v);
    }
}

/* Noise twice as large as the values, so that wrong numbers show whatever their rounding. */
int trial_open_noise(trial *t) {
    int rc = 0;
    size_t count = (size_t)t->n * t->c.ci;
    TRY(step_of(t));
    TRY(trial_acts(t, count, 1, &t->x));
    trial_is_output(t, t->x, count, true);
done:
    return rc;
}

int trial_run_noise(trial *t) {
    return t->dev->op.noise(t->dev, t->at, 5, 2, 1000, t->n, t->c.ci, t->x);
}

/* Rows around a center per label, on a grid of eighths: their products are exact in float on every
 * device, so that all choose alike, and many of them tie. */
int trial_open_confident(trial *t) {
    int rc = 0, n = t->n, d = t->c.ci, co = t->c.co;
    size_t size = (size_t)n * d, numbers = (size_t)n * sizeof(int32_t);
    float *rows = memory_new("case", size + (size_t)co * d, sizeof *rows), *center = rows + size;
    int32_t *ids = memory_new("case", 4 * (size_t)n, sizeof *ids), *label = ids + n;
    rng r = rng_at(20, 2, (uint32_t)n, RNG_TEST);
    TRY(rows && ids ? 0 : CONR_ENOMEM);
    for (int i = 0; i < co * d; i++) center[i] = (float)((int)rng_below(&r, 9) - 4) / 8;
    for (int i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&r, 3 * (uint32_t)n);
    for (int i = 0; i < 3 * n; i++) label[i] = (int32_t)rng_below(&r, (uint32_t)co);
    for (size_t i = 0; i < size; i++) {
        int of = label[ids[i / (size_t)d]];
        rows[i] = center[(size_t)of * d + i % (size_t)d] + (float)((int)rng_below(&r, 17) - 8) / 8;
    }
    TRY(trial_alloc(t, size * sizeof *rows, (void **)&t->w));
    TRY(trial_alloc(t, numbers, (void **)&t->ids));
    TRY(trial_alloc(t, 4 * numbers, (void **)&t->label)); /* then those that are kept */
    TRY(t->dev->op.put(t->dev, t->w, rows, size * sizeof *rows));
    TRY(t->dev->op.put(t->dev, t->ids, ids, numbers));
    TRY(t->dev->op.put(t->dev, t->label, label, 3 * numbers));
    TRY(t->dev->op.sync(t->dev));
    TRY(unit_rows(t, n, d, 1, &t->a));
    TRY(unit_rows(t, n, d, 1, &t->b));
    size_t choose = confident_bytes(n), pull = prototypes_bytes(n, d, co);
    TRY(trial_alloc(t, choose > pull ? choose : pull, &t->work));
    TRY(trial_floats(t, 1, 0, 0, &t->loss));
    TRY(trial_floats(t, size, 0.01, 0, &t->cc));
    trial_is_output(t, t->loss, 1, false);
    trial_is_output(t, t->cc, size, false);
done:
    free(rows);
    free(ids);
    return rc;
}

int trial_run_confident(trial *t) {
    int rc = 0, n = t->n, d = t->c.ci;
    device *dev = t->dev;
    int32_t *kept = t->label + 3 * (size_t)n;
    TRY(dev->op.confident(dev, t->w, n, d, t->ids, t->label, t->c.k, t->work, kept));
    TRY(dev->op.pull_alike(dev, t->a, t->b, n, d, kept, t->c.co, 0.5f, t->work, t->loss, t->cc));
done:
    return rc;
}
