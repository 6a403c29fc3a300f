/* progress.c: one line, redrawn on a terminal, appended in a log. */
#include "progress.h"

#include "text.h"

#include <signal.h>
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

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (interrupted) _exit(EXIT_INTERRUPTED); /* a second Ctrl-C does not wait */
    interrupted = 1;
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
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
}

static void print_training(const conr_progress *p) {
    char rate[32], left[32];
    if (!(p->images_per_s > 0)) { /* nothing measured yet */
        fprintf(stderr, "%s epoch %d/%d | step %lld of %lld", p->stage, p->epoch, p->epochs,
                (long long)p->done, (long long)p->total);
        return;
    }
    fprintf(stderr, "%s epoch %d/%d | loss %.4g | lr %.1e | %s img/s | %s left", p->stage, p->epoch,
            p->epochs, p->loss, p->lr, rate_text(p->images_per_s, rate),
            time_text(p->seconds_left, left));
}

static void print_count(const conr_progress *p, double t) {
    char left[32];
    double rest = (t - started) / (double)p->done * (double)(p->total - p->done);
    fprintf(stderr, "%s %lld/%lld | %.0f %% | %s left", p->stage, (long long)p->done,
            (long long)p->total, 100.0 * (double)p->done / (double)p->total, time_text(rest, left));
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
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    conr_set_progress(c, on_progress, NULL);
}
