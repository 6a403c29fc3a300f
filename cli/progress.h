/* progress.h: the progress line on stderr, and Ctrl-C. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli.h"
#include "conr.h"

#include <stdint.h>

/* From now on this context's long work shows a line, unless --quiet: once a second on a terminal,
 * once a minute in a log; what it has to tell at once (evaluations, warnings) gets a line of its
 * own.  Ctrl-C and SIGTERM stop the work; the verb then exits 130 by library_error. */
void progress_start(conr *c, const arguments *a);

/* A conr_on_count with the same line; user: what is counted, e.g. "headers". */
int progress_count(int64_t done, int64_t total, void *user);

#endif
