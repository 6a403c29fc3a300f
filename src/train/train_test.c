/* train_test.c: whole trainings on made-up images: stopped and resumed, with one thread and two, by
 * parts, from another run, balanced; and the schedules. */
#include "train/train.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/test_help.h"
#include "images/images.h"
#include "run/checkpoint.h"
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMAGES = 72, SIDE = 16 };

/* A .npy of IMAGES gray images in three kinds: stripes along, stripes across, a disk; noise on
 * them. */
static const char *make_images(void) {
    static unsigned char file[128 + IMAGES * SIDE * SIDE];
    char header[119];
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = 118, file[9] = 0;
    snprintf(header, sizeof header,
             "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", IMAGES, SIDE,
             SIDE);
    memset(file + 10, ' ', 118);
    memcpy(file + 10, header, strlen(header));
    file[127] = '\n';
    rng r = rng_at(7, 0, 0, RNG_TEST);
    for (int i = 0; i < IMAGES; i++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int dx = x - 8, dy = y - 8, kind = i % 3;
                bool on = kind == 0 ? x / 3 % 2 : kind == 1 ? y / 3 % 2 : dx * dx + dy * dy < 30;
                file[128 + (i * SIDE + y) * SIDE + x] =
                    (unsigned char)((on ? 150 : 40) + rng_below(&r, 60));
            }
    return temporary_file("images.npy", file, sizeof file);
}

static conr_settings *settings(const char *framework) {
    static const char *const pairs[][2] = {
        {"encoder", "small"},
        {"width", "4"},
        {"size", "16"},
        {"hidden", "16"},
        {"features", "8"},
        {"predictor_hidden", "8"},
        {"batch", "16"},
        {"epochs", "4"},
        {"stage1_epochs", "2"},
        {"warmup_epochs", "1"},
        {"clusters", "3"},
        {"k", "4"},
        {"k1", "4"},
        {"queue", "64"},
        {"lr", "0.1"},
        {"checkpoint_every", "1"},
        {"eval_every", "2"},
        {"log_every", "2"},
        {"relax_epochs", "2"},
        {"restarts", "2"},
    };
    conr_settings *s;
    assert_ok(conr_settings_new(&s));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_ok(conr_settings_set(s, pairs[i][0], pairs[i][1]));
    assert_ok(conr_settings_set(s, "framework", framework));
    return s;
}

typedef struct stopper {
    int after; /* reports of steps until it stops; 0: never */
} stopper;

static int stop(const conr_progress *p, void *user) {
    stopper *s = user;
    return p->epochs && s->after && --s->after == 0;
}

/* One call of conr_train; returns its status. */
static int train(const conr_settings *s, conr_train_options o, int threads, int stop_after,
                 conr_train_result *result) {
    conr *c;
    conr_images *m;
    stopper stops = {stop_after};
    conr_images_options io = conr_images_defaults();
    assert_ok(conr_open("cpu", threads, &c));
    assert_ok(conr_images_open(c, make_images(), &io, NULL, NULL, &m));
    conr_set_progress(c, stop, &stops);
    int rc = conr_train(c, m, s, &o, result);
    conr_images_close(m);
    conr_close(c);
    return rc;
}

static const char *folder(const char *name) {
    static char path[4][4096];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s", temporary_path(name));
    return path[at];
}

static void assert_same_file(const char *a, const char *b, const char *name) {
    char path[2][4200];
    file_map m[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    for (int i = 0; i < 2; i++) assert_ok(file_map_open(path[i], &m[i]));
    if (m[0].size != m[1].size || memcmp(m[0].data, m[1].data, m[0].size))
        fail_msg("%s and %s differ", path[0], path[1]);
    for (int i = 0; i < 2; i++) file_map_close(&m[i]);
}

static void assert_same_run(const char *a, const char *b) {
    static const char *const names[] = {"model.safetensors", "embeddings.npy", "centroids.npy",
                                        "labels.csv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_same_file(a, b, names[i]);
}

/* Stopped on request at every few steps and resumed, it ends in the same bits; so it does with
 * another number of threads. */
static void stops_and_resumes(void **state) {
    (void)state;
    static const char *const frameworks[] = {"byol", "simsiam", "moco"};
    for (int f = 0; f < 3; f++) {
        char name[2][32];
        conr_settings *s = settings(frameworks[f]);
        conr_train_result r;
        snprintf(name[0], sizeof name[0], "%s-whole", frameworks[f]);
        snprintf(name[1], sizeof name[1], "%s-pieces", frameworks[f]);
        const char *whole = folder(name[0]), *pieces = folder(name[1]);
        assert_ok(train(s, (conr_train_options){.out = whole}, 2, 0, &r));
        assert_int_equal(r.steps, 4 * (IMAGES / 16));
        assert_int_equal(r.clusters, 3);
        assert_true(isfinite(r.loss));
        int rc = train(s, (conr_train_options){.out = pieces}, 1, 3, NULL), times = 0;
        while (rc == CONR_ESTOPPED && ++times < 20)
            rc = train(s, (conr_train_options){.out = pieces, .resume = 1}, 1 + times % 2,
                       1 + times % 4, NULL);
        assert_ok(rc);
        assert_true(times > 3);
        assert_same_run(whole, pieces);
        /* a finished run can be resumed: nothing is left to do, and the results are the same */
        assert_ok(train(s, (conr_train_options){.out = pieces, .resume = 1}, 2, 0, &r));
        assert_same_run(whole, pieces);
        assert_fails(CONR_EINVAL, "holds a run already",
                     train(s, (conr_train_options){.out = pieces}, 1, 0, NULL));
        conr_settings_free(s);
    }
    assert_fails(CONR_EFILE, "holds no run",
                 train(NULL, (conr_train_options){.out = folder("none"), .resume = 1}, 1, 0, NULL));
}

/* A crash between the two renames of a checkpoint leaves one that serves. */
static void broken_off_checkpoint(void **state) {
    (void)state;
    char from[4200], to[4200];
    conr_settings *s = settings("byol");
    const char *run = folder("broken");
    assert_int_equal(train(s, (conr_train_options){.out = run}, 2, 9, NULL), CONR_ESTOPPED);
    snprintf(from, sizeof from, "%s/checkpoint.safetensors", run);
    snprintf(to, sizeof to, "%s/checkpoint.new.safetensors", run);
    assert_int_equal(rename(from, to), 0);
    assert_ok(train(s, (conr_train_options){.out = run, .resume = 1}, 2, 0, NULL));
    assert_same_run(folder("byol-whole"), run);
    conr_settings_free(s);
}

/* Stage 2 from a kept checkpoint is the second half of the whole run, but for its first clustering,
 * which starts anew; the compact form comes close. */
static void starts_from(void **state) {
    (void)state;
    char from[4200];
    conr_settings *s = settings("byol");
    conr_train_result r;
    assert_ok(conr_settings_set(s, "kmeans_warm", "false"));
    assert_ok(conr_settings_set(s, "compact", "true"));
    const char *whole = folder("cold"), *second = folder("second"), *compact = folder("compact");
    assert_ok(train(s, (conr_train_options){.out = whole}, 2, 0, &r));
    snprintf(from, sizeof from, "%s@2", whole);
    assert_ok(train(s, (conr_train_options){.out = second, .from = from, .stage = 2}, 2, 0, &r));
    assert_same_run(whole, second);
    snprintf(from, sizeof from, "%s/compact-0002", whole);
    assert_ok(train(s, (conr_train_options){.out = compact, .from = from, .stage = 2}, 2, 0, &r));
    snprintf(from, sizeof from, "%s@1", whole);
    assert_fails(CONR_EFILE, "no checkpoint of epoch 1",
                 train(s, (conr_train_options){.out = folder("x"), .from = from}, 1, 0, NULL));
    assert_ok(conr_settings_set(s, "width", "8"));
    snprintf(from, sizeof from, "%s@2", whole);
    assert_fails(CONR_EFORMAT, "elements, this network has",
                 train(s, (conr_train_options){.out = folder("y"), .from = from}, 1, 0, NULL));
    conr_settings_free(s);
}

/* Until an epoch, and on from there: the same schedule, the same end. */
static void ends_earlier(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    conr_train_result r;
    assert_ok(conr_settings_set(s, "kmeans_warm", "false"));
    const char *whole = folder("once"), *half = folder("half"), *rest = folder("rest");
    assert_ok(train(s, (conr_train_options){.out = whole}, 2, 0, &r));
    assert_ok(conr_settings_set(s, "until", "3"));
    assert_ok(train(s, (conr_train_options){.out = half}, 2, 0, &r));
    assert_int_equal(r.epochs, 3);
    assert_fails(CONR_EINVAL, "epoch 3 of 3; set until higher",
                 train(s, (conr_train_options){.out = rest, .from = half}, 2, 0, &r));
    assert_ok(conr_settings_set(s, "until", "1000"));
    assert_fails(CONR_EINVAL, "until 1000: there are",
                 train(s, (conr_train_options){.out = rest}, 2, 0, &r));
    assert_ok(conr_settings_set(s, "until", "0"));
    assert_ok(train(s, (conr_train_options){.out = rest, .from = half}, 2, 0, &r));
    assert_same_run(whole, rest);
    conr_settings_free(s);
}

/* K is estimated once; clusters are balanced; the time is kept. */
static void other_ways(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    conr_train_result r;
    assert_ok(conr_settings_set(s, "clusters", "0"));
    assert_ok(conr_settings_set(s, "clusters_high", "6"));
    assert_ok(conr_settings_set(s, "balance", "clusters"));
    assert_ok(train(s, (conr_train_options){.out = folder("auto")}, 2, 0, &r));
    assert_in_range(r.clusters, 2, 6);
    /* stopped within a balanced epoch */
    const char *again = folder("auto-again");
    assert_int_equal(train(s, (conr_train_options){.out = again}, 2, 11, NULL), CONR_ESTOPPED);
    /* as if the crash had come between the checkpoint and the options that tell K */
    char options[4200];
    train_options o = s->o;
    snprintf(options, sizeof options, "%s/options.yaml", again);
    assert_ok(settings_read(&o, options));
    assert_int_equal(o.clusters, r.clusters);
    o.clusters = 0;
    assert_ok(settings_write(&o, options));
    assert_ok(train(s, (conr_train_options){.out = again, .resume = 1}, 1, 0, NULL));
    assert_same_run(folder("auto"), again);
    assert_ok(conr_settings_set(s, "clusters", "3"));
    assert_ok(conr_settings_set(s, "epochs", "1000"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "600"));
    double start = clock_now();
    assert_ok(train(s, (conr_train_options){.out = folder("budget"), .budget = 1}, 2, 0, &r));
    assert_in_range(r.epochs, 2, 999);
    assert_true(clock_now() - start < 30); /* a machine may be busy; 1000 epochs would be minutes */
    conr_settings_free(s);
}

static void rejects(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"stage1_epochs", "5", "stage1_epochs 5"}, {"accumulate", "3", "accumulate 3"},
        {"bn_group", "5", "bn_group 5"},           {"batch", "128", "batch 128"},
        {"clusters", "73", "clusters 73"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        conr_settings *s = settings("byol");
        char name[32];
        snprintf(name, sizeof name, "bad-%zu", i);
        assert_ok(conr_settings_set(s, bad[i][0], bad[i][1]));
        assert_fails(CONR_EINVAL, bad[i][2],
                     train(s, (conr_train_options){.out = folder(name)}, 1, 0, NULL));
        conr_settings_free(s);
    }
    conr_settings *s = settings("byol");
    assert_ok(conr_settings_set(s, "lr", "1000"));
    assert_ok(conr_settings_set(s, "predictor_lr", "1000"));
    assert_fails(CONR_ENUMBER, "not a number",
                 train(s, (conr_train_options){.out = folder("wild")}, 2, 0, NULL));
    conr_settings_free(s);
}

/* ---- the trainer itself ---------------------------------------------------------------------- */

typedef struct setting {
    conr *c;
    conr_images *m;
    store store;
    trainer *t;
} setting;

static void open_trainer(const conr_settings *s, setting *x) {
    conr_images_options io = conr_images_defaults();
    store_options so = {.threads = 1};
    pixels_norm norm;
    assert_ok(conr_open("cpu", 2, &x->c));
    assert_ok(conr_images_open(x->c, make_images(), &io, NULL, NULL, &x->m));
    assert_ok(store_open(&x->m->source, &so, &x->store));
    store_norm(&x->m->source, &x->store, 1, &norm);
    assert_ok(trainer_open(x->c, &x->store, &norm, &s->o, &x->t));
    assert_ok(trainer_seek(x->t));
}

static void close_trainer(setting *x) {
    trainer_close(x->t);
    store_close(&x->store);
    conr_images_close(x->m);
    conr_close(x->c);
}

/* A batch in two parts has the same gradient as in one, in both stages. */
static void parts_add_up(void **state) {
    (void)state;
    static const char *const frameworks[] = {"byol", "simsiam", "moco"};
    for (int f = 0; f < 3; f++)
        for (int stage = 1; stage <= 2; stage++) {
            conr_settings *s = settings(frameworks[f]);
            setting one, two;
            assert_ok(conr_settings_set(s, "bn_group", "8"));
            assert_ok(conr_settings_set(s, "stage1_epochs", stage == 1 ? "2" : "0"));
            open_trainer(s, &one);
            assert_ok(conr_settings_set(s, "accumulate", "2"));
            open_trainer(s, &two);
            if (stage == 2) {
                assert_ok(trainer_cluster(one.t));
                assert_ok(trainer_cluster(two.t));
            }
            assert_ok(trainer_step(one.t));
            assert_ok(trainer_step(two.t));
            assert_close("gradient", two.t->dw, one.t->dw, one.t->net.n_weights,
                         5e-5); /* norms of 8 rows magnify rounding */
            assert_close("loss", two.t->loss, one.t->loss, 1, 1e-5);
            close_trainer(&one);
            close_trainer(&two);
            conr_settings_free(s);
        }
}

/* The target's rows come back to their places: with one group of all, shuffling changes nothing but
 * the order of sums. */
static void shuffled_rows_return(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    setting plain, shuffled;
    open_trainer(s, &plain);
    assert_ok(conr_settings_set(s, "shuffle_bn", "true"));
    open_trainer(s, &shuffled);
    assert_ok(trainer_step(plain.t));
    assert_ok(trainer_step(shuffled.t));
    assert_close("keys", shuffled.t->key, plain.t->key, (size_t)2 * plain.t->n * plain.t->d, 1e-5);
    int moved = 0;
    for (int i = 0; i < 2 * shuffled.t->n; i++) moved += shuffled.t->host_rows[i] != i;
    assert_true(moved > shuffled.t->n);
    close_trainer(&plain);
    close_trainer(&shuffled);
    conr_settings_free(s);
}

/* A batch smaller than the group that shares statistics is one group. */
static void a_group_ends_with_the_batch(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    setting whole, larger;
    open_trainer(s, &whole);
    assert_ok(conr_settings_set(s, "bn_group", "128"));
    open_trainer(s, &larger);
    assert_ok(trainer_step(whole.t));
    assert_ok(trainer_step(larger.t));
    assert_memory_equal(larger.t->dw, whole.t->dw, whole.t->net.n_weights * sizeof(float));
    close_trainer(&whole);
    close_trainer(&larger);
    conr_settings_free(s);
}

/* A run that starts from another one may move the end of stage 1 after the trainer was opened: the
 * views made ahead are those of the new stage. */
static void views_follow_the_stage(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    setting first, moved, second;
    open_trainer(s, &first);
    open_trainer(s, &moved);
    moved.t->o.stage1_epochs = 0;
    assert_ok(trainer_seek(moved.t));
    assert_ok(conr_settings_set(s, "stage1_epochs", "0"));
    open_trainer(s, &second);
    assert_ok(trainer_cluster(moved.t));
    assert_ok(trainer_cluster(second.t));
    assert_ok(trainer_step(first.t));
    assert_ok(trainer_step(moved.t));
    assert_ok(trainer_step(second.t));
    size_t bytes = (size_t)second.t->n * second.t->feed.row * sizeof(float);
    assert_memory_equal(moved.t->images, second.t->images, bytes);
    assert_memory_not_equal(first.t->images, second.t->images, bytes);
    close_trainer(&first);
    close_trainer(&moved);
    close_trainer(&second);
    conr_settings_free(s);
}

/* The balanced order draws small clusters as often as large ones. */
static void balanced_order(void **state) {
    (void)state;
    conr_settings *s = settings("byol");
    setting x;
    int32_t label[IMAGES];
    float centroids[2 * 8] = {1};
    centroids[9] = 1;
    int small = 0;
    assert_ok(conr_settings_set(s, "balance", "clusters"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "0"));
    open_trainer(s, &x);
    for (int i = 0; i < IMAGES; i++) label[i] = i < 9; /* 9 of 72 */
    assert_ok(trainer_set_labels(x.t, label, centroids, 2));
    int total = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        x.t->step = epoch * x.t->steps;
        assert_ok(trainer_seek(x.t));
        for (int64_t i = 0; i < x.t->steps * x.t->n; i++, total++) small += label[x.t->table[i]];
    }
    assert_true(fabs((double)small / total - 0.5) < 0.05);
    close_trainer(&x);
    conr_settings_free(s);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void schedules(void **state) {
    (void)state;
    conr_settings *s;
    step_values at;
    assert_ok(conr_settings_new(&s));
    train_options *o = &s->o;
    schedule_at(o, 0, 10, &at);
    assert_float_equal(at.lr[0], 0.05 * 0.1 / 50, 1e-9);
    assert_float_equal(at.lr[1], 10 * 0.05 * 0.1 / 50, 1e-8);
    schedule_at(o, 499, 10, &at); /* e = 50: the peak */
    assert_float_equal(at.lr[0], 0.05, 1e-9);
    schedule_at(o, 5499, 10, &at); /* e = 550: half way of the cosine */
    assert_float_equal(at.lr[0], 0.025, 1e-8);
    assert_float_equal(at.average, 1 - 0.004 * (1 + cos(M_PI * 0.55)) / 2, 1e-7);
    assert_int_equal(stage_of(o, 799), 1);
    assert_int_equal(stage_of(o, 800), 2);
    schedule_at(o, 8000, 10, &at); /* the first step of stage 2: both rates a tenth */
    assert_float_equal(at.lr[0], at.lr[1], 1e-12);
    assert_int_equal(at.epoch, 800);
    assert_int_equal(at.keep, 205); /* floor(256 * 0.804) */
    schedule_at(o, 9999, 10, &at);  /* the last: 0.006 of the peak, times a tenth; m is 1 */
    assert_float_equal(at.lr[0], 0.05 * 0.1 * 0.0061558, 1e-9);
    assert_float_equal(at.average, 1, 1e-9);
    assert_int_equal(at.keep, 256);
    o->relax_epochs = 0; /* the paper: to the end of stage 2 */
    assert_float_equal(schedule_fraction(o, 800), 0.8, 1e-12);
    assert_float_equal(schedule_fraction(o, 900), 0.9, 1e-12);
    o->relaxation = false;
    assert_float_equal(schedule_fraction(o, 990), 0.8, 1e-12);
    o->boundary = false;
    assert_float_equal(schedule_fraction(o, 990), 1, 0);
    conr_settings_free(s);
}

static void presets(void **state) {
    (void)state;
    conr_settings *s;
    char text[256];
    const char recipe[] = "batch: 64\npreset: released\n"; /* the preset comes first all the same */
    assert_ok(conr_settings_new(&s));
    assert_ok(conr_settings_read(s, temporary_file("r.yaml", recipe, sizeof recipe - 1)));
    assert_int_equal(s->o.batch, 64);
    assert_int_equal(s->o.bn_group, 128);
    assert_float_equal(s->o.stage2_loss_scale, 0.25, 0);
    assert_ok(conr_settings_set(s, "preset", "paper"));
    assert_int_equal(s->o.batch, 256);
    assert_ok(conr_settings_get(s, "lr", text, sizeof text));
    assert_string_equal(text, "0.05");
    assert_fails(CONR_EINVAL, "nonsense", conr_settings_set(s, "nonsense", "1"));
    conr_setting_info info;
    int n = 0;
    for (; conr_setting(n, &info); n++) assert_ok(conr_settings_set(s, info.key, info.initial));
    assert_true(n > 60);
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules),
        cmocka_unit_test(presets),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(shuffled_rows_return),
        cmocka_unit_test(a_group_ends_with_the_batch),
        cmocka_unit_test(views_follow_the_stage),
        cmocka_unit_test(balanced_order),
        cmocka_unit_test(stops_and_resumes),
        cmocka_unit_test(broken_off_checkpoint),
        cmocka_unit_test(starts_from),
        cmocka_unit_test(ends_earlier),
        cmocka_unit_test(other_ways),
        cmocka_unit_test(rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
