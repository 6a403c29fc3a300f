/* progress.c: one line, redrawn on a terminal, appended in a log. */
#include "progress.h"

#include "text.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static bool silent, terminal, shown;
static double started, last;
static char stage[64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A second Ctrl-C does not wait.  But `timeout` and batch systems signal the process and its group
 * in one go: what follows within a second is the same request. */
static void on_interrupt(int signal_number) {
    static struct timespec first;
    struct timespec at;
    (void)signal_number;
    clock_gettime(CLOCK_MONOTONIC, &at);
    if (!interrupted) {
        first = at;
        interrupted = 1;
    } else if (at.tv_sec - first.tv_sec > 1 ||
               (at.tv_sec - first.tv_sec == 1 && at.tv_nsec >= first.tv_nsec)) {
        _exit(EXIT_INTERRUPTED);
    }
}

/* Prints to stderr.  If nobody reads that any more (`conr train ... 2>&1 | head`), it is a request
 * to stop: other programs die of it, here what was done is saved first. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (vfprintf(stderr, format, args) < 0 && errno == EPIPE) interrupted = 1;
    va_end(args);
}

bool was_interrupted(void) { return interrupted; }

void progress_end(void) {
    if (shown && terminal) fputs("\r\033[K", stderr);
    shown = false;
}

/* Warnings are printed even if quiet. */
static void print_message(const char *message) {
    static const char warning[] = "warning";
    if (silent && strncmp(message, warning, sizeof warning - 1)) return;
    progress_end();
    say("%s\n", message);
    fflush(stderr);
}

static void print_training(const conr_progress *p) {
    char rate[32], left[32];
    if (!(p->images_per_s > 0)) { /* nothing measured yet */
        say("%s epoch %d/%d | step %lld of %lld", p->stage, p->epoch, p->epochs, (long long)p->done,
            (long long)p->total);
        return;
    }
    say("%s epoch %d/%d | loss %.4g | lr %.1e | %s img/s | %s left", p->stage, p->epoch, p->epochs,
        p->loss, p->lr, rate_text(p->images_per_s, rate), time_text(p->seconds_left, left));
}

static void print_count(const conr_progress *p, double t) {
    char left[32];
    double rest = (t - started) / (double)p->done * (double)(p->total - p->done);
    say("%s %lld/%lld | %.0f %% | %s left", p->stage, (long long)p->done, (long long)p->total,
        100.0 * (double)p->done / (double)p->total, time_text(rest, left));
}

static int on_progress(const conr_progress *p, void *user) {
    (void)user;
    double t = now();
    if (p->message) {
        print_message(p->message);
        return interrupted;
    }
    /* the stages of a training share one timer; any other work starts a new one */
    if (strncmp(p->stage, stage, sizeof stage - 1)) {
        if (!p->epochs) last = t;
        started = t;
        snprintf(stage, sizeof stage, "%s", p->stage);
    }
    if (!silent && t - last >= (terminal ? 1 : 60) && p->done > 0 && p->total > 0) {
        if (terminal) fputs("\r\033[K", stderr);
        if (p->epochs)
            print_training(p);
        else
            print_count(p, t);
        if (!terminal) fputc('\n', stderr);
        fflush(stderr);
        last = t;
        shown = true;
    }
    return interrupted;
}

int progress_count(int64_t done, int64_t total, void *user) {
    conr_progress p = {.stage = user, .done = done, .total = total};
    return on_progress(&p, NULL);
}

void progress_start(conr *c, bool quiet) {
    silent = quiet;
    terminal = isatty(STDERR_FILENO);
    started = last = now();
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    /* while one of them is handled, the others wait */
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &before); /* the terminal was closed; not under nohup */
    if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    conr_set_progress(c, on_progress, NULL);
}
