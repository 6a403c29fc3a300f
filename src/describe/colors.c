/* colors.c: where colors are, how many there are of each, and the texture of the lightness
 * (describe.h). */
#include "describe/describe.h"
#include "kernels/quad.h"

#include <string.h>

enum {
    SIDE = DESCRIBE_SIDE,
    HALF = SIDE / 2,
    CELLS = DESCRIBE_CELLS,
    CELL = SIDE / CELLS,
    COLORS = 8 + 12 + 12
};

/* Adds a value to a histogram of n bins from low to high, shared between the two nearest bins.
 * bin: [n + 1], the last of which stays 0. */
INLINE void count(float value, float low, float high, int n, float *bin) {
    float at = (value - low) * ((float)(n - 1) / (high - low));
    at = at < 0 ? 0 : at > (float)(n - 1) ? (float)(n - 1) : at;
    int i = (int)at;
    float more = at - (float)i;
    bin[i] += 1 - more;
    bin[i + 1] += more;
}

void describe_colors(const describe_plane *rgb, float *layout, float *colors) {
    float mean[CELLS * CELLS][3] = {0};
    memset(colors, 0, DESCRIBE_COLORS * sizeof *colors);
    for (int part = 0; part < CELLS * CELLS; part++) {
        int top = part / CELLS * CELL, left = part % CELLS * CELL;
        float *to = colors + (top / HALF * 2 + left / HALF) * COLORS;
        float bin[COLORS + 3] = {0}, *sum = mean[part];
        for (int y = top; y < top + CELL; y++)
            for (int x = left; x < left + CELL; x++) {
                float r = rgb[0].at[y + 1][x + 1], g = rgb[1].at[y + 1][x + 1],
                      b = rgb[2].at[y + 1][x + 1];
                float light = (r + g + b) * (1 / 3.0f), red = 2 * (r - g), yellow = r + g - 2 * b;
                sum[0] += light, sum[1] += red, sum[2] += yellow;
                count(light, 0, 1, 8, bin);
                count(red, -0.5f, 0.5f, 12, bin + 9);
                count(yellow, -0.5f, 0.5f, 12, bin + 22);
            }
        for (int k = 0; k < 3; k++) sum[k] *= 1.0f / (CELL * CELL);
        for (int i = 0; i < COLORS; i++) to[i] += bin[i < 8 ? i : i < 20 ? i + 1 : i + 2];
    }
    describe_waves(mean[0], 3, layout);
}

/* ---- texture --------------------------------------------------------------------------------- */

enum { PATTERNS = 59, INNER = SIDE - 2, CUT = INNER / 2 };

/* The uniform patterns, those with at most two changes around the circle, in ascending order; the
 * others share the last bin. */
static int pattern_bin(int code) {
    int bin = 0;
    for (int c = 0; c <= code; c++) {
        int turned = ((c << 1) | (c >> 7)) & 255;
        bool uniform = __builtin_popcount((unsigned)(c ^ turned)) <= 2;
        if (c == code) return uniform ? bin : PATTERNS - 1;
        bin += uniform;
    }
    return bin;
}

void describe_texture(const describe_plane *rgb, float *texture) {
    /* clockwise from the top left; rows and columns as in a plane with its border */
    static const int around[8][2] = {{0, 0}, {0, 1}, {0, 2}, {1, 2},
                                     {2, 2}, {2, 1}, {2, 0}, {1, 0}};
    float light[SIDE][DESCRIBE_STRIDE] = {0};
    int seen[2][2][256] = {0};
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x += 4) {
            quad sum = quad_at(&rgb[0].at[y + 1][x + 1]) + quad_at(&rgb[1].at[y + 1][x + 1]) +
                       quad_at(&rgb[2].at[y + 1][x + 1]);
            quad_put(&light[y][x], sum * quad_of(1 / 3.0f));
        }
    for (int y = 0; y < INNER; y++)
        for (int x = 0; x < INNER; x += 4) {
            quad bound = quad_at(&light[y + 1][x + 1]) + quad_of(0.01f);
            quad_mask code = {0};
            for (int k = 0; k < 8; k++) {
                quad_mask more = quad_at(&light[y + around[k][0]][x + around[k][1]]) > bound;
                code |= more & (1 << k);
            }
            for (int l = 0; l < 4 && x + l < INNER; l++) seen[y >= CUT][x + l >= CUT][code[l]]++;
        }
    memset(texture, 0, DESCRIBE_TEXTURE * sizeof *texture);
    for (int code = 0; code < 256; code++) {
        int bin = pattern_bin(code);
        for (int part = 0; part < 4; part++)
            texture[part * PATTERNS + bin] += (float)seen[part / 2][part % 2][code];
    }
}
