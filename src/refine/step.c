/* step.c: the networks of a head in training, and one step. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float REST = 0.1f; /* of random weights, where the rest is an identity */

/* ---- memory ---------------------------------------------------------------------------------- */

static int grab(refiner *r, void *at, size_t count, size_t size) {
    void **to = at;
    ASSERT((size_t)r->n_owned < sizeof r->owned / sizeof *r->owned);
    int rc = r->dev->op.alloc(r->dev, count * size, to);
    if (rc == 0) r->owned[r->n_owned++] = *to;
    return rc;
}

#define GRAB(field, count) TRY(grab(r, &r->field, count, sizeof *r->field))

/* Makes the two layers of the projector return the first components of what they get, as far as hidden
 * units and outputs reach: x = relu(x) - relu(-x).  So training starts from features as good as
 * those given, where random layers would first spoil them.  deviation: [in], of what they get: batch
 * norm divides by it, so its factor gives it back.  The other hidden units stay random, and count
 * little at first. */
static void start_as_identity(const network *net, const float *deviation, float *w,
                              float *running) {
    const layer *a = &net->layer[0], *b = a + 1;
    int in = a->ci, hidden = a->co, out = b->co;
    int pairs = in < out ? in : out;
    if (pairs > hidden / 2) pairs = hidden / 2;
    for (size_t i = 0; i < (size_t)out * hidden; i++) w[b->w_at + i] *= REST;
    memset(w + a->bias_at, 0, (size_t)hidden * sizeof *w);
    memset(w + b->bias_at, 0, (size_t)out * sizeof *w);
    for (int i = 0; i < pairs; i++)
        for (int sign = 0; sign < 2; sign++) {
            int unit = 2 * i + sign;
            memset(w + a->w_at + (size_t)unit * in, 0, (size_t)in * sizeof *w);
            w[a->w_at + (size_t)unit * in + i] = sign ? -1 : 1;
            w[a->gamma_at + (size_t)unit] = deviation[i];
            for (int o = 0; o < out; o++) w[b->w_at + (size_t)o * hidden + unit] = 0;
            w[b->w_at + (size_t)i * hidden + unit] = sign ? -1 : 1;
        }
    for (int unit = 0; unit < hidden; unit++) { /* as if components were not correlated */
        double variance = 0;
        for (int i = 0; i < in; i++)
            variance += pow((double)w[a->w_at + (size_t)unit * in + i] * deviation[i], 2);
        running[a->running_at + (size_t)(hidden + unit)] = (float)variance;
    }
}

/* Initial weights; the target starts as a copy. */
static int open_weights(refiner *r, const float *deviation, uint64_t seed) {
    int rc = 0;
    device *dev = r->dev;
    const network *net = &r->net;
    size_t all = net->n_weights * sizeof(float), statistics = net->n_running * sizeof(float);
    float *w = memory_new("weights", net->n_weights + net->n_running, sizeof *w);
    TRY(w ? 0 : CONR_ENOMEM);
    GRAB(w, net->n_weights);
    GRAB(dw, net->n_weights);
    GRAB(v, net->n_weights);
    GRAB(target_w, net->n_target);
    GRAB(running, net->n_running);
    GRAB(target_running, net->n_running);
    network_init(net, seed, w, w + net->n_weights);
    if (deviation) start_as_identity(net, deviation, w, w + net->n_weights);
    TRY(dev->op.put(dev, r->w, w, all));
    TRY(dev->op.put(dev, r->target_w, w, net->n_target * sizeof(float)));
    TRY(dev->op.put(dev, r->running, w + net->n_weights, statistics));
    TRY(dev->op.put(dev, r->target_running, w + net->n_weights, statistics));
done:
    free(w);
    return rc;
}

static int open_rows(refiner *r, int in) {
    int rc = 0, n = r->n;
    size_t rows = (size_t)n * r->d, inputs = (size_t)REFINE_BLOCKS * n * in;
    int32_t *near = NULL;
    GRAB(at, 1);
    GRAB(in, inputs);
    TRY(grab(r, &r->acts, 2 * (size_t)n * in, r->dev->act_size));
    TRY(grab(r, &r->target_acts, 4 * (size_t)n * in, r->dev->act_size));
    GRAB(flat, 4 * rows);
    GRAB(q, 2 * rows);
    GRAB(dq, 2 * rows);
    GRAB(key, 4 * rows);
    GRAB(norm, 4 * (size_t)n);
    GRAB(weight, (size_t)n);
    GRAB(near, 2 * (size_t)n);
    GRAB(loss, 1);
    r->host = memory_new("views", inputs, sizeof *r->host);
    near = memory_new("neighbors", 2 * (size_t)n, sizeof *near);
    TRY(r->host && near ? 0 : CONR_ENOMEM);
    for (int i = 0; i < n; i++) near[2 * i] = i, near[2 * i + 1] = n + i;
    TRY(r->dev->op.put(r->dev, r->near, near, 2 * (size_t)n * sizeof *near));
    TRY(r->dev->op.sync(r->dev));
done:
    free(near);
    return rc;
}

int refiner_open(device *dev, int in, int hidden, int width, int batch, uint64_t seed,
                 const float *deviation, refiner *out) {
    int rc = 0;
    refiner *r = out;
    *r = (refiner){.dev = dev, .n = batch, .d = width};
    network_spec spec = head_spec(in, hidden, width);
    spec.predictor = mlp_byol_predictor(hidden, width);
    TRY(network_new(&spec, &r->net));
    pass_options online = {
        .n = 2 * batch, .groups = 2, .passes = 2, .end = r->net.n_layers, .backward = true};
    pass_options target = {.n = 4 * batch, .groups = 2, .passes = 2, .end = r->net.projector_end};
    TRY(open_weights(r, deviation, seed));
    TRY(pass_new(dev, NULL, &r->net, &online, &r->online_pass));
    TRY(pass_new(dev, NULL, &r->net, &target, &r->target_pass));
    TRY(open_rows(r, in));
done:
    if (rc < 0) refiner_close(r);
    return rc;
}

void refiner_close(refiner *r) {
    if (!r->dev) return;
    r->dev->op.recording_free(r->dev, r->recorded);
    pass_free(r->online_pass);
    pass_free(r->target_pass);
    for (int i = 0; i < r->n_owned; i++) r->dev->op.free(r->dev, r->owned[i]);
    free(r->host);
    network_free(&r->net);
    *r = (refiner){0};
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Only queues operations, so that it can be recorded. */
static int step(void *arg) {
    int rc = 0;
    refiner *r = arg;
    device *dev = r->dev;
    parameters online = {r->w, r->running}, target = {r->target_w, r->target_running};
    int in = r->net.layer[0].ci, n = r->n, d = r->d;
    size_t rows = (size_t)n * d, block = (size_t)n * in;
    size_t tail = r->net.n_weights - r->net.n_target;
    TRY(dev->op.act_from(dev, r->in, 2 * block, r->acts));
    TRY(dev->op.act_from(dev, r->in + block, 4 * block, r->target_acts));
    TRY(pass_forward(r->online_pass, &online, r->acts, PASS_TRAIN));
    TRY(pass_output(r->online_pass, r->net.n_layers, r->flat));
    TRY(dev->op.rows_normalize(dev, r->flat, 2 * n, d, r->q, r->norm));
    TRY(pass_forward(r->target_pass, &target, r->target_acts, PASS_TRAIN));
    TRY(pass_output(r->target_pass, r->net.projector_end, r->flat));
    TRY(dev->op.rows_normalize(dev, r->flat, 4 * n, d, r->key, NULL));
    for (int half = 0; half < 2; half++)
        TRY(dev->op.pull(dev, r->q + half * rows, r->key + 2 * half * rows, n, d, r->near, 2,
                         r->weight, 1, r->loss, r->dq + half * rows));
    TRY(dev->op.rows_normalize_back(dev, r->q, r->norm, r->dq, 2 * n, d, r->dq));
    TRY(pass_backward(r->online_pass, &online, r->acts, r->dq, false, NULL, r->dw));
    TRY(dev->op.sgd(dev, r->at, 0, true, 1, r->net.n_target, r->w, r->dw, r->v, r->target_w));
    TRY(dev->op.sgd(dev, r->at, 1, true, 1, tail, r->w + r->net.n_target, r->dw + r->net.n_target,
                    r->v + r->net.n_target, NULL));
done:
    return rc;
}

int refiner_step(refiner *r, const step_values *at, const float *weight) {
    int rc = 0;
    device *dev = r->dev;
    size_t inputs = (size_t)REFINE_BLOCKS * r->n * r->net.layer[0].ci;
    TRY(dev->op.put(dev, r->at, at, sizeof *at));
    TRY(dev->op.put(dev, r->in, r->host, inputs * sizeof *r->host));
    TRY(dev->op.put(dev, r->weight, weight, (size_t)r->n * sizeof *weight));
    TRY(dev->op.repeat(dev, step, r, &r->recorded));
done:
    return rc;
}

int refiner_loss(refiner *r, double *sum) {
    int rc = 0;
    float value = 0;
    TRY(r->dev->op.get(r->dev, &value, r->loss, sizeof value));
    TRY(r->dev->op.zero(r->dev, r->loss, sizeof value));
    *sum = value;
done:
    return rc;
}
