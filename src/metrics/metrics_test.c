/* metrics_test.c: scores against those of scikit-learn, and cases computed by hand. */
#include "base/test_help.h"

#include "base/rng.h"
#include "base/tensors.h"
#include "conr.h"
#include "metrics/assignment.h"
#include "metrics/knn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tensors file;

static const tensor *find(const char *name) {
    const tensor *t = tensors_find(&file, name);
    if (!t) fail_msg("metrics.safetensors lacks %s", name);
    return t;
}

static int32_t int_at(const tensor *t, size_t at) {
    int32_t value;
    memcpy(&value, (const char *)t->data + at * sizeof value, sizeof value);
    return value;
}

/* A score is stored as the sum of two floats. */
static double score_at(const tensor *t, size_t at) {
    float part[2];
    memcpy(part, (const char *)t->data + at * sizeof part, sizeof part);
    return (double)part[0] + part[1];
}

static void as_scikit_learn(void **state) {
    (void)state;
    const tensor *lengths = find("labels.n"), *truths = find("labels.truth");
    const tensor *preds = find("labels.pred"), *wanted = find("labels.scores");
    size_t at = 0;
    assert_true(lengths->count >= 100);
    for (size_t c = 0; c < lengths->count; c++) {
        int n = int_at(lengths, c);
        int64_t *truth = malloc(n * sizeof *truth), *pred = malloc(n * sizeof *pred);
        int64_t unlabeled = 0;
        conr_scores s;
        for (int i = 0; i < n; i++, at++) {
            truth[i] = int_at(truths, at), pred[i] = int_at(preds, at);
            unlabeled += truth[i] == -1;
        }
        assert_ok(conr_metrics(truth, pred, n, &s));
        assert_true(fabs(s.nmi - score_at(wanted, 3 * c)) < 1e-12);
        assert_true(fabs(s.acc - score_at(wanted, 3 * c + 1)) < 1e-12);
        assert_true(fabs(s.ari - score_at(wanted, 3 * c + 2)) < 1e-12);
        assert_int_equal(s.unlabeled, unlabeled);
        assert_int_equal(s.n, n - unlabeled);
        /* the values of labels do not matter, nor how far apart they are */
        for (int i = 0; i < n; i++) {
            pred[i] = pred[i] * 1000000007 - 5;
            if (truth[i] != -1) truth[i] = INT64_MAX / 64 * (truth[i] % 50) + 1;
        }
        double nmi = s.nmi;
        assert_ok(conr_metrics(truth, pred, n, &s));
        assert_true(fabs(s.nmi - nmi) < 1e-12);
        free(truth), free(pred);
    }
}

static void of_features(void **state) {
    (void)state;
    const tensor *x = find("features.x"), *labels = find("features.labels");
    const tensor *wanted = find("features.scores");
    int n = (int)x->dim[0], d = (int)x->dim[1];
    float *values = malloc(x->count * sizeof *values);
    int32_t *narrow = malloc(n * sizeof *narrow);
    int64_t *wide = malloc(n * sizeof *wide), used;
    double cosine, euclidean, knn;
    conr *c;
    assert_ok(tensors_floats(&file, x, values));
    for (int i = 0; i < n; i++) wide[i] = narrow[i] = int_at(labels, i);
    for (int threads = 1; threads < 4; threads += 2) {
        assert_ok(conr_open("cpu", threads, &c));
        assert_ok(conr_silhouette(c, values, n, d, CONR_COSINE, narrow, 1, &cosine, &used));
        assert_ok(conr_silhouette(c, values, n, d, CONR_EUCLIDEAN, narrow, 1, &euclidean, NULL));
        assert_ok(conr_knn_accuracy(c, values, wide, n, NULL, NULL, 0, d, 20, 0.07, &knn));
        /* float sums are off by about 1e-6 of a distance */
        assert_true(fabs(cosine - score_at(wanted, 0)) < 1e-5);
        assert_true(fabs(euclidean - score_at(wanted, 1)) < 1e-5);
        assert_true(fabs(knn - score_at(wanted, 2)) < 1e-9);
        assert_int_equal(used, n);
        conr_close(c);
    }
    free(values), free(narrow), free(wide);
}

/* From 20,000 rows on, a sample is taken and `used` says so. */
static void silhouette_samples(void **state) {
    (void)state;
    enum { N = 20000, D = 2 };
    float *x = malloc(N * D * sizeof *x);
    int32_t *labels = malloc(N * sizeof *labels);
    rng r = rng_at(3, 0, 0, RNG_TEST);
    for (int i = 0; i < N; i++) {
        labels[i] = 7 * (i % 2);
        x[i * D] = (float)(4 * (i % 2) + rng_float(&r)), x[i * D + 1] = rng_float(&r);
    }
    conr *c;
    double sampled, exact;
    int64_t used;
    assert_ok(conr_open("cpu", 2, &c));
    assert_ok(conr_silhouette(c, x, N, D, CONR_EUCLIDEAN, labels, 1, &sampled, &used));
    assert_true(used < N);
    assert_ok(conr_silhouette(c, x, N / 2, D, CONR_EUCLIDEAN, labels, 1, &exact, &used));
    assert_int_equal(used, N / 2);
    assert_true(fabs(sampled - exact) < 5e-3);
    for (int i = 0; i < N; i++) labels[i] = 1;
    assert_fails(CONR_EINVAL, "two clusters",
                 conr_silhouette(c, x, N, D, CONR_EUCLIDEAN, labels, 1, &sampled, &used));
    conr_close(c);
    free(x), free(labels);
}

/* ---- assignment ------------------------------------------------------------------------------ */

/* By trying every assignment; for small tables. */
static int64_t best_of_all(const int64_t *gain, int rows, int cols, int row, unsigned used) {
    if (row == rows) return 0;
    int64_t best = rows > cols ? best_of_all(gain, rows, cols, row + 1, used) : INT64_MIN;
    for (int j = 0; j < cols; j++) {
        if (used >> j & 1) continue;
        int64_t sum = gain[row * cols + j] + best_of_all(gain, rows, cols, row + 1, used | 1u << j);
        best = sum > best ? sum : best;
    }
    return best;
}

static void assigns_best(void **state) {
    (void)state;
    rng r = rng_at(4, 0, 0, RNG_TEST);
    for (int t = 0; t < 400; t++) {
        int rows = 1 + (int)rng_below(&r, 6), cols = 1 + (int)rng_below(&r, 6), match[6];
        int64_t gain[36], total, sum = 0;
        unsigned used = 0;
        for (int i = 0; i < rows * cols; i++) gain[i] = rng_below(&r, t % 2 ? 4 : 1000);
        assert_ok(assignment_solve(gain, rows, cols, match, &total));
        assert_int_equal(total, best_of_all(gain, rows, cols, 0, 0));
        for (int i = 0; i < rows; i++) {
            if (match[i] < 0) continue;
            assert_false(used >> match[i] & 1); /* one to one */
            used |= 1u << match[i];
            sum += gain[i * cols + match[i]];
        }
        assert_int_equal(sum, total);
    }
}

static void confusion_by_hand(void **state) {
    (void)state;
    const int64_t truth[] = {2, 2, 2, 9, 9, -1, 9, 4}, pred[] = {0, 0, -8, -8, -8, -8, 0, 3};
    conr_confusion m;
    assert_ok(conr_confusion_make(truth, pred, 8, &m));
    assert_int_equal(m.clusters, 3);
    assert_int_equal(m.classes, 3);
    assert_int_equal(m.unlabeled, 1);
    const int64_t clusters[] = {-8, 0, 3}, classes[] = {2, 4, 9};
    const int64_t count[] = {1, 0, 2, /**/ 2, 0, 1, /**/ 0, 1, 0};
    assert_memory_equal(m.cluster, clusters, sizeof clusters);
    assert_memory_equal(m.class_, classes, sizeof classes);
    assert_memory_equal(m.count, count, sizeof count);
    assert_int_equal(m.match[0], 2);
    assert_int_equal(m.match[1], 0);
    assert_int_equal(m.match[2], 1);
    assert_true(fabs(m.purity[0] - 2.0 / 3) < 1e-15 && m.purity[2] == 1);
    conr_confusion_free(&m);
}

/* Each class counts alike, whether there are more clusters than classes or fewer. */
static void balanced_by_hand(void **state) {
    (void)state;
    const int64_t truth[] = {0, 0, 0, 0, 0, 0, 1, 1};
    const int64_t more[] = {0, 0, 0, 0, 2, 2, 1, 1}, fewer[] = {3, 3, 3, 3, 3, 3, 3, 3};
    conr_scores s;
    assert_ok(conr_metrics(truth, more, 8, &s));
    assert_true(fabs(s.balanced_acc - (4.0 / 6 + 1) / 2) < 1e-15 && s.acc == 6.0 / 8);
    assert_ok(conr_metrics(truth, fewer, 8, &s));
    assert_true(s.balanced_acc == 0.5 && s.acc == 6.0 / 8);
}

/* Rows without a label do not vote, however near; of equal sums the lower label wins. */
static void votes_by_hand(void **state) {
    (void)state;
    const float base[] = {1, 0.01f, 1, -0.01f, 0.6f, 0.8f, 0.6f, -0.8f}, query[] = {1, 0};
    const int64_t labels[] = {-1, -1, 5, 3}, three = 3, five = 5;
    conr *c;
    double accuracy;
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(conr_knn_accuracy(c, base, labels, 4, query, &three, 1, 2, 2, 0.1, &accuracy));
    assert_true(accuracy == 1);
    assert_ok(conr_knn_accuracy(c, base, labels, 4, query, &five, 1, 2, 2, 0.1, &accuracy));
    assert_true(accuracy == 0);
    conr_close(c);
}

/* Six directions; the nearest of each: 0 -> 1, 1 -> 0, 2 -> 1, 3 -> 4, 4 -> 3, 5 -> 4. */
static const double angles[6] = {0, 10, 30, 100, 105, 130};
static const int32_t nearest_angle[6] = {1, 0, 1, 4, 3, 4};

static void lists_by_hand(void **state) {
    (void)state;
    conr *c;
    float f[12];
    knn_lists l;
    double agreement, modularity;
    for (int i = 0; i < 6; i++) {
        double angle = angles[i] / 180 * acos(-1), length = i + 1; /* which does not matter */
        f[2 * i] = (float)(length * cos(angle)), f[2 * i + 1] = (float)(length * sin(angle));
    }
    assert_ok(conr_open("cpu", 1, &c));
    assert_ok(knn_search(c, f, 6, 2, 1, 6, 2, &l));
    assert_true(l.count == 6 && l.k == 1);
    assert_memory_equal(l.id, nearest_angle, sizeof nearest_angle);
    assert_true(fabs(l.similar[2] - cos(20 / 180.0 * acos(-1))) < 1e-6);
    /* no edge is cut; each cluster has half of the ends */
    assert_ok(knn_lists_agreement(&l, (int32_t[]){0, 0, 0, 2, 2, 2}, 3, &agreement, &modularity));
    assert_true(agreement == 1 && fabs(modularity - 0.5) < 1e-12);
    /* 2 -> 1 is cut; 5 and 7 of the 12 ends */
    assert_ok(knn_lists_agreement(&l, (int32_t[]){0, 0, 1, 1, 1, 1}, 2, &agreement, &modularity));
    assert_true(fabs(agreement - 5 / 6.0) < 1e-12);
    assert_true(fabs(modularity - (5 / 6.0 - 25 / 144.0 - 49 / 144.0)) < 1e-12);
    assert_ok(knn_lists_agreement(&l, (int32_t[]){0, 0, 0, 0, 0, 0}, 1, &agreement, &modularity));
    assert_true(agreement == 1 && fabs(modularity) < 1e-12); /* one cluster explains everything */
    assert_true(knn_lists_accuracy(&l, (int64_t[]){7, 7, 9, 9, 9, 9}, 0.1) == 5 / 6.0);
    knn_free(&l);
    /* more rows than 5: two evenly spaced ones */
    assert_ok(knn_search(c, f, 6, 2, 2, 5, 2, &l));
    assert_true(l.count == 2 && l.k == 2 && l.row[0] == 0 && l.row[1] == 3);
    assert_memory_equal(l.id, ((int32_t[]){1, 2, 4, 5}), 4 * sizeof *l.id);
    knn_free(&l);
    assert_ok(knn_search(c, f, 1, 2, 20, 5, 2, &l)); /* a row alone has no neighbors */
    assert_ok(knn_lists_agreement(&l, (int32_t[]){0}, 1, &agreement, &modularity));
    assert_true(l.k == 0 && isnan(agreement) && isnan(modularity));
    assert_true(isnan(knn_lists_accuracy(&l, (int64_t[]){0}, 0.1)));
    knn_free(&l);
    f[3] = NAN;
    assert_fails(CONR_ENUMBER, "row 1", knn_search(c, f, 6, 2, 1, 6, 2, &l));
    conr_close(c);
}

static void refuses(void **state) {
    (void)state;
    const int64_t none[] = {-1, -1}, some[] = {0, 1};
    conr_scores s;
    assert_fails(CONR_EINVAL, "unlabeled", conr_metrics(none, some, 2, &s));
    assert_fails(CONR_EINVAL, "none", conr_metrics(some, some, 0, &s));
    enum { N = 40000 };
    int64_t *ids = malloc(N * sizeof *ids);
    for (int i = 0; i < N; i++) ids[i] = i;
    assert_fails(CONR_EINVAL, "ids", conr_metrics(ids, ids, N, &s));
    free(ids);
}

static int open_file(void **state) {
    (void)state;
    assert_ok(tensors_open(golden_path("metrics.safetensors"), &file));
    return 0;
}

static int close_file(void **state) {
    (void)state;
    tensors_close(&file);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_scikit_learn),    cmocka_unit_test(of_features),
        cmocka_unit_test(silhouette_samples), cmocka_unit_test(assigns_best),
        cmocka_unit_test(confusion_by_hand),  cmocka_unit_test(balanced_by_hand),
        cmocka_unit_test(votes_by_hand),      cmocka_unit_test(refuses),
        cmocka_unit_test(lists_by_hand),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
