/* results.c: what a finished run leaves: model, features, centroids, labels, report, DONE. */
#include "run/run.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "model/model.h"
#include "report/gather.h"

#include <math.h>
#include <stdlib.h>

/* The network whose features are clustered, from the device. */
static int save_model(run *r) {
    int rc = 0;
    trainer *t = r->t;
    parameters at = trainer_clustered(t);
    conr_model m = {.net = t->net, .norm = r->norm, .short_side = t->o.short_side};
    snprintf(m.framework, sizeof m.framework, "%s", t->framework->name);
    m.w = calloc(t->net.n_weights, sizeof *m.w);
    m.running = calloc(t->net.n_running + 1, sizeof *m.running);
    TRY(m.w && m.running ? 0 : fail_memory("weights", 4.0 * (double)t->net.n_weights));
    TRY(t->dev->op.get(t->dev, m.w, at.w, t->net.n_target * sizeof *m.w));
    TRY(t->dev->op.get(t->dev, m.running, at.running, t->net.n_running * sizeof *m.running));
    TRY(model_save(&m, run_path(r, "model.safetensors")));
done:
    free(m.w);
    free(m.running);
    return rc;
}

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
    TRY(save_model(r));
    TRY(conr_write_floats(run_path(r, "embeddings.npy"), t->features, n, t->d));
    TRY(conr_write_floats(run_path(r, "centroids.npy"), t->centroids, t->K, t->d));
    TRY(conr_write_clusters(run_path(r, "labels.csv"), r->images, label, distance, boundary, n));
done:
    free(distance), free(boundary), free(label);
    return rc;
}

static json_t *put_number(json_t *o, const char *side, const char *what, double value) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", side, what);
    return isfinite(value) ? json_put(o, key, json_real(value)) : o;
}

static json_t *put_side(json_t *o, const char *name, const conr_baseline_side *s, bool labeled) {
    if (labeled) {
        o = put_number(o, name, "nmi", s->scores.nmi);
        o = put_number(o, name, "acc", s->scores.acc);
        o = put_number(o, name, "ari", s->scores.ari);
    }
    o = put_number(o, name, "agreement", s->agreement);
    o = put_number(o, name, "confirmed", s->confirmed);
    o = put_number(o, name, "silhouette", s->silhouette);
    return put_number(o, name, "stability", s->stability);
}

/* A line of the log, and a warning if the training did not beat the descriptor. */
static int log_baseline(run *r) {
    const conr_baseline *b = &r->baseline;
    trainer *t = r->t;
    if (b->images == 0) return 0;
    json_t *o =
        json_pack("{sI si ss sI}", "step", (json_int_t)t->step, "epoch", (int)(t->step / t->steps),
                  "event", "baseline", "images", (json_int_t)b->images);
    o = put_side(o, "descriptor", &b->descriptor, b->labeled);
    o = put_side(o, "training", &b->training, b->labeled);
    o = json_put(o, "descriptor_wins", json_boolean(b->descriptor_wins));
    int rc = run_log(r, o);
    char *warning = rc < 0 ? NULL : baseline_warning(b);
    if (warning) rc = run_warn(r, warning);
    free(warning);
    return rc;
}

/* If it is stopped, or fails, the run is not finished, but --resume can do so. */
static int make_baseline(run *r) {
    trainer *t = r->t;
    trained mine = {.images = t->store,
                    .features = t->features,
                    .d = t->d,
                    .label = t->label,
                    .K = t->K,
                    .truth = r->truth,
                    .seed = (uint64_t)t->o.seed};
    if (!r->o.baseline) return 0;
    int rc = baseline_make(r->c, &mine, &r->baseline);
    return rc < 0 ? rc : log_baseline(r);
}

/* The report is optional: if it fails, or Ctrl-C stops it, the run still counts as finished. */
static void make_report(run *r) {
    char line[1024];
    if (r->to->no_report || report_from_store(r->c, r->to->out, &r->store) == 0) return;
    snprintf(line, sizeof line, "warning: no report (%.600s); conr report RUN writes it later",
             conr_error());
    run_message(r, line);
}

int run_results(run *r) {
    int rc = 0;
    file_new f = {0};
    if (r->last.done_step != r->t->step) { /* resumed after the last evaluation */
        trainer *t = r->t;
        TRY(trainer_features(t));
        if (r->leads)
            TRY(evaluation_make(r->c, t->features, t->store->n, t->d, t->label, t->K, r->truth,
                                NULL, (uint64_t)t->o.seed, &r->last));
    }
    TRY(trainer_features(r->t)); /* a collective call */
    if (!r->leads) return 0;
    remove(run_path(r, "DONE")); /* of a finished run that is resumed: it lists the old files */
    TRY(write_results(r));
    TRY(make_baseline(r));
    make_report(r);
    TRY(file_new_open(&f, run_path(r, "DONE")));
    fprintf(f.stream, "conr %s\n", CONR_VERSION);
    TRY(checksum_line(f.stream, r->to->out, "embeddings.npy"));
    TRY(checksum_line(f.stream, r->to->out, "centroids.npy"));
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}
