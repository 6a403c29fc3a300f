/* run.h: one training from start to finish, and its folder.
 *
 *     run.c       the public call: open, train, write results
 *     folder.c    the folder: images, log file, checkpoints, starting points
 *     budget.c    how many epochs fit into a given time
 *     plan.c      what the end of an epoch asks for
 *     loop.c      the training loop and its log lines
 *     baseline.c  clusters of the built-in descriptor, to compare with
 *     instead.c   clusters of the descriptor in place of a training that lost
 *     results.c   model, features, labels, report, DONE
 *     checkpoint.c, evaluate.c   know trainers and features, not runs
 *
 * Everything that follows from the state at a step is computed again after a resume, so a run that
 * is stopped anywhere, even by SIGKILL, ends in the same bits as one that never stops.  The
 * position of the loop is the trainer's step and the number of closed epochs (clustered and
 * evaluated). */
#ifndef CONR_RUN_H
#define CONR_RUN_H

#include "base/lock.h"
#include "run/baseline.h"
#include "run/checkpoint.h"
#include "run/evaluate.h"
#include "json/json.h"

#include <stdio.h>

/* The caller's callback, and whether it has asked to stop.  Whatever must not be left half done is
 * finished first (a step, an evaluation, all that several ranks do together); then the loop stops,
 * on all ranks. */
typedef struct asked {
    conr_on_progress *on_progress;
    void *user;
    bool stop;    /* it has asked, at any time */
    bool at_once; /* what is being done may be abandoned: done again, it gives the same bits */
} asked;

/* Seconds that each thing takes. */
typedef struct budget_costs {
    double epoch[2];             /* the steps of an epoch of stage 1, of stage 2 */
    double cluster, choose;      /* embedding included; what choosing K adds */
    double evaluate, keep, save; /* at the end of an epoch */
    double results;              /* at the end of the run */
} budget_costs;

typedef struct run {
    conr *c;
    ranks *ranks;
    bool leads;       /* rank 0, which writes the files */
    folder_lock lock; /* of the folder, held by rank 0 */
    asked asked;
    conr_images *images;
    const conr_train_options *to;
    train_options o;
    store store;
    pixels_norm norm;
    trainer *t;
    checkpoint_state state;
    FILE *log;
    int64_t *truth;      /* [images] labels, or NULL if there are none */
    int32_t *previous;   /* [images] pseudo labels before the last clustering, valid if */
    bool compared;       /* there were any */
    double began;        /* clock at the start of this call */
    double before;       /* seconds trained before it */
    double interval;     /* clock at the last log line */
    double stepping;     /* seconds spent in steps by this call */
    int64_t stepped;     /* steps by this call */
    int64_t timed;       /* how many of them `stepping` covers */
    double last_loss;    /* mean of the last log line */
    double epoch_loss;   /* mean over the last closed epoch */
    budget_costs costs;  /* as the trial of a budget measured them */
    int measure_again;   /* with a budget: after this epoch; 0: never */
    train_options given; /* with a budget: the settings before it changed them */
    evaluation last;
    conr_baseline baseline;
    char path[4096], choices[4096];
} run;

/* ---- folder.c -------------------------------------------------------------------------------- */

/* OUT/name; valid until the next call. */
const char *run_path(run *r, const char *name);
/* Creates the folder, or finds the run to resume in it; nobody else may write into it from now
 * on. */
int run_open_folder(run *r);
/* Decodes the images; labels, normalization, and what identifies them. */
int run_open_images(run *r);
/* The log, cut to its length at the checkpoint. */
int run_open_log(run *r);

/* Replaces the checkpoint that --resume continues from: writes a new one, then renames both. */
int run_save(run *r);
int run_save_new(run *r);
int run_save_rename(run *r);
/* Writes a checkpoint that is never replaced, for --from RUN@EPOCH. */
int run_keep(run *r, int epoch);

/* The state to start from: this run's newest checkpoint, another run's, or a file of weights. */
int run_resume(run *r);
int run_start_from(run *r);
int run_init_from(run *r);

/* ---- budget.c -------------------------------------------------------------------------------- */

/* Changes r->o so that the whole run takes the time given. */
int run_fit_budget(run *r);
/* When a tenth of the epochs is over: measures again, and if another number of epochs fits the rest of
 * the time, plans, saves and writes it. */
int run_measure_again(run *r, int done);
/* Its decision: costs of the trial times `slower`, seconds left, the
 * settings before any plan; changes o and returns true if the
 * plan no longer fits. */
bool budget_again(const budget_costs *c, double slower, double left, int done,
                  const train_options *given, train_options *o);

/* ---- loop.c ---------------------------------------------------------------------------------- */

/* Writes one log line.  Takes ownership of the object. */
int run_log(run *r, json_t *line);
/* Shows the caller a message. */
void run_message(run *r, const char *message);
/* The same, and a line in the log. */
int run_warn(run *r, const char *message);
/* Trains to the last epoch.  CONR_ESTOPPED: on request, after saving a checkpoint. */
int run_loop(run *r);

/* ---- results.c ------------------------------------------------------------------------------- */

int run_results(run *r);

#endif
