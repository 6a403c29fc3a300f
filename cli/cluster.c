/* cluster.c: conr cluster: the main job, with settings chosen from the images and the device.
 *
 * What is chosen is plain rules, so that the same images on the same kind of device give the same
 * settings; they are printed with their reasons, written to the run's options.yaml, and each can be
 * overruled by --set.  What depends on another setting follows the overruled one. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"
#include "recipe.h"
#include "run.h"
#include "sort.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const flag flags[] = {
    {"clusters", "K", NULL, "how many; auto or auto:LOW-HIGH estimates it after stage 1"},
    {"out", "RUN", NULL, "the run's folder"},
    {"budget", "TIME", NULL, "choose the epochs so that it takes about this long: 10m, 2h"},
    SORT_FLAGS,
    RECIPE_FLAGS,
    DATA_FLAGS,
    {0},
};

enum {
    FEWEST = 16,      /* images that there is anything to learn from */
    GUESSED_K = 25,   /* for the size of neighborhoods, where K is still unknown */
    SHORT_BUDGET = 20 /* minutes, below which the network stays narrow */
};

/* What the choice stands on. */
typedef struct facts {
    const arguments *a;
    const conr_settings *wanted; /* the --set alone */
    int64_t n;
    int side; /* of a usual image: its shorter one */
    bool gray, gpu;
    double budget; /* seconds; 0: none */
    int clusters;  /* 0: unknown yet */
    bool tell;
} facts;

/* Sets one setting with a reason, unless --set has; returns the value that holds. */
static double choose(const facts *f, conr_settings *s, const char *key, const char *value,
                     const char *why) {
    char text[SETTING_SIZE];
    bool given = recipe_names(f->a, key);
    setting_put(s, key, "%s", given ? setting_text(f->wanted, key, text) : value);
    if (f->tell)
        fprintf(stderr, "  %-20s %-10s %s\n", key, setting_text(s, key, text),
                given ? "as --set says" : why);
    return setting_number(s, key);
}

static double choose_number(const facts *f, conr_settings *s, const char *key, double value,
                            const char *why) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return choose(f, s, key, text, why);
}

static int choose_size(const facts *f, conr_settings *s) {
    int side = f->side;
    if (side <= 32)
        return (int)choose_number(f, s, "size", side <= 16 ? 16 : (side + 3) / 4 * 4,
                                  "the images' own");
    int size = side <= 80 ? 64 : side <= 112 ? 96 : side <= 176 ? 128 : 224;
    if (!f->gpu && size > 64)
        return (int)choose_number(f, s, "size", 64, "the images are larger, but this is a CPU");
    return (int)choose_number(f, s, "size", size, "by the images' usual side");
}

/* The network and its heads; returns whether it is the small one. */
static bool choose_encoder(const facts *f, conr_settings *s, int size) {
    bool little = size <= 32 && f->gray, large = f->n >= 20000 && (!f->budget || f->budget > 3600);
    char encoder[SETTING_SIZE];
    if (!f->gpu || little)
        choose(f, s, "encoder", "small", f->gpu ? "small gray images" : "this is a CPU");
    else if (size <= 32)
        choose(f, s, "encoder", "resnet18", "usual at this size");
    else
        choose(f, s, "encoder", large ? "resnet34" : "resnet18",
               large ? "many images" : "few images or little time");
    bool small = !strcmp(setting_text(s, "encoder", encoder), "small");
    bool hurry = f->budget > 0 && f->budget < SHORT_BUDGET * 60;
    if (small)
        choose_number(f, s, "width", f->gray || (hurry && !f->gpu) ? 16 : 32,
                      f->gray ? "gray images" : "colors");
    choose_number(f, s, "hidden", small ? 512 : 4096, "goes with the encoder");
    choose_number(f, s, "predictor_hidden", small ? 512 : 4096, "goes with the encoder");
    choose_number(f, s, "features", small ? 64 : 256, "goes with the encoder");
    return small;
}

static int choose_batch(const facts *f, conr_settings *s, bool small) {
    int most = small ? 128 : 256, batch = 32;
    while (batch > f->n) batch /= 2;
    while (2 * batch <= most && 2 * batch <= f->n / 8) batch *= 2;
    return (int)choose_number(f, s, "batch", batch, "a power of two, several steps an epoch");
}

/* Enough images seen for the network at hand: what the recipes of the same kind see. */
static void choose_epochs(const facts *f, conr_settings *s, bool small, int size) {
    double seen = small ? 600e3 : 12e6, least = small ? 20 : 100, most = small ? 400 : 1000;
    double epochs = fmin(most, fmax(least, ceil(seen / (double)f->n)));
    if (size > 32 && !f->gpu) epochs = fmax(least, ceil(epochs / 2));
    epochs = choose_number(f, s, "epochs", epochs,
                           f->budget ? "before the budget changes it" : "by the number of images");
    choose_number(f, s, "stage1_epochs", floor(epochs * (small ? 0.625 : 0.8)),
                  "the plain framework first");
    choose_number(f, s, "warmup_epochs", fmin(50, floor(epochs / 16)), "a sixteenth");
    choose_number(f, s, "relax_epochs", 0, "over all of stage 2");
    choose_number(f, s, "eval_every", fmax(1, floor(epochs / 20)), "twenty times");
    choose_number(f, s, "checkpoint_every", fmax(1, floor(epochs / 20)), "twenty times");
}

/* Settings that short runs of the small network need, and neighborhoods that fit the batch. */
static void choose_rest(const facts *f, conr_settings *s, bool small, int batch) {
    int K = f->clusters ? f->clusters : GUESSED_K;
    choose_number(f, s, "lr", (small ? 0.4 : 0.05) * batch / 256, "grows with the batch");
    if (small) {
        choose_number(f, s, "predictor_lr", 2.5, "a high lr already");
        choose_number(f, s, "average", 0.99, "a short run");
        choose_number(f, s, "stage2_lr", 0.3, "a short run");
        choose_number(f, s, "stage2_predictor_lr", 0.3, "a short run");
        choose_number(f, s, "crop_scale", f->gray ? 0.4 : 0.25, "a small network");
    }
    int near = batch / K < 2 ? 2 : batch / K > 10 ? 10 : batch / K;
    const char *why = near < 10 ? "a batch has no more of one cluster" : "the paper's";
    choose_number(f, s, "k", near, why);
    choose_number(f, s, "k1", near, why);
    if (!f->clusters && f->n < 500)
        choose_number(f, s, "clusters_high", fmax(3, floor((double)f->n / 10)), "few images");
}

static void choose_all(const facts *f, conr_settings *s) {
    if (f->tell) fprintf(stderr, "settings chosen; --set KEY=VALUE changes any:\n");
    int size = choose_size(f, s);
    bool small = choose_encoder(f, s, size);
    int batch = choose_batch(f, s, small);
    choose_epochs(f, s, small, size);
    choose_rest(f, s, small, batch);
    if (f->tell) fputc('\n', stderr);
}

/* The shorter side of a usual image.  Of sizes that differ only the extremes are known: their
 * geometric middle. */
static int usual_side(const conr_images_info *i) {
    double w = sqrt((double)i->width[0] * i->width[1]);
    double h = sqrt((double)i->height[0] * i->height[1]);
    return (int)lround(fmin(w, h));
}

/* Fills s: from the recipe, or by choice; then what the flags say.  0, or an exit code. */
static int settle(const arguments *a, conr *c, const conr_images *m, double budget,
                  const conr_settings *wanted, conr_settings *s) {
    conr_images_info i;
    conr_images_about(m, &i);
    int K = (int)setting_number(wanted, "clusters"), rc;
    if (K > i.n)
        return failed("--clusters %d: more than the %lld images; ask for fewer", K, (long long)i.n);
    if (i.n < FEWEST)
        return failed("%s: %lld images are too few to learn from; give at least %d, or use conr "
                      "kmeans",
                      operand(a, 0), (long long)i.n, FEWEST);
    if ((rc = recipe_read(a, s)) || (rc = recipe_flags(a, s)) || (rc = recipe_sets(a, s)))
        return rc;
    if (flag_on(a, "recipe")) return EXIT_OK;
    facts f = {.a = a,
               .wanted = wanted,
               .n = i.n,
               .side = usual_side(&i),
               .gray = i.channels == 1,
               .gpu = !strncmp(conr_device(c), "cuda", 4),
               .budget = budget,
               .clusters = K,
               .tell = !flag_on(a, "quiet")};
    if (f.tell)
        fprintf(stderr, "%s: %lld images, %s, %s; on %s\n", operand(a, 0), (long long)i.n, i.kind,
                f.gray ? "gray" : "color", conr_device(c));
    choose_all(&f, s);
    return EXIT_OK;
}

static int cluster(const arguments *a, conr *c, double budget, const conr_settings *wanted,
                   conr_settings *s) {
    const char *src = operand(a, 0);
    conr_train_options o = conr_train_defaults();
    conr_train_result result;
    conr_images_options io;
    conr_images *m = NULL;
    char texts[2 * SETTING_SIZE];
    int rc;
    o.out = flag_text(a, "out");
    o.budget = budget;
    recipe_images(wanted, texts, &io);
    if ((rc = data_open(c, src, &io, &m)) || (rc = settle(a, c, m, o.budget, wanted, s)) ||
        (rc = run_train(c, src, m, s, &o, NULL, &result, NULL)) ||
        (rc = sort_run(a, c, m, o.out, result.clusters)))
        goto done;
    if (flag_on(a, "json")) {
        rc = print_json(run_json(o.out, m, &result));
    } else {
        run_print(o.out, m, &result);
        rc = finish_output();
    }
done:
    conr_images_close(m);
    return rc;
}

static int run(const arguments *a) {
    conr *c = NULL;
    conr_settings *wanted = NULL, *s = NULL;
    double budget = 0;
    int threads, rc;
    if (!flag_text(a, "clusters"))
        return usage_error("--clusters: is missing; give a number or auto");
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the run's folder");
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (flag_on(a, "budget") && (rc = flag_seconds(a, "budget", &budget))) ||
        (rc = run_refuse_begun(flag_text(a, "out"))) || (rc = sort_check(a)))
        return rc;
    if (conr_settings_new(&wanted) < 0 || conr_settings_new(&s) < 0)
        rc = library_error();
    else
        rc = recipe_fill(a, wanted); /* mistakes are told before images are looked at */
    if (rc == EXIT_OK && conr_open(flag_text(a, "device"), threads, &c) < 0) rc = library_error();
    if (rc == EXIT_OK) {
        progress_start(c, a);
        rc = cluster(a, c, budget, wanted, s);
    }
    conr_settings_free(wanted);
    conr_settings_free(s);
    conr_close(c);
    return rc;
}

const verb verb_cluster = {
    .name = "cluster",
    .operands = "SRC --clusters K --out RUN",
    .summary = "the main job: learn from images without labels, and cluster them",
    .text =
        "Chooses settings by the images and the device, says which, trains, clusters, and writes\n"
        "a run's folder: labels.csv (path,cluster,distance,boundary), the model, the features.\n"
        "--sort-into DIR puts links to the images into DIR/cluster-00, cluster-01, ...\n"
        "Ctrl-C saves, conr train --resume --data SRC --out RUN goes on.  conr assign gives new\n"
        "images their clusters.  SRC: see conr help info.\n"
        "\nExample: conr cluster photos/ --clusters auto --budget 30m --out runs/photos\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
