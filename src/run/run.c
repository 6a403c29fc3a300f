/* run.c: one training from begin to end, and its folder: options, log, checkpoints, results.
 *
 * Everything that follows from the state at a step is computed again after a resume, so stopping
 * anywhere, even by SIGKILL, ends in the same bits as never stopping: the loop's position is the
 * trainer's step and the number of epochs that are closed (clustered and evaluated). */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "images/images.h"
#include "model/model.h"
#include "report/gather.h"
#include "run/checkpoint.h"
#include "run/evaluate.h"
#include "run/plan.h"
#include "train/schedule.h"
#include "train/train.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The caller's callback, asked by every rank; what it answers is told to all after a step. */
typedef struct asked {
    conr_on_progress *on_progress;
    void *user;
    bool stop;
} asked;

typedef struct run {
    conr *c;
    ranks *ranks;
    bool leads; /* the one that writes */
    asked asked;
    conr_images *images;
    const conr_train_options *to;
    train_options o;
    store store;
    pixels_norm norm;
    trainer *t;
    checkpoint_state state;
    FILE *log;
    int64_t *truth;    /* [images] labels, or NULL where there are none */
    int32_t *previous; /* [images] pseudo labels before the last clustering, where */
    bool compared;     /* there were some */
    double began;      /* clock when this call began */
    double before;     /* seconds trained before it */
    double interval;   /* clock of the last line of the log */
    double stepping;   /* seconds spent in steps by this call */
    int64_t stepped;   /* steps by this call */
    int64_t timed;     /* of them within `stepping` */
    double last_loss;  /* mean of the last line */
    double epoch_loss; /* mean over the last closed epoch */
    evaluation last;
    char path[4096], choices[4096];
} run;

static const char *in_folder(run *r, const char *name) {
    snprintf(r->path, sizeof r->path, "%s/%s", r->to->out, name);
    return r->path;
}

/* ---- telling --------------------------------------------------------------------------------- */

/* A line of the log.  Takes the object. */
static int log_line(run *r, json_t *line) {
    if (!r->leads) return json_decref(line), 0;
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    if (!text) return fail_memory("log", 1000);
    int ok = fprintf(r->log, "%s\n", text) > 0 && fflush(r->log) == 0;
    free(text);
    return ok ? 0
              : fail(CONR_EFILE,
                     "%s/log.jsonl: %s; make room and go on with --resume, nothing is lost",
                     r->to->out, strerror(errno));
}

static int tell(run *r, const char *message) {
    device *dev = r->c->dev;
    conr_progress p = {.stage = "training",
                       .done = r->t->step,
                       .total = r->t->steps * last_epoch(&r->t->o),
                       .message = message};
    if (dev->on_progress) dev->on_progress(&p, dev->progress_user); /* stopping waits for a step */
    return 0;
}

static int warn(run *r, const char *message) {
    tell(r, message);
    return log_line(r, json_pack("{sI si ss}", "step", (json_int_t)r->t->step, "epoch",
                                 (int)(r->t->step / r->t->steps), "warning", message));
}

/* After a step: CONR_ESTOPPED where the caller wants no more. */
static int report(run *r, const step_values *at) {
    device *dev = r->c->dev;
    trainer *t = r->t;
    int64_t total = t->steps * last_epoch(&t->o);
    bool stop = false;
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
    if (dev->on_progress && dev->on_progress(&p, dev->progress_user)) stop = true;
    int rc = ranks_any(r->ranks, stop || r->asked.stop, &stop);
    if (rc < 0 || !stop) return rc;
    return fail(CONR_ESTOPPED, "%s: stopped at epoch %d of %d; go on with --resume", r->to->out,
                (int)at->epoch + 1, last_epoch(&t->o));
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* What a checkpoint says of the run beside the training's own state. */
static void note_state(run *r) {
    r->state.steps = r->t->steps;
    r->state.log_bytes = ftell(r->log);
    r->state.seconds = r->before + clock_now() - r->began;
}

/* The new one is whole before the old one moves, and the old one is kept. */
static int save(run *r) {
    int rc = 0;
    char fresh[4096], now[4096], old[4096];
    if (!r->leads) return 0;
    snprintf(fresh, sizeof fresh, "%s/checkpoint.new.safetensors", r->to->out);
    snprintf(now, sizeof now, "%s/checkpoint.safetensors", r->to->out);
    snprintf(old, sizeof old, "%s/checkpoint.previous.safetensors", r->to->out);
    note_state(r);
    TRY(checkpoint_save(r->t, &r->state, fresh));
    rename(now, old); /* there may be none yet */
    if (rename(fresh, now)) TRY(fail(CONR_EFILE, "%s: %s; check the folder", now, strerror(errno)));
done:
    return rc;
}

/* A checkpoint that stays, for --from RUN@EPOCH. */
static int keep(run *r, int epoch) {
    int rc = 0;
    char name[64];
    if (!r->leads) return 0;
    note_state(r);
    snprintf(name, sizeof name, "checkpoint-%04d.safetensors", epoch);
    TRY(checkpoint_save(r->t, &r->state, in_folder(r, name)));
    if (r->o.compact) {
        snprintf(name, sizeof name, "compact-%04d", epoch);
        TRY(checkpoint_save_compact(r->t, &r->state, in_folder(r, name)));
    }
done:
    return rc;
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
        json_object_set_new(o, "nmi", json_real(e->scores.nmi));
        json_object_set_new(o, "acc", json_real(e->scores.acc));
        json_object_set_new(o, "ari", json_real(e->scores.ari));
        json_object_set_new(o, "balanced_acc", json_real(e->scores.balanced_acc));
        if (isfinite(e->knn)) json_object_set_new(o, "knn", json_real(e->knn));
        snprintf(line, sizeof line, "epoch %d | NMI %.4f  ACC %.4f  ARI %.4f | 20-NN %.4f", epoch,
                 e->scores.nmi, e->scores.acc, e->scores.ari, e->knn);
    } else {
        if (isfinite(e->silhouette)) json_object_set_new(o, "silhouette", json_real(e->silhouette));
        int used = snprintf(line, sizeof line, "epoch %d | clusters of %lld to %lld images", epoch,
                            (long long)e->smallest, (long long)e->largest);
        if (isfinite(e->silhouette))
            snprintf(line + used, sizeof line - (size_t)used, " | silhouette %.4f", e->silhouette);
    }
    json_t *runs = json_array();
    for (int i = 0; i < t->n_tried; i++) json_array_append_new(runs, json_real(t->tried[i]));
    json_object_set_new(o, "runs", runs);
    if (isfinite(e->stability)) json_object_set_new(o, "stability", json_real(e->stability));
    TRY(log_line(r, o));
    tell(r, line);
    for (int i = 0; (warning = evaluation_warning(e, t->store->n, t->K, i)); i++) {
        rc = warn(r, warning);
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
        if (t->clustered != t->step) TRY(trainer_cluster(t));
    }
    if (plan.choose) { /* it holds from here on, after a resume too */
        char line[128];
        r->o.clusters = t->o.clusters = t->K;
        snprintf(line, sizeof line, "K estimated: %d clusters", t->o.clusters);
        tell(r, line);
    }
    if (plan.evaluate) TRY(evaluate(r, done_epochs));
    r->epoch_loss = r->state.epoch_sum / (double)t->steps;
    r->state.epoch_sum = 0;
    r->state.closed = done_epochs;
    if (plan.keep) TRY(keep(r, done_epochs));
    if (plan.save) TRY(save(r));
    /* after the checkpoint: an earlier one would go on with a K that it did not have yet */
    if (plan.choose && r->leads) TRY(settings_write(&r->o, in_folder(r, "options.yaml")));
done:
    return rc;
}

/* A line of the log, every log_every steps and at the end of an epoch. */
static int log_steps(run *r, const step_values *at) {
    int rc = 0;
    trainer *t = r->t;
    double sum, now;
    TRY(trainer_loss(t, &sum));
    now = clock_now();
    int64_t steps = r->stepped - r->timed; /* of this call; before a resume there may be more */
    r->stepping += now - r->interval;
    r->timed = r->stepped;
    r->state.loss_sum += sum;
    r->state.epoch_sum += sum;
    if (!isfinite(r->state.loss_sum))
        TRY(fail(
            CONR_ENUMBER,
            "%s: the loss is not a number at epoch %d; lower lr (%g) or lengthen warmup_epochs",
            r->to->out, (int)at->epoch + 1, t->o.lr));
    r->last_loss = r->state.loss_sum / (double)r->state.loss_steps;
    TRY(log_line(r, json_pack("{sI sf si sf sf sf sf}", "step", (json_int_t)t->step, "epoch",
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

static int train(run *r) {
    int rc = 0;
    trainer *t = r->t;
    int64_t total = t->steps * last_epoch(&t->o);
    TRY(trainer_seek(t));
    if (stage_of(&t->o, 0) == 2 && t->step == 0 && t->clustered < 0) TRY(close_epoch(r, 0));
    while (true) {
        int64_t epoch = t->step / t->steps;
        if (t->step % t->steps == 0 && r->state.closed < epoch) TRY(close_epoch(r, (int)epoch));
        if (t->step == total) break;
        step_values at;
        schedule_at(&t->o, t->step, t->steps, &at);
        if (t->step % t->steps == 0 || r->stepped == 0) r->interval = clock_now();
        TRY(trainer_step(t));
        r->stepped++;
        r->state.loss_steps++;
        if (t->step % t->o.log_every == 0 || t->step % t->steps == 0) TRY(log_steps(r, &at));
        TRY(report(r, &at));
    }
done:
    if (rc == CONR_ESTOPPED) { /* on request: what has been done is not lost */
        double sum = 0;
        char message[512];
        snprintf(message, sizeof message, "%s", conr_error());
        int saved = trainer_loss(t, &sum);
        r->state.loss_sum += sum;
        r->state.epoch_sum += sum;
        if (saved == 0) saved = save(r);
        rc = saved < 0 ? saved : fail(CONR_ESTOPPED, "%s", message);
    }
    return rc;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool exists(const char *path) {
    struct stat at;
    return stat(path, &at) == 0;
}

static int open_folder(run *r) {
    if (!r->to->out || !r->to->out[0])
        return fail(CONR_EINVAL, "out: no folder for the run; give one");
    if (r->leads && mkdir(r->to->out, 0777) && errno != EEXIST)
        return fail(CONR_EFILE, "%s: %s; give a folder that can be made", r->to->out,
                    strerror(errno));
    bool begun = exists(in_folder(r, "options.yaml"));
    if (begun && !r->to->resume)
        return fail(CONR_EINVAL,
                    "%s: holds a run already; go on with --resume, or choose another "
                    "folder",
                    r->to->out);
    if (r->to->resume && !begun)
        return fail(CONR_EFILE, "%s: holds no run to go on with; start without --resume",
                    r->to->out);
    return 0;
}

static uint64_t hash_text(uint64_t h, const char *text) { /* FNV-1a */
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (h ^ 10) * 1099511628211u;
}

static int decoded(int64_t done, int64_t total, void *user) {
    device *dev = user;
    conr_progress p = {.stage = "decoding images", .done = done, .total = total};
    return dev->on_progress && dev->on_progress(&p, dev->progress_user);
}

/* Each rank has opened the images for itself, perhaps on another machine. */
static int same_images(run *r) {
    int rc = 0;
    uint64_t mine[2] = {(uint64_t)r->store.n, r->state.images};
    uint64_t *all = memory_new("ranks", (size_t)r->ranks->count, sizeof mine);
    TRY(all ? 0 : CONR_ENOMEM);
    TRY(ranks_share(r->ranks, mine, sizeof mine, all));
    for (int i = 1; i < r->ranks->count; i++)
        if (memcmp(all, all + 2 * i, sizeof mine))
            TRY(fail(CONR_EINVAL,
                     "the images: %lld on rank 0, %lld on rank %d, or other names; give all ranks "
                     "the same --data",
                     (long long)all[0], (long long)all[2 * i], i));
done:
    free(all);
    return rc;
}

static int open_images(run *r) {
    int rc = 0;
    source *s = &r->images->source;
    const train_options *o = &r->o;
    store_options so = {.side = store_side_for(o->size),
                        .threads = r->c->dev->threads,
                        .tell = {decoded, r->c->dev}};
    if (o->short_side > so.side) so.side = o->short_side;
    char name[4096];
    bool labeled = false;
    TRY(store_open(s, &so, &r->store));
    store_norm(s, &r->store, r->c->dev->threads, &r->norm);
    r->state.images = 14695981039346656037u;
    for (int64_t i = 0; i < s->n; i++) {
        r->state.images = hash_text(r->state.images, source_name(s, i, name, sizeof name));
        labeled = labeled || source_label(s, i) >= 0;
    }
    r->previous = memory_new("labels", (size_t)s->n, sizeof *r->previous);
    if (labeled) r->truth = memory_new("labels", (size_t)s->n, sizeof *r->truth);
    if (!r->previous || (labeled && !r->truth)) TRY(fail_memory("labels", (double)s->n * 12));
    for (int64_t i = 0; labeled && i < s->n; i++) r->truth[i] = source_label(s, i);
    TRY(same_images(r));
done:
    return rc;
}

/* The newest checkpoint that is whole.  Between two renames only the new one or the old one has its
 * name. */
static int resume(run *r) {
    int rc = 0;
    static const char *const names[] = {"checkpoint.safetensors", "checkpoint.new.safetensors",
                                        "checkpoint.previous.safetensors"};
    uint64_t images = r->state.images;
    int i = 0;
    while (i < 3 && !exists(in_folder(r, names[i]))) i++;
    TRY(ranks_tell(r->ranks, &i, sizeof i));
    if (i == 3) return 0; /* stopped before the first one: from the start */
    TRY(checkpoint_load(r->t, in_folder(r, names[i]), &r->state));
    if (r->state.images != images)
        TRY(fail(CONR_EINVAL, "%s: was trained on other images; give the same --data", r->to->out));
    if (r->state.steps != r->t->steps)
        TRY(fail(CONR_EINVAL, "%s: had %lld steps an epoch, now %lld; give the same --data",
                 r->to->out, (long long)r->state.steps, (long long)r->t->steps));
    /* K was chosen, but the crash came before options.yaml could say so */
    if (!r->o.clusters && r->t->clustered >= 0 && stage_of(&r->o, r->state.closed) == 2)
        r->o.clusters = r->t->o.clusters = r->t->K;
done:
    return rc;
}

/* RUN, RUN@EPOCH, a checkpoint file or the folder of a compact one -> a path. */
static int find_from(const char *from, char *out, size_t size) {
    const char *at = strrchr(from, '@');
    char *end = NULL;
    long epoch = at ? strtol(at + 1, &end, 10) : -1;
    if (at && end != at + 1 && !*end && epoch >= 0) {
        int length = (int)(at - from);
        snprintf(out, size, "%.*s/checkpoint-%04ld.safetensors", length, from, epoch);
        if (exists(out)) return 0;
        snprintf(out, size, "%.*s/compact-%04ld", length, from, epoch);
        if (exists(out)) return 0;
        return fail(CONR_EFILE,
                    "%s: no checkpoint of epoch %ld is kept there; train with keep_every, or take "
                    "the end of stage 1",
                    from, epoch);
    }
    snprintf(out, size, "%s/checkpoint.safetensors", from);
    if (exists(out)) return 0;
    snprintf(out, size, "%s", from);
    return exists(from) ? 0 : fail(CONR_EFILE, "%s: is not there; give a run's folder", from);
}

/* Another run's state as our beginning.  Epochs keep their number, so the schedule goes on. */
static int start_from(run *r) {
    int rc = 0;
    char path[4096];
    trainer *t = r->t;
    checkpoint_state s;
    TRY(find_from(r->to->from, path, sizeof path));
    TRY(checkpoint_load(t, path, &s));
    int64_t epoch = t->step / s.steps;
    t->step = epoch * t->steps;
    if (r->to->stage == 2) t->o.stage1_epochs = r->o.stage1_epochs = (int)epoch;
    if (epoch >= last_epoch(&t->o))
        TRY(fail(CONR_EINVAL, "%s: stands at epoch %lld of %d; set %s higher", path,
                 (long long)epoch, last_epoch(&t->o),
                 last_epoch(&t->o) < t->o.epochs ? "until" : "epochs"));
    /* stage 2 begins with pseudo labels of its own: K and seed may be others */
    t->clustered = -1;
    r->state.closed = stage_of(&t->o, epoch) == 2 ? epoch - 1 : epoch;
done:
    return rc;
}

/* The encoder's (and heads') first weights from a file, for both networks. */
static int init_from(run *r) {
    int rc = 0;
    trainer *t = r->t;
    device *dev = t->dev;
    size_t n = t->net.n_weights, m = t->net.n_running;
    float *w = memory_new("weights", n, sizeof *w);
    float *running = memory_new("weights", m + 1, sizeof *running);
    TRY(w && running ? 0 : CONR_ENOMEM);
    TRY(dev->op.get(dev, w, t->w, n * sizeof *w));
    TRY(dev->op.get(dev, running, t->running, m * sizeof *running));
    TRY(network_start(&t->net, r->to->init, w, running, NULL));
    TRY(dev->op.put(dev, t->w, w, n * sizeof *w));
    TRY(dev->op.put(dev, t->running, running, m * sizeof *running));
    if (t->way->target) {
        TRY(dev->op.put(dev, t->average, w, t->net.n_target * sizeof *w));
        TRY(dev->op.put(dev, t->average_running, running, m * sizeof *running));
    }
    TRY(dev->op.sync(dev));
done:
    free(w);
    free(running);
    return rc;
}

static int open_log(run *r) {
    if (!r->leads) return 0;
    const char *path = in_folder(r, "log.jsonl");
    r->log = fopen(path, "a");
    if (!r->log) return fail(CONR_EFILE, "%s: %s; check the folder", path, strerror(errno));
    /* what was logged after the checkpoint will come again */
    if (ftruncate(fileno(r->log), r->state.log_bytes))
        return fail(CONR_EFILE, "%s: %s; check the folder", path, strerror(errno));
    fseek(r->log, 0, SEEK_END);
    return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static int write_results(run *r) {
    int rc = 0;
    trainer *t = r->t;
    int64_t n = t->store->n;
    float *distance = memory_new("distances", (size_t)n, sizeof *distance);
    float *boundary = memory_new("distances", (size_t)n, sizeof *boundary);
    int32_t *label = memory_new("labels", (size_t)n, sizeof *label);
    TRY(distance && boundary && label ? 0 : CONR_ENOMEM);
    TRY(conr_assign(r->c, t->features, n, t->d, CONR_COSINE, t->centroids, t->K, label, distance));
    TRY(conr_boundary(r->c, t->features, n, t->d, CONR_COSINE, t->centroids, t->K, label,
                      t->o.normalize_centroids, boundary));
    TRY(model_save(t, &r->norm, in_folder(r, "model.safetensors")));
    TRY(conr_write_floats(in_folder(r, "embeddings.npy"), t->features, n, t->d));
    TRY(conr_write_floats(in_folder(r, "centroids.npy"), t->centroids, t->K, t->d));
    TRY(conr_write_clusters(in_folder(r, "labels.csv"), r->images, label, distance, boundary, n));
done:
    free(distance), free(boundary), free(label);
    return rc;
}

/* A run without a report is a run: what goes wrong here, Ctrl-C too, is told and not held against
 * it. */
static void make_report(run *r) {
    char line[1024];
    if (r->to->no_report || report_from_store(r->c, r->to->out, &r->store) == 0) return;
    snprintf(line, sizeof line, "warning: no report (%.600s); conr report RUN makes it later",
             conr_error());
    tell(r, line);
}

static int finish(run *r) {
    int rc = 0;
    file_new f = {0};
    if (r->last.done_step != r->t->step) { /* resumed behind the last evaluation */
        trainer *t = r->t;
        TRY(trainer_features(t));
        if (r->leads)
            TRY(evaluation_make(r->c, t->features, t->store->n, t->d, t->label, t->K, r->truth,
                                NULL, (uint64_t)t->o.seed, &r->last));
    }
    TRY(trainer_features(r->t)); /* by all ranks */
    if (!r->leads) return 0;
    TRY(write_results(r));
    make_report(r);
    TRY(file_new_open(&f, in_folder(r, "DONE")));
    fprintf(f.stream, "conr %s\n", CONR_VERSION);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

/* ---- a time to keep -------------------------------------------------------------------------- */

static int scaled(int value, int of, int to) {
    return (int)floor((double)value * to / (of > 0 ? of : 1) + 0.5);
}

static int at_least(int value, int least) { return value > least ? value : least; }

/* The settings for a run of `epochs` epochs: the stages keep their shares. */
static train_options lasting(const train_options *o, int epochs) {
    train_options out = *o;
    int whole = o->epochs;
    out.stage1_epochs = scaled(o->stage1_epochs, whole, epochs);
    out.warmup_epochs = o->warmup_epochs * epochs / whole;
    out.relax_epochs = scaled(o->relax_epochs, whole, epochs);
    if (o->eval_every) out.eval_every = at_least(scaled(o->eval_every, whole, epochs), 1);
    out.checkpoint_every = at_least(scaled(o->checkpoint_every, whole, epochs), 1);
    out.epochs = epochs;
    out.until = 0;
    return out;
}

/* Seconds that each thing takes. */
typedef struct costs {
    double epoch[2];             /* the steps of an epoch of stage 1, of stage 2 */
    double cluster, choose;      /* embedding included; what choosing K adds */
    double evaluate, keep, save; /* at the end of an epoch */
    double results;              /* at the end of the run */
} costs;

/* Of a whole training: every epoch's steps, and what its end asks for. */
static double duration(const costs *c, train_options o) {
    double sum = c->results;
    for (int done = 0; done <= last_epoch(&o); done++) {
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

/* The mean time of a step from the one that stands next, over at least 4 steps and about
 * `seconds`.  The first is left out: it sets things up. */
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

/* What choosing K will take, by two values of it: sixteen times as long as a rule. */
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

/* Times everything once with a throw-away trainer: steps of both stages, a clustering, a look, a
 * checkpoint. */
static int time_all(run *r, costs *c) {
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
        t->featured = -1; /* as it will be */
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
    /* model, features, labels: of a checkpoint's size or less */
    c->results = 2 * c->save + c->evaluate;
done:
    remove(path);
    trainer_close(t);
    return rc;
}

/* Chooses the epochs so that all of it, from the first look at the images to the last file, takes
 * the time given. */
static int fit_budget(run *r) {
    int rc = 0, low = 2, high;
    costs c = {0};
    TRY(time_all(r, &c));
    /* a machine is rarely as quiet all the time as it was just now */
    double left = 0.95 * (r->to->budget - (clock_now() - r->began));
    if (!r->to->no_report)
        left = fmax(left / 2, left - report_seconds(r->store.n, r->c->dev->threads));
    for (high = 4; high < 1000000; high *= 2) {
        if (duration(&c, lasting(&r->o, high)) > left) break;
        low = high;
    }
    while (high - low > 1) { /* longer is dearer */
        int middle = low + (high - low) / 2;
        if (duration(&c, lasting(&r->o, middle)) <= left)
            low = middle;
        else
            high = middle;
    }
    r->o = lasting(&r->o, low);
done:
    return rc;
}

/* ---- the public call ------------------------------------------------------------------------- */

conr_train_options conr_train_defaults(void) { return (conr_train_options){0}; }

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
                               .silhouette = r->last.silhouette};
    if (r->stepping > 0) out->images_per_s = (double)(r->timed * t->n) / r->stepping;
}

static int open_run(run *r, const conr_settings *s) {
    int rc = 0;
    TRY(open_folder(r));
    r->o = s->o;
    if (r->to->resume) TRY(settings_read(&r->o, in_folder(r, "options.yaml")));
    snprintf(r->o.version, sizeof r->o.version, "%s", CONR_VERSION);
    snprintf(r->o.device, sizeof r->o.device, "%s", conr_device(r->c));
    if (r->o.accumulate > 1 && r->o.bn_group == 0) r->o.bn_group = r->o.batch / r->o.accumulate;
    TRY(settings_check(&r->o));
    TRY(open_images(r));
    snprintf(r->choices, sizeof r->choices, "%s/engines.txt", r->to->out);
    r->c->dev->choices = r->leads ? r->choices : NULL;
    if (r->to->budget > 0 && !r->to->resume) TRY(fit_budget(r));
    TRY(ranks_tell(r->ranks, &r->o, sizeof r->o)); /* what was timed or read by one holds for all */
    TRY(trainer_open(r->c, &r->store, &r->norm, &r->o, &r->t));
    if (r->to->budget > 0 && !r->to->resume) {
        char line[128];
        snprintf(line, sizeof line, "epochs chosen for the time: %d, of them %d in stage 1",
                 r->o.epochs, r->o.stage1_epochs);
        tell(r, line);
    }
    if (r->to->resume)
        TRY(resume(r));
    else if (r->to->from)
        TRY(start_from(r));
    else if (r->to->init)
        TRY(init_from(r));
    r->before = r->state.seconds;
    TRY(open_log(r));
    /* a beginning that cannot be drawn from the seed again is kept before the run counts as begun
     */
    if (!r->to->resume && (r->to->from || r->to->init)) TRY(save(r));
    if (r->leads) TRY(report_write_data(&r->images->source, r->to->out));
    if (r->leads) TRY(settings_write(&r->o, in_folder(r, "options.yaml")));
done:
    return rc;
}

/* With many ranks only `report` may stop: it alone asks all of them at the same step. */
static int ask(const conr_progress *p, void *user) {
    asked *a = user;
    if (a->on_progress && a->on_progress(p, a->user)) a->stop = true;
    return 0;
}

int conr_train(conr *c, conr_images *m, const conr_settings *s, const conr_train_options *o,
               conr_train_result *result) {
    int rc = 0;
    bool together = c->together; /* rank 0 makes calls alone here */
    run r = {.c = c, .images = m, .to = o, .began = clock_now(), .ranks = &c->ranks};
    c->together = false;
    r.leads = c->ranks.rank == 0;
    r.asked = (asked){.on_progress = c->dev->on_progress, .user = c->dev->progress_user};
    if (c->ranks.count > 1) conr_set_progress(c, ask, &r.asked);
    r.interval = r.began;
    r.last.done_step = -1;
    TRY(open_run(&r, s));
    TRY(train(&r));
    TRY(finish(&r));
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
    return rc;
}
