/* state_test.c: what a run writes about itself, and whether it survives being stopped: the log, the
 * mean loss, the compact form, the settings that a budget chose, the boundary in labels.csv. */
#include "base/csv.h"
#include "base/tensors.h"
#include "run/run.h"
#include "settings/settings.h"
#include "train/schedule.h"
#include "train/train_test_help.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- help ------------------------------------------------------------------------------------ */

/* What the callback of a training saw, and when it stops. */
typedef struct watch {
    int stop_after;     /* steps; 0: never */
    int64_t first_step; /* the first that was reported */
    bool no_report;     /* it was told that there is no report */
} watch;

static int watch_progress(const conr_progress *p, void *user) {
    watch *w = user;
    if (p->message && strstr(p->message, "warning: no report")) w->no_report = true;
    if (!p->epochs) return 0;
    if (!w->first_step) w->first_step = p->done;
    return w->stop_after && --w->stop_after == 0;
}

static int train_on(const char *images, const conr_settings *s, conr_train_options o, watch *w,
                    conr_train_result *result) {
    conr *c;
    conr_images *m;
    conr_images_options io = conr_images_defaults();
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(conr_images_open(c, images, &io, NULL, NULL, &m));
    conr_set_progress(c, watch_progress, w);
    int rc = conr_train(c, m, s, &o, result);
    conr_images_close(m);
    conr_close(c);
    return rc;
}

static int train(const conr_settings *s, conr_train_options o, watch *w, conr_train_result *r) {
    return train_on(test_images_file(), s, o, w, r);
}

static const char *folder(const char *name) {
    static char path[8][4096];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s", temporary_path(name));
    return path[at];
}

static const char *in(const char *run, const char *name) {
    static char path[4][4200];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", run, name);
    return path[at];
}

/* The log as a JSON array; the last "seconds" of it. */
static json_t *read_log(const char *run, double *seconds) {
    char line[8192];
    json_t *all = json_array();
    FILE *f = fopen(in(run, "log.jsonl"), "r");
    assert_non_null(f);
    *seconds = 0;
    while (fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL);
        if (!o) fail_msg("%s: not JSON: %s", run, line);
        const json_t *at = json_object_get(o, "seconds");
        if (at && !(json_number_value(at) >= *seconds)) fail_msg("%s: the time falls", line);
        if (at) *seconds = json_number_value(at);
        json_array_append_new(all, o);
    }
    fclose(f);
    return all;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

/* Two logs are equal but for their times; mean losses but for the order of their float sums. */
static void assert_same_log(const char *a, const char *b) {
    double unused;
    json_t *log[2] = {read_log(a, &unused), read_log(b, &unused)}, *line;
    size_t i;
    assert_true(json_array_size(log[0]) > 0);
    for (int k = 0; k < 2; k++) {
        json_array_foreach(log[k], i, line) {
            json_object_del(line, "seconds");
            json_object_del(line, "images_per_s");
        }
    }
    assert_int_equal(json_array_size(log[0]), json_array_size(log[1]));
    json_array_foreach(log[0], i, line) {
        json_t *other = json_array_get(log[1], i), *loss = json_object_get(line, "loss");
        if (loss &&
            is_near(json_number_value(json_object_get(other, "loss")), json_number_value(loss)))
            json_object_set(other, "loss", loss);
        if (json_equal(line, other)) continue;
        char *x = json_dumps(line, 0), *y = json_dumps(other, 0);
        fail_msg("line %zu of the logs differs:\n%s\n%s", i + 1, x, y);
    }
    json_decref(log[0]), json_decref(log[1]);
}

static void assert_same_results(const char *a, const char *b) {
    float *x[2];
    int64_t n[2], d[2];
    const char *run[2] = {a, b};
    for (int k = 0; k < 2; k++)
        assert_ok(conr_read_features(in(run[k], "embeddings.npy"), &x[k], &n[k], &d[k]));
    assert_true(n[0] == n[1] && d[0] == d[1]);
    assert_memory_equal(x[0], x[1], (size_t)(n[0] * d[0]) * sizeof *x[0]);
    conr_free(x[0]), conr_free(x[1]);
}

/* ---- stopped runs ---------------------------------------------------------------------------- */

/* Stopped within an epoch and crashed after more was logged: the log, its losses, the mean loss and
 * the time go on as if nothing had happened. */
static void the_log_goes_on(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result whole, pieces;
    watch none = {0};
    const char *a = folder("log-whole"), *b = folder("log-pieces");
    double before, after;
    assert_ok(conr_settings_set(s, "log_every", "3"));
    assert_ok(conr_settings_set(s, "checkpoint_every", "100"));
    assert_ok(train(s, (conr_train_options){.out = a}, &none, &whole));
    /* 4 steps an epoch: stopped after 2, 5, 10 and 14 of 16, within an epoch and between log lines */
    int stops[] = {2, 3, 5, 4, 0}, rc = CONR_ESTOPPED;
    for (int i = 0; i < 5; i++) {
        watch w = {stops[i], 0, false};
        rc = train(s, (conr_train_options){.out = b, .resume = i > 0}, &w, &pieces);
        assert_int_equal(rc, stops[i] ? CONR_ESTOPPED : 0);
        if (!stops[i]) break;
        if (i == 2) json_decref(read_log(b, &before));
        FILE *f = fopen(in(b, "log.jsonl"), "a"); /* a crash loses the checkpoint, not the log */
        assert_non_null(f);
        fputs("{\"step\":99,\"epoch\":9.0,\"lo", f);
        assert_int_equal(fclose(f), 0);
    }
    assert_same_results(a, b);
    assert_same_log(a, b);
    json_decref(read_log(b, &after));
    assert_true(after > before);
    assert_true(is_near(pieces.loss, whole.loss));
    conr_settings_free(s);
}

/* The mean loss of the result is that of the last epoch, and the log's lines agree with it. */
static void the_mean_loss(void **state) {
    (void)state;
    conr_settings *s = test_settings("simsiam");
    conr_train_result r;
    watch none = {0};
    const char *run = folder("loss");
    double sum = 0, unused;
    int n = 0;
    assert_ok(conr_settings_set(s, "log_every", "1"));
    assert_ok(train(s, (conr_train_options){.out = run}, &none, &r));
    json_t *log = read_log(run, &unused), *line;
    size_t i;
    int64_t last = 0;
    json_array_foreach(log, i, line) {
        int64_t step = json_integer_value(json_object_get(line, "step"));
        if (!json_object_get(line, "loss")) continue;
        assert_int_equal(step, last + 1);
        last = step;
        if (step > 3 * (TEST_IMAGES / 16))
            sum += json_number_value(json_object_get(line, "loss")), n++;
    }
    assert_int_equal(n, TEST_IMAGES / 16);
    assert_true(is_near(sum / n, r.loss));
    json_decref(log);
    assert_ok(conr_settings_set(s, "log_every", "3")); /* not a divisor of the 16 steps */
    run = folder("loss3");
    assert_ok(train(s, (conr_train_options){.out = run}, &none, &r));
    log = read_log(run, &unused);
    static const int want[] = {3, 4, 6, 8, 9, 12, 15, 16};
    n = 0;
    json_array_foreach(log, i, line) {
        if (!json_object_get(line, "loss")) continue;
        assert_int_equal(json_integer_value(json_object_get(line, "step")), want[n++]);
    }
    assert_int_equal(n, 8);
    json_decref(log);
    conr_settings_free(s);
}

/* Without its last checkpoint a run goes on from the one before, not from the start; and it does
 * not go on with other images, even if they are as many. */
static void the_previous_checkpoint(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0}, stop = {11, 0, false}, seen = {0};
    const char *whole = folder("prev-whole"), *run = folder("prev");
    assert_ok(train(s, (conr_train_options){.out = whole}, &none, &r));
    assert_int_equal(train(s, (conr_train_options){.out = run}, &stop, &r), CONR_ESTOPPED);
    static unsigned char other[128 + TEST_IMAGES * TEST_SIDE * TEST_SIDE];
    FILE *f = fopen(test_images_file(), "rb");
    assert_int_equal(fread(other, 1, sizeof other, f), sizeof other);
    fclose(f);
    for (size_t i = 128; i < sizeof other; i++) other[i] ^= 1;
    const char *file = temporary_file("others.npy", other, sizeof other);
    assert_int_equal(train_on(file, s, (conr_train_options){.out = run, .resume = 1}, &none, &r),
                     CONR_EINVAL);
    assert_int_equal(remove(in(run, "checkpoint.safetensors")), 0);
    assert_ok(train(s, (conr_train_options){.out = run, .resume = 1}, &seen, &r));
    assert_int_equal(seen.first_step, 9); /* two epochs of four steps are done */
    assert_same_results(whole, run);
    conr_settings_free(s);
}

/* --stage 2 at an epoch in the middle of stage 1 trains as if stage 1 had been that short. */
static void an_early_stage_2(void **state) {
    (void)state;
    char from[4200];
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0};
    const char *whole = folder("kept"), *early = folder("early"), *short_ = folder("short");
    assert_ok(conr_settings_set(s, "keep_every", "1"));
    assert_ok(conr_settings_set(s, "kmeans_warm", "false"));
    assert_ok(train(s, (conr_train_options){.out = whole}, &none, &r));
    for (int i = 1; i <= 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoint-%04d.safetensors", i);
        assert_int_equal(access(in(whole, name), R_OK), 0);
    }
    snprintf(from, sizeof from, "%s@1", whole);
    assert_ok(train(s, (conr_train_options){.out = early, .from = from, .stage = 2}, &none, &r));
    assert_ok(conr_settings_set(s, "stage1_epochs", "1"));
    assert_ok(train(s, (conr_train_options){.out = short_, .from = from}, &none, &r));
    assert_same_results(early, short_);
    conr_settings_free(s);
}

/* ---- what is written ------------------------------------------------------------------------- */

/* The compact form: halves but for statistics, labels and centroids; no momentum; the values are
 * those of the whole checkpoint, rounded once. */
static void the_compact_form(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tensor_type type;
    } want[] = {{"weights", TENSOR_F16},        {"running", TENSOR_F32},
                {"target.weights", TENSOR_F16}, {"target.running", TENSOR_F32},
                {"labels", TENSOR_I32},         {"centroids", TENSOR_F32}};
    enum { WANT = sizeof want / sizeof *want };
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0};
    tensors whole, part;
    const char *run = folder("compact-types");
    assert_ok(conr_settings_set(s, "compact", "true"));
    assert_ok(train(s, (conr_train_options){.out = run}, &none, &r));
    assert_ok(tensors_open(in(run, "checkpoint-0002.safetensors"), &whole));
    assert_ok(tensors_open(in(run, "compact-0002/part-00.safetensors"), &part));
    assert_int_equal(part.n, WANT);
    for (int i = 0; i < WANT; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s@0", want[i].name);
        const tensor *x = tensors_find(&part, name), *y = tensors_find(&whole, want[i].name);
        if (!x || !y) fail_msg("%s is missing", want[i].name);
        assert_int_equal(x->type, want[i].type);
        assert_int_equal(x->count, y->count);
        float *a = malloc(x->count * sizeof *a), *b = malloc(x->count * sizeof *b);
        assert_ok(tensors_floats(&part, x, a));
        assert_ok(tensors_floats(&whole, y, b));
        for (size_t j = 0; j < x->count; j++) {
            double bound =
                want[i].type == TENSOR_F16 ? fabs(b[j]) / 2048 + 3e-8 : 0; /* half an ulp */
            if (!(fabs((double)a[j] - b[j]) <= bound)) fail_msg("%s: %g, not %g", name, a[j], b[j]);
        }
        free(a), free(b);
    }
    assert_non_null(tensors_find(&whole, "momentum"));
    tensors_close(&whole);
    tensors_close(&part);
    conr_settings_free(s);
}

/* The clusterings of a run: with kmeans_warm each but the first also starts from the last one. */
static void warm_clusterings(void **state) {
    (void)state;
    for (int warm = 0; warm < 2; warm++) {
        conr_settings *s = test_settings("byol");
        conr_train_result r;
        watch none = {0};
        double unused;
        size_t i, runs[2] = {0};
        const char *run = folder(warm ? "warm" : "not-warm");
        assert_ok(conr_settings_set(s, "kmeans_warm", warm ? "true" : "false"));
        assert_ok(train(s, (conr_train_options){.out = run}, &none, &r));
        json_t *log = read_log(run, &unused), *line;
        int n = 0;
        json_array_foreach(log, i, line) {
            const json_t *made = json_object_get(line, "runs");
            if (made && n < 2) runs[n++] = json_array_size(made);
        }
        assert_int_equal(n, 2); /* at the end of either stage */
        assert_int_equal(runs[1], runs[0] + (size_t)warm);
        json_decref(log);
        conr_settings_free(s);
    }
}

/* The boundary in labels.csv is that of the setting normalize_centroids. */
static void the_boundary(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0};
    conr *c;
    csv rows;
    float *x, *centroids, got[TEST_IMAGES], ratio[TEST_IMAGES];
    int32_t label[TEST_IMAGES];
    int64_t n, d, K;
    const char *run = folder("boundary");
    assert_ok(conr_settings_set(s, "normalize_centroids", "true"));
    assert_ok(train(s, (conr_train_options){.out = run}, &none, &r));
    assert_ok(conr_read_features(in(run, "embeddings.npy"), &x, &n, &d));
    assert_ok(conr_read_features(in(run, "centroids.npy"), &centroids, &K, &d));
    assert_ok(csv_open(in(run, "labels.csv"), &rows));
    assert_int_equal(csv_next(&rows), 1);
    for (int i = 0; i < TEST_IMAGES; i++) {
        assert_int_equal(csv_next(&rows), 1);
        label[i] = atoi(rows.cell[1]);
        got[i] = (float)atof(rows.cell[3]);
    }
    csv_close(&rows);
    assert_ok(conr_open("cpu", 1, &c));
    for (int normalized = 0; normalized < 2; normalized++) {
        assert_ok(
            conr_boundary(c, x, n, d, CONR_COSINE, centroids, (int)K, label, normalized, ratio));
        bool close = relative_error(got, ratio, TEST_IMAGES) < 1e-4; /* the digits in the file */
        assert_int_equal(close, normalized);
    }
    conr_close(c);
    conr_free(x), conr_free(centroids);
    conr_settings_free(s);
}

/* A report that cannot be written is a warning, and the run is finished. */
static void a_failed_report(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch w = {0};
    const char *run = folder("no-report");
    assert_int_equal(mkdir(run, 0777) + mkdir(in(run, "report.html"), 0777), 0);
    assert_ok(train(s, (conr_train_options){.out = run}, &w, &r));
    assert_true(w.no_report);
    assert_int_equal(access(in(run, "DONE"), R_OK), 0);
    conr_settings_free(s);
}

/* The settings that fit a budget keep the proportions of those given. */
static void a_budget_keeps_proportions(void **state) {
    (void)state;
    static const char *const given[][2] = {{"epochs", "1000"},          {"stage1_epochs", "600"},
                                           {"relax_epochs", "400"},     {"eval_every", "500"},
                                           {"checkpoint_every", "500"}, {"until", "999"}};
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0};
    const char *run = folder("proportions");
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        assert_ok(conr_settings_set(s, given[i][0], given[i][1]));
    assert_ok(train(s, (conr_train_options){.out = run, .budget = 0.3, .no_report = 1}, &none, &r));
    train_options o = s->o;
    assert_ok(settings_read(&o, in(run, "options.yaml")));
    assert_int_equal(r.epochs, o.epochs);
    assert_in_range(o.epochs, 2, 900);
    assert_int_equal(o.until, 0);
    /* each rounded to the nearest epoch */
    assert_true(fabs(o.stage1_epochs - 0.6 * o.epochs) <= 0.5 ||
                (o.replan_epoch && o.stage1_epochs == o.replan_epoch));
    assert_true(fabs(o.relax_epochs - 0.4 * o.epochs) <= 0.5);
    /* intervals stay those of the first plan */
    double first = o.replan_epoch ? o.replan_from : o.epochs;
    assert_true(o.eval_every >= 1 && fabs(o.eval_every - 0.5 * first) <= 0.5);
    assert_true(o.checkpoint_every >= 1 && fabs(o.checkpoint_every - 0.5 * first) <= 0.5);
    conr_settings_free(s);
}

/* Measured again after a tenth: the plan stays if it still fits, else the rest of the time is spent;
 * steps that were taken keep their schedule, so that options.yaml repeats the whole run. */
static void a_budget_is_measured_again(void **state) {
    (void)state;
    static const double slower[] = {1, 1.04, 0.5, 2, 50};
    static const int expected[] = {100, 100, 190, 55, 11};
    /* nothing but steps, one second per epoch: 90 of them are left */
    budget_costs c = {.epoch = {1, 1}};
    conr_settings *s = test_settings("byol");
    s->o.epochs = 100, s->o.stage1_epochs = 60, s->o.warmup_epochs = 5, s->o.relax_epochs = 40;
    s->o.average_fixed = false;
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++) {
        train_options o = s->o;
        bool changed = budget_again(&c, slower[i], 90.5, 10, &s->o, &o);
        assert_int_equal(changed, expected[i] != 100);
        assert_in_range(o.epochs, expected[i] - 1, expected[i] + 1);
        if (!changed) assert_memory_equal(&o, &s->o, sizeof o);
        assert_true(o.stage1_epochs >= 10 && o.stage1_epochs <= o.epochs);
        assert_ok(settings_check(&o));
        for (int step = 0; step < 70; step++) { /* seven steps per epoch */
            step_values before, after;
            schedule_at(&s->o, step, 7, &before);
            schedule_at(&o, step, 7, &after);
            assert_memory_equal(&before, &after, sizeof before);
        }
        if (changed && o.epochs > 20) { /* and the rest comes down to the end, as always */
            step_values end;
            schedule_at(&o, 7 * o.epochs - 1, 7, &end);
            double rate = 0.5 * (1 + cos(3.14159265358979 * (o.epochs - 5.0) / o.epochs));
            assert_float_equal(end.lr[0], o.lr * rate * o.stage2_lr, 1e-6);
        }
    }
    conr_settings_free(s);
}

/* A run whose options.yaml has a plan that changed is repeated by it, and resumed, bit for bit. */
static void a_changed_plan_repeats(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    conr_train_result r;
    watch none = {0};
    const char *first = folder("planned");
    assert_ok(conr_settings_set(s, "epochs", "40"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "30"));
    assert_ok(conr_settings_set(s, "until", "3"));
    assert_ok(conr_settings_set(s, "checkpoint_every", "1"));
    assert_ok(conr_settings_set(s, "eval_every", "0"));
    assert_ok(train(s, (conr_train_options){.out = first, .no_report = 1}, &none, &r));
    /* the plan changes after epoch 3 */
    assert_ok(conr_settings_set(s, "epochs", "6"));
    assert_ok(conr_settings_set(s, "stage1_epochs", "4"));
    assert_ok(conr_settings_set(s, "until", "0"));
    assert_ok(conr_settings_set(s, "replan_epoch", "3"));
    assert_ok(conr_settings_set(s, "replan_from", "40"));
    char rest[400], whole[400];
    snprintf(rest, sizeof rest, "%s", folder("rest"));
    snprintf(whole, sizeof whole, "%s", folder("whole-plan"));
    assert_ok(
        train(s, (conr_train_options){.out = rest, .from = first, .no_report = 1}, &none, &r));
    assert_ok(train(s, (conr_train_options){.out = whole, .no_report = 1}, &none, &r));
    assert_same_results(rest, whole);
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_goes_on),
        cmocka_unit_test(the_mean_loss),
        cmocka_unit_test(the_previous_checkpoint),
        cmocka_unit_test(an_early_stage_2),
        cmocka_unit_test(the_compact_form),
        cmocka_unit_test(warm_clusterings),
        cmocka_unit_test(the_boundary),
        cmocka_unit_test(a_failed_report),
        cmocka_unit_test(a_budget_keeps_proportions),
        cmocka_unit_test(a_budget_is_measured_again),
        cmocka_unit_test(a_changed_plan_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
