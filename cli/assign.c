/* assign.c: conr assign: clusters of new images or features, by a finished run. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "paths.h"
#include "progress.h"
#include "sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"out", "F.csv", NULL, "the CSV file to write: path,cluster,distance,boundary[,label]"},
    {"paths", "P.txt", NULL, "for features: the path of each row, one per line"},
    {"encoder", "W.safetensors", NULL,
     "for a run of a pretrained network whose weights were moved: where they are"},
    SORT_FLAGS,
    DATA_FLAGS,
    {0},
};

/* Scores against the labels that came with the images; *labeled: whether there were any. */
static int score(const conr_images *m, const int32_t *labels, int64_t n, conr_scores *out,
                 bool *labeled) {
    conr_images_info about = {0};
    if (m) conr_images_about(m, &about);
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

/* m: NULL if these are features. */
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
        return print_json(m ? data_add_skipped(object, m) : object);
    }
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld %s in %d clusters\n", out, (long long)n, m ? "images" : "rows",
                K);
    if (labeled) printf("NMI %.4f  ACC %.4f  ARI %.4f\n", s.nmi, s.acc, s.ari);
    return finish_output();
}

/* Into folders that have the names of the clusters, where somebody named them. */
static int sort_assigned(const arguments *a, conr *c, const conr_clustering *k, conr_images *m,
                         const int32_t *labels, int64_t n, int clusters) {
    const char **names = calloc((size_t)clusters + 1, sizeof *names);
    bool any = false;
    for (int j = 0; names && j < clusters; j++)
        any = (names[j] = conr_clustering_name(k, j)) || any;
    int rc = names ? sort_named(a, c, m, labels, n, any ? names : NULL, clusters)
                   : failed("names: out of memory; close other programs");
    free(names);
    return rc;
}

/* Assigns rows [n,width] and writes.  m: whose rows they are; NULL: features, called by names or,
 * if that is NULL, by the file. */
static int assign(const arguments *a, conr *c, const conr_clustering *k, const float *rows,
                  int64_t n, conr_images *m, const char *const *names) {
    const char *out = flag_text(a, "out"), *file = operand(a, 1), *slash = strrchr(file, '/');
    conr_clustering_info info;
    int32_t *labels = malloc((size_t)n * sizeof *labels);
    float *distances = malloc((size_t)n * sizeof *distances);
    float *boundary = malloc((size_t)n * sizeof *boundary);
    int rc = EXIT_OK, code = 0;
    conr_clustering_about(k, &info);
    if (!labels || !distances || !boundary)
        rc = failed("%s: out of memory; close other programs", file);
    else if ((code = conr_clustering_assign(c, k, rows, n, labels, distances, boundary)) == 0)
        code = m ? conr_write_clusters(out, m, labels, distances, boundary, n)
                 : conr_write_rows(out, names, slash ? slash + 1 : file, NULL, labels, distances,
                                   boundary, n);
    if (code < 0) rc = library_error();
    if (rc == EXIT_OK && m) rc = sort_assigned(a, c, k, m, labels, n, info.clusters);
    if (rc == EXIT_OK) rc = print_result(a, m, labels, n, info.clusters);
    free(labels);
    free(distances);
    free(boundary);
    return rc;
}

static int assign_images(const arguments *a, conr *c, conr_clustering *k) {
    conr_images_options io;
    conr_images_info before;
    conr_images *m = NULL;
    float *rows = NULL;
    int64_t n;
    int rc;
    if (flag_on(a, "paths"))
        return usage_error("--paths: names rows of features; leave it out, %s takes images",
                           operand(a, 0));
    if (flag_on(a, "encoder") && conr_clustering_set_encoder(k, flag_text(a, "encoder")) < 0)
        return library_error();
    if ((rc = data_options(a, &io)) || (rc = data_open(c, operand(a, 1), &io, &m)) ||
        (rc = data_refuse_output(flag_text(a, "out"), operand(a, 0), m)))
        goto done;
    conr_images_about(m, &before);
    if (conr_clustering_images(c, k, m, &rows, &n) < 0) {
        rc = library_error();
        goto done;
    }
    data_warn(m, before.skipped);
    rc = assign(a, c, k, rows, n, m, NULL);
done:
    conr_free(rows);
    conr_images_close(m);
    return rc;
}

static int assign_features(const arguments *a, conr *c, const conr_clustering *k) {
    const char *file = operand(a, 1), *names = flag_text(a, "paths");
    float *rows = NULL;
    int64_t n;
    paths p = {0};
    int rc;
    if (flag_on(a, "encoder"))
        return usage_error("--encoder: is for images, but %s takes features; leave it out",
                           operand(a, 0));
    if (flag_on(a, "sort-into"))
        return usage_error("--sort-into: needs images, but %s takes features; sort by the CSV file",
                           operand(a, 0));
    if ((rc = data_refuse_output(flag_text(a, "out"), file, NULL)) ||
        (names && (rc = data_refuse_output(flag_text(a, "out"), names, NULL))) ||
        (rc = data_embed_features(c, k, operand(a, 0), file, &rows, &n)))
        return rc;
    if (names && (rc = paths_read(names, &p)) == EXIT_OK && p.n != n)
        rc = failed("%s: %lld paths for the %lld rows of %s; give one per row", names,
                    (long long)p.n, (long long)n, file);
    if (rc == EXIT_OK) rc = assign(a, c, k, rows, n, NULL, (const char *const *)p.line);
    paths_free(&p);
    free(rows);
    return rc;
}

static int run(const arguments *a) {
    conr_images_options io;
    conr_clustering_info info;
    int threads, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = data_options(a, &io)) || (rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (rc = sort_check(a)))
        return rc;
    conr *c = NULL;
    conr_clustering *k = NULL;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    if (conr_clustering_open(c, operand(a, 0), &k) < 0) {
        rc = library_error();
    } else {
        conr_clustering_about(k, &info);
        rc = strcmp(info.takes, "features") ? assign_images(a, c, k) : assign_features(a, c, k);
    }
    conr_clustering_close(k);
    conr_close(c);
    return rc;
}

const verb verb_assign = {
    .name = "assign",
    .operands = "RUN SRC|F.npy --out F.csv",
    .summary = "Assign new images to the clusters of a run",
    .text =
        "Assigns each image to the nearest cluster of the run; nothing is trained.  In the "
        "output,\n"
        "distance is 1 - cos to the centroid of the cluster; boundary is 0 on the centroid and 1\n"
        "halfway to the next cluster: the larger, the less certain.  If the images have labels,\n"
        "prints NMI, ACC and ARI.\n"
        "A run made from features (conr cluster --features F.npy) takes features of the same "
        "kind.\n"
        "\nExample: conr assign runs/photos new-photos/ --out clusters.csv\n"
        "         conr assign runs/features new.npy --paths new.txt --out clusters.csv\n",
    .low = 2,
    .high = 2,
    .flags = flags,
    .run = run,
};
