/* trial.c: one case on one device, from drawing its operands to comparing its outputs with those of
 * another device. */
#include "device/trial.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands -------------------------------------------------------------------------------- */

int trial_alloc(trial *t, size_t bytes, void **out) {
    ASSERT(t->n_slots < SLOTS);
    int rc = t->dev->op.alloc(t->dev, bytes, out);
    if (rc == 0) t->slot[t->n_slots++] = *out;
    return rc;
}

/* The nearest bf16: the upper half of the bits of a float, ties to even.  Not for NaN. */
static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

int trial_floats(trial *t, size_t count, double deviation, double mean, float **out) {
    int rc = 0;
    float *host = memory_new("case", count, sizeof *host);
    if (!host) return CONR_ENOMEM;
    rng r = rng_at(20, 0, t->drawn++, RNG_TEST);
    for (size_t i = 0; i < count; i++) host[i] = (float)(mean + deviation * rng_normal(&r));
    bool rounded = t->type == ACT_BF16 && case_has_acts(&t->c) && !isnan(mean);
    for (size_t i = 0; rounded && i < count; i++) host[i] = to_bf16(host[i]);
    TRY(trial_alloc(t, count * sizeof **out, (void **)out));
    TRY(t->dev->op.put(t->dev, *out, host, count * sizeof **out));
done:
    free(host);
    return rc;
}

int trial_acts(trial *t, size_t count, double deviation, act **out) {
    int rc = 0;
    float *drawn = NULL;
    TRY(trial_floats(t, count, deviation, 0, &drawn));
    TRY(trial_alloc(t, count * t->dev->act_size, (void **)out));
    TRY(t->dev->op.act_from(t->dev, drawn, count, *out));
    TRY(t->dev->op.sync(t->dev));
    t->dev->op.free(t->dev, drawn); /* slot n_slots-2 */
    t->slot[t->n_slots - 2] = t->slot[t->n_slots - 1];
    t->n_slots--;
done:
    return rc;
}

void trial_is_output(trial *t, void *p, size_t count, bool is_act) {
    ASSERT(t->n_outputs < OUTPUTS);
    t->out[t->n_outputs++] = (output){p, count, is_act};
}

int trial_result_floats(trial *t, size_t count, float **out) {
    int rc = trial_floats(t, count, 0, NAN, out);
    if (rc == 0) trial_is_output(t, *out, count, false);
    return rc;
}

int trial_result_acts(trial *t, size_t count, act **out) {
    int rc = 0;
    float *nan = NULL;
    TRY(trial_floats(t, count, 0, NAN, &nan));
    TRY(trial_alloc(t, count * t->dev->act_size, (void **)out));
    TRY(t->dev->op.act_from(t->dev, nan, count, *out));
    TRY(t->dev->op.sync(t->dev));
    trial_is_output(t, *out, count, true);
done:
    return rc;
}

int trial_ints(trial *t, size_t count, int low, int high, int32_t **out) {
    int rc = 0;
    int32_t *host = memory_new("case", count, sizeof *host);
    if (!host) return CONR_ENOMEM;
    rng r = rng_at(20, 1, t->drawn++, RNG_TEST);
    for (size_t i = 0; i < count; i++)
        host[i] = low + (int32_t)rng_below(&r, (uint32_t)(high - low));
    TRY(trial_alloc(t, count * sizeof *host, (void **)out));
    TRY(t->dev->op.put(t->dev, *out, host, count * sizeof *host));
    TRY(t->dev->op.sync(t->dev));
done:
    free(host);
    return rc;
}

/* ---- a trial from start to finish ------------------------------------------------------------ */

static const struct {
    int (*open)(trial *t), (*run)(trial *t);
} kinds[] = {
    [CASE_CONV_FORWARD] = {trial_open_conv, trial_run_conv},
    [CASE_CONV_BACK_DATA] = {trial_open_conv, trial_run_conv},
    [CASE_CONV_BACK_FILTER] = {trial_open_conv, trial_run_conv},
    [CASE_NORM_FORWARD] = {trial_open_norm, trial_run_norm},
    [CASE_NORM_BACKWARD] = {trial_open_norm, trial_run_norm},
    [CASE_MAX_POOL] = {trial_open_pool, trial_run_pool},
    [CASE_MAX_POOL_BACK] = {trial_open_pool, trial_run_pool},
    [CASE_MEAN_POOL] = {trial_open_pool, trial_run_pool},
    [CASE_MEAN_POOL_BACK] = {trial_open_pool, trial_run_pool},
    [CASE_NOISE] = {trial_open_noise, trial_run_noise},
    [CASE_VIEWS] = {trial_open_views, trial_run_views},
    [CASE_DENSE] = {trial_open_transformer, trial_run_transformer},
    [CASE_LAYER_NORM] = {trial_open_transformer, trial_run_transformer},
    [CASE_ATTENTION] = {trial_open_transformer, trial_run_transformer},
    [CASE_TOKENS] = {trial_open_transformer, trial_run_transformer},
    [CASE_GEMM] = {trial_open_rows, trial_run_rows},
    [CASE_ROWS] = {trial_open_rows, trial_run_rows},
    [CASE_ROWS_BACK] = {trial_open_rows, trial_run_rows},
    [CASE_TOP_K] = {trial_open_rows, trial_run_rows},
    [CASE_SGD] = {trial_open_rows, trial_run_rows},
    [CASE_ROWS_TAKE] = {trial_open_loss, trial_run_loss},
    [CASE_RING_PUT] = {trial_open_loss, trial_run_loss},
    [CASE_PULL] = {trial_open_loss, trial_run_loss},
    [CASE_CONTRAST] = {trial_open_loss, trial_run_loss},
    [CASE_PROTOTYPES] = {trial_open_loss, trial_run_loss},
    [CASE_PULL_ALIKE] = {trial_open_loss, trial_run_loss},
    [CASE_CONFIDENT] = {trial_open_confident, trial_run_confident},
    [CASE_BOUNDARY] = {trial_open_loss, trial_run_loss},
    [CASE_AVERAGE] = {trial_open_rows, trial_run_rows},
};

int trial_new(device *dev, const op_case *c, int n, trial **out) {
    return trial_new_as(dev, dev->type, c, n, out);
}

int trial_new_as(device *dev, act_type type, const op_case *c, int n, trial **out) {
    trial *t = *out = calloc(1, sizeof *t);
    if (!t) return fail_memory("case", sizeof *t);
    t->dev = dev;
    t->type = type;
    t->c = *c;
    t->n = n;
    int rc = kinds[c->op].open(t);
    if (rc < 0) {
        trial_free(t);
        *out = NULL;
    }
    return rc;
}

void trial_free(trial *t) {
    if (!t) return;
    if (t->plan) t->dev->op.conv_plan_free(t->dev, t->plan);
    for (int i = 0; i < t->n_slots; i++) t->dev->op.free(t->dev, t->slot[i]);
    free(t->fetched);
    free(t);
}

int trial_run(trial *t) { return kinds[t->c.op].run(t); }

/* ---- comparing ------------------------------------------------------------------------------- */

int trial_outputs(trial *t, int *n, const float **values, const size_t **counts) {
    int rc = 0;
    size_t total = 0, at = 0, largest = 0;
    for (int i = 0; i < t->n_outputs; i++) {
        total += t->out_count[i] = t->out[i].count;
        if (t->out[i].count > largest) largest = t->out[i].count;
    }
    free(t->fetched);
    t->fetched = memory_new("case", total, sizeof *t->fetched);
    void *staging = NULL; /* device floats, for activations */
    if (!t->fetched) return CONR_ENOMEM;
    TRY(t->dev->op.alloc(t->dev, largest * sizeof(float), &staging));
    for (int i = 0; i < t->n_outputs; at += t->out[i++].count) {
        const output *o = &t->out[i];
        if (o->is_act) TRY(t->dev->op.act_to(t->dev, o->p, o->count, staging));
        TRY(t->dev->op.get(t->dev, t->fetched + at, o->is_act ? staging : o->p,
                           o->count * sizeof(float)));
    }
    *n = t->n_outputs;
    *values = t->fetched;
    *counts = t->out_count;
done:
    t->dev->op.free(t->dev, staging);
    return rc;
}

int trial_compare(trial *got, trial *want, double *error) {
    int rc = 0, n, m;
    const float *a, *b;
    const size_t *counts, *others;
    TRY(trial_outputs(got, &n, &a, &counts));
    TRY(trial_outputs(want, &m, &b, &others));
    ASSERT(n == m);
    *error = 0;
    for (int i = 0; i < n; a += counts[i], b += counts[i], i++) {
        double difference = 0, size = 0;
        ASSERT(counts[i] == others[i]);
        for (size_t j = 0; j < counts[i]; j++) {
            double e = (double)a[j] - b[j];
            difference += e * e;
            size += (double)b[j] * b[j];
        }
        double relative = sqrt(difference / (size > 0 ? size : 1));
        if (!(relative <= *error)) *error = isnan(relative) ? INFINITY : relative;
    }
done:
    return rc;
}
