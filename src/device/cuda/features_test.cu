/* features_test.cu: rows, choices, losses, neighborhoods and views on the GPU against the reference
 * and the CPU, and how long they take.  Needs a GPU: make test-cuda.
 *
 * The device is a bare one, made here: a stream, memory and a plain matrix product.  So these
 * entries are checked by themselves, whatever the rest of the table does. */
extern "C" {
#include "base/rng.h"
#include "device/cases.h"
#include "device/cuda/cuda.h"
#include "neighbors/neighbors.h"
#include "views/job.h"
}
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int wrong;
static bool quick; /* no timings and no large sets, for tools that watch every access */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int e_ = (int)(call);                                                                      \
        if (e_) {                                                                                  \
            printf("%s:%d: %s gives %d (%s)\n", __FILE__, __LINE__, #call, e_,                     \
                   cudaGetErrorString(cudaGetLastError()));                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void expect(bool right, const char *what) {
    if (right) return;
    printf("WRONG %s\n", what);
    wrong++;
}

/* ---- the bare device ------------------------------------------------------------------------- */

static cudaStream_t stream;

extern "C" void *cuda_stream(device *dev) {
    (void)dev;
    return stream;
}

extern "C" int cuda_check(int error, const char *what) {
    if (error) printf("%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    return error ? -1 : 0;
}

static int bare_alloc(device *, size_t bytes, void **out) {
    int rc = (int)cudaMalloc(out, bytes ? bytes : 1);
    return rc ? -rc : -(int)cudaMemset(*out, 0, bytes);
}
static void bare_free(device *, void *p) { cudaFree(p); }
static int bare_put(device *, void *to, const void *from, size_t bytes) {
    return -(int)cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}
static int bare_get(device *, void *to, const void *from, size_t bytes) {
    cudaStreamSynchronize(stream);
    return -(int)cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
static int bare_copy(device *, void *to, const void *from, size_t bytes) {
    return -(int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
static int bare_sync(device *) { return -(int)cudaStreamSynchronize(stream); }

static __global__ void product(bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                               int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    if (i >= m || j >= n) return;
    float sum = 0;
    for (int l = 0; l < k; l++)
        sum += (ta ? a[(size_t)l * lda + i] : a[(size_t)i * lda + l]) *
               (tb ? b[(size_t)j * ldb + l] : b[(size_t)l * ldb + j]);
    float *to = c + (size_t)i * ldc + j;
    *to = alpha * sum + (beta != 0 ? beta * *to : 0);
}

/* cuBLAS where it is found at run time, as it is what the table has: else the timings of k-means
 * and of the search say nothing. */
typedef int blas_gemm(void *, int, int, int, int, int, const float *, const float *, int,
                      const float *, int, const float *, float *, int);
static blas_gemm *blas;
static void *blas_handle;

static void find_blas() {
    static const char *const names[] = {"libcublas.so", "libcublas.so.13", "libcublas.so.12"};
    void *library = NULL;
    for (int i = 0; !library && i < 3; i++) library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (!library) return;
    int (*create)(void **) = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    int (*set)(void *, cudaStream_t) =
        (int (*)(void *, cudaStream_t))dlsym(library, "cublasSetStream_v2");
    if (create && set && create(&blas_handle) == 0 && set(blas_handle, stream) == 0)
        blas = (blas_gemm *)dlsym(library, "cublasSgemm_v2");
    printf("matrix products by %s\n", blas ? "cuBLAS" : "a plain kernel");
}

static int bare_gemm(device *, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                     int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    if (blas) /* by columns: C' = op(B)' op(A)' */
        return -blas(blas_handle, tb, ta, n, m, k, &alpha, b, ldb, a, lda, &beta, c, ldc);
    dim3 grid((n + 15) / 16, (m + 15) / 16), block(16, 16);
    product<<<grid, block, 0, stream>>>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return -(int)cudaGetLastError();
}

static device gpu, ref;

static void open_devices() {
    CHECK(cudaStreamCreate(&stream));
    find_blas();
    gpu.name = "cuda", gpu.type = ACT_F32, gpu.act_size = sizeof(float), gpu.threads = 1;
    gpu.op.alloc = bare_alloc, gpu.op.free = bare_free, gpu.op.put = bare_put;
    gpu.op.get = bare_get, gpu.op.copy = bare_copy, gpu.op.sync = bare_sync;
    gpu.op.gemm = bare_gemm;
    cuda_feature_ops(&gpu.op);
    ref.name = "ref", ref.type = ACT_F32, ref.act_size = sizeof(float), ref.threads = 1;
    device_ref_ops(&ref.op);
}

template <typename T> static T *on_gpu(const T *host, size_t count) {
    T *p;
    CHECK(cudaMalloc((void **)&p, count * sizeof(T) + 256));
    if (host)
        CHECK(cudaMemcpy(p, host, count * sizeof(T), cudaMemcpyHostToDevice));
    else
        CHECK(cudaMemset(p, 0xff, count * sizeof(T)));
    return p;
}

template <typename T> static T *on_host(const T *p, size_t count) {
    T *host = (T *)malloc(count * sizeof(T) + 16);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host, p, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

static float *random_floats(size_t count, uint32_t stream_id) {
    float *x = (float *)malloc(count * sizeof *x + 16);
    rng r = rng_at(77, 0, stream_id, RNG_TEST);
    for (size_t i = 0; i < count; i++) x[i] = (float)rng_normal(&r);
    return x;
}

/* Microseconds of one run, from replays of a recorded graph: so it can be recorded, too. */
template <typename F> static double time_us(F body) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t start, stop;
    float best = 1e30f;
    body(); /* the first loads code */
    CHECK(cudaStreamSynchronize(stream));
    if (quick) return 0;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; i++) body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(run, stream));
    for (int i = 0; i < 20; i++) {
        float ms;
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(run, stream));
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        best = ms < best ? ms : best;
    }
    CHECK(cudaGraphExecDestroy(run));
    CHECK(cudaGraphDestroy(graph));
    return best * 1000.0 / 10;
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

/* Many equal numbers, zeros of both signs: here the ids must agree as well. */
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

/* The GPU's order of a dot product on the CPU: the same bits, so the lists must be the same. */
static int chain_gemm(device *, bool, bool, int m, int n, int k, float, const float *a, int lda,
                      const float *b, int ldb, float, float *c, int ldc) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            if (j < i) {
                c[(size_t)i * ldc + j] = c[(size_t)j * ldc + i];
                continue;
            }
            for (int l = 0; l < k; l++)
                sum = fmaf(a[(size_t)i * lda + l], b[(size_t)j * ldb + l], sum);
            c[(size_t)i * ldc + j] = sum;
        }
    return 0;
}

typedef struct graph_case {
    int n, d, kind; /* 0 random, 1 clusters, 2 with duplicates and zero rows */
    int k, k1, k2, layers;
    double alpha;
    int resymmetrize, local;
} graph_case;

static float *graph_features(const graph_case *c) {
    float *f = random_floats((size_t)c->n * c->d, (uint32_t)(c->n + c->kind));
    float *norm = (float *)malloc(c->n * sizeof *norm);
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->d; j++) {
            float *x = &f[(size_t)i * c->d + j];
            if (c->kind == 1) *x = 0.5f * *x + 2 * sinf((float)(i % 10 * c->d + j) * 1.7f);
            if (c->kind == 2 && i % 3) *x = f[(size_t)(i - i % 3) * c->d + j];
            if (c->kind == 2 && i % 7 == 0) *x = 0;
        }
    CHECK(ref.op.rows_normalize(&ref, f, c->n, c->d, f, norm));
    free(norm);
    return f;
}

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

/* ---- views ----------------------------------------------------------------------------------- */

typedef struct view_case {
    int n, h, w, c, size;
    float blur, solarize, scale_low;
    int bf16;
} view_case;

static void check_view_case(const view_case *c) {
    size_t one = (size_t)c->h * c->w * c->c, area = (size_t)c->size * c->size * c->c;
    int images = c->n + 5;
    unsigned char *pixels_host = (unsigned char *)malloc(one * images);
    int32_t *ids = (int32_t *)malloc(c->n * sizeof *ids);
    rng r = rng_at(3, 0, (uint32_t)c->size, RNG_TEST);
    for (size_t i = 0; i < one * images; i++) /* smooth in places, noise in others */
        pixels_host[i] = (unsigned char)(i % 5 ? 127 + 100 * sin(i * 0.01) + rng_below(&r, 28)
                                               : rng_below(&r, 256));
    for (int i = 0; i < c->n; i++) ids[i] = (i * 3 + 1) % images;
    views_job job = {};
    job.h = c->h, job.w = c->w, job.c = c->c, job.size = c->size, job.seed = 0x1234567890ull;
    job.policy = draw_policy_default();
    job.policy.blur = c->blur, job.policy.solarize = c->solarize;
    job.policy.scale_low = c->scale_low;
    for (int k = 0; k < 3; k++) job.norm.mean[k] = 0.4f + 0.05f * k, job.norm.deviation[k] = 0.2f;
    job.pixels = on_gpu(pixels_host, one * images);
    int32_t *ids_on = on_gpu(ids, c->n);
    step_values at = {};
    at.epoch = 9;
    step_values *at_on = on_gpu(&at, 1);
    gpu.type = c->bf16 ? ACT_BF16 : ACT_F32, gpu.act_size = c->bf16 ? 2 : 4;
    char *out = on_gpu((char *)NULL, area * c->n * gpu.act_size);
    float *want = (float *)malloc(area * sizeof *want);
    pixels *tools;
    CHECK(pixels_new(c->size, c->c, &tools));
    for (int view = 0; view < (c->h == c->size && c->w == c->size ? 3 : 2); view++) {
        double largest = 0, sum = 0;
        CHECK(cudaMemset(out, 0xff, area * c->n * gpu.act_size));
        CHECK(gpu.op.views(&gpu, at_on, &job, ids_on, c->n, view, (act *)out));
        char *got = on_host(out, area * c->n * gpu.act_size);
        int checked = c->n < 64 ? c->n : 64;
        for (int i = 0; i < checked; i++) {
            const unsigned char *image = pixels_host + one * ids[i];
            draw d = draw_view(&job.policy, job.seed, at.epoch, (uint32_t)ids[i], (uint32_t)view,
                               c->w, c->h);
            if (view < 2)
                CHECK(pixels_view(tools, image, c->w, c->h, &d, &job.norm, want));
            else
                CHECK(pixels_plain(tools, image, c->w, c->h, 0, &job.norm, want));
            for (size_t p = 0; p < area; p++) {
                float x = c->bf16 ? __bfloat162float(((__nv_bfloat16 *)got)[i * area + p])
                                  : ((float *)got)[i * area + p];
                double e = fabs((double)x - want[p]);
                /* at 0.5 solarize jumps: a rounding may decide */
                bool edge = c->solarize > 0 && fabs(e - 0) > 1e-3 &&
                            fabs(want[p] * 0.2 + job.norm.mean[p % c->c] - 0.5) < 1e-4;
                if (!(e <= largest) && !edge) largest = e;
                sum += e;
            }
        }
        double us = time_us(
            [&] { CHECK(gpu.op.views(&gpu, at_on, &job, ids_on, c->n, view, (act *)out)); });
        printf(
            "view %d of %d images %dx%dx%d -> %d, blur %.1f%s: %8.1f us, largest error %.1e, mean "
            "%.1e\n",
            view, c->n, c->h, c->w, c->c, c->size, c->blur, c->bf16 ? " bf16" : "", us, largest,
            sum / ((double)area * checked));
        /* hue turns a rounding of 1e-7 into some 1e-5 where a pixel is almost gray; deviation 0.2
         */
        expect(largest < (c->bf16 ? 2e-2 : 2e-4) &&
                   sum / ((double)area * checked) < (c->bf16 ? 5e-3 : 2e-6),
               "views");
        free(got);
    }
    gpu.type = ACT_F32, gpu.act_size = 4;
    pixels_free(tools);
    free(pixels_host), free(ids), free(want);
    cudaFree((void *)job.pixels), cudaFree(ids_on), cudaFree(at_on), cudaFree(out);
}

static void check_views() {
    static const view_case list[] = {
        {256, 32, 32, 3, 32, 0, 0, 0.08f, 0},       {256, 32, 32, 3, 32, 0, 0, 0.08f, 1},
        {256, 32, 32, 3, 32, 0.5f, 0.3f, 0.45f, 0}, {256, 28, 28, 1, 28, 0, 0, 0.08f, 0},
        {64, 28, 28, 1, 28, 0.5f, 0.5f, 0.08f, 0},  {64, 64, 64, 3, 64, 0, 0, 0.08f, 0},
        {64, 96, 96, 3, 96, 0, 0, 0.08f, 1},        {16, 50, 40, 3, 32, 0, 0, 0.08f, 0},
        {16, 256, 256, 3, 224, 0.5f, 0, 0.08f, 0},  {8, 300, 200, 3, 64, 0.5f, 0, 0.3f, 0},
        {8, 7, 5, 3, 3, 0.5f, 0, 0.3f, 0},          {4, 9, 9, 1, 1, 0.5f, 0, 0.3f, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check_view_case(&list[i]);
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

/* ---- whole sets ------------------------------------------------------------------------------ */

static double seconds_of(double before) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - before;
}

/* Lists against top_k of the reference; where ids differ the similarities must not. */
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
    int distinct; /* different rows; 0: all */
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

    /* labels are the nearest centroids, the objective is their distances' */
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
    if (argc > 1 && !strcmp(argv[1], "sets")) { /* only these */
        check_search();
        check_kmeans();
        return wrong != 0;
    }
    check_cases();
    check_ties();
    check_rows();
    check_neighbors();
    check_views();
    time_step();
    check_search();
    check_kmeans();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
