/* hash.c: windows of images, their hashes, and the comparison of two images. */
#include "looks/looks.h"

#include <math.h>
#include <string.h>

enum {
    SMALL = 16,
    LOW = 8
}; /* a window is averaged to SMALL x SMALL; LOW x LOW frequencies count */

const look_window *look_windows(void) {
    static const look_window all[LOOK_WINDOWS] = {
        {0, 0, 1, 1}, /* all of it */
        {.05f, .05f, .9f, .9f}, {0, 0, .9f, .9f},       {.1f, 0, .9f, .9f},  {0, .1f, .9f, .9f},
        {.1f, .1f, .9f, .9f}, /* centered, and in the corners */
        {.1f, .1f, .8f, .8f},   {0, 0, .8f, .8f},       {.2f, 0, .8f, .8f},  {0, .2f, .8f, .8f},
        {.2f, .2f, .8f, .8f},   {.15f, .15f, .7f, .7f}, {0, 0, .7f, .7f},    {.3f, 0, .7f, .7f},
        {0, .3f, .7f, .7f},     {.3f, .3f, .7f, .7f},   {0, 0, 1, .85f},     {0, .15f, 1, .85f},
        {0, .075f, 1, .85f}, /* cut on one or two sides */
        {0, 0, .85f, 1},        {.15f, 0, .85f, 1},     {.075f, 0, .85f, 1}, {0, .125f, 1, .75f},
        {.125f, 0, .75f, 1},
    };
    return all;
}

/* The means of m x m cells of a window of an image [side,side,step], by the share that a pixel has
 * in a cell. */
static void average(const void *pixels, int is_signed, int side, int step, look_window at, int m,
                    float *out) {
    float wx[SMALL][LOOK_FRAME + 1];
    int x0[SMALL], x1[SMALL];
    for (int j = 0; j < m; j++) {
        float from = (at.x + at.w * (float)j / (float)m) * (float)side;
        float to = (at.x + at.w * (float)(j + 1) / (float)m) * (float)side;
        x0[j] = (int)from < 0 ? 0 : (int)from;
        x1[j] = (int)ceilf(to) > side ? side : (int)ceilf(to);
        for (int x = x0[j]; x < x1[j]; x++)
            wx[j][x - x0[j]] = fminf(to, (float)x + 1) - fmaxf(from, (float)x);
    }
    for (int i = 0; i < m; i++) {
        float from = (at.y + at.h * (float)i / (float)m) * (float)side;
        float to = (at.y + at.h * (float)(i + 1) / (float)m) * (float)side;
        int y0 = (int)from < 0 ? 0 : (int)from;
        int y1 = (int)ceilf(to) > side ? side : (int)ceilf(to);
        for (int j = 0; j < m; j++) {
            float sum = 0, weight = 0;
            for (int y = y0; y < y1; y++) {
                float wy = fminf(to, (float)y + 1) - fmaxf(from, (float)y);
                for (int x = x0[j]; x < x1[j]; x++) {
                    float w = wy * wx[j][x - x0[j]];
                    size_t p = (size_t)(y * side + x) * (size_t)step;
                    float v = is_signed ? (float)((const signed char *)pixels)[p]
                                        : (float)((const unsigned char *)pixels)[p];
                    sum += w * v, weight += w;
                }
            }
            out[i * m + j] = weight > 0 ? sum / weight : 0;
        }
    }
}

uint64_t look_hash(const unsigned char *frame, look_window at) {
    static const double pi = 3.14159265358979323846;
    float cell[SMALL * SMALL], half[SMALL * LOW], value[LOW * LOW], wave[LOW][SMALL];
    for (int k = 0; k < LOW; k++)
        for (int j = 0; j < SMALL; j++)
            wave[k][j] = (float)cos(pi * (k + 0.5 * (k == 0)) * (j + 0.5) / SMALL * (k > 0));
    average(frame, 0, LOOK_FRAME, 1, at, SMALL, cell);
    for (int i = 0; i < SMALL; i++)
        for (int k = 0; k < LOW; k++) {
            float s = 0;
            for (int j = 0; j < SMALL; j++) s += cell[i * SMALL + j] * wave[k][j];
            half[i * LOW + k] = s;
        }
    uint64_t hash = 0;
    for (int l = 0; l < LOW; l++)
        for (int k = 0; k < LOW; k++) {
            float s = 0;
            for (int i = 0; i < SMALL; i++) s += half[i * LOW + k] * wave[l][i];
            value[l * LOW + k] = s;
        }
    for (int b = 1; b < LOW * LOW; b++) /* the first is the brightness */
        hash |= (uint64_t)(value[b] > 0) << b;
    return hash;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Less its mean, to length 1; false: uniform. */
static bool standardize(float *x, int n) {
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++) mean += x[i];
    mean /= n;
    for (int i = 0; i < n; i++) x[i] -= (float)mean, square += (double)x[i] * x[i];
    for (int i = 0; i < n && square > 0; i++) x[i] /= (float)sqrt(square);
    return square > 1e-6;
}

static float correlate(const float *a, const look *b, look_window at) {
    float cell[SMALL * SMALL], dot = 0;
    average(b->gray, 0, LOOK_SIDE, 1, at, SMALL, cell);
    if (!standardize(cell, SMALL * SMALL)) return 0;
    for (int i = 0; i < SMALL * SMALL; i++) dot += a[i] * cell[i];
    return dot;
}

/* The correlation of the differences between neighbors: outlines must match, too, or simple pictures
 * of other things of about the same shape would count as copies. */
static float correlate_edges(const float *a, const look *b, look_window at) {
    enum { M = SMALL, N = 2 * M * (M - 1) };
    float cell[M * M], d[2][N], dot = 0;
    const float *of[2] = {a, cell};
    average(b->gray, 0, LOOK_SIDE, 1, at, M, cell);
    for (int k = 0; k < 2; k++) {
        int n = 0;
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++) {
                if (j + 1 < M) d[k][n++] = of[k][i * M + j + 1] - of[k][i * M + j];
                if (i + 1 < M) d[k][n++] = of[k][(i + 1) * M + j] - of[k][i * M + j];
            }
        if (!standardize(d[k], N) && k == 1) return 0;
    }
    for (int i = 0; i < N; i++) dot += d[0][i] * d[1][i];
    return dot;
}

/* The mean difference of the colors, in levels. */
static float colors_apart(const look *a, const look *b, look_window at) {
    enum { M = 4 };
    float sum = 0;
    for (int c = 0; c < 2; c++) {
        float x[M * M], y[M * M];
        average(a->chroma + c, 1, LOOK_CHROMA, 2, (look_window){0, 0, 1, 1}, M, x);
        average(b->chroma + c, 1, LOOK_CHROMA, 2, at, M, y);
        for (int i = 0; i < M * M; i++) sum += fabsf(x[i] - y[i]);
    }
    return sum / (2 * M * M);
}

float look_compare(const look *a, const look *b, look_window at) {
    enum { COLORS = 16 }; /* levels that an encoder may shift them by, and a little more */
    float own[SMALL * SMALL], best;
    average(a->gray, 0, LOOK_SIDE, 1, (look_window){0, 0, 1, 1}, SMALL, own);
    if (!standardize(own, SMALL * SMALL)) return 0;
    best = correlate(own, b, at);
    if (best < 0.6f) return best;
    for (float step = 0.04f; step > 0.004f; step /= 2) { /* each edge is moved while that helps */
        if (step < 0.03f && best < LOOK_LEAST - 0.03f) return best; /* it will not get there */
        for (int round = 0; round < 3; round++) {
            float before = best;
            for (int edge = 0; edge < 8; edge++) {
                look_window t = at;
                float by = edge & 1 ? step : -step;
                if (edge / 2 == 0) t.x += by, t.w -= by;
                if (edge / 2 == 1) t.y += by, t.h -= by;
                if (edge / 2 == 2) t.w += by;
                if (edge / 2 == 3) t.h += by;
                if (t.x < 0 || t.y < 0 || t.x + t.w > 1.0001f || t.y + t.h > 1.0001f ||
                    t.w < 0.55f || t.h < 0.55f)
                    continue;
                float now = correlate(own, b, t);
                if (now > best) best = now, at = t;
            }
            if (best <= before) break;
        }
    }
    best = fminf(best, 1 - (1 - correlate_edges(own, b, at)) / 3);
    return colors_apart(a, b, at) > COLORS ? fminf(best, 0.5f) : best;
}
