/* info.c: conr info: describes a source of images, or a run. */
#include "cli.h"

#include "conr.h"

#include "data.h"
#include "encoder.h"
#include "progress.h"
#include "recipe.h"
#include "run.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"paths", NULL, NULL, "print the path of every image that can be read, one per line"},
    {"paths0", NULL, NULL, "the same with a zero byte after each, for names with line breaks"},
    DATA_FLAGS,
    {0},
};

enum { CLASSES_SHOWN = 30, SKIPPED_SHOWN = 5 }; /* in text; --json lists more */

/* The images that cannot be read, by name. */
static void print_skipped(const conr_images *m, int64_t n) {
    const char *reason;
    for (int64_t i = 0; i < SKIPPED_SHOWN && (reason = conr_images_skipped(m, i)); i++) {
        printf(i ? "           " : "  skipped  ");
        print_name(reason);
        putchar('\n');
    }
    if (n > SKIPPED_SHOWN)
        printf("           and %lld more; --json lists them\n", (long long)(n - SKIPPED_SHOWN));
}

static void print_range(const char *what, const int range[2]) {
    if (range[0] == range[1])
        printf("%d %s", range[0], what);
    else
        printf("%d to %d %s", range[0], range[1], what);
}

static int print_text(const char *src, const conr_images *m, const conr_images_info *i) {
    print_name(src);
    printf(": %s\n  images   %lld", i->kind, (long long)i->n);
    if (i->skipped) printf(", and %lld that cannot be read", (long long)i->skipped);
    putchar('\n');
    print_skipped(m, i->skipped);
    printf("  size     ");
    print_range("wide", i->width);
    printf(", ");
    print_range("high", i->height);
    printf(", %s\n  classes  ", i->channels == 1 ? "gray" : "color");
    if (!i->classes) printf("none known");
    for (int k = 0; k < i->classes && k < CLASSES_SHOWN; k++) {
        int64_t count;
        const char *name = conr_images_class(m, k, &count);
        if (k == 0) printf("%d: ", i->classes);
        if (k > 0) printf(", ");
        print_name(name);
        printf(" %lld", (long long)count);
    }
    if (i->classes > CLASSES_SHOWN) printf(", ...");
    if (i->classes && i->labeled < i->n) printf("; %lld unlabeled", (long long)(i->n - i->labeled));
    putchar('\n');
    return finish_output();
}

static int print_as_json(const char *src, const conr_images *m, const conr_images_info *i) {
    json_t *classes = json_array();
    for (int k = 0; k < i->classes; k++) {
        int64_t count;
        const char *name = conr_images_class(m, k, &count);
        classes = json_push(
            classes, json_pack("{so sI}", "name", json_name(name), "count", (json_int_t)count));
    }
    json_t *first = i->first_skipped ? json_name(i->first_skipped) : json_null();
    return print_json(
        json_pack("{so ss sI sI sI so so s[ii] s[ii] si so}", "source", json_name(src), "kind",
                  i->kind, "images", (json_int_t)i->n, "labeled", (json_int_t)i->labeled, "skipped",
                  (json_int_t)i->skipped, "first_skipped", first, "skipped_files", data_skipped(m),
                  "width", i->width[0], i->width[1], "height", i->height[0], i->height[1],
                  "channels", i->channels, "classes", classes));
}

/* ---- --paths --------------------------------------------------------------------------------- */

/* Whole lines or nothing: a name with a line break would look like two. */
static int check_lines(conr_images *m, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const char *path = conr_images_path(m, i);
        if (strpbrk(path, "\n\r")) {
            char *word = shell_word(path);
            for (char *c = word; *c; c++)
                if (iscntrl((unsigned char)*c)) *c = '?';
            int rc = failed("%s: has a line break in its name; use --paths0 or --json", word);
            free(word);
            return rc;
        }
    }
    return EXIT_OK;
}

static int print_paths(const arguments *a, conr *c, conr_images *m) {
    static char what[] = "images";
    conr_images_info before, i;
    int rc;
    conr_images_about(m, &before);
    /* a header may be fine and the rest missing */
    if (conr_images_check(c, m, progress_count, what) < 0) return library_error();
    progress_end();
    data_warn(m, before.skipped);
    conr_images_about(m, &i);
    if (flag_on(a, "json")) {
        json_t *paths = json_array();
        for (int64_t k = 0; k < i.n; k++)
            paths = json_push(paths, json_name(conr_images_path(m, k)));
        return print_json(
            data_add_skipped(json_pack("{so sI so}", "source", json_name(operand(a, 0)), "images",
                                       (json_int_t)i.n, "paths", paths),
                             m));
    }
    bool zero = flag_on(a, "paths0");
    if (!zero && (rc = check_lines(m, i.n))) return rc;
    for (int64_t k = 0; k < i.n; k++) {
        fputs(conr_images_path(m, k), stdout);
        putchar(zero ? 0 : '\n');
    }
    return finish_output();
}

static int describe_source(conr *c, const arguments *a) {
    conr_images_options o;
    conr_images_info info;
    conr_images *m;
    int rc = data_options(a, &o);
    if (rc || (rc = data_open(c, operand(a, 0), &o, &m))) return rc;
    conr_images_about(m, &info);
    if (flag_on(a, "paths") || flag_on(a, "paths0"))
        rc = print_paths(a, c, m);
    else
        rc = flag_on(a, "json") ? print_as_json(operand(a, 0), m, &info)
                                : print_text(operand(a, 0), m, &info);
    conr_images_close(m);
    return rc;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void print_score(const json_t *scores, const char *key, const char *words) {
    const json_t *value = json_object_get(scores, key);
    if (json_is_number(value)) printf("  %s %.4f", words, json_number_value(value));
}

static void print_scores(const json_t *scores) {
    const json_t *epoch = json_object_get(scores, "epoch");
    if (!scores) {
        puts("  scores   none yet");
        return;
    }
    printf("  scores ");
    if (json_integer_value(epoch) > 0)
        printf("  epoch %lld:", (long long)json_integer_value(epoch));
    print_score(scores, "nmi", "NMI");
    print_score(scores, "acc", "ACC");
    print_score(scores, "ari", "ARI");
    print_score(scores, "knn", "20-NN");
    print_score(scores, "silhouette", "silhouette");
    print_score(scores, "neighbor_agreement", "neighbor agreement");
    putchar('\n');
}

static const char *state_of(const char *run) {
    return run_done(run)    ? "finished"
           : run_saved(run) ? "begun, can be resumed"
                            : "begun, no checkpoint yet";
}

/* model: NULL if there is none yet. */
static int print_run(const char *run, const conr_settings *s, const conr_model *model, bool json) {
    json_t *scores;
    conr_model_info i = {0};
    int rc = run_last_scores(run, &scores);
    if (rc) return rc;
    if (model) conr_model_about(model, &i);
    if (json) {
        json_t *about = model ? json_pack("{ss ss si si si si}", "encoder", i.encoder, "framework",
                                          i.framework, "size", i.size, "channels", i.channels,
                                          "features", i.features, "clusters", i.clusters)
                              : json_null();
        return print_json(json_pack("{so ss sb so so so}", "run", json_name(run), "state",
                                    state_of(run), "finished", run_done(run), "scores",
                                    scores ? scores : json_null(), "model", about, "settings",
                                    recipe_json(s)));
    }
    print_name(run);
    printf(": a run, %s\n", state_of(run));
    print_scores(scores);
    json_decref(scores);
    if (model)
        printf("  model    %s, %s, %dx%dx%d in, %d features out, %d clusters\n", i.encoder,
               i.framework, i.size, i.size, i.channels, i.features, i.clusters);
    puts("  settings that differ from the defaults");
    recipe_print_changed(s);
    return finish_output();
}

static int describe_run(conr *c, const arguments *a) {
    const char *run = operand(a, 0);
    char *path = path_in(run, "options.yaml");
    conr_settings *s = NULL;
    conr_model *model = NULL;
    int rc;
    if (conr_settings_new(&s) < 0 || conr_settings_read(s, path) < 0 ||
        (run_has(run, "model.safetensors") && conr_model_open(c, run, &model) < 0))
        rc = library_error();
    else
        rc = print_run(run, s, model, flag_on(a, "json"));
    conr_model_close(model);
    conr_settings_free(s);
    free(path);
    return rc;
}

/* ---- a run made from features ---------------------------------------------------------------- */

static json_t *made_json(const conr_clustering *k, const char *run, const json_t *scores) {
    conr_clustering_info i;
    const char *key, *value;
    json_t *settings = json_object();
    conr_clustering_about(k, &i);
    for (int j = 0; conr_clustering_setting(k, j, &key, &value); j++)
        settings = json_put(settings, key, json_name(value));
    return json_pack("{so ss sb sO? so}", "run", json_name(run), "state", "finished", "finished", 1,
                     "scores", scores, "made",
                     json_pack("{ss ss ss so sI sI sI si so}", "takes", i.takes, "method", i.method,
                               "refine", i.refine, "from", json_name(i.from), "n", (json_int_t)i.n,
                               "d", (json_int_t)i.d, "features", (json_int_t)i.width, "clusters",
                               i.clusters, "settings", settings));
}

static int print_made(const char *run, const conr_clustering *k, bool json) {
    json_t *scores;
    conr_clustering_info i;
    const char *key, *value;
    int rc = run_last_scores(run, &scores);
    if (rc) return rc;
    if (json) {
        json_t *o = made_json(k, run, scores);
        json_decref(scores);
        return print_json(o);
    }
    conr_clustering_about(k, &i);
    print_name(run);
    printf(": a run made from features, finished\n");
    print_scores(scores);
    print_score(scores, "neighbor_agreement", "       neighbor agreement");
    if (json_object_get(scores, "neighbor_agreement")) putchar('\n');
    json_decref(scores);
    printf("  clusters %d of %lld rows, by %s%s\n  takes    %s, %lld features each", i.clusters,
           (long long)i.n, !strcmp(i.method, "graph") ? "graph" : "k-means",
           !strcmp(i.refine, "conaff") ? ", refined by a head" : "",
           !strcmp(i.takes, "features")  ? "features"
           : !strcmp(i.takes, "hog")     ? "images, through the built-in descriptor"
           : !strcmp(i.takes, "encoder") ? "images, through the pretrained network"
                                         : "images, through the model",
           (long long)i.d);
    puts("\n  settings");
    for (int j = 0; conr_clustering_setting(k, j, &key, &value); j++) {
        printf("    %s: ", key);
        print_name(value);
        putchar('\n');
    }
    return finish_output();
}

static int describe_made(conr *c, const arguments *a) {
    conr_clustering *k = NULL;
    if (conr_clustering_open(c, operand(a, 0), &k) < 0) return library_error();
    int rc = print_made(operand(a, 0), k, flag_on(a, "json"));
    conr_clustering_close(k);
    return rc;
}

static int run(const arguments *a) {
    int threads, rc;
    conr_images_options o; /* of a source; mistakes are reported for a run, too */
    conr *c;
    bool is_run = run_has(operand(a, 0), "options.yaml");
    bool lines = flag_on(a, "paths"), zeros = flag_on(a, "paths0");
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) || (rc = data_options(a, &o))) return rc;
    if (lines && zeros) return usage_error("--paths: given with --paths0; leave one out");
    bool is_encoder = !is_run && conr_is_encoder(operand(a, 0));
    if (is_encoder && (lines || zeros))
        return usage_error("--paths: needs a source of images; %s is a network", operand(a, 0));
    if (is_run && (lines || zeros))
        return usage_error("--paths: needs a source of images; the paths of a run are in its "
                           "labels.csv");
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    int made = is_run ? conr_is_features_run(operand(a, 0)) : 0;
    rc = made < 0     ? library_error()
         : made       ? describe_made(c, a)
         : is_run     ? describe_run(c, a)
         : is_encoder ? encoder_describe(a, c)
                      : describe_source(c, a);
    conr_close(c);
    return rc;
}

const verb verb_info = {
    .name = "info",
    .operands = "RUN|SRC|W.safetensors",
    .summary = "Describe a source of images, a run or a pretrained network",
    .text =
        "SRC is one of\n"
        "  - a folder of JPEG, PNG or WebP images, flat or with one subfolder per class, with or\n"
        "    without train/ and val/ or test/ above them, or with Hugging Face's metadata.csv\n"
        "    or metadata.jsonl beside them\n"
        "  - a folder of CIFAR-10, CIFAR-100 or STL-10 binary files, or of Tiny-ImageNet\n"
        "  - IDX files, gzipped or not; a .npy array of uint8 [n,h,w] or [n,h,w,3]\n"
        "  - an archive, .zip or .tar, a folder of them, or several: 'shards/{000..012}.tar',\n"
        "    'a.tar,b.tar'\n"
        "  - a text file with one path per line, optionally followed by a tab and a label\n"
        "RUN is a run folder: prints its state, its latest scores and its settings.\n"
        "W.safetensors is a pretrained network: which one, and how images are prepared for it.\n"
        "--paths lists the images in the order of the rows that every other verb writes.  It "
        "decodes\n"
        "them all, since only that tells which can be read; the others are counted in a "
        "warning.\n"
        "\nExample: conr info photos/ --json\n"
        "         conr info photos/ --paths >paths.txt\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
