/* schedule.h: what depends on the step number: learning rates, weight decay, the target's m, the
 * boundary filter. */
#ifndef CONR_SCHEDULE_H
#define CONR_SCHEDULE_H

#include "device/device.h"
#include "settings/settings.h"

/* The values of step 0, 1, ... of a training with `steps` steps per epoch.
 *
 * With e = (step + 1) / steps, so that the last step has e = epochs:
 *     lr = lr0 e / warmup_epochs                                     while e <= warmup_epochs
 *     lr = lr0/2 (1 + cos(pi (e - warmup_epochs) / epochs))          then; ends a little above 0
 *     m  = 1 - (1 - m0)/2 (1 + cos(pi (step + 1) / all steps))
 *     m  = m0                                                        if average_fixed
 *     m  = 1 - 1/memory, memory = average_share * all steps          if average_share is set;
 *                                                                    memory from 10 to 250 steps
 *     decay = decay_by_length / sqrt(lr0 * all steps)                if that is set: weights of short
 *                                                                    runs would not shrink otherwise
 * Nothing restarts when stage 2 begins; its rates are multiplied by stage2_lr and
 * stage2_predictor_lr (both relative to lr: predictor_lr applies only in stage 1), and its m is
 * stage2_average if that is set. */
void schedule_at(const train_options *o, int64_t step, int64_t steps, step_values *out);

/* fr of an epoch of stage 2: the fraction of a batch that passes the boundary filter. */
double schedule_fraction(const train_options *o, int epoch);

#endif
