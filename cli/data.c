/* data.c: the flags that select images, and opening them. */
#include "data.h"

#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int data_options(const arguments *a, conr_images_options *out) {
    const char *labels = flag_text(a, "labels");
    *out = conr_images_defaults();
    if (strcmp(labels, "fine") && strcmp(labels, "coarse"))
        return usage_error("--labels %s: no such labels; give fine or coarse", labels);
    out->split = flag_text(a, "split");
    out->classes = flag_text(a, "classes");
    out->coarse = !strcmp(labels, "coarse");
    return flag_number(a, "long-tail", 1, 1e6, &out->long_tail);
}

void data_warn(const conr_images *m, int64_t skipped) {
    conr_images_info i;
    conr_images_about(m, &i);
    if (i.skipped <= skipped) return;
    progress_end();
    fprintf(stderr, "conr: warning: %lld of %lld images were skipped; the first: %s\n",
            (long long)i.skipped, (long long)(i.n + i.skipped),
            i.first_skipped ? i.first_skipped : "damaged");
}

int data_open(conr *c, const char *src, const conr_images_options *o, conr_images **out) {
    static char what[] = "headers";
    if (conr_images_open(c, src, o, progress_count, what, out) < 0) return library_error();
    progress_end();
    data_warn(*out, 0);
    return EXIT_OK;
}

int data_refuse_output(const char *out, const char *input, const conr_images *m) {
    if (conr_check_output(out, input) < 0 || (m && conr_images_check_output(m, out) < 0))
        return library_error();
    return EXIT_OK;
}

int data_embed_features(conr *c, const conr_clustering *k, const char *run, const char *file,
                        float **rows, int64_t *n) {
    conr_clustering_info about;
    struct stat at;
    float *x = NULL;
    int64_t d;
    int rc = EXIT_OK;
    size_t length = strlen(file);
    bool is_npy = length > 4 && !strcmp(file + length - 4, ".npy");
    *rows = NULL;
    conr_clustering_about(k, &about);
    if (stat(file, &at) == 0 && (S_ISDIR(at.st_mode) || !is_npy))
        return failed("%s: not features, but %s was made from features of another program (%s); "
                      "give the features of these images, as a .npy file",
                      file, run, *about.from ? about.from : "an array");
    if (conr_read_features(file, &x, n, &d) < 0) return library_error();
    *rows = malloc((size_t)*n * (size_t)about.width * sizeof **rows);
    if (!*rows)
        rc = failed("%s: out of memory; close other programs", file);
    else if (conr_clustering_embed(c, k, x, *n, d, *rows) < 0)
        rc = library_error();
    conr_free(x);
    if (rc) free(*rows), *rows = NULL;
    return rc;
}

json_t *data_skipped(const conr_images *m) {
    const char *reason;
    json_t *all = json_array();
    for (int64_t i = 0; (reason = conr_images_skipped(m, i)); i++)
        all = json_push(all, json_name(reason));
    return all;
}

json_t *data_add_skipped(json_t *object, const conr_images *m) {
    conr_images_info i;
    conr_images_about(m, &i);
    object = json_put(object, "skipped", json_integer((json_int_t)i.skipped));
    object = json_put(object, "first_skipped",
                      i.first_skipped ? json_name(i.first_skipped) : json_null());
    return json_put(object, "skipped_files", data_skipped(m));
}
