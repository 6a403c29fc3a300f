/* hash.c: windows of images, their hashes, and the comparison of two images. */
#include "looks/looks.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    SMALL = 16, /* a window is averaged to SMALL x SMALL */
    LOW = 8,    /* of which LOW x LOW frequencies count */
    SPAN = 6    /* most pixels of a frame that a cell touches on a side */
};

const look_window *look_windows(void) {
    static const look_window all[LOOK_WINDOWS] = {
        {0, 0, 1, 1}, /* all of it */
        /* 10 % cut off each side: centered, and in the corners */
        {.05f, .05f, .9f, .9f},
        {0, 0, .9f, .9f},
        {.1f, 0, .9f, .9f},
        {0, .1f, .9f, .9f},
        {.1f, .1f, .9f, .9f},
        /* 20 %: every 10 % */
        {0, 0, .8f, .8f},
        {.1f, 0, .8f, .8f},
        {.2f, 0, .8f, .8f},
        {0, .1f, .8f, .8f},
        {.1f, .1f, .8f, .8f},
        {.2f, .1f, .8f, .8f},
        {0, .2f, .8f, .8f},
        {.1f, .2f, .8f, .8f},
        {.2f, .2f, .8f, .8f},
        /* 30 % */
        {0, 0, .7f, .7f},
        {.1f, 0, .7f, .7f},
        {.2f, 0, .7f, .7f},
        {.3f, 0, .7f, .7f},
        {0, .1f, .7f, .7f},
        {.1f, .1f, .7f, .7f},
        {.2f, .1f, .7f, .7f},
        {.3f, .1f, .7f, .7f},
        {0, .2f, .7f, .7f},
        {.1f, .2f, .7f, .7f},
        {.2f, .2f, .7f, .7f},
        {.3f, .2f, .7f, .7f},
        {0, .3f, .7f, .7f},
        {.1f, .3f, .7f, .7f},
        {.2f, .3f, .7f, .7f},
        {.3f, .3f, .7f, .7f},
        /* one or two sides */
        {0, 0, 1, .85f},
        {0, .15f, 1, .85f},
        {0, .075f, 1, .85f},
        {0, 0, .85f, 1},
        {.15f, 0, .85f, 1},
        {.075f, 0, .85f, 1},
        {0, .125f, 1, .75f},
        {.125f, 0, .75f, 1},
    };
    return all;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* The share that each of `span` pixels, from first on, has in each of m cells of one side of a
 * window; they add up to 1. */
typedef struct shares {
    int first[LOOK_SIDE];
    float of[LOOK_SIDE][SPAN];
} shares;

static void share(float at, float size, int side, int span, int m, shares *out) {
    for (int j = 0; j < m; j++) {
        float from = (at + size * (float)j / (float)m) * (float)side;
        float to = (at + size * (float)(j + 1) / (float)m) * (float)side, sum = 0;
        int first = (int)from < side - span ? (int)from : side - span;
        out->first[j] = first = first < 0 ? 0 : first;
        for (int k = 0; k < span; k++) {
            float x = (float)(first + k), part = fminf(to, x + 1) - fmaxf(from, x);
            sum += out->of[j][k] = part > 0 ? part : 0;
        }
        for (int k = 0; k < span; k++) out->of[j][k] /= sum > 0 ? sum : 1;
    }
}

/* The means of m x m cells of a window of an image [side,side], m up to LOOK_SIDE. */
static inline __attribute__((always_inline)) void cells(const float *restrict pixels, int side,
                                                        int span, int m, look_window at,
                                                        float *restrict out) {
    shares x, y;
    share(at.x, at.w, side, span, m, &x);
    share(at.y, at.h, side, span, m, &y);
    for (int i = 0; i < m; i++) {
        float row[LOOK_FRAME] = {0};
        for (int k = 0; k < span; k++) {
            const float *from = pixels + (size_t)(y.first[i] + k) * (size_t)side;
            for (int u = 0; u < side; u++) row[u] += y.of[i][k] * from[u];
        }
        for (int j = 0; j < m; j++) {
            float sum = 0;
            for (int k = 0; k < span; k++) sum += x.of[j][k] * row[x.first[j] + k];
            out[i * m + j] = sum;
        }
    }
}

static void cells_of_frame(const float *frame, look_window at, float *out) {
    cells(frame, LOOK_FRAME, SPAN, SMALL, at, out);
}

static void cells_of_small(const float *gray, look_window at, float *out) {
    cells(gray, LOOK_SIDE, 4, SMALL, at, out);
}

/* ---- hashing --------------------------------------------------------------------------------- */

/* Low frequencies of a window: [LOW,LOW]. */
static void frequencies(const float *frame, const float wave[LOW][SMALL], look_window at,
                        float *value) {
    float cell[SMALL * SMALL], half[LOW][SMALL];
    cells_of_frame(frame, at, cell);
    for (int l = 0; l < LOW; l++) {
        for (int j = 0; j < SMALL; j++) half[l][j] = 0;
        for (int i = 0; i < SMALL; i++)
            for (int j = 0; j < SMALL; j++) half[l][j] += wave[l][i] * cell[i * SMALL + j];
        for (int k = 0; k < LOW; k++) {
            float s = 0;
            for (int j = 0; j < SMALL; j++) s += half[l][j] * wave[k][j];
            value[l * LOW + k] = s;
        }
    }
}

void look_hashes(const unsigned char *frame, look *out) {
    static const double pi = 3.14159265358979323846;
    float pixels[LOOK_FRAME * LOOK_FRAME], wave[LOW][SMALL], value[LOW * LOW];
    for (int i = 0; i < LOOK_FRAME * LOOK_FRAME; i++) pixels[i] = frame[i];
    for (int k = 0; k < LOW; k++)
        for (int j = 0; j < SMALL; j++) wave[k][j] = (float)cos(pi * k * (j + 0.5) / SMALL);
    for (int v = LOOK_WINDOWS - 1; v >= 0; v--) { /* the whole image last: its values stay */
        frequencies(pixels, (const float(*)[SMALL])wave, look_windows()[v], value);
        out->hash[v] = 0;
        for (int b = 1; b < LOW * LOW; b++) /* the first is the brightness */
            out->hash[v] |= (uint64_t)(value[b] > 0) << b;
    }
    value[0] = FLT_MAX;
    for (int w = 0; w < LOOK_WEAK; w++) {
        int least = 0;
        for (int b = 1; b < LOW * LOW; b++)
            if (fabsf(value[b]) < fabsf(value[least])) least = b;
        out->weak[w] = (unsigned char)least;
        value[least] = FLT_MAX;
    }
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

/* The correlation of a, standardized, with a window of b: [LOOK_SIDE,LOOK_SIDE]. */
static float correlate(const float *a, const float *b, look_window at) {
    float cell[SMALL * SMALL], sum = 0, square = 0, dot = 0;
    cells_of_small(b, at, cell);
    for (int i = 0; i < SMALL * SMALL; i++) sum += cell[i];
    float mean = sum / (SMALL * SMALL);
    for (int i = 0; i < SMALL * SMALL; i++) {
        float v = cell[i] - mean;
        square += v * v, dot += a[i] * v;
    }
    return square > 1e-6f ? dot / sqrtf(square) : 0;
}

/* The correlation of the differences between neighbors, as fine as the window is: outlines must match,
 * too, or simple pictures of other things of about the same shape would count as copies. */
static float correlate_edges(const look *a, const float *b, look_window at) {
    enum { MOST = LOOK_SIDE, N = 2 * MOST * (MOST - 1) };
    float gray[MOST * MOST], cell[2][MOST * MOST], d[2][N], dot = 0;
    int m = (int)(fminf(at.w, at.h) * MOST + 0.01f), n = 0;
    m = m < SMALL ? SMALL : m > MOST ? MOST : m;
    for (int i = 0; i < MOST * MOST; i++) gray[i] = a->gray[i];
    cells(gray, LOOK_SIDE, 4, m, (look_window){0, 0, 1, 1}, cell[0]);
    cells(b, LOOK_SIDE, 4, m, at, cell[1]);
    for (int k = 0; k < 2; k++) {
        n = 0;
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++) {
                const float *x = cell[k] + i * m + j;
                if (j + 1 < m) d[k][n++] = x[1] - x[0];
                if (i + 1 < m) d[k][n++] = x[m] - x[0];
            }
        if (!standardize(d[k], n)) return 0;
    }
    for (int i = 0; i < n; i++) dot += d[0][i] * d[1][i];
    return dot;
}

enum { TONES = 4 }; /* cells of a side at which colors are compared */

/* The colors of a window, [2,TONES,TONES]. */
static void tones(const look *l, look_window at, float *out) {
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < TONES; i++)
            for (int j = 0; j < TONES; j++) {
                float top = (at.y + at.h * (float)i / TONES) * LOOK_CHROMA;
                float left = (at.x + at.w * (float)j / TONES) * LOOK_CHROMA;
                float bottom = top + at.h * LOOK_CHROMA / TONES;
                float right = left + at.w * LOOK_CHROMA / TONES, sum = 0, weight = 0;
                for (int y = (int)top; (float)y < bottom && y < LOOK_CHROMA; y++)
                    for (int x = (int)left; (float)x < right && x < LOOK_CHROMA; x++) {
                        float w = (fminf(bottom, (float)y + 1) - fmaxf(top, (float)y)) *
                                  (fminf(right, (float)x + 1) - fmaxf(left, (float)x));
                        sum += w * (float)l->chroma[2 * (y * LOOK_CHROMA + x) + c], weight += w;
                    }
                *out++ = weight > 0 ? sum / weight : 0;
            }
}

/* The mean difference of the colors, in levels. */
static float colors_apart(const look *a, const look *b, look_window at) {
    float x[2 * TONES * TONES], y[2 * TONES * TONES], sum = 0;
    tones(a, (look_window){0, 0, 1, 1}, x);
    tones(b, at, y);
    for (int i = 0; i < 2 * TONES * TONES; i++) sum += fabsf(x[i] - y[i]);
    return sum / (2 * TONES * TONES);
}

/* One edge of a window moved: 8 ways.  False: it would leave the image, or become too small. */
static bool move_edge(look_window *t, int edge, float step) {
    float by = edge & 1 ? step : -step;
    if (edge / 2 == 0) t->x += by, t->w -= by;
    if (edge / 2 == 1) t->y += by, t->h -= by;
    if (edge / 2 == 2) t->w += by;
    if (edge / 2 == 3) t->h += by;
    return t->x >= 0 && t->y >= 0 && t->x + t->w <= 1.0001f && t->y + t->h <= 1.0001f &&
           t->w >= 0.55f && t->h >= 0.55f;
}

bool look_own(const look *l, float *own) {
    float gray[LOOK_SIDE * LOOK_SIDE];
    for (int i = 0; i < LOOK_SIDE * LOOK_SIDE; i++) gray[i] = l->gray[i];
    cells_of_small(gray, (look_window){0, 0, 1, 1}, own);
    return standardize(own, SMALL * SMALL);
}

float look_compare(const look *a, const float *own, const look *b, look_window at) {
    enum { COLORS = 16 }; /* levels that an encoder may shift them by, and a little more */
    float gray[LOOK_SIDE * LOOK_SIDE], best;
    for (int i = 0; i < LOOK_SIDE * LOOK_SIDE; i++) gray[i] = b->gray[i];
    best = correlate(own, gray, at);
    if (best < 0.6f) return best;
    for (float step = 0.04f; step > 0.004f; step /= 2) { /* each edge is moved while that helps */
        if (step < 0.03f && best < LOOK_LEAST - 0.03f) return best; /* it will not get there */
        for (int round = 0; round < 3; round++) {
            float before = best;
            for (int edge = 0; edge < 8; edge++) {
                look_window t = at;
                if (!move_edge(&t, edge, step)) continue;
                float now = correlate(own, gray, t);
                if (now > best) best = now, at = t;
            }
            if (best <= before) break;
        }
    }
    if (best >= LOOK_LEAST) best = fminf(best, 1 - 0.6f * (1 - correlate_edges(a, gray, at)));
    return colors_apart(a, b, at) > COLORS ? fminf(best, 0.5f) : best;
}
