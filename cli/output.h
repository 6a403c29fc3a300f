/* output.h: results on stdout, one-line errors on stderr, exit codes. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "values.h"

/* Exit codes; EXIT_INTERRUPTED is in progress.h. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Print "conr: WHAT: WHY; REMEDY" to stderr.  The first returns EXIT_USAGE, the second
 * EXIT_FAILED. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the library's message; returns EXIT_FAILED, or EXIT_INTERRUPTED after Ctrl-C. */
int library_error(void);

/* Silences this process from now on, except for an error that no other rank has. */
void be_silent(void);

/* Prints one JSON object to stdout and releases it: all of it, or nothing if memory is short (then
 * the object may also be NULL).  Returns EXIT_OK, or EXIT_FAILED after a message. */
int print_json(json_t *object);
/* Flushes stdout.  Returns EXIT_OK, or EXIT_FAILED after a message (full disk, closed pipe). */
int finish_output(void);

#endif
