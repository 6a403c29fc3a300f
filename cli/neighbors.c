/* neighbors.c: conr neighbors: neighbor lists of any feature matrix. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"out", "N.npy", NULL, "the file to write: int32 [n,k], best first, the row itself first"},
    {"k", "N", "10", "neighbors per row, including itself"},
    {"k1", "N", "10", "neighbors that form the graph"},
    {"k2", "N", "2", "neighbors that pass messages, including the row itself"},
    {"alpha", "A", "2", "exponent of the similarities in message passing"},
    {"layers", "N", "2", "layers of message passing"},
    {"no-resymmetrize", NULL, NULL, "do not resymmetrize the graph between layers"},
    {"recall", "R", "auto",
     "share of the nearest neighbors to find, 1: all; auto: all up to 100,000 rows, then .99"},
    {"metric", "NAME", "conaff", "conaff; euclidean: plain nearest neighbors of the unit rows"},
    {0},
};

enum { MOST = 1 << 30 };

static int read_options(const arguments *a, conr_neighbors_options *o) {
    int rc;
    const char *metric = flag_text(a, "metric");
    *o = conr_neighbors_defaults();
    if ((rc = flag_int(a, "k", 1, MOST, &o->k)) || (rc = flag_int(a, "k1", 1, MOST, &o->k1)) ||
        (rc = flag_int(a, "k2", 1, MOST, &o->k2)) ||
        (rc = flag_int(a, "layers", 0, 100, &o->layers)) ||
        (rc = flag_number(a, "alpha", 0, 1000, &o->alpha)))
        return rc;
    if (strcmp(flag_text(a, "recall"), "auto")) {
        if ((rc = flag_number(a, "recall", 0, 1, &o->recall))) return rc;
        if (o->recall == 0) return usage_error("--recall 0: finds nothing; give more, up to 1");
    }
    o->resymmetrize = !flag_on(a, "no-resymmetrize");
    o->local = !strcmp(metric, "euclidean");
    if (!o->local && strcmp(metric, "conaff"))
        return usage_error("--metric %s: no such metric; give conaff or euclidean", metric);
    return 0;
}

static int run(const arguments *a) {
    conr_neighbors_options o;
    int threads, rc;
    const char *out = flag_text(a, "out");
    if (!out) return usage_error("--out: is missing; give the file to write");
    if ((rc = read_options(a, &o)) || (rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (rc = data_refuse_output(out, operand(a, 0), NULL)))
        return rc;

    conr *c = NULL;
    float *x = NULL;
    int32_t *ids = NULL;
    int64_t n, d;
    rc = EXIT_FAILED;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0 ||
        conr_read_features(operand(a, 0), &x, &n, &d) < 0) {
        rc = library_error();
        goto done;
    }
    progress_start(c, flag_on(a, "quiet"));
    conr_set_together(c, 1);
    int64_t k = o.k < n ? o.k : n;
    ids = malloc((size_t)(n * k) * sizeof *ids);
    if (!ids) {
        fprintf(stderr, "conr: %s: out of memory; give a smaller --k\n", operand(a, 0));
        goto done;
    }
    if (conr_neighbors(c, x, n, d, &o, ids) < 0 ||
        (conr_rank(NULL) == 0 && conr_write_ints(out, ids, n, k) < 0)) {
        rc = library_error();
        goto done;
    }
    rc = EXIT_OK;
    if (flag_on(a, "json"))
        rc = print_json(json_pack("{so sI sI sI ss}", "out", json_name(out), "n", (json_int_t)n,
                                  "d", (json_int_t)d, "k", (json_int_t)k, "metric",
                                  flag_text(a, "metric")));
    else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld lists of %lld neighbors\n", out, (long long)n, (long long)k);
done:
    free(ids);
    conr_free(x);
    conr_close(c);
    return rc;
}

const verb verb_neighbors = {
    .name = "neighbors",
    .operands = "F.npy --out N.npy",
    .summary = "Find contextually affinitive neighbors in any feature matrix",
    .text =
        "Rows that share the neighbors of their neighbors rank above rows that are merely close.\n"
        "For any number of rows n; k, k1 and k2 are limited to n.  Up to 100,000 rows, or with\n"
        "--recall 1, all pairs are compared; beyond, cells of similar rows, as many as finding "
        "the\n"
        "share --recall takes, which is measured on rows that are searched exactly.\n"
        "\nExample: conr neighbors features.npy --out neighbors.npy --k 20 --k1 30 --k2 10\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .many = true,
    .run = run,
};
