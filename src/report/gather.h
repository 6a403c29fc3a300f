/* gather.h: what a training calls to leave a report of itself. */
#ifndef CONR_REPORT_GATHER_H
#define CONR_REPORT_GATHER_H

#include "context/context.h"
#include "images/store.h"
#include "report/data.h"

/* As conr_report, with the pictures from the store, whose images are in the order of labels.csv. */
int report_from_store(conr *c, const char *run, const store *images);

/* About how long that takes, for a training with a time budget. */
double report_seconds(int64_t n, int threads);

#endif
