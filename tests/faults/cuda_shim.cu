/* cuda_shim.cu: makes one call of the CUDA runtime fail, or the whole GPU.
 *
 * Part of libconr_faulty.so, a copy of the library that is linked with --wrap for each call below
 * and preloaded in its place: the runtime itself is linked statically, out of a shim's reach.
 *
 *     CUDA_FAULT_KIND    alloc (cudaMalloc), or call (any of the calls below); unset: only count
 *     CUDA_FAULT_N       the call to act on, from 1
 *     CUDA_FAULT_ACT     fail: it returns an error; on: and all later ones of its kind; lost: a kernel
 *                        writes where there is no memory, and from then on every call fails, as on a
 *                        GPU that has fallen off the bus
 *     CUDA_FAULT_COUNTS  a file that gets a line "fired N" at once, and "alloc N", "call N" at the end */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long allocs, calls;

static const char *setting(const char *name) {
    const char *text = getenv(name);
    return text ? text : "";
}

static void note(const char *what, long n) {
    FILE *f = *setting("CUDA_FAULT_COUNTS") ? fopen(setting("CUDA_FAULT_COUNTS"), "a") : NULL;
    if (!f) return;
    fprintf(f, "%s %ld\n", what, n);
    fclose(f);
}

static void __attribute__((destructor)) note_all() { note("alloc", allocs), note("call", calls); }

static __global__ void write_nowhere(int *nowhere) { *nowhere = 1; }

/* Counts a call; true if it must fail. */
static bool hit(bool is_alloc) {
    const char *kind = setting("CUDA_FAULT_KIND"), *act = setting("CUDA_FAULT_ACT");
    long call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    long alloc = is_alloc ? __atomic_add_fetch(&allocs, 1, __ATOMIC_RELAXED) : 0;
    long n = !strcmp(kind, "call") ? call : !strcmp(kind, "alloc") && is_alloc ? alloc : 0;
    long wanted = atol(setting("CUDA_FAULT_N"));
    if (n == 0 || (strcmp(act, "on") ? n != wanted : n < wanted)) return false;
    if (n == wanted) note("fired", n);
    if (strcmp(act, "lost")) return true;
    write_nowhere<<<1, 1, 0, cudaStreamPerThread>>>((int *)16);
    return false;
}

#define WRAP(name, error, parameters, arguments)                                                   \
    extern "C" cudaError_t __real_##name parameters;                                               \
    extern "C" cudaError_t __wrap_##name parameters {                                              \
        return hit(!strcmp(#name, "cudaMalloc")) ? error : __real_##name arguments;                \
    }
WRAP(cudaMalloc, cudaErrorMemoryAllocation, (void **p, size_t n), (p, n))
WRAP(cudaStreamCreateWithFlags, cudaErrorMemoryAllocation, (cudaStream_t * s, unsigned f), (s, f))
WRAP(cudaEventCreate, cudaErrorMemoryAllocation, (cudaEvent_t * e), (e))
WRAP(cudaEventCreateWithFlags, cudaErrorMemoryAllocation, (cudaEvent_t * e, unsigned f), (e, f))
WRAP(cudaEventRecord, cudaErrorLaunchFailure, (cudaEvent_t e, cudaStream_t s), (e, s))
WRAP(cudaMemcpyAsync, cudaErrorLaunchFailure,
     (void *to, const void *from, size_t n, cudaMemcpyKind k, cudaStream_t s), (to, from, n, k, s))
WRAP(cudaMemsetAsync, cudaErrorLaunchFailure, (void *p, int x, size_t n, cudaStream_t s),
     (p, x, n, s))
WRAP(cudaStreamSynchronize, cudaErrorLaunchFailure, (cudaStream_t s), (s))
WRAP(cudaGetLastError, cudaErrorLaunchFailure, (void), ()) /* after each launch of ours */
WRAP(cudaStreamBeginCapture, cudaErrorMemoryAllocation,
     (cudaStream_t s, cudaStreamCaptureMode m), (s, m))
WRAP(cudaGraphInstantiate, cudaErrorMemoryAllocation,
     (cudaGraphExec_t * run, cudaGraph_t g, unsigned long long f), (run, g, f))
WRAP(cudaGraphLaunch, cudaErrorLaunchFailure, (cudaGraphExec_t run, cudaStream_t s), (run, s))
