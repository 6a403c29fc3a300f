/* vector.cuh: activations of either type as floats, one or 16 bytes of them at a time. */
#ifndef CONR_VECTOR_CUH
#define CONR_VECTOR_CUH

#include "device/cuda/launch.cuh"

#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ inline void from_float(float x, float *out) { *out = x; }
__device__ inline void from_float(float x, bf16 *out) { *out = __float2bfloat16_rn(x); }

/* V activations as they are in memory. */
template <typename T, int V> struct alignas(sizeof(T) * V) vec { T x[V]; };

template <typename T, int V> __device__ inline vec<T, V> load(const T *p) {
    return *(const vec<T, V> *)p;
}

template <typename T, int V> __device__ inline void floats(const vec<T, V> &v, float out[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = to_float(v.x[i]);
}

template <typename T, int V> __device__ inline void store(T *p, const float x[V]) {
    vec<T, V> v;
#pragma unroll
    for (int i = 0; i < V; i++) from_float(x[i], &v.x[i]);
    *(vec<T, V> *)p = v;
}

/* CALL(T, V) with the type of the device, and with whole vectors if c allows. */
#define BY_TYPE(dev, c, CALL)                                                                      \
    do {                                                                                           \
        if ((dev)->type == ACT_BF16) {                                                             \
            if ((c) % 8 == 0)                                                                      \
                CALL(bf16, 8);                                                                     \
            else                                                                                   \
                CALL(bf16, 1);                                                                     \
        } else {                                                                                   \
            if ((c) % 4 == 0)                                                                      \
                CALL(float, 4);                                                                    \
            else                                                                                   \
                CALL(float, 1);                                                                    \
        }                                                                                          \
    } while (0)

#endif
