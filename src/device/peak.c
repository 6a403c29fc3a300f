/* peak.c: a loop of nothing but fused multiply-adds, and copies of a large block. */
#include "device/peak.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernels/isa.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 1 << 16 };

/* M*N independent sums of ROUNDS multiply-adds of BYTES/4 floats each: an outer product of vectors
 * that the compiler cannot see into, so that it neither shares nor moves a product.  Enough sums to
 * hide the latency, few enough to stay in registers. */
#define FMA_LOOP(NAME, BYTES, M, N, TARGET)                                                        \
    TARGET static double NAME(void) {                                                              \
        typedef float vector __attribute__((vector_size(BYTES)));                                  \
        vector sum[M][N] = {{{0}}}, a[M] = {{0}}, b[N] = {{0}};                                    \
        for (int round = 0; round < ROUNDS; round++) {                                             \
            _Pragma("GCC unroll 8") for (int i = 0; i < M; i++) OPAQUE(a[i]);                      \
            _Pragma("GCC unroll 8") for (int j = 0; j < N; j++) OPAQUE(b[j]);                      \
            _Pragma("GCC unroll 8") for (int i = 0; i < M; i++)                                    \
                _Pragma("GCC unroll 8") for (int j = 0; j < N; j++) sum[i][j] += a[i] * b[j];      \
        }                                                                                          \
        for (int i = 0; i < M * N; i++) sink += sum[i / N][i % N][0];                              \
        return 2.0 * (BYTES / 4) * M * N * ROUNDS;                                                 \
    }

#if defined(__aarch64__)
#define OPAQUE(x) __asm__("" : "+w"(x))
#elif defined(__x86_64__)
#define OPAQUE(x) __asm__("" : "+v"(x))
#else
#define OPAQUE(x) __asm__("" : "+m"(x))
#endif

static volatile float sink; /* so that the loops are not optimized away */

FMA_LOOP(fma_base, 16, 4, 5, )
#ifdef __x86_64__
FMA_LOOP(fma_avx2, 32, 2, 4, __attribute__((target("avx2,fma"))))
FMA_LOOP(fma_avx512, 64, 4, 5, __attribute__((target("avx512f"))))
#endif

static double fma_loop(void) { return SET_BEST(fma_avx512(), fma_avx2(), fma_base()); }

double peak_flops(int threads) {
    double best = 0;
    for (int repetition = 0; repetition < 8; repetition++) {
        double flops = 0, before = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : flops)
        for (int i = 0; i < 32; i++) flops += fma_loop();
        double rate = flops / (omp_get_wtime() - before);
        if (rate > best) best = rate;
    }
    return best;
}

int peak_copies(int threads, double *bytes_per_second) {
    size_t bytes = (size_t)128 << 20;
    int rc = 0;
    char *from = memory_new("copy", bytes, 1), *to = memory_new("copy", bytes, 1);
    if (!from || !to) {
        rc = CONR_ENOMEM;
        goto done;
    }
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    *bytes_per_second = 0;
    for (int repetition = 0; repetition < 6; repetition++) {
        double before = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        {
            size_t part = bytes / (size_t)omp_get_num_threads();
            size_t at = part * (size_t)omp_get_thread_num();
            memcpy(to + at, from + at, part);
        }
        double rate = 2.0 * (double)bytes / (omp_get_wtime() - before);
        if (rate > *bytes_per_second) *bytes_per_second = rate;
    }
done:
    free(from);
    free(to);
    return rc;
}
