/* scale.c: see scale.h. */
#include "clusters/scale.h"

#include "base/memory.h"

#include <math.h>

/* Products of differences above 2^-40 stay far above 2^-126, the least normal float. */
enum { LEAST = -40, MOST = 120 }; /* exponents; MOST: of a value after scaling */

/* *apart: the largest |x - first|; *size: the largest |x|. */
static void measure(const float *x, int64_t n, const float *first, int64_t d, float *apart,
                    float *size) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d; j++) {
            float value = x[i * d + j];
            *apart = fmaxf(*apart, fabsf(value - first[j]));
            *size = fmaxf(*size, fabsf(value));
        }
}

float scale_for(const float *x, int64_t n, const float *y, int64_t m, int64_t d) {
    float apart = 0, size = 0;
    int up, largest;
    /* nearly always the first rows suffice to tell */
    for (int64_t i = 0; i < n; i += 64) {
        measure(x + i * d, n - i < 64 ? n - i : 64, x, d, &apart, &size);
        if (apart > ldexpf(1, LEAST)) return 1;
    }
    measure(y, m, x, d, &apart, &size);
    if (apart == 0 || apart > ldexpf(1, LEAST)) return 1;
    frexpf(apart, &up), frexpf(size, &largest);
    up = -up;
    if (up > MOST - largest) up = MOST - largest; /* a large value that all rows share */
    if (up > MOST) up = MOST;
    return up > 0 ? ldexpf(1, up) : 1;
}

float *scale_copy(const float *x, int64_t count, float by) {
    float *out = memory_new("features", (size_t)count, sizeof *out);
    for (int64_t i = 0; out && i < count; i++) out[i] = x[i] * by;
    return out;
}
