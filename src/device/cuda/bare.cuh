/* bare.cuh: a bare CUDA device for tests: a stream, memory and a plain matrix product.  So the
 * entries for features are checked by themselves, whatever the rest of the table does.  Also
 * what the tests on it share: arrays on either side, timings, features with structure. */
#ifndef CONR_BARE_CUH
#define CONR_BARE_CUH

extern "C" {
#include "base/rng.h"
#include "device/cuda/cuda.h"
}
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

extern "C" size_t cuda_shared_memory(device *dev) {
    (void)dev;
    return 48 * 1024; /* what every GPU has; views, which ask, are not checked here */
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

/* cuBLAS if it is found at run time, as the real table uses it: otherwise the timings of k-means
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
    if (blas) /* column-major: C' = op(B)' op(A)' */
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

/* Microseconds of one run, from replays of a recorded graph; so this also checks that the body can
 * be recorded. */
template <typename F> static double time_us(F body) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t start, stop;
    float best = 1e30f;
    body(); /* the first run loads code */
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

/* ---- features with structure ----------------------------------------------------------------- */

/* Dot products on the CPU in the order of the GPU: the same bits, so the lists must be the same. */
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
    int n, d, kind; /* 0: random, 1: clusters, 2: with duplicates and zero rows */
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

#endif
