/* neighbors_test.c: lists of neighbors against those of NumPy; the two algorithms and different
 * numbers of threads against each other; the boundary filter. */
#include "base/test_help.h"

#include "base/rng.h"
#include "base/tensors.h"
#include "context/context.h"
#include "neighbors/neighbors.h"
#include "neighbors/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static conr *one, *three, *ref;

static int open_all(void **state) {
    (void)state;
    assert_ok(conr_open("cpu", 1, &one));
    assert_ok(conr_open("cpu", 3, &three));
    assert_ok(conr_open("ref", 0, &ref));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    conr_close(one), conr_close(three), conr_close(ref);
    return 0;
}

/* ---- against NumPy --------------------------------------------------------------------------- */

static void equal_lists(const int32_t *ids, const int32_t *wanted, size_t count, int number,
                        const char *what) {
    for (size_t at = 0; at < count; at++)
        if (ids[at] != wanted[at])
            fail_msg("case %d, %s: entry %zu is %d, not %d", number, what, at, ids[at], wanted[at]);
}

static void as_numpy(void **state) {
    (void)state;
    tensors file;
    assert_ok(tensors_open(golden_path("neighbors.safetensors"), &file));
    const tensor *shapes = tensors_find(&file, "shape"), *alphas = tensors_find(&file, "alpha");
    const char *x_at = tensors_find(&file, "x")->data, *ids_at = tensors_find(&file, "ids")->data;
    int cases = (int)shapes->dim[0];
    assert_true(cases >= 200);
    for (int number = 0; number < cases; number++) {
        int32_t s[8];
        float alpha;
        memcpy(s, (const char *)shapes->data + number * sizeof s, sizeof s);
        memcpy(&alpha, (const char *)alphas->data + number * sizeof alpha, sizeof alpha);
        conr_neighbors_options o = {.k = s[2],
                                    .k1 = s[3],
                                    .k2 = s[4],
                                    .layers = s[5],
                                    .alpha = alpha,
                                    .resymmetrize = s[6],
                                    .local = s[7]};
        int n = s[0], d = s[1], k = o.k < n ? o.k : n;
        size_t numbers = (size_t)n * d, count = (size_t)n * k;
        float *x = malloc(numbers * sizeof *x);
        int32_t *ids = malloc(count * sizeof *ids), *wanted = malloc(count * sizeof *wanted);
        memcpy(x, x_at, numbers * sizeof *x);
        memcpy(wanted, ids_at, count * sizeof *wanted);
        assert_ok(conr_neighbors(one, x, n, d, &o, ids));
        equal_lists(ids, wanted, count, number, "cpu");
        assert_ok(conr_neighbors(three, x, n, d, &o, ids));
        equal_lists(ids, wanted, count, number, "cpu, 3 threads");
        assert_ok(conr_neighbors(ref, x, n, d, &o, ids));
        equal_lists(ids, wanted, count, number, "ref");
        x_at += numbers * sizeof *x;
        ids_at += count * sizeof *ids;
        free(x), free(ids), free(wanted);
    }
    tensors_close(&file);
}

/* ---- algorithms and threads ------------------------------------------------------------------ */

/* Rows around a few centers of unequal weight; some rows occur twice. */
static float *clusters(int n, int d, int K, double noise, uint32_t stream) {
    float *x = malloc((size_t)n * d * sizeof *x), *center = malloc((size_t)K * d * sizeof *center);
    rng r = rng_at(5, 0, stream, RNG_TEST);
    for (int i = 0; i < K * d; i++) center[i] = (float)rng_normal(&r);
    for (int i = 0; i < n; i++) {
        int c = (int)(K * rng_float(&r) * rng_float(&r));
        double squares = 0;
        for (int j = 0; j < d; j++) {
            float v = center[c * d + j] + (float)(noise * rng_normal(&r));
            x[(size_t)i * d + j] = v;
            squares += (double)v * v;
        }
        for (int j = 0; j < d; j++) x[(size_t)i * d + j] /= (float)sqrt(squares);
        if (i > 0 && i % 50 == 0)
            memcpy(x + (size_t)i * d, x + (size_t)(i / 2) * d, (size_t)d * sizeof *x);
    }
    free(center);
    return x;
}

static void check_algorithms(int n, int d, const conr_neighbors_options *o) {
    float *x = clusters(n, d, 12, 1.0, (uint32_t)n);
    size_t bytes = (size_t)n * o->k * sizeof(int32_t);
    int32_t *dense = malloc(bytes), *sparse = malloc(bytes);
    assert_ok(neighbors_dense(one->dev, x, n, d, o, dense));
    assert_ok(neighbors_sparse(one->dev, NULL, x, n, d, o, sparse));
    assert_memory_equal(dense, sparse, bytes);
    assert_ok(neighbors_sparse(three->dev, NULL, x, n, d, o, sparse));
    assert_memory_equal(dense, sparse, bytes);
    free(x), free(dense), free(sparse);
}

static void dense_equals_sparse(void **state) {
    (void)state;
    conr_neighbors_options o = conr_neighbors_defaults();
    check_algorithms(3000, 64, &o);
    check_algorithms(257, 300, &o); /* sums longer than one block of the micro-kernel */
    o.k = 20, o.k1 = 30, o.k2 = 10, o.alpha = 1.5, o.layers = 3;
    check_algorithms(700, 32, &o);
    o.resymmetrize = 0;
    check_algorithms(301, 5, &o);
}

/* Equal rows make equal values, also at the end of a list, where the lower index goes first: more
 * rows than are ranked as a batch, each several times. */
static void ties_at_the_end(void **state) {
    (void)state;
    enum { N = 2100, D = 8, DISTINCT = 300 };
    conr_neighbors_options o = conr_neighbors_defaults();
    int32_t dense[N * 10], sparse[N * 10];
    float *x = clusters(DISTINCT, D, 12, 1.0, 3), *all = malloc(N * D * sizeof *all);
    for (int i = 0; i < N; i++) memcpy(all + i * D, x + (i * 7919 % DISTINCT) * D, D * sizeof *all);
    for (o.layers = 0; o.layers <= 2; o.layers++) {
        o.k = 4 + 3 * o.layers;
        assert_ok(neighbors_dense(three->dev, all, N, D, &o, dense));
        assert_ok(neighbors_sparse(three->dev, NULL, all, N, D, &o, sparse));
        assert_memory_equal(dense, sparse, (size_t)N * o.k * sizeof *dense);
    }
    free(x), free(all);
}

/* S stored whole and in rounds; rows that are zero or equal, lists of maximal length. */
static void check_searches(int n, int d, int k) {
    float *x = clusters(n, d, 7, 1.0, (uint32_t)(n + k));
    if (n > 3) memset(x + (size_t)(n / 3) * d, 0, (size_t)(n / 3) * d * sizeof *x);
    size_t count = (size_t)n * k;
    int32_t *whole = malloc(count * sizeof *whole), *rounds = malloc(count * sizeof *rounds);
    float *values = malloc(count * sizeof *values), *others = malloc(count * sizeof *others);
    assert_ok(search_rounds(three->dev, NULL, x, n, d, k, rounds, others));
    for (int threads = 1; threads <= 3; threads += 2) {
        assert_ok(search_whole((threads == 1 ? one : three)->dev, x, n, d, k, whole, values));
        assert_memory_equal(whole, rounds, count * sizeof *whole);
        assert_memory_equal(values, others, count * sizeof *values);
    }
    free(x), free(whole), free(rounds), free(values), free(others);
}

static void searches_agree(void **state) {
    (void)state;
    static const int cases[][3] = {{1, 3, 1},      {2, 1, 2},      {15, 8, 15}, {16, 8, 10},
                                   {17, 300, 17},  {97, 40, 1},    {97, 40, 2}, {191, 16, 191},
                                   {300, 300, 18}, {513, 600, 10}, {777, 2, 17}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_searches(cases[i][0], cases[i][1], cases[i][2]);
}

/* Local lists against the plain definition. */
static void local_is_exact(void **state) {
    (void)state;
    enum { N = 500, D = 40, K = 17 };
    float *x = clusters(N, D, 9, 0.7, 77);
    conr_neighbors_options o = conr_neighbors_defaults();
    o.k = K, o.local = 1;
    int32_t *ids = malloc(N * K * sizeof *ids);
    assert_ok(conr_neighbors(three, x, N, D, &o, ids));
    for (int i = 0; i < N; i++) {
        double last = 2;
        assert_int_equal(ids[i * K], i);
        for (int at = 1; at < K; at++) {
            double s = 0;
            for (int j = 0; j < D; j++) s += (double)x[i * D + j] * x[ids[i * K + at] * D + j];
            assert_true(s <= last + 1e-6);
            last = s;
        }
        int closer = 0; /* than the last one */
        for (int other = 0; other < N; other++) {
            double s = 0;
            for (int j = 0; j < D; j++) s += (double)x[i * D + j] * x[other * D + j];
            closer += other != i && s > last + 1e-6;
        }
        assert_true(closer < K);
    }
    free(x), free(ids);
}

static void refuses(void **state) {
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6};
    int32_t ids[60];
    conr_neighbors_options o = conr_neighbors_defaults();
    assert_fails(CONR_EINVAL, "0 rows", conr_neighbors(one, x, 0, 2, &o, ids));
    assert_fails(CONR_EINVAL, "at least one", conr_neighbors(one, NULL, 3, 2, &o, ids));
    x[3] = NAN;
    assert_fails(CONR_ENUMBER, "row 1 has NaN", conr_neighbors(one, x, 3, 2, &o, ids));
    x[3] = -INFINITY;
    assert_fails(CONR_ENUMBER, "infinite", conr_neighbors(one, x, 3, 2, &o, ids));
    x[3] = 4, o.k2 = 0;
    assert_fails(CONR_EINVAL, "k2", conr_neighbors(one, x, 3, 2, &o, ids));
    o.k2 = 2, o.alpha = -1;
    assert_fails(CONR_EINVAL, "alpha", conr_neighbors(one, x, 3, 2, &o, ids));
    o.alpha = 2;
    x[0] = 3e38f, x[1] = -3e38f, x[2] = 1e-44f; /* long and short, but finite */
    assert_ok(conr_neighbors(one, x, 3, 2, &o, ids));
}

/* ---- purity and boundary --------------------------------------------------------------------- */

static void purity_by_hand(void **state) {
    (void)state;
    const int32_t ids[] = {0, 1, 2, /**/ 1, 2, 3, /**/ 2, 0, 3, /**/ 3, 2, 1};
    const int64_t labels[] = {5, 5, 7, -1};
    const unsigned char kept[] = {1, 0, 1, 1};
    double purity[2];
    assert_ok(conr_purity(ids, 4, 3, labels, NULL, purity));
    assert_true(fabs(purity[0] - 1.0 / 3) < 1e-15); /* 0: yes; 1: no; 2: no */
    assert_true(fabs(purity[1] - 0.5 / 3) < 1e-15); /* 0: half; 1: no of one; 2: no of one */
    assert_ok(conr_purity(ids, 4, 3, labels, kept, purity));
    assert_true(fabs(purity[0] - 0.5) < 1e-15);
    assert_fails(CONR_EINVAL, "purity", conr_purity(ids, 4, 1, labels, NULL, purity));
    const int64_t others[] = {5, -1, 5, 5}; /* a neighbor without a label does not count */
    assert_ok(conr_purity(ids, 4, 3, others, NULL, purity));
    assert_true(purity[0] == 1 && purity[1] == 1);
}

static void boundary_by_hand(void **state) {
    (void)state;
    const float x[] = {0, 0, 1, 0, 2, 0, 4, 0, 3, 0}, centroids[] = {0, 0, 4, 0};
    const int32_t labels[] = {0, 0, 0, 1, 0};
    float ratio[5], sigma;
    unsigned char kept[5];
    assert_ok(conr_boundary(one, x, 5, 2, CONR_EUCLIDEAN, centroids, 2, labels, 0, ratio));
    const float wanted[] = {0, 1 - 2.0f / 3, 1, 0, 1 + 2.0f / 3};
    for (int i = 0; i < 5; i++) assert_true(fabsf(ratio[i] - wanted[i]) < 1e-6f);
    assert_int_equal(conr_boundary_keep(ratio, 5, 0.8, kept, &sigma), 4);
    assert_true(sigma == 1 && kept[2] && !kept[4]);
    assert_int_equal(conr_boundary_keep(ratio, 5, 0, kept, NULL),
                     2); /* at least one, and its tie */
    float hundred[100];
    unsigned char most[100];
    for (int i = 0; i < 100; i++) hundred[i] = (float)i;
    assert_int_equal(conr_boundary_keep(hundred, 100, 0.29, most, NULL), 29); /* 28.999... */
    const float apart[] = {0.5f, 0.25f, 0.75f};
    assert_int_equal(conr_boundary_keep(apart, 3, 0, kept, &sigma), 1);
    assert_true(sigma == 0.25f && kept[1]);
    assert_int_equal(conr_boundary_keep(ratio, 5, 0, kept, NULL), 2);
    unsigned char same_kept[5];
    assert_ok(conr_boundary_filter(one, ratio, 5, 0, same_kept));
    assert_memory_equal(kept, same_kept, 5);
    assert_int_equal(conr_boundary_keep(ratio, 5, 1, kept, NULL), 5);
    assert_fails(CONR_EINVAL, "fraction", conr_boundary_filter(one, ratio, 5, -1, kept));
    assert_fails(CONR_EINVAL, "no rows", conr_boundary_filter(one, ratio, 0, 1, kept));
    assert_fails(CONR_EINVAL, "stream: cpu", conr_set_stream(one, NULL));
    assert_fails(CONR_EINVAL, "fraction", (int)conr_boundary_keep(ratio, 5, 1.5, kept, NULL));
    const int32_t wrong[] = {0, 0, 2, 0, 0};
    assert_fails(CONR_EINVAL, "row 2",
                 conr_boundary(one, x, 5, 2, CONR_EUCLIDEAN, centroids, 2, wrong, 0, ratio));
    const float same[] = {1, 1, 1, 1}; /* both distances 0 */
    assert_ok(conr_boundary(one, same, 1, 2, CONR_EUCLIDEAN, same, 2, labels, 0, ratio));
    assert_true(ratio[0] == 1);
    assert_ok(conr_boundary(one, x, 1, 2, CONR_EUCLIDEAN, centroids, 1, labels, 0, ratio));
    assert_true(ratio[0] == 0); /* no other cluster */
}

/* A device whose arrays are its own: the call must stay within the memory that it asked for. */
static unsigned char *asked;
static size_t asked_bytes;

static int work_with_a_mark(device *dev, size_t bytes, void **out) {
    enum { MARK = 4096 };
    (void)dev;
    free(asked);
    asked_bytes = bytes;
    *out = asked = aligned_alloc(64, (bytes + MARK + 63) / 64 * 64);
    assert_non_null(asked);
    memset(asked + bytes, 0x5a, MARK);
    return 0;
}

static int all_is_there(device *dev, const void *p) {
    (void)dev, (void)p;
    return 1;
}

/* Hosts have none: how far the rows are from the mark is all that is asked here. */
static int no_ratios(device *dev, const float *f, int n, int d, const int32_t *label,
                     const float *centroids, int K, float *ratio) {
    (void)dev, (void)f, (void)n, (void)d, (void)label, (void)centroids, (void)K, (void)ratio;
    return 0;
}

static void boundary_stays_in_its_memory(void **state) {
    (void)state;
    enum { N = 24, D = 5, K = 3 };
    float x[N * D], centers[K * D], ratio[N];
    int32_t labels[N];
    conr *there;
    rng r = rng_at(5, 0, 0, RNG_TEST);
    for (int i = 0; i < N * D; i++) x[i] = (float)rng_normal(&r);
    for (int i = 0; i < K * D; i++) centers[i] = (float)rng_normal(&r);
    for (int i = 0; i < N; i++) labels[i] = (int32_t)rng_below(&r, K);
    assert_ok(conr_open("ref", 0, &there));
    there->dev->op.work = work_with_a_mark;
    there->dev->op.reaches = all_is_there;
    there->dev->op.boundary_ratio = no_ratios;
    for (int normalize = 0; normalize < 2; normalize++) {
        assert_ok(conr_boundary(there, x, N, D, CONR_COSINE, centers, K, labels, normalize, ratio));
        for (int i = 0; i < 4096; i++) assert_int_equal(asked[asked_bytes + (size_t)i], 0x5a);
    }
    conr_close(there);
    free(asked), asked = NULL;
}

/* A unit row at the end of its centroid's direction: d_I depends on the centroid's length. */
static void boundary_normalizes_when_asked(void **state) {
    (void)state;
    const float x[] = {3, 0}, centroids[] = {0.5f, 0, 0, 0.5f};
    const int32_t label = 0;
    float plain, scaled;
    assert_ok(conr_boundary(one, x, 1, 2, CONR_COSINE, centroids, 2, &label, 0, &plain));
    assert_ok(conr_boundary(one, x, 1, 2, CONR_COSINE, centroids, 2, &label, 1, &scaled));
    assert_true(fabs(plain - 0.5 / sqrt(1.25)) < 1e-6 && scaled == 0);
}

static void fraction_grows(void **state) {
    (void)state;
    assert_true(fabs(conr_boundary_fraction(0.8, 1, 50) - 0.804) < 1e-12); /* released */
    assert_true(conr_boundary_fraction(0.8, 50, 50) == 1);
    assert_true(conr_boundary_fraction(0.8, 0, 200) == 0.8); /* paper */
    assert_true(fabs(conr_boundary_fraction(0.8, 100, 200) - 0.9) < 1e-12);
    assert_true(conr_boundary_fraction(0.8, 3, 0) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_numpy),
        cmocka_unit_test(dense_equals_sparse),
        cmocka_unit_test(ties_at_the_end),
        cmocka_unit_test(searches_agree),
        cmocka_unit_test(local_is_exact),
        cmocka_unit_test(refuses),
        cmocka_unit_test(purity_by_hand),
        cmocka_unit_test(boundary_by_hand),
        cmocka_unit_test(boundary_stays_in_its_memory),
        cmocka_unit_test(boundary_normalizes_when_asked),
        cmocka_unit_test(fraction_grows),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
