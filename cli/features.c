/* features.c: conr cluster with features in place of a training, and what other verbs share of it. */
#include "features.h"

#include "data.h"
#include "encoder.h"
#include "paths.h"
#include "progress.h"
#include "recipe.h"
#include "run.h"
#include "sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags ----------------------------------------------------------------------------------- */

bool features_wanted(const arguments *a) {
    const char *src = operand(a, 0);
    return flag_on(a, "features") || (flag_on(a, "encoder") && !flag_on(a, "train")) ||
           (src && run_has(src, "options.yaml"));
}

static const char *const keys[] = {"k",      "k1",           "k2",       "alpha",
                                   "layers", "resymmetrize", "restarts", NULL};

bool features_has_key(const char *key) {
    for (int i = 0; keys[i]; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

int features_check_flags(const arguments *a, bool again) {
    const char *pair, *what = again                    ? "a run that is clustered again"
                              : flag_on(a, "features") ? "--features"
                                                       : "--encoder";
    if (flag_on(a, "recipe"))
        return usage_error("--recipe: is for a training; leave it out with %s", what);
    for (int i = 0; (pair = flag_nth(a, "set", i)); i++) {
        char key[SETTING_SIZE];
        int n = pair_key("set", pair);
        if (n < 0) return EXIT_USAGE;
        snprintf(key, sizeof key, "%.*s", n, pair);
        if (!features_has_key(key))
            return usage_error("--set %s: no setting of clusters of features; k, k1, k2, alpha, "
                               "layers, resymmetrize and restarts are",
                               pair);
    }
    if (flag_on(a, "paths") && (again || !flag_on(a, "features")))
        return usage_error("--paths: names the rows of a file; give --features F.npy, too");
    if (again && flag_on(a, "refine") && !strcmp(flag_text(a, "refine"), "conaff"))
        return usage_error("--refine %s: nothing is trained when a run is clustered again; give "
                           "--features RUN/embeddings.npy to refine them",
                           flag_text(a, "refine"));
    return EXIT_OK;
}

bool features_has_word(const char *key) { return !strcmp(key, "method") || !strcmp(key, "refine"); }

int features_set_word(const char *key, const char *value, conr_features_options *o) {
    static const char *const methods[] = {"kmeans", "graph", "auto", NULL};
    static const char *const refines[] = {"none", "conaff", "auto", NULL};
    const char *const *list = !strcmp(key, "method") ? methods : refines;
    for (int i = 0; list[i]; i++)
        if (!strcmp(value, list[i])) {
            *(list == methods ? &o->method : &o->refine) = list[i];
            return EXIT_OK;
        }
    return usage_error("--%s %s: no such word; see conr help cluster", key, value);
}

/* Whether the key was given: a default of trainings is none of the head or the graph. */
static bool is_given(const arguments *a, const char *key, bool grid) {
    const char *pair;
    size_t n = strlen(key);
    for (int i = 0; grid && (pair = flag_nth(a, "grid", i)); i++)
        if (!strncmp(pair, key, n) && pair[n] == '=') return true;
    return recipe_names(a, key);
}

int features_options(const arguments *a, const conr_settings *s, bool grid,
                     conr_features_options *o) {
    char text[SETTING_SIZE];
    int rc;
    *o = conr_features_defaults();
    conr_neighbors_options *near = &o->neighbors;
    if (flag_on(a, "method") && (rc = features_set_word("method", flag_text(a, "method"), o)))
        return rc;
    if (flag_on(a, "refine") && (rc = features_set_word("refine", flag_text(a, "refine"), o)))
        return rc;
    o->clusters = (int)setting_number(s, "clusters");
    o->low = (int)setting_number(s, "clusters_low");
    o->high = (int)setting_number(s, "clusters_high");
    o->restarts = (int)setting_number(s, "restarts");
    o->seed = (uint64_t)setting_number(s, "seed");
    if (is_given(a, "k", grid)) near->k = (int)setting_number(s, "k");
    if (is_given(a, "k1", grid)) near->k1 = (int)setting_number(s, "k1");
    if (is_given(a, "k2", grid)) near->k2 = (int)setting_number(s, "k2");
    if (is_given(a, "layers", grid)) near->layers = (int)setting_number(s, "layers");
    if (is_given(a, "alpha", grid)) near->alpha = setting_number(s, "alpha");
    if (is_given(a, "resymmetrize", grid))
        near->resymmetrize = !strcmp(setting_text(s, "resymmetrize", text), "true");
    return EXIT_OK;
}

/* ---- rows and images ------------------------------------------------------------------------- */

void features_close(features *f) {
    conr_images_close(f->images);
    conr_encoder_close(f->encoder);
    conr_free(f->rows);
    *f = (features){0};
}

static int64_t images_of(const features *f) {
    conr_images_info i;
    conr_images_about(f->images, &i);
    return i.n;
}

/* Drops the images whose pixels cannot be read: what is left is what info --paths lists. */
static int check_images(conr *c, features *f) {
    static char what[] = "images";
    conr_images_info before;
    conr_images_about(f->images, &before);
    if (conr_images_check(c, f->images, progress_count, what) < 0) return library_error();
    progress_end();
    data_warn(f->images, before.skipped);
    return EXIT_OK;
}

/* Rows in the order of the images: as many as there are.  Images that only decoding shows to be
 * unreadable are in no list that conr made. */
static int check_count(const arguments *a, conr *c, features *f) {
    int rc;
    if (f->n < images_of(f) && (rc = check_images(c, f))) return rc;
    if (f->n == images_of(f)) return EXIT_OK;
    return failed("%s: %lld rows for %lld images; give one row per image in the order of conr info "
                  "SRC --paths, or --paths P.txt with the image of each row",
                  flag_text(a, "features"), (long long)f->n, (long long)images_of(f));
}

/* Puts rows into the order of the images: row i belongs to image at[i]. */
static int reorder(features *f, const int64_t *at) {
    size_t bytes = (size_t)f->d * sizeof *f->rows;
    bool *placed = calloc((size_t)f->n, 1);
    float *held = malloc(2 * bytes), *next = held ? held + f->d : NULL;
    if (!placed || !held) {
        free(placed), free(held);
        return failed("--paths: out of memory; close other programs");
    }
    for (int64_t i = 0; i < f->n; i++) { /* cycle by cycle, in place */
        if (placed[i]) continue;
        memcpy(held, f->rows + i * f->d, bytes);
        for (int64_t from = i; !placed[from];) {
            int64_t to = at[from];
            memcpy(next, f->rows + to * f->d, bytes);
            memcpy(f->rows + to * f->d, held, bytes);
            memcpy(held, next, bytes);
            placed[from] = true;
            from = to;
        }
    }
    free(placed), free(held);
    return EXIT_OK;
}

static int match_rows(const arguments *a, conr *c, features *f) {
    const char *file = flag_text(a, "paths");
    paths p;
    int64_t *at = NULL, missing = 0, first;
    int rc = paths_read(file, &p);
    if (rc == EXIT_OK && p.n != f->n)
        rc = failed("%s: %lld paths for the %lld rows of %s; give one per row", file,
                    (long long)p.n, (long long)f->n, flag_text(a, "features"));
    if (rc == EXIT_OK && !(at = malloc((size_t)p.n * sizeof *at)))
        rc = failed("%s: out of memory; close other programs", file);
    if (rc == EXIT_OK) rc = paths_match(file, &p, f->images, images_of(f), at, &missing, &first);
    if (rc == EXIT_OK && missing && (rc = check_images(c, f)) == EXIT_OK)
        rc = paths_match(file, &p, f->images, images_of(f), at, &missing, &first);
    if (rc == EXIT_OK && missing)
        rc = failed("%s: has no path for %lld of the images, the first is %s; add their rows, or "
                    "give %s itself as the images",
                    file, (long long)missing, conr_images_path(f->images, first), file);
    if (rc == EXIT_OK) rc = reorder(f, at);
    free(at);
    paths_free(&p);
    return rc;
}

int features_open(const arguments *a, conr *c, const char *src, features *f) {
    const char *file = flag_text(a, "features");
    bool made = !file || !strcmp(file, "hog"); /* by the library, from images */
    int rc;
    *f = (features){0};
    if ((rc = data_options(a, &f->selection))) return rc;
    if (!file && (rc = encoder_open(a, c, flag_text(a, "encoder"), &f->encoder))) return rc;
    if (!made && conr_read_features(file, &f->rows, &f->n, &f->d) < 0) return library_error();
    if (src && (rc = data_open(c, src, &f->selection, &f->images))) return rc;
    if (made || !src) return EXIT_OK;
    return flag_on(a, "paths") ? match_rows(a, c, f) : check_count(a, c, f);
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Names for rows without images. */
static int read_names(const arguments *a, const features *f, paths *p) {
    *p = (paths){0};
    if (f->images || !flag_on(a, "paths")) return EXIT_OK;
    int rc = paths_read(flag_text(a, "paths"), p);
    if (rc == EXIT_OK && p->n != f->n)
        rc = failed("%s: %lld paths for the %lld rows of %s; give one per row",
                    flag_text(a, "paths"), (long long)p->n, (long long)f->n,
                    flag_text(a, "features"));
    return rc;
}

int features_run(const arguments *a, conr *c, features *f, conr_features_options *o,
                 conr_features_result *result, int *why) {
    paths names = {0};
    conr_images_info before = {0};
    int rc = read_names(a, f, &names), code = 0;
    if (rc == EXIT_OK) {
        run_make_parents(o->out);
        o->from = f->rows ? flag_text(a, "features") : NULL;
        o->encoder = f->encoder;
        o->selection = f->selection;
        if (f->images) conr_images_about(f->images, &before);
        code = conr_cluster_features(c, f->images, f->rows, f->n, f->d,
                                     (const char *const *)names.line, o, result);
        progress_end();
        if (code < 0) rc = library_error();
    }
    if (why) *why = code;
    if (rc == EXIT_OK && f->images) data_warn(f->images, before.skipped);
    paths_free(&names);
    return rc;
}

static int cluster_rows(const arguments *a, conr *c, conr_features_options *o) {
    features f = {0};
    conr_features_result result;
    int rc = features_open(a, c, operand(a, 0), &f);
    if (rc == EXIT_OK) rc = features_run(a, c, &f, o, &result, NULL);
    if (rc == EXIT_OK && f.images) rc = sort_run(a, c, f.images, o->out, result.clusters);
    if (rc == EXIT_OK) rc = run_print_features(o->out, f.images, &result, NULL, flag_on(a, "json"));
    if (rc == EXIT_OK && f.images && !flag_on(a, "json") && !flag_on(a, "quiet")) {
        char *run = shell_word(o->out);
        fprintf(stderr, "to look at the clusters, name and correct them: conr open %s\n", run);
        free(run);
    }
    features_close(&f);
    return rc;
}

static int cluster_again(const arguments *a, conr *c, conr_features_options *o) {
    conr_features_result result;
    run_make_parents(o->out);
    if (conr_cluster_again(c, operand(a, 0), o, &result) < 0) return library_error();
    progress_end();
    return run_print_features(o->out, NULL, &result, NULL, flag_on(a, "json"));
}

static int check_verb(const arguments *a, bool again) {
    const char *out = flag_text(a, "out"), *file = flag_text(a, "features"), *src = operand(a, 0);
    int rc;
    bool encoder = flag_on(a, "encoder");
    if (again && (file || encoder))
        return usage_error("--%s: %s is a run, whose embeddings are clustered; leave it out, "
                           "or give images",
                           file ? "features" : "encoder", src);
    if (file && encoder)
        return usage_error("--encoder: given with --features; leave one of them out");
    if (encoder && !src) return usage_error("--encoder: needs images; give SRC, too");
    if ((rc = encoder_check_flags(a, encoder))) return rc;
    if (flag_on(a, "budget"))
        return usage_error("--budget: is for a training; leave it out with %s",
                           again  ? "a run that is clustered again"
                           : file ? "--features"
                                  : "--encoder");
    if ((rc = features_check_flags(a, again))) return rc;
    if (file && !strcmp(file, "hog") && !src)
        return usage_error("--features hog: describes images; give SRC, too");
    if (file && !strcmp(file, "hog") && flag_on(a, "paths"))
        return usage_error("--paths: names the rows of a file; leave it out with --features hog");
    if (flag_on(a, "sort-into") && (again || !src))
        return usage_error("--sort-into: needs the images; %s",
                           again ? "conr assign RUN SRC --sort-into DIR sorts them" : "give SRC");
    if ((rc = sort_check(a))) return rc;
    if (run_done(out))
        return failed("%s: holds a finished run; give another --out, or remove the folder", out);
    return EXIT_OK;
}

int features_cluster(const arguments *a) {
    conr *c = NULL;
    conr_settings *s = NULL;
    conr_features_options o;
    const char *src = operand(a, 0);
    bool again = src && run_has(src, "options.yaml");
    int threads, rc;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) || (rc = check_verb(a, again))) return rc;
    if (conr_settings_new(&s) < 0) return library_error();
    if ((rc = recipe_flags(a, s)) == EXIT_OK && (rc = recipe_sets(a, s)) == EXIT_OK)
        rc = features_options(a, s, false, &o);
    conr_settings_free(s);
    if (rc) return rc;
    o.out = flag_text(a, "out");
    o.no_report = flag_on(a, "no-report");
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    rc = again ? cluster_again(a, c, &o) : cluster_rows(a, c, &o);
    conr_close(c);
    return rc;
}
