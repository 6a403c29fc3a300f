/* train_ranks_test.c: N ranks train the same model as one.  Under mpirun -n 2 and -n 4 in builds
 * with MPI: every rank trains by itself, then together with the others, and compares.  As one
 * process it compares a training with itself; with CONR_ONE_RANK=1 it makes every collective call,
 * and with CONR_TEST_DEVICE=cuda-f32 NCCL carries them.
 *
 * Bounds.  Sums over the batch are taken in a different order, so losses differ by rounding,
 * usually 1e-7.  SGD propagates the difference, and occasionally a ReLU or a neighbor at a
 * threshold makes it 1e-5.  So: 1e-5 over the first five steps, where a wrong factor, order or
 * group shows at once (1e-2), and 1e-3 to the end. */
#include "train/train.h"

#include "train/train_test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 96 };

static conr *context, *lonely; /* with all ranks; by itself */
static char engines[4096];     /* a file */
static unsigned char pixels_of_all[IMAGES][TEST_SIDE * TEST_SIDE];
static stored stored_images[IMAGES];
static const store images = {.n = IMAGES, .c = 1, .image = stored_images};

static void make_images(void) {
    rng r = rng_at(7, 0, 0, RNG_TEST);
    for (int i = 0; i < IMAGES; i++) {
        draw_test_image(&r, i, pixels_of_all[i]);
        stored_images[i] = (stored){pixels_of_all[i], TEST_SIDE, TEST_SIDE};
    }
}

static void set(conr_settings *s, const char *pair) {
    char key[64];
    const char *value = strchr(pair, '=');
    snprintf(key, sizeof key, "%.*s", (int)(value - pair), pair);
    assert_ok(conr_settings_set(s, key, value + 1));
}

static conr_settings *settings(const char *const *more) {
    /* one start of k-means: of two that end alike, rounding would decide which is used */
    static const char *const pairs[] = {"encoder=small",
                                        "width=4",
                                        "size=16",
                                        "hidden=16",
                                        "features=8",
                                        "predictor_hidden=8",
                                        "batch=16",
                                        "epochs=20",
                                        "stage1_epochs=10",
                                        "warmup_epochs=1",
                                        "clusters=3",
                                        "k=4",
                                        "k1=4",
                                        "queue=64",
                                        "lr=0.01",
                                        "predictor_lr=1",
                                        "relax_epochs=2",
                                        "restarts=1",
                                        "kmeans_warm=false",
                                        NULL};
    conr_settings *s;
    assert_ok(conr_settings_new(&s));
    for (const char *const *p = pairs; *p; p++) set(s, *p);
    for (const char *const *p = more; *p; p++) set(s, *p);
    return s;
}

enum { MOST = 20 };
typedef struct course {
    double loss[2][MOST];
    int32_t label[IMAGES];
    float *w, *running;
    size_t n_weights, n_running;
} course;

static void follow(conr *c, const conr_settings *s, int steps, course *to) {
    trainer *t;
    pixels_norm norm = {{0.4f}, {0.25f}};
    assert_ok(trainer_open(c, &images, &norm, &s->o, &t));
    for (int stage = 0; stage < 2; stage++) {
        t->step = stage * s->o.stage1_epochs * t->steps;
        if (stage == 1 || labels_in(&t->o, 0)) assert_ok(trainer_cluster(t));
        assert_ok(trainer_seek(t));
        for (int i = 0; i < steps; i++) {
            assert_ok(trainer_step(t));
            assert_ok(trainer_loss(t, &to->loss[stage][i]));
        }
    }
    assert_ok(trainer_cluster(t));
    memcpy(to->label, t->label, sizeof to->label);
    to->n_weights = t->net.n_weights, to->n_running = t->net.n_running;
    to->w = calloc(to->n_weights, sizeof *to->w);
    to->running = calloc(to->n_running, sizeof *to->running);
    assert_ok(t->dev->op.get(t->dev, to->w, t->w, to->n_weights * sizeof *to->w));
    assert_ok(t->dev->op.get(t->dev, to->running, t->target_running,
                             to->n_running * sizeof *to->running));
    trainer_close(t);
}

/* Every rank holds the same bits. */
static void same_everywhere(const char *what, const void *mine, size_t bytes) {
    ranks *r = &context->ranks;
    char *all = malloc(bytes * (size_t)r->count);
    assert_ok(ranks_all_gather(r, mine, bytes, all));
    for (int i = 0; i < r->count; i++)
        if (memcmp(all + (size_t)i * bytes, all, bytes)) fail_msg("%s: rank %d differs", what, i);
    free(all);
}

static void compare(const char *name, const char *const *more, int steps) {
    conr_settings *s = settings(more);
    course one, many;
    double worst = 0;
    follow(lonely, s, steps, &one);
    follow(context, s, steps, &many);
    for (int stage = 0; stage < 2; stage++)
        for (int i = 0; i < steps; i++) {
            double a = one.loss[stage][i], b = many.loss[stage][i];
            double off = fabs(a - b) / fmax(1, fabs(a));
            if (off > worst) worst = off;
            if (!(off <= (stage == 0 && i < 5 ? 1e-5 : 1e-3)))
                fail_msg("%s: loss %.8f at step %d of stage %d, alone %.8f", name, b, i, stage + 1,
                         a);
        }
    if (context->ranks.rank == 0) printf("%-12s losses within %.1e\n", name, worst);
    assert_memory_equal(many.label, one.label, sizeof one.label);
    assert_close("running statistics", many.running, one.running, one.n_running, 1e-3);
    same_everywhere("weights", many.w, many.n_weights * sizeof *many.w);
    same_everywhere("statistics", many.running, many.n_running * sizeof *many.running);
    free(one.w), free(one.running), free(many.w), free(many.running);
    conr_settings_free(s);
}

#define CASE(name, steps, ...)                                                                     \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        compare(#name, (const char *const[]){__VA_ARGS__, NULL}, steps);                           \
    }

CASE(byol, 20, "framework=byol")
CASE(simsiam, 8, "framework=simsiam")
CASE(moco, 8, "framework=moco")
CASE(propos, 8, "framework=propos", "prototype_epoch=0", "prototypes_stage2=true",
     "positive_noise=0.1")
CASE(propos_parts, 8, "framework=propos", "prototype_epoch=0", "prototypes_stage2=true",
     "positive_noise=0.1", "bn_group=4", "batch=32", "accumulate=2")
CASE(confident, 8, "stage2=confident", "positive_noise=0.1")
CASE(confident_parts, 8, "stage2=confident", "framework=propos", "bn_group=4", "batch=32",
     "accumulate=2")
CASE(confident_shuffled, 8, "stage2=confident", "bn_group=8", "shuffle_bn=true")
CASE(shuffled_propos, 8, "framework=propos", "prototype_epoch=0", "bn_group=8", "shuffle_bn=true")
/* batch statistics of 8 rows: within a rank, or over several */
CASE(groups, 8, "bn_group=8")
CASE(shuffled, 8, "bn_group=8", "shuffle_bn=true")
CASE(shuffled_moco, 8, "framework=moco", "shuffle_bn=true", "bn_group=4")
CASE(local, 8, "bn_group=4", "batch=32")
CASE(parts, 8, "bn_group=4", "batch=32", "accumulate=2")
CASE(balanced, 8, "balance=clusters")

static void shares(void **state) {
    (void)state;
    trainer *t;
    pixels_norm norm = {{0.4f}, {0.25f}};
    if (context->ranks.count == 1) return;
    conr_settings *s = settings((const char *const[]){"batch=15", NULL});
    assert_fails(CONR_EINVAL, "cannot be shared", trainer_open(context, &images, &norm, &s->o, &t));
    conr_settings_free(s);
    if (context->ranks.count != 4) return;
    s = settings((const char *const[]){"batch=48", "bn_group=16", NULL});
    assert_fails(CONR_EINVAL, "bn_group 16", trainer_open(context, &images, &norm, &s->o, &t));
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byol),
        cmocka_unit_test(simsiam),
        cmocka_unit_test(moco),
        cmocka_unit_test(propos),
        cmocka_unit_test(propos_parts),
        cmocka_unit_test(shuffled_propos),
        cmocka_unit_test(groups),
        cmocka_unit_test(shuffled),
        cmocka_unit_test(shuffled_moco),
        cmocka_unit_test(local),
        cmocka_unit_test(parts),
        cmocka_unit_test(balanced),
        cmocka_unit_test(confident),
        cmocka_unit_test(confident_parts),
        cmocka_unit_test(confident_shuffled),
        cmocka_unit_test(shares),
    };
    make_images();
    const char *where = getenv("CONR_TEST_DEVICE");
    if (!where) where = "cpu";
    if (conr_open(where, 1, &context) < 0 || conr_open(where, 1, &lonely) < 0)
        return fprintf(stderr, "%s\n", conr_error()), 1;
    snprintf(engines, sizeof engines, "%s", temporary_path("engines.txt"));
    context->dev->choices = lonely->dev->choices = engines; /* both make the same choices */
    printf("%s: rank %d of %d, %s\n", conr_device(context), context->ranks.rank,
           context->ranks.count, context->ranks.talks ? "talking" : "silent");
    lonely->ranks = (ranks){.count = 1, .locals = 1};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    conr_close(lonely);
    conr_close(context);
    return failed;
}
