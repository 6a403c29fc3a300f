/* trial_layers.c: trials of the layers of a network: convolution, batch norm, pools. */
#include "device/trial.h"

#include "base/status.h"

#include <math.h>

/* ---- convolution ----------------------------------------------------------------------------- */

int trial_open_conv(trial *t) {
    int rc = 0;
    const op_case *c = &t->c;
    bool add = c->variant & 2, bias = c->variant & 1;
    conv_shape s = {t->n, c->h, c->w, c->ci, c->co, c->k, c->stride, c->k / 2, c->groups};
    TRY(t->dev->op.conv_plan_new(t->dev, &s, &t->plan));
    TRY(trial_alloc(t, t->plan->workspace, &t->work));
    size_t xs = (size_t)t->n * c->h * c->w * c->ci;
    size_t ys = (size_t)t->n * t->plan->oh * t->plan->ow * c->co;
    size_t ws = (size_t)c->co * c->k * c->k * c->ci;
    double w_size = 1 / sqrt((double)c->k * c->k * c->ci);
    switch (c->op) {
    case CASE_CONV_FORWARD:
        TRY(trial_acts(t, xs, 1, &t->x));
        TRY(trial_floats(t, ws, w_size, 0, &t->w));
        if (bias) TRY(trial_floats(t, c->co, 1, 0, &t->bias));
        TRY(trial_floats(t, c->co, 0.1, 0, &t->shift));
        TRY(trial_result_acts(t, ys, &t->y));
        TRY(trial_result_floats(t, 2 * (size_t)c->groups * c->co, &t->sums));
        break;
    case CASE_CONV_BACK_DATA:
        TRY(trial_acts(t, ys, 1, &t->dy));
        TRY(trial_floats(t, ws, w_size, 0, &t->w));
        if (add) {
            TRY(trial_acts(t, xs, 1, &t->dx));
            trial_is_output(t, t->dx, xs, true);
        } else {
            TRY(trial_result_acts(t, xs, &t->dx));
        }
        break;
    default:
        TRY(trial_acts(t, xs, 1, &t->x));
        TRY(trial_acts(t, ys, 1, &t->dy));
        if (add) {
            TRY(trial_floats(t, ws, 1, 0, &t->dw));
            trial_is_output(t, t->dw, ws, false);
            if (bias) TRY(trial_floats(t, c->co, 1, 0, &t->dbias));
            if (bias) trial_is_output(t, t->dbias, c->co, false);
        } else {
            TRY(trial_result_floats(t, ws, &t->dw));
            if (bias) TRY(trial_result_floats(t, c->co, &t->dbias));
        }
    }
done:
    return rc;
}

int trial_run_conv(trial *t) {
    device *dev = t->dev;
    bool add = t->c.variant & 2;
    if (t->c.op == CASE_CONV_FORWARD)
        return dev->op.conv_forward(dev, t->plan, t->x, t->w, t->bias, t->y, t->shift, t->sums,
                                    t->work);
    if (t->c.op == CASE_CONV_BACK_DATA)
        return dev->op.conv_back_data(dev, t->plan, t->dy, t->w, add, t->dx, t->work);
    return dev->op.conv_back_filter(dev, t->plan, t->x, t->dy, add, t->dw, t->dbias, t->work);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

/* Running statistics: mean as drawn, variance positive. */
static int running_of(trial *t, int c, float **out) {
    return trial_floats(t, 2 * (size_t)c, 0.05, 1, out);
}

/* Statistics as norm_finish would give them, all about 1. */
static int stat_of(trial *t, int c, float **out) {
    int rc = 0;
    float *running;
    TRY(running_of(t, c, &running));
    TRY(trial_alloc(t, 2 * (size_t)t->c.groups * c * sizeof **out, (void **)out));
    for (int g = 0; g < t->c.groups; g++)
        TRY(t->dev->op.norm_from_running(t->dev, c, running, *out + 2 * (size_t)g * c));
done:
    return rc;
}

int trial_open_norm(trial *t) {
    int rc = 0, c = t->c.ci, groups = t->c.groups;
    size_t count = (size_t)t->n * t->c.h * t->c.w * c;
    bool forward = t->c.op == CASE_NORM_FORWARD, norm = t->c.variant != 3;
    bool adds = t->c.variant == 1 || t->c.variant == 2;
    t->shape = (norm_shape){t->n, t->c.h * t->c.w, c, groups};
    TRY(trial_acts(t, count, 1, &t->y));
    t->main.y = t->y;
    if (norm) {
        TRY(trial_floats(t, c, 0.1, 1, &t->gamma));
        TRY(trial_floats(t, c, 0.1, 0, &t->beta));
        TRY(stat_of(t, c, &t->stat));
        t->main = (normed){t->y, t->stat, t->gamma, t->beta};
    }
    if (adds) TRY(trial_acts(t, count, 1, &t->extra));
    if (forward) {
        TRY(trial_result_acts(t, count, &t->z));
        if (t->c.variant == 2) {
            TRY(stat_of(t, c, &t->stat2));
            t->shortcut = (normed){t->extra, t->stat2, t->gamma, t->beta};
        }
        if (!norm) goto done;
        TRY(running_of(t, c, &t->running));
        trial_is_output(t, t->running, 2 * (size_t)c, false);
        /* mean 1/2 and variance 1/4 about the shift */
        TRY(trial_floats(t, 2 * (size_t)groups * c, 1, 0.5 * (double)count / c / groups, &t->sums));
        TRY(trial_result_floats(t, 2 * (size_t)groups * c, &t->finished));
    } else {
        TRY(trial_acts(t, count, 1, &t->dy));
        TRY(trial_result_acts(t, count, &t->dx));
        if (adds) TRY(trial_result_acts(t, count, &t->z));
        if (!norm) goto done;
        TRY(trial_result_floats(t, 2 * (size_t)groups * c, &t->sums));
        TRY(trial_result_floats(t, c, &t->dgamma));
        TRY(trial_result_floats(t, c, &t->dbeta));
    }
done:
    return rc;
}

/* With a residual or shortcut the sign comes from z (here: extra), and the masked gradient is an
 * output of its own, since what was added needs it too; else the mask is recomputed. */
int trial_run_norm(trial *t) {
    int rc = 0;
    device *dev = t->dev;
    bool norm = t->c.variant != 3, adds = t->c.variant == 1 || t->c.variant == 2;
    double count = (double)t->n / t->c.groups * t->c.h * t->c.w;
    if (t->c.op == CASE_NORM_FORWARD) {
        if (norm)
            TRY(dev->op.norm_finish(dev, t->c.ci, t->c.groups, 1, count, t->sums, 0.1f, t->running,
                                    t->finished));
        return dev->op.norm_apply(dev, &t->shape, &t->main, t->c.variant == 2 ? &t->shortcut : NULL,
                                  t->c.variant == 1 ? t->extra : NULL, true, t->z);
    }
    if (!norm)
        return dev->op.norm_back_sums(dev, &t->shape, &t->main, NULL, true, t->dy, false, NULL,
                                      NULL, NULL, t->dx);
    TRY(dev->op.norm_back_sums(dev, &t->shape, &t->main, adds ? t->extra : NULL, true, t->dy, false,
                               t->sums, t->dgamma, t->dbeta, adds ? t->z : NULL));
    TRY(dev->op.norm_back_apply(dev, &t->shape, &t->main, NULL, !adds, adds ? t->z : t->dy, t->sums,
                                count, t->dx));
done:
    return rc;
}

/* ---- pools ----------------------------------------------------------------------------------- */

int trial_open_pool(trial *t) {
    int rc = 0;
    const op_case *c = &t->c;
    bool max = c->op == CASE_MAX_POOL || c->op == CASE_MAX_POOL_BACK;
    bool back = c->op == CASE_MAX_POOL_BACK || c->op == CASE_MEAN_POOL_BACK;
    size_t xs = (size_t)t->n * c->h * c->w * c->ci;
    size_t ys = (size_t)t->n * c->ci * (max ? (size_t)((c->h + 1) / 2) * ((c->w + 1) / 2) : 1);
    TRY(trial_acts(t, xs, 1, &t->x));
    if (c->variant) { /* after a ReLU many maxima are adjacent zeros */
        norm_shape all = {t->n, c->h * c->w, c->ci, 1};
        TRY(t->dev->op.norm_apply(t->dev, &all, &(normed){.y = t->x}, NULL, NULL, true, t->x));
    }
    if (back) {
        TRY(trial_acts(t, ys, 1, &t->dy));
        TRY(trial_result_acts(t, xs, &t->dx));
    } else {
        TRY(trial_result_acts(t, ys, &t->y));
    }
done:
    return rc;
}

int trial_run_pool(trial *t) {
    device *dev = t->dev;
    pool_shape s = {t->n, t->c.h, t->c.w, t->c.ci};
    switch (t->c.op) {
    case CASE_MAX_POOL: return dev->op.max_pool(dev, &s, t->x, t->y);
    case CASE_MAX_POOL_BACK: return dev->op.max_pool_back(dev, &s, t->x, t->dy, t->dx);
    case CASE_MEAN_POOL: return dev->op.mean_pool(dev, &s, t->x, t->y);
    default: return dev->op.mean_pool_back(dev, &s, t->dy, t->dx);
    }
}
