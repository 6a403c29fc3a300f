/* tensor.cuh: the instructions of a warp for small matrix products in bf16 (compute capability 8.0
 * and up), and copies into shared memory that do not wait.
 *
 * Of a lane, `group` = lane / 4 and `pair` = lane % 4 say which values of a matrix it holds:
 *   A [16,16]  a[0] at (group, 2 pair), a[1] at (group + 8, 2 pair), a[2] and a[3] 8 columns on
 *   B [16,8]   b[0] at (2 pair, group), b[1] 8 rows on; the two values lie in one column
 *   C [16,8]   c[0], c[1] at (group, 2 pair), c[2], c[3] 8 rows on
 * Every register of A and B has two values, the first in its low half. */
#ifndef CONR_TENSOR_CUH
#define CONR_TENSOR_CUH

#include "device/cuda/vector.cuh"

#include <stdint.h>

/* c += a b */
static __device__ inline void tensor_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices [8,8] out of shared memory: lane i names row i % 8 of matrix i / 8, 16 bytes that are
 * aligned to 16; of matrix m, out[m] has the values at (group, 2 pair) and one column on. */
static __device__ inline void tensor_load(uint32_t (&out)[4], const bf16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* The same, transposed: the values at (2 pair, group) and one row on. */
static __device__ inline void tensor_load_turned(uint32_t (&out)[4], const bf16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* 16 bytes into shared memory, later; zeros if they are not there. */
static __device__ inline void copy_begin(bf16 *to, const bf16 *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
/* The copies begun so far are one group. */
static __device__ inline void copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most `LEFT` groups of this thread are under way. */
template <int LEFT> static __device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ inline uint32_t pack(float low, float high) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
}

/* 2^x; 0 for -infinity */
static __device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
