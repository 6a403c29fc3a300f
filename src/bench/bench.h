/* bench.h: what benchmarks of training steps share. */
#ifndef CONR_BENCH_H
#define CONR_BENCH_H

#include "train/train.h"

/* Runs `count` steps and waits for them; recorded: as one recording, if the device can, else
 * operation by operation. */
typedef int bench_steps(void *arg, int count, bool recorded);

int bench_trainer_steps(void *arg, int count, bool recorded); /* arg: trainer */

/* The settings of a trainer that makes such steps. */
int bench_settings(const conr_bench_train_options *o, conr_settings *s);

/* Runs a few steps, operation by operation, and fills r->part. */
int bench_parts(device *dev, bench_steps *steps, void *arg, conr_bench_train_result *r);

#endif
