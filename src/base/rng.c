/* rng.c: normal draws.  With a logarithm of its own, and compiled without contraction (see
 * CMakeLists.txt), so that a seed gives the same initial weights with every compiler, C library and
 * processor. */
#include "base/rng.h"

#include <math.h>

/* Natural logarithm of x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1))
 * by its series, truncated below 1e-16. */
static double natural_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) m *= 2, e--;
    double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
    for (int i = 21; i > 0; i -= 2) sum = sum * t2 + 1.0 / i;
    return 2 * t * sum + e * 0.69314718055994531;
}

double rng_normal(rng *r) {
    for (;;) {
        double u = 2.0 * rng_float(r) - 1, v = 2.0 * rng_float(r) - 1, s = u * u + v * v;
        if (s > 0 && s < 1) return u * sqrt(-2 * natural_log(s) / s);
    }
}
