/* progress.h: the progress line on stderr, and Ctrl-C. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli.h"
#include "conr.h"

/* From now on this context's long work shows a line, unless --quiet: once a second on a terminal,
 * once a minute in a log.  Ctrl-C stops the work; the verb then exits 130 by library_error. */
void progress_start(conr *c, const arguments *a);

#endif
