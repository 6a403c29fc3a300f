/* cluster.c: conr cluster: the main verb, with settings chosen to suit the images and the device.
 *
 * The library chooses.  The settings are printed with the reasons and written to the options.yaml
 * of the run; --set overrides each of them. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "encoder.h"
#include "features.h"
#include "progress.h"
#include "recipe.h"
#include "run.h"
#include "sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"clusters", "K", NULL, "number of clusters; auto or auto:LOW-HIGH: estimate it after stage 1"},
    {"out", "RUN", NULL, "the run folder to create"},
    {"budget", "TIME", NULL, "choose the number of epochs to take about this long: 10m, 2h"},
    FEATURES_FLAGS,
    ENCODER_FLAGS,
    {"train", NULL, NULL, "with --encoder, of a ResNet: train it further, from its weights"},
    SORT_FLAGS,
    RECIPE_FLAGS,
    DATA_FLAGS,
    {"reset-edits", NULL, NULL, "take back what was edited in RUN (conr open), and nothing else"},
    {"no-report", NULL, NULL, "do not write RUN/report.html"},
    {0},
};

#define ENCODER_KEYS " encoder width stem " /* what a file of weights decides */

/* State of printing the choices. */
typedef struct choices {
    bool train;  /* encoder, width and stem are those of a file */
    bool budget; /* the library will choose the number of epochs, keeping their proportions */
    FILE *rest;  /* settings without a line of their own */
} choices;

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Settings that users care about, and those that they set, get a line; the rest share one. */
static void print_choice(const char *key, const char *value, const char *why, void *user) {
    static const char of_encoder[] = ENCODER_KEYS;
    static const char lines[] = " size encoder width batch epochs stage1_epochs clusters_high ";
    choices *c = user;
    char word[64];
    snprintf(word, sizeof word, " %s ", key);
    if (!why)
        fprintf(stderr, "  %-14s %-10s from --%s\n", key, value,
                c->train && strstr(of_encoder, word) ? "encoder" : "set");
    else if (c->budget && (ends_in(key, "epochs") || ends_in(key, "_every")))
        return;
    else if (strstr(lines, word))
        fprintf(stderr, "  %-14s %-10s %s\n", key, value, why);
    else
        fprintf(c->rest, " %s %s,", key, value);
}

/* "also a 1, b 2", wrapped for a terminal. */
static void print_rest(char *rest) {
    size_t column = 6, n = strlen(rest);
    if (n) rest[n - 1] = 0; /* the last comma */
    fputs("  also", stderr);
    for (char *word = strtok(rest, ","), *next; word; word = next) {
        next = strtok(NULL, ",");
        if (column + strlen(word) > 92) fputs("\n      ", stderr), column = 6;
        column += strlen(word) + 1;
        fprintf(stderr, "%s%s", word, next ? "," : "");
    }
    fputs("\n\n", stderr);
}

/* The keys given to --set, and those of --encoder, separated by blanks.  Released by free. */
static char *named_keys(const arguments *a) {
    size_t room = sizeof ENCODER_KEYS, at = 0;
    const char *pair;
    for (int i = 0; (pair = flag_nth(a, "set", i)); i++) room += strlen(pair) + 1;
    char *out = calloc(1, room);
    for (int i = 0; out && (pair = flag_nth(a, "set", i)); i++)
        at += (size_t)snprintf(out + at, room - at, "%.*s ", (int)strcspn(pair, "="), pair);
    if (out && flag_on(a, "train")) snprintf(out + at, room - at, "%s", ENCODER_KEYS);
    return out;
}

/* Fills s from the recipe, or by choice, and then from the flags.  0, or an exit code. */
static int settle(const arguments *a, conr *c, const conr_images *m, double budget,
                  conr_settings *s) {
    conr_images_info i;
    bool tell = !flag_on(a, "quiet");
    conr_images_about(m, &i);
    int rc, K;
    if ((rc = recipe_fill(a, s))) return rc;
    if (flag_on(a, "train") && conr_settings_encoder(s, flag_text(a, "encoder")) < 0)
        return library_error();
    if ((K = (int)setting_number(s, "clusters")) > i.n)
        return failed("--clusters %d: more than the %lld images; ask for fewer", K, (long long)i.n);
    if (flag_on(a, "recipe")) return EXIT_OK;
    char *rest = NULL, *fixed = named_keys(a);
    size_t length = 0;
    choices told = {
        .train = flag_on(a, "train"), .budget = budget > 0, .rest = open_memstream(&rest, &length)};
    tell = tell && told.rest;
    if (tell) {
        fprintf(stderr, "%s: %lld images, %s, %s; on %s\n", operand(a, 0), (long long)i.n, i.kind,
                i.channels == 1 ? "gray" : "color", conr_device(c));
        fprintf(stderr, "settings chosen; change any with --set KEY=VALUE:\n");
    }
    rc = conr_settings_choose(c, m, budget, fixed, s, tell ? print_choice : NULL, &told);
    free(fixed);
    if (told.rest) fclose(told.rest);
    if (rc == 0 && tell && told.budget)
        fprintf(stderr, "  %-14s %-10s %s\n", "epochs", "auto",
                "as many as fit into the budget, found by a short trial");
    if (rc == 0 && tell) print_rest(rest);
    free(rest);
    return rc < 0 ? library_error() : EXIT_OK;
}

/* What the user may want to know or do next. */
static void print_next(const arguments *a, int usual_epochs, const conr_train_result *r) {
    if (r->epochs < usual_epochs / 4)
        fprintf(stderr,
                "conr: warning: the budget allowed %d epochs, but about %d are usual; a longer "
                "--budget gives better clusters\n",
                r->epochs, usual_epochs);
    char *run = shell_word(flag_text(a, "out")), *src = shell_word(operand(a, 0));
    fprintf(stderr, "to look at the clusters, name and correct them: conr open %s\n", run);
    if (!flag_on(a, "sort-into"))
        fprintf(stderr,
                "to sort the images into folders: conr assign %s %s --out again.csv --sort-into "
                "FOLDER\n",
                run, src);
    free(run);
    free(src);
}

/* ---- the better of training and descriptor --------------------------------------------------- */

/* The run becomes one of the descriptor; the training moves into a folder of its own in there. */
static int use_descriptor(const arguments *a, conr *c, conr_images *m, const conr_settings *s,
                          const conr_images_options *io, const conr_train_result *trained) {
    conr_features_options o = conr_features_defaults();
    conr_features_result result = {0};
    char note[CONR_NOTE_SIZE];
    int rc;
    o.out = flag_text(a, "out");
    o.clusters = trained->clusters;
    o.seed = (uint64_t)setting_number(s, "seed");
    o.restarts = (int)setting_number(s, "restarts");
    o.selection = *io;
    o.no_report = flag_on(a, "no-report");
    rc = conr_use_descriptor(c, m, &trained->baseline, &o, &result, note);
    progress_end();
    if (rc < 0) return library_error();
    if ((rc = sort_run(a, c, m, o.out, result.clusters))) return rc;
    return run_print_features(o.out, m, &result, note, flag_on(a, "json"));
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int cluster(const arguments *a, conr *c, double budget, const conr_settings *wanted,
                   conr_settings *s) {
    const char *src = operand(a, 0);
    conr_train_options o = conr_train_defaults();
    conr_train_result result;
    conr_images_options io;
    conr_images *m = NULL;
    char texts[2 * SETTING_SIZE];
    double kept;
    int rc;
    o.out = flag_text(a, "out");
    o.no_report = flag_on(a, "no-report");
    if (flag_on(a, "train")) o.init = flag_text(a, "encoder");
    recipe_images(wanted, texts, &io);
    if ((rc = data_open(c, src, &io, &m)) || (rc = settle(a, c, m, budget, s))) goto done;
    if (conr_budget_keep(c, m, o.out, budget, &kept) < 0) {
        rc = library_error();
        goto done;
    }
    o.budget = budget - kept;
    if ((rc = run_train(c, src, m, s, &o, NULL, &result, NULL))) goto done;
    if (kept > 0 && result.baseline.descriptor_confirmed) {
        rc = use_descriptor(a, c, m, s, &io, &result);
        goto done;
    }
    if ((rc = sort_run(a, c, m, o.out, result.clusters))) goto done;
    rc = run_print(o.out, m, &result, flag_on(a, "json"));
    if (rc == EXIT_OK && !flag_on(a, "json") && !flag_on(a, "quiet"))
        print_next(a, (int)setting_number(s, "epochs"), &result);
done:
    conr_images_close(m);
    return rc;
}

static int reset_edits(const arguments *a, const char *run) {
    bool edited = run_has(run, "edits.json") || run_has(run, "untouched.csv");
    if (conr_edits_reset(run) < 0) return library_error();
    if (flag_on(a, "json"))
        return print_json(json_pack("{so, sb}", "run", json_name(run), "edited", edited));
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %s\n", run,
                edited ? "its edits are taken back; labels.csv is again what the run wrote"
                       : "has no edits, nothing was changed");
    return EXIT_OK;
}

/* What can be done with a finished run without clustering it again: taking back its edits, and
 * sorting its images as edited.  -1: neither was asked for. */
static int finished_run(const arguments *a) {
    const char *run = operand(a, 0);
    bool reset = flag_on(a, "reset-edits");
    if (flag_on(a, "clusters") || flag_on(a, "out"))
        return reset
                   ? usage_error("--reset-edits: does nothing else; leave --clusters and --out out")
                   : -1;
    if (reset && !run) return usage_error("--reset-edits: of which run; give RUN");
    if (reset) return reset_edits(a, run);
    return run && run_done(run) && flag_on(a, "sort-into") ? sort_finished(a, run) : -1;
}

/* --train goes on from a network, and only a training has the rest. */
static int check_train(const arguments *a) {
    const char *pair, *src = operand(a, 0);
    if (!flag_on(a, "encoder"))
        return usage_error("--train: goes on from a pretrained network; give --encoder "
                           "W.safetensors, or leave it out");
    if (flag_on(a, "features"))
        return usage_error("--train: trains on images; leave --features out");
    if (src && run_has(src, "options.yaml"))
        return usage_error("--train: %s is a run; give images", src);
    if (flag_on(a, "encoder-set"))
        return usage_error("--encoder-set: is for a network as it is; with --train use --set, such "
                           "as --set size=64");
    for (int i = 0; (pair = flag_nth(a, "set", i)); i++) {
        char key[SETTING_SIZE];
        snprintf(key, sizeof key, " %.*s ", (int)strcspn(pair, "="), pair);
        if (strstr(ENCODER_KEYS, key))
            return usage_error("--set %s: is given by the weights of --encoder; leave it out",
                               pair);
    }
    return EXIT_OK;
}

static int run(const arguments *a) {
    conr *c = NULL;
    conr_settings *wanted = NULL, *s = NULL;
    double budget = 0;
    int threads, rc = finished_run(a);
    if (rc >= 0) return rc;
    if (!flag_text(a, "clusters"))
        return usage_error("--clusters: is missing; give a number or auto");
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give a folder for the run");
    if (flag_on(a, "train") && (rc = check_train(a))) return rc;
    if (features_wanted(a)) return features_cluster(a);
    static const char *const others[] = {"paths", "refine", "method"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (flag_on(a, others[i]))
            return usage_error("--%s: is for features; give --features F.npy, too", others[i]);
    if ((rc = encoder_check_flags(a, false))) return rc;
    if (!operand(a, 0)) return usage_error("SRC: is missing; give images, or --features F.npy");
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (flag_on(a, "budget") && (rc = flag_seconds(a, "budget", &budget))) ||
        (rc = run_refuse_begun(flag_text(a, "out"))) || (rc = sort_check(a)))
        return rc;
    if (conr_settings_new(&wanted) < 0 || conr_settings_new(&s) < 0)
        rc = library_error();
    else
        rc = recipe_fill(a, wanted); /* report mistakes before the images are opened */
    if (rc == EXIT_OK && conr_open(flag_text(a, "device"), threads, &c) < 0) rc = library_error();
    if (rc == EXIT_OK) {
        progress_start(c, flag_on(a, "quiet"));
        rc = cluster(a, c, budget, wanted, s);
    }
    conr_settings_free(wanted);
    conr_settings_free(s);
    conr_close(c);
    return rc;
}

const verb verb_cluster = {
    .name = "cluster",
    .operands = "SRC --clusters K --out RUN | [SRC] --features F.npy ... | SRC --encoder "
                "W.safetensors ... | RUN ...",
    .summary = "Cluster images: learn from them without labels, then group them",
    .text =
        "Chooses settings that suit the images and the device, prints them, trains, clusters, and\n"
        "writes a run folder: report.html for the browser, labels.csv (path, cluster, distance,\n"
        "boundary), the model, the features.\n"
        "With --budget on a CPU, where a short training may be worth little, the result is the\n"
        "better of the training and the built-in descriptor, by signs that need no labels; if it\n"
        "is the descriptor's, that is said, and the training is in RUN/training.\n"
        "Ctrl-C saves; conr train --resume --data SRC --out RUN continues.  conr assign finds the\n"
        "clusters of new images.  For what SRC may be, see conr help info.\n"
        "With --features, somebody's features take the place of the training: row by row those of\n"
        "the images in the order of conr info SRC --paths, or those that --paths names.  A head "
        "is\n"
        "trained on them and kept if that helps (--refine auto), and a method chosen (--method\n"
        "auto), both by signs that need no labels.  Without SRC there are no pictures.  conr\n"
        "assign then takes features.  --features hog describes the images by gradients and "
        "colors,\n"
        "without a file or a training.  With --encoder, the features are those of a pretrained\n"
        "network (docs/encoders.md), and conr assign takes images; with --train, a ResNet is "
        "trained\n"
        "further on the images instead.  A finished RUN in place of "
        "SRC\n"
        "is clustered again, with another K or method; without --clusters and --out its images "
        "are\n"
        "sorted as somebody edited them (conr open).\n"
        "\nExample: conr cluster photos/ --clusters auto --budget 30m --out runs/photos\n"
        "         conr cluster photos/ --features f.npy --clusters 10 --out runs/features\n"
        "         conr cluster photos/ --features hog --clusters 10 --out runs/hog\n"
        "         conr cluster photos/ --encoder dinov2.safetensors --clusters auto --out "
        "runs/dino\n"
        "         conr cluster runs/photos --clusters 12 --out runs/photos12\n"
        "         conr cluster runs/photos --sort-into sorted\n",
    .low = 0,
    .high = 1,
    .flags = flags,
    .run = run,
    .many = true,
};
