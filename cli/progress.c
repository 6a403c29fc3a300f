/* progress.c: one line, redrawn on a terminal, repeated in a log. */
#include "progress.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static bool quiet, terminal, shown;
static double started, last;
static const char *stage;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (interrupted) _exit(EXIT_INTERRUPTED); /* the second one does not wait */
    interrupted = 1;
}

bool was_interrupted(void) { return interrupted; }

void progress_end(void) {
    if (shown && terminal) fputs("\r\033[K", stderr);
    shown = false;
}

static int on_progress(const conr_progress *p, void *user) {
    (void)user;
    double t = now();
    if (p->stage != stage) stage = p->stage, started = t, last = t;
    double interval = terminal ? 1 : 60;
    if (!quiet && t - last >= interval && p->done > 0) {
        double left = (t - started) / (double)p->done * (double)(p->total - p->done);
        fprintf(stderr, "%s%s %lld/%lld | %.0f %% | %.0f s left%s", terminal ? "\r\033[K" : "",
                p->stage, (long long)p->done, (long long)p->total,
                100.0 * (double)p->done / (double)p->total, left, terminal ? "" : "\n");
        fflush(stderr);
        last = t;
        shown = true;
    }
    return interrupted;
}

void progress_start(conr *c, const arguments *a) {
    quiet = flag_on(a, "quiet");
    terminal = isatty(STDERR_FILENO);
    started = last = now();
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    conr_set_progress(c, on_progress, NULL);
}
