/* run_test.c: whole trainings on made-up images: stopped and resumed, with one thread and two, from
 * another run, with a budget. */
#include "base/clock.h"
#include "base/tensors.h"
#include "run/run_test_help.h"
#include "settings/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that is stopped every few steps and resumed ends in the same bits, also with a different
 * number of threads. */
static void stops_and_resumes(void **state) {
    (void)state;
    static const char *const frameworks[] = {"byol", "simsiam", "moco", "propos", "confident"};
    for (int f = 0; f < 5; f++) {
        char name[2][32];
        conr_settings *s = test_settings(f < 4 ? frameworks[f] : "byol");
        conr_train_result r;
        if (f == 4) assert_ok(conr_settings_set(s, "stage2", "confident"));
        snprintf(name[0], sizeof name[0], "%s-whole", frameworks[f]);
        snprintf(name[1], sizeof name[1], "%s-pieces", frameworks[f]);
        const char *whole = folder(name[0]), *pieces = folder(name[1]);
        assert_ok(train(s, (conr_train_options){.out = whole}, 2, 0, &r));
        assert_int_equal(r.steps, 4 * (TEST_IMAGES / 16));
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

/* A crash between the two renames of a checkpoint leaves one to resume from. */
static void interrupted_checkpoint(void **state) {
    (void)state;
    char from[4200], to[4200];
    conr_settings *s = test_settings("byol");
    const char *run = folder("broken");
    assert_int_equal(train(s, (conr_train_options){.out = run}, 2, 9, NULL), CONR_ESTOPPED);
    snprintf(from, sizeof from, "%s/checkpoint.safetensors", run);
    snprintf(to, sizeof to, "%s/checkpoint.new.safetensors", run);
    assert_int_equal(rename(from, to), 0);
    assert_ok(train(s, (conr_train_options){.out = run, .resume = 1}, 2, 0, NULL));
    assert_same_run(folder("byol-whole"), run);
    conr_settings_free(s);
}

/* Stage 2 from a kept checkpoint is the second half of the whole run (without kmeans_warm: its
 * first clustering has no centroids to start from); it also starts from the compact form. */
static void starts_from(void **state) {
    (void)state;
    char from[4200];
    conr_settings *s = test_settings("byol");
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
    /* in stage 1 with prototypes: labels are made at the start */
    assert_ok(conr_settings_set(s, "framework", "propos"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "3"));
    assert_ok(conr_settings_set(s, "keep_every", "2"));
    const char *scatters = folder("scatters"), *rest = folder("scatters-rest");
    assert_ok(train(s, (conr_train_options){.out = scatters}, 2, 0, &r));
    snprintf(from, sizeof from, "%s@2", scatters);
    assert_ok(train(s, (conr_train_options){.out = rest, .from = from}, 2, 0, &r));
    assert_same_run(scatters, rest);
    assert_ok(conr_settings_set(s, "framework", "byol"));
    snprintf(from, sizeof from, "%s@1", whole);
    assert_fails(CONR_EFILE, "no checkpoint of epoch 1",
                 train(s, (conr_train_options){.out = folder("x"), .from = from}, 1, 0, NULL));
    assert_ok(conr_settings_set(s, "width", "8"));
    snprintf(from, sizeof from, "%s@2", whole);
    assert_fails(CONR_EFORMAT, "elements, this network has",
                 train(s, (conr_train_options){.out = folder("y"), .from = from}, 1, 0, NULL));
    conr_settings_free(s);
}

/* Stopped by `until` and continued from there: the same schedule, the same end. */
static void ends_earlier(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
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

/* K is estimated once; clusters are balanced; the budget is met. */
static void other_settings(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    assert_ok(conr_settings_set(s, "clusters", "0"));
    assert_ok(conr_settings_set(s, "clusters_high", "6"));
    assert_ok(conr_settings_set(s, "balance", "clusters"));
    assert_ok(train(s, (conr_train_options){.out = folder("auto")}, 2, 0, &r));
    assert_in_range(r.clusters, 2, 6);
    /* stopped within a balanced epoch */
    const char *again = folder("auto-again");
    assert_int_equal(train(s, (conr_train_options){.out = again}, 2, 11, NULL), CONR_ESTOPPED);
    /* as if a crash had come between the checkpoint and the options that record K */
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

/* keep_every keeps the checkpoint of every epoch it names, and each is that epoch's. */
static void keeps(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    char name[64];
    assert_ok(conr_settings_set(s, "epochs", "6"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "3"));
    assert_ok(conr_settings_set(s, "keep_every", "2"));
    const char *run = folder("kept");
    assert_ok(train(s, (conr_train_options){.out = run, .no_report = 1}, 1, 0, NULL));
    for (int epoch = 0; epoch <= 7; epoch++) {
        tensors f;
        snprintf(name, sizeof name, "checkpoint-%04d.safetensors", epoch);
        bool kept = epoch == 2 || epoch == 3 || epoch == 4 || epoch == 6; /* 3: stage 1 ends */
        assert_int_equal(is_file(file_in(run, name)), kept);
        if (!kept) continue;
        assert_ok(tensors_open(file_in(run, name), &f));
        assert_int_equal(atoi(tensors_note(&f, "step")), epoch * (TEST_IMAGES / 16));
        assert_int_equal(atoi(tensors_note(&f, "closed")), epoch);
        tensors_close(&f);
    }
    conr_settings_free(s);
}

/* Stage 2 entered at an epoch of stage 1 is what a run is whose stage 1 ends there: views, learning
 * rates and all. */
static void enters_stage_2_early(void **state) {
    (void)state;
    char from[4200];
    conr_settings *s = test_settings("byol");
    assert_ok(conr_settings_set(s, "kmeans_warm", "false"));
    assert_ok(conr_settings_set(s, "keep_every", "1"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "3"));
    const char *late = folder("late"), *early = folder("early"), *other = folder("entered");
    conr_train_options o = {.out = late, .no_report = 1};
    assert_ok(train(s, o, 1, 0, NULL));
    snprintf(from, sizeof from, "%s@1", late);
    o = (conr_train_options){.out = other, .from = from, .stage = 2, .no_report = 1};
    assert_ok(train(s, o, 1, 0, NULL));
    assert_ok(conr_settings_set(s, "stage1_epochs", "1"));
    assert_ok(train(s, (conr_train_options){.out = early, .no_report = 1}, 1, 0, NULL));
    assert_same_run(early, other);
    assert_false(same_run(late, other));
    /* the views of the two stages differ, else this would show nothing */
    assert_ok(conr_settings_set(s, "stage2_crop_scale", "0.08"));
    const char *alike = folder("alike");
    assert_ok(train(s, (conr_train_options){.out = alike, .no_report = 1}, 1, 0, NULL));
    assert_false(same_run(early, alike));
    conr_settings_free(s);
}

/* The mean loss of an epoch that was stopped in the middle is that of all its steps.  The sum of the
 * losses since the last line of the log is a float, which a stop cuts in two: 1e-6. */
static void same_mean_loss(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result once, again;
    assert_ok(conr_settings_set(s, "log_every", "3"));
    conr_train_options o = {.out = folder("loss"), .no_report = 1};
    assert_ok(train(s, o, 1, 0, &once));
    for (int stop = 14; stop <= 16; stop += 2) { /* the last epoch: steps 13 to 16 */
        char name[32];
        snprintf(name, sizeof name, "loss-%d", stop);
        o = (conr_train_options){.out = folder(name), .no_report = 1};
        assert_int_equal(train(s, o, 1, stop, NULL), CONR_ESTOPPED);
        o.resume = 1;
        assert_ok(train(s, o, 1, 0, &again));
        assert_true(fabs(again.loss - once.loss) <= 1e-6 * fabs(once.loss));
    }
    conr_settings_free(s);
}

/* The compact form: weights in half precision, rounded from those of the whole checkpoint;
 * statistics and centroids as they are; no momentum. */
static void compact_types(void **state) {
    (void)state;
    tensors all, few;
    const char *run = folder("cold"); /* of starts_from */
    assert_ok(tensors_open(file_in(run, "checkpoint-0002.safetensors"), &all));
    assert_ok(tensors_open(file_in(run, "compact-0002/part-00.safetensors"), &few));
    assert_false(is_file(file_in(run, "compact-0002/part-01.safetensors")));
    assert_non_null(tensors_find(&all, "momentum"));
    assert_int_equal(few.n, all.n - 1);
    for (int i = 0; i < all.n; i++) {
        const tensor *a = &all.tensor[i];
        char name[64];
        snprintf(name, sizeof name, "%s@0", a->name);
        const tensor *b = tensors_find(&few, name);
        if (!strcmp(a->name, "momentum")) {
            assert_null(b);
            continue;
        }
        assert_non_null(b);
        bool half = strstr(a->name, "weights") != NULL;
        assert_int_equal(b->type, half ? TENSOR_F16 : a->type);
        assert_int_equal(b->count, a->count);
        for (size_t j = 0; half && j < a->count; j++) {
            float x;
            uint16_t h, want;
            memcpy(&x, (const char *)a->data + 4 * j, sizeof x);
            memcpy(&h, (const char *)b->data + 2 * j, sizeof h);
            want = tensor_half(x);
            assert_int_equal(h, want);
        }
        if (!half) assert_memory_equal(a->data, b->data, a->count * tensor_size(a->type));
    }
    tensors_close(&all);
    tensors_close(&few);
}

/* With kmeans_warm every clustering but the first has one more run, from the last centroids. */
static void warm_starts(void **state) {
    (void)state;
    static char text[2][65536];
    int runs[2][8] = {0}, lines[2] = {0};
    const char *of[] = {folder("byol-whole"), folder("cold")}; /* of the tests above */
    for (int i = 0; i < 2; i++) {
        evaluations(of[i], text[i], sizeof text[i]);
        for (char *at = text[i]; (at = strstr(at, "\"runs\":[")) && lines[i] < 8; lines[i]++) {
            runs[i][lines[i]] = 1;
            for (; *at != ']'; at++) runs[i][lines[i]] += *at == ',';
        }
    }
    assert_int_equal(lines[0], lines[1]);
    assert_int_equal(lines[0], 2); /* after epochs 2 and 4 */
    assert_int_equal(runs[0][0], runs[1][0]);
    assert_int_equal(runs[0][1], runs[1][1] + 1);
}

static void rejects(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"stage1_epochs", "5", "stage1_epochs 5"}, {"accumulate", "3", "accumulate 3"},
        {"bn_group", "5", "bn_group 5"},           {"batch", "128", "batch 128"},
        {"clusters", "73", "clusters 73"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        conr_settings *s = test_settings("byol");
        char name[32];
        snprintf(name, sizeof name, "bad-%zu", i);
        assert_ok(conr_settings_set(s, bad[i][0], bad[i][1]));
        assert_fails(CONR_EINVAL, bad[i][2],
                     train(s, (conr_train_options){.out = folder(name)}, 1, 0, NULL));
        conr_settings_free(s);
    }
    conr_settings *s = test_settings("byol");
    assert_ok(conr_settings_set(s, "lr", "1000"));
    assert_ok(conr_settings_set(s, "predictor_lr", "1000"));
    assert_fails(CONR_ENUMBER, "not a number",
                 train(s, (conr_train_options){.out = folder("wild")}, 2, 0, NULL));
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_and_resumes),
        cmocka_unit_test(interrupted_checkpoint),
        cmocka_unit_test(starts_from),
        cmocka_unit_test(ends_earlier),
        cmocka_unit_test(other_settings),
        cmocka_unit_test(keeps),
        cmocka_unit_test(enters_stage_2_early),
        cmocka_unit_test(same_mean_loss),
        cmocka_unit_test(compact_types),
        cmocka_unit_test(warm_starts),
        cmocka_unit_test(rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
