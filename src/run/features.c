/* features.c: the public calls that cluster features: checks, the folder, the order of the steps. */
#include "run/features.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "images/images.h"
#include "json/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

conr_features_options conr_features_defaults(void) {
    return (conr_features_options){.method = "auto",
                                   .refine = "auto",
                                   .low = 2,
                                   .high = 50,
                                   .restarts = 10,
                                   .neighbors = {.k = -1,
                                                 .k1 = -1,
                                                 .k2 = -1,
                                                 .layers = -1,
                                                 .alpha = -1,
                                                 .resymmetrize = -1,
                                                 .recall = -1},
                                   .seed = 1,
                                   .selection = conr_images_defaults()};
}

const char *features_path(features_run *r, const char *name) {
    snprintf(r->path, sizeof r->path, "%s/%s", r->to->out, name);
    return r->path;
}

void features_message(features_run *r, const char *message) {
    device *dev = r->c->dev;
    conr_progress p = {.stage = "clustering", .message = message};
    if (dev->on_progress) dev->on_progress(&p, dev->progress_user);
}

int features_log(features_run *r, json_t *line) {
    char *text = json_write(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (!text) return fail_memory("log", 1000);
    bool ok = fprintf(r->log, "%s\n", text) > 0 && fflush(r->log) == 0;
    free(text);
    return ok ? 0
              : fail(CONR_EFILE, "%s/log.jsonl: %s; free some space", r->to->out, strerror(errno));
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_one_of(const char *word, const char *const *list) {
    for (; word && *list; list++)
        if (!strcmp(word, *list)) return true;
    return false;
}

static int check_options(const conr_features_options *o) {
    static const char *const methods[] = {"kmeans", "graph", "auto", NULL};
    static const char *const refines[] = {"none", "conaff", "auto", NULL};
    if (!o->out || !o->out[0]) return fail(CONR_EINVAL, "out: the run has no folder; give one");
    if (!is_one_of(o->method, methods))
        return fail(CONR_EINVAL, "method %s: no such method; use kmeans, graph or auto",
                    o->method ? o->method : "NULL");
    if (!is_one_of(o->refine, refines))
        return fail(CONR_EINVAL, "refine %s: no such way; use none, conaff or auto",
                    o->refine ? o->refine : "NULL");
    if (o->clusters < 0 || (o->clusters == 0 && (o->low < 1 || o->low > o->high)))
        return fail(CONR_EINVAL, "clusters: %d is out of range; use 1 or more, or 0 with a range",
                    o->clusters ? o->clusters : o->low);
    if (o->restarts < 1)
        return fail(CONR_EINVAL, "restarts: %d is out of range; use 1 or more", o->restarts);
    if (o->seed > INT_MAX) return fail(CONR_EINVAL, "seed: is too large; use at most %d", INT_MAX);
    return 0;
}

static int check_rows(const features_run *r) {
    if (r->n < 1 || r->d < 1)
        return fail(CONR_EINVAL, "features: %lld x %lld is empty; give at least one row",
                    (long long)r->n, (long long)r->d);
    if (r->to->clusters > r->n)
        return fail(CONR_EINVAL, "clusters: %d are more than the %lld rows; ask for fewer",
                    r->to->clusters, (long long)r->n);
    if (r->images && r->images->source.n != r->n)
        return fail(CONR_EINVAL, "features: %lld rows for %lld images; give one row per image",
                    (long long)r->n, (long long)r->images->source.n);
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t j = 0; j < r->d; j++)
            if (!isfinite(r->given[i * r->d + j]))
                return fail(CONR_ENUMBER,
                            "features: row %lld has a value that is NaN or infinite; repair it",
                            (long long)i);
    return 0;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool exists(features_run *r, const char *name) {
    struct stat at;
    return stat(features_path(r, name), &at) == 0;
}

/* Refuses to write over what is read. */
static int check_inputs(features_run *r) {
    static const char *const written[] = {"embeddings.npy",   "centroids.npy", "labels.csv",
                                          "head.safetensors", "data.json",     "log.jsonl",
                                          "options.yaml",     "report.html",   "DONE"};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = features_path(r, written[i]);
        if ((r->to->from && output_is(path, r->to->from)) ||
            (r->images && source_has_file(&r->images->source, path)))
            return fail(CONR_EINVAL, "%s: is one of the inputs; give another folder", path);
    }
    return 0;
}

/* A folder that is empty, or has what is left of a run made from features that did not finish: it
 * is started over. */
static int open_folder(features_run *r) {
    int rc = 0;
    features_options old;
    const char *out = r->to->out;
    if (mkdir(out, 0777) && errno != EEXIST)
        TRY(fail(CONR_EFILE, "%s: %s; give a folder that can be created", out, strerror(errno)));
    TRY(folder_lock_take(out, &r->lock));
    if (!r->lock.held)
        features_message(r, "warning: this file system has no locks; make sure that no other "
                            "process writes into the folder of the run");
    file_new_clean(out);
    if (exists(r, "DONE"))
        TRY(fail(CONR_EINVAL, "%s: holds a finished run; give another folder, or remove it", out));
    if (exists(r, "options.yaml")) {
        TRY(features_read(&old, features_path(r, "options.yaml")));
        if (rc == 0)
            TRY(fail(CONR_EINVAL, "%s: holds a training; give another folder, or remove it", out));
    }
    TRY(check_inputs(r));
    if (exists(r, "checkpoint.safetensors"))
        TRY(fail(CONR_EINVAL, "%s: holds a checkpoint; give another folder", out));
    if (exists(r, "sweep.json"))
        TRY(fail(CONR_EINVAL, "%s: holds a sweep; give another folder", out));
    /* of an attempt with other options */
    remove(features_path(r, "options.yaml"));
    remove(features_path(r, "head.safetensors"));
    remove(features_path(r, "report.html"));
    remove(features_path(r, "data.json"));
    r->log = fopen(features_path(r, "log.jsonl"), "w");
    if (!r->log) TRY(fail(CONR_EFILE, "%s: %s; check the folder", r->path, strerror(errno)));
    rc = 0;
done:
    return rc;
}

/* ---- what is recorded ------------------------------------------------------------------------ */

/* A head gains nothing on the descriptor's features, and costs more time than all the rest. */
refining features_refines(const features_run *r) {
    bool descriptor = r->described && !r->to->encoder;
    if (!strcmp(r->to->refine, "auto"))
        return r->again || descriptor || r->to->clusters == 1 ? REFINE_NO : REFINE_CHOOSE;
    return strcmp(r->to->refine, "none") ? REFINE_YES : REFINE_NO;
}

static void record_options(features_run *r) {
    const conr_features_options *to = r->to;
    const conr_neighbors_options *near = &to->neighbors;
    features_options *o = &r->o;
    if (!r->again) snprintf(o->refine, sizeof o->refine, "none"); /* until there is a head */
    o->k = near->k, o->k1 = near->k1, o->k2 = near->k2;
    o->alpha = near->alpha, o->layers = near->layers, o->resymmetrize = near->resymmetrize;
    o->restarts = to->restarts;
    o->seed = (int)to->seed;
    snprintf(o->version, sizeof o->version, "%s", CONR_VERSION);
    features_text(o->device, conr_device(r->c));
}

/* The absolute path of a file or folder, as far as it can be known. */
static int record_from(features_run *r, const char *path) {
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM) return fail_memory(path, PATH_MAX);
    features_text(r->o.from, real ? real : path);
    free(real);
    return 0;
}

/* The weights stay where they are: they are large, and one file serves many runs. */
static int record_encoder(features_run *r) {
    conr_encoder_info e;
    conr_encoder_about(r->to->encoder, &e);
    if (strlen(e.settings) >= OPTION_TEXT_SIZE)
        return fail(CONR_EINVAL, "encoder: its settings are too long; set fewer digits");
    features_text(r->o.encoder, e.path);
    snprintf(r->o.encoder_sum, sizeof r->o.encoder_sum, "%016llx", (unsigned long long)e.checksum);
    snprintf(r->o.encoder_set, sizeof r->o.encoder_set, "%s", e.settings);
    snprintf(r->o.source, sizeof r->o.source, "encoder");
    snprintf(r->o.takes, sizeof r->o.takes, "encoder");
    return 0;
}

static void record_selection(features_run *r, const conr_images_options *s) {
    if (s->split) features_text(r->o.split, s->split);
    if (s->classes) features_text(r->o.classes, s->classes);
    if (s->coarse) snprintf(r->o.labels, sizeof r->o.labels, "coarse");
    if (s->long_tail > 1) r->o.long_tail = s->long_tail;
}

static void record_rows(features_run *r) {
    r->o.rows = (int)r->n, r->o.columns = (int)r->d;
    snprintf(
        r->o.content, sizeof r->o.content, "%016llx",
        (unsigned long long)checksum(r->given, (size_t)r->n * (size_t)r->d * sizeof *r->given, 0));
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int open_truth(features_run *r) {
    bool labeled = false;
    const source *s = &r->images->source;
    for (int64_t i = 0; i < s->n && !labeled; i++) labeled = source_label(s, i) >= 0;
    if (!labeled) return 0;
    r->truth = memory_new("labels", (size_t)s->n, sizeof *r->truth);
    if (!r->truth) return CONR_ENOMEM;
    for (int64_t i = 0; i < s->n; i++) r->truth[i] = source_label(s, i);
    return 0;
}

static void fill_result(const features_run *r, conr_features_result *out) {
    *out = (conr_features_result){.clusters = r->K,
                                  .method = !strcmp(r->o.method, "graph") ? "graph" : "kmeans",
                                  .n = r->n,
                                  .d = r->width,
                                  .seconds = clock_now() - r->began,
                                  .labeled = r->truth != NULL,
                                  .scores = r->scores.scores,
                                  .knn = r->scores.knn,
                                  .silhouette = r->silhouette,
                                  .agreement = r->agreement};
}

/* With the features in place. */
static int cluster(features_run *r, conr_features_result *result) {
    int rc = 0;
    TRY(check_rows(r));
    record_options(r);
    record_rows(r);
    if (r->to->note)
        TRY(features_log(r, json_pack("{si si ss}", "step", 0, "epoch", 0, "note", r->to->note)));
    TRY(features_cluster(r));
    TRY(features_results(r));
    if (result) fill_result(r, result);
done:
    return rc;
}

static void close_run(features_run *r) {
    conr_head_close(r->head);
    free(r->described), free(r->truth), free(r->rows), free(r->centroids);
    free(r->label), free(r->distance), free(r->boundary);
    free(r->near.ids), free(r->near.row);
    if (r->log) fclose(r->log);
    folder_lock_drop(&r->lock);
}

static int one_process(const conr *c) {
    return c->ranks.count == 1 ? 0
                               : fail(CONR_EINVAL,
                                      "features: are clustered by one process, but %d "
                                      "were started; run it without mpirun",
                                      c->ranks.count);
}

int conr_cluster_features(conr *c, conr_images *images, const float *features, int64_t n, int64_t d,
                          const char *const *names, const conr_features_options *o,
                          conr_features_result *result) {
    int rc = 0;
    features_run r = {.c = c,
                      .to = o,
                      .images = images,
                      .given = features,
                      .n = n,
                      .d = d,
                      .name = names,
                      .began = clock_now()};
    TRY(one_process(c));
    TRY(check_options(o));
    if (!features && !images) TRY(fail(CONR_EINVAL, "features: are missing; give them or images"));
    if (features && o->encoder)
        TRY(fail(CONR_EINVAL, "encoder: given with features; leave one of them out"));
    if (features) TRY(check_rows(&r));
    features_default(&r.o);
    TRY(open_folder(&r));
    if (!features && o->encoder) {
        TRY(record_encoder(&r));
        TRY(conr_encode(c, o->encoder, images, &r.described, &r.n, &r.d));
        r.given = r.described;
    } else if (!features) {
        TRY(conr_describe(c, images, &r.described, &r.n, &r.d));
        r.given = r.described;
        snprintf(r.o.source, sizeof r.o.source, "hog");
        snprintf(r.o.takes, sizeof r.o.takes, "hog");
    }
    if (features && o->from) TRY(record_from(&r, o->from));
    if (images) record_selection(&r, &o->selection);
    if (images) TRY(open_truth(&r));
    TRY(cluster(&r, result));
done:
    close_run(&r);
    return rc;
}

/* What embeds new rows is that of the other run. */
static int record_again(features_run *r, const folder *f) {
    features_options *o = &r->o;
    snprintf(o->source, sizeof o->source, "run");
    snprintf(o->takes, sizeof o->takes, "%s", f->of_features ? f->made.takes : "model");
    if (f->of_features) {
        memcpy(o->refine, f->made.refine, sizeof o->refine);
        memcpy(o->encoder, f->made.encoder, sizeof o->encoder);
        memcpy(o->encoder_sum, f->made.encoder_sum, sizeof o->encoder_sum);
        memcpy(o->encoder_set, f->made.encoder_set, sizeof o->encoder_set);
    }
    memcpy(o->split, f->o.split, sizeof o->split);
    memcpy(o->classes, f->o.classes, sizeof o->classes);
    memcpy(o->labels, f->o.labels, sizeof o->labels);
    o->long_tail = f->o.long_tail;
    return record_from(r, r->again);
}

int conr_cluster_again(conr *c, const char *run, const conr_features_options *o,
                       conr_features_result *result) {
    int rc = 0;
    folder f = {0};
    features_run r = {.c = c, .to = o, .again = run, .began = clock_now()};
    TRY(one_process(c));
    TRY(check_options(o));
    if (!strcmp(o->refine, "conaff"))
        TRY(fail(CONR_EINVAL, "refine %s: a run is clustered again without training; use none",
                 o->refine));
    TRY(folder_open(run, &f));
    if (!f.done) TRY(fail(CONR_EINVAL, "%s: is not finished; finish it first, or repeat it", run));
    TRY(folder_read_images(&f));
    features_default(&r.o);
    TRY(open_folder(&r));
    r.given = f.features, r.n = f.n, r.d = f.d;
    r.name = f.image;
    r.truth = f.label, f.label = NULL;
    TRY(record_again(&r, &f));
    TRY(cluster(&r, result));
done:
    close_run(&r);
    folder_close(&f);
    return rc;
}

int conr_is_features_run(const char *run) {
    char path[4096];
    features_options o;
    snprintf(path, sizeof path, "%s/options.yaml", run);
    return file_is_gone(path) ? 0 : features_read(&o, path);
}
