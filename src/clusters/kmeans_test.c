/* kmeans_test.c: k-means against plain Lloyd, what holds for every result, and difficult inputs. */
#include "base/test_help.h"

#include "base/rng.h"
#include "clusters/scale.h"
#include "context/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static conr *one, *three;

static int open_all(void **state) {
    (void)state;
    assert_ok(conr_open("cpu", 1, &one));
    assert_ok(conr_open("cpu", 3, &three));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    conr_close(one), conr_close(three);
    return 0;
}

/* n rows around K centers far from the origin; labels: [n], the center of each. */
static float *blobs(int n, int d, int K, double noise, int32_t *labels) {
    float *x = malloc((size_t)n * d * sizeof *x), *center = malloc((size_t)K * d * sizeof *center);
    rng r = rng_at(9, 0, (uint32_t)n, RNG_TEST);
    for (int i = 0; i < K * d; i++) center[i] = 5 + (float)rng_normal(&r);
    for (int i = 0; i < n; i++) {
        int c = (int)rng_below(&r, (uint32_t)K);
        if (labels) labels[i] = c;
        for (int j = 0; j < d; j++)
            x[(size_t)i * d + j] = center[c * d + j] + (float)(noise * rng_normal(&r));
    }
    free(center);
    return x;
}

/* The squared distance, or 1 - cos, in double. */
static double apart(const float *a, const float *b, int d, conr_metric metric) {
    double dot = 0, aa = 0, bb = 0, squares = 0;
    for (int j = 0; j < d; j++) {
        dot += (double)a[j] * b[j], aa += (double)a[j] * a[j], bb += (double)b[j] * b[j];
        squares += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
    }
    if (metric == CONR_EUCLIDEAN) return squares;
    return aa > 0 && bb > 0 ? 1 - dot / sqrt(aa * bb) : 1;
}

/* What holds for every result: labels are the nearest centroids, conr_assign gives the same, the
 * objective is correct and never grew, centroids are the means of their rows. */
static void check_result(const float *x, int n, int d, const conr_kmeans_options *o,
                         const float *centroids, const int32_t *labels,
                         const conr_kmeans_history *h) {
    int32_t *again = malloc(n * sizeof *again);
    float *distances = malloc(n * sizeof *distances);
    double sum = 0;
    assert_ok(conr_assign(one, x, n, d, o->metric, centroids, o->clusters, again, distances));
    assert_memory_equal(labels, again, n * sizeof *again);
    for (int i = 0; i < n; i++) {
        double own = apart(x + i * d, centroids + labels[i] * d, d, o->metric), least = INFINITY;
        for (int c = 0; c < o->clusters; c++) {
            double other = apart(x + i * d, centroids + c * d, d, o->metric);
            least = other < least ? other : least;
        }
        assert_true(own <= least + 1e-5 * (1 + least));
        double shown = o->metric == CONR_COSINE ? distances[i] : distances[i] * distances[i];
        assert_true(fabs(shown - own) <= 1e-5 * (1 + own));
        sum += own;
    }
    assert_true(fabs(sum - h->objective) <= 1e-5 * (1 + sum));
    for (int s = 1; s < h->steps; s++)
        if (h->step[s].run == h->step[s - 1].run && !h->step[s].refilled &&
            !h->step[s - 1].refilled)
            assert_true(h->step[s].objective <= h->step[s - 1].objective * (1 + 1e-6) + 1e-6);
    free(again), free(distances);
}

static void run_and_check(const float *x, int n, int d, conr_kmeans_options o, double *objective) {
    float *c1 = malloc(o.clusters * d * sizeof *c1), *c3 = malloc(o.clusters * d * sizeof *c3);
    int32_t *l1 = malloc(n * sizeof *l1), *l3 = malloc(n * sizeof *l3);
    conr_kmeans_history h1, h3;
    assert_ok(conr_kmeans(one, x, n, d, &o, c1, l1, &h1));
    assert_ok(conr_kmeans(three, x, n, d, &o, c3, l3, &h3));
    assert_memory_equal(c1, c3, o.clusters * d * sizeof *c1);
    assert_memory_equal(l1, l3, n * sizeof *l1);
    assert_int_equal(h1.steps, h3.steps);
    assert_true(h1.objective == h3.objective);
    check_result(x, n, d, &o, c1, l1, &h1);
    if (objective) *objective = h1.objective;
    conr_kmeans_history_free(&h1), conr_kmeans_history_free(&h3);
    free(c1), free(c3), free(l1), free(l3);
}

static void keeps_its_promises(void **state) {
    (void)state;
    conr_kmeans_options o = conr_kmeans_defaults();
    o.restarts = 3;
    for (int metric = 0; metric < 2; metric++) {
        o.metric = metric ? CONR_EUCLIDEAN : CONR_COSINE;
        float *x = blobs(3000, 20, 15, 0.6, NULL);
        for (o.clusters = 1; o.clusters < 120; o.clusters = o.clusters * 3 + 1)
            run_and_check(x, 3000, 20, o, NULL);
        free(x);
    }
}

/* Plain Lloyd from the same start, in double: the bounds of lloyd.c must change nothing. */
static void follows_plain_lloyd(void **state) {
    (void)state;
    enum { N = 1500, D = 12, K = 40 };
    float *x = blobs(N, D, 25, 0.8, NULL), start[K * D], found[K * D];
    int32_t labels[N];
    double center[K * D], sum[K * D];
    int own[N], count[K];
    memcpy(start, x, sizeof start);
    for (int i = 0; i < K * D; i++) center[i] = start[i];
    for (int iteration = 0; iteration < 25; iteration++) {
        memset(sum, 0, sizeof sum), memset(count, 0, sizeof count);
        for (int i = 0; i < N; i++) {
            double least = INFINITY;
            for (int c = 0; c < K; c++) {
                double d2 = 0;
                for (int j = 0; j < D; j++)
                    d2 += (x[i * D + j] - center[c * D + j]) * (x[i * D + j] - center[c * D + j]);
                if (d2 < least) least = d2, own[i] = c;
            }
            count[own[i]]++;
            for (int j = 0; j < D; j++) sum[own[i] * D + j] += x[i * D + j];
        }
        for (int i = 0; i < K * D; i++) center[i] = sum[i] / count[i / D];
    }
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.restarts = 0, o.start = start;
    o.iterations = 25, o.tolerance = 0;
    assert_ok(conr_kmeans(three, x, N, D, &o, found, labels, NULL));
    for (int i = 0; i < K * D; i++) assert_true(fabs(found[i] - center[i]) < 1e-4);
    free(x);
}

static void finds_blobs(void **state) {
    (void)state;
    enum { N = 2000, D = 16, K = 12 };
    int32_t truth[N], labels[N];
    float *x = blobs(N, D, K, 0.15, truth), centroids[K * D];
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K;
    for (int metric = 0; metric < 2; metric++) {
        o.metric = metric ? CONR_EUCLIDEAN : CONR_COSINE;
        assert_ok(conr_kmeans(three, x, N, D, &o, centroids, labels, NULL));
        for (int i = 1; i < N; i++)
            for (int j = i - 1; j >= 0 && j > i - 50; j--)
                assert_int_equal(truth[i] == truth[j], labels[i] == labels[j]);
    }
    free(x);
}

/* Blobs of 10, 28 and 80 rows, close to each other here and there: runs from seeds alone end in a
 * worse result than the best for most seeds; a moved center mends it. */
static void swaps_find_the_best(void **state) {
    (void)state;
    enum { K = 30, D = 2, MOST = K * 80, SEEDS = 20 };
    static const int sizes[] = {10, 28, 80};
    static float x[MOST * D], centroids[K * D];
    static int32_t labels[MOST];
    int n = 0, best = 0;
    double objective[SEEDS], least = INFINITY;
    rng r = rng_at(9, 1, 0, RNG_TEST);
    for (int b = 0; b < K; b++) {
        double at[D] = {40 * rng_float(&r), 40 * rng_float(&r)};
        for (int i = 0; i < sizes[b % 3]; i++, n++)
            for (int j = 0; j < D; j++) x[n * D + j] = (float)(at[j] + 0.4 * rng_normal(&r));
    }
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.restarts = 6;
    for (int s = 0; s < SEEDS; s++) {
        conr_kmeans_history h;
        o.seed = (uint64_t)s + 1;
        assert_ok(conr_kmeans(one, x, n, D, &o, centroids, labels, &h));
        objective[s] = h.objective;
        least = fmin(least, objective[s]);
        conr_kmeans_history_free(&h);
    }
    for (int s = 0; s < SEEDS; s++) best += objective[s] < 1.02 * least;
    assert_true(best >= 15); /* 20; 7 without swaps, or with the wrong center moved */
}

static void warm_start_is_one_more_run(void **state) {
    (void)state;
    enum { N = 1200, D = 8, K = 30 };
    float *x = blobs(N, D, K, 0.5, NULL), good[K * D], centroids[K * D];
    int32_t labels[N];
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history h;
    double alone;
    o.clusters = K, o.restarts = 10, o.metric = CONR_EUCLIDEAN;
    assert_ok(conr_kmeans(one, x, N, D, &o, good, labels, &h));
    alone = h.objective;
    conr_kmeans_history_free(&h);
    o.restarts = 1, o.seed = 99, o.start = good;
    assert_ok(conr_kmeans(one, x, N, D, &o, centroids, labels, &h));
    assert_true(h.objective <= alone * (1 + 1e-6));
    assert_int_equal(h.step[h.steps - 1].run, 1);
    conr_kmeans_history_free(&h);
    free(x);
}

/* ---- difficult inputs ------------------------------------------------------------------------ */

static void degenerate(void **state) {
    (void)state;
    enum { N = 60, D = 3 };
    float same[N * D], few[N * D], zero[N * D] = {0}, line[N * D];
    double objective;
    for (int i = 0; i < N * D; i++) {
        same[i] = 1.5f;
        few[i] = (float)(i / D % 4 == i % D) * 2; /* four distinct rows, one of them zero */
        line[i] = i % D ? 0 : (float)(i < N * D / 2 ? 1 : -1) * (1 + (float)i);
    }
    const float *sets[] = {same, few, zero, line};
    for (int s = 0; s < 4; s++)
        for (int metric = 0; metric < 2; metric++)
            for (int K = 1; K <= N; K = K == 1 ? 7 : K == 7 ? N : N + 1) {
                conr_kmeans_options o = conr_kmeans_defaults();
                o.clusters = K, o.metric = metric ? CONR_EUCLIDEAN : CONR_COSINE, o.restarts = 2;
                run_and_check(sets[s], N, D, o, &objective);
                if (K >= 4 && s < 2 && metric) assert_true(objective < 1e-9);
            }
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = 1;
    run_and_check(line, 1, D, o, NULL); /* n = 1 */
}

/* All starts but one are far from all rows: clusters become empty and must be given rows. */
static void refills_empty_clusters(void **state) {
    (void)state;
    enum { N = 400, D = 4, K = 6 };
    float *x = blobs(N, D, K, 0.2, NULL), start[K * D], centroids[K * D];
    int32_t labels[N], count[K] = {0}, refilled = 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history h;
    for (int i = 0; i < K * D; i++) start[i] = i < D ? 5 : 1e4f + (float)i;
    o.clusters = K, o.metric = CONR_EUCLIDEAN, o.restarts = 0, o.start = start;
    assert_ok(conr_kmeans(one, x, N, D, &o, centroids, labels, &h));
    check_result(x, N, D, &o, centroids, labels, &h);
    for (int s = 0; s < h.steps; s++) refilled += h.step[s].refilled;
    for (int i = 0; i < N; i++) count[labels[i]]++;
    for (int c = 0; c < K; c++) assert_true(count[c] > 0);
    assert_true(refilled >= K - 1);
    conr_kmeans_history_free(&h);
    free(x);
}

static void refuses(void **state) {
    (void)state;
    float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, centroids[12];
    int32_t labels[6];
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = 7;
    assert_fails(CONR_EINVAL, "more than the 6 rows",
                 conr_kmeans(one, x, 6, 2, &o, centroids, labels, NULL));
    o.clusters = 0;
    assert_fails(CONR_EINVAL, "clusters", conr_kmeans(one, x, 6, 2, &o, centroids, labels, NULL));
    o.clusters = 2, o.restarts = 0;
    assert_fails(CONR_EINVAL, "restarts", conr_kmeans(one, x, 6, 2, &o, centroids, labels, NULL));
    o.restarts = 1, x[5] = NAN;
    assert_fails(CONR_ENUMBER, "row 2", conr_kmeans(one, x, 6, 2, &o, centroids, labels, NULL));
    x[5] = 3e38f, x[4] = -3e38f, o.metric = CONR_EUCLIDEAN;
    assert_fails(CONR_ENUMBER, "overflows a float",
                 conr_kmeans(one, x, 6, 2, &o, centroids, labels, NULL));
    assert_fails(CONR_EINVAL, "centroids",
                 conr_assign(one, x, 6, 2, CONR_COSINE, centroids, 0, labels, NULL));
}

/* Rows are assigned by blocks: a row among many, first, last or in between, has the label and the
 * distance that it has alone.  d: so small that a block is full, and so large that it is one panel. */
static void assigns_rows_alone(void **state) {
    (void)state;
    enum { N = 1003, K = 37 };
    for (int d = 3; d < 9000; d = d == 3 ? 150 : d == 150 ? 8850 : 9000)
        for (int metric = 0; metric < 2; metric++) {
            int n = d > 200 ? 41 : N;
            float *x = blobs(n, d, 5, 1, NULL), *centroids = blobs(K, d, 5, 1, NULL);
            float all[N], alone;
            int32_t labels[N], label;
            conr_metric by = metric ? CONR_EUCLIDEAN : CONR_COSINE;
            assert_ok(conr_assign(three, x, n, d, by, centroids, K, labels, all));
            for (int i = 0; i < n; i += i < n - 20 ? 7 : 1) {
                const float *row = x + (size_t)i * d;
                assert_ok(conr_assign(one, row, 1, d, by, centroids, K, &label, &alone));
                assert_int_equal(label, labels[i]);
                assert_true(alone == all[i]);
                double least = INFINITY;
                for (int c = 0; c < K; c++)
                    least = fmin(least, apart(row, centroids + (size_t)c * d, d, by));
                assert_true(apart(row, centroids + (size_t)label * d, d, by) <=
                            least + 1e-5 * (1 + least));
            }
            free(x), free(centroids);
        }
    float big[12] = {0};
    int32_t labels[6];
    big[9] = 3e38f, big[3] = -3e38f; /* the first of them is named */
    assert_fails(CONR_ENUMBER, "row 1 overflows",
                 conr_assign(three, big, 6, 2, CONR_EUCLIDEAN, big, 1, labels, NULL));
}

/* ---- the number of clusters ------------------------------------------------------------------ */

static void estimates_the_number(void **state) {
    (void)state;
    conr_kmeans_options o = conr_kmeans_defaults();
    for (int K = 3; K <= 14; K += 11) {
        int chosen;
        double score[20];
        float *x = blobs(1500, 24, K, 0.3, NULL);
        o.metric = CONR_EUCLIDEAN;
        assert_ok(conr_choose_clusters(three, x, 1500, 24, &o, 2, 20, &chosen, score));
        assert_int_equal(chosen, K);
        assert_ok(conr_choose_clusters(one, x, 1500, 24, &o, 2, 20, &chosen, NULL));
        assert_int_equal(chosen, K);
        free(x);
    }
    int chosen;
    float *many = blobs(3000, 24, 40, 0.3, NULL); /* far beyond the first K that look stable */
    assert_ok(conr_choose_clusters(three, many, 3000, 24, &o, 2, 80, &chosen, NULL));
    assert_in_range(chosen, 38, 44);
    free(many);
    float *pair = blobs(1500, 24, 2, 0.3, NULL); /* two, though more are allowed */
    assert_ok(conr_choose_clusters(three, pair, 1500, 24, &o, 1, 20, &chosen, NULL));
    assert_int_equal(chosen, 2);
    free(pair);
    float *noise = blobs(1500, 24, 1, 0.3, NULL); /* one class: no finer clustering repeats */
    assert_ok(conr_choose_clusters(three, noise, 1500, 24, &o, 1, 20, &chosen, NULL));
    assert_int_equal(chosen, 1);
    free(noise);
    float two[] = {0, 1, 1, 0};
    assert_ok(conr_choose_clusters(one, two, 2, 2, &o, 1, 50, &chosen, NULL));
    assert_in_range(chosen, 1, 2);
    assert_fails(CONR_EINVAL, "range",
                 conr_choose_clusters(one, two, 2, 2, &o, 5, 4, &chosen, NULL));
}

/* The same clusters in other units, however small: by exact powers of two, the same bits. */
static void units_do_not_matter(void **state) {
    enum { N = 400, D = 5, K = 6 };
    static const double units[] = {0x1p-60, 0x1p-100, 0x1p-120, 1e-30, 1e-36};
    (void)state;
    float *x = blobs(N, D, K, 0.6, NULL), small[N * D], centers[2][K * D], away[2][N];
    int32_t labels[3][N];
    conr_kmeans_history h[2];
    conr_kmeans_options o = conr_kmeans_defaults();
    o.metric = CONR_EUCLIDEAN, o.clusters = K, o.restarts = 3;
    for (int shared = 0; shared < 2; shared++) { /* and with a column that all rows share */
        for (int i = 0; shared && i < N; i++) x[i * D] = 0;
        assert_ok(conr_kmeans(one, x, N, D, &o, centers[0], labels[0], &h[0]));
        assert_ok(conr_assign(one, x, N, D, CONR_EUCLIDEAN, x, K, labels[2], away[0]));
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            bool exact = u < 3;
            double by = units[u];
            for (int i = 0; i < N * D; i++) small[i] = (float)(x[i] * by);
            for (int i = 0; shared && i < N; i++) small[i * D] = 3;
            assert_ok(conr_kmeans(one, small, N, D, &o, centers[1], labels[1], &h[1]));
            for (int i = 0; i < N; i++)
                if (labels[0][i] != labels[1][i]) fail_msg("unit %g: row %d differs", by, i);
            for (int i = 0; exact && i < K * D; i++) {
                if (shared && i % D == 0) continue;
                assert_true(centers[1][i] == (float)(centers[0][i] * by) ||
                            fabs(centers[0][i] * by) < 0x1p-120); /* below it digits are lost */
            }
            if (!(fabs(h[1].objective / (by * by) / h[0].objective - 1) < 1e-5))
                fail_msg("unit %g: objective %g", by, h[1].objective / (by * by));
            assert_int_equal(h[0].steps, h[1].steps);
            assert_true(fabs(h[1].step[0].objective / (by * by) / h[0].step[0].objective - 1) <
                        1e-5);
            assert_ok(conr_assign(one, small, N, D, CONR_EUCLIDEAN, small, K, labels[1], away[1]));
            for (int i = 0; i < N; i++) {
                assert_int_equal(labels[1][i], labels[2][i]);
                if (exact && away[0][i] * by > 0x1p-120)
                    assert_true(fabs(away[1][i] / by / away[0][i] - 1) < 1e-6);
            }
            o.start = centers[1]; /* its centroids are a start in the same units */
            o.restarts = 0;
            assert_ok(conr_kmeans(one, small, N, D, &o, centers[1], labels[1], NULL));
            o.start = NULL, o.restarts = 3;
            for (int i = 0; i < N; i++) assert_int_equal(labels[1][i], labels[0][i]);
            conr_kmeans_history_free(&h[1]);
            int chosen[2];
            assert_ok(conr_choose_clusters(one, x, N, D, &o, 2, 12, &chosen[0], NULL));
            assert_ok(conr_choose_clusters(one, small, N, D, &o, 2, 12, &chosen[1], NULL));
            assert_int_equal(chosen[0], chosen[1]);
        }
        conr_kmeans_history_free(&h[0]);
    }
    free(x);
}

/* Rows in device memory are measured as rows in host memory are, also if only the last of many
 * differs from the others, or only the start. */
static void scale_of_rows_elsewhere(void **state) {
    enum { N = 700, D = 3 };
    static float x[N * D], y[D];
    (void)state;
    for (int unit = -140; unit <= 20; unit += 5)
        for (int where = 0; where < 4; where++) {
            float by;
            int m = where == 3;
            for (int i = 0; i < N * D; i++) x[i] = ldexpf(5, unit);
            for (int i = 0; where == 0 && i < N * D; i++) x[i] += ldexpf((float)(i % 7), unit);
            if (where == 1) x[N * D - 1] = ldexpf(6, unit);
            y[0] = ldexpf(6, unit), y[1] = y[2] = ldexpf(5, unit);
            assert_ok(scale_for_device(one->dev, x, N, y, m, D, &by));
            if (by != scale_for(x, N, y, m, D)) fail_msg("unit 2^%d, %d: %g", unit, where, by);
            assert_int_equal(by == 1, where == 2 || unit > -40 || (where == 0 && unit == -40));
        }
}

/* Twenty blobs, of 6 to 360 rows: runs from seeds split the large ones and leave two small ones in
 * one cluster; moving one center after the other mends that.  Measured over 20 sets: 3.0 % less than
 * the best run from seeds; the bound is half of that. */
static void swaps_mend_uneven_blobs(void **state) {
    enum { K = 20, D = 2, LEAST = 6, SETS = 20, RESTARTS = 4 };
    static float x[(2 * 60 + 4 * 12 + 14) * LEAST * D];
    static int32_t labels[(2 * 60 + 4 * 12 + 14) * LEAST];
    double ratio = 0;
    (void)state;
    for (int set = 1; set <= SETS; set++) {
        float center[K * D], found[K * D];
        rng r = rng_at((uint64_t)set, 1, 0, RNG_TEST);
        int n = 0;
        for (int i = 0; i < K * D; i++) center[i] = (float)(30 * rng_normal(&r));
        for (int c = 0; c < K; c++)
            for (int i = 0; i < (c < 2 ? 60 : c < 6 ? 12 : 1) * LEAST; i++, n++)
                for (int j = 0; j < D; j++)
                    x[n * D + j] = center[c * D + j] + (float)rng_normal(&r);
        conr_kmeans_history h;
        conr_kmeans_options o = conr_kmeans_defaults();
        o.metric = CONR_EUCLIDEAN, o.clusters = K, o.restarts = RESTARTS, o.seed = (uint64_t)set;
        assert_ok(conr_kmeans(one, x, n, D, &o, found, labels, &h));
        double last[RESTARTS], least = INFINITY;
        for (int i = 0; i < h.steps; i++)
            if (h.step[i].run < RESTARTS) last[h.step[i].run] = h.step[i].objective;
        for (int i = 0; i < RESTARTS; i++) least = last[i] < least ? last[i] : least;
        assert_true(h.objective <= least * (1 + 1e-6));
        ratio += h.objective / least / SETS;
        conr_kmeans_history_free(&h);
    }
    if (!(ratio < 0.985)) fail_msg("only %.2f %% less", 100 * (1 - ratio));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_its_promises),
        cmocka_unit_test(follows_plain_lloyd),
        cmocka_unit_test(finds_blobs),
        cmocka_unit_test(swaps_find_the_best),
        cmocka_unit_test(warm_start_is_one_more_run),
        cmocka_unit_test(degenerate),
        cmocka_unit_test(refills_empty_clusters),
        cmocka_unit_test(refuses),
        cmocka_unit_test(assigns_rows_alone),
        cmocka_unit_test(estimates_the_number),
        cmocka_unit_test(units_do_not_matter),
        cmocka_unit_test(scale_of_rows_elsewhere),
        cmocka_unit_test(swaps_mend_uneven_blobs),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
