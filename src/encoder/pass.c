/* pass.c: makes a pass, and runs the layers of the network forward. */
#include "encoder/pass_parts.h"

#include "base/memory.h"
#include "base/status.h"

#include <limits.h>
#include <stdlib.h>

static const float MOMENTUM = 0.1f; /* of the running statistics, as in PyTorch */

/* ---- making ---------------------------------------------------------------------------------- */

/* Devices count the pixels of a layer in an int. */
static int check_pixels(const pass *p) {
    for (int l = 0; l < p->o.end; l++) {
        const layer *x = &p->net->layer[l];
        if ((double)p->o.n * x->oh * x->ow > INT_MAX || (double)p->o.n * x->h * x->w > INT_MAX)
            return fail(CONR_EINVAL,
                        "batch of %d images: layer %d would have over 2^31 pixels; "
                        "use a smaller batch",
                        p->o.n, l);
    }
    return 0;
}

static int plan_layers(pass *p) {
    int rc = 0;
    size_t sums = 0;
    for (int l = 0; l < p->o.end; l++) {
        const layer *x = &p->net->layer[l];
        if (x->kind != LAYER_CONV) continue;
        conv_shape s = {.n = p->o.n,
                        .h = x->h,
                        .w = x->w,
                        .ci = x->ci,
                        .co = x->co,
                        .k = x->k,
                        .stride = x->stride,
                        .pad = x->pad,
                        .groups = p->o.groups};
        TRY(p->dev->op.conv_plan_new(p->dev, &s, &p->plan[l]));
        if (p->plan[l]->workspace > p->workspace) p->workspace = p->plan[l]->workspace;
        if (!x->norm) continue;
        size_t count = 2 * (size_t)p->o.groups * x->co;
        p->stat_at[l] = span(&p->n_floats, count, sizeof(float));
        if (count > sums) sums = count;
    }
    p->sums_at = span(&p->n_floats, sums, sizeof(float));
done:
    return rc;
}

static size_t bytes_of(const pass *p) {
    return p->n_acts * p->dev->act_size + p->n_floats * sizeof(float) + p->workspace;
}

/* Everything but the device memory. */
static int plan_new(device *dev, ranks *r, const network *net, const pass_options *o, pass **out) {
    int rc = 0;
    ASSERT(o->n > 0 && o->groups > 0 && o->n % o->groups == 0);
    ASSERT(o->passes > 0 && o->groups % o->passes == 0);
    ASSERT(o->end > 0 && o->end <= net->n_layers);
    pass *p = *out = calloc(1, sizeof *p);
    if (!p) return fail_memory("pass", sizeof *p);
    *p = (pass){.dev = dev, .ranks = r, .net = net, .o = *o};
    p->buffer = calloc((size_t)o->end * KINDS, sizeof *p->buffer);
    p->plan = calloc((size_t)o->end, sizeof *p->plan);
    p->stat_at = calloc((size_t)o->end, sizeof *p->stat_at);
    p->has_gradient = calloc((size_t)o->end, sizeof *p->has_gradient);
    p->restored = calloc((size_t)o->end, sizeof *p->restored);
    if (!p->buffer || !p->plan || !p->stat_at || !p->has_gradient || !p->restored) {
        rc = fail_memory("pass", (double)o->end * KINDS * sizeof *p->buffer);
        goto done;
    }
    TRY(check_pixels(p));
    TRY(pass_plan_memory(p, &p->n_acts));
    TRY(plan_layers(p));
done:
    if (rc < 0) {
        pass_free(p);
        *out = NULL;
    }
    return rc;
}

int pass_bytes(device *dev, const network *net, const pass_options *o, size_t *out) {
    pass *p;
    int rc = plan_new(dev, NULL, net, o, &p);
    if (rc < 0) return rc;
    *out = bytes_of(p);
    pass_free(p);
    return 0;
}

/* Bytes that a pass may take; 0: not known. */
static size_t room_on(const device *dev) {
    uint64_t hand = dev->host_memory && dev->memory ? memory_at_hand() : UINT64_MAX;
    return hand < dev->memory ? (size_t)hand : dev->memory;
}

/* The largest batch (a multiple of groups) whose pass fits into `room`; 0 if none does. */
static int largest_batch(device *dev, const network *net, pass_options o, size_t room, int *out) {
    int low = 0, high = o.n / o.groups; /* in groups; low fits, high does not */
    while (high - low > 1) {
        size_t bytes;
        int middle = low + (high - low) / 2;
        o.n = middle * o.groups;
        int rc = pass_bytes(dev, net, &o, &bytes);
        if (rc < 0) return rc;
        if (bytes <= room)
            low = middle;
        else
            high = middle;
    }
    *out = low * o.groups;
    return 0;
}

int pass_new(device *dev, ranks *r, const network *net, const pass_options *o, pass **out) {
    int rc = 0;
    rc = plan_new(dev, r, net, o, out);
    if (rc < 0) return rc;
    pass *p = *out;
    size_t bytes = bytes_of(p), room = room_on(dev);
    if (dev->memory && bytes > room) {
        int fits = 0;
        TRY(largest_batch(dev, net, *o, room, &fits));
        rc = fail(CONR_ENOMEM,
                  "batch of %d images: needs %.2f GiB, the %s device has %.2f; "
                  "a batch of %d fits%s",
                  o->n, (double)bytes / (1 << 30), dev->name, (double)room / (1 << 30), fits,
                  o->backward && !o->recompute ? ", or recompute activations" : "");
        goto done;
    }
    TRY(dev->op.alloc(dev, p->n_acts * dev->act_size, (void **)&p->acts));
    TRY(dev->op.alloc(dev, p->n_floats * sizeof(float), (void **)&p->floats));
    TRY(dev->op.alloc(dev, p->workspace, &p->work));
done:
    if (rc < 0) {
        pass_free(p);
        *out = NULL;
    }
    return rc;
}

void pass_free(pass *p) {
    if (!p) return;
    device *dev = p->dev;
    for (int l = 0; p->plan && l < p->o.end; l++)
        if (p->plan[l]) dev->op.conv_plan_free(dev, p->plan[l]);
    dev->op.free(dev, p->acts);
    dev->op.free(dev, p->floats);
    dev->op.free(dev, p->work);
    free(p->buffer);
    free(p->plan);
    free(p->stat_at);
    free(p->has_gradient);
    free(p->restored);
    free(p);
}

/* ---- the operands of a layer ----------------------------------------------------------------- */

act *pass_acts(const pass *p, int layer, int kind) {
    return act_at(p->dev, p->acts, pass_buffer(p, layer, kind)->at);
}

const act *pass_input(const pass *p, const layer *x, const act *images, bool backward) {
    if (x->in < 0) return images;
    return pass_acts(p, x->in,
                     backward ? pass_output_in_backward(p, x->in)
                              : pass_output_kind(&p->net->layer[x->in]));
}

norm_shape pass_norm_shape(const pass *p, const layer *x) {
    int groups = p->mode == PASS_EVAL ? 1 : p->o.groups;
    return (norm_shape){.n = p->o.n, .hw = x->oh * x->ow, .c = x->co, .groups = groups};
}

pool_shape pass_pool_shape(const pass *p, const layer *x) {
    return (pool_shape){.n = p->o.n, .h = x->h, .w = x->w, .c = x->ci};
}

normed pass_normed(const pass *p, const parameters *at, int l, const act *y) {
    const layer *x = &p->net->layer[l];
    normed v = {.y = y};
    if (x->norm) {
        v.stat = p->floats + p->stat_at[l];
        v.gamma = at->w + x->gamma_at;
        v.beta = at->w + x->beta_at;
    }
    return v;
}

double pass_values_per_mean(const pass *p, const layer *x) {
    return (double)(p->o.n / p->o.groups) * x->oh * x->ow * (p->o.shared ? p->ranks->count : 1);
}

/* ---- forward --------------------------------------------------------------------------------- */

int pass_apply_norm(pass *p, const parameters *at, int l, const act *y, const act *residual,
                    act *z) {
    const layer *x = &p->net->layer[l], *added = x->add < 0 ? NULL : &p->net->layer[x->add];
    norm_shape s = pass_norm_shape(p, x);
    normed main = pass_normed(p, at, l, y), shortcut;
    bool joined = added && added->joined;
    if (joined) shortcut = pass_normed(p, at, x->add, pass_acts(p, x->add, Y));
    return p->dev->op.norm_apply(p->dev, &s, &main, joined ? &shortcut : NULL, residual, x->relu,
                                 z);
}

static int forward_layer(pass *p, const parameters *at, const act *images, int l) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    const act *in = pass_input(p, x, images, false);
    act *y = pass_acts(p, l, Y);
    pool_shape pool = pass_pool_shape(p, x);
    if (x->kind == LAYER_MAX_POOL) return dev->op.max_pool(dev, &pool, in, y);
    if (x->kind == LAYER_MEAN_POOL) return dev->op.mean_pool(dev, &pool, in, y);

    bool train = p->mode != PASS_EVAL;
    const float *bias = x->bias ? at->w + x->bias_at : NULL;
    float *running = x->norm ? at->running + x->running_at : NULL;
    float *sums = x->norm && train ? p->floats + p->sums_at : NULL;
    float *stat = p->floats + p->stat_at[l];
    norm_rest rest = {p->o.passes, pass_values_per_mean(p, x), p->mode == PASS_TRAIN ? MOMENTUM : 0,
                      running, stat};
    if (sums && !p->o.shared && dev->op.conv_forward_finish) {
        TRY(dev->op.conv_forward_finish(dev, p->plan[l], in, at->w + x->w_at, bias, y, sums, &rest,
                                        p->work));
    } else {
        TRY(dev->op.conv_forward(dev, p->plan[l], in, at->w + x->w_at, bias, y, running, sums,
                                 p->work));
        if (sums && p->o.shared)
            TRY(ranks_sum(p->ranks, dev, sums, 2 * (size_t)p->o.groups * x->co));
        if (sums)
            TRY(dev->op.norm_finish(dev, x->co, p->o.groups, rest.passes, rest.count, sums,
                                    rest.momentum, running, stat));
    }
    if (x->norm && !train) { TRY(dev->op.norm_from_running(dev, x->co, running, stat)); }
    const layer *added = x->add < 0 ? NULL : &p->net->layer[x->add];
    const act *residual =
        added && !added->joined ? pass_acts(p, x->add, pass_output_kind(added)) : NULL;
    if (pass_output_kind(x) == Z) TRY(pass_apply_norm(p, at, l, y, residual, pass_acts(p, l, Z)));
done:
    return rc;
}

int pass_forward(pass *p, const parameters *at, const act *images, pass_mode mode) {
    return pass_forward_layers(p, at, images, mode, 0, p->o.end);
}

int pass_forward_layers(pass *p, const parameters *at, const act *images, pass_mode mode, int first,
                        int last) {
    int rc = 0;
    p->mode = mode;
    for (int l = 0; l < p->o.end; l++) {
        const layer *x = &p->net->layer[l];
        if (x->norm && mode != PASS_EVAL && pass_values_per_mean(p, x) < 2)
            return fail(CONR_EINVAL,
                        "batch of %d in %d groups: %s would normalize a single value; "
                        "use at least two images per group",
                        p->o.n, p->o.groups, x->norm_name);
    }
    for (int l = first; l < last; l++) TRY(forward_layer(p, at, images, l));
done:
    return rc;
}

size_t pass_output_count(const pass *p, int end) {
    const layer *x = &p->net->layer[end - 1];
    return (size_t)p->o.n * x->oh * x->ow * x->co;
}

act *pass_activations(pass *p, int end) {
    ASSERT(end > 0 && end <= p->o.end && (end == p->o.end || p->o.backward));
    ASSERT(!pass_drops_z(p, end - 1));
    return pass_acts(p, end - 1, pass_output_kind(&p->net->layer[end - 1]));
}

int pass_output(pass *p, int end, float *out) {
    return p->dev->op.act_to(p->dev, pass_activations(p, end), pass_output_count(p, end), out);
}
