/* loop.c: the training loop: steps, the end of each epoch, and what is logged and reported. */
#include "run/run.h"

#include "base/clock.h"
#include "base/status.h"
#include "run/plan.h"
#include "train/schedule.h"
#include "json/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- log and messages ------------------------------------------------------------------------ */

int run_log(run *r, json_t *line) {
    if (!r->leads) return json_decref(line), 0;
    char *text = json_write(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (!text) return fail_memory("log", 1000);
    int ok = fprintf(r->log, "%s\n", text) > 0 && fflush(r->log) == 0;
    free(text);
    return ok ? 0
              : fail(
                    CONR_EFILE,
                    "%s/log.jsonl: %s; free some space and continue with --resume, nothing is lost",
                    r->to->out, strerror(errno));
}

void run_message(run *r, const char *message) {
    device *dev = r->c->dev;
    conr_progress p = {.stage = "training", .message = message};
    if (r->t) p.done = r->t->step, p.total = r->t->steps * last_epoch(&r->t->o);
    dev->on_progress(&p, dev->progress_user); /* stopping waits for a step */
}

int run_warn(run *r, const char *message) {
    run_message(r, message);
    return run_log(r, json_pack("{sI si ss}", "step", (json_int_t)r->t->step, "epoch",
                                (int)(r->t->step / r->t->steps), "warning", message));
}

/* Reports a step that has been done. */
static void report(run *r, const step_values *at) {
    device *dev = r->c->dev;
    trainer *t = r->t;
    int64_t total = t->steps * last_epoch(&t->o);
    double each = r->timed ? r->stepping / (double)r->timed : 0;
    conr_progress p = {.stage = t->stage == 2 ? "stage 2" : "stage 1",
                       .done = t->step,
                       .total = total,
                       .epoch = (int)at->epoch + 1,
                       .epochs = last_epoch(&t->o),
                       .loss = r->last_loss,
                       .lr = at->lr[0],
                       .images_per_s = each > 0 ? t->n / each : 0,
                       .seconds_left = each * (double)(total - t->step)};
    dev->on_progress(&p, dev->progress_user);
}

/* Between two steps, on all ranks: CONR_ESTOPPED if any caller has asked to stop. */
static int stop_if_asked(run *r) {
    bool stop = false;
    trainer *t = r->t;
    int rc = ranks_any(r->ranks, r->asked.stop, &stop);
    if (rc < 0 || !stop) return rc;
    return fail(CONR_ESTOPPED, "%s: stopped after %lld of %lld steps; continue with --resume",
                r->to->out, (long long)t->step, (long long)(t->steps * last_epoch(&t->o)));
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int evaluate(run *r, int epoch) {
    int rc = 0;
    trainer *t = r->t;
    evaluation *e = &r->last;
    TRY(trainer_features(t));
    if (!r->leads) return 0;
    char line[256], *warning = NULL;
    TRY(evaluation_make(r->c, t->features, t->store->n, t->d, t->label, t->K, r->truth,
                        r->compared ? r->previous : NULL, (uint64_t)t->o.seed, e));
    e->done_step = t->step;
    json_t *o = json_pack("{sI si sf si sf sI sI}", "step", (json_int_t)t->step, "epoch", epoch,
                          "objective", t->objective, "clusters", t->K, "deviation", e->deviation,
                          "smallest", (json_int_t)e->smallest, "largest", (json_int_t)e->largest);
    if (r->truth) {
        o = json_put(o, "nmi", json_real(e->scores.nmi));
        o = json_put(o, "acc", json_real(e->scores.acc));
        o = json_put(o, "ari", json_real(e->scores.ari));
        o = json_put(o, "balanced_acc", json_real(e->scores.balanced_acc));
        if (isfinite(e->knn)) o = json_put(o, "knn", json_real(e->knn));
        snprintf(line, sizeof line, "epoch %d | NMI %.4f  ACC %.4f  ARI %.4f | 20-NN %.4f", epoch,
                 e->scores.nmi, e->scores.acc, e->scores.ari, e->knn);
    } else {
        if (isfinite(e->silhouette)) o = json_put(o, "silhouette", json_real(e->silhouette));
        int used = snprintf(line, sizeof line, "epoch %d | clusters of %lld to %lld images", epoch,
                            (long long)e->smallest, (long long)e->largest);
        if (isfinite(e->silhouette))
            used += snprintf(line + used, sizeof line - (size_t)used, " | silhouette %.4f",
                             e->silhouette);
        if (isfinite(e->agreement))
            snprintf(line + used, sizeof line - (size_t)used, " | neighbor agreement %.4f",
                     e->agreement);
    }
    json_t *runs = json_array();
    for (int i = 0; i < t->n_tried; i++) runs = json_push(runs, json_real(t->tried[i]));
    o = json_put(o, "runs", runs);
    double gap = evaluation_gap(t->tried, t->n_tried);
    if (isfinite(gap)) o = json_put(o, "gap", json_real(gap));
    if (isfinite(e->agreement)) {
        o = json_put(o, "neighbor_agreement", json_real(e->agreement));
        o = json_put(o, "modularity", json_real(e->modularity));
    }
    if (isfinite(e->stability)) o = json_put(o, "stability", json_real(e->stability));
    TRY(run_log(r, o));
    run_message(r, line);
    for (int i = 0; (warning = evaluation_warning(e, t->store->n, t->K, i)); i++) {
        rc = run_warn(r, warning);
        free(warning);
        if (rc < 0) goto done;
    }
done:
    return rc;
}

/* Carries out the plan of an epoch's end. */
static int close_epoch(run *r, int done_epochs) {
    int rc = 0;
    trainer *t = r->t;
    epoch_plan plan = plan_epoch_end(&r->o, done_epochs);
    if (plan.cluster) {
        r->compared = t->K > 0;
        memcpy(r->previous, t->label, (size_t)t->store->n * sizeof *t->label);
        r->asked.at_once = r->ranks->count == 1; /* nothing of it is kept until it is complete */
        if (t->clustered != t->step) TRY(trainer_cluster(t));
        r->asked.at_once = false;
    }
    if (plan.choose) { /* K is fixed from here on, after a resume too */
        char line[128];
        r->o.clusters = t->o.clusters = t->K;
        snprintf(line, sizeof line, "K estimated: %d clusters", t->o.clusters);
        run_message(r, line);
    }
    if (plan.evaluate) TRY(evaluate(r, done_epochs));
    r->epoch_loss = r->state.epoch_sum / (double)t->steps;
    r->state.epoch_sum = 0;
    r->state.closed = done_epochs;
    if (plan.keep) TRY(run_keep(r, done_epochs));
    if (plan.save) TRY(run_save(r));
    /* after the checkpoint: an older one must not resume with a K chosen later */
    if (plan.choose && r->leads) TRY(settings_write(&r->o, run_path(r, "options.yaml")));
    if (done_epochs > 0 && done_epochs == r->measure_again) TRY(run_measure_again(r, done_epochs));
done:
    return rc;
}

/* A log line, every log_every steps and at the end of an epoch. */
static int log_steps(run *r, const step_values *at) {
    int rc = 0;
    trainer *t = r->t;
    double sum, now;
    TRY(trainer_loss(t, &sum));
    now = clock_now();
    int64_t steps = r->stepped - r->timed; /* loss_steps may count some from before a resume */
    r->stepping += now - r->interval;
    r->timed = r->stepped;
    r->state.loss_sum += sum;
    r->state.epoch_sum += sum;
    if (!isfinite(r->state.loss_sum))
        TRY(fail(
            CONR_ENUMBER,
            "%s: the loss is not a number at epoch %d; lower lr (%g) or increase warmup_epochs",
            r->to->out, (int)at->epoch + 1, t->o.lr));
    r->last_loss = r->state.loss_sum / (double)r->state.loss_steps;
    TRY(run_log(r, json_pack("{sI sf si sf sf sf sf}", "step", (json_int_t)t->step, "epoch",
                             (double)t->step / (double)t->steps, "stage", t->stage, "loss",
                             r->last_loss, "lr", (double)at->lr[0], "images_per_s",
                             (double)(steps * t->n) / (now - r->interval), "seconds",
                             r->before + now - r->began)));
    r->state.loss_sum = 0;
    r->state.loss_steps = 0;
    r->interval = now;
done:
    return rc;
}

int run_loop(run *r) {
    int rc = 0;
    trainer *t = r->t;
    int64_t total = t->steps * last_epoch(&t->o);
    ASSERT(t->step <= total);
    r->asked.at_once = false;
    TRY(trainer_seek(t));
    if (labels_in(&t->o, 0) && t->step == 0 && t->clustered < 0) TRY(close_epoch(r, 0));
    while (true) {
        int64_t epoch = t->step / t->steps;
        if (t->step % t->steps == 0 && r->state.closed < epoch) TRY(close_epoch(r, (int)epoch));
        total = t->steps * last_epoch(&t->o); /* a budget may have changed it */
        if (t->step == total) break;
        TRY(stop_if_asked(r));
        step_values at;
        schedule_at(&t->o, t->step, t->steps, &at);
        if (t->step % t->steps == 0 || r->stepped == 0) r->interval = clock_now();
        TRY(trainer_step(t));
        r->stepped++;
        r->state.loss_steps++;
        if (t->step % t->o.log_every == 0 || t->step % t->steps == 0) TRY(log_steps(r, &at));
        report(r, &at);
        if (t->step % t->steps == 0) TRY(stop_if_asked(r)); /* rather than after clustering */
    }
done:
    r->asked.at_once = r->ranks->count == 1;
    if (rc == CONR_ESTOPPED) { /* on request: save what has been done */
        double sum = 0;
        char message[512];
        snprintf(message, sizeof message, "%s", conr_error());
        int saved = trainer_loss(t, &sum);
        r->state.loss_sum += sum;
        r->state.epoch_sum += sum;
        if (saved == 0) saved = run_save(r);
        rc = saved < 0 ? saved : fail(CONR_ESTOPPED, "%s", message);
    }
    return rc;
}
