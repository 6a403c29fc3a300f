/* kmeans.c: conr kmeans: k-means on any feature matrix. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const flag flags[] = {
    {"clusters", "K", NULL, "number of clusters; auto or auto:LOW-HIGH: estimate it"},
    {"out", "FILE", NULL, "the file of labels to write: L.npy, int32 [n], or L.csv"},
    {"centroids", "C.npy", NULL, "also write the centroids: float32 [K,d]"},
    {"metric", "NAME", "cosine", "cosine or euclidean"},
    {"restarts", "N", "10", "number of runs; the best one counts"},
    {"iterations", "N", "300", "most iterations of one run"},
    {"size", "N", NULL, "images: side in pixels; default: their own up to 64, else 32"},
    {0},
};

/* --clusters: a number, or auto with a range (default 2-50), for which low < high. */
static int read_clusters(const arguments *a, int *low, int *high) {
    const char *text = flag_text(a, "clusters");
    char end;
    if (!text) return usage_error("--clusters: is missing; give a number or auto");
    if (!strcmp(text, "auto")) {
        *low = 2, *high = 50;
        return 0;
    }
    if (sscanf(text, "auto:%d-%d%c", low, high, &end) == 2 && *low >= 1 && *low < *high) return 0;
    int rc =
        strncmp(text, "auto", 4)
            ? flag_int(a, "clusters", 1, 1 << 30, low)
            : usage_error("--clusters %s: not a range; give auto:LOW-HIGH, 1 <= LOW < HIGH", text);
    *high = *low;
    return rc;
}

static int read_options(const arguments *a, conr_kmeans_options *o) {
    int rc;
    const char *metric = flag_text(a, "metric"), *seed = flag_text(a, "seed");
    char *end;
    *o = conr_kmeans_defaults();
    if ((rc = flag_int(a, "restarts", 1, 1000000, &o->restarts)) ||
        (rc = flag_int(a, "iterations", 1, 1 << 30, &o->iterations)))
        return rc;
    o->seed = strtoull(seed, &end, 10);
    if (end == seed || *end) return usage_error("--seed %s: not a whole number; give one", seed);
    o->metric = strcmp(metric, "euclidean") ? CONR_COSINE : CONR_EUCLIDEAN;
    if (o->metric == CONR_COSINE && strcmp(metric, "cosine"))
        return usage_error("--metric %s: no such metric; give cosine or euclidean", metric);
    return 0;
}

static bool is_csv(const char *path) {
    size_t n = strlen(path);
    return n > 4 && !strcasecmp(path + n - 4, ".csv");
}

/* path,cluster: the images, or the rows of the file by their numbers.  0, or an exit code after a
 * message. */
static int write_csv(const arguments *a, conr_images *m, const int32_t *labels, int64_t n) {
    const char *out = flag_text(a, "out"), *slash = strrchr(operand(a, 0), '/');
    char **names = m ? calloc((size_t)n, sizeof *names) : NULL;
    bool scarce = m && !names;
    int rc = EXIT_OK;
    for (int64_t i = 0; m && i < n && !scarce; i++)
        scarce = !(names[i] = strdup(conr_images_path(m, i)));
    if (scarce)
        rc = failed("%s: out of memory; close other programs", out);
    else if (conr_write_rows(out, (const char *const *)names, slash ? slash + 1 : operand(a, 0),
                             NULL, labels, NULL, NULL, n) < 0)
        rc = library_error();
    for (int64_t i = 0; names && i < n; i++) free(names[i]);
    free(names);
    return rc;
}

/* Clusters the features and writes what was asked for.  m: the images, or NULL.  own: rows in x; if
 * they are less than n, the other ranks have the others. */
static int cluster(const arguments *a, conr *c, conr_images *m, const float *x, int64_t own,
                   int64_t n, int64_t d, conr_kmeans_options *o, int low, int high) {
    conr_kmeans_history history = {0};
    float *centroids = NULL;
    int32_t *labels = NULL;
    int rc = EXIT_FAILED;
    const char *to = flag_text(a, "centroids");
    o->clusters = low;
    if (low != high && conr_choose_clusters(c, x, n, d, o, low, high, &o->clusters, NULL) < 0)
        return library_error();
    /* the library will refuse K > n before it uses any of this */
    int64_t room = o->clusters < n ? o->clusters : n;
    centroids = malloc((size_t)(room * d) * sizeof *centroids);
    labels = malloc((size_t)n * sizeof *labels);
    if (!centroids || !labels) {
        fprintf(stderr, "conr: %s: out of memory; close other programs\n", operand(a, 0));
        goto done;
    }
    bool writes = conr_rank(NULL) == 0;
    if ((own < n ? conr_kmeans_shard(c, x, own, d, o, centroids, labels, &history)
                 : conr_kmeans(c, x, n, d, o, centroids, labels, &history)) < 0 ||
        (writes && to && conr_write_floats(to, centroids, o->clusters, d) < 0) ||
        (writes && !is_csv(flag_text(a, "out")) &&
         conr_write_ints(flag_text(a, "out"), labels, n, 0) < 0)) {
        rc = library_error();
        goto done;
    }
    rc = EXIT_OK;
    if (writes && is_csv(flag_text(a, "out"))) rc = write_csv(a, m, labels, n);
    if (rc != EXIT_OK) goto done;
    if (flag_on(a, "json")) {
        json_t *object = json_pack("{so sI sI si so si sI}", "out", json_name(flag_text(a, "out")),
                                   "n", (json_int_t)n, "d", (json_int_t)d, "clusters", o->clusters,
                                   "objective", json_number(history.objective), "iterations",
                                   history.steps, "seed", (json_int_t)o->seed);
        rc = print_json(m ? data_add_skipped(object, m) : object);
    } else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %d clusters of %lld rows, objective %.9g, seed %llu\n",
                flag_text(a, "out"), o->clusters, (long long)n, history.objective,
                (unsigned long long)o->seed);
done:
    conr_kmeans_history_free(&history);
    free(centroids);
    free(labels);
    return rc;
}

/* Whether the operand is a feature matrix; anything else is a source of images. */
static bool is_matrix(const char *path) {
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".npy");
}

/* The side of the images if that is small, else 32. */
static int default_size(const conr_images *m) {
    conr_images_info i;
    conr_images_about(m, &i);
    return i.width[1] <= 64 && i.height[1] <= 64 ? i.height[1] : 32;
}

/* Scores against the labels that came with the images, if there are any. */
static int print_scores(const conr_images *m, const char *labels_path) {
    conr_images_info about;
    conr_scores s;
    int64_t *pred = NULL, n = 0, *truth = NULL;
    int rc = EXIT_OK;
    conr_images_about(m, &about);
    if (about.labeled == 0) return EXIT_OK;
    truth = malloc((size_t)about.n * sizeof *truth);
    if (!truth) {
        fprintf(stderr, "conr: labels: out of memory; close other programs\n");
        return EXIT_FAILED;
    }
    for (int64_t i = 0; i < about.n; i++) truth[i] = conr_images_label(m, i);
    if (conr_read_labels(labels_path, is_csv(labels_path) ? "cluster" : NULL, &pred, &n) < 0 ||
        conr_metrics(truth, pred, n, &s) < 0)
        rc = library_error();
    else
        printf("NMI %.4f  ACC %.4f  ARI %.4f\n", s.nmi, s.acc, s.ari);
    free(truth);
    conr_free(pred);
    return rc == EXIT_OK ? finish_output() : rc;
}

/* Opens images and takes their pixels.  0, or an exit code after a message. */
static int read_pixels(const arguments *a, conr *c, int size, conr_images **m, float **x,
                       int64_t *n, int64_t *d) {
    conr_images_options o = conr_images_defaults();
    conr_images_info before;
    const char *to = flag_text(a, "centroids");
    int rc;
    if ((rc = data_open(c, operand(a, 0), &o, m)) ||
        (rc = data_refuse_output(flag_text(a, "out"), NULL, *m)) ||
        (to && (rc = data_refuse_output(to, NULL, *m))))
        return rc;
    conr_images_about(*m, &before);
    if (conr_images_pixels(c, *m, size ? size : default_size(*m), x, n, d) < 0)
        return library_error();
    data_warn(*m, before.skipped);
    return EXIT_OK;
}

/* Neither output may be the input, a file of a run, or the other output. */
static int check_outputs(const arguments *a) {
    const char *out = flag_text(a, "out"), *to = flag_text(a, "centroids"), *src = operand(a, 0);
    int rc = data_refuse_output(out, is_matrix(src) ? src : NULL, NULL);
    if (rc || !to || (rc = data_refuse_output(to, is_matrix(src) ? src : NULL, NULL))) return rc;
    if (conr_check_output(to, out) < 0)
        return failed("--centroids %s: is the same file as --out; write to another one", to);
    return EXIT_OK;
}

/* Reads a matrix; if it is large and there are several ranks, only this one's part, *own of *n rows.
 * 0, or an exit code after a message. */
static int read_matrix(const arguments *a, const conr *c, int K, float **x, int64_t *own,
                       int64_t *n, int64_t *d) {
    int ranks, rank = conr_rank(&ranks);
    if (ranks > 1 && K > 0) {
        if (conr_read_features_part(operand(a, 0), rank, ranks, x, own, d, n) < 0)
            return library_error();
        if (conr_kmeans_is_large(c, *n, K)) return EXIT_OK;
        conr_free(*x);
        *x = NULL;
    }
    if (conr_read_features(operand(a, 0), x, n, d) < 0) return library_error();
    *own = *n;
    return EXIT_OK;
}

static int run(const arguments *a) {
    conr_kmeans_options o;
    int threads, low, high, size = 0, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = read_clusters(a, &low, &high)) || (rc = read_options(a, &o)) ||
        (rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (flag_on(a, "size") && (rc = flag_int(a, "size", 1, 1024, &size))) ||
        (rc = check_outputs(a)))
        return rc;
    conr *c = NULL;
    conr_images *m = NULL;
    float *x = NULL;
    int64_t n, d, own = 0;
    const char *src = operand(a, 0);
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    if (!is_matrix(src))
        rc = read_pixels(a, c, size, &m, &x, &n, &d);
    else
        rc = read_matrix(a, c, low == high ? low : 0, &x, &own, &n, &d);
    if (rc == EXIT_OK) {
        conr_set_together(c, 1);
        rc = cluster(a, c, m, x, m ? n : own, n, d, &o, low, high);
    }
    if (rc == EXIT_OK && m && !flag_on(a, "json") && conr_rank(NULL) == 0)
        rc = print_scores(m, flag_text(a, "out"));
    conr_free(x);
    conr_images_close(m);
    conr_close(c);
    return rc;
}

const verb verb_kmeans = {
    .name = "kmeans",
    .operands = "F.npy|SRC --clusters K --out L.npy|L.csv",
    .summary = "Run k-means on any feature matrix, or on raw pixels",
    .text =
        "Keeps the best of several runs from greedy k-means++ seeds.  The same seed gives the "
        "same\n"
        "labels for any number of threads.  Anything but a .npy file is taken as a source of\n"
        "images whose raw pixels are the features, as a baseline; if they have labels, prints "
        "NMI,\n"
        "ACC and ARI.  Images that cannot be read are left out, with a warning: row i is image i "
        "of\n"
        "conr info SRC --paths; --out L.csv names them: path,cluster.\n"
        "\nExample: conr kmeans features.npy --clusters auto:2-30 --out labels.npy\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .many = true,
    .run = run,
};
