/* run.c: a run folder as verbs see it. */
#include "run.h"

#include "data.h"
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIZES_SHOWN = 30 }; /* clusters, in text */

/* ---- state ----------------------------------------------------------------------------------- */

bool run_has(const char *run, const char *name) {
    struct stat about;
    char *path = path_in(run, name);
    bool is = stat(path, &about) == 0 && S_ISREG(about.st_mode);
    free(path);
    return is;
}

bool run_done(const char *run) { return run_has(run, "DONE"); }

bool run_begun(const char *run) {
    return run_done(run) || run_has(run, "options.yaml") || run_has(run, "checkpoint.safetensors");
}

/* A crash between two renames may leave only one of the other names. */
static const char *const checkpoints[] = {"checkpoint.safetensors", "checkpoint.new.safetensors",
                                          "checkpoint.previous.safetensors"};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

bool run_saved(const char *run) {
    bool saved = false;
    for (int i = 0; i < N_CHECKPOINTS; i++) saved = saved || run_has(run, checkpoints[i]);
    return saved && run_has(run, "options.yaml");
}

int run_refuse_begun(const char *run) {
    struct stat about;
    if (stat(run, &about) == 0 && !S_ISDIR(about.st_mode))
        return failed("%s: is a file; give a folder, which is created if missing", run);
    if (run_done(run))
        return failed("%s: holds a finished run; give another --out, or remove the folder", run);
    if (run_begun(run) && !run_has(run, "options.yaml"))
        return failed("%s: holds a checkpoint without its options.yaml; give another --out, or "
                      "remove the folder",
                      run);
    if (run_begun(run))
        return failed(
            "%s: holds an unfinished run; continue it with conr train --resume, give another "
            "--out, or remove the folder",
            run);
    return EXIT_OK;
}

void run_make_parents(const char *path) {
    char *part = path_in(path, "");
    for (char *c = part + 1; *c && c[1]; c++) {
        if (*c != '/') continue;
        *c = 0;
        mkdir(part, 0777);
        *c = '/';
    }
    free(part);
}

static bool is_gone(int error) { return error == ENOENT || error == ENOTDIR; }

int run_last_scores(const char *run, json_t **out) {
    char *path = path_in(run, "log.jsonl"), *line = NULL;
    size_t room = 0;
    bool scarce;
    int rc = EXIT_OK;
    *out = NULL;
    FILE *f = fopen(path, "r");
    bool broken = !f && !is_gone(errno);
    while (f && rc == EXIT_OK) {
        bool ended = getline(&line, &room, f) < 0;
        /* a read that fails in the middle of a line still yields its beginning; errno says why */
        broken = ferror(f) || (ended && !feof(f));
        if (ended || broken) break;
        if (!strstr(line, "\"nmi\"") && !strstr(line, "\"silhouette\"")) continue;
        json_t *object = json_read(line, &scarce); /* a truncated line is skipped */
        if (scarce) rc = failed("%s: out of memory; close other programs", path);
        if (!json_is_object(object)) {
            json_decref(object);
            continue;
        }
        json_decref(*out);
        *out = object;
    }
    if (broken)
        rc = failed("%s: cannot be read: %s; check the disk, and the limit on open files "
                    "(ulimit -n)",
                    path, strerror(errno));
    if (f && rc == EXIT_OK && conr_check_file(path) < 0) rc = library_error();
    if (rc != EXIT_OK) json_decref(*out), *out = NULL;
    free(line);
    free(path);
    if (f) fclose(f);
    return rc;
}

/* ---- training -------------------------------------------------------------------------------- */

int run_train(conr *c, const char *src, conr_images *m, const conr_settings *s,
              const conr_train_options *o, const char *again, conr_train_result *out, int *why) {
    conr_images_info before;
    conr_images_about(m, &before);
    run_make_parents(o->out);
    int code = conr_train(c, m, s, o, out);
    if (why) *why = code;
    progress_end();
    if (code == 0) {
        data_warn(m, before.skipped);
        return EXIT_OK;
    }
    /* some rank was interrupted, perhaps another one; rank 0 saves */
    if (code == CONR_ESTOPPED && conr_rank(NULL) > 0) return EXIT_INTERRUPTED;
    if (code != CONR_ESTOPPED || !run_saved(o->out)) return library_error();
    char *data = shell_word(src), *run = shell_word(o->out);
    if (again)
        failed("%s: stopped and saved; %s", o->out, again);
    else
        failed("%s: stopped and saved; continue with conr train --resume --data %s --out %s",
               o->out, data, run);
    free(data);
    free(run);
    return EXIT_INTERRUPTED;
}

/* ---- results --------------------------------------------------------------------------------- */

/* out [*K]: the number of images in each cluster, from labels.csv; *K grows if a label requires it,
 * and is 0 without that file.  Released by free.  0, or an exit code after a message. */
static int cluster_sizes(const char *run, int *K, int64_t **out) {
    int rc = EXIT_OK;
    struct stat about;
    char *path = path_in(run, "labels.csv");
    int64_t *labels = NULL, *size = NULL, n = 0, most = *K - 1;
    if (stat(path, &about) < 0 && is_gone(errno)) {
        most = -1;
    } else if (conr_read_labels(path, "cluster", &labels, &n) < 0) {
        rc = library_error();
    } else {
        for (int64_t i = 0; i < n; i++)
            if (labels[i] > most && labels[i] < 1000000) most = labels[i];
        size = calloc((size_t)most + 2, sizeof *size);
        if (!size) rc = failed("%s: out of memory; close other programs", path);
        for (int64_t i = 0; size && i < n; i++)
            if (labels[i] >= 0 && labels[i] <= most) size[labels[i]]++;
    }
    *K = (int)most + 1;
    *out = size;
    conr_free(labels);
    free(path);
    return rc;
}

/* Whether classes differ so much in size that plain accuracy would hide the small ones. */
static bool is_long_tailed(const conr_images *m) {
    conr_images_info i;
    int64_t count, low = INT64_MAX, high = 0;
    conr_images_about(m, &i);
    for (int k = 0; k < i.classes; k++) {
        conr_images_class(m, k, &count);
        if (count < low) low = count;
        if (count > high) high = count;
    }
    return high > 2 * low && i.classes > 1;
}

static void print_files(const char *run) {
    static const char *const names[] = {"labels.csv",        "embeddings.npy",   "centroids.npy",
                                        "model.safetensors", "head.safetensors", "report.html",
                                        "log.jsonl",         "options.yaml"};
    const char *between = ": ";
    print_name(run);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!run_has(run, names[i])) continue;
        printf("%s%s", between, names[i]);
        between = ", ";
    }
    putchar('\n');
}

static void print_sizes(const int64_t *size, int K) {
    if (K > 0) printf("sizes");
    for (int k = 0; k < K && k < SIZES_SHOWN; k++) printf(" %lld", (long long)size[k]);
    if (K > 0) puts(K > SIZES_SHOWN ? " ..." : "");
}

/* The built-in descriptor beside the training, and which of them is better. */
static void print_baseline(const conr_baseline *b) {
    const conr_baseline_side *d = &b->descriptor, *t = &b->training;
    if (b->images == 0) return;
    if (b->labeled) {
        printf("built-in descriptor, without training: NMI %.4f  ACC %.4f  ARI %.4f\n",
               d->scores.nmi, d->scores.acc, d->scores.ari);
    } else {
        printf("neighbors in the same cluster: %.3f; of the built-in descriptor, without training: "
               "%.3f\n",
               t->agreement, d->agreement);
        if (isfinite(t->confirmed) && isfinite(d->confirmed))
            printf("confirmed by the other's neighbors: %.3f; of the built-in descriptor: %.3f\n",
                   t->confirmed, d->confirmed);
    }
    if (b->descriptor_wins)
        puts("the training did not beat the built-in descriptor: train longer, or use --features "
             "hog");
}

/* agreement: NaN if it is not known. */
static int print_text(const char *run, const conr_images *m, const conr_train_result *r,
                      const int64_t *size, int K, double agreement) {
    char time[32], rate[32];
    if (r->labeled) {
        printf("NMI %.4f  ACC %.4f  ARI %.4f  20-NN %.4f", r->scores.nmi, r->scores.acc,
               r->scores.ari, r->knn);
        if (is_long_tailed(m)) printf("  balanced ACC %.4f", r->scores.balanced_acc);
        printf("\n%d clusters, %d classes\n", r->clusters, r->scores.classes);
    } else {
        printf("%d clusters", r->clusters);
        if (isfinite(r->silhouette)) printf(", silhouette %.4f", r->silhouette);
        if (isfinite(agreement)) printf(", neighbor agreement %.4f", agreement);
        putchar('\n');
        print_sizes(size, K);
    }
    print_baseline(&r->baseline);
    printf("%lld images, %d epochs, %s, %s images/s\n", (long long)r->images, r->epochs,
           time_text(r->seconds, time), rate_text(r->images_per_s, rate));
    print_files(run);
    return finish_output();
}

static json_t *add_sizes(json_t *object, const int64_t *size, int K) {
    json_t *sizes = json_array();
    for (int k = 0; k < K; k++) sizes = json_push(sizes, json_integer((json_int_t)size[k]));
    return json_put(object, "sizes", sizes);
}

static json_t *side_json(const conr_baseline_side *s, bool labeled) {
    json_t *out = json_pack("{so so so so}", "agreement", json_number(s->agreement), "confirmed",
                            json_number(s->confirmed), "silhouette", json_number(s->silhouette),
                            "stability", json_number(s->stability));
    if (!labeled) return out;
    out = json_put(out, "nmi", json_number(s->scores.nmi));
    out = json_put(out, "acc", json_number(s->scores.acc));
    return json_put(out, "ari", json_number(s->scores.ari));
}

static json_t *baseline_json(const conr_baseline *b) {
    if (b->images == 0) return json_null();
    json_t *out = json_pack("{sI sb}", "images", (json_int_t)b->images, "descriptor_wins",
                            b->descriptor_wins);
    out = json_put(out, "descriptor", side_json(&b->descriptor, b->labeled));
    return json_put(out, "training", side_json(&b->training, b->labeled));
}

static json_t *result_json(const char *run, const conr_images *m, const conr_train_result *r,
                           double agreement) {
    conr_images_info i;
    conr_images_about(m, &i);
    json_t *out = json_pack("{so si si sI sI sI so so so}", "run", json_name(run), "clusters",
                            r->clusters, "epochs", r->epochs, "steps", (json_int_t)r->steps,
                            "images", (json_int_t)r->images, "skipped", (json_int_t)i.skipped,
                            "seconds", json_number(r->seconds), "images_per_second",
                            json_number(r->images_per_s), "loss", json_number(r->loss));
    if (r->labeled) {
        out = json_put(out, "nmi", json_number(r->scores.nmi));
        out = json_put(out, "acc", json_number(r->scores.acc));
        out = json_put(out, "ari", json_number(r->scores.ari));
        out = json_put(out, "balanced_acc", json_number(r->scores.balanced_acc));
        out = json_put(out, "knn", json_number(r->knn));
        out = json_put(out, "classes", json_integer(r->scores.classes));
    }
    out = json_put(out, "silhouette", json_number(r->silhouette));
    out = json_put(out, "neighbor_agreement", json_number(agreement));
    return json_put(out, "baseline", baseline_json(&r->baseline));
}

int run_print(const char *run, const conr_images *m, const conr_train_result *r, bool json) {
    int64_t *size;
    json_t *scores;
    int K = r->clusters, rc = run_last_scores(run, &scores);
    if (rc) return rc;
    const json_t *found = json_object_get(scores, "neighbor_agreement");
    double agreement = json_is_number(found) ? json_number_value(found) : NAN;
    json_decref(scores);
    if ((rc = cluster_sizes(run, &K, &size))) return rc;
    if (json)
        rc = print_json(add_sizes(result_json(run, m, r, agreement), size, K));
    else
        rc = print_text(run, m, r, size, K, agreement);
    free(size);
    return rc;
}

static void print_made(const char *run, const conr_images *m, const conr_features_result *r,
                       const int64_t *size, int K) {
    char time[32];
    if (r->labeled) {
        printf("NMI %.4f  ACC %.4f  ARI %.4f  20-NN %.4f", r->scores.nmi, r->scores.acc,
               r->scores.ari, r->knn);
        if (m && is_long_tailed(m)) printf("  balanced ACC %.4f", r->scores.balanced_acc);
        printf("\n%d clusters, %d classes", r->clusters, r->scores.classes);
    } else {
        printf("%d clusters", r->clusters);
        if (isfinite(r->agreement)) printf(", neighbor agreement %.4f", r->agreement);
        if (isfinite(r->silhouette)) printf(", silhouette %.4f", r->silhouette);
    }
    printf("; by %s\n", !strcmp(r->method, "graph") ? "graph" : "k-means");
    if (!r->labeled) print_sizes(size, K);
    printf("%lld %s, %lld features each, %s\n", (long long)r->n, m ? "images" : "rows",
           (long long)r->d, time_text(r->seconds, time));
    print_files(run);
}

int run_print_features(const char *run, const conr_images *m, const conr_features_result *r,
                       const char *note, bool json) {
    int64_t *size;
    int K = r->clusters, rc = cluster_sizes(run, &K, &size);
    if (rc) return rc;
    if (!json) {
        print_made(run, m, r, size, K);
        if (note) puts(note);
        free(size);
        return finish_output();
    }
    json_t *out = json_pack("{so si ss sI sI so}", "run", json_name(run), "clusters", r->clusters,
                            "method", r->method, "n", (json_int_t)r->n, "d", (json_int_t)r->d,
                            "seconds", json_number(r->seconds));
    if (m) out = data_add_skipped(out, m);
    if (r->labeled) {
        out = json_put(out, "nmi", json_number(r->scores.nmi));
        out = json_put(out, "acc", json_number(r->scores.acc));
        out = json_put(out, "ari", json_number(r->scores.ari));
        out = json_put(out, "balanced_acc", json_number(r->scores.balanced_acc));
        out = json_put(out, "knn", json_number(r->knn));
        out = json_put(out, "classes", json_integer(r->scores.classes));
    }
    out = json_put(out, "silhouette", json_number(r->silhouette));
    out = json_put(out, "neighbor_agreement", json_number(r->agreement));
    if (note) out = json_put(out, "note", json_string(note));
    rc = print_json(add_sizes(out, size, K));
    free(size);
    return rc;
}

int run_print_finished(const char *run, bool json) {
    json_t *scores;
    int rc = run_last_scores(run, &scores);
    if (rc) return rc;
    if (json) {
        int64_t *size;
        int K = (int)json_integer_value(json_object_get(scores, "clusters"));
        if ((rc = cluster_sizes(run, &K, &size))) {
            json_decref(scores);
            return rc;
        }
        json_t *out = json_pack("{so sb}", "run", json_name(run), "finished", 1);
        if (scores) out = json_merge(out, scores);
        rc = print_json(add_sizes(out, size, K));
        free(size);
        return rc;
    }
    print_name(run);
    puts(" is already finished");
    if (json_object_get(scores, "nmi"))
        printf("NMI %.4f  ACC %.4f  ARI %.4f\n", json_number_value(json_object_get(scores, "nmi")),
               json_number_value(json_object_get(scores, "acc")),
               json_number_value(json_object_get(scores, "ari")));
    json_decref(scores);
    print_files(run);
    return finish_output();
}
