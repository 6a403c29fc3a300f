/* kept.h: the network of a checkpoint that a training kept, as a model. */
#ifndef CONR_MODEL_KEPT_H
#define CONR_MODEL_KEPT_H

#include "model/model.h"

#include <stdbool.h>

/* Whether a path is RUN@EPOCH; then run (4096 bytes) gets RUN. */
bool kept_is(const char *path, char *run, long *epoch);

/* Replaces the weights of the run's model by those after that epoch. */
int kept_load(conr_model *m, const char *run, long epoch);

#endif
