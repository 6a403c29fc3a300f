/* whole.c: the best of a row that is stored whole.
 *
 * A first pass over the row finds a value that about k elements reach, a second pass finds those
 * elements: few enough to be inserted into a list one by one. */
#include "neighbors/whole.h"

#include "kernels/quad.h"
#include "neighbors/search.h"

#include <math.h>

static quad larger(quad a, quad b) {
    quad_mask first = a > b;
    return (quad)((first & (quad_mask)a) | (~first & (quad_mask)b));
}

/* How many of a, b, c and d reach the value. */
static int count_reaching(quad a, quad b, quad c, quad d, float value) {
    quad v = quad_of(value);
    quad_mask m = ((a >= v) + (b >= v)) + ((c >= v) + (d >= v));
    return -(m[0] + m[1] + m[2] + m[3]);
}

/* A value that at least k elements of the row reach, and not many more: the k-th largest of the
 * maxima of 16 parts of the row.  n is a multiple of 16; k <= 16. */
static float to_reach(const float *row, int n, int k) {
    float most[WHOLE_STEP], bound = -INFINITY;
    quad a = quad_at(row), b = quad_at(row + 4), c = quad_at(row + 8), d = quad_at(row + 12);
    for (int j = WHOLE_STEP; j < n; j += WHOLE_STEP) {
        a = larger(a, quad_at(row + j)), b = larger(b, quad_at(row + j + 4));
        c = larger(c, quad_at(row + j + 8)), d = larger(d, quad_at(row + j + 12));
    }
    quad_put(most, a), quad_put(most + 4, b), quad_put(most + 8, c), quad_put(most + 12, d);
    for (int part = 0; part < WHOLE_STEP; part++) {
        float value = count_reaching(a, b, c, d, most[part]) >= k ? most[part] : -INFINITY;
        bound = value > bound ? value : bound;
    }
    return bound;
}

/* One bit for each of 16 elements: whether it reaches b. */
static unsigned bits_reaching(const float *x, quad b) {
    const quad_mask bit = {1, 2, 4, 8};
    union {
        quad_mask bits;
        uint64_t half[2];
    } u = {(((quad_at(x) >= b) & bit) | ((quad_at(x + 4) >= b) & (bit << 4))) |
           (((quad_at(x + 8) >= b) & (bit << 8)) | ((quad_at(x + 12) >= b) & (bit << 12)))};
    uint64_t both = u.half[0] | u.half[1];
    return (unsigned)(both | both >> 32);
}

/* Writes the columns where a row reaches the bound to `to`; returns their number.  n is a multiple
 * of 16. */
static int collect(const float *row, int n, float bound, int32_t *to) {
    int count = 0;
    for (int j = 0; j < n; j += WHOLE_STEP)
        for (unsigned left = bits_reaching(row + j, quad_of(bound)); left; left &= left - 1)
            to[count++] = j + __builtin_ctz(left);
    return count;
}

int whole_best(float *row, const int32_t *names, int n, float lowest, int k, int32_t *scratch,
               int32_t *ids, float *values) {
    int end = round_up(n, WHOLE_STEP);
    if (n == 0) return 0;
    for (int j = n; j < end; j++) row[j] = -INFINITY;
    float bound = k <= WHOLE_STEP ? to_reach(row, end, k) : lowest;
    int count = collect(row, end, bound > lowest ? bound : lowest, scratch);
    for (int at = 0; at < k; at++) ids[at] = INT32_MAX, values[at] = -INFINITY;
    for (int c = 0; c < count; c++) {
        int32_t at = scratch[c];
        search_offer(k, ids, values, names ? names[at] : at, row[at]);
    }
    return least(count, k);
}
