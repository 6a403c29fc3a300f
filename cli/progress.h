/* progress.h: the progress line on stderr, and Ctrl-C.  Below output.h: it knows no flags. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "conr.h"

#include <stdbool.h>
#include <stdint.h>

enum { EXIT_INTERRUPTED = 130 };

/* From now on, long work in this context shows its progress unless quiet: once per second on a
 * terminal, once per minute in a log.  Messages (evaluations, warnings) are printed at once, on
 * lines of their own; warnings even if quiet.  Ctrl-C, SIGTERM, and a terminal or pipe that was
 * closed stop the work; library_error then returns EXIT_INTERRUPTED. */
void progress_start(conr *c, bool quiet);

/* A conr_on_count that shows the same line; user: what is counted, e.g. "headers". */
int progress_count(int64_t done, int64_t total, void *user);

/* Clears the line from the terminal, before anything else is printed. */
void progress_end(void);

/* Whether one of these has happened. */
bool was_interrupted(void);

#endif
