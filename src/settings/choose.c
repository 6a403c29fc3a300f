/* choose.c: settings that fit the images and the device.
 *
 * The rules are plain, so that the same images on the same kind of device give the same settings.
 * Each choice is reported with its reason and can be fixed by the caller; what depends on a fixed
 * setting follows it. */
#include "base/status.h"
#include "context/context.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEWEST = 16,       /* images to learn from */
    GUESSED_K = 25,    /* for the size of neighborhoods, while K is unknown */
    SHORT_BUDGET = 20, /* minutes; below this the network stays narrow */
    CPU_RATE = 400,    /* images per second, roughly: the small network, 64 pixels, two cores */
    LEAST_EPOCHS = 20, /* with fewer, smaller images seen more often are better */
    SETTING_SIZE = 256 /* bytes of a value as text */
};

/* What the choices are based on. */
typedef struct facts {
    const char *fixed; /* keys separated by blanks, or NULL */
    conr_on_choice *on_choice;
    void *user;
    int64_t n;
    int side; /* shorter side of a typical image */
    bool gray, gpu;
    double budget; /* seconds; 0: none */
    int clusters;  /* 0: unknown yet */
} facts;

static bool is_fixed(const facts *f, const char *key) {
    size_t n = strlen(key), length;
    for (const char *at = f->fixed ? f->fixed : ""; *at; at += length) {
        at += strspn(at, " ");
        length = strcspn(at, " ");
        if (length == n && !memcmp(at, key, n)) return true;
    }
    return false;
}

/* The value of a known key; out: SETTING_SIZE bytes; returns out. */
static const char *value_of(const conr_settings *s, const char *key, char *out) {
    int rc = conr_settings_get(s, key, out, SETTING_SIZE);
    ASSERT(rc == 0);
    return out;
}

/* Sets one setting with a reason, unless it is fixed; returns the value that holds. */
static double choose(const facts *f, conr_settings *s, const char *key, const char *value,
                     const char *why) {
    char text[SETTING_SIZE];
    bool fixed = is_fixed(f, key);
    int rc = fixed ? 0 : conr_settings_set(s, key, value);
    ASSERT(rc == 0); /* the rules give only allowed values */
    value_of(s, key, text);
    if (f->on_choice) f->on_choice(key, text, fixed ? NULL : why, f->user);
    return strtod(text, NULL);
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
                                  "that of the images");
    int size = side <= 80 ? 64 : side <= 112 ? 96 : side <= 176 ? 128 : 224;
    bool short_of_time =
        f->budget > 0 && !f->gpu && f->budget * CPU_RATE / (double)f->n < LEAST_EPOCHS;
    if (short_of_time)
        return (int)choose_number(f, s, "size", 32, "many images and little time on a CPU");
    if (!f->gpu && size > 64)
        return (int)choose_number(f, s, "size", 64, "the images are larger, but this is a CPU");
    return (int)choose_number(f, s, "size", size, "by the typical side of the images");
}

/* The network and its heads; returns whether it is the small one. */
static bool choose_encoder(const facts *f, conr_settings *s, int size) {
    bool little = size <= 32 && f->gray, large = f->n >= 20000 && (!f->budget || f->budget > 3600);
    char encoder[SETTING_SIZE];
    if (!f->gpu || little)
        choose(f, s, "encoder", "small", f->gpu ? "small gray images" : "this is a CPU");
    else if (size <= 32)
        choose(f, s, "encoder", "resnet18", "the usual one at this size");
    else
        choose(f, s, "encoder", large ? "resnet34" : "resnet18",
               large ? "many images" : "few images or little time");
    bool small = !strcmp(value_of(s, "encoder", encoder), "small");
    bool hurry = f->budget > 0 && f->budget < SHORT_BUDGET * 60;
    if (small)
        choose_number(f, s, "width", f->gray || (hurry && !f->gpu) ? 16 : 32,
                      f->gray ? "gray images" : "color images");
    choose_number(f, s, "hidden", small ? 512 : 4096, "goes with the encoder");
    choose_number(f, s, "predictor_hidden", small ? 512 : 4096, "goes with the encoder");
    choose_number(f, s, "features", small ? 64 : 256, "goes with the encoder");
    return small;
}

static int choose_batch(const facts *f, conr_settings *s, bool small) {
    int most = small ? 128 : 256, batch = 32;
    while (batch > f->n) batch /= 2;
    while (2 * batch <= most && 2 * batch <= f->n / 8) batch *= 2;
    return (int)choose_number(f, s, "batch", batch, "a power of two, several steps per epoch");
}

/* As many images in total as the recipes show to the same kind of network. */
static void choose_epochs(const facts *f, conr_settings *s, bool small, int size) {
    double seen = small ? 600e3 : 12e6, least = small ? 20 : 100, most = small ? 400 : 1000;
    double epochs = fmin(most, fmax(least, ceil(seen / (double)f->n)));
    if (size > 32 && !f->gpu) epochs = fmax(least, ceil(epochs / 2));
    epochs = choose_number(f, s, "epochs", epochs,
                           f->budget ? "before the budget changes it" : "by the number of images");
    choose_number(f, s, "stage1_epochs", floor(epochs * (small ? 0.625 : 0.8)),
                  "the plain framework first");
    choose_number(f, s, "warmup_epochs", fmin(50, floor(epochs / 16)), "a sixteenth of the epochs");
    choose_number(f, s, "relax_epochs", 0, "over all of stage 2");
    choose_number(f, s, "eval_every", fmax(1, floor(epochs / 20)), "twenty times per run");
    choose_number(f, s, "checkpoint_every", fmax(1, floor(epochs / 20)), "twenty times per run");
}

/* Settings that short runs of the small network need, and neighborhoods that fit the batch. */
static void choose_rest(const facts *f, conr_settings *s, bool small, int batch) {
    int K = f->clusters ? f->clusters : GUESSED_K;
    char framework[SETTING_SIZE], epochs[SETTING_SIZE];
    choose_number(f, s, "lr", (small ? 0.4 : 0.05) * batch / 256, "grows with the batch");
    choose_number(f, s, "decay_by_length", 0.05, "short runs want more of it");
    if (small) {
        choose_number(f, s, "predictor_lr", 2.5, "lr is high already");
        choose_number(f, s, "average", 0.99, "a short run");
        choose_number(f, s, "stage2_lr", 0.3, "a short run");
        choose_number(f, s, "stage2_predictor_lr", 0.3, "a short run");
        choose_number(f, s, "crop_scale", f->gray ? 0.4 : 0.25, "a small network");
    } else if (strcmp(value_of(s, "framework", framework), "moco")) { /* a queue wants a slow one */
        choose_number(f, s, "average_share", 0.005, "a short run needs a target that follows");
        choose_number(f, s, "stage2_average", 0.9999, "and stage 2 one that stays");
        choose_number(f, s, "early_k", 2, "the nearest neighbor helps from early on");
        choose_number(f, s, "early_epoch", floor(atof(value_of(s, "epochs", epochs)) / 10),
                      "after a tenth of the epochs");
        choose(f, s, "kmeans_choice", "neighbors", "clusters that neighbors confirm");
    }
    int near = batch / K < 2 ? 2 : batch / K > 10 ? 10 : batch / K;
    const char *why = near < 10 ? "a batch has no more images of one cluster" : "as in the paper";
    choose_number(f, s, "k", near, why);
    choose_number(f, s, "k1", near, why);
    if (!f->clusters && f->n < 500)
        choose_number(f, s, "clusters_high", fmax(3, floor((double)f->n / 10)), "few images");
}

static void choose_all(const facts *f, conr_settings *s) {
    int size = choose_size(f, s);
    bool small = choose_encoder(f, s, size);
    int batch = choose_batch(f, s, small);
    choose_epochs(f, s, small, size);
    choose_rest(f, s, small, batch);
}

/* The shorter side of a typical image.  If sizes differ, only the extremes are known: take their
 * geometric mean. */
static int usual_side(const conr_images_info *i) {
    double w = sqrt((double)i->width[0] * i->width[1]);
    double h = sqrt((double)i->height[0] * i->height[1]);
    return (int)lround(fmin(w, h));
}

int conr_settings_choose(const conr *c, const conr_images *m, double budget, const char *fixed,
                         conr_settings *s, conr_on_choice *on_choice, void *user) {
    char clusters[SETTING_SIZE];
    conr_images_info i;
    conr_images_about(m, &i);
    facts f = {.fixed = fixed,
               .on_choice = on_choice,
               .user = user,
               .n = i.n,
               .side = usual_side(&i),
               .gray = i.channels == 1,
               .gpu = c->dev->is_gpu,
               .budget = budget,
               .clusters = atoi(value_of(s, "clusters", clusters))};
    if (i.n < FEWEST)
        return fail(CONR_EINVAL,
                    "%lld images: too few to learn from; give at least %d, or use k-means",
                    (long long)i.n, FEWEST);
    if (f.clusters > i.n)
        return fail(CONR_EINVAL, "clusters %d: more than the %lld images; ask for fewer",
                    f.clusters, (long long)i.n);
    choose_all(&f, s);
    return 0;
}
