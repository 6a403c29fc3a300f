/* rows.c: rows of features, scaled to length 1. */
#include "kernels/rows.h"

#include <math.h>
#include <stddef.h>

enum { SMALL = 8192 }; /* floats below which waking threads costs more than it saves */

void rows_normalize(int threads, const float *x, int n, int d, float *out, float *norm) {
    if ((size_t)n * d < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < n; i++) {
        const float *from = x + (size_t)i * d;
        float *to = out + (size_t)i * d;
        /* four chains: a single one would wait for its own additions */
        double part[4] = {0};
        int j = 0;
        for (; j + 4 <= d; j += 4)
            for (int l = 0; l < 4; l++) part[l] += (double)from[j + l] * from[j + l];
        for (; j < d; j++) part[0] += (double)from[j] * from[j];
        double size = sqrt((part[0] + part[1]) + (part[2] + part[3]));
        /* multiplies in double where the reference divides: rounded to float the two differ in
         * about one element in 10^8 */
        double by = size > 0 ? 1 / size : 0;
        if (norm) norm[i] = (float)size;
        for (j = 0; j < d; j++) to[j] = (float)(from[j] * by);
    }
}

void rows_normalize_back(int threads, const float *out, const float *norm, const float *dout, int n,
                         int d, float *dx) {
    if ((size_t)n * d < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < n; i++) {
        const float *unit = out + (size_t)i * d, *from = dout + (size_t)i * d;
        float *to = dx + (size_t)i * d;
        double part[4] = {0}; /* as above */
        int j = 0;
        for (; j + 4 <= d; j += 4)
            for (int l = 0; l < 4; l++) part[l] += (double)unit[j + l] * from[j + l];
        for (; j < d; j++) part[0] += (double)unit[j] * from[j];
        double by = norm[i] > 0 ? 1 / (double)norm[i] : 0;
        double along = ((part[0] + part[1]) + (part[2] + part[3])) * by;
        for (j = 0; j < d; j++) to[j] = (float)(from[j] * by - unit[j] * along);
    }
}
