/* trial_transformers.c: trials of the operations of transformers. */
#include "device/trial.h"

#include "base/status.h"

#include <math.h>

static attention_shape attention_of(const trial *t) {
    size_t wide = (size_t)t->c.co * (size_t)t->c.ci;
    bool one = t->c.variant & 1;
    /* as in [3,heads,d]: rows of one operand lie apart */
    size_t row = wide + (t->c.variant & 2 ? 8 : 3);
    return (attention_shape){.n = t->n,
                             .queries = t->c.h,
                             .keys = t->c.w,
                             .heads = t->c.co,
                             .d = t->c.ci,
                             .q_row = row,
                             .q_image = one ? 0 : row * (size_t)t->c.h,
                             .k_row = 2 * wide,
                             .k_image = 2 * wide * (size_t)t->c.w,
                             .o_row = wide,
                             .o_image = wide * (size_t)t->c.h,
                             .scale = 1 / sqrtf((float)t->c.ci)};
}

static int open_attention(trial *t) {
    int rc = 0;
    attention_shape s = attention_of(t);
    size_t images = (size_t)t->n;
    /* products of this size have a softmax that neither is flat nor has a single winner */
    TRY(trial_acts(t, s.q_image ? images * s.q_image : s.q_row * (size_t)s.queries, 1.5, &t->x));
    TRY(trial_acts(t, images * s.k_image, 1, &t->y));
    TRY(trial_result_acts(t, images * s.o_image, &t->z));
    TRY(trial_alloc(t, t->dev->op.attention_bytes(t->dev, &s), &t->work));
done:
    return rc;
}

int trial_open_transformer(trial *t) {
    int rc = 0;
    size_t n = (size_t)t->n, ci = (size_t)t->c.ci, co = (size_t)t->c.co, h = (size_t)t->c.h;
    switch (t->c.op) {
    case CASE_DENSE:
        TRY(trial_acts(t, n * ci, 1, &t->x));
        TRY(trial_floats(t, ci * co, 2 / sqrt((double)ci), 0, &t->w));
        TRY(trial_floats(t, co, 0.5, 0, &t->bias));
        TRY(trial_floats(t, co, 0.5, 0, &t->gamma));
        TRY(trial_acts(t, n * co, 1, &t->extra));
        TRY(trial_result_acts(t, n * co, &t->y));
        break;
    case CASE_LAYER_NORM:
        TRY(trial_acts(t, n * ci, 3, &t->x));
        TRY(trial_floats(t, ci, 0.3, 1, &t->gamma));
        TRY(trial_floats(t, ci, 0.5, 0, &t->beta));
        TRY(trial_result_acts(t, n * ci, &t->y));
        break;
    case CASE_TOKENS:
        TRY(trial_acts(t, n * h * ci, 1, &t->x));
        TRY(trial_floats(t, co * ci, 1, 0, &t->a));
        TRY(trial_floats(t, h * ci, 1, 0, &t->b));
        TRY(trial_result_acts(t, n * (co + h) * ci, &t->y));
        break;
    default: TRY(open_attention(t));
    }
done:
    return rc;
}

int trial_run_transformer(trial *t) {
    device *dev = t->dev;
    int ci = t->c.ci, co = t->c.co;
    bool more = t->c.variant & 4;
    attention_shape s = attention_of(t);
    dense_shape d = {t->n, ci, co, (dense_then)(t->c.variant & 3)};
    switch (t->c.op) {
    case CASE_DENSE:
        return dev->op.dense(dev, &d, t->x, t->w, t->c.variant == 5 ? NULL : t->bias,
                             more ? t->gamma : NULL, more ? t->extra : NULL, t->y);
    case CASE_LAYER_NORM:
        return dev->op.layer_norm(dev, t->n, ci, 1e-6f, t->x, t->gamma, t->beta, t->y);
    case CASE_TOKENS: return dev->op.tokens(dev, t->n, co, t->c.h, ci, t->x, t->a, t->b, t->y);
    default:
        return dev->op.attention(dev, &s, t->x, t->y, act_at(dev, t->y, (size_t)co * (size_t)ci),
                                 t->z, t->work);
    }
}
