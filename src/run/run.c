/* run.c: the public call: opens a run, trains, writes the results. */
#include "run/run.h"

#include "base/clock.h"
#include "base/status.h"
#include "images/images.h"
#include "report/gather.h"

#include <stdlib.h>

conr_train_options conr_train_defaults(void) { return (conr_train_options){0}; }

/* Everything up to the first step. */
static int open_run(run *r, const conr_settings *s) {
    int rc = 0;
    TRY(run_open_folder(r));
    r->o = s->o;
    if (r->to->resume) TRY(settings_read(&r->o, run_path(r, "options.yaml")));
    snprintf(r->o.version, sizeof r->o.version, "%s", CONR_VERSION);
    snprintf(r->o.device, sizeof r->o.device, "%s", conr_device(r->c));
    if (r->o.accumulate > 1 && r->o.bn_group == 0) r->o.bn_group = r->o.batch / r->o.accumulate;
    TRY(settings_check(&r->o));
    TRY(run_open_images(r));
    snprintf(r->choices, sizeof r->choices, "%s/engines.txt", r->to->out);
    r->c->dev->choices = r->leads ? r->choices : NULL;
    if (r->to->budget > 0 && !r->to->resume) TRY(run_fit_budget(r));
    TRY(ranks_broadcast(r->ranks, &r->o,
                        sizeof r->o)); /* what rank 0 timed or read applies to all */
    TRY(trainer_open(r->c, &r->store, &r->norm, &r->o, &r->t));
    if (r->to->budget > 0 && !r->to->resume) {
        char line[128];
        snprintf(line, sizeof line, "epochs that fit the budget: %d, %d of them in stage 1",
                 r->o.epochs, r->o.stage1_epochs);
        run_message(r, line);
    }
    if (r->to->resume)
        TRY(run_resume(r));
    else if (r->to->from)
        TRY(run_start_from(r));
    else if (r->to->init)
        TRY(run_init_from(r));
    r->before = r->state.seconds;
    /* a finished run that goes on: DONE lists its files as they were */
    if (r->leads) remove(run_path(r, "DONE"));
    TRY(run_open_log(r));
    /* a start that the seed cannot reproduce is saved before options.yaml marks the run as begun,
     * under a name that means nothing until then */
    bool given = !r->to->resume && (r->to->from || r->to->init);
    if (given) TRY(run_save_new(r));
    if (r->leads) TRY(report_write_data(&r->images->source, r->to->out));
    if (r->leads) TRY(settings_write(&r->o, run_path(r, "options.yaml")));
    if (given) TRY(run_save_rename(r));
done:
    return rc;
}

/* Stands before the caller's callback: a request to stop is never lost, and never answered in the
 * middle of a step. */
static int ask(const conr_progress *p, void *user) {
    asked *a = user;
    if (a->on_progress && a->on_progress(p, a->user)) a->stop = true;
    return a->stop && a->at_once;
}

static void fill_result(const run *r, conr_train_result *out) {
    const trainer *t = r->t;
    *out = (conr_train_result){.clusters = t->K,
                               .epochs = last_epoch(&t->o),
                               .steps = t->step,
                               .images = t->store->n,
                               .seconds = clock_now() - r->began,
                               .loss = r->epoch_loss,
                               .labeled = r->truth != NULL,
                               .scores = r->last.scores,
                               .knn = r->last.knn,
                               .silhouette = r->last.silhouette,
                               .baseline = r->baseline};
    if (r->stepping > 0) out->images_per_s = (double)(r->timed * t->n) / r->stepping;
}

int conr_train(conr *c, conr_images *m, const conr_settings *s, const conr_train_options *o,
               conr_train_result *result) {
    int rc = 0;
    bool together = c->together; /* off below: rank 0 makes some calls on its own */
    run r = {.c = c, .images = m, .to = o, .began = clock_now(), .ranks = &c->ranks};
    r.epoch_loss = NAN; /* until this call closes an epoch */
    c->together = false;
    r.leads = c->ranks.rank == 0;
    /* several ranks decide together, in the loop */
    r.asked = (asked){.on_progress = c->dev->on_progress,
                      .user = c->dev->progress_user,
                      .at_once = c->ranks.count == 1};
    conr_set_progress(c, ask, &r.asked);
    r.interval = r.began;
    r.last.done_step = -1;
    TRY(open_run(&r, s));
    TRY(run_loop(&r));
    TRY(run_results(&r));
    if (result) fill_result(&r, result);
done:
    trainer_close(r.t);
    conr_set_progress(c, r.asked.on_progress, r.asked.user);
    c->together = together;
    c->dev->choices = NULL;
    store_close(&r.store);
    free(r.truth);
    free(r.previous);
    if (r.log) fclose(r.log);
    folder_lock_drop(&r.lock);
    return rc;
}
