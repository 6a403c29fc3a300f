/* features_results.c: what a run made from features leaves. */
#include "run/features.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "images/images.h"
#include "report/gather.h"
#include "run/done.h"
#include "json/json.h"

#include <string.h>
#include <unistd.h>

/* A file of the run that is clustered again, if it has it. */
static int take_along(features_run *r, const char *name) {
    int rc = 0;
    char from[4096];
    file_bytes b = {0};
    file_new f = {0};
    snprintf(from, sizeof from, "%s/%s", r->again, name);
    if (file_is_gone(from)) return 0;
    TRY(file_read(from, SIZE_MAX, &b, NULL));
    TRY(file_new_open(&f, features_path(r, name)));
    fwrite(b.data, 1, b.n, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    file_bytes_free(&b);
    return rc;
}

/* Stays FILE#0, FILE#1, ... if neither images nor names came with the features. */
static const char *stem(const features_run *r) {
    const char *slash = strrchr(r->o.from, '/');
    if (!r->o.from[0]) return "features";
    return slash && slash[1] ? slash + 1 : r->o.from;
}

static int write_files(features_run *r) {
    int rc = 0;
    if (r->head) TRY(conr_head_save(r->head, features_path(r, "head.safetensors")));
    if (r->again) {
        TRY(take_along(r, "head.safetensors"));
        TRY(take_along(r, "model.safetensors"));
        TRY(take_along(r, "data.json"));
    }
    TRY(conr_write_floats(features_path(r, "embeddings.npy"), r->rows, r->n, r->width));
    TRY(conr_write_floats(features_path(r, "centroids.npy"), r->centroids, r->K, r->width));
    if (r->images) TRY(report_write_data(&r->images->source, r->to->out));
    const char *labels = features_path(r, "labels.csv");
    if (r->images)
        TRY(conr_write_clusters(labels, r->images, r->label, r->distance, r->boundary, r->n));
    else
        TRY(conr_write_rows(labels, r->name, stem(r), r->truth, r->label, r->distance, r->boundary,
                            r->n));
done:
    return rc;
}

/* As after a training: if the report fails, or is stopped, the run still counts as finished. */
static void make_report(features_run *r) {
    char line[1024];
    if (r->to->no_report || report_of_run(r->c, r->to->out, r->images) == 0) return;
    snprintf(line, sizeof line, "warning: no report (%.600s); conr report RUN writes it later",
             conr_error());
    features_message(r, line);
}

int features_results(features_run *r) {
    int rc = 0;
    TRY(write_files(r));
    TRY(features_write(&r->o, features_path(r, "options.yaml")));
    TRY(features_log(
        r, json_pack("{si si sf}", "step", 0, "epoch", 0, "seconds", clock_now() - r->began)));
    make_report(r);
    TRY(done_write(r->to->out));
done:
    return rc;
}
