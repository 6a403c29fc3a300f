/* vit_positions.c: position embeddings for another number of patches, interpolated bicubically as
 * torch does: interpolate(mode="bicubic", align_corners=False). */
#include "pretrained/vit.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* The four weights at distance t in [0,1) after the second pixel (a = -0.75). */
static void cubic(double t, double w[4]) {
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        double x = fabs(t + 1 - k);
        w[k] = x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : (((x - 5) * x + 8) * x - 4) * a;
    }
}

/* Weights [to,from]: row i has those of output i. */
static int weights_of(vit_places how, int from, int to, double *w) {
    int rc = 0;
    taps t = {0};
    for (int i = 0; i < from * to; i++) w[i] = 0;
    if (how == PLACES_ANTIALIAS) {
        TRY(taps_make(&t, PIXELS_BICUBIC, from, to, 0, to));
        for (int i = 0; i < to; i++)
            for (int k = 0; k < t.most; k++)
                if (t.first[i] + k < from)
                    w[i * from + t.first[i] + k] += t.weight[(size_t)i * (size_t)t.most + k];
    } else {
        double scale = from / (to + (how == PLACES_OFFSET ? 0.1 : 0.0));
        for (int i = 0; i < to; i++) {
            double at = (i + 0.5) * scale - 0.5, four[4];
            int low = (int)floor(at);
            cubic(at - low, four);
            for (int k = 0; k < 4; k++) { /* the border is repeated */
                int j = low - 1 + k;
                w[i * from + (j < 0 ? 0 : j >= from ? from - 1 : j)] += four[k];
            }
        }
    }
done:
    taps_free(&t);
    return rc;
}

int vit_place(vit_places how, const float *in, int from, int to, int d, float *out) {
    int rc = 0;
    double *w = memory_new("positions", (size_t)from * (size_t)to, sizeof *w);
    double *sum = memory_new("positions", (size_t)d, sizeof *sum);
    TRY(w && sum ? 0 : CONR_ENOMEM);
    TRY(weights_of(how, from, to, w));
    for (int y = 0; y < to; y++)
        for (int x = 0; x < to; x++) {
            for (int j = 0; j < d; j++) sum[j] = 0;
            for (int a = 0; a < from; a++)
                for (int b = 0; w[y * from + a] != 0 && b < from; b++) {
                    double v = w[y * from + a] * w[x * from + b];
                    const float *p = in + ((size_t)a * from + b) * d;
                    for (int j = 0; v != 0 && j < d; j++) sum[j] += v * p[j];
                }
            for (int j = 0; j < d; j++) *out++ = (float)sum[j];
        }
done:
    free(w), free(sum);
    return rc;
}
