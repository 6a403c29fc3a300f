/* numbers.c: see numbers.h. */
#include "base/numbers.h"

#include "base/status.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>

int numbers_check_shape(const char *what, const float *x, int64_t n, int64_t d) {
    if (!x || n < 1 || d < 1)
        return fail(CONR_EINVAL, "%s: %lld rows of %lld values; give at least one row of one value",
                    what, (long long)n, (long long)d);
    if (n > INT_MAX / 2 || d > INT_MAX / 64)
        return fail(CONR_EINVAL, "%s: %lld rows of %lld values are too many; give fewer", what,
                    (long long)n, (long long)d);
    return 0;
}

int numbers_check(const char *what, const float *x, int64_t n, int64_t d) {
    int rc = numbers_check_shape(what, x, n, d);
    if (rc < 0) return rc;
    for (int64_t i = 0; i < n; i++, x += d) {
        float zero[4] = {0}; /* NaN if a value is NaN or infinite */
        int64_t j = 0;
        for (; j + 4 <= d; j += 4)
            for (int l = 0; l < 4; l++) zero[l] += x[j + l] * 0.0f;
        for (; j < d; j++) zero[0] += x[j] * 0.0f;
        if (zero[0] + zero[1] + zero[2] + zero[3] == 0) continue;
        for (j = 0; isfinite(x[j]); j++) continue;
        return fail(CONR_ENUMBER,
                    "%s: row %lld has %s at column %lld; remove or repair such rows first", what,
                    (long long)i, isnan(x[j]) ? "NaN" : "an infinite value", (long long)j);
    }
    return 0;
}
