/* folder.c: the folder of a run and what it was started with: images, log file, checkpoints, and
 * the state that the training starts from. */
#include "run/run.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/tensors.h"
#include "images/images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *run_path(run *r, const char *name) {
    snprintf(r->path, sizeof r->path, "%s/%s", r->to->out, name);
    return r->path;
}

static bool exists(const char *path) {
    struct stat at;
    return stat(path, &at) == 0;
}

/* From now on nobody else writes into the folder; what killed writers left there is removed. */
static int lock_folder(run *r) {
    int rc = 0;
    TRY(folder_lock_take(r->to->out, &r->lock));
    if (!r->lock.held)
        run_message(r, "warning: this file system has no locks; make sure that no other process "
                       "writes into the folder of the run");
    file_new_clean(r->to->out);
done:
    return rc;
}

/* A folder for a new run.  A trial for a budget, or a start that was killed, may have left its
 * checkpoint under the temporary name. */
static int begin_folder(run *r) {
    if (exists(run_path(r, "options.yaml")))
        return fail(CONR_EINVAL,
                    "%s: holds a run already; continue it with --resume, or choose another "
                    "folder",
                    r->to->out);
    if (exists(run_path(r, "checkpoint.safetensors")) ||
        exists(run_path(r, "checkpoint.previous.safetensors")))
        return fail(CONR_EINVAL,
                    "%s: holds a checkpoint without its options.yaml; choose another folder",
                    r->to->out);
    if (r->leads) remove(run_path(r, "checkpoint.new.safetensors"));
    return 0;
}

int run_open_folder(run *r) {
    int rc = 0;
    const char *out = r->to->out;
    if (!out || !out[0]) TRY(fail(CONR_EINVAL, "out: the run has no folder; give one"));
    if (r->to->resume && !exists(run_path(r, "options.yaml")))
        TRY(fail(CONR_EFILE, "%s: holds no run to resume; start without --resume", out));
    if (r->leads && !r->to->resume && mkdir(out, 0777) && errno != EEXIST)
        TRY(fail(CONR_EFILE, "%s: %s; give a folder that can be created", out, strerror(errno)));
    if (r->leads) TRY(lock_folder(r));
    if (!r->to->resume) TRY(begin_folder(r));
done:
    return rc;
}

/* The bytes of the first `most` bytes of a file that are whole lines. */
static int64_t whole_lines(FILE *f, int64_t most) {
    int64_t at = 0, end = 0;
    rewind(f);
    for (int c; at < most && (c = getc(f)) != EOF;)
        if (at++, c == '\n') end = at;
    return end;
}

/* What was logged after the checkpoint will be logged again.  A log that was removed, or cut off (a
 * power cut), does not reach to the checkpoint: what is left of it is kept, and the gap is noted. */
int run_open_log(run *r) {
    if (!r->leads) return 0;
    const char *path = run_path(r, "log.jsonl");
    struct stat at;
    r->log = fopen(path, "a+");
    if (!r->log || fstat(fileno(r->log), &at))
        return fail(CONR_EFILE, "%s: %s; check the folder", path, strerror(errno));
    uint64_t sum = r->state.log_sum;
    bool shorter = at.st_size < r->state.log_bytes;
    if (r->state.summed && !shorter && checksum_file(path, (size_t)r->state.log_bytes, &sum) < 0)
        return CONR_EFILE;
    int64_t keep = shorter ? whole_lines(r->log, at.st_size) : r->state.log_bytes;
    if (ftruncate(fileno(r->log), keep))
        return fail(CONR_EFILE, "%s: %s; check the folder", path, strerror(errno));
    fseek(r->log, 0, SEEK_END);
    if (r->state.summed && sum != r->state.log_sum)
        return run_warn(r, "warning: log.jsonl was changed or damaged; lines before this step may "
                           "be wrong");
    return shorter ? run_warn(r, "warning: log.jsonl was removed or cut off; lines before this "
                                 "step are missing")
                   : 0;
}

/* ---- images ---------------------------------------------------------------------------------- */

enum { IDENTITY_BYTES = 256 << 20 }; /* read to recognize the images: a moment */

static uint64_t hash_text(uint64_t h, const char *text) { /* FNV-1a */
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (h ^ 10) * 1099511628211u;
}

static int decoded(int64_t done, int64_t total, void *user) {
    device *dev = user;
    conr_progress p = {.stage = "decoding images", .done = done, .total = total};
    return dev->on_progress && dev->on_progress(&p, dev->progress_user);
}

/* Each rank has opened the images on its own, perhaps on another machine. */
static int same_images(run *r) {
    int rc = 0;
    uint64_t mine[2] = {(uint64_t)r->store.n, r->state.images};
    uint64_t *all = memory_new("ranks", (size_t)r->ranks->count, sizeof mine);
    TRY(all ? 0 : CONR_ENOMEM);
    TRY(ranks_all_gather(r->ranks, mine, sizeof mine, all));
    for (int i = 1; i < r->ranks->count; i++)
        if (memcmp(all, all + 2 * i, sizeof mine))
            TRY(fail(
                CONR_EINVAL,
                "images: %lld on rank 0, %lld on rank %d, or they differ; give all ranks the same "
                "--data",
                (long long)all[0], (long long)all[2 * i], i));
done:
    free(all);
    return rc;
}

int run_open_images(run *r) {
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
    TRY(source_identity(s, IDENTITY_BYTES, &r->state.images));
    r->state.names = 14695981039346656037u;
    for (int64_t i = 0; i < s->n; i++) {
        r->state.names = hash_text(r->state.names, source_name(s, i, name, sizeof name));
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

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* What a checkpoint records about the run, besides the trainer's state. */
static void note_state(run *r) {
    r->state.steps = r->t->steps;
    r->state.clusters = r->o.clusters;
    r->state.log_bytes = ftell(r->log);
    fsync(fileno(r->log)); /* else a power cut may take from it what the checkpoint counts on */
    r->state.seconds = r->before + clock_now() - r->began;
    settings_text(&r->o, r->state.options, sizeof r->state.options);
    size_t logged = (size_t)r->state.log_bytes;
    r->state.summed = checksum_file(run_path(r, "log.jsonl"), logged, &r->state.log_sum) == 0;
}

int run_save_new(run *r) {
    if (!r->leads) return 0;
    note_state(r);
    return checkpoint_save(r->t, &r->state, run_path(r, "checkpoint.new.safetensors"));
}

/* The new checkpoint is complete before the old one is renamed, and the old one is kept. */
int run_save_rename(run *r) {
    char fresh[4096], now[4096], old[4096];
    if (!r->leads) return 0;
    snprintf(fresh, sizeof fresh, "%s/checkpoint.new.safetensors", r->to->out);
    snprintf(now, sizeof now, "%s/checkpoint.safetensors", r->to->out);
    snprintf(old, sizeof old, "%s/checkpoint.previous.safetensors", r->to->out);
    rename(now, old); /* there may be none yet */
    if (rename(fresh, now))
        return fail(CONR_EFILE, "%s: %s; check the folder", now, strerror(errno));
    return 0;
}

int run_save(run *r) {
    int rc = run_save_new(r);
    return rc < 0 ? rc : run_save_rename(r);
}

int run_keep(run *r, int epoch) {
    int rc = 0;
    char name[64];
    if (!r->leads) return 0;
    note_state(r);
    snprintf(name, sizeof name, "checkpoint-%04d.safetensors", epoch);
    TRY(checkpoint_save(r->t, &r->state, run_path(r, name)));
    if (r->o.compact) {
        snprintf(name, sizeof name, "compact-%04d", epoch);
        file_new_clean(run_path(r, name)); /* if it exists, from before a crash */
        TRY(checkpoint_save_compact(r->t, &r->state, run_path(r, name)));
    }
done:
    return rc;
}

/* ---- where a training starts ----------------------------------------------------------------- */

/* The newest checkpoint that is not damaged; NULL: there is none at all; *older: it is not the last
 * one that was saved.  After a crash between the two renames of run_save the name `checkpoint` is
 * free, and the new one has its temporary name. */
static int find_checkpoint(run *r, const char **out, bool *older) {
    static const char *const names[] = {"checkpoint.safetensors", "checkpoint.new.safetensors",
                                        "checkpoint.previous.safetensors"};
    char why[1000] = "", line[1200];
    int rc = 0;
    *out = NULL;
    *older = false;
    for (int i = 0; i < 3 && !*out; i++) {
        tensors f;
        if (!exists(run_path(r, names[i]))) continue;
        if ((rc = tensors_open(r->path, &f)) == 0)
            *out = names[i], *older = i == 2;
        else if (rc != CONR_EFORMAT)
            return rc; /* it may be whole, and cannot be read just now */
        else if (!*why)
            snprintf(why, sizeof why, "%s", conr_error());
        tensors_close(&f);
    }
    if (!*why) return 0;
    if (!*out) return fail(CONR_EFORMAT, "%s", why);
    snprintf(line, sizeof line, "warning: %s (continuing from %s)", why, *out);
    run_message(r, line);
    return 0;
}

/* The value of the line "KEY: VALUE" in a text of settings; its length in *n; NULL: there is none. */
static const char *value_of(const char *text, const char *key, size_t key_length, size_t *n) {
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, key, key_length) && at[key_length] == ':')
            return *n = strcspn(at + key_length + 2, "\n"), at + key_length + 2;
    return NULL;
}

/* Settings may be changed in options.yaml before a run goes on; but whoever did not change them must
 * hear of it.  K may have been chosen since, and version and device are notes. */
static void tell_changes(run *r) {
    char now[sizeof r->state.options], line[1200];
    const char *was = r->state.options;
    int length = snprintf(line, sizeof line,
                          "warning: options.yaml was changed since the run was "
                          "saved; it goes on with");
    int start = length;
    settings_text(&r->o, now, sizeof now);
    for (const char *at = now; *was && *at; at += strcspn(at, "\n"), at += *at == '\n') {
        size_t key = strcspn(at, ":\n"), n, m;
        const char *new = value_of(now, at, key, &n), *old = value_of(was, at, key, &m);
        if (!new || !old || (n == m && !strncmp(new, old, n))) continue;
        if ((key == 7 && !strncmp(at, "version", 7)) || (key == 6 && !strncmp(at, "device", 6)))
            continue;
        if (key == 8 && !strncmp(at, "clusters", 8) && (*old == '0' || *new == '0')) continue;
        length += snprintf(line + length, sizeof line - (size_t)length, "%s %.*s %.*s (was %.*s)",
                           length > start ? "," : "", (int)key, at, (int)(n < 60 ? n : 60), new,
                           (int)(m < 60 ? m : 60), old);
        if (length > (int)sizeof line - 200) break;
    }
    if (length > start) run_message(r, line);
}

int run_resume(run *r) {
    int rc = 0;
    uint64_t images = r->state.images, names = r->state.names;
    const char *name = NULL;
    bool older = false;
    if (r->leads) TRY(find_checkpoint(r, &name, &older));
    int found[2] = {name != NULL, older};
    TRY(ranks_broadcast(r->ranks, found, sizeof found));
    if (!found[0]) return 0; /* stopped before the first one: start over */
    TRY(checkpoint_load(r->t, run_path(r, name ? name : ""), &r->state)); /* rank 0 reads it */
    if (r->state.identified ? r->state.images != images : r->state.names != names)
        TRY(fail(CONR_EINVAL, "%s: was trained on other images (%s differ); give the same --data",
                 r->to->out, r->state.identified ? "names, sizes or contents" : "their paths"));
    r->state.images = images; /* from now on known, also to a run that began without it */
    r->state.names = names;
    if (r->state.steps != r->t->steps)
        TRY(fail(CONR_EINVAL, "%s: had %lld steps per epoch, now %lld; give the same --data",
                 r->to->out, (long long)r->state.steps, (long long)r->t->steps));
    const train_options *o = &r->t->o;
    if (r->t->step > r->t->steps * last_epoch(o)) /* options.yaml was changed meanwhile */
        TRY(fail(CONR_EINVAL,
                 "%s: is past epoch %lld already, but %s is %d; raise it in options.yaml",
                 r->to->out, (long long)((r->t->step - 1) / r->t->steps),
                 last_epoch(o) < o->epochs ? "until" : "epochs", last_epoch(o)));
    if (r->leads) tell_changes(r);
    /* the K in options.yaml was chosen later, and will be chosen again */
    if (found[1] && r->state.clusters == 0) r->o.clusters = r->t->o.clusters = 0;
    /* K was chosen, but a crash came before it was written to options.yaml */
    if (!r->o.clusters && r->t->clustered >= 0 && stage_of(&r->o, r->state.closed) == 2)
        r->o.clusters = r->t->o.clusters = r->t->K;
done:
    return rc;
}

/* The path of RUN, RUN@EPOCH, a checkpoint file or the folder of a compact one. */
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
        return fail(
            CONR_EFILE,
            "%s: no checkpoint of epoch %ld was kept; train with keep_every, or use the end "
            "of stage 1",
            from, epoch);
    }
    snprintf(out, size, "%s/checkpoint.safetensors", from);
    if (exists(out)) return 0;
    snprintf(out, size, "%s", from);
    return exists(from) ? 0
                        : fail(CONR_EFILE, "%s: does not exist; give the folder of a run", from);
}

/* Starts from the state of another run.  Epochs keep their numbers, so the schedule continues. */
int run_start_from(run *r) {
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
        TRY(fail(CONR_EINVAL, "%s: is at epoch %lld of %d; set %s higher", path, (long long)epoch,
                 last_epoch(&t->o), last_epoch(&t->o) < t->o.epochs ? "until" : "epochs"));
    /* cluster again: K and seed may differ from those of the other run */
    t->clustered = -1;
    r->state.closed = labels_in(&t->o, epoch) ? epoch - 1 : epoch;
done:
    return rc;
}

/* Initial weights of encoder and heads from a file, for both networks. */
int run_init_from(run *r) {
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
    TRY(trainer_set_weights(t, w, running));
done:
    free(w);
    free(running);
    return rc;
}
