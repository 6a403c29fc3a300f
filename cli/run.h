/* run.h: a run folder as verbs see it: its state, training in it, its results. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli.h"
#include "conr.h"

bool run_has(const char *run, const char *name); /* has a file of this name */
bool run_begun(const char *run);                 /* has files of a run */
bool run_saved(const char *run);                 /* has a checkpoint to resume from */
bool run_done(const char *run);

/* Refuses to train into a folder that holds a run, or into something else than a folder.  0, or
 * EXIT_FAILED after a message. */
int run_refuse_begun(const char *run);
/* Creates the missing folders above a path: runs/ for runs/photos.  If that fails, writing there
 * will report it. */
void run_make_parents(const char *path);

/* The last line of log.jsonl with scores (without labels: a silhouette); NULL: none.  Released by
 * json_decref.  0, also without that file, or EXIT_FAILED after a message. */
int run_last_scores(const char *run, json_t **out);

/* Runs conr_train; if it is stopped, tells the user how to continue: `again`, or with NULL, conr
 * train --resume.  *why: the code that conr_train returned; why may be NULL.  0, or an exit code
 * after a message. */
int run_train(conr *c, const char *src, conr_images *m, const conr_settings *s,
              const conr_train_options *o, const char *again, conr_train_result *out, int *why);

/* Prints the result of a training, as text or as JSON.  0, or an exit code after a message. */
int run_print(const char *run, const conr_images *m, const conr_train_result *r, bool json);

/* The same for a run made from features; m: NULL if there are no images.  note: one more line; in
 * JSON, "note"; NULL: none. */
int run_print_features(const char *run, const conr_images *m, const conr_features_result *r,
                       const char *note, bool json);

/* The result of a finished run, read from its files. */
int run_print_finished(const char *run, bool json);

#endif
