/* quad_math.h: functions of four floats at a time, to about one unit in the last place. */
#ifndef CONR_KERNELS_QUAD_MATH_H
#define CONR_KERNELS_QUAD_MATH_H

#include "kernels/quad.h"

static inline quad quad_choose(quad_mask mask, quad yes, quad no) {
#if defined(__aarch64__)
    return (quad)vbslq_f32((uint32x4_t)mask, (float32x4_t)yes, (float32x4_t)no);
#else
    return (quad)((mask & (quad_mask)yes) | (~mask & (quad_mask)no));
#endif
}

static inline quad quad_min(quad a, quad b) {
#if defined(__aarch64__)
    return (quad)vminnmq_f32((float32x4_t)a, (float32x4_t)b);
#elif defined(__SSE__)
    return __builtin_ia32_minps(a, b);
#else
    return quad_choose(a < b, a, b);
#endif
}

/* e^x, for x from -87 to 88; beyond that the value at the end.  e^x = 2^n e^r with |r| < ln(2)/2;
 * the polynomial is Cephes'. */
INLINE quad quad_exp(quad x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = quad_min(quad_max(x, quad_of(-87.0f)), quad_of(88.0f));
    quad n = x * 1.44269504f + shift;
    quad_mask exponent = ((quad_mask)n - (quad_mask)quad_of(shift) + 127) << 23;
    n -= shift;
    quad r = x - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    quad p = quad_of(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r + 1.0f) * (quad)exponent;
}

/* erf(x): near 0 a polynomial, else 1 - e^polynomial (coefficients by Norbert Juffa). */
INLINE quad quad_erf(quad x) {
    quad s = x * x, t = quad_max(x, -x);
    quad p = t * -1.72853470e-5f + 3.83197126e-4f;
    quad u = t * -3.88396438e-3f + 2.42546219e-2f;
    p = p * s + u;
    p = p * t - 1.06777877e-1f;
    p = p * t - 6.34846687e-1f;
    p = p * t - 1.28717512e-1f;
    quad far = 1.0f - quad_exp(p * t - t);
    far = quad_choose(x < 0, -far, far);
    quad q = s * -5.96761703e-4f + 4.99119423e-3f;
    q = q * s - 2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s - 3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    return quad_choose(t > 0.921875f, far, q * x + x);
}

#endif
