/* assign.c: conr assign: clusters of new images, by a trained model. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"
#include "sort.h"

#include <stdio.h>
#include <stdlib.h>

static const flag flags[] = {
    {"out", "F.csv", NULL, "the CSV file to write: path,cluster,distance,boundary[,label]"},
    SORT_FLAGS,
    DATA_FLAGS,
    {0},
};

/* Scores against the labels that came with the images; *labeled: whether there were any. */
static int score(const conr_images *m, const int32_t *labels, int64_t n, conr_scores *out,
                 bool *labeled) {
    conr_images_info about;
    conr_images_about(m, &about);
    *labeled = about.labeled > 0;
    if (!*labeled) return EXIT_OK;
    int64_t *truth = malloc((size_t)n * sizeof *truth), *pred = malloc((size_t)n * sizeof *pred);
    int rc = truth && pred ? EXIT_OK : failed("labels: out of memory; close other programs");
    for (int64_t i = 0; rc == EXIT_OK && i < n; i++)
        truth[i] = conr_images_label(m, i), pred[i] = labels[i];
    if (rc == EXIT_OK && conr_metrics(truth, pred, n, out) < 0) rc = library_error();
    free(truth);
    free(pred);
    return rc;
}

static int print_result(const arguments *a, const conr_images *m, const int32_t *labels, int64_t n,
                        int K) {
    const char *out = flag_text(a, "out");
    conr_scores s;
    bool labeled;
    int rc = score(m, labels, n, &s, &labeled);
    if (rc) return rc;
    if (flag_on(a, "json")) {
        json_t *object =
            json_pack("{so sI si}", "out", json_name(out), "n", (json_int_t)n, "clusters", K);
        if (labeled)
            object = json_merge(object, json_pack("{so so so}", "nmi", json_number(s.nmi), "acc",
                                                  json_number(s.acc), "ari", json_number(s.ari)));
        return print_json(data_add_skipped(object, m));
    }
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld images in %d clusters\n", out, (long long)n, K);
    if (labeled) printf("NMI %.4f  ACC %.4f  ARI %.4f\n", s.nmi, s.acc, s.ari);
    return finish_output();
}

/* Embeds, assigns and writes. */
static int assign(const arguments *a, conr *c, const conr_model *model, conr_images *m) {
    conr_model_info info;
    conr_images_info before;
    float *x = NULL, *distances = NULL, *boundary = NULL;
    int32_t *labels = NULL;
    int64_t n, d;
    int rc = EXIT_OK;
    conr_model_about(model, &info);
    if (!info.centroids)
        return failed("%s: no centroids next to the model; give a run folder", operand(a, 0));
    conr_images_about(m, &before);
    if (conr_embed(c, model, m, &x, &n, &d) < 0) return library_error();
    data_warn(m, before.skipped);
    labels = malloc((size_t)n * sizeof *labels);
    distances = malloc((size_t)n * sizeof *distances);
    boundary = malloc((size_t)n * sizeof *boundary);
    if (!labels || !distances || !boundary)
        rc = failed("%s: out of memory; close other programs", operand(a, 1));
    else if (conr_assign(c, x, n, d, CONR_COSINE, info.centroids, info.clusters, labels,
                         distances) < 0 ||
             conr_boundary(c, x, n, d, CONR_COSINE, info.centroids, info.clusters, labels, 0,
                           boundary) < 0 ||
             conr_write_clusters(flag_text(a, "out"), m, labels, distances, boundary, n) < 0)
        rc = library_error();
    else if ((rc = sort_images(a, c, m, labels, n, info.clusters)) == EXIT_OK)
        rc = print_result(a, m, labels, n, info.clusters);
    free(labels);
    free(distances);
    free(boundary);
    conr_free(x);
    return rc;
}

static int run(const arguments *a) {
    conr_images_options io;
    int threads, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = data_options(a, &io)) || (rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (rc = sort_check(a)))
        return rc;
    conr *c = NULL;
    conr_model *model = NULL;
    conr_images *m = NULL;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    if (conr_model_open(c, operand(a, 0), &model) < 0)
        rc = library_error();
    else if ((rc = data_open(c, operand(a, 1), &io, &m)) == EXIT_OK &&
             (rc = data_refuse_output(flag_text(a, "out"), operand(a, 0), m)) == EXIT_OK)
        rc = assign(a, c, model, m);
    conr_images_close(m);
    conr_model_close(model);
    conr_close(c);
    return rc;
}

const verb verb_assign = {
    .name = "assign",
    .operands = "RUN SRC --out F.csv",
    .summary = "Assign new images to the clusters of a run",
    .text =
        "Assigns each image to the nearest cluster of the run; nothing is trained.  In the "
        "output,\n"
        "distance is 1 - cos to the centroid of the cluster; boundary is 0 on the centroid and 1\n"
        "halfway to the next cluster: the larger, the less certain.  If the images have labels,\n"
        "prints NMI, ACC and ARI.\n"
        "\nExample: conr assign runs/photos new-photos/ --out clusters.csv\n",
    .low = 2,
    .high = 2,
    .flags = flags,
    .run = run,
};
