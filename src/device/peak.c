/* peak.c: loops of nothing but fused multiply-adds, and copies of a large block.
 *
 * No one loop reaches the peak everywhere.  On a Neoverse-V1 a chain of multiply-adds stays on the
 * pipeline it began on, and what came before decides where that is: the same sixteen sums, started
 * from registers that were loaded, or moved from one, fill two of the four pipelines for as long as
 * the loop runs, and all of them if they were set to zero.  So sums begin anew again and again, as
 * those of a matrix product do, and the best of several forms counts. */
#include "device/peak.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernels/isa.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 512, RESTARTS = 32 };

static float operands[16 * 16]; /* zero: neither too small nor too large, however long it runs */
static volatile float sink;     /* so that the loops are not optimized away */

#if defined(__aarch64__)
#define OPAQUE(x) __asm__ volatile("" : "+w"(x))
#elif defined(__x86_64__)
#define OPAQUE(x) __asm__ volatile("" : "+v"(x))
#else
#define OPAQUE(x) __asm__ volatile("" : "+m"(x))
#endif
#define EACH _Pragma("GCC unroll 32") for

/* M*N independent sums of multiply-adds of BYTES/4 floats each: an outer product of vectors that the
 * compiler cannot see into, so that it neither shares nor moves a product.  Enough sums to hide the
 * latency, few enough to stay in registers. */
#define FMA_LOOP(NAME, BYTES, M, N, TARGET)                                                        \
    TARGET static double NAME(void) {                                                              \
        typedef float vector __attribute__((vector_size(BYTES), aligned(4), may_alias));           \
        vector a[M], b[N];                                                                         \
        EACH(int i = 0; i < M; i++) a[i] = *(const vector *)(operands + BYTES / 4 * i);            \
        EACH(int j = 0; j < N; j++) b[j] = *(const vector *)(operands + BYTES / 4 * j);            \
        EACH(int i = 0; i < M; i++) OPAQUE(a[i]);                                                  \
        EACH(int j = 0; j < N; j++) OPAQUE(b[j]);                                                  \
        for (int again = 0; again < RESTARTS; again++) {                                           \
            vector sum[M][N];                                                                      \
            EACH(int i = 0; i < M * N; i++) sum[i / N][i % N] = (vector){0};                       \
            for (int round = 0; round < ROUNDS; round++) {                                         \
                EACH(int i = 0; i < M; i++) OPAQUE(a[i]);                                          \
                EACH(int j = 0; j < N; j++) OPAQUE(b[j]);                                          \
                EACH(int i = 0; i < M * N; i++) sum[i / N][i % N] += a[i / N] * b[i % N];          \
            }                                                                                      \
            EACH(int i = 0; i < M * N; i++) OPAQUE(sum[i / N][i % N]);                             \
            sink = sum[0][0][0];                                                                   \
        }                                                                                          \
        return 2.0 * (BYTES / 4) * M * N * ROUNDS * RESTARTS;                                      \
    }

/* The same with two operands for all sums: twelve of them leave room in sixteen registers. */
#define FMA_CHAINS(NAME, BYTES, N, TARGET)                                                         \
    TARGET static double NAME(void) {                                                              \
        typedef float vector __attribute__((vector_size(BYTES), aligned(4), may_alias));           \
        vector a = *(const vector *)operands, b = *(const vector *)(operands + BYTES / 4);         \
        for (int again = 0; again < RESTARTS; again++) {                                           \
            vector sum[N];                                                                         \
            EACH(int i = 0; i < N; i++) sum[i] = (vector){0};                                      \
            for (int round = 0; round < ROUNDS; round++) {                                         \
                EACH(int i = 0; i < N; i++) {                                                      \
                    OPAQUE(a); /* else the product would be shared */                              \
                    sum[i] += a * b;                                                               \
                }                                                                                  \
            }                                                                                      \
            EACH(int i = 0; i < N; i++) OPAQUE(sum[i]);                                            \
            sink = sum[0][0];                                                                      \
        }                                                                                          \
        return 2.0 * (BYTES / 4) * N * ROUNDS * RESTARTS;                                          \
    }

typedef double fma_form(void); /* returns the operations it did */
enum { FORMS = 4 };

FMA_LOOP(base_4x4, 16, 4, 4, )
FMA_LOOP(base_2x4, 16, 2, 4, )
FMA_LOOP(base_3x4, 16, 3, 4, )
FMA_LOOP(base_4x5, 16, 4, 5, )
static fma_form *const base_forms[FORMS] = {base_4x4, base_2x4, base_3x4, base_4x5};
#ifdef __x86_64__
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
FMA_LOOP(avx2_2x4, 32, 2, 4, AVX2)
FMA_LOOP(avx2_3x3, 32, 3, 3, AVX2)
FMA_CHAINS(avx2_10, 32, 10, AVX2)
FMA_CHAINS(avx2_12, 32, 12, AVX2)
static fma_form *const avx2_forms[FORMS] = {avx2_2x4, avx2_3x3, avx2_10, avx2_12};
FMA_LOOP(avx512_4x4, 64, 4, 4, AVX512)
FMA_LOOP(avx512_4x5, 64, 4, 5, AVX512)
FMA_LOOP(avx512_2x4, 64, 2, 4, AVX512)
FMA_CHAINS(avx512_24, 64, 24, AVX512)
static fma_form *const avx512_forms[FORMS] = {avx512_4x4, avx512_4x5, avx512_2x4, avx512_24};
#endif

/* Many short tries: one of them is not interrupted. */
double peak_flops(int threads) {
    enum { TRIES = 24 };
    fma_form *const *form = SET_BEST(avx512_forms, avx2_forms, base_forms);
    double best = 0;
    for (int i = 0; i < TRIES * FORMS; i++) {
        double flops = 0, before = 0, after = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
        {
            form[i % FORMS](); /* the clock may have to rise, and threads to come */
#pragma omp barrier
#pragma omp master
            before = omp_get_wtime();
            for (int k = 0; k < 16; k++) flops += form[i % FORMS]();
#pragma omp barrier
#pragma omp master
            after = omp_get_wtime();
        }
        if (flops / (after - before) > best) best = flops / (after - before);
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
