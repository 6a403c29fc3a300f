/* run_test.c: whole trainings on made-up images: stopped and resumed, with one thread and two, from
 * another run, with a budget. */
#include "base/clock.h"
#include "run/run_test_help.h"
#include "settings/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A run that is stopped every few steps and resumed ends in the same bits, also with a different
 * number of threads. */
static void stops_and_resumes(void **state) {
    (void)state;
    static const char *const frameworks[] = {"byol", "simsiam", "moco"};
    for (int f = 0; f < 3; f++) {
        char name[2][32];
        conr_settings *s = test_settings(frameworks[f]);
        conr_train_result r;
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
        cmocka_unit_test(stops_and_resumes), cmocka_unit_test(interrupted_checkpoint),
        cmocka_unit_test(starts_from),       cmocka_unit_test(ends_earlier),
        cmocka_unit_test(other_settings),    cmocka_unit_test(rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
