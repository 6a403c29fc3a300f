/* pass.c: plans the memory of a batch, and runs the layers forward and backward over it. */
#include "encoder/pass.h"

#include "base/status.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const float MOMENTUM = 0.1f; /* of the running statistics, as torch */

/* The tensors that a layer may need room for. */
enum {
    Y,      /* the convolution's or pool's output */
    Z,      /* behind norm, add and ReLU */
    Y_BACK, /* Y computed once more, for the backward sweep */
    Z_BACK, /* likewise Z */
    G,      /* gradient of the layer's output; then, masked by the ReLU, of what was added */
    KINDS
};

typedef struct room {
    size_t size, at;  /* in activations */
    int birth, death; /* first and last moment of use; birth < 0: not used */
    int home;         /* the room whose memory this one shares; itself in general */
} room;

struct pass {
    device *dev;
    ranks *ranks;
    const network *net;
    pass_options o;
    room *room;       /* [end * KINDS] */
    conv_plan **plan; /* [end], NULL for pools */
    size_t *stat_at;  /* [end], in floats: [groups][2][co] */
    size_t n_acts, n_floats, sums_at, workspace;
    act *acts;          /* [n_acts] */
    float *floats;      /* [n_floats]: statistics of all layers, then the sums of the one at work */
    void *work;         /* [workspace] bytes */
    pass_mode mode;     /* of the last forward */
    bool *has_gradient; /* [end]: in backward, G of the layer holds something to add to */
    bool *made;         /* [end]: in backward, Z_BACK of the layer is there */
};

/* ---- the plan -------------------------------------------------------------------------------- */

/* Which tensor is layer l's output. */
static int output_kind(const layer *l) {
    return l->kind == LAYER_CONV && (l->norm || l->relu || l->add >= 0) && !l->joined ? Z : Y;
}

/* Whether layer l's Z is dropped after its forward use and made again from Y, and from what was
 * added.  The outputs of parts stay, for pass_output: no part ends with norm and ReLU. */
static bool made_again(const pass *p, int l) {
    const layer *x = &p->net->layer[l];
    return p->o.backward && p->o.recompute && x->norm && x->relu;
}

static room *room_of(const pass *p, int layer, int kind) {
    room *r = &p->room[layer * KINDS + kind];
    return &p->room[r->home];
}

static void share(pass *p, int layer, int kind, int with_layer, int with_kind) {
    p->room[layer * KINDS + kind].home = p->room[with_layer * KINDS + with_kind].home;
}

static void touch(pass *p, int layer, int kind, int moment) {
    room *r = room_of(p, layer, kind);
    if (r->birth < 0) r->birth = r->death = moment;
    if (moment < r->birth) r->birth = moment;
    if (moment > r->death) r->death = moment;
}

/* Whether its Y is dropped, too: the first convolution reads nothing but the images, costs little,
 * and its output is the largest of all. */
static bool convolved_again(const pass *p, int l) {
    return made_again(p, l) && p->net->layer[l].in < 0;
}

static int y_in_backward(const pass *p, int l) { return convolved_again(p, l) ? Y_BACK : Y; }

/* The tensor that holds layer l's output during the backward sweep. */
static int output_in_backward(const pass *p, int l) {
    return made_again(p, l) ? Z_BACK : output_kind(&p->net->layer[l]);
}

/* The layer whose backward is the i-th from the end.  A projection shortcut stands behind the
 * convolution that reads the same input; its turn comes last, for then it only has to add on the
 * pixels that it saw, not to write all of them. */
static int backward_turn(const pass *p, int i) {
    const layer *x = p->net->layer;
    if (x[i].joined && i > 0 && x[i - 1].in == x[i].in) return i - 1;
    if (i + 1 < p->o.end && x[i + 1].joined && x[i + 1].in == x[i].in) return i + 1;
    return i;
}

/* Whether what layer l added is first made where l's output will lie, and l added to it there: a
 * plain norm + ReLU that is needed again much later, as the stem's, does not wait in memory. */
static bool added_in_place(const pass *p, int l) {
    int from = p->net->layer[l].add;
    return from >= 0 && made_again(p, from) && !p->made[from] && p->net->layer[from].add < 0;
}

/* Layer l's output is read at this moment of the backward sweep; if it is not there yet, it is made
 * again out of tensors that must be.  As make_again below. */
static void plan_output(pass *p, int l, int moment) {
    const layer *x = p->net->layer;
    int from = x[l].add;
    touch(p, l, output_in_backward(p, l), moment);
    if (!made_again(p, l) || p->made[l]) return;
    p->made[l] = true;
    touch(p, l, y_in_backward(p, l), moment);
    if (from < 0 || (added_in_place(p, l) && convolved_again(p, from))) return;
    if (x[from].joined || added_in_place(p, l))
        touch(p, from, Y, moment);
    else
        plan_output(p, from, moment);
}

/* The moments of a layer's backward: its norm's, its filter's gradient, its input's. */
enum { AT_NORM, AT_FILTER, AT_DATA, MOMENTS };

/* Lifetimes.  Moments: forward of layer l is l, its backward begins at end + MOMENTS times the
 * turns before its own; the same order of reads and writes as in forward_layer and backward_layer
 * below. */
static void plan_lifetimes(pass *p) {
    int end = p->o.end;
    for (int l = 0; l < end; l++) {
        const layer *x = &p->net->layer[l];
        for (int kind = 0; kind < KINDS; kind++)
            p->room[l * KINDS + kind] = (room){.size = (size_t)p->o.n * x->oh * x->ow * x->co,
                                               .birth = -1,
                                               .home = l * KINDS + kind};
        if (!p->o.backward) share(p, l, Z, l, Y); /* in place: Y is not needed again */
    }
    for (int l = 0; l < end; l++) {
        const layer *x = &p->net->layer[l];
        if (x->in >= 0) touch(p, x->in, output_kind(&p->net->layer[x->in]), l);
        if (x->add >= 0) touch(p, x->add, output_kind(&p->net->layer[x->add]), l);
        touch(p, l, Y, l);
        touch(p, l, output_kind(x), l);
    }
    int last_forward = end - 1;
    touch(p, last_forward, output_kind(&p->net->layer[last_forward]), end); /* for pass_output */
    if (!p->o.backward) return;

    touch(p, end - 1, G, end);
    memset(p->made, 0, (size_t)end * sizeof *p->made);
    for (int i = end - 1; i >= 0; i--) {
        int l = backward_turn(p, i), moment = end + MOMENTS * (end - 1 - i);
        const layer *x = &p->net->layer[l];
        touch(p, l, G, moment);
        if (x->norm || x->relu) touch(p, l, y_in_backward(p, l), moment);
        if (x->add >= 0) plan_output(p, l, moment); /* the mask */
        if (x->add >= 0) share(p, x->add, G, l, G);
        touch(p, l, x->add >= 0 ? Y : G, moment + AT_DATA); /* where dy lies */
        if (x->in < 0) continue;
        plan_output(p, x->in, moment + (x->kind == LAYER_CONV ? AT_FILTER : AT_DATA));
        touch(p, x->in, G, moment + AT_DATA);
    }
}

static int compare(long a, long b) { return (a > b) - (a < b); }

static int by_birth(const void *a, const void *b) {
    const room *x = *(room *const *)a, *y = *(room *const *)b;
    int order = compare(x->birth, y->birth);
    if (!order) order = compare((long)y->size, (long)x->size);
    return order ? order : compare(x->home, y->home);
}

static int by_size(const void *a, const void *b) {
    const room *x = *(room *const *)a, *y = *(room *const *)b;
    int order = compare((long)y->size, (long)x->size);
    if (!order) order = compare(y->death - y->birth, x->death - x->birth);
    return order ? order : compare(x->home, y->home);
}

/* First fit in the order given: each room takes the lowest place that no room alive at the same
 * time overlaps.  Returns the activations needed in all. */
static size_t place_in_order(room **order, int n) {
    size_t needed = 0;
    for (int i = 0; i < n; i++) {
        room *r = order[i];
        r->at = 0;
        for (int j = 0; j < i; j++) { /* on a clash move behind it and look again from the start */
            const room *other = order[j];
            bool alive = other->death >= r->birth && other->birth <= r->death;
            if (!alive || r->at >= other->at + other->size || other->at >= r->at + r->size)
                continue;
            r->at = other->at + other->size;
            j = -1;
        }
        if (r->at + r->size > needed) needed = r->at + r->size;
    }
    return needed;
}

/* No order is best for all networks: the better of two is taken. */
static int place_rooms(pass *p, size_t *needed) {
    int count = p->o.end * KINDS, n = 0;
    room **order = calloc((size_t)count, sizeof *order);
    if (!order) return fail_memory("memory plan", (double)count * sizeof *order);
    for (int i = 0; i < count; i++) {
        room *r = &p->room[i];
        r->size = (r->size + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
        if (r->birth >= 0 && r->home == i) order[n++] = r;
    }
    qsort(order, (size_t)n, sizeof *order, by_birth);
    size_t sized, born = place_in_order(order, n);
    qsort(order, (size_t)n, sizeof *order, by_size);
    sized = place_in_order(order, n);
    if (born < sized) {
        qsort(order, (size_t)n, sizeof *order, by_birth);
        place_in_order(order, n);
    }
    *needed = born < sized ? born : sized;
    free(order);
    return 0;
}

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
        size_t numbers = 2 * (size_t)p->o.groups * x->co;
        p->stat_at[l] = span(&p->n_floats, numbers, sizeof(float));
        if (numbers > sums) sums = numbers;
    }
    p->sums_at = span(&p->n_floats, sums, sizeof(float));
done:
    return rc;
}

static size_t bytes_of(const pass *p) {
    return p->n_acts * p->dev->act_size + p->n_floats * sizeof(float) + p->workspace;
}

/* All but the device memory. */
static int plan_new(device *dev, ranks *r, const network *net, const pass_options *o, pass **out) {
    int rc = 0;
    ASSERT(o->n > 0 && o->groups > 0 && o->n % o->groups == 0);
    ASSERT(o->passes > 0 && o->groups % o->passes == 0);
    ASSERT(o->end > 0 && o->end <= net->n_layers);
    pass *p = *out = calloc(1, sizeof *p);
    if (!p) return fail_memory("pass", sizeof *p);
    *p = (pass){.dev = dev, .ranks = r, .net = net, .o = *o};
    p->room = calloc((size_t)o->end * KINDS, sizeof *p->room);
    p->plan = calloc((size_t)o->end, sizeof *p->plan);
    p->stat_at = calloc((size_t)o->end, sizeof *p->stat_at);
    p->has_gradient = calloc((size_t)o->end, sizeof *p->has_gradient);
    p->made = calloc((size_t)o->end, sizeof *p->made);
    if (!p->room || !p->plan || !p->stat_at || !p->has_gradient || !p->made) {
        rc = fail_memory("pass", (double)o->end * KINDS * sizeof *p->room);
        goto done;
    }
    TRY(check_pixels(p));
    plan_lifetimes(p);
    TRY(place_rooms(p, &p->n_acts));
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

/* The largest batch (a multiple of groups) whose pass fits the device; 0 if none does. */
static int largest_batch(device *dev, const network *net, pass_options o, int *out) {
    int low = 0, high = o.n / o.groups; /* in groups; low fits, high does not */
    while (high - low > 1) {
        size_t bytes;
        int middle = low + (high - low) / 2;
        o.n = middle * o.groups;
        int rc = pass_bytes(dev, net, &o, &bytes);
        if (rc < 0) return rc;
        if (bytes <= dev->memory)
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
    size_t bytes = bytes_of(p);
    if (dev->memory && bytes > dev->memory) {
        int fits = 0;
        TRY(largest_batch(dev, net, *o, &fits));
        rc = fail(CONR_ENOMEM,
                  "batch of %d images: takes %.2f GiB, the %s device has %.2f; "
                  "a batch of %d fits%s",
                  o->n, (double)bytes / (1 << 30), dev->name, (double)dev->memory / (1 << 30), fits,
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
    free(p->room);
    free(p->plan);
    free(p->stat_at);
    free(p->has_gradient);
    free(p->made);
    free(p);
}

/* ---- what a layer works on ------------------------------------------------------------------- */

static act *acts_of(const pass *p, int layer, int kind) {
    return act_at(p->dev, p->acts, room_of(p, layer, kind)->at);
}

static const act *input_of(const pass *p, const layer *x, const act *images, bool backward) {
    if (x->in < 0) return images;
    return acts_of(p, x->in,
                   backward ? output_in_backward(p, x->in) : output_kind(&p->net->layer[x->in]));
}

static norm_shape norm_shape_of(const pass *p, const layer *x) {
    int groups = p->mode == PASS_EVAL ? 1 : p->o.groups;
    return (norm_shape){.n = p->o.n, .hw = x->oh * x->ow, .c = x->co, .groups = groups};
}

static pool_shape pool_shape_of(const pass *p, const layer *x) {
    return (pool_shape){.n = p->o.n, .h = x->h, .w = x->w, .c = x->ci};
}

/* y: layer l's Y, wherever it lies */
static normed normed_of(const pass *p, const parameters *at, int l, const act *y) {
    const layer *x = &p->net->layer[l];
    normed v = {.y = y};
    if (x->norm) {
        v.stat = p->floats + p->stat_at[l];
        v.gamma = at->w + x->gamma_at;
        v.beta = at->w + x->beta_at;
    }
    return v;
}

/* Numbers behind one mean: a channel's, in one group, over the ranks that share it. */
static double numbers_in_group(const pass *p, const layer *x) {
    return (double)(p->o.n / p->o.groups) * x->oh * x->ow * (p->o.shared ? p->ranks->count : 1);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y: layer l's; residual: what is added, NULL where nothing is or a projection */
static int apply_layer(pass *p, const parameters *at, int l, const act *y, const act *residual,
                       act *z) {
    const layer *x = &p->net->layer[l], *added = x->add < 0 ? NULL : &p->net->layer[x->add];
    norm_shape s = norm_shape_of(p, x);
    normed main = normed_of(p, at, l, y), shortcut;
    bool joined = added && added->joined;
    if (joined) shortcut = normed_of(p, at, x->add, acts_of(p, x->add, Y));
    return p->dev->op.norm_apply(p->dev, &s, &main, joined ? &shortcut : NULL, residual, x->relu,
                                 z);
}

static int forward_layer(pass *p, const parameters *at, const act *images, int l) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    const act *in = input_of(p, x, images, false);
    act *y = acts_of(p, l, Y);
    pool_shape pool = pool_shape_of(p, x);
    if (x->kind == LAYER_MAX_POOL) return dev->op.max_pool(dev, &pool, in, y);
    if (x->kind == LAYER_MEAN_POOL) return dev->op.mean_pool(dev, &pool, in, y);

    bool train = p->mode != PASS_EVAL;
    const float *bias = x->bias ? at->w + x->bias_at : NULL;
    float *running = x->norm ? at->running + x->running_at : NULL;
    float *sums = x->norm && train ? p->floats + p->sums_at : NULL;
    float *stat = p->floats + p->stat_at[l];
    norm_rest rest = {p->o.passes, numbers_in_group(p, x), p->mode == PASS_TRAIN ? MOMENTUM : 0,
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
    const act *residual = added && !added->joined ? acts_of(p, x->add, output_kind(added)) : NULL;
    if (output_kind(x) == Z) TRY(apply_layer(p, at, l, y, residual, acts_of(p, l, Z)));
done:
    return rc;
}

int pass_forward(pass *p, const parameters *at, const act *images, pass_mode mode) {
    int rc = 0;
    p->mode = mode;
    for (int l = 0; l < p->o.end; l++) {
        const layer *x = &p->net->layer[l];
        if (x->norm && mode != PASS_EVAL && numbers_in_group(p, x) < 2)
            return fail(CONR_EINVAL,
                        "batch of %d in %d groups: %s would normalize a single number; "
                        "use at least two images a group",
                        p->o.n, p->o.groups, x->norm_name);
    }
    for (int l = 0; l < p->o.end; l++) TRY(forward_layer(p, at, images, l));
done:
    return rc;
}

int pass_output(pass *p, int end, float *out) {
    ASSERT(end > 0 && end <= p->o.end && (end == p->o.end || p->o.backward));
    ASSERT(!made_again(p, end - 1));
    const layer *x = &p->net->layer[end - 1];
    size_t count = (size_t)p->o.n * x->oh * x->ow * x->co;
    return p->dev->op.act_to(p->dev, acts_of(p, end - 1, output_kind(x)), count, out);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Layer l's output into z, with its Y at y, if that was dropped, too. */
static int output_again(pass *p, const parameters *at, const act *images, int l, act *y,
                        const act *residual, act *z) {
    int rc = 0;
    const layer *x = &p->net->layer[l];
    if (convolved_again(p, l)) /* its statistics are there */
        TRY(p->dev->op.conv_forward(p->dev, p->plan[l], images, at->w + x->w_at,
                                    x->bias ? at->w + x->bias_at : NULL, y,
                                    at->running + x->running_at, NULL, p->work));
    TRY(apply_layer(p, at, l, y, residual, z));
done:
    return rc;
}

/* Layer l's output, if it was dropped and is not there again; a block's output needs that of the
 * block before, up to the one whose shortcut is a projection. */
static int make_again(pass *p, const parameters *at, const act *images, int l) {
    int rc = 0, from = p->net->layer[l].add;
    if (!made_again(p, l) || p->made[l]) return 0;
    p->made[l] = true;
    act *z = acts_of(p, l, Z_BACK);
    const act *residual = NULL;
    if (added_in_place(p, l)) {
        TRY(output_again(p, at, images, from, convolved_again(p, from) ? z : acts_of(p, from, Y),
                         NULL, z));
        residual = z;
    } else if (from >= 0 && !p->net->layer[from].joined) {
        TRY(make_again(p, at, images, from));
        residual = acts_of(p, from, output_in_backward(p, from));
    }
    TRY(output_again(p, at, images, l, acts_of(p, l, y_in_backward(p, l)), residual, z));
done:
    return rc;
}

/* From G, the gradient of the layer's output, to the gradient of Y, which *dy then points to. */
static int backward_norm(pass *p, const parameters *at, const act *images, int l, bool add,
                         float *dw, act **dy) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    norm_shape s = norm_shape_of(p, x);
    normed y = normed_of(p, at, l, acts_of(p, l, y_in_backward(p, l)));
    act *g = acts_of(p, l, G);
    bool adds = x->add >= 0;
    *dy = g;
    if (!x->norm && !x->relu) return 0;

    /* A layer that adds passes the masked gradient on to what it added, so that is written. */
    if (adds) TRY(make_again(p, at, images, l));
    ASSERT(!convolved_again(p, l) || p->made[l]); /* whoever read its output has seen to it */
    const act *z = adds ? acts_of(p, l, output_in_backward(p, l)) : NULL;
    bool relu = x->relu;
    if (!x->norm) return dev->op.norm_back_sums(dev, &s, &y, z, relu, g, add, NULL, NULL, NULL, g);
    float *sums = p->floats + p->sums_at;
    TRY(dev->op.norm_back_sums(dev, &s, &y, z, relu, g, add, sums, dw + x->gamma_at,
                               dw + x->beta_at, adds ? g : NULL));
    if (p->o.shared) TRY(ranks_sum(p->ranks, dev, sums, 2 * (size_t)s.groups * s.c));
    if (adds) *dy = acts_of(p, l, Y); /* G is still needed, Y no longer */
    TRY(dev->op.norm_back_apply(dev, &s, &y, NULL, relu && !adds, g, sums, numbers_in_group(p, x),
                                *dy));
done:
    return rc;
}

static int backward_layer(pass *p, const parameters *at, const act *images, bool add, float *dw,
                          int l) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    const act *in = input_of(p, x, images, true);
    act *dx = x->in < 0 ? NULL : acts_of(p, x->in, G), *dy;
    bool grows = x->in >= 0 && p->has_gradient[x->in];
    if (x->in >= 0) p->has_gradient[x->in] = true;
    if (x->kind != LAYER_CONV) {
        ASSERT(!grows);
        TRY(make_again(p, at, images, x->in));
        pool_shape pool = pool_shape_of(p, x);
        const act *g = acts_of(p, l, G);
        return x->kind == LAYER_MAX_POOL ? dev->op.max_pool_back(dev, &pool, in, g, dx)
                                         : dev->op.mean_pool_back(dev, &pool, g, dx);
    }
    if (x->add >= 0) { /* what was added has this layer's gradient behind the ReLU: shared memory */
        ASSERT(!p->has_gradient[x->add]);
        p->has_gradient[x->add] = true;
    }
    TRY(backward_norm(p, at, images, l, add, dw, &dy));
    if (x->in >= 0) TRY(make_again(p, at, images, x->in));
    TRY(dev->op.conv_back_filter(dev, p->plan[l], in, dy, add, dw + x->w_at,
                                 x->bias ? dw + x->bias_at : NULL, p->work));
    if (dx) TRY(dev->op.conv_back_data(dev, p->plan[l], dy, at->w + x->w_at, grows, dx, p->work));
done:
    return rc;
}

/* The backward pass has come to turn i: sends what is complete on its way, if it is enough for a
 * block or the last.  Weights lie in the order of layers, so what is complete is a tail: *sent and
 * beyond are under way. */
static int send_means(pass *p, ranks *over, float *dw, int i, size_t *sent) {
    enum { BLOCK = 4 << 20 }; /* numbers: 16 MB hide the latency, and the first is soon full */
    const layer *x = p->net->layer;
    if (!over || backward_turn(p, i) < i) return 0; /* its partner's turn comes next */
    if (i > 0 && x[i].kind != LAYER_CONV) return 0;
    size_t from = i == 0 ? 0 : x[i].w_at;
    if (i > 0 && *sent - from < BLOCK) return 0;
    int rc = ranks_mean_begin(over, p->dev, dw + from, *sent - from);
    *sent = from;
    return rc;
}

int pass_backward(pass *p, const parameters *at, const act *images, const float *d, bool add,
                  ranks *over, float *dw) {
    int rc = 0, end = p->o.end;
    size_t sent = p->net->n_weights;
    ASSERT(p->o.backward && p->mode != PASS_EVAL);
    const layer *last = &p->net->layer[end - 1];
    memset(p->has_gradient, 0, (size_t)end * sizeof *p->has_gradient);
    memset(p->made, 0, (size_t)end * sizeof *p->made);
    TRY(p->dev->op.act_from(p->dev, d, (size_t)p->o.n * last->oh * last->ow * last->co,
                            acts_of(p, end - 1, G)));
    for (int i = end - 1; i >= 0; i--) {
        TRY(backward_layer(p, at, images, add, dw, backward_turn(p, i)));
        TRY(send_means(p, over, dw, i, &sent));
    }
done:
    return rc;
}
