/* sort.c: --sort-into, for cluster and assign. */
#include "sort.h"

#include "progress.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

int sort_check(const arguments *a) {
    const char *folder = flag_text(a, "sort-into");
    if (!folder && flag_on(a, "copy"))
        return usage_error("--copy: only works with --sort-into; give --sort-into DIR, too");
    if (folder && !*folder) return usage_error("--sort-into: is empty; give a folder");
    return folder && conr_sort_check(folder) < 0 ? library_error() : EXIT_OK;
}

int sort_images(const arguments *a, conr *c, conr_images *m, const int32_t *labels, int64_t n,
                int clusters) {
    const char *folder = flag_text(a, "sort-into");
    if (!folder) return EXIT_OK;
    run_make_parents(folder);
    if (conr_sort_images(c, m, labels, n, clusters, folder, flag_on(a, "copy")) < 0)
        return library_error();
    progress_end();
    if (!flag_on(a, "quiet") && !flag_on(a, "json"))
        fprintf(stderr, "%s: %lld images, in one folder per cluster\n", folder, (long long)n);
    return EXIT_OK;
}

int sort_run(const arguments *a, conr *c, conr_images *m, const char *run, int clusters) {
    if (!flag_on(a, "sort-into")) return EXIT_OK;
    char *path = path_in(run, "labels.csv");
    int64_t *wide = NULL, n = 0;
    int32_t *labels = NULL;
    int rc = conr_read_labels(path, "cluster", &wide, &n) < 0 ? library_error() : EXIT_OK;
    if (rc == EXIT_OK && !(labels = malloc((size_t)n * sizeof *labels)))
        rc = failed("%s: out of memory; close other programs", path);
    for (int64_t i = 0; rc == EXIT_OK && i < n; i++) labels[i] = (int32_t)wide[i];
    if (rc == EXIT_OK) rc = sort_images(a, c, m, labels, n, clusters);
    free(labels);
    conr_free(wide);
    free(path);
    return rc;
}
