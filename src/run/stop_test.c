/* stop_test.c: a training that is asked to stop at any of its reports, whatever it is doing then,
 * and is resumed ends in the bits, and the logged evaluations, of one that never stops.
 *
 * CONR_TEST_LONG=1 stops at every report; else at every seventh. */
#include "run/run_test_help.h"

#include <stdlib.h>

/* Stops at report number `at`, resumes; whether the results are those of `whole`. */
static bool stops_at(int at, const conr_settings *s, const char *whole, char *what, size_t size) {
    char name[32];
    caller a = {.call = at};
    snprintf(name, sizeof name, "%s-%d", strrchr(whole, '/') + 1, at);
    const char *run = folder(name);
    int rc = train_on(test_images_file(), s, (conr_train_options){.out = run}, 1, &a, NULL);
    snprintf(what, size, "%s", a.what);
    if (rc == CONR_ESTOPPED) {
        bool begun = is_file(file_in(run, "options.yaml"));
        rc = train(s, (conr_train_options){.out = run, .resume = begun}, 1, 0, NULL);
    }
    assert_ok(rc);
    return same_run(whole, run) && same_evaluations(whole, run);
}

static void every_report(const conr_settings *s, const char *name) {
    bool all = getenv("CONR_TEST_LONG") != NULL;
    caller counts = {0};
    char whole[4096], what[64];
    int wrong = 0, stopped = 0;
    snprintf(whole, sizeof whole, "%s", folder(name));
    assert_ok(
        train_on(test_images_file(), s, (conr_train_options){.out = whole}, 1, &counts, NULL));
    assert_true(counts.calls > 100);
    for (int at = 1; at <= counts.calls; at++) {
        if (!all && at % 7) continue;
        stopped++;
        if (stops_at(at, s, whole, what, sizeof what)) continue;
        print_error("stopped at report %d (%s) and resumed: other results\n", at, what);
        wrong++;
    }
    print_message("stopped at %d of %d reports\n", stopped, counts.calls);
    assert_int_equal(wrong, 0);
}

static void stops_anywhere(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    every_report(s, "byol");
    conr_settings_free(s);
}

/* Negatives from a queue, K estimated, images drawn by cluster: all that a checkpoint may hold. */
static void stops_anywhere_else(void **state) {
    (void)state;
    if (!getenv("CONR_TEST_LONG")) skip();
    conr_settings *s = test_settings("moco");
    assert_ok(conr_settings_set(s, "clusters", "0"));
    assert_ok(conr_settings_set(s, "clusters_high", "6"));
    assert_ok(conr_settings_set(s, "balance", "clusters"));
    every_report(s, "moco");
    conr_settings_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stops_anywhere),
                                       cmocka_unit_test(stops_anywhere_else)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
