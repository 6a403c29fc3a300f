/* results.c: what a finished run leaves: model, features, centroids, labels, report, DONE. */
#include "run/run.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "model/model.h"
#include "report/gather.h"
#include "run/done.h"

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
    TRY(npy_write(run_path(r, "embeddings.npy"), 'f', 4, 2, (int64_t[]){n, t->d}, t->features));
    TRY(npy_write(run_path(r, "centroids.npy"), 'f', 4, 2, (int64_t[]){t->K, t->d}, t->centroids));
    TRY(model_write_clusters(run_path(r, "labels.csv"), r->images, label, distance, boundary, n));
done:
    free(distance), free(boundary), free(label);
    return rc;
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
    if (r->last.done_step != r->t->step) { /* resumed after the last evaluation */
        trainer *t = r->t;
        TRY(trainer_features(t));
        if (r->leads)
            TRY(evaluation_make(r->c, t->features, t->store->n, t->d, t->label, t->K, r->truth,
                                NULL, (uint64_t)t->o.seed, &r->last));
    }
    TRY(trainer_features(r->t)); /* a collective call */
    if (!r->leads) return 0;
    TRY(write_results(r));
    make_report(r);
    TRY(done_write(r->to->out));
done:
    return rc;
}
