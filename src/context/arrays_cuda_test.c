/* arrays_cuda_test.c: the public calls on arrays in GPU memory against the same calls on host
 * arrays; streams of the caller, and capture in a CUDA graph.  Needs a GPU. */
#include "base/rng.h"
#include "base/test_help.h"
#include "context/context.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static conr *cpu, *gpu;

static int open_all(void **state) {
    (void)state;
    assert_ok(conr_open("cpu", 0, &cpu));
    assert_ok(conr_open("cuda", 0, &gpu));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    conr_close(cpu), conr_close(gpu);
    return 0;
}

/* ---- arrays on both sides -------------------------------------------------------------------- */

static void *taken(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

static void *on_gpu(const void *host, size_t bytes) {
    void *p;
    assert_ok(gpu->dev->op.alloc(gpu->dev, bytes, &p));
    if (host) assert_ok(gpu->dev->op.put(gpu->dev, p, host, bytes));
    assert_ok(gpu->dev->op.sync(gpu->dev));
    return p;
}

static void *fetched(const void *there, size_t bytes) {
    void *p = taken(bytes);
    assert_ok(gpu->dev->op.get(gpu->dev, p, there, bytes));
    return p;
}

static void drop(void *there) { gpu->dev->op.free(gpu->dev, there); }

/* Rows around K centers, `noise` wide; labels: [n], or NULL. */
static float *blobs(int n, int d, int K, double noise, int32_t *labels) {
    float *x = taken((size_t)n * d * sizeof *x), *center = taken((size_t)K * d * sizeof *center);
    rng r = rng_at(11, 0, (uint32_t)n, RNG_TEST);
    for (int i = 0; i < K * d; i++) center[i] = (float)(3 * rng_normal(&r));
    for (int i = 0; i < n; i++) {
        int c = (int)rng_below(&r, (uint32_t)K);
        if (labels) labels[i] = c;
        for (int j = 0; j < d; j++)
            x[(size_t)i * d + j] = center[c * d + j] + (float)(noise * rng_normal(&r));
    }
    free(center);
    return x;
}

/* ---- neighbors ------------------------------------------------------------------------------- */

/* The share of the entries of list `a` that are also in list `b` of the same row. */
static double shared(const int32_t *a, const int32_t *b, int n, int k) {
    size_t same = 0;
    for (int i = 0; i < n; i++)
        for (int e = 0; e < k; e++)
            for (int f = 0; f < k; f++) same += a[i * k + e] == b[i * k + f];
    return (double)same / ((double)n * k);
}

/* Both routes on the GPU run the same kernels: the same bits.  The CPU rounds S differently: a few
 * neighbors of nearly the same similarity swap places. */
static void neighbors_equal(int n, int d, const conr_neighbors_options *o) {
    int k = o->k < n ? o->k : n;
    size_t size = (size_t)n * d * sizeof(float), list = (size_t)n * k * sizeof(int32_t);
    float *x = blobs(n, d, 20, 1, NULL), *x_on = on_gpu(x, size);
    int32_t *want = taken(list), *through = taken(list), *ids_on = on_gpu(NULL, list);
    assert_ok(conr_neighbors(cpu, x, n, d, o, want));
    assert_ok(conr_neighbors(gpu, x, n, d, o, through));
    assert_ok(conr_neighbors(gpu, x_on, n, d, o, ids_on));
    int32_t *ids = fetched(ids_on, list);
    float *after = fetched(x_on, size);
    assert_memory_equal(ids, through, list);
    double share = shared(ids, want, n, k);
    print_message("neighbors, n = %d, d = %d: %.5f as on the CPU\n", n, d, share);
    assert_true(share > 0.995);
    for (int i = 0; i < n; i++) assert_int_equal(ids[i * k], i);
    assert_memory_equal(after, x, size); /* the caller's features are only read */
    free(x), free(want), free(through), free(ids), free(after), drop(x_on), drop(ids_on);
}

static void neighbors_of_arrays_there(void **state) {
    (void)state;
    conr_neighbors_options o = conr_neighbors_defaults(), local = o, wide = o;
    local.local = 1;
    wide.k = 30, wide.k1 = 20, wide.k2 = 5;
    neighbors_equal(256, 64, &o);
    neighbors_equal(1000, 256, &o);
    neighbors_equal(1000, 33, &wide);
    neighbors_equal(3000, 64, &o);
    neighbors_equal(9000, 64, &o);
    neighbors_equal(9000, 64, &local);
    neighbors_equal(256, 64, &local);
    neighbors_equal(5, 3, &o);
}

/* With NaN features the lists mean nothing, but their entries are still rows. */
static void nan_stays_in_range(void **state) {
    (void)state;
    enum { N = 40, D = 8 };
    conr_neighbors_options o = conr_neighbors_defaults();
    o.k = o.k1 = o.k2 = N;
    float *x = blobs(N, D, 3, 1, NULL);
    for (int j = 0; j < N * D; j += 3) x[j] = NAN;
    float *x_on = on_gpu(x, N * D * sizeof *x);
    int32_t *ids_on = on_gpu(NULL, N * N * sizeof *ids_on);
    assert_ok(conr_neighbors(gpu, x_on, N, D, &o, ids_on));
    int32_t *ids = fetched(ids_on, N * N * sizeof *ids);
    for (int i = 0; i < N * N; i++) assert_in_range(ids[i], 0, N - 1);
    free(x), free(ids), drop(x_on), drop(ids_on);

    enum { SET = 9000 }; /* this call waits, so it can report them */
    conr_neighbors_options local = conr_neighbors_defaults();
    x = blobs(SET, D, 3, 1, NULL);
    x[(SET / 2) * D] = INFINITY;
    x_on = on_gpu(x, SET * D * sizeof *x), ids_on = on_gpu(NULL, SET * local.k * sizeof *ids_on);
    assert_fails(CONR_ENUMBER, "finite", conr_neighbors(gpu, x_on, SET, D, &local, ids_on));
    local.local = 1;
    assert_fails(CONR_ENUMBER, "finite", conr_neighbors(gpu, x_on, SET, D, &local, ids_on));
    free(x), drop(x_on), drop(ids_on);
}

/* ---- boundary -------------------------------------------------------------------------------- */

static void boundary_equal(int n, int d, int K, conr_metric metric, int normalize) {
    int32_t *labels = taken(n * sizeof *labels);
    float *x = blobs(n, d, K, 2, labels), *want = taken(n * sizeof *want);
    float *centers = blobs(K, d, K, 1, NULL);
    void *x_on = on_gpu(x, (size_t)n * d * sizeof *x), *ratio_on = on_gpu(NULL, n * sizeof *want);
    void *centers_on = on_gpu(centers, (size_t)K * d * sizeof *centers);
    void *labels_on = on_gpu(labels, n * sizeof *labels);
    assert_ok(conr_boundary(cpu, x, n, d, metric, centers, K, labels, normalize, want));
    assert_ok(
        conr_boundary(gpu, x_on, n, d, metric, centers_on, K, labels_on, normalize, ratio_on));
    float *ratio = fetched(ratio_on, n * sizeof *ratio);
    for (int i = 0; i < n; i++)
        if (!(fabsf(ratio[i] - want[i]) < 1e-5f)) /* unit rows may differ in their last digit */
            fail_msg("row %d: %.8g, not %.8g", i, ratio[i], want[i]);
    free(labels), free(x), free(want), free(centers), free(ratio);
    drop(x_on), drop(ratio_on), drop(centers_on), drop(labels_on);
}

static void boundary_of_arrays_there(void **state) {
    (void)state;
    for (int metric = CONR_COSINE; metric <= CONR_EUCLIDEAN; metric++)
        for (int normalize = 0; normalize < 2; normalize++) {
            boundary_equal(300, 32, 10, metric, normalize);
            boundary_equal(2000, 7, 100, metric, normalize);
            boundary_equal(10, 5, 1, metric, normalize);
        }
    /* labels out of range */
    const float x[] = {1, 0, 0, 1};
    const int32_t labels[] = {-1, 7};
    void *x_on = on_gpu(x, sizeof x), *labels_on = on_gpu(labels, sizeof labels);
    void *ratio_on = on_gpu(NULL, 2 * sizeof(float));
    assert_ok(conr_boundary(gpu, x_on, 2, 2, CONR_COSINE, x_on, 2, labels_on, 0, ratio_on));
    float *ratio = fetched(ratio_on, 2 * sizeof *ratio);
    assert_true(isnan(ratio[0]) && isnan(ratio[1]));
    free(ratio), drop(x_on), drop(labels_on), drop(ratio_on);
}

/* steps: the number of different ratios, so few that most tie */
static void filter_equal(int n, int steps, double fraction) {
    float *ratio = taken(n * sizeof *ratio);
    unsigned char *want = taken(n), *here = taken(n);
    rng r = rng_at(12, 0, (uint32_t)n, RNG_TEST);
    for (int i = 0; i < n; i++)
        ratio[i] = 2.5f * (float)rng_below(&r, (uint32_t)steps) / (float)steps - 0.5f;
    void *ratio_on = on_gpu(ratio, n * sizeof *ratio), *kept_on = on_gpu(NULL, n);
    assert_true(conr_boundary_keep(ratio, n, fraction, want, NULL) > 0);
    assert_ok(conr_boundary_filter(gpu, ratio, n, fraction, here));
    assert_ok(conr_boundary_filter(gpu, ratio_on, n, fraction, kept_on));
    unsigned char *kept = fetched(kept_on, n);
    assert_memory_equal(here, want, n);
    assert_memory_equal(kept, want, n);
    free(ratio), free(want), free(here), free(kept), drop(ratio_on), drop(kept_on);
}

static void filter_of_arrays_there(void **state) {
    (void)state;
    const double fractions[] = {0, 0.3, 0.6, 0.8, 1};
    for (int f = 0; f < 5; f++) {
        filter_equal(1, 1, fractions[f]);
        filter_equal(5, 1000, fractions[f]);
        filter_equal(256, 8, fractions[f]);
        filter_equal(300, 1 << 20, fractions[f]);
        filter_equal(20000, 1 << 20, fractions[f]);
        filter_equal(20000, 9, fractions[f]);
    }
}

/* ---- clusters -------------------------------------------------------------------------------- */

static void assign_equal(int n, int d, int K, conr_metric metric) {
    size_t row = (size_t)d * sizeof(float);
    float *x = blobs(n, d, K, 0.5, NULL), *want_away = taken(n * sizeof *want_away);
    int32_t *want = taken(n * sizeof *want);
    /* the centers are rows of x, so some distances are zero; rows of one blob are near ties */
    void *x_on = on_gpu(x, n * row), *centers_on = on_gpu(x, K * row);
    void *labels_on = on_gpu(NULL, n * sizeof *want), *away_on = on_gpu(NULL, n * sizeof(float));
    assert_ok(conr_assign(cpu, x, n, d, metric, x, K, want, want_away));
    assert_ok(conr_assign(gpu, x_on, n, d, metric, centers_on, K, labels_on, away_on));
    int32_t *labels = fetched(labels_on, n * sizeof *labels);
    float *away = fetched(away_on, n * sizeof *away);
    int other = 0;
    for (int i = 0; i < n; i++) {
        other += labels[i] != want[i];
        if (!(fabsf(away[i] - want_away[i]) <= 1e-5f * (1 + want_away[i])))
            fail_msg("row %d: %.8g away, not %.8g", i, away[i], want_away[i]);
    }
    assert_true(other <= n / 1000); /* rounding ties */
    assert_ok(conr_assign(gpu, x_on, n, d, metric, centers_on, K, labels_on, NULL));
    free(labels);
    labels = fetched(labels_on, n * sizeof *labels);
    for (int i = 0; i < K; i++) assert_int_equal(labels[i], want[i]); /* rows that are centers */
    free(x), free(want), free(want_away), free(labels), free(away);
    drop(x_on), drop(centers_on), drop(labels_on), drop(away_on);
}

static void assign_of_arrays_there(void **state) {
    (void)state;
    for (int metric = CONR_COSINE; metric <= CONR_EUCLIDEAN; metric++) {
        assign_equal(1000, 32, 10, metric);
        assign_equal(1, 3, 1, metric);
        assign_equal(3000, 17, 300, metric);
        assign_equal(9001, 2048, 3, metric); /* in two pieces */
    }
}

static void kmeans_equal(int start_at, conr_metric metric) {
    enum { N = 3000, D = 24, K = 6 };
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = K, o.metric = metric;
    float *x = blobs(N, D, K, 0.5, NULL), centers[K * D];
    int32_t labels[N], again[N];
    conr_kmeans_history h, on_cpu;
    void *x_on = on_gpu(x, N * D * sizeof *x), *centers_on = on_gpu(NULL, sizeof centers);
    void *labels_on = on_gpu(NULL, sizeof labels), *again_on = on_gpu(NULL, sizeof labels);
    assert_ok(conr_kmeans(cpu, x, N, D, &o, centers, labels, &on_cpu));
    if (start_at == 1) o.start = x;
    if (start_at == 2) o.start = x_on;
    assert_ok(conr_kmeans(gpu, x_on, N, D, &o, centers_on, labels_on, &h));
    assert_ok(conr_assign(gpu, x_on, N, D, metric, centers_on, K, again_on, NULL));
    assert_true(fabs(h.objective / on_cpu.objective - 1) < 1e-3);
    assert_true(h.steps > 0 && h.run >= 0 && h.run <= o.restarts);
    float *found = fetched(centers_on, sizeof centers);
    int32_t *got = fetched(labels_on, sizeof labels), *got_again = fetched(again_on, sizeof labels);
    assert_memory_equal(got, got_again, sizeof labels);
    assert_ok(conr_assign(cpu, x, N, D, metric, found, K, again, NULL));
    assert_memory_equal(got, again, sizeof labels); /* far from any tie */
    int to[K];
    for (int c = 0; c < K; c++) to[c] = -1;
    for (int i = 0; i < N; i++) { /* the clusters of the CPU, numbered differently */
        if (to[got[i]] < 0) to[got[i]] = labels[i];
        assert_int_equal(to[got[i]], labels[i]);
    }
    assert_ok(conr_kmeans(gpu, x_on, N, D, &o, centers_on, labels_on, NULL));
    conr_kmeans_history_free(&h), conr_kmeans_history_free(&on_cpu);
    free(x), free(found), free(got), free(got_again);
    drop(x_on), drop(centers_on), drop(labels_on), drop(again_on);
}

static void kmeans_of_arrays_there(void **state) {
    (void)state;
    for (int start_at = 0; start_at < 3; start_at++) {
        kmeans_equal(start_at, CONR_COSINE);
        kmeans_equal(start_at, CONR_EUCLIDEAN);
    }
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = 2;
    const float x[] = {1, 0, 0, 1, NAN, 1};
    void *x_on = on_gpu(x, sizeof x), *centers_on = on_gpu(NULL, 4 * sizeof(float));
    void *labels_on = on_gpu(NULL, 3 * sizeof(int32_t));
    assert_fails(CONR_ENUMBER, "finite",
                 conr_kmeans(gpu, x_on, 3, 2, &o, centers_on, labels_on, NULL));
    drop(x_on), drop(centers_on), drop(labels_on);
}

/* Features in other units have the same clusters, however small the unit: powers of two even the
 * same bits.  Squares of such differences vanish in float. */
static void kmeans_of_tiny_arrays(void **state) {
    (void)state;
    enum { N = 2000, D = 16, K = 5 };
    static const double units[] = {1, 0x1p-60, 0x1p-100, 1e-30};
    float *x = blobs(N, D, K, 0.5, NULL), *small = taken(N * D * sizeof *small);
    float *want = NULL, *want_away = NULL;
    int32_t *labels = NULL;
    double objective = 0;
    void *x_on = on_gpu(NULL, N * D * sizeof *x), *centers_on = on_gpu(NULL, K * D * sizeof *x);
    void *labels_on = on_gpu(NULL, N * sizeof *labels), *away_on = on_gpu(NULL, N * sizeof *x);
    for (int u = 0; u < 4; u++)
        for (int start = 0; start < 2; start++) {
            conr_kmeans_options o = conr_kmeans_defaults();
            conr_kmeans_history h;
            double unit = units[u];
            for (int i = 0; i < N * D; i++) small[i] = (float)(unit * x[i]);
            o.clusters = K, o.metric = CONR_EUCLIDEAN, o.start = start ? small : NULL;
            assert_ok(gpu->dev->op.put(gpu->dev, x_on, small, N * D * sizeof *small));
            assert_ok(conr_kmeans(gpu, x_on, N, D, &o, centers_on, labels_on, &h));
            int32_t *got = fetched(labels_on, N * sizeof *got);
            assert_ok(
                conr_assign(gpu, x_on, N, D, CONR_EUCLIDEAN, centers_on, K, labels_on, away_on));
            int32_t *again = fetched(labels_on, N * sizeof *again);
            float *centers = fetched(centers_on, K * D * sizeof *centers);
            float *away = fetched(away_on, N * sizeof *away);
            assert_memory_equal(got, again, N * sizeof *got);
            if (u == 0 && start == 0) {
                want = centers, want_away = away, labels = got, objective = h.objective;
            } else {
                if (start == 0) assert_memory_equal(got, labels, N * sizeof *got);
                assert_true(fabs(h.objective / (unit * unit) / objective - 1) < 1e-3);
                for (int i = 0; i < K * D && start == 0; i++)
                    assert_true(fabs(centers[i] / unit - want[i]) <= 1e-5 * (1 + fabsf(want[i])));
                for (int i = 0; i < N && start == 0; i++)
                    assert_true(fabs(away[i] / unit - want_away[i]) <= 1e-5 * want_away[i]);
                for (int i = 0; i < K * D && u < 3 && start == 0; i++)
                    assert_true(centers[i] / unit == want[i]);
                free(centers), free(away), free(got);
            }
            free(again), conr_kmeans_history_free(&h);
        }
    free(x), free(small), free(want), free(want_away), free(labels);
    drop(x_on), drop(centers_on), drop(labels_on), drop(away_on);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void mixed_arrays_are_refused(void **state) {
    (void)state;
    conr_neighbors_options o = conr_neighbors_defaults();
    conr_kmeans_options km = conr_kmeans_defaults();
    km.clusters = 2;
    float *x = blobs(20, 4, 2, 1, NULL), *x_on = on_gpu(x, 80 * sizeof *x), out[20];
    int32_t ids[200], *ids_on = on_gpu(NULL, sizeof ids);
    unsigned char kept[20];
    assert_fails(CONR_EINVAL, "same memory", conr_neighbors(gpu, x_on, 20, 4, &o, ids));
    assert_fails(CONR_EINVAL, "same memory", conr_neighbors(gpu, x, 20, 4, &o, ids_on));
    assert_fails(CONR_EINVAL, "same memory",
                 conr_boundary(gpu, x_on, 20, 4, CONR_COSINE, x, 2, ids_on, 0, x_on));
    assert_fails(CONR_EINVAL, "same memory", conr_boundary_filter(gpu, x_on, 20, 0.5, kept));
    assert_fails(CONR_EINVAL, "same memory",
                 conr_assign(gpu, x_on, 20, 4, CONR_COSINE, x_on, 2, ids_on, out));
    assert_fails(CONR_EINVAL, "same memory", conr_kmeans(gpu, x_on, 20, 4, &km, x_on, ids, NULL));
    assert_fails(CONR_EINVAL, "at least one row", conr_neighbors(gpu, x_on, 0, 4, &o, ids_on));
    assert_fails(CONR_EINVAL, "fraction", conr_boundary_filter(gpu, x_on, 20, 1.5, (void *)ids_on));
    assert_fails(CONR_EINVAL, "stream", conr_set_stream(cpu, NULL));
    free(x), drop(x_on), drop(ids_on);
}

/* ---- streams and graphs ---------------------------------------------------------------------- */

/* A batch as in a training step: neighbors, boundary, filter, on the current stream. */
typedef struct batch {
    int n, d, K;
    float *x, *centers, *ratio; /* on the GPU, like the others */
    int32_t *labels, *ids;
    unsigned char *kept;
} batch;

enum { N = 512, D = 64, CLUSTERS = 8, LIST = 10 };

/* which: every batch has different features, so that a mix-up of results shows. */
static float *batch_make(int which, batch *b) {
    int32_t labels[N];
    float *x = blobs(N, D, CLUSTERS, 1, labels);
    for (int i = 0; i < N * D; i++) x[i] += (float)(which * (i % (5 + which)));
    *b = (batch){N, D, CLUSTERS, .x = on_gpu(x, N * D * sizeof *x)};
    b->centers = on_gpu(x, CLUSTERS * D * sizeof *x), b->labels = on_gpu(labels, sizeof labels);
    b->ratio = on_gpu(NULL, N * sizeof(float)), b->kept = on_gpu(NULL, N);
    b->ids = on_gpu(NULL, N * LIST * sizeof(int32_t));
    return x;
}

static void batch_drop(batch *b) {
    drop(b->x), drop(b->centers), drop(b->ratio), drop(b->labels), drop(b->ids), drop(b->kept);
}

static int batch_run(conr *c, const batch *b) {
    conr_neighbors_options o = conr_neighbors_defaults();
    int rc = conr_neighbors(c, b->x, b->n, b->d, &o, b->ids);
    if (rc == 0)
        rc = conr_boundary(c, b->x, b->n, b->d, CONR_COSINE, b->centers, b->K, b->labels, 1,
                           b->ratio);
    return rc < 0 ? rc : conr_boundary_filter(c, b->ratio, b->n, 0.7, b->kept);
}

/* Results of the batch, [N*LIST] ids and then [N] kept, once the whole GPU is idle. */
static int32_t *batch_results(const batch *b) {
    assert_int_equal(cudaDeviceSynchronize(), 0);
    int32_t *all = taken(N * (LIST + 1) * sizeof *all),
            *ids = fetched(b->ids, N * LIST * sizeof *ids);
    unsigned char *kept = fetched(b->kept, N);
    memcpy(all, ids, N * LIST * sizeof *ids);
    for (int i = 0; i < N; i++) all[N * LIST + i] = kept[i];
    free(ids), free(kept);
    return all;
}

/* The batch on the device's own stream, then on others, one right after the other without waiting,
 * so that only the events of conr_set_stream keep the working memory in order. */
static void streams_are_ordered(void **state) {
    (void)state;
    cudaStream_t stream[3] = {NULL, NULL, cudaStreamLegacy};
    batch b[4];
    float *x[4];
    int32_t *want[4];
    for (int s = 0; s < 2; s++)
        assert_int_equal(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking), 0);
    for (int i = 0; i < 4; i++) {
        x[i] = batch_make(i, &b[i]);
        assert_ok(batch_run(gpu, &b[i]));
        want[i] = batch_results(&b[i]);
    }
    assert_memory_not_equal(want[0], want[1], N * LIST * sizeof **want);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) {
            assert_ok(conr_set_stream(gpu, i < 3 ? stream[i] : NULL));
            assert_ok(batch_run(gpu, &b[i]));
        }
        for (int i = 0; i < 4; i++) {
            int32_t *got = batch_results(&b[i]);
            assert_memory_equal(got, want[i], N * (LIST + 1) * sizeof *got);
            free(got);
        }
    }
    assert_ok(conr_set_stream(gpu, stream[0]));
    assert_ok(conr_set_stream(gpu, stream[0]));
    assert_ok(conr_set_stream(gpu, NULL));
    for (int s = 0; s < 2; s++) assert_int_equal(cudaStreamDestroy(stream[s]), 0);
    for (int i = 0; i < 4; i++) free(x[i]), free(want[i]), batch_drop(&b[i]);
}

static cudaGraphExec_t captured(conr *c, cudaStream_t stream, const batch *b) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    int rc = conr_set_stream(c, stream);
    if (rc == 0) rc = batch_run(c, b);
    if (rc == 0) rc = conr_set_stream(c, NULL);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    assert_ok(rc);
    assert_int_equal(cudaGraphInstantiate(&run, graph, 0), 0);
    assert_int_equal(cudaGraphDestroy(graph), 0);
    return run;
}

/* A graph of the batch, replayed on other features, gives the result of a plain call, and plain
 * calls on another stream in the meantime do not disturb it. */
static void a_graph_has_memory_of_its_own(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph;
    batch b, other;
    conr *cold;
    float *x = batch_make(0, &b), *x_other = batch_make(1, &other);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);

    /* a context without working memory reports that it needs some */
    assert_ok(conr_open("cuda", 0, &cold));
    assert_int_equal(cudaDeviceSynchronize(), 0);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    int rc = conr_set_stream(cold, stream);
    assert_int_equal(rc, 0);
    assert_fails(CONR_EINVAL, "once before", batch_run(cold, &b));
    assert_ok(conr_set_stream(cold, NULL));
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    cudaGraphDestroy(graph);
    conr_close(cold);

    assert_ok(batch_run(gpu, &b));
    assert_int_equal(cudaDeviceSynchronize(), 0);
    cudaGraphExec_t run = captured(gpu, stream, &b), second = captured(gpu, stream, &other);
    for (int i = 0; i < N * D; i++) x[i] = x[i] * 0.5f + (float)(i % 7) - 3;
    assert_ok(gpu->dev->op.put(gpu->dev, b.x, x, N * D * sizeof *x));
    assert_ok(batch_run(gpu, &b));
    int32_t *want = batch_results(&b);
    assert_ok(batch_run(gpu, &other));
    int32_t *want_other = batch_results(&other);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(cudaMemsetAsync(b.ids, 0, N * LIST * sizeof(int32_t), stream), 0);
        assert_int_equal(cudaGraphLaunch(run, stream), 0);
        assert_ok(batch_run(gpu, &other)); /* in the meantime */
        int32_t *got = batch_results(&b), *got_other = batch_results(&other);
        assert_memory_equal(got, want, N * (LIST + 1) * sizeof *got);
        assert_memory_equal(got_other, want_other, N * (LIST + 1) * sizeof *got);
        free(got), free(got_other);
    }
    assert_int_equal(cudaGraphLaunch(second, stream), 0);
    int32_t *got = batch_results(&other);
    assert_memory_equal(got, want_other, N * (LIST + 1) * sizeof *got);
    cudaGraphExecDestroy(run), cudaGraphExecDestroy(second), cudaStreamDestroy(stream);
    free(x), free(x_other), free(want), free(want_other), free(got);
    batch_drop(&b), batch_drop(&other);
}

/* arrays_cuda_test [PATTERN]: only the matching tests */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbors_of_arrays_there),     cmocka_unit_test(nan_stays_in_range),
        cmocka_unit_test(boundary_of_arrays_there),      cmocka_unit_test(filter_of_arrays_there),
        cmocka_unit_test(assign_of_arrays_there),        cmocka_unit_test(kmeans_of_arrays_there),
        cmocka_unit_test(mixed_arrays_are_refused),      cmocka_unit_test(streams_are_ordered),
        cmocka_unit_test(a_graph_has_memory_of_its_own), cmocka_unit_test(kmeans_of_tiny_arrays),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
