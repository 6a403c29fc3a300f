/* instead.c: a run whose training lost to the built-in descriptor becomes one of the descriptor. */
#include "base/file.h"
#include "base/status.h"
#include "context/context.h"
#include "images/images.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define EACH 2.5e-3 /* seconds of a core for one image: decoding, describing, clusters, report */

int conr_budget_keep(const conr *c, const conr_images *images, const char *out, double budget,
                     double *kept) {
    char training[4096];
    *kept = 0;
    if (!(budget > 0) || c->ranks.count > 1 || c->dev->is_gpu) return 0;
    snprintf(training, sizeof training, "%s/training", out);
    if (!file_is_gone(training))
        return fail(CONR_EINVAL,
                    "%s: exists, and with a budget a training may have to move there; give "
                    "another folder",
                    training);
    double all = EACH * (double)images->source.n / c->host->threads;
    *kept = all < budget / 3 ? all : budget / 3;
    return 0;
}

/* A file that a training writes into its folder; a user may keep others there. */
static bool is_of_run(const char *name) {
    static const char *const names[] = {"options.yaml",   "log.jsonl",     "model.safetensors",
                                        "embeddings.npy", "centroids.npy", "labels.csv",
                                        "data.json",      "report.html",   "engines.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return !strncmp(name, "checkpoint", 10) || !strncmp(name, "compact-", 8);
}

static int move_one(const char *run, const char *name, const char *to) {
    char from[4096], path[4096];
    snprintf(from, sizeof from, "%s/%s", run, name);
    snprintf(path, sizeof path, "%s/%s", to, name);
    return rename(from, path) == 0
               ? 0
               : fail(CONR_EFILE, "%s: cannot be moved to %s: %s; check the folder", from, to,
                      strerror(errno));
}

/* Moves the files of a run into another folder, which is made if it is missing; the one that marks
 * it as finished comes last. */
static int move_run(const char *run, const char *to) {
    int rc = 0;
    struct dirent *e;
    mkdir(to, 0777);
    DIR *d = opendir(run);
    if (!d) return fail(CONR_EFILE, "%s: %s; check the folder", run, strerror(errno));
    while (rc == 0 && (e = readdir(d)))
        if (is_of_run(e->d_name)) rc = move_one(run, e->d_name, to);
    closedir(d);
    return rc == 0 ? move_one(run, "DONE", to) : rc;
}

int conr_use_descriptor(conr *c, conr_images *images, const conr_baseline *b,
                        const conr_features_options *options, conr_features_result *result,
                        char note[CONR_NOTE_SIZE]) {
    int rc = 0;
    conr_features_options o = *options;
    char training[4096], why[1024];
    if (!o.out || !o.out[0]) TRY(fail(CONR_EINVAL, "out: the run has no folder; give one"));
    snprintf(training, sizeof training, "%s/training", o.out);
    snprintf(note, CONR_NOTE_SIZE,
             "The clusters are the built-in descriptor's: in the time given, the training did not "
             "beat it (its features confirm the descriptor's clusters to %.3f, the descriptor "
             "confirms the training's only to %.3f). The training's clusters and model are in the "
             "folder `training` of this run.",
             b->descriptor.confirmed, b->training.confirmed);
    o.note = note;
    TRY(move_run(o.out, training));
    rc = conr_cluster_features(c, images, NULL, 0, 0, NULL, &o, result);
    if (rc < 0) { /* the training goes back, over what little is there */
        snprintf(why, sizeof why, "%s", conr_error());
        if (move_run(training, o.out) == 0) {
            remove(training);
            fail(rc, "%s", why);
        }
    }
done:
    return rc;
}
