/* scale.c: see scale.h. */
#include "clusters/scale.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

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

/* Whether no scaling is needed, whatever the rest holds. */
static bool is_ordinary(float apart) { return apart > ldexpf(1, LEAST); }

static float scale_of(float apart, float size) {
    int up, largest;
    if (apart == 0 || is_ordinary(apart)) return 1;
    frexpf(apart, &up), frexpf(size, &largest);
    up = -up;
    if (up > MOST - largest) up = MOST - largest; /* a large value that all rows share */
    if (up > MOST) up = MOST;
    return up > 0 ? ldexpf(1, up) : 1;
}

float scale_for(const float *x, int64_t n, const float *y, int64_t m, int64_t d) {
    float apart = 0, size = 0;
    /* nearly always the first rows suffice to tell */
    for (int64_t i = 0; i < n; i += 64) {
        measure(x + i * d, n - i < 64 ? n - i : 64, x, d, &apart, &size);
        if (is_ordinary(apart)) return 1;
    }
    measure(y, m, x, d, &apart, &size);
    return scale_of(apart, size);
}

int scale_for_device(device *dev, const float *x, int64_t n, const float *y, int64_t m, int64_t d,
                     float *by) {
    int rc = 0;
    int64_t most = (1 << 22) / d + 1, rows = 64; /* pieces grow up to 16 MB */
    float apart = 0, size = 0;
    if (most > n) most = n;
    float *first = memory_new("features", (size_t)d, sizeof *first);
    float *part = memory_new("features", (size_t)(most * d), sizeof *part);
    *by = 1;
    TRY(first && part ? 0 : CONR_ENOMEM);
    TRY(dev->op.get(dev, first, x, (size_t)d * sizeof *first));
    for (int64_t i = 0; i < n; i += rows, rows *= 2) {
        if (rows > most) rows = most;
        int64_t count = n - i < rows ? n - i : rows;
        TRY(dev->op.get(dev, part, x + i * d, (size_t)(count * d) * sizeof *part));
        measure(part, count, first, d, &apart, &size);
        if (is_ordinary(apart)) goto done;
    }
    measure(y, m, first, d, &apart, &size);
    *by = scale_of(apart, size);
done:
    free(first), free(part);
    return rc;
}

float *scale_copy(const float *x, int64_t count, float by) {
    float *out = memory_new("features", (size_t)count, sizeof *out);
    for (int64_t i = 0; out && i < count; i++) out[i] = x[i] * by;
    return out;
}
