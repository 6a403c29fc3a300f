/* schedule.c: see schedule.h.  Computed in double, rounded once. */
#include "train/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double schedule_fraction(const train_options *o, int epoch) {
    int since = epoch - o->stage1_epochs; /* epochs of stage 2 before this one */
    if (!o->boundary) return 1;
    if (!o->relaxation) return o->fr0;
    /* the released code counts from 1; over all of stage 2, as in the paper, from 0 */
    return o->relax_epochs ? conr_boundary_fraction(o->fr0, since + 1, o->relax_epochs)
                           : conr_boundary_fraction(o->fr0, since, o->epochs - o->stage1_epochs);
}

/* m of the target in stage 1, and in stage 2 unless that has its own. */
static double moving_average(const train_options *o, double e, int epochs, int64_t steps) {
    double m = o->average, memory = o->average_share * epochs * (double)steps;
    if (o->average_share > 0) return 1 - 1 / fmin(fmax(memory, 10), 250);
    return o->average_fixed ? m : 1 - (1 - m) * (1 + cos(PI * e / epochs)) / 2;
}

static double weight_decay(const train_options *o, int epochs, int64_t steps) {
    double travel = o->lr * epochs * (double)steps;
    return o->decay_by_length > 0 && travel > 0 ? fmin(o->decay_by_length / sqrt(travel), 1)
                                                : o->decay;
}

void schedule_at(const train_options *o, int64_t step, int64_t steps, step_values *out) {
    int epoch = (int)(step / steps);
    int epochs = epoch < o->replan_epoch ? o->replan_from : o->epochs; /* as planned at that step */
    bool stage2 = stage_of(o, epoch) == 2;
    double e = (double)(step + 1) / (double)steps, warm = o->warmup_epochs;
    double rate = e <= warm ? e / warm : 0.5 * (1 + cos(PI * (e - warm) / epochs));
    double own = o->predictor_lr_fixed ? 1 : rate;
    bool own_average = stage2 && o->stage2_average > 0;
    double m = own_average ? o->stage2_average : moving_average(o, e, epochs, steps);
    double keep = floor(o->batch * (stage2 ? schedule_fraction(o, epoch) : 1) + 1e-9);
    *out = (step_values){
        .lr = {(float)(o->lr * rate * (stage2 ? o->stage2_lr : 1)),
               (float)(o->lr * own * (stage2 ? o->stage2_predictor_lr : o->predictor_lr))},
        .momentum = (float)o->momentum,
        .decay = (float)weight_decay(o, epochs, steps),
        .average = (float)m,
        .keep = keep < 1 ? 1 : (int32_t)keep,
        .epoch = (uint32_t)epoch,
        .step = (uint32_t)step,
    };
}
