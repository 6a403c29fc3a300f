/* eval.c: conr eval: a clustering against true labels. */
#include "cli.h"

#include "conr.h"

#include <stdio.h>

static const flag flags[] = {
    {"truth", "T", NULL, "file of true labels: .npy of integers, or CSV, such as path,label"},
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
    int64_t *truth = NULL, *pred = NULL, n;
    conr_scores scores;
    int rc;
    if (conr_read_pair(truth_path, flag_text(a, "truth-column"), pred_path,
                       flag_text(a, "pred-column"), &truth, &pred, &n) < 0 ||
        conr_metrics(truth, pred, n, &scores) < 0)
        rc = library_error();
    else
        rc = print_scores(a, &scores);
    conr_free(truth);
    conr_free(pred);
    return rc;
}

const verb verb_eval = {
    .name = "eval",
    .operands = "--truth T --pred P",
    .summary = "Score a clustering against true labels: NMI, ACC and ARI",
    .text =
        "Rows of two CSV files that both have a column path are matched by it, whatever their "
        "order;\n"
        "other files must list the same samples in the same order.\n"
        "Labels can be any integers, or words in a CSV; samples whose true label is -1 or empty\n"
        "are left out and counted.\n"
        "\nExample: conr eval --truth truth.csv --pred runs/photos/labels.csv\n",
    .flags = flags,
    .run = run,
};
