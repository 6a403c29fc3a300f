/* gather.h: what a training calls to leave a report of itself. */
#ifndef CONR_REPORT_GATHER_H
#define CONR_REPORT_GATHER_H

#include "context/context.h"
#include "images/store.h"
#include "report/data.h"

/* As conr_report, with the pictures from the store, whose images are in the order of labels.csv. */
int report_from_store(conr *c, const char *run, const store *images);

/* As conr_report, for whoever holds the lock of the folder and is about to finish the run.  images:
 * those of the run, in the order of labels.csv; NULL: where they were. */
int report_of_run(conr *c, const char *run, conr_images *images);

/* About how long that takes, for a training with a time budget. */
double report_seconds(int64_t n, int threads);

#endif
