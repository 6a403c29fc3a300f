/* plan_test.c: what each epoch of small schedules asks for. */
#include "run/plan.h"

#include "base/test_help.h"

#include <stdio.h>
#include <string.h>

/* Follows a schedule as a run does: K is known once it has been chosen.  One word per epoch from 0
 * on, one letter per action: C cluster, K choose K, E evaluate, P keep, S save; - for none. */
static void check(const char *const *pairs, const char *want) {
    conr_settings *s;
    char got[512] = "";
    size_t at = 0;
    assert_ok(conr_settings_new(&s));
    for (const char *const *p = pairs; *p; p += 2) assert_ok(conr_settings_set(s, p[0], p[1]));
    for (int done = 0; done <= last_epoch(&s->o); done++) {
        epoch_plan p = plan_epoch_end(&s->o, done);
        if (p.choose) s->o.clusters = 7;
        bool any = p.cluster || p.choose || p.evaluate || p.keep || p.save;
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s%s%s%s%s%s", done ? " " : "",
                               p.cluster ? "C" : "", p.choose ? "K" : "", p.evaluate ? "E" : "",
                               p.keep ? "P" : "", p.save ? "S" : "", any ? "" : "-");
    }
    assert_string_equal(got, want);
    conr_settings_free(s);
}

#define SMALL "epochs", "6", "stage1_epochs", "3", "eval_every", "0", "checkpoint_every", "100"

#define CHECK(want, ...) check((const char *const[]){__VA_ARGS__, NULL}, want)

static void ends_of_stages(void **state) {
    (void)state;
    CHECK("- - - CEPS C C CES", SMALL);
    /* one stage only: there is nothing to start stage 2 from */
    CHECK("- - - - - - CES", SMALL, "stage1_epochs", "6");
    /* stage 2 only: its pseudo labels come before the first step */
    CHECK("CEPS C C C C C CES", SMALL, "stage1_epochs", "0");
}

static void at_intervals(void **state) {
    (void)state;
    CHECK("- - CE CEPS CE C CES", SMALL, "eval_every", "2");
    CHECK("- - S CEPS CS C CES", SMALL, "checkpoint_every", "2");
    CHECK("- - P CEPS CP C CEPS", SMALL, "keep_every", "2");
    CHECK("CEPS C CP C CP C CEPS", SMALL, "stage1_epochs", "0", "keep_every", "2");
}

static void ends_earlier(void **state) {
    (void)state;
    CHECK("- - - CEPS C CES", SMALL, "until", "5");
    CHECK("- - - CES", SMALL, "until", "3");
    CHECK("- - CES", SMALL, "until", "2");
    CHECK("- - CEPS", SMALL, "until", "2", "keep_every", "2");
}

/* An unknown K is chosen once, when stage 1 is over; until then nothing can be evaluated. */
static void unknown_k(void **state) {
    (void)state;
    CHECK("- - - CKEPS CE C CES", SMALL, "clusters", "0", "eval_every", "2");
    CHECK("CKEPS C CE C CE C CES", SMALL, "clusters", "0", "eval_every", "2", "stage1_epochs", "0");
    CHECK("- - CKES", SMALL, "clusters", "0", "eval_every", "1", "until", "2");
}

/* From a checkpoint behind stage 1, K is chosen there, and saved at once. */
static void unknown_k_later(void **state) {
    (void)state;
    conr_settings *s;
    assert_ok(conr_settings_new(&s));
    s->o.clusters = 0, s->o.epochs = 6, s->o.stage1_epochs = 3, s->o.eval_every = 1;
    s->o.checkpoint_every = 100;
    epoch_plan p = plan_epoch_end(&s->o, 5);
    assert_true(p.cluster && p.choose && p.save);
    assert_false(p.evaluate || p.keep);
    conr_settings_free(s);
}

/* Prototypes need pseudo labels in stage 1, from the end of the epoch before their first one on. */
static void prototypes_need_labels(void **state) {
    (void)state;
    CHECK("- C C CEPS C C CES", SMALL, "framework", "propos", "prototype_epoch", "1");
    CHECK("- - - CEPS C C CES", SMALL, "framework", "propos", "prototype_epoch", "3");
    CHECK("- - - CEPS C C CES", SMALL, "prototype_epoch", "1"); /* byol has none */
    /* from the first step on; epoch 0 also is a multiple of every interval */
    CHECK("CS C C CEPS C C CES", SMALL, "framework", "propos", "prototype_epoch", "0");
    CHECK("CES C CE CEPS CE C CES", SMALL, "framework", "propos", "prototype_epoch", "0",
          "eval_every", "2");
    /* one stage only: the last epoch is followed by none */
    CHECK("- - - - - C CES", SMALL, "framework", "propos", "prototype_epoch", "5", "stage1_epochs",
          "6");
    /* K is chosen when stage 1 is over: too late for prototypes */
    CHECK("- - - CKEPS C C CES", SMALL, "framework", "propos", "prototype_epoch", "0", "clusters",
          "0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_stages),  cmocka_unit_test(at_intervals),
        cmocka_unit_test(ends_earlier),    cmocka_unit_test(unknown_k),
        cmocka_unit_test(unknown_k_later), cmocka_unit_test(prototypes_need_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
