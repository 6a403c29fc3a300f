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
    return sort_named(a, c, m, labels, n, NULL, clusters);
}

int sort_named(const arguments *a, conr *c, conr_images *m, const int32_t *labels, int64_t n,
               const char *const *names, int clusters) {
    const char *folder = flag_text(a, "sort-into");
    int64_t sorted = 0;
    if (!folder) return EXIT_OK;
    run_make_parents(folder);
    int copy = flag_on(a, "copy");
    if ((names ? conr_sort_named(c, m, labels, n, names, clusters, folder, copy)
               : conr_sort_images(c, m, labels, n, clusters, folder, copy)) < 0)
        return library_error();
    progress_end();
    for (int64_t i = 0; i < n; i++) sorted += labels[i] >= -2;
    if (!flag_on(a, "quiet") && !flag_on(a, "json"))
        fprintf(stderr, "%s: %lld images, in one folder per cluster\n", folder, (long long)sorted);
    return EXIT_OK;
}

/* The labels of the images as conr_sort_named takes them; -3: not one of the run. */
static void labels_of(const conr_edits *e, const int64_t *at, int64_t n, int64_t images,
                      int32_t *labels) {
    for (int64_t i = 0; i < images; i++) labels[i] = -3;
    for (int64_t i = 0; i < n; i++)
        if (at[i] >= 0)
            labels[at[i]] =
                conr_edits_marks(e)[i] ? -(int)conr_edits_marks(e)[i] : conr_edits_labels(e)[i];
}

static int sort_edited(const arguments *a, conr *c, const char *run) {
    conr_edits *e = NULL;
    conr_edits_info about;
    conr_images *m = NULL;
    conr_images_info images;
    int64_t *at = NULL, n = 0;
    int32_t *labels = NULL;
    const char **names = NULL;
    int rc = EXIT_OK;
    if (conr_edits_open(run, 1, &e) < 0 || conr_run_images(c, run, NULL, &m, &at, &n) < 0) {
        rc = library_error();
        goto done;
    }
    conr_edits_about(e, &about);
    conr_images_about(m, &images);
    labels = malloc((size_t)images.n * sizeof *labels);
    names = malloc((size_t)about.next * sizeof *names);
    if (!labels || !names) {
        rc = failed("%s: out of memory; close other programs", run);
        goto done;
    }
    labels_of(e, at, n, images.n, labels);
    for (int k = 0; k < about.next; k++) names[k] = conr_edits_name(e, k);
    if ((rc = sort_named(a, c, m, labels, images.n, names, about.next)) || !flag_on(a, "json"))
        goto done;
    for (int64_t i = n = 0; i < images.n; i++) n += labels[i] >= -2;
    rc = print_json(json_pack("{so so sI}", "run", json_name(run), "sorted_into",
                              json_name(flag_text(a, "sort-into")), "n", (json_int_t)n));
done:
    free(labels), free(names);
    conr_free(at);
    conr_images_close(m);
    conr_edits_close(e);
    return rc;
}

int sort_finished(const arguments *a, const char *run) {
    conr *c = NULL;
    int threads, rc;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) || (rc = sort_check(a))) return rc;
    if (conr_open("cpu", threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    rc = sort_edited(a, c, run);
    conr_close(c);
    return rc;
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
