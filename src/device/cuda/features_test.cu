/* features_test.cu: rows, choices, losses and neighborhoods on the GPU against the reference
 * and the CPU, and how long they take.  Needs a GPU: make test-cuda.
 *
 *     features_test         everything
 *     features_test quick   no timings, for tools that watch every access */
#include "device/cuda/bare.cuh"

extern "C" {
#include "device/cases.h"
#include "neighbors/neighbors.h"
}

/* ---- the list of cases ----------------------------------------------------------------------- */

static bool is_ours(case_op op) {
    switch (op) {
    case CASE_ROWS:
    case CASE_ROWS_BACK:
    case CASE_TOP_K:
    case CASE_ROWS_TAKE:
    case CASE_RING_PUT:
    case CASE_PULL:
    case CASE_CONTRAST:
    case CASE_PROTOTYPES:
    case CASE_PULL_ALIKE:
    case CASE_CONFIDENT:
    case CASE_BOUNDARY: return true;
    default: return false;
    }
}

static void check_case(const op_case *c) {
    trial *want, *got;
    double error, bound = case_bound(c, c->check_n, ACT_F32);
    char shape[96];
    case_shape_text(c, c->check_n, shape, sizeof shape);
    CHECK(trial_new(&ref, c, c->check_n, &want));
    CHECK(trial_new(&gpu, c, c->check_n, &got));
    CHECK(trial_run(want));
    CHECK(trial_run(got));
    CHECK(gpu.op.sync(&gpu));
    CHECK(trial_compare(got, want, &error));
    if (!(error <= bound)) {
        printf("WRONG %s %s: error %.3g, bound %.3g\n", case_name(c), shape, error, bound);
        wrong++;
    }
    trial_free(want);
    trial_free(got);
    int n = quick ? c->check_n : c->time_n;
    CHECK(trial_new(&gpu, c, n, &got));
    double us = time_us([&] { CHECK(trial_run(got)); });
    case_shape_text(c, n, shape, sizeof shape);
    printf("%-20s %-40s %8.1f us  error %.1e\n", case_name(c), shape, us, error);
    trial_free(got);
}

static void check_cases() {
    static const op_case more[] = {
        {CASE_ROWS, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0},
        {CASE_ROWS, 3, 60000, 1, 1, 1000, 1000, 0, 0, 1, 0},
        {CASE_TOP_K, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1},
        {CASE_TOP_K, 200, 200, 1, 1, 200, 200, 0, 0, 1, 1},
        {CASE_TOP_K, 40, 256, 1, 1, 5000, 33, 0, 0, 1, 1},
        {CASE_TOP_K, 40, 40, 1, 1, 1025, 1025, 0, 0, 1, 0},
        {CASE_TOP_K, 64, 256, 1, 1, 256, 10, 0, 0, 1, 1},
        {CASE_PULL, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1},
        {CASE_PULL, 700, 1024, 1, 1, 513, 40, 0, 0, 1, 3},
        {CASE_CONTRAST, 3, 3, 1, 1, 1, 2, 300, 0, 1, 1},
        {CASE_BOUNDARY, 1, 1, 1, 1, 4, 2, 0, 0, 1, 0},
        {CASE_BOUNDARY, 5000, 5000, 1, 1, 8, 4, 0, 0, 1, 1},
        {CASE_BOUNDARY, 300, 300, 1, 1, 8, 200, 0, 0, 1, 2},
    };
    for (int i = 0; i < case_count; i++)
        if (is_ours(case_list[i].op)) check_case(&case_list[i]);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) check_case(&more[i]);
}

/* Many equal values, zeros of both signs: the ids must agree as well. */
static void check_ties() {
    static const int shapes[][3] = {{50, 60, 60}, {50, 1000, 37}, {20, 3000, 50}};
    for (int c = 0; c < 3; c++)
        for (int self = -1; self < 2; self++) {
            int n = shapes[c][0], m = shapes[c][1], k = shapes[c][2];
            float *s = random_floats((size_t)n * m, 5);
            for (int i = 0; i < n * m; i++) s[i] = roundf(s[i]) * (i % 3 ? 1 : -1);
            int32_t *want = (int32_t *)malloc((size_t)n * k * sizeof *want);
            float *s_on = on_gpu(s, (size_t)n * m);
            int32_t *ids = on_gpu((int32_t *)NULL, (size_t)n * k);
            CHECK(ref.op.top_k(&ref, s, n, m, m, self, k, want, NULL));
            CHECK(gpu.op.top_k(&gpu, s_on, n, m, m, self, k, ids, NULL));
            int32_t *got = on_host(ids, (size_t)n * k);
            expect(!memcmp(got, want, (size_t)n * k * sizeof *want), "top_k with ties");
            free(s), free(want), free(got), cudaFree(s_on), cudaFree(ids);
        }
}

/* Rows of odd sizes, and rows of zeros. */
static void check_rows() {
    unsigned char from[7 * 13], to[4 * 13];
    int32_t ids[4] = {6, 0, 6, 3};
    for (int i = 0; i < 7 * 13; i++) from[i] = (unsigned char)(i * 7);
    unsigned char *from_on = on_gpu(from, sizeof from), *to_on = on_gpu(to, sizeof to);
    int32_t *ids_on = on_gpu(ids, 4);
    for (int width = 1; width <= 13; width++) {
        CHECK(ref.op.rows_take(&ref, from, width, ids, 4, to));
        CHECK(gpu.op.rows_take(&gpu, from_on, width, ids_on, 4, to_on));
        unsigned char *got = on_host(to_on, sizeof to);
        expect(!memcmp(got, to, 4 * width), "rows_take of odd widths");
        free(got);
    }
    cudaFree(from_on), cudaFree(to_on), cudaFree(ids_on);

    float zeros[3 * 5] = {0}, *x = on_gpu(zeros, 15), *out = on_gpu((float *)NULL, 15);
    float *norm = on_gpu((float *)NULL, 3);
    CHECK(gpu.op.rows_normalize(&gpu, x, 3, 5, out, norm));
    CHECK(gpu.op.rows_normalize_back(&gpu, out, norm, x, 3, 5, x));
    float *got = on_host(out, 15), *back = on_host(x, 15);
    for (int i = 0; i < 15; i++) expect(got[i] == 0 && back[i] == 0, "zero rows");
    free(got), free(back), cudaFree(x), cudaFree(out), cudaFree(norm);
}

/* ---- neighborhoods --------------------------------------------------------------------------- */

static void check_neighbors() {
    static const graph_case list[] = {
        {256, 256, 0, 10, 10, 2, 2, 2, 1, 0},  {256, 256, 1, 10, 10, 2, 2, 2, 1, 0},
        {256, 64, 2, 10, 10, 2, 2, 2, 1, 0},   {256, 256, 1, 10, 10, 2, 2, 2, 0, 0},
        {256, 256, 1, 20, 30, 10, 2, 2, 1, 0}, {200, 48, 1, 10, 10, 3, 3, 1.5, 1, 0},
        {200, 48, 1, 10, 10, 3, 1, 2, 1, 0},   {200, 48, 1, 10, 10, 3, 0, 2, 1, 0},
        {200, 48, 2, 10, 1, 1, 2, 0, 1, 0},    {1, 16, 0, 1, 1, 1, 2, 2, 1, 0},
        {2, 16, 0, 2, 2, 2, 2, 2, 1, 0},       {33, 7, 2, 33, 33, 33, 2, 2, 1, 0},
        {300, 32, 1, 100, 40, 50, 2, 2, 1, 0}, {512, 256, 1, 10, 10, 2, 2, 2, 1, 0},
        {1024, 128, 1, 10, 10, 2, 2, 2, 1, 0}, {1100, 40, 1, 10, 10, 2, 2, 2, 1, 0},
        {1100, 40, 2, 25, 12, 40, 2, 2, 0, 0}, {256, 256, 1, 10, 10, 2, 2, 2, 1, 1},
        {1100, 40, 2, 10, 10, 2, 2, 2, 1, 1},
    };
    device plain = ref;
    plain.op.gemm = chain_gemm;
    for (size_t x = 0; x < sizeof list / sizeof *list; x++) {
        const graph_case *c = &list[x];
        conr_neighbors_options o = {c->k,     c->k1,           c->k2,   c->layers,
                                    c->alpha, c->resymmetrize, c->local};
        size_t count = (size_t)c->n * c->k;
        float *f = graph_features(c), *f_on = on_gpu(f, (size_t)c->n * c->d);
        int32_t *want = (int32_t *)malloc(count * sizeof *want);
        int32_t *ids = on_gpu((int32_t *)NULL, count);
        char *work = on_gpu((char *)NULL, gpu.op.neighbors_bytes(&gpu, c->n, c->d, &o));
        CHECK(neighbors_dense(&plain, f, c->n, c->d, &o, want));
        CHECK(gpu.op.neighbors(&gpu, f_on, c->n, c->d, &o, ids, work));
        int32_t *got = on_host(ids, count);
        size_t differ = 0;
        for (size_t i = 0; i < count; i++) differ += got[i] != want[i];
        double us =
            time_us([&] { CHECK(gpu.op.neighbors(&gpu, f_on, c->n, c->d, &o, ids, work)); });
        int32_t *again = on_host(ids, count);
        expect(!memcmp(got, again, count * sizeof *got), "neighbors give the same bits again");
        printf("neighbors n %d d %d kind %d k %d k1 %d k2 %d layers %d%s: %8.1f us, %zu of %zu "
               "differ\n",
               c->n, c->d, c->kind, c->k, c->k1, c->k2, c->layers, c->local ? " local" : "", us,
               differ, count);
        expect(differ == 0, "neighbors");
        free(f), free(want), free(got), free(again);
        cudaFree(f_on), cudaFree(ids), cudaFree(work);
    }
}

/* ---- a stage-2 half step --------------------------------------------------------------------- */

static void time_step() {
    enum { N = 256, D = 256, K = 10 };
    graph_case c = {N, D, 1, 10, 10, 2, 2, 2, 1, 0};
    conr_neighbors_options o = {10, 10, 2, 2, 2, 1, 0};
    float *f = graph_features(&c), *f_on = on_gpu(f, (size_t)N * D), *q = on_gpu(f, (size_t)N * D);
    float *centroids = on_gpu(f, (size_t)K * D), *ratio = on_gpu((float *)NULL, N);
    float *weight = on_gpu((float *)NULL, N), *loss = on_gpu((float *)NULL, 1);
    float *dq = on_gpu((float *)NULL, (size_t)N * D);
    int32_t numbers[N], *ids = on_gpu((int32_t *)NULL, (size_t)N * o.k);
    for (int i = 0; i < N; i++) numbers[i] = i % K;
    int32_t *label = on_gpu(numbers, N), *images = on_gpu(numbers, N);
    step_values at = {};
    at.keep = 204;
    step_values *at_on = on_gpu(&at, 1);
    char *work = on_gpu((char *)NULL, gpu.op.neighbors_bytes(&gpu, N, D, &o));
    double us = time_us([&] {
        for (int half = 0; half < 2; half++) {
            CHECK(gpu.op.neighbors(&gpu, f_on, N, D, &o, ids, work));
            CHECK(gpu.op.boundary(&gpu, at_on, f_on, N, D, images, label, centroids, K, false,
                                  ratio, weight));
            CHECK(gpu.op.pull(&gpu, q, f_on, N, D, ids, o.k, weight, 1, loss, dq));
        }
    });
    printf("neighborhoods, filter and loss of both halves, n %d d %d: %.1f us\n", N, D, us);
    free(f);
}

int main(int argc, char **argv) {
    quick = argc > 1 && !strcmp(argv[1], "quick");
    open_devices();
    check_cases();
    check_ties();
    check_rows();
    check_neighbors();
    time_step();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
