/* eval.c: conr eval: a clustering against true labels. */
#include "cli.h"

#include "conr.h"

#include <stdio.h>

static const flag flags[] = {
    {"truth", "T", NULL, "file of true labels: .npy of integers, or CSV"},
    {"pred", "P", NULL, "file of clusters, likewise"},
    {"truth-column", "NAME", NULL,
     "column of a CSV; default: cluster, label or pred, else the last"},
    {"pred-column", "NAME", NULL, "likewise, for --pred"},
    {0},
};

static int print_scores(const arguments *a, const conr_scores *s) {
    if (flag_on(a, "json"))
        return print_json(json_pack("{sf sf sf sI sI si si}", "nmi", s->nmi, "acc", s->acc, "ari",
                                    s->ari, "n", (json_int_t)s->n, "unlabeled",
                                    (json_int_t)s->unlabeled, "clusters", s->clusters, "classes",
                                    s->classes));
    printf("NMI %.4f  ACC %.4f  ARI %.4f\n", s->nmi, s->acc, s->ari);
    printf("%lld samples, %d clusters, %d classes", (long long)s->n, s->clusters, s->classes);
    if (s->unlabeled) printf("; %lld unlabeled samples left out", (long long)s->unlabeled);
    putchar('\n');
    return finish_output();
}

static int run(const arguments *a) {
    const char *truth_path = flag_text(a, "truth"), *pred_path = flag_text(a, "pred");
    if (!truth_path) return usage_error("--truth: is missing; give a file of labels");
    if (!pred_path) return usage_error("--pred: is missing; give a file of clusters");
    int64_t *truth = NULL, *pred = NULL, n_truth, n_pred;
    conr_scores scores;
    int rc;
    if (conr_read_labels(truth_path, flag_text(a, "truth-column"), &truth, &n_truth) < 0 ||
        conr_read_labels(pred_path, flag_text(a, "pred-column"), &pred, &n_pred) < 0) {
        rc = library_error();
    } else if (n_truth != n_pred) {
        fprintf(stderr, "conr: %s: %lld labels, but %s has %lld; give files of the same samples\n",
                pred_path, (long long)n_pred, truth_path, (long long)n_truth);
        rc = EXIT_FAILED;
    } else if (conr_metrics(truth, pred, n_truth, &scores) < 0) {
        rc = library_error();
    } else {
        rc = print_scores(a, &scores);
    }
    conr_free(truth);
    conr_free(pred);
    return rc;
}

const verb verb_eval = {
    .name = "eval",
    .operands = "--truth T --pred P",
    .summary = "Score a clustering against true labels: NMI, ACC and ARI",
    .text = "Labels can be any integers; samples whose true label is -1 are left out and counted.\n"
            "\nExample: conr eval --truth truth.npy --pred runs/photos/labels.csv\n",
    .flags = flags,
    .run = run,
};
