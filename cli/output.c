/* output.c: results on stdout, one-line errors on stderr. */
#include "output.h"

#include "conr.h"
#include "progress.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- errors ---------------------------------------------------------------------------------- */

/* If many ranks fail for the same reason, rank 0 reports it and its exit ends them all; the others
 * wait for that before they print.  So only a rank that fails on its own is heard. */
static FILE *errors_to;

void be_silent(void) {
    FILE *nowhere = fopen("/dev/null", "w");
    if (!nowhere) return;
    errors_to = stderr;
    stderr = stdout = nowhere;
}

static FILE *last_words(void) {
    FILE *to = errors_to ? errors_to : stderr;
    progress_end();
    /* woken by a signal: another rank has reported, and the launcher is ending this one */
    if (errors_to && nanosleep(&(struct timespec){.tv_sec = 2}, NULL)) _exit(EXIT_FAILED);
    fputs("conr: ", to);
    if (errors_to) fprintf(to, "rank %d: ", conr_rank(NULL));
    return to;
}

static void print_error(const char *format, va_list args) {
    FILE *to = last_words();
    vfprintf(to, format, args);
    fputc('\n', to);
}

int usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(format, args);
    va_end(args);
    return EXIT_USAGE;
}

int failed(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(format, args);
    va_end(args);
    return EXIT_FAILED;
}

int library_error(void) {
    fprintf(last_words(), "%s\n", conr_error());
    return was_interrupted() ? EXIT_INTERRUPTED : EXIT_FAILED;
}

/* ---- results --------------------------------------------------------------------------------- */

int finish_output(void) {
    progress_end();
    if (!fflush(stdout) && !ferror(stdout)) return EXIT_OK;
    if (errno == EPIPE) { /* whoever read the results has left: end as programs do */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    fprintf(stderr, "conr: standard output: %s; redirect it elsewhere\n", strerror(errno));
    return EXIT_FAILED;
}

int print_json(json_t *object) {
    char *text = json_write(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (!text) return failed("JSON: out of memory; close other programs");
    puts(text);
    free(text);
    return finish_output();
}
