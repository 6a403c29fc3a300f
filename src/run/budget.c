/* budget.c: how many epochs fit into a given time: time everything once, then add up; and once more
 * when a tenth is over, since the machine may have been busier, or less so, during the trial. */
#include "run/run.h"

#include "base/clock.h"
#include "base/status.h"
#include "report/gather.h"
#include "run/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int scaled(int value, int of, int to) {
    return (int)floor((double)value * to / (of > 0 ? of : 1) + 0.5);
}

static int at_least(int value, int least) { return value > least ? value : least; }

/* The settings for a run of `epochs` epochs: stages and intervals keep their proportions. */
static train_options lasting(const train_options *o, int epochs) {
    train_options out = *o;
    int whole = o->epochs;
    out.stage1_epochs = scaled(o->stage1_epochs, whole, epochs);
    out.warmup_epochs = o->warmup_epochs * epochs / whole;
    out.prototype_epoch = scaled(o->prototype_epoch, whole, epochs);
    out.early_epoch = scaled(o->early_epoch, whole, epochs);
    out.relax_epochs = scaled(o->relax_epochs, whole, epochs);
    if (o->eval_every) out.eval_every = at_least(scaled(o->eval_every, whole, epochs), 1);
    out.checkpoint_every = at_least(scaled(o->checkpoint_every, whole, epochs), 1);
    out.epochs = epochs;
    out.until = 0;
    return out;
}

/* Of a run from an epoch on (0: of all of it): the steps of every epoch, and what its end asks for.
 */
static double duration(const budget_costs *c, train_options o, int from) {
    double sum = c->results;
    for (int done = from ? from + 1 : 0; done <= last_epoch(&o); done++) {
        epoch_plan plan = plan_epoch_end(&o, done);
        if (done) sum += c->epoch[stage_of(&o, done - 1) - 1];
        if (plan.cluster) sum += c->cluster;
        if (plan.choose) sum += c->choose, o.clusters = 1; /* known from here on */
        if (plan.evaluate) sum += c->evaluate;
        if (plan.keep) sum += c->keep;
        if (plan.save) sum += c->save;
    }
    return sum;
}

/* The mean time of a step, starting with the next one, over at least 4 steps and about `seconds`.
 * The first step is not counted: it sets things up. */
static int time_steps(trainer *t, double seconds, double *each) {
    int rc = 0, n = 0;
    double start = 0, sum;
    int64_t epoch = t->step / t->steps;
    TRY(trainer_seek(t));
    *each = 0;
    do {
        TRY(trainer_step(t));
        TRY(trainer_loss(t, &sum)); /* waits */
        if (n == 0)
            start = clock_now();
        else
            *each = (clock_now() - start) / n;
        n++;
    } while (t->step / t->steps == epoch && (n <= 4 || clock_now() - start < seconds));
    if (*each == 0) *each = 1e-3; /* an epoch of one step */
done:
    return rc;
}

/* How long choosing K will take: as a rule, sixteen times as long as trying two values. */
static int time_choice(trainer *t, double *seconds) {
    int rc = 0, K, low = 10 < t->store->n / 4 ? 10 : 1;
    conr_kmeans_options o = conr_kmeans_defaults();
    TRY(trainer_features(t));
    double start = clock_now();
    if (t->ranks.rank == 0)
        TRY(conr_choose_clusters(t->c, t->features, t->store->n, t->d, &o, low, low + 1, &K, NULL));
    *seconds = 16 * (clock_now() - start);
done:
    return rc;
}

/* Times everything once, with a temporary trainer: steps of both stages, a clustering, an
 * evaluation, a checkpoint. */
static int time_all(run *r, budget_costs *c) {
    int rc = 0;
    trainer *t = NULL;
    evaluation e;
    double share = 0.02 * r->to->budget, start, each;
    char path[4096];
    snprintf(path, sizeof path, "%s/checkpoint.new.safetensors", r->to->out);
    TRY(trainer_open(r->c, &r->store, &r->norm, &r->o, &t));
    TRY(time_steps(t, share, &each));
    c->epoch[0] = c->epoch[1] = each * (double)t->steps;
    if (!t->o.clusters) {
        TRY(time_choice(t, &c->choose));
        t->o.clusters = 10 < t->store->n ? 10 : 1;
        t->featured = -1; /* so that clustering embeds again, as in the run */
    }
    start = clock_now();
    TRY(trainer_cluster(t));
    c->cluster = clock_now() - start;
    start = clock_now();
    TRY(trainer_features(t));
    TRY(evaluation_make(r->c, t->features, t->store->n, t->d, t->label, t->K, r->truth, NULL,
                        (uint64_t)t->o.seed, &e));
    c->evaluate = clock_now() - start;
    if (stage_of(&r->o, r->o.epochs - 1) == 2) {
        t->step = t->steps * r->o.stage1_epochs;
        TRY(time_steps(t, share, &each));
        c->epoch[1] = each * (double)t->steps;
    }
    start = clock_now();
    TRY(checkpoint_save(t, &r->state, path));
    c->save = clock_now() - start;
    c->keep = r->o.compact ? 2 * c->save : c->save;
    /* model, features, labels: no larger than a checkpoint */
    c->results = 2 * c->save + c->evaluate;
    if (r->o.baseline) c->results += baseline_seconds(t->store->n, t->d, t->K, r->c->dev->threads);
done:
    remove(path);
    trainer_close(t);
    return rc;
}

/* The seconds that are left for training and results.  Some slack: the machine may get busier. */
static double seconds_left(const run *r, double share) {
    double left = share * (r->to->budget - (clock_now() - r->began));
    if (r->to->no_report) return left;
    return fmax(left / 2, left - report_seconds(r->store.n, r->c->dev->threads));
}

/* Chooses the epochs so that everything, from opening the images to the last file, takes the time
 * given. */
int run_fit_budget(run *r) {
    int rc = 0, low = 2, high;
    TRY(time_all(r, &r->costs));
    double left = seconds_left(r, 0.95);
    for (high = 4; high < 1000000; high *= 2) {
        if (duration(&r->costs, lasting(&r->o, high), 0) > left) break;
        low = high;
    }
    while (high - low > 1) { /* more epochs take longer */
        int middle = low + (high - low) / 2;
        if (duration(&r->costs, lasting(&r->o, middle), 0) <= left)
            low = middle;
        else
            high = middle;
    }
    r->given = r->o;
    r->o = lasting(&r->o, low);
    /* measured again after a tenth, at least one epoch, if that is within stage 1 */
    int tenth = at_least(r->o.epochs / 10, 1);
    r->measure_again = !r->to->from && r->o.stage1_epochs > tenth ? tenth : 0;
done:
    return rc;
}

/* The plan for another number of epochs, when `done` of them are over.  What these depended on stays:
 * warmup, intervals, what has begun. */
static train_options replanned(const train_options *given, const train_options *o, int done,
                               int epochs) {
    train_options out = *o, other = lasting(given, epochs);
    out.stage1_epochs = at_least(other.stage1_epochs, done);
    out.relax_epochs = other.relax_epochs;
    if (o->prototype_epoch >= done) out.prototype_epoch = at_least(other.prototype_epoch, done);
    if (o->early_epoch >= done) out.early_epoch = at_least(other.early_epoch, done);
    out.replan_epoch = done;
    out.replan_from = o->epochs;
    out.epochs = epochs;
    return out;
}

bool budget_again(const budget_costs *c, double slower, double left, int done,
                  const train_options *given, train_options *o) {
    budget_costs now = *c;
    double *each = (double *)&now;
    for (size_t i = 0; i < sizeof now / sizeof *each; i++) each[i] *= slower;
    int low = done + 1, high = low + 1;
    while (high < 1000000 && duration(&now, replanned(given, o, done, high), done) <= left)
        high *= 2;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (duration(&now, replanned(given, o, done, middle), done) <= left)
            low = middle;
        else
            high = middle;
    }
    /* a plan that still fits stays: what it promised is what is trained */
    if (abs(low - o->epochs) <= at_least(o->epochs / 20, 1)) return false;
    *o = replanned(given, o, done, low);
    return true;
}

int run_measure_again(run *r, int done) {
    int rc = 0;
    trainer *t = r->t;
    bool other = false;
    /* an epoch may be over sooner than expected: too short a time says little, so wait for more */
    if (r->stepping < 0.05 * r->to->budget && done + 1 < r->o.stage1_epochs)
        r->measure_again = done + 1;
    TRY(ranks_broadcast(r->ranks, &r->measure_again, sizeof r->measure_again));
    if (r->measure_again > done) return 0;
    if (r->leads && r->timed > 0) {
        double epoch = r->stepping / (double)r->timed * (double)t->steps;
        double slower = epoch / r->costs.epoch[0];
        /* a machine that was busy during the trial may be so again: between the two measurements */
        if (slower < 1) slower = pow(slower, 2.0 / 3);
        other = budget_again(&r->costs, slower, seconds_left(r, 0.97), done, &r->given, &r->o);
    }
    TRY(ranks_broadcast(r->ranks, &r->o, sizeof r->o));
    TRY(ranks_broadcast(r->ranks, &other, sizeof other));
    if (!other) return 0;
    char line[160];
    snprintf(line, sizeof line, "measured again: %d epochs fit the budget, %d of them in stage 1",
             r->o.epochs, r->o.stage1_epochs);
    run_message(r, line);
    /* an older checkpoint resumes under either plan: both have the same schedule up to here */
    TRY(run_save(r));
    if (r->leads) TRY(settings_write(&r->o, run_path(r, "options.yaml")));
    t->o = r->o;
    TRY(trainer_seek(t)); /* views ahead know where stage 1 ends */
done:
    return rc;
}
