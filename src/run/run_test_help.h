/* run_test_help.h: one training as a call, stopped where a test wants, and runs compared. */
#ifndef CONR_RUN_TEST_HELP_H
#define CONR_RUN_TEST_HELP_H

#include "base/file.h"
#include "train/train_test_help.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What the caller of a training answers to its reports. */
typedef struct caller {
    int step;           /* "stop" after this many steps; 0: never */
    int call;           /* "stop" at this report of any kind, once; 0: never */
    int calls;          /* out: how many reports there were */
    char what[64];      /* out: the stage of that report */
    char message[1024]; /* out: the last message that begins with "warning" */
} caller;

static inline int answer(const conr_progress *p, void *user) {
    caller *a = user;
    a->calls++;
    if (p->message && !strncmp(p->message, "warning", 7))
        snprintf(a->message, sizeof a->message, "%s", p->message);
    if (a->calls == a->call) snprintf(a->what, sizeof a->what, "%s", p->stage);
    return a->calls == a->call || (p->epochs && a->step && --a->step == 0);
}

/* One call of conr_train on the images of this file or folder; returns its status. */
static inline int train_on(const char *images, const conr_settings *s, conr_train_options o,
                           int threads, caller *a, conr_train_result *result) {
    conr *c;
    conr_images *m;
    caller silent = {0};
    conr_images_options io = conr_images_defaults();
    assert_ok(conr_open("cpu", threads, &c));
    assert_ok(conr_images_open(c, images, &io, NULL, NULL, &m));
    conr_set_progress(c, answer, a ? a : &silent);
    int rc = conr_train(c, m, s, &o, result);
    conr_images_close(m);
    conr_close(c);
    return rc;
}

static inline int train(const conr_settings *s, conr_train_options o, int threads, int stop_after,
                        conr_train_result *result) {
    caller a = {.step = stop_after};
    return train_on(test_images_file(), s, o, threads, &a, result);
}

static inline const char *folder(const char *name) {
    static char path[8][4096];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s", temporary_path(name));
    return path[at];
}

/* FOLDER/NAME, valid for the next eight calls. */
static inline const char *file_in(const char *run, const char *name) {
    static char path[8][4200];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", run, name);
    return path[at];
}

static inline bool is_file(const char *path) {
    struct stat at;
    return stat(path, &at) == 0;
}

static inline bool same_file(const char *a, const char *b) {
    file_map m[2];
    assert_ok(file_map_open(a, &m[0]));
    assert_ok(file_map_open(b, &m[1]));
    bool same = m[0].size == m[1].size && !memcmp(m[0].data, m[1].data, m[0].size);
    for (int i = 0; i < 2; i++) file_map_close(&m[i]);
    return same;
}

static const char *const results[] = {"model.safetensors", "embeddings.npy", "centroids.npy",
                                      "labels.csv"};

static inline bool same_run(const char *a, const char *b) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!same_file(file_in(a, results[i]), file_in(b, results[i]))) return false;
    return true;
}

static inline void assert_same_run(const char *a, const char *b) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!same_file(file_in(a, results[i]), file_in(b, results[i])))
            fail_msg("%s and %s differ in %s", a, b, results[i]);
}

/* The evaluations in a run's log: lines that do not depend on time. */
static inline void evaluations(const char *run, char *out, size_t size) {
    char line[4096];
    FILE *f = fopen(file_in(run, "log.jsonl"), "r");
    assert_non_null(f);
    for (*out = 0; fgets(line, sizeof line, f);)
        if (strstr(line, "\"objective\"")) strncat(out, line, size - strlen(out) - 1);
    fclose(f);
    assert_true(strlen(out) > 0 && strlen(out) < size - 1);
}

static inline bool same_evaluations(const char *a, const char *b) {
    static char log[2][65536];
    evaluations(a, log[0], sizeof log[0]);
    evaluations(b, log[1], sizeof log[1]);
    return !strcmp(log[0], log[1]);
}

#endif
