/* sweep.c: conr sweep: all combinations of some settings, several seeds each, and their table.
 *
 * Every run has its own folder, named after the settings it changes, so that a sweep that was
 * stopped or extended runs only what is missing.  sweep.json records the settings that all runs
 * share, so that runs of another recipe never end up in the same table. */
#include "sweep.h"

#include "data.h"
#include "progress.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    RECIPE_FLAGS,
    {"data", "SRC", NULL, "the images; see conr help info"},
    {"grid", "KEY=A,B...", NULL, "values of one setting to try; may be repeated"},
    {"seeds", "N", "1", "runs per combination, with seeds --seed, --seed + 1, ..."},
    {"out", "DIR", NULL, "folder for the runs and the table"},
    {"from", "RUN[@EPOCH]", NULL, "start every run from this checkpoint"},
    {"stage", "2", NULL, "with --from: enter stage 2 at once"},
    {"clusters", "K", NULL, "number of clusters; auto or auto:LOW-HIGH: estimate it after stage 1"},
    FEATURES_FLAGS,
    DATA_FLAGS,
    {0},
};

/* ---- the grid -------------------------------------------------------------------------------- */

static int read_axis(const char *pair, axis *out) {
    int n = pair_key("grid", pair);
    if (n < 0) return EXIT_USAGE;
    snprintf(out->key, sizeof out->key, "%.*s", n, pair);
    if (!strcmp(out->key, "seed"))
        return usage_error("--grid seed: seeds have a flag of their own; give --seeds N");
    const char *at = pair + n + 1;
    for (;;) {
        size_t length = strcspn(at, ",");
        if (!length || length >= SETTING_SIZE || out->n == MOST_VALUES)
            return usage_error("--grid %s: %s; give key=a,b with at most %d values", pair,
                               out->n == MOST_VALUES ? "too many values"
                                                     : "a value is empty or too long",
                               MOST_VALUES);
        for (int i = 0; i < out->n; i++)
            if (strlen(out->value[i]) == length && !strncmp(out->value[i], at, length))
                return usage_error("--grid %s: %s is given twice; give each value once", pair,
                                   out->value[i]);
        snprintf(out->value[out->n++], SETTING_SIZE, "%.*s", (int)length, at);
        if (!at[length]) return EXIT_OK;
        at += length + 1;
    }
}

/* A key that clusters of features have; the words of method and refine. */
static int check_of_features(const sweep *w, const axis *x) {
    conr_features_options o;
    int rc = EXIT_OK;
    if (features_has_key(x->key) || !strcmp(x->key, "clusters")) return EXIT_OK;
    if (!features_has_word(x->key))
        return usage_error("--grid %s: no setting of clusters of features; clusters, method, "
                           "refine, k, k1, k2, alpha, layers, resymmetrize and restarts are",
                           x->key);
    if (flag_on(w->a, x->key))
        return usage_error("--grid %s: also given by --%s; leave one out", x->key, x->key);
    for (int i = 0; i < x->n && rc == EXIT_OK; i++) rc = features_set_word(x->key, x->value[i], &o);
    return rc;
}

static int read_grid(sweep *w) {
    const char *pair;
    int rc;
    w->n_combinations = 1;
    for (int i = 0; (pair = flag_nth(w->a, "grid", i)); i++) {
        if (i == MOST_KEYS)
            return usage_error("--grid: more than %d of them; leave some out", MOST_KEYS);
        axis *x = &w->axis[w->n_axes];
        if ((rc = read_axis(pair, x))) return rc;
        for (int j = 0; j < w->n_axes; j++)
            if (!strcmp(w->axis[j].key, x->key))
                return usage_error("--grid %s: given twice; give all its values at once", x->key);
        if (w->of_features && (rc = check_of_features(w, x))) return rc;
        if (recipe_names(w->a, x->key))
            return usage_error("--grid %s: also given by --set; leave one out", x->key);
        w->n_axes++;
        w->n_combinations *= x->n;
        if (w->n_combinations * w->seeds > MOST_COMBINATIONS)
            return usage_error("--grid: more than %d runs; leave some values out",
                               MOST_COMBINATIONS);
    }
    return EXIT_OK;
}

const char *sweep_value(const sweep *w, int combination, int which) {
    for (int i = w->n_axes - 1; i > which; i--) combination /= w->axis[i].n;
    return w->axis[which].value[combination % w->axis[which].n];
}

/* "fr0=0.9,k=10,seed=1", made safe for a file name. */
static void run_name(const sweep *w, int combination, int seed, char out[NAME_SIZE]) {
    size_t at = 0;
    for (int i = 0; i < w->n_axes; i++)
        at += (size_t)snprintf(out + at, at < NAME_SIZE ? NAME_SIZE - at : 0, "%s=%s,",
                               w->axis[i].key, sweep_value(w, combination, i)),
            at = at < NAME_SIZE ? at : NAME_SIZE;
    if (at < NAME_SIZE) snprintf(out + at, NAME_SIZE - at, "seed=%d", seed);
    for (char *c = out; *c; c++)
        if (*c == '/' || *c == '@' || (unsigned char)*c <= ' ') *c = '-';
}

/* Whether an axis is none of the settings that trainings have. */
static bool is_word(const sweep *w, int which) {
    return w->of_features && features_has_word(w->axis[which].key);
}

/* The settings of one run; *out is released by conr_settings_free. */
static int run_settings(const sweep *w, int combination, int seed, conr_settings **out) {
    conr_setting_info i;
    char text[SETTING_SIZE], number[32];
    if (conr_settings_new(out) < 0) return library_error();
    for (int k = 0; conr_setting(k, &i); k++) /* preset comes first: later settings override it */
        if (conr_settings_set(*out, i.key, setting_text(w->base, i.key, text)) < 0)
            return library_error();
    for (int k = 0; k < w->n_axes; k++)
        if (!is_word(w, k) &&
            conr_settings_set(*out, w->axis[k].key, sweep_value(w, combination, k)) < 0)
            return library_error();
    snprintf(number, sizeof number, "%d", seed);
    return conr_settings_set(*out, "seed", number) < 0 ? library_error() : EXIT_OK;
}

/* Checks the settings of all combinations before the first run. */
static int check_grid(const sweep *w) {
    int rc = EXIT_OK;
    for (int i = 0; i < w->n_combinations && rc == EXIT_OK; i++) {
        conr_settings *s = NULL;
        rc = run_settings(w, i, w->seed, &s);
        if (rc == EXIT_OK && conr_settings_check(s) < 0) rc = library_error();
        conr_settings_free(s);
    }
    return rc;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Opens the images that these settings select, unless they are open. */
static int open_images(sweep *w, const conr_settings *s) {
    static const char *const keys[] = {"split", "classes", "labels", "long_tail"};
    char chosen[4 * SETTING_SIZE] = "", texts[2 * SETTING_SIZE];
    conr_images_options io;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[SETTING_SIZE];
        size_t at = strlen(chosen);
        snprintf(chosen + at, sizeof chosen - at, "%s\n", setting_text(s, keys[i], text));
    }
    if (w->images && !strcmp(chosen, w->chosen)) return EXIT_OK;
    conr_images_close(w->images);
    w->images = NULL;
    memcpy(w->chosen, chosen, sizeof chosen);
    recipe_images(s, texts, &io);
    return data_open(w->c, flag_text(w->a, "data"), &io, &w->images);
}

/* Whether the other runs would fail in the same way. */
static bool is_lasting(int code) {
    return code == CONR_ESTOPPED || code == CONR_EFILE || code == CONR_EDEVICE ||
           code == CONR_ENOMEM;
}

static int do_features(sweep *w, int combination, const conr_settings *s, const char *run,
                       int *why) {
    conr_features_options o;
    conr_features_result result;
    int rc = features_options(w->a, s, true, &o);
    for (int i = 0; i < w->n_axes && rc == EXIT_OK; i++)
        if (is_word(w, i))
            rc = features_set_word(w->axis[i].key, sweep_value(w, combination, i), &o);
    o.out = run;
    o.no_report = 1;
    if (!flag_on(w->a, "quiet")) fprintf(stderr, "%s\n", run);
    return rc ? rc : features_run(w->a, w->c, &w->features, &o, &result, why);
}

/* Does one run unless it is finished; *out is its entry in the report.  *lasting: the sweep must
 * end. */
static int do_run(sweep *w, int combination, int seed, json_t **out, bool *lasting) {
    char name[NAME_SIZE];
    conr_settings *s = NULL;
    conr_train_options o = w->options;
    conr_train_result result;
    run_name(w, combination, seed, name);
    char *run = path_in(w->out, name);
    json_t *scores = NULL;
    int why = 0, rc = run_settings(w, combination, seed, &s);
    o.out = run;
    o.resume = run_has(run, "options.yaml");
    if (o.resume) o.from = NULL, o.stage = 0;
    if (rc == EXIT_OK && !run_done(run) && w->of_features) {
        rc = do_features(w, combination, s, run, &why);
    } else if (rc == EXIT_OK && !run_done(run)) {
        if (!flag_on(w->a, "quiet")) fprintf(stderr, "%s%s\n", run, o.resume ? " continues" : "");
        if ((rc = open_images(w, s)) == EXIT_OK)
            rc = run_train(w->c, flag_text(w->a, "data"), w->images, s, &o,
                           "repeat the command to continue", &result, &why);
    }
    *lasting = rc != EXIT_OK && ((!w->images && !w->of_features) || is_lasting(why));
    if (rc == EXIT_OK && (rc = run_last_scores(run, &scores))) *lasting = true;
    *out = json_pack("{so si so so}", "run", json_name(run), "seed", seed, "scores",
                     scores ? scores : json_null(), "error",
                     rc == EXIT_OK ? json_null() : json_name(conr_error()));
    conr_settings_free(s);
    free(run);
    return rc;
}

static int do_combination(sweep *w, int which) {
    json_t *settings = json_object(), *runs = json_array();
    for (int i = 0; i < w->n_axes; i++)
        settings = json_put(settings, w->axis[i].key, json_name(sweep_value(w, which, i)));
    json_t *entry = json_pack("{so so}", "settings", settings, "runs", runs);
    if (!entry || json_array_append_new(json_object_get(w->report, "combinations"), entry) < 0)
        return failed("sweep.json: out of memory; close other programs");
    for (int i = 0; i < w->seeds; i++) {
        json_t *r = NULL;
        bool lasting;
        int rc = do_run(w, which, w->seed + i, &r, &lasting);
        if (lasting) return json_decref(r), rc;
        if (!r || json_array_append_new(runs, r) < 0)
            return failed("sweep.json: out of memory; close other programs");
        w->n_failed += rc != EXIT_OK; /* already reported; the other runs may succeed */
        if ((rc = sweep_add_means(entry)) || (rc = sweep_save(w))) return rc;
    }
    return EXIT_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_features(const arguments *a) {
    if (flag_on(a, "from") || flag_on(a, "stage"))
        return usage_error("--from, --stage: are for trainings; leave them out with --features");
    if (!strcmp(flag_text(a, "features"), "hog") && !flag_text(a, "data"))
        return usage_error("--features hog: describes images; give --data SRC, too");
    return features_check_flags(a, false);
}

static int read_all(sweep *w) {
    const arguments *a = w->a;
    int rc;
    w->of_features = flag_on(a, "features");
    if (w->of_features && (rc = check_features(a))) return rc;
    if (!w->of_features && (flag_on(a, "method") || flag_on(a, "refine") || flag_on(a, "paths")))
        return usage_error("--method, --refine, --paths: are for features; give --features F.npy");
    if (!w->of_features && !flag_text(a, "recipe"))
        return usage_error(
            "--recipe: is missing; give a name of conr recipes, or the options.yaml of a run");
    if (!w->of_features && !flag_text(a, "data"))
        return usage_error("--data: is missing; give the images");
    if (!w->out) return usage_error("--out: is missing; give a folder for the runs");
    if ((rc = run_refuse_begun(w->out))) return rc;
    w->options = conr_train_defaults();
    w->options.from = flag_text(a, "from");
    w->options.no_report = 1; /* conr report DIR compares them, conr report DIR/RUN shows one */
    if (flag_on(a, "stage") && (rc = flag_int(a, "stage", 1, 2, &w->options.stage))) return rc;
    if (w->options.stage == 2 && !w->options.from)
        return usage_error("--stage 2: needs a checkpoint of stage 1; give --from RUN");
    if (w->options.stage == 1) w->options.stage = 0;
    if ((rc = flag_int(a, "seeds", 1, 1000, &w->seeds))) return rc;
    if (conr_settings_new(&w->base) < 0) return library_error();
    if ((rc = recipe_fill(a, w->base))) return rc;
    w->seed = (int)setting_number(w->base, "seed");
    if ((rc = read_grid(w))) return rc;
    return check_grid(w);
}

static int run(const arguments *a) {
    static axis axes[MOST_KEYS];
    sweep w = {.a = a, .out = flag_text(a, "out"), .axis = axes};
    int threads, rc;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) || (rc = read_all(&w))) goto done;
    if (conr_open(flag_text(a, "device"), threads, &w.c) < 0) {
        rc = library_error();
        goto done;
    }
    progress_start(w.c, flag_on(a, "quiet"));
    if ((rc = sweep_begin(&w))) goto done;
    if (w.of_features && (rc = features_open(a, w.c, flag_text(a, "data"), &w.features))) goto done;
    for (int i = 0; i < w.n_combinations; i++)
        if ((rc = do_combination(&w, i))) goto done;
    rc = sweep_finish(&w);
done:
    json_decref(w.report);
    conr_images_close(w.images);
    features_close(&w.features);
    conr_settings_free(w.base);
    conr_close(w.c);
    return rc;
}

const verb verb_sweep = {
    .name = "sweep",
    .operands =
        "--recipe NAME --data SRC --grid KEY=A,B [--seeds N] --out DIR | --features F.npy ...",
    .summary = "Run a recipe many times: a grid of settings, several seeds, one table",
    .text =
        "Each run has a folder DIR/KEY=A,seed=1.  Finished runs are not repeated and unfinished\n"
        "ones are resumed: after an interruption, repeat the command.  Writes DIR/sweep.json\n"
        "(everything) and the table of mean and deviation over the seeds, DIR/table.md, .csv and\n"
        ".tex; conr report DIR draws them.  With --features each run clusters features in place of "
        "training (conr help\n"
        "cluster); --data, the images whose features they are, may be missing, and the grid may\n"
        "have method and refine.\n"
        "\nExample: conr sweep --recipe cifar10 --data cifar-10-batches-bin \\\n"
        "             --from runs/cifar10@800 --stage 2 --grid fr0=0.7,0.8,0.9,1 --seeds 3 \\\n"
        "             --out runs/fr0\n"
        "         conr sweep --features f.npy --clusters 10 --grid k1=5,10,20 --out runs/k1\n"
        "         conr sweep --features f.npy --clusters 10 --grid method=kmeans,graph \\\n"
        "             --grid refine=none,conaff --out runs/methods\n",
    .flags = flags,
    .run = run,
};
