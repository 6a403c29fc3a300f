/* basis.c: the parts of a descriptor in bases where their values depend less on each other. */
#include "describe/describe.h"

#include <math.h>

enum { BINS = DESCRIBE_DIRECTIONS, WAVES = DESCRIBE_WAVES, COLORS = 32, PATTERNS = 59 };

/* Sums and differences of the four quarters. */
static const float quarters[4 * 4] = {
    0.5f, 0.5f,  0.5f,  0.5f,  /* all */
    0.5f, 0.5f,  -0.5f, -0.5f, /* top less bottom */
    0.5f, -0.5f, 0.5f,  -0.5f, /* left less right */
    0.5f, -0.5f, -0.5f, 0.5f,  /* one diagonal less the other */
};

/* DCT-II, orthonormal. */
static void make_cosines(int n, float *out) {
    for (int u = 0; u < n; u++)
        for (int i = 0; i < n; i++)
            out[u * n + i] =
                (float)(sqrt((u ? 2.0 : 1.0) / n) * cos(M_PI * (2 * i + 1) * u / (2.0 * n)));
}

/* The mean, then cosines, then sines around the circle. */
static void make_harmonics(int n, float *out) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++) {
            int times = k <= n / 2 ? k : k - n / 2;
            double angle = 2 * M_PI * times * i / n, size = sqrt((k ? 2.0 : 1.0) / n);
            out[k * n + i] = (float)(size * (k <= n / 2 ? cos(angle) : sin(angle)));
        }
}

void describe_basis_make(describe_basis *b) {
    make_harmonics(BINS, b->harmonics);
    make_cosines(8, b->cosines8);
    make_cosines(12, b->cosines12);
}

/* n values, `step` floats apart, times a matrix [n,n]. */
static void turn(const float *matrix, int n, float *x, int step) {
    float from[12];
    for (int i = 0; i < n; i++) from[i] = x[i * step];
    for (int k = 0; k < n; k++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += matrix[k * n + i] * from[i];
        x[k * step] = sum;
    }
}

void describe_turn_gradients(const describe_basis *b, float *x) {
    for (int j = 0; j < WAVES; j++) turn(b->harmonics, BINS, x + j, WAVES);
}

void describe_turn_colors(const describe_basis *b, float *x) {
    for (int j = 0; j < COLORS; j++) turn(quarters, 4, x + j, COLORS);
    for (int q = 0; q < 4; q++, x += COLORS) {
        turn(b->cosines8, 8, x, 1);
        turn(b->cosines12, 12, x + 8, 1);
        turn(b->cosines12, 12, x + 20, 1);
    }
}

void describe_turn_texture(float *x) {
    for (int j = 0; j < PATTERNS; j++) turn(quarters, 4, x + j, PATTERNS);
}
