/* kmeans.c: conr kmeans: clusters of any feature matrix. */
#include "cli.h"

#include "conr.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"clusters", "K", NULL, "how many; auto or auto:LOW-HIGH estimates it"},
    {"out", "L.npy", NULL, "where the labels go: int32 [n]"},
    {"centroids", "C.npy", NULL, "where the centroids go, if wanted: float32 [K,d]"},
    {"metric", "NAME", "cosine", "cosine or euclidean"},
    {"restarts", "N", "10", "the best of so many runs"},
    {"iterations", "N", "300", "of one run, at most"},
    {0},
};

/* --clusters: a number, or auto with a range (2-50 unless given): then low < high. */
static int read_clusters(const arguments *a, int *low, int *high) {
    const char *text = flag_text(a, "clusters");
    char end;
    if (!text) return usage_error("--clusters: is missing; give a number or auto");
    if (!strcmp(text, "auto")) {
        *low = 2, *high = 50;
        return 0;
    }
    if (sscanf(text, "auto:%d-%d%c", low, high, &end) == 2 && *low >= 1 && *low < *high) return 0;
    int rc = strncmp(text, "auto", 4)
                 ? flag_int(a, "clusters", 1, 1 << 30, low)
                 : usage_error("--clusters %s: not a range; give auto:LOW-HIGH, LOW from 1", text);
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
    if (end == seed || *end) return usage_error("--seed %s: not a whole number; correct it", seed);
    o->metric = strcmp(metric, "euclidean") ? CONR_COSINE : CONR_EUCLIDEAN;
    if (o->metric == CONR_COSINE && strcmp(metric, "cosine"))
        return usage_error("--metric %s: unknown; give cosine or euclidean", metric);
    return 0;
}

/* Clusters the features and writes what was asked for. */
static int cluster(const arguments *a, conr *c, const float *x, int64_t n, int64_t d,
                   conr_kmeans_options *o, int low, int high) {
    conr_kmeans_history history = {0};
    float *centroids = NULL;
    int32_t *labels = NULL;
    int rc = EXIT_FAILED;
    const char *to = flag_text(a, "centroids");
    o->clusters = low;
    if (low != high && conr_choose_clusters(c, x, n, d, o, low, high, &o->clusters, NULL) < 0)
        return library_error();
    /* a K beyond n is for the library to refuse, before any of this is used */
    int64_t room = o->clusters < n ? o->clusters : n;
    centroids = malloc((size_t)(room * d) * sizeof *centroids);
    labels = malloc((size_t)n * sizeof *labels);
    if (!centroids || !labels) {
        fprintf(stderr, "conr: %s: no memory for the result; close other programs\n",
                operand(a, 0));
        goto done;
    }
    if (conr_kmeans(c, x, n, d, o, centroids, labels, &history) < 0 ||
        (to && conr_write_floats(to, centroids, o->clusters, d) < 0) ||
        conr_write_ints(flag_text(a, "out"), labels, n, 0) < 0) {
        rc = library_error();
        goto done;
    }
    rc = EXIT_OK;
    if (flag_on(a, "json"))
        rc = print_json(json_pack("{ss sI sI si sf si sI}", "out", flag_text(a, "out"), "n",
                                  (json_int_t)n, "d", (json_int_t)d, "clusters", o->clusters,
                                  "objective", history.objective, "iterations", history.steps,
                                  "seed", (json_int_t)o->seed));
    else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %d clusters of %lld rows, objective %.9g, seed %llu\n",
                flag_text(a, "out"), o->clusters, (long long)n, history.objective,
                (unsigned long long)o->seed);
done:
    conr_kmeans_history_free(&history);
    free(centroids);
    free(labels);
    return rc;
}

static int run(const arguments *a) {
    conr_kmeans_options o;
    int threads, low, high, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = read_clusters(a, &low, &high)) || (rc = read_options(a, &o)) ||
        (rc = flag_int(a, "threads", 0, 1024, &threads)))
        return rc;
    conr *c = NULL;
    float *x = NULL;
    int64_t n, d;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0 ||
        conr_read_features(operand(a, 0), &x, &n, &d) < 0)
        rc = library_error();
    else
        progress_start(c, a), rc = cluster(a, c, x, n, d, &o, low, high);
    conr_free(x);
    conr_close(c);
    return rc;
}

const verb verb_kmeans = {
    .name = "kmeans",
    .operands = "F.npy --clusters K --out L.npy",
    .summary = "k-means of any feature matrix",
    .text = "The best of several runs from greedy k-means++.  The same seed gives the same labels\n"
            "for any number of threads.\n"
            "\nExample: conr kmeans features.npy --clusters auto:2-30 --out labels.npy\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
