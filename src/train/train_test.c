/* train_test.c: single steps by parts, shuffled, balanced; the schedules and presets. */
#include "train/train.h"

#include "base/memory.h"
#include "images/images.h"
#include "train/schedule.h"
#include "train/train_test_help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
    conr *c;
    conr_images *m;
    store store;
    trainer *t;
} setting;

static void open_trainer_on(const char *device_name, const conr_settings *s, setting *x) {
    conr_images_options io = conr_images_defaults();
    store_options so = {.threads = 1};
    pixels_norm norm;
    assert_ok(conr_open(device_name, 2, &x->c));
    assert_ok(conr_images_open(x->c, test_images_file(), &io, NULL, NULL, &x->m));
    assert_ok(store_open(&x->m->source, &so, &x->store));
    store_norm(&x->m->source, &x->store, 1, &norm);
    assert_ok(trainer_open(x->c, &x->store, &norm, &s->o, &x->t));
    assert_ok(trainer_seek(x->t));
}

static void open_trainer(const conr_settings *s, setting *x) { open_trainer_on("cpu", s, x); }

static void close_trainer(setting *x) {
    trainer_close(x->t);
    store_close(&x->store);
    conr_images_close(x->m);
    conr_close(x->c);
}

/* A batch in two parts has the same gradient as in one, in both stages. */
static void parts_add_up(void **state) {
    (void)state;
    static const char *const frameworks[] = {"byol", "simsiam", "moco", "propos", "byol"};
    for (int f = 0; f < 5; f++)
        for (int stage = f == 4 ? 2 : 1; stage <= 2; stage++) {
            conr_settings *s = test_settings(frameworks[f]);
            setting one, two;
            bool labels = stage == 2 || f == 3;
            if (f == 4) assert_ok(conr_settings_set(s, "stage2", "confident"));
            assert_ok(conr_settings_set(s, "prototype_epoch", "0"));
            assert_ok(conr_settings_set(s, "prototypes_stage2", "true"));
            assert_ok(conr_settings_set(s, "positive_noise", "0.1"));
            assert_ok(conr_settings_set(s, "bn_group", "8"));
            assert_ok(conr_settings_set(s, "stage1_epochs", stage == 1 ? "2" : "0"));
            open_trainer(s, &one);
            assert_ok(conr_settings_set(s, "accumulate", "2"));
            open_trainer(s, &two);
            if (labels) {
                assert_ok(trainer_cluster(one.t));
                assert_ok(trainer_cluster(two.t));
            }
            assert_ok(trainer_step(one.t));
            assert_ok(trainer_step(two.t));
            assert_true(two.t->scatters == (f >= 3) && two.t->confident == (f == 4));
            assert_close("gradient", two.t->dw, one.t->dw, one.t->net.n_weights,
                         5e-5); /* norms of 8 rows magnify rounding */
            /* its terms are about 1, and may cancel */
            assert_true(fabsf(*two.t->loss - *one.t->loss) <=
                        1e-5f * fmaxf(1, fabsf(*one.t->loss)));
            close_trainer(&one);
            close_trainer(&two);
            conr_settings_free(s);
        }
}

/* |a - b| / |b| */
static double apart(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / size);
}

/* ProPos is BYOL to the bit until its first epoch with prototypes; from then on, with neither
 * weight nor noise, but for rounding; each of the two changes it. */
static void propos_adds_to_byol(void **state) {
    (void)state;
    static const char *const cases[][4] = {
        /* framework, prototypes, positive_noise, prototype_epoch */
        {"byol", "0.1", "0.1", "0"}, {"propos", "0", "0", "0"},   {"propos", "0.1", "0.1", "1"},
        {"propos", "0.1", "0", "0"}, {"propos", "0", "0.1", "0"}, {"propos", "0.1", "0.1", "0"},
    };
    float *w[6];
    size_t n = 0;
    for (int i = 0; i < 6; i++) {
        conr_settings *s = test_settings(cases[i][0]);
        setting x;
        assert_ok(conr_settings_set(s, "prototypes", cases[i][1]));
        assert_ok(conr_settings_set(s, "positive_noise", cases[i][2]));
        assert_ok(conr_settings_set(s, "prototype_epoch", cases[i][3]));
        open_trainer(s, &x);
        assert_ok(trainer_cluster(x.t));
        while (x.t->step < x.t->steps) assert_ok(trainer_step(x.t));
        n = x.t->net.n_weights;
        w[i] = memory_new("weights", n, sizeof *w[i]);
        memcpy(w[i], x.t->w, n * sizeof *w[i]);
        close_trainer(&x);
        conr_settings_free(s);
    }
    assert_memory_equal(w[2], w[0], n * sizeof *w[0]);
    assert_true(apart(w[1], w[0], n) < 1e-5);
    for (int i = 3; i < 6; i++)
        for (int j = 0; j < i; j++) assert_true(apart(w[i], w[j], n) > 1e-4);
    for (int i = 0; i < 6; i++) free(w[i]);
}

/* Recomputed activations change neither the noise nor the second gradient. */
static void prototypes_recompute(void **state) {
    (void)state;
    conr_settings *s = test_settings("propos");
    setting kept, again;
    assert_ok(conr_settings_set(s, "prototype_epoch", "0"));
    assert_ok(conr_settings_set(s, "prototypes", "1"));
    assert_ok(conr_settings_set(s, "positive_noise", "0.1"));
    open_trainer(s, &kept);
    assert_ok(conr_settings_set(s, "recompute", "true"));
    open_trainer(s, &again);
    assert_ok(trainer_cluster(kept.t));
    assert_ok(trainer_cluster(again.t));
    assert_ok(trainer_step(kept.t));
    assert_ok(trainer_step(again.t));
    assert_true(kept.t->scatters);
    assert_close("gradient", again.t->dw, kept.t->dw, kept.t->net.n_weights, 1e-6);
    close_trainer(&kept);
    close_trainer(&again);
    conr_settings_free(s);
}

/* The confident stage 2: until it begins nothing changes, each of its parts then does, and without
 * pull, prototypes and noise it is BYOL. */
static void confident_parts(void **state) {
    (void)state;
    static const char *const cases[][6] = {
        /* stage2, stage1_epochs, pull, prototypes, noise, k */
        {"conr", "2", "1", "1", "0", "50"},        {"confident", "2", "1", "1", "0.1", "50"},
        {"conr", "0", "1", "1", "0", "50"},        {"confident", "0", "0", "0", "0", "50"},
        {"confident", "0", "1", "0", "0", "50"},   {"confident", "0", "0", "1", "0", "50"},
        {"confident", "0", "0", "0", "0.1", "50"}, {"confident", "0", "1", "1", "0.1", "50"},
        {"confident", "0", "1", "1", "0.1", "1"},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    float *w[CASES];
    size_t n = 0;
    for (int i = 0; i < CASES; i++) {
        conr_settings *s = test_settings("byol");
        setting x;
        static const char *const keys[] = {"stage2",         "stage1_epochs",
                                           "confident_pull", "confident_prototypes",
                                           "positive_noise", "confident_k"};
        for (int j = 0; j < 6; j++) assert_ok(conr_settings_set(s, keys[j], cases[i][j]));
        assert_ok(conr_settings_set(s, "neighborhood", "none"));
        assert_ok(conr_settings_set(s, "boundary", "false"));
        open_trainer(s, &x);
        assert_ok(trainer_cluster(x.t));
        while (x.t->step < x.t->steps) assert_ok(trainer_step(x.t));
        n = x.t->net.n_weights;
        w[i] = memory_new("weights", n, sizeof *w[i]);
        memcpy(w[i], x.t->w, n * sizeof *w[i]);
        close_trainer(&x);
        conr_settings_free(s);
    }
    assert_memory_equal(w[1], w[0], n * sizeof *w[0]);
    assert_true(apart(w[3], w[2], n) < 1e-5);
    for (int i = 4; i < CASES; i++)
        for (int j = 3; j < i; j++) assert_true(apart(w[i], w[j], n) > 1e-4);
    for (int i = 0; i < CASES; i++) free(w[i]);
}

/* ResNet-34 with the stem of CIFAR takes a step at 32 pixels, the same as on the reference. */
static void deep_and_small(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"encoder", "resnet34"}, {"stem", "cifar"},      {"size", "32"},
        {"width", "2"},          {"stage1_epochs", "0"}, {"stage2", "confident"},
    };
    conr_settings *s = test_settings("propos");
    setting x, plain;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_ok(conr_settings_set(s, pairs[i][0], pairs[i][1]));
    open_trainer(s, &x);
    open_trainer_on("ref", s, &plain);
    int convolutions = 0; /* 33, three shortcuts, four layers of the heads */
    for (int i = 0; i < x.t->net.n_layers; i++)
        convolutions += x.t->net.layer[i].kind == LAYER_CONV;
    assert_int_equal(convolutions, 40);
    assert_int_equal(x.t->net.layer[0].k, 3);
    assert_ok(trainer_cluster(x.t));
    assert_ok(trainer_set_labels(plain.t, x.t->label, x.t->centroids, x.t->K));
    assert_ok(trainer_step(x.t));
    assert_ok(trainer_step(plain.t));
    assert_true(x.t->confident);
    assert_memory_equal(x.t->alike, plain.t->alike, 2 * (size_t)x.t->n * sizeof *x.t->alike);
    assert_true(fabsf(*x.t->loss - *plain.t->loss) < 1e-4f);
    /* a deep network of two channels that knows nothing: a ReLU that flips is worth 1e-3 */
    assert_true(apart(x.t->dw, plain.t->dw, x.t->net.n_weights) < 2e-2);
    close_trainer(&x);
    close_trainer(&plain);
    conr_settings_free(s);
}

/* Which epochs have prototypes, and which begin with a clustering. */
static void prototype_epochs(void **state) {
    (void)state;
    conr_settings *s = test_settings("propos");
    train_options *o = &s->o;
    o->stage1_epochs = 3, o->prototype_epoch = 1;
    for (int epoch = 0; epoch < 5; epoch++) {
        assert_int_equal(prototypes_in(o, epoch), epoch == 1 || epoch == 2);
        assert_int_equal(labels_in(o, epoch), epoch >= 1);
    }
    o->prototypes_stage2 = true;
    assert_true(prototypes_in(o, 4));
    o->clusters = 0; /* estimated when stage 1 is over */
    assert_false(prototypes_in(o, 2));
    assert_false(labels_in(o, 2));
    assert_true(labels_in(o, 3));
    conr_settings_free(s);
}

/* The target's rows return to their places: with a single group, shuffling changes only the order
 * of sums. */
static void shuffled_rows_return(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
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
    conr_settings *s = test_settings("byol");
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
    conr_settings *s = test_settings("byol");
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
    conr_settings *s = test_settings("byol");
    setting x;
    int32_t label[TEST_IMAGES];
    float centroids[2 * 8] = {1};
    centroids[9] = 1;
    int small = 0;
    assert_ok(conr_settings_set(s, "balance", "clusters"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "0"));
    open_trainer(s, &x);
    for (int i = 0; i < TEST_IMAGES; i++) label[i] = i < 9; /* 9 of 72 */
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
    schedule_at(o, 5499, 10, &at); /* e = 550: halfway down the cosine */
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

/* m of stage 2 alone can be fixed; stage 1 keeps its schedule. */
static void stage2_average(void **state) {
    (void)state;
    conr_settings *s;
    step_values before, plain, at;
    assert_ok(conr_settings_new(&s));
    train_options *o = &s->o;
    for (int fixed = 0; fixed < 2; fixed++) {
        o->average_fixed = fixed;
        o->stage2_average = 0;
        schedule_at(o, 7999, 10, &before); /* the last step of stage 1 */
        schedule_at(o, 8000, 10, &plain);
        assert_true(plain.average >= before.average);
        o->stage2_average = 0.97;
        schedule_at(o, 7999, 10, &at);
        assert_memory_equal(&at, &before, sizeof at);
        schedule_at(o, 8000, 10, &at);
        assert_float_equal(at.average, 0.97, 1e-7);
        plain.average = at.average; /* nothing else changes */
        assert_memory_equal(&at, &plain, sizeof at);
        schedule_at(o, 9999, 10, &at);
        assert_float_equal(at.average, 0.97, 1e-7);
    }
    conr_settings_free(s);
}

/* m by the length of the run: a memory of a fraction of all steps, within its limits. */
static void average_by_length(void **state) {
    (void)state;
    static const struct {
        int epochs;
        double m;
    } rows[] = {{1, 1 - 1 / 10.0},      /* 0.5 steps: the least */
                {100, 1 - 1 / 50.0},    /* 0.005 of 10,000 */
                {400, 1 - 1 / 200.0},   /* of 40,000 */
                {1000, 1 - 1 / 250.0}}; /* 500 steps: the most */
    conr_settings *s;
    step_values first, at;
    assert_ok(conr_settings_new(&s));
    train_options *o = &s->o;
    o->average_share = 0.005;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        o->epochs = rows[i].epochs, o->stage1_epochs = (o->epochs * 4 + 4) / 5;
        schedule_at(o, 0, 100, &first);
        assert_float_equal(first.average, rows[i].m, 1e-7);
        schedule_at(o, o->epochs * 100 - 1, 100, &at); /* constant to the end */
        assert_true(at.average == first.average);
    }
    o->stage2_average = 0.9999;
    schedule_at(o, 0, 100, &at);
    assert_true(at.average == first.average);
    schedule_at(o, o->epochs * 100 - 1, 100, &at);
    assert_float_equal(at.average, 0.9999, 1e-7);
    conr_settings_free(s);
}

/* decay_by_length / sqrt(lr * steps): four times the steps, half the decay; a batch and a rate that
 * grow together change nothing. */
static void decay_follows_the_length(void **state) {
    (void)state;
    static const struct {
        int epochs, steps; /* steps of an epoch */
        double lr, by_length, decay;
    } rows[] = {{100, 100, 0.04, 0.05, 0.0025}, {400, 100, 0.04, 0.05, 0.00125},
                {400, 50, 0.08, 0.05, 0.00125}, /* twice the batch and the rate */
                {1, 1, 1e-6, 0.05, 1},          /* 50, but no more than all of a weight */
                {100, 100, 0, 0.05, 0.0007},    /* no rate: as if it were not set */
                {100, 100, 0.04, 0, 0.0007}};
    conr_settings *s;
    step_values at;
    assert_ok(conr_settings_new(&s));
    train_options *o = &s->o;
    o->decay = 0.0007;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        o->epochs = o->stage1_epochs = rows[i].epochs;
        o->lr = rows[i].lr, o->decay_by_length = rows[i].by_length;
        for (int last = 0; last < 2; last++) { /* constant */
            schedule_at(o, last ? rows[i].epochs * rows[i].steps - 1 : 0, rows[i].steps, &at);
            assert_float_equal(at.decay, rows[i].decay, 1e-9);
        }
    }
    /* planned again after 50 of 100 epochs, for 400: the steps before keep what they had */
    o->lr = 0.04, o->decay_by_length = 0.05, o->epochs = o->stage1_epochs = 400;
    o->replan_epoch = 50, o->replan_from = 100;
    schedule_at(o, 4999, 100, &at);
    assert_float_equal(at.decay, 0.0025, 1e-9);
    schedule_at(o, 5000, 100, &at);
    assert_float_equal(at.decay, 0.00125, 1e-9);
    conr_settings_free(s);
}

static void presets(void **state) {
    (void)state;
    conr_settings *s;
    char text[256];
    const char recipe[] =
        "batch: 64\npreset: released\n"; /* the preset is applied first all the same */
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
        cmocka_unit_test(stage2_average),
        cmocka_unit_test(average_by_length),
        cmocka_unit_test(decay_follows_the_length),
        cmocka_unit_test(presets),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(propos_adds_to_byol),
        cmocka_unit_test(deep_and_small),
        cmocka_unit_test(prototypes_recompute),
        cmocka_unit_test(confident_parts),
        cmocka_unit_test(prototype_epochs),
        cmocka_unit_test(shuffled_rows_return),
        cmocka_unit_test(a_group_ends_with_the_batch),
        cmocka_unit_test(views_follow_the_stage),
        cmocka_unit_test(balanced_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
