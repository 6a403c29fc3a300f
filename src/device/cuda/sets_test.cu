/* sets_test.cu: search and k-means over whole sets on the GPU, and how long they take.  Needs a
 * GPU: make test-cuda.
 *
 *     sets_test         everything
 *     sets_test quick   no timings and no large sets, for tools that watch every access */
#include "device/cuda/bare.cuh"

#include <time.h>

static double seconds_of(double before) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - before;
}

/* Lists against top_k of the reference; if ids differ, the similarities must not. */
static void check_search() {
    static const int shapes[][3] = {{1, 3, 1}, {50, 8, 50}, {1500, 32, 10}, {3000, 16, 40}};
    for (int c = 0; c < 4; c++) {
        int n = shapes[c][0], d = shapes[c][1], k = shapes[c][2];
        graph_case g = {n, d, c == 3 ? 2 : 1, 0, 0, 0, 0, 0, 0, 0};
        float *f = graph_features(&g), *s = (float *)malloc((size_t)n * n * sizeof *s);
        float *values = (float *)malloc((size_t)n * k * sizeof *values);
        int32_t *ids = (int32_t *)malloc((size_t)n * k * sizeof *ids);
        float *f_on = on_gpu(f, (size_t)n * d), *values_on = on_gpu((float *)NULL, (size_t)n * k);
        int32_t *ids_on = on_gpu((int32_t *)NULL, (size_t)n * k);
        CHECK(chain_gemm(NULL, 0, 0, n, n, d, 1, f, d, f, d, 0, s, n));
        CHECK(ref.op.top_k(&ref, s, n, n, n, 0, k, ids, values));
        CHECK(gpu.op.search(&gpu, f_on, n, d, 0, n, k, ids_on, values_on));
        int32_t *got = on_host(ids_on, (size_t)n * k);
        float *scores = on_host(values_on, (size_t)n * k);
        int bad = 0;
        for (int i = 0; i < n; i++)
            for (int e = 0; e < k; e++) {
                size_t at = (size_t)i * k + e;
                bad += e == 0 ? got[at] != i || scores[at] != 1
                              : got[at] < 0 || got[at] >= n ||
                                    fabs(s[(size_t)i * n + got[at]] - values[at]) > 1e-6 ||
                                    fabs(scores[at] - values[at]) > 1e-6;
                for (int x = 0; x < e; x++) bad += got[at] == got[(size_t)i * k + x];
            }
        expect(bad == 0, "search");
        free(f), free(s), free(values), free(ids), free(got), free(scores);
        cudaFree(f_on), cudaFree(values_on), cudaFree(ids_on);
    }
    if (quick) return;
    int n = 60000, d = 256, k = 10;
    float *f = random_floats((size_t)n * d, 9), *f_on = on_gpu(f, (size_t)n * d);
    float *norm = on_gpu((float *)NULL, n), *values = on_gpu((float *)NULL, (size_t)n * k);
    int32_t *ids = on_gpu((int32_t *)NULL, (size_t)n * k);
    CHECK(gpu.op.rows_normalize(&gpu, f_on, n, d, f_on, norm));
    for (int i = 0; i < 3; i++) {
        double before = seconds_of(0);
        CHECK(gpu.op.search(&gpu, f_on, n, d, 0, n, k, ids, values));
        if (i == 2) printf("search %dx%d k %d: %.1f ms\n", n, d, k, 1000 * seconds_of(before));
    }
    free(f), cudaFree(f_on), cudaFree(norm), cudaFree(values), cudaFree(ids);
}

typedef struct kmeans_case {
    int n, d, K, restarts, planted, metric, start;
    int distinct; /* distinct rows; 0: all */
} kmeans_case;

static void check_kmeans_case(const kmeans_case *c) {
    int n = c->n, d = c->d, K = c->K;
    float *f = random_floats((size_t)n * d, 31), *center = random_floats((size_t)K * d, 32);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) {
            float *x = &f[(size_t)i * d + j];
            if (c->planted) *x = 3 + center[(size_t)(i % K) * d + j] + 0.7f * *x;
            if (c->distinct) *x = f[(size_t)(i % c->distinct) * d + j];
        }
    float *f_on = on_gpu(f, (size_t)n * d), *centroids = on_gpu((float *)NULL, (size_t)K * d);
    int32_t *labels = on_gpu((int32_t *)NULL, n);
    conr_kmeans_options o = {};
    o.clusters = K, o.metric = c->metric ? CONR_EUCLIDEAN : CONR_COSINE, o.restarts = c->restarts;
    o.iterations = 300, o.tolerance = 1e-4, o.seed = 1;
    for (int j = 0; j < K * d; j++) center[j] += 3;
    if (c->start) o.start = center;
    conr_kmeans_history h = {};
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        double before = seconds_of(0);
        CHECK(gpu.op.kmeans(&gpu, f_on, n, d, &o, 0, centroids, labels, NULL));
        double took = seconds_of(before);
        best = took < best ? took : best;
    }
    float *first = on_host(centroids, (size_t)K * d);
    CHECK(gpu.op.kmeans(&gpu, f_on, n, d, &o, 0, centroids, labels, &h));
    float *means = on_host(centroids, (size_t)K * d);
    int32_t *got = on_host(labels, n);
    expect(!memcmp(first, means, (size_t)K * d * sizeof *means),
           "k-means gives the same bits again");

    /* labels are the nearest centroids, the objective is the sum of their distances */
    double objective = 0;
    long far = 0, unlike = 0, longest = 0;
    for (int i = 0; i < n; i++) {
        const float *x = f + (size_t)i * d;
        double xx = 0, least = 1e300, own = 0;
        for (int j = 0; j < d; j++) xx += (double)x[j] * x[j];
        for (int k = 0; k < K; k++) {
            const float *w = means + (size_t)k * d;
            double sum = 0, ww = 0, gap = 0;
            for (int j = 0; j < d; j++) {
                sum += (double)x[j] * w[j], ww += (double)w[j] * w[j];
                gap += ((double)x[j] - w[j]) * ((double)x[j] - w[j]);
            }
            double away = c->metric ? gap : ww * xx > 0 ? 1 - sum / sqrt(xx * ww) : 1;
            least = away < least ? away : least;
            if (k == got[i]) own = away;
        }
        objective += own;
        far += got[i] < 0 || got[i] >= K || own > least + 1e-5 * (c->metric ? 1 + xx : 1);
        unlike += c->planted && got[i] != got[i % K];
    }
    for (int i = 1; i < h.steps; i++) {
        longest = h.step[i].iteration > longest ? h.step[i].iteration : longest;
        if (h.step[i].run == h.step[i - 1].run && !h.step[i].refilled && !h.step[i - 1].refilled)
            expect(h.step[i].objective <= h.step[i - 1].objective * (1 + 1e-6) + 1e-9,
                   "k-means goes down");
    }
    printf("k-means n %d d %d K %d, %d runs, %s%s: %.2f ms, %ld iterations at most, objective %.6g "
           "(%.6g), run %d, %ld far, %ld unlike\n",
           n, d, K, c->restarts, c->metric ? "euclidean" : "cosine", c->start ? " + start" : "",
           1000 * best, longest, h.objective, objective, h.run, far, unlike);
    expect(far == 0 && unlike == 0, "k-means labels");
    expect(fabs(h.objective - objective) <= 1e-4 * objective + 1e-3, "k-means objective");
    free(f), free(center), free(first), free(means), free(got), free(h.step);
    cudaFree(f_on), cudaFree(centroids), cudaFree(labels);
}

static void check_kmeans() {
    int n = quick ? 600 : 60000, d = 256, K = 100;
    float *x = on_gpu((float *)NULL, (size_t)n * d), *w = on_gpu((float *)NULL, (size_t)K * d);
    float *dots = on_gpu((float *)NULL, (size_t)n * K);
    CHECK(cudaMemset(x, 0x3e, (size_t)n * d * 4));
    CHECK(cudaMemset(w, 0x3e, (size_t)K * d * 4));
    printf("the product of %d rows and %d centers: %.1f us\n", n, K,
           time_us([&] { CHECK(gpu.op.gemm(&gpu, 0, 1, K, n, d, 1, w, d, x, d, 0, dots, n)); }));
    cudaFree(x), cudaFree(w), cudaFree(dots);
    static const kmeans_case list[] = {
        {60000, 256, 10, 10, 1, 0, 0, 0}, {60000, 256, 10, 10, 0, 0, 1, 0},
        {20000, 64, 10, 10, 1, 1, 1, 0},  {3000, 17, 40, 3, 0, 1, 0, 0},
        {500, 5, 20, 4, 0, 0, 0, 7},      {500, 5, 20, 4, 0, 1, 0, 7},
        {7, 3, 7, 2, 0, 1, 0, 0},         {1, 2, 1, 1, 0, 0, 0, 0},
        {5000, 300, 500, 2, 0, 0, 0, 0},  {300, 40, 3, 0, 1, 0, 1, 0},
        {500, 32, 20, 4, 0, 0, 0, 7},     {500, 256, 20, 4, 0, 0, 0, 7},
        {1000, 48, 56, 3, 0, 1, 1, 0},    {777, 16, 1, 3, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!quick || list[i].n <= 5000) check_kmeans_case(&list[i]);
}

int main(int argc, char **argv) {
    quick = argc > 1 && !strcmp(argv[1], "quick");
    open_devices();
    check_search();
    check_kmeans();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
