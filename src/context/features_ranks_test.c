/* features_ranks_test.c: neighborhoods and k-means of N ranks have the bits of one.  Runs under
 * mpirun -n 1, 2 and 4 in builds with MPI; as one process it compares a call with itself. */
#include "base/rng.h"
#include "base/test_help.h"
#include "context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2500, D = 24, K = 7, NEAR = 12 }; /* more rows than a search keeps whole */

static conr *context, *lonely; /* with all ranks; by itself */
static float features[ROWS * D];

/* Clumps of unequal size, more than there are clusters, so that runs end in different optima. */
static int draw_features(void **state) {
    (void)state;
    rng r = rng_at(11, 0, 0, RNG_TEST);
    float center[15][D];
    for (int c = 0; c < 15; c++)
        for (int j = 0; j < D; j++) center[c][j] = (float)rng_normal(&r);
    for (int i = 0; i < ROWS; i++) {
        int c = (int)rng_below(&r, 1 + rng_below(&r, 15));
        for (int j = 0; j < D; j++)
            features[i * D + j] = center[c][j] + 0.8f * (float)rng_normal(&r);
    }
    return 0;
}

static void neighbors(void **state) {
    static int32_t one[ROWS * NEAR], many[ROWS * NEAR];
    (void)state;
    for (int local = 0; local < 3; local++) {
        conr_neighbors_options o = conr_neighbors_defaults();
        o.k = NEAR, o.local = local > 0;
        o.recall = local == 2 ? 0.9 : 1; /* by cells */
        memset(many, 0xff, sizeof many);
        assert_ok(conr_neighbors(lonely, features, ROWS, D, &o, one));
        assert_ok(conr_neighbors(context, features, ROWS, D, &o, many));
        assert_memory_equal(one, many, sizeof one);
    }
}

static void compare_kmeans(conr_kmeans_options o) {
    static float one[K * D], many[K * D];
    static int32_t label[ROWS], other[ROWS];
    conr_kmeans_history h, all;
    o.clusters = K;
    assert_ok(conr_kmeans(lonely, features, ROWS, D, &o, one, label, &h));
    assert_ok(conr_kmeans(context, features, ROWS, D, &o, many, other, &all));
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(label, other, sizeof label);
    assert_int_equal(h.run, all.run);
    assert_int_equal(h.steps, all.steps);
    for (int i = 0; i < h.steps; i++) {
        assert_int_equal(h.step[i].run, all.step[i].run);
        assert_true(h.step[i].objective == all.step[i].objective);
    }
    conr_kmeans_history_free(&h);
    conr_kmeans_history_free(&all);
}

static void kmeans(void **state) {
    static float start[K * D];
    conr_kmeans_options o = conr_kmeans_defaults();
    (void)state;
    memcpy(start, features, sizeof start);
    compare_kmeans(o);
    o.metric = CONR_EUCLIDEAN, o.start = start;
    compare_kmeans(o);
    for (uint64_t seed = 2; seed < 6; seed++) { /* swaps that help and swaps that do not */
        o.seed = seed, o.restarts = 7;
        compare_kmeans(o);
    }
    o.restarts = 1; /* fewer than ranks */
    compare_kmeans(o);
    o.restarts = 0;
    compare_kmeans(o);
}

/* Rows spread over the ranks, in parts of unequal size: no rank reads those of another. */
static void spread(void **state) {
    enum { MANY = 60 };
    static float one[MANY * D], many[MANY * D], start[MANY * D];
    static int32_t label[ROWS], other[ROWS];
    int rank = context->ranks.rank, ranks = context->ranks.count;
    int first = rank ? ROWS / 9 + ROWS * rank / ranks / 2 : 0;
    int last = rank == ranks - 1 ? ROWS : ROWS / 9 + ROWS * (rank + 1) / ranks / 2;
    size_t own = (size_t)(last - first) * D * sizeof(float);
    float *mine = malloc(own);
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history h, all;
    (void)state;
    memcpy(mine, features + first * D, own);
    for (int i = 0; i < MANY * D; i++) start[i] = i < D ? 0 : 9 + (float)i; /* all but one empty */
    for (int with = 0; with < 4; with++) {
        o.clusters = MANY, o.restarts = 2 - with / 2, o.start = with < 2 ? NULL : start;
        o.metric = with % 2 ? CONR_COSINE : CONR_EUCLIDEAN;
        memset(other, 0xff, sizeof other);
        assert_ok(conr_kmeans_shard(lonely, features, ROWS, D, &o, one, label, &h));
        assert_ok(conr_kmeans_shard(context, mine, last - first, D, &o, many, other, &all));
        assert_memory_equal(one, many, sizeof one);
        assert_memory_equal(label, other, sizeof label);
        assert_int_equal(h.run, all.run);
        assert_int_equal(h.steps, all.steps);
        assert_true(h.objective == all.objective);
        conr_kmeans_history_free(&h), conr_kmeans_history_free(&all);
    }
    o.clusters = ROWS + 1, o.start = NULL;
    assert_fails(CONR_EINVAL, "more than the 2500 rows",
                 conr_kmeans_shard(context, mine, last - first, D, &o, many, other, NULL));
    free(mine);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(neighbors), cmocka_unit_test(kmeans),
                                       cmocka_unit_test(spread)};
    if (conr_open("cpu", 1, &context) < 0 || conr_open("cpu", 1, &lonely) < 0)
        return fprintf(stderr, "%s\n", conr_error()), 1;
    lonely->ranks = (ranks){.count = 1, .locals = 1};
    conr_set_together(context, 1);
    int failed = cmocka_run_group_tests(tests, draw_features, NULL);
    conr_close(lonely);
    conr_close(context);
    return failed;
}
