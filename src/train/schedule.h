/* schedule.h: what the step number decides: learning rates, the target's m, who is let through. */
#ifndef CONR_SCHEDULE_H
#define CONR_SCHEDULE_H

#include "device/device.h"
#include "settings/settings.h"

/* The values of step 0, 1, ... of a training of `steps` steps an epoch.
 *
 * With e = (step + 1) / steps, so that the last step has e = epochs:
 *     lr = lr0 e / warmup_epochs                                     while e <= warmup_epochs
 *     lr = lr0/2 (1 + cos(pi (e - warmup_epochs) / epochs))          then; ends a little above 0
 *     m  = 1 - (1 - m0)/2 (1 + cos(pi (step + 1) / all steps))
 * Nothing restarts where stage 2 begins; its rates are multiplied by stage2_lr and
 * stage2_predictor_lr (both of lr, so predictor_lr holds in stage 1 alone). */
void schedule_at(const train_options *o, int64_t step, int64_t steps, step_values *out);

/* fr of an epoch of stage 2: the share of a batch that the boundary filter lets through. */
double schedule_fraction(const train_options *o, int epoch);

#endif
