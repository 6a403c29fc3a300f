/* gather.h: a report made from within a training, whose images are at hand. */
#ifndef CONR_REPORT_RUN_H
#define CONR_REPORT_RUN_H

#include "context/context.h"
#include "images/store.h"

/* RUN/data.json: what the images are and where, for reports to come. */
int report_write_data(const source *s, const char *run);

/* As conr_report, with the images of the store in the order of labels.csv. */
int report_from_store(conr *c, const char *run, const store *images);

/* About how long that takes, for those who plan a time. */
double report_seconds(int64_t n, int threads);

#endif
