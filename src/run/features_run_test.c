/* features_run_test.c: runs made from features: their folder, what they refuse, what stops them,
 * clustering them again, and new rows. */
#include "base/test_help.h"

#include "base/file.h"
#include "base/rng.h"
#include "run/run_test_help.h"
#include "settings/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 90, D = 5, K = 3 };

/* Three groups of rows in three directions. */
static void draw(float *x) {
    rng r = rng_at(3, 0, 0, 0);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < D; j++)
            x[i * D + j] = (j == i % K ? 4.0f : 0.0f) + (float)rng_normal(&r) * 0.4f;
}

static conr *open_cpu(int threads) {
    conr *c;
    assert_ok(conr_open("cpu", threads, &c));
    return c;
}

static conr_features_options plain(const char *out) {
    conr_features_options o = conr_features_defaults();
    o.out = out;
    o.clusters = K;
    o.method = "kmeans";
    o.refine = "none";
    o.no_report = 1;
    return o;
}

static int cluster(const float *x, conr_features_options o, int threads, conr_features_result *r) {
    conr *c = open_cpu(threads);
    int rc = conr_cluster_features(c, NULL, x, N, D, NULL, &o, r);
    conr_close(c);
    return rc;
}

static bool same_files(const char *a, const char *b) {
    static const char *const names[] = {"embeddings.npy", "centroids.npy", "labels.csv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!same_file(file_in(a, names[i]), file_in(b, names[i]))) return false;
    return true;
}

/* Three sticks side by side, longer than apart: k-means breaks them, discriminants of the pieces mend
 * some of that. */
static void draw_sticks(float *x) {
    rng r = rng_at(4, 0, 0, 0);
    for (int i = 0; i < N; i++) {
        float *row = x + (size_t)i * D;
        row[0] = 6;
        row[1] = (float)(i / K) / (N / K - 1) * 2.4f - 1.2f;
        row[2] = (float)(i % K) * 0.6f;
        for (int j = 1; j < D; j++) row[j] += (j > 2 ? -row[j] : 0) + (float)rng_normal(&r) * 0.05f;
    }
}

/* ACC of a run whose row i is of class i % K. */
static double acc_of(const char *run) {
    int64_t *label, n, truth[N];
    conr_scores scores;
    for (int i = 0; i < N; i++) truth[i] = i % K;
    assert_ok(conr_read_labels(file_in(run, "labels.csv"), "cluster", &label, &n));
    assert_int_equal(n, N);
    assert_ok(conr_metrics(label, truth, n, &scores));
    conr_free(label);
    return scores.acc;
}

/* With "auto", a head is kept where neighbors among the features confirm its clusters better, and
 * only there; the log says why. */
static void refining_is_chosen(void **state) {
    (void)state;
    float x[N * D];
    static const char said[] = "\"event\":\"refine\",\"taken\":\"none\"";
    features_options made;
    conr_features_options o = plain(folder("round"));
    o.refine = "auto";
    draw(x);
    assert_ok(cluster(x, o, 2, NULL));
    assert_int_equal(features_read(&made, file_in(o.out, "options.yaml")), 1);
    assert_string_equal(made.refine, "none");
    assert_true(made.refine_chosen);
    assert_false(is_file(file_in(o.out, "head.safetensors")));
    /* the clusters are those of k-means alone, to the bit */
    assert_ok(cluster(x, plain(folder("alone")), 1, NULL));
    assert_true(same_files(folder("round"), folder("alone")));
    file_map log;
    assert_ok(file_map_open(file_in(folder("round"), "log.jsonl"), &log));
    assert_non_null(memmem(log.data, log.size, said, strlen(said)));
    file_map_close(&log);

    draw_sticks(x);
    o.out = folder("sticks");
    assert_ok(cluster(x, o, 2, NULL));
    assert_int_equal(features_read(&made, file_in(o.out, "options.yaml")), 1);
    assert_string_equal(made.refine, "conaff");
    assert_true(is_file(file_in(o.out, "head.safetensors")));
    assert_ok(cluster(x, plain(folder("pieces")), 1, NULL));
    assert_true(acc_of(o.out) > acc_of(folder("pieces")) + 0.1);
    o.out = folder("sticks1");
    assert_ok(cluster(x, o, 1, NULL));
    assert_true(same_files(folder("sticks"), folder("sticks1")));
    /* one cluster: nothing to tell apart */
    o.out = folder("one"), o.clusters = 1;
    assert_ok(cluster(x, o, 1, NULL));
    assert_int_equal(features_read(&made, file_in(o.out, "options.yaml")), 1);
    assert_string_equal(made.refine, "none");
}

static void groups_are_found(void **state) {
    (void)state;
    float x[N * D];
    conr_features_result r;
    features_options made;
    const char *run = folder("whole");
    draw(x);
    assert_ok(cluster(x, plain(run), 2, &r));
    assert_int_equal(r.clusters, K);
    assert_int_equal(r.n, N);
    assert_int_equal(r.labeled, 0);
    assert_true(r.agreement > 0.99 && r.silhouette > 0.5);
    assert_string_equal(r.method, "kmeans");
    int64_t *label, n;
    assert_ok(conr_read_labels(file_in(run, "labels.csv"), "cluster", &label, &n));
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++) assert_int_equal(label[i], label[i % K]);
    conr_free(label);
    assert_int_equal(features_read(&made, file_in(run, "options.yaml")), 1);
    assert_int_equal(made.rows, N);
    assert_int_equal(made.columns, D);
    assert_int_equal(strlen(made.content), 16);
    assert_int_equal(conr_is_features_run(run), 1);
    assert_int_equal(conr_is_features_run(folder("nothing")), 0);
    /* the same bits on one thread; another content has another checksum */
    assert_ok(cluster(x, plain(folder("single")), 1, NULL));
    assert_true(same_files(run, folder("single")));
    char before[64];
    snprintf(before, sizeof before, "%s", made.content);
    x[7] += 1;
    assert_ok(cluster(x, plain(folder("other")), 1, NULL));
    assert_int_equal(features_read(&made, file_in(folder("other"), "options.yaml")), 1);
    assert_string_not_equal(before, made.content);
}

static void mistakes_are_refused(void **state) {
    (void)state;
    float x[N * D];
    draw(x);
    conr *c = open_cpu(1);
    conr_features_options o = plain(folder("refused")), bad;
#define REFUSED(code, text, change)                                                                \
    bad = o, change,                                                                               \
    assert_fails(code, text, conr_cluster_features(c, NULL, x, N, D, NULL, &bad, NULL))
    REFUSED(CONR_EINVAL, "no folder", bad.out = NULL);
    REFUSED(CONR_EINVAL, "no such method", bad.method = "spectral");
    REFUSED(CONR_EINVAL, "no such method", bad.method = NULL);
    REFUSED(CONR_EINVAL, "no such way", bad.refine = "much");
    REFUSED(CONR_EINVAL, "out of range", bad.clusters = -1);
    REFUSED(CONR_EINVAL, "out of range", (bad.clusters = 0, bad.low = 5, bad.high = 4));
    REFUSED(CONR_EINVAL, "more than the 90 rows", bad.clusters = N + 1);
    REFUSED(CONR_EINVAL, "restarts", bad.restarts = 0);
    REFUSED(CONR_EINVAL, "too large", bad.seed = 1ull << 40);
#undef REFUSED
    assert_fails(CONR_EINVAL, "is empty", conr_cluster_features(c, NULL, x, 0, D, NULL, &o, NULL));
    assert_fails(CONR_EINVAL, "is empty", conr_cluster_features(c, NULL, x, N, 0, NULL, &o, NULL));
    assert_fails(CONR_EINVAL, "missing",
                 conr_cluster_features(c, NULL, NULL, 0, 0, NULL, &o, NULL));
    x[4 * D + 2] = NAN;
    assert_fails(CONR_ENUMBER, "row 4 ", conr_cluster_features(c, NULL, x, N, D, NULL, &o, NULL));
    x[4 * D + 2] = INFINITY;
    assert_fails(CONR_ENUMBER, "row 4 ", conr_cluster_features(c, NULL, x, N, D, NULL, &o, NULL));
    x[4 * D + 2] = 0;
    assert_int_not_equal(access(o.out, F_OK), 0); /* all of them before the folder is made */
    o.out = temporary_file("a-file", "x", 1);
    assert_fails(CONR_EFILE, "a-file", conr_cluster_features(c, NULL, x, N, D, NULL, &o, NULL));
    conr_close(c);
}

/* Stopped at each of its reports, it leaves a folder that the same call finishes. */
static void stopped_runs_are_repeated(void **state) {
    (void)state;
    float x[N * D];
    draw(x);
    const char *whole = folder("not-stopped"), *run = folder("stopped");
    conr_features_options o = plain(whole);
    o.clusters = 0, o.high = 6, o.no_report = 0;
    assert_ok(cluster(x, o, 1, NULL));
    o.out = run;
    conr *c = open_cpu(1);
    int stops = 0;
    for (int at = 1;; at++) {
        caller a = {.call = at};
        conr_set_progress(c, answer, &a);
        int rc = conr_cluster_features(c, NULL, x, N, D, NULL, &o, NULL);
        if (rc == 0) break; /* stopped in the report, or not at all: finished */
        assert_int_equal(rc, CONR_ESTOPPED);
        assert_false(is_file(file_in(run, "DONE")));
        stops++;
    }
    assert_true(stops > 0);
    assert_true(same_files(whole, run));
    assert_fails(CONR_EINVAL, "holds a finished run",
                 conr_cluster_features(c, NULL, x, N, D, NULL, &o, NULL));
    conr_close(c);
}

static void report_speaks_of_features(void **state) {
    (void)state;
    static const char *const absent[] = {"Learning rate", "batch size",  "stage1_epochs",
                                         "Network:",      "No pictures", "id=\"curves\""};
    float x[N * D];
    file_bytes page;
    const char *run = folder("shown");
    conr_features_options o = plain(run);
    draw(x);
    o.no_report = 0, o.from = "/somewhere/clip.npy";
    assert_ok(cluster(x, o, 1, NULL));
    assert_ok(file_read(file_in(run, "report.html"), SIZE_MAX, &page, NULL));
    page.data[page.n] = 0;
    const char *text = (const char *)page.data;
    assert_non_null(strstr(text, "clip.npy in 3 clusters"));
    assert_non_null(strstr(text, "Neighbor agreement"));
    assert_non_null(strstr(text, "90 rows of features"));
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strstr(text, absent[i])) fail_msg("the report has '%s'", absent[i]);
    file_bytes_free(&page);
}

static void clustered_again(void **state) {
    (void)state;
    float x[N * D], unit[N * D], distance[N], boundary[N];
    int32_t label[N];
    conr_features_result r;
    conr_clustering *k;
    conr_clustering_info info;
    const char *run = folder("first"), *next = folder("next");
    draw(x);
    assert_ok(cluster(x, plain(run), 1, NULL));
    conr *c = open_cpu(1);
    conr_features_options o = plain(next);
    o.clusters = 5, o.refine = "auto"; /* as "none": nothing is trained */
    assert_ok(conr_cluster_again(c, run, &o, &r));
    assert_int_equal(r.clusters, 5);
    assert_true(same_file(file_in(run, "embeddings.npy"), file_in(next, "embeddings.npy")));
    o.out = folder("no"), o.refine = "conaff";
    assert_fails(CONR_EINVAL, "without training", conr_cluster_again(c, run, &o, NULL));
    o.refine = "none";
    assert_fails(CONR_EFILE, "holds no run", conr_cluster_again(c, folder("none"), &o, NULL));
    remove(file_in(next, "DONE"));
    assert_fails(CONR_EINVAL, "not finished", conr_cluster_again(c, next, &o, NULL));
    assert_fails(CONR_EFILE, "not finished", conr_clustering_open(c, next, &k));
    /* the rows of the run are where they were; others must be of the same kind */
    assert_ok(conr_clustering_open(c, run, &k));
    conr_clustering_about(k, &info);
    assert_string_equal(info.takes, "features");
    assert_int_equal(info.d, D);
    assert_int_equal(info.clusters, K);
    assert_ok(conr_clustering_embed(c, k, x, N, D, unit));
    assert_ok(conr_clustering_assign(c, k, unit, N, label, distance, boundary));
    int64_t *was, n;
    assert_ok(conr_read_labels(file_in(run, "labels.csv"), "cluster", &was, &n));
    for (int i = 0; i < N; i++) assert_int_equal(label[i], was[i]);
    conr_free(was);
    assert_fails(CONR_EINVAL, "4 per row, but the run takes 5",
                 conr_clustering_embed(c, k, x, N, D - 1, unit));
    x[3] = NAN;
    assert_fails(CONR_ENUMBER, "row 0 ", conr_clustering_embed(c, k, x, N, D, unit));
    conr_clustering_close(k);
    conr_close(c);
}

/* A path that is too long for a setting, or not UTF-8, is recorded as far as it can be. */
static void odd_paths_are_recorded(void **state) {
    (void)state;
    float x[N * D];
    char path[600];
    features_options made;
    draw(x);
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    memcpy(path + 580, "\377\303\251.npy", 8);
    conr_features_options o = plain(folder("odd"));
    o.from = path;
    assert_ok(cluster(x, o, 1, NULL));
    assert_int_equal(features_read(&made, file_in(folder("odd"), "options.yaml")), 1);
    assert_true(strlen(made.from) < 256);
    assert_non_null(strstr(made.from, "aaa???.npy"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_found),          cmocka_unit_test(refining_is_chosen),
        cmocka_unit_test(mistakes_are_refused),      cmocka_unit_test(stopped_runs_are_repeated),
        cmocka_unit_test(report_speaks_of_features), cmocka_unit_test(clustered_again),
        cmocka_unit_test(odd_paths_are_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
