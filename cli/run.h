/* run.h: a run's folder as verbs see it: what state it is in, training in it, what came out. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli.h"
#include "conr.h"

bool run_has(const char *run, const char *name); /* a file of this name */
bool run_begun(const char *run);                 /* there are files of a run */
bool run_saved(const char *run);                 /* there is a checkpoint to go on from */
bool run_done(const char *run);
/* Takes away what a run leaves that cannot be resumed, so that another can begin there. */
void run_clear(const char *run);

/* Refuses to train into a folder that holds a run, or into what is no folder; 0, or EXIT_FAILED
 * after a message. */
int run_refuse_begun(const char *run);
/* Makes the folders above a path, as far as they are missing: runs/ of runs/photos.  What cannot be
 * made is told by who then writes there. */
void run_make_parents(const char *path);

/* The last line of log.jsonl with scores (or, without labels, a silhouette); NULL: none.  Released
 * by json_decref. */
json_t *run_last_scores(const char *run);

/* conr_train, and what a user is told when it is stopped: how to go on.  again: the command for
 * that; NULL: conr train --resume.  why: the library's code, may be NULL.  0, or an exit code after
 * a message. */
int run_train(conr *c, const char *src, conr_images *m, const conr_settings *s,
              const conr_train_options *o, const char *again, conr_train_result *out, int *why);

/* The result of a training, as text or JSON (the caller's to release, or to hand to print_json). */
void run_print(const char *run, const conr_images *m, const conr_train_result *r);
json_t *run_json(const char *run, const conr_images *m, const conr_train_result *r);

/* How a finished run ended, from its files: for those who ask again. */
int run_print_finished(const char *run, bool json);

#endif
