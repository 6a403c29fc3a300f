/* isa.h: kernels are compiled once per instruction set; this chooses the one to run. */
#ifndef CONR_KERNELS_ISA_H
#define CONR_KERNELS_ISA_H

#include <stdbool.h>

/* A vector of this many floats, at any address of a float. */
#define VECTOR(floats) __attribute__((vector_size(floats * 4), aligned(4), may_alias))

/* The first of three that this machine can run; the first two exist only on x86-64. */
#ifdef __x86_64__
static inline bool set_has_avx512(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}
static inline bool set_has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#define SET_BEST(avx512, avx2, other)                                                              \
    (set_has_avx512() ? (avx512) : set_has_avx2() ? (avx2) : (other))
#else
#define SET_BEST(avx512, avx2, other) (other)
#endif

#endif
