/* pass_backward.c: runs the layers of the network backward, recomputing what the forward sweep
 * dropped. */
#include "encoder/pass_parts.h"

#include "base/status.h"

#include <string.h>

/* Recomputes the output of layer l into z, and its Y into y if that was dropped, too. */
static int recompute_output(pass *p, const parameters *at, const act *images, int l, act *y,
                            const act *residual, act *z) {
    int rc = 0;
    const layer *x = &p->net->layer[l];
    if (pass_drops_y(p, l)) /* its statistics are still there */
        TRY(p->dev->op.conv_forward(p->dev, p->plan[l], images, at->w + x->w_at,
                                    x->bias ? at->w + x->bias_at : NULL, y,
                                    at->running + x->running_at, NULL, p->work));
    TRY(pass_apply_norm(p, at, l, y, residual, z));
done:
    return rc;
}

/* Recomputes the output of layer l if it was dropped and has not been restored yet.  The output of
 * a block needs that of the block before, back to the one whose shortcut is a projection. */
static int restore_output(pass *p, const parameters *at, const act *images, int l) {
    int rc = 0, from = p->net->layer[l].add;
    if (!pass_drops_z(p, l) || p->restored[l]) return 0;
    p->restored[l] = true;
    act *z = pass_acts(p, l, Z_BACK);
    const act *residual = NULL;
    if (pass_adds_in_place(p, l)) {
        TRY(recompute_output(p, at, images, from, pass_drops_y(p, from) ? z : pass_acts(p, from, Y),
                             NULL, z));
        residual = z;
    } else if (from >= 0 && !p->net->layer[from].joined) {
        TRY(restore_output(p, at, images, from));
        residual = pass_acts(p, from, pass_output_in_backward(p, from));
    }
    TRY(recompute_output(p, at, images, l, pass_acts(p, l, pass_y_in_backward(p, l)), residual, z));
done:
    return rc;
}

/* From G, the gradient of the output of layer l, to the gradient of Y; *dy: where that is. */
static int backward_norm(pass *p, const parameters *at, const act *images, int l, bool add,
                         float *dw, act **dy) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    norm_shape s = pass_norm_shape(p, x);
    normed y = pass_normed(p, at, l, pass_acts(p, l, pass_y_in_backward(p, l)));
    act *g = pass_acts(p, l, G);
    bool adds = x->add >= 0;
    *dy = g;
    if (!x->norm && !x->relu) return 0;

    /* What a layer adds gets the masked gradient, so it is written back to G. */
    if (adds) TRY(restore_output(p, at, images, l));
    ASSERT(!pass_drops_y(p, l) || p->restored[l]); /* by the layer that read its output */
    const act *z = adds ? pass_acts(p, l, pass_output_in_backward(p, l)) : NULL;
    bool relu = x->relu;
    if (!x->norm) return dev->op.norm_back_sums(dev, &s, &y, z, relu, g, add, NULL, NULL, NULL, g);
    float *sums = p->floats + p->sums_at;
    TRY(dev->op.norm_back_sums(dev, &s, &y, z, relu, g, add, sums, dw + x->gamma_at,
                               dw + x->beta_at, adds ? g : NULL));
    if (p->o.shared) TRY(ranks_sum(p->ranks, dev, sums, 2 * (size_t)s.groups * s.c));
    if (adds) *dy = pass_acts(p, l, Y); /* G is still needed, Y is not */
    TRY(dev->op.norm_back_apply(dev, &s, &y, NULL, relu && !adds, g, sums,
                                pass_values_per_mean(p, x), *dy));
done:
    return rc;
}

static int backward_layer(pass *p, const parameters *at, const act *images, bool add, float *dw,
                          int l) {
    int rc = 0;
    device *dev = p->dev;
    const layer *x = &p->net->layer[l];
    const act *in = pass_input(p, x, images, true);
    act *dx = x->in < 0 ? NULL : pass_acts(p, x->in, G), *dy;
    bool grows = x->in >= 0 && p->has_gradient[x->in];
    if (x->in >= 0) p->has_gradient[x->in] = true;
    if (x->kind != LAYER_CONV) {
        ASSERT(!grows);
        TRY(restore_output(p, at, images, x->in));
        pool_shape pool = pass_pool_shape(p, x);
        const act *g = pass_acts(p, l, G);
        return x->kind == LAYER_MAX_POOL ? dev->op.max_pool_back(dev, &pool, in, g, dx)
                                         : dev->op.mean_pool_back(dev, &pool, g, dx);
    }
    if (x->add >= 0) { /* what was added shares G, masked by the ReLU, as its gradient */
        ASSERT(!p->has_gradient[x->add]);
        p->has_gradient[x->add] = true;
    }
    TRY(backward_norm(p, at, images, l, add, dw, &dy));
    if (x->in >= 0) TRY(restore_output(p, at, images, x->in));
    TRY(dev->op.conv_back_filter(dev, p->plan[l], in, dy, add, dw + x->w_at,
                                 x->bias ? dw + x->bias_at : NULL, p->work));
    if (p->added && l == p->added_end) { /* not before: dx shares memory with what was just read */
        TRY(dev->op.act_from(dev, p->added, pass_output_count(p, l), dx));
        p->added = NULL;
        grows = true;
    }
    if (dx) TRY(dev->op.conv_back_data(dev, p->plan[l], dy, at->w + x->w_at, grows, dx, p->work));
done:
    return rc;
}

/* After turn i: starts averaging the gradients that are complete, if they fill a block or are the
 * last.  Weights are stored in the order of the layers, so complete gradients are a tail of dw;
 * those from *sent on are already being averaged. */
static int start_means(pass *p, ranks *over, float *dw, int i, size_t *sent) {
    enum { BLOCK = 4 << 20 }; /* floats: 16 MB hide the latency, and the first is soon full */
    const layer *x = p->net->layer;
    if (!over) return 0;
    if (pass_backward_turn(p, i) < i) return 0; /* the layer it swapped turns with is next */
    if (i > 0 && x[i].kind != LAYER_CONV) return 0;
    size_t from = i == 0 ? 0 : x[i].w_at;
    if (i > 0 && *sent - from < BLOCK) return 0;
    int rc = ranks_mean_begin(over, p->dev, dw + from, *sent - from);
    *sent = from;
    return rc;
}

void pass_add_gradient(pass *p, int end, const float *d) {
    ASSERT(end > 0 && end < p->o.end && p->net->layer[end].in == end - 1);
    p->added = d, p->added_end = end;
}

int pass_backward(pass *p, const parameters *at, const act *images, const float *d, bool add,
                  ranks *over, float *dw) {
    int rc = 0, end = p->o.end;
    size_t sent = p->net->n_weights;
    ASSERT(p->o.backward && p->mode != PASS_EVAL);
    const layer *last = &p->net->layer[end - 1];
    memset(p->has_gradient, 0, (size_t)end * sizeof *p->has_gradient);
    memset(p->restored, 0, (size_t)end * sizeof *p->restored);
    TRY(p->dev->op.act_from(p->dev, d, (size_t)p->o.n * last->oh * last->ow * last->co,
                            pass_acts(p, end - 1, G)));
    for (int i = end - 1; i >= 0; i--) {
        TRY(backward_layer(p, at, images, add, dw, pass_backward_turn(p, i)));
        TRY(start_means(p, over, dw, i, &sent));
    }
done:
    return rc;
}
