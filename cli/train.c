/* train.c: conr train: one run of a recipe. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"
#include "recipe.h"
#include "run.h"
#include "share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE "samples/fashion-mnist"

static const flag flags[] = {
    RECIPE_FLAGS,
    {"data", "SRC", NULL, "the images; see conr help info"},
    {"out", "RUN", NULL, "the run folder"},
    {"resume", NULL, NULL, "continue the run in --out, with its own settings"},
    {"from", "RUN[@EPOCH]", NULL, "start from a checkpoint of another run"},
    {"stage", "2", NULL, "with --from: enter stage 2 at once"},
    {"init", "F.safetensors", NULL,
     "initial weights of the encoder, named as in torchvision, timm or Hugging Face"},
    {"clusters", "K", NULL, "number of clusters; auto or auto:LOW-HIGH: estimate it after stage 1"},
    {"budget", "TIME", NULL, "choose the number of epochs to take about this long: 10m, 2h"},
    DATA_FLAGS,
    {"no-report", NULL, NULL, "do not write RUN/report.html"},
    {"check", NULL, NULL, "print the resulting settings and train nothing"},
    {"settings", NULL, NULL, "print a table of all settings"},
    {0},
};

/* A resumed run takes its settings from its folder; flags that contradict them are refused. */
static int check_resume(const arguments *a) {
    static const char *const others[] = {"recipe", "set",      "from",    "stage",
                                         "init",   "clusters", "budget",  "seed",
                                         "split",  "labels",   "classes", "long-tail"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (flag_on(a, others[i]))
            return usage_error(
                "--%s: cannot be combined with --resume, which keeps the settings of the "
                "run; leave it out",
                others[i]);
    return EXIT_OK;
}

static int read_options(const arguments *a, conr_train_options *o) {
    int rc;
    *o = conr_train_defaults();
    o->out = flag_text(a, "out");
    o->resume = flag_on(a, "resume");
    o->from = flag_text(a, "from");
    o->init = flag_text(a, "init");
    o->no_report = flag_on(a, "no-report");
    if (flag_on(a, "stage") && (rc = flag_int(a, "stage", 1, 2, &o->stage))) return rc;
    if (flag_on(a, "budget") && (rc = flag_seconds(a, "budget", &o->budget))) return rc;
    if (o->stage == 2 && !o->from)
        return usage_error("--stage 2: needs a checkpoint of stage 1; give --from RUN");
    if (o->stage == 1) o->stage = 0; /* where every run starts */
    return EXIT_OK;
}

/* The settings: of the run to resume, or of the recipe. */
static int read_settings(const arguments *a, const char *run, conr_settings *s) {
    if (!flag_on(a, "resume")) return recipe_fill(a, s);
    char *path = path_in(run, "options.yaml");
    int rc = conr_settings_read(s, path) < 0 ? library_error() : EXIT_OK;
    free(path);
    return rc;
}

static int train(const arguments *a, const conr_settings *s, const conr_train_options *o) {
    conr_train_result result;
    conr_images_options io;
    char texts[2 * SETTING_SIZE];
    char *sample = flag_text(a, "data") ? NULL : share_path(SAMPLE);
    const char *src = sample ? sample : flag_text(a, "data");
    int threads, rc;
    conr *c = NULL;
    conr_images *m = NULL;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads))) goto done;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) {
        rc = library_error();
        goto done;
    }
    progress_start(c, flag_on(a, "quiet"));
    recipe_images(s, texts, &io);
    if ((rc = data_open(c, src, &io, &m)) || (rc = run_train(c, src, m, s, o, NULL, &result, NULL)))
        goto done;
    rc = run_print(o->out, m, &result, flag_on(a, "json"));
done:
    conr_images_close(m);
    conr_close(c);
    free(sample);
    return rc;
}

/* The recipe of the sample needs no --data, if the sample was installed. */
static bool brings_data(const arguments *a) {
    const char *recipe = flag_text(a, "recipe");
    char *path = recipe && !strcmp(recipe, "demo") ? share_path(SAMPLE) : NULL;
    free(path);
    return path != NULL;
}

/* Checks for missing and conflicting flags, before anything is opened. */
static int check_flags(const arguments *a) {
    const char *out = flag_text(a, "out");
    bool resume = flag_on(a, "resume");
    if (!resume && !flag_text(a, "recipe"))
        return usage_error(
            "--recipe: is missing; give a name of conr recipes, or use conr cluster");
    if (flag_on(a, "check")) return EXIT_OK;
    if (!out) return usage_error("--out: is missing; give a folder for the run");
    if (!flag_text(a, "data") && !brings_data(a))
        return usage_error("--data: is missing; give the images");
    if (!resume) return run_refuse_begun(out);
    if (!run_has(out, "options.yaml"))
        return failed("%s: no run to resume; is the path spelled right?", out);
    return check_resume(a);
}

static int run(const arguments *a) {
    conr_train_options o;
    conr_settings *s;
    int rc;
    if (flag_on(a, "settings")) return recipe_print_list(flag_on(a, "json"));
    if ((rc = check_flags(a)) || (rc = read_options(a, &o))) return rc;
    if (o.resume && run_done(o.out)) return run_print_finished(o.out, flag_on(a, "json"));
    if (conr_settings_new(&s) < 0) return library_error();
    rc = read_settings(a, o.out, s);
    if (rc == EXIT_OK && conr_settings_check(s) < 0) rc = library_error();
    if (rc == EXIT_OK && flag_on(a, "check")) {
        if (flag_on(a, "json")) {
            rc = print_json(recipe_json(s));
        } else {
            recipe_print(s);
            rc = finish_output();
        }
    } else if (rc == EXIT_OK) {
        rc = train(a, s, &o);
    }
    conr_settings_free(s);
    return rc;
}

const verb verb_train = {
    .name = "train",
    .operands = "--recipe NAME --data SRC --out RUN [--set KEY=VALUE ...]",
    .summary = "Train by a recipe, cluster, and write a run folder",
    .text =
        "Stage 1 learns without labels (BYOL, SimSiam, MoCo v2, ProPos); stage 2 pulls images\n"
        "towards their contextually affinitive neighbors (CoNR); k-means clusters the features.\n"
        "If the images have labels, NMI, ACC and ARI are logged; training never uses labels.\n"
        "--set changes any setting; conr train --settings lists them.  --recipe demo brings its "
        "own\n"
        "images, the sample of Fashion-MNIST.\n"
        "Ctrl-C saves; --resume continues, also after a crash, and gives the same bits as a run\n"
        "that was never stopped.\n"
        "\nExample: conr train --recipe cifar10 --data cifar-10-batches-bin \\\n"
        "             --out runs/cifar10 --set seed=2\n"
        "         conr train --resume --data cifar-10-batches-bin --out runs/cifar10\n"
        "         conr train --recipe cifar10 --data cifar-10-batches-bin \\\n"
        "             --from runs/cifar10@800 --stage 2 --set fr0=0.9 --out runs/fr90\n",
    .flags = flags,
    .run = run,
    .many = true,
};
