/* pass_plan.c: the memory plan of a pass: the lifetime of every tensor over the forward and
 * backward sweep, and a place for each such that tensors alive at the same time do not overlap. */
#include "encoder/pass_parts.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- which tensors there are ----------------------------------------------------------------- */

buffer *pass_buffer(const pass *p, int layer, int kind) {
    buffer *b = &p->buffer[layer * KINDS + kind];
    return &p->buffer[b->home];
}

int pass_output_kind(const layer *l) {
    return l->kind == LAYER_CONV && (l->norm || l->relu || l->add >= 0) && !l->joined ? Z : Y;
}

bool pass_drops_z(const pass *p, int l) {
    const layer *x = &p->net->layer[l];
    return p->o.backward && p->o.recompute && x->norm && x->relu;
}

bool pass_drops_y(const pass *p, int l) { return pass_drops_z(p, l) && p->net->layer[l].in < 0; }

int pass_y_in_backward(const pass *p, int l) { return pass_drops_y(p, l) ? Y_BACK : Y; }

int pass_output_in_backward(const pass *p, int l) {
    return pass_drops_z(p, l) ? Z_BACK : pass_output_kind(&p->net->layer[l]);
}

bool pass_adds_in_place(const pass *p, int l) {
    int from = p->net->layer[l].add;
    return from >= 0 && pass_drops_z(p, from) && !p->restored[from] && p->net->layer[from].add < 0;
}

int pass_backward_turn(const pass *p, int i) {
    const layer *x = p->net->layer;
    if (x[i].joined && i > 0 && x[i - 1].in == x[i].in) return i - 1;
    if (i + 1 < p->o.end && x[i + 1].joined && x[i + 1].in == x[i].in) return i + 1;
    return i;
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void share(pass *p, int layer, int kind, int with_layer, int with_kind) {
    p->buffer[layer * KINDS + kind].home = p->buffer[with_layer * KINDS + with_kind].home;
}

static void touch(pass *p, int layer, int kind, int moment) {
    buffer *b = pass_buffer(p, layer, kind);
    if (b->birth < 0) b->birth = b->death = moment;
    if (moment < b->birth) b->birth = moment;
    if (moment > b->death) b->death = moment;
}

/* The output of layer l is read at this moment of the backward sweep.  If it was dropped, it is
 * recomputed from tensors that must exist then; see restore_output in pass_backward.c. */
static void plan_output(pass *p, int l, int moment) {
    const layer *x = p->net->layer;
    int from = x[l].add;
    touch(p, l, pass_output_in_backward(p, l), moment);
    if (!pass_drops_z(p, l) || p->restored[l]) return;
    p->restored[l] = true;
    touch(p, l, pass_y_in_backward(p, l), moment);
    if (from < 0 || (pass_adds_in_place(p, l) && pass_drops_y(p, from))) return;
    if (x[from].joined || pass_adds_in_place(p, l))
        touch(p, from, Y, moment);
    else
        plan_output(p, from, moment);
}

/* The moments of the backward of a layer: norm, gradient of the filter, gradient of the input. */
enum { AT_NORM, AT_FILTER, AT_DATA, MOMENTS };

/* Moments: the forward of layer l is at moment l, its backward begins at end + MOMENTS times the
 * turns before its own.  Follows the reads and writes of forward_layer (pass.c) and backward_layer
 * (pass_backward.c) in their order. */
static void plan_lifetimes(pass *p) {
    int end = p->o.end;
    for (int l = 0; l < end; l++) {
        const layer *x = &p->net->layer[l];
        for (int kind = 0; kind < KINDS; kind++)
            p->buffer[l * KINDS + kind] = (buffer){.size = (size_t)p->o.n * x->oh * x->ow * x->co,
                                                   .birth = -1,
                                                   .home = l * KINDS + kind};
        if (!p->o.backward) share(p, l, Z, l, Y); /* in place: Y is not read again */
    }
    for (int l = 0; l < end; l++) {
        const layer *x = &p->net->layer[l];
        if (x->in >= 0) touch(p, x->in, pass_output_kind(&p->net->layer[x->in]), l);
        if (x->add >= 0) touch(p, x->add, pass_output_kind(&p->net->layer[x->add]), l);
        touch(p, l, Y, l);
        touch(p, l, pass_output_kind(x), l);
    }
    touch(p, end - 1, pass_output_kind(&p->net->layer[end - 1]), end); /* for pass_output */
    if (!p->o.backward) return;

    touch(p, end - 1, G, end);
    memset(p->restored, 0, (size_t)end * sizeof *p->restored);
    for (int i = end - 1; i >= 0; i--) {
        int l = pass_backward_turn(p, i), moment = end + MOMENTS * (end - 1 - i);
        const layer *x = &p->net->layer[l];
        touch(p, l, G, moment);
        if (x->norm || x->relu) touch(p, l, pass_y_in_backward(p, l), moment);
        if (x->add >= 0) plan_output(p, l, moment); /* the mask */
        if (x->add >= 0) share(p, x->add, G, l, G);
        touch(p, l, x->add >= 0 ? Y : G, moment + AT_DATA); /* where dy is */
        if (x->in < 0) continue;
        plan_output(p, x->in, moment + (x->kind == LAYER_CONV ? AT_FILTER : AT_DATA));
        touch(p, x->in, G, moment + AT_DATA);
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

static int compare(long a, long b) { return (a > b) - (a < b); }

static int by_birth(const void *a, const void *b) {
    const buffer *x = *(buffer *const *)a, *y = *(buffer *const *)b;
    int order = compare(x->birth, y->birth);
    if (!order) order = compare((long)y->size, (long)x->size);
    return order ? order : compare(x->home, y->home);
}

static int by_size(const void *a, const void *b) {
    const buffer *x = *(buffer *const *)a, *y = *(buffer *const *)b;
    int order = compare((long)y->size, (long)x->size);
    if (!order) order = compare(y->death - y->birth, x->death - x->birth);
    return order ? order : compare(x->home, y->home);
}

/* First fit in the order given: each buffer takes the lowest place that overlaps no buffer alive at
 * the same time.  Returns the activations needed in all. */
static size_t place_in_order(buffer **order, int n) {
    size_t needed = 0;
    for (int i = 0; i < n; i++) {
        buffer *b = order[i];
        b->at = 0;
        for (int j = 0; j < i; j++) { /* after a clash move behind it and start over */
            const buffer *other = order[j];
            bool alive = other->death >= b->birth && other->birth <= b->death;
            if (!alive || b->at >= other->at + other->size || other->at >= b->at + b->size)
                continue;
            b->at = other->at + other->size;
            j = -1;
        }
        if (b->at + b->size > needed) needed = b->at + b->size;
    }
    return needed;
}

/* No order is best for all networks: take the better of two. */
static int place_buffers(pass *p, size_t *needed) {
    int count = p->o.end * KINDS, n = 0;
    buffer **order = calloc((size_t)count, sizeof *order);
    if (!order) return fail_memory("memory plan", (double)count * sizeof *order);
    for (int i = 0; i < count; i++) {
        buffer *b = &p->buffer[i];
        b->size = (b->size + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
        if (b->birth >= 0 && b->home == i) order[n++] = b;
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

int pass_plan_memory(pass *p, size_t *needed) {
    plan_lifetimes(p);
    return place_buffers(p, needed);
}
