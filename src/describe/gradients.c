/* gradients.c: histograms of gradient directions over cells, normalized by blocks (describe.h).
 *
 * Directions are found by products with fixed vectors rather than by an arc tangent, four pixels at
 * a time; rows of pixels are added up into rows of cells first, columns at the end. */
#include "describe/describe.h"
#include "kernels/quad.h"

#include <math.h>
#include <string.h>

enum {
    SIDE = DESCRIBE_SIDE,
    BINS = DESCRIBE_DIRECTIONS,
    CELLS = DESCRIBE_CELLS,
    CELL = SIDE / CELLS
};

static const float cut = 0.9396926f; /* cos(pi/9) */
static const float unit[BINS][2] = {
    {1, 0},
    {0.9396926f, 0.3420201f},
    {0.7660444f, 0.6427876f},
    {0.5f, 0.8660254f},
    {0.1736482f, 0.9848078f},
    {-0.1736482f, 0.9848078f},
    {-0.5f, 0.8660254f},
    {-0.7660444f, 0.6427876f},
    {-0.9396926f, 0.3420201f},
};

/* One row of pixels of each direction: the strongest channel's gradient.  root: square roots of the
 * channels. */
static void row_directions(const describe_plane *root, int y, float out[BINS][SIDE]) {
    for (int x = 0; x < SIDE; x += 4) {
        quad gx = quad_of(0), gy = quad_of(0), square = quad_of(-1), length;
        for (int k = 0; k < 3; k++) {
            quad dx = quad_at(&root[k].at[y + 1][x + 2]) - quad_at(&root[k].at[y + 1][x]);
            quad dy = quad_at(&root[k].at[y + 2][x + 1]) - quad_at(&root[k].at[y][x + 1]);
            quad here = dx * dx + dy * dy;
            quad_mask more = here > square;
            gx = quad_where(more, dx) + quad_where(~more, gx);
            gy = quad_where(more, dy) + quad_where(~more, gy);
            square = quad_max(here, square);
        }
        quad_mask real = square > quad_of(1e-6f);
        gx = quad_where(real, gx), gy = quad_where(real, gy), square = quad_where(real, square);
        for (int l = 0; l < 4; l++) length[l] = sqrtf(square[l]);
        for (int b = 0; b < BINS; b++) {
            quad along = gx * quad_of(unit[b][0]) + gy * quad_of(unit[b][1]);
            quad part = quad_max(along, -along) - length * quad_of(cut);
            quad_put(&out[b][x], quad_max(part, quad_of(0)) * quad_of(1 / (1 - cut)));
        }
    }
}

/* The weight of pixel x in the cells around it: *low, whose share is the result, and *low + 1,
 * whose is the rest.  Cells -1 and CELLS lie outside. */
static float share(int x, int *low) {
    float at = ((float)x - 0.5f * (CELL - 1)) / CELL;
    *low = (int)floorf(at);
    return 1 - (at - (float)*low);
}

static void add_row(float to[BINS][SIDE], float row[BINS][SIDE], float weight) {
    for (int b = 0; b < BINS; b++)
        for (int x = 0; x < SIDE; x += 4)
            quad_put(&to[b][x], quad_at(&to[b][x]) + quad_at(&row[b][x]) * quad_of(weight));
}

/* Cells [CELLS,CELLS,BINS] to their normalized values. */
static void normalize_blocks(const float *cell, float *out) {
    enum { n = CELLS };
    float energy[CELLS * CELLS] = {0}, block[CELLS * CELLS];
    for (int i = 0; i < n * n; i++)
        for (int b = 0; b < BINS; b++) energy[i] += cell[i * BINS + b] * cell[i * BINS + b];
    for (int y = 0; y < n - 1; y++)
        for (int x = 0; x < n - 1; x++) {
            const float *e = energy + y * n + x;
            block[y * n + x] = 1 / sqrtf(0.01f + e[0] + e[1] + e[n] + e[n + 1]);
        }
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) {
            const float *from = cell + (y * n + x) * BINS;
            float *to = out + (y * n + x) * BINS;
            for (int b = 0; b < BINS; b++) to[b] = 0;
            for (int k = 0; k < 4; k++) {
                int by = least(y - (k < 2 ? 1 : 0), n - 2), bx = least(x - (k % 2 ? 0 : 1), n - 2);
                float scale = block[(by < 0 ? 0 : by) * n + (bx < 0 ? 0 : bx)];
                for (int b = 0; b < BINS; b++) to[b] += 0.25f * fminf(from[b] * scale, 0.2f);
            }
        }
}

void describe_gradients(const describe_plane *rgb, float *out) {
    describe_plane root[3];
    float row[BINS][SIDE], band[CELLS][BINS][SIDE] = {0};
    float cell[CELLS][CELLS][BINS] = {0}, even[CELLS * CELLS * BINS];
    for (int k = 0; k < 3; k++)
        for (int y = 0; y < SIDE + 2; y++)
            for (int x = 0; x < SIDE + 2; x++) root[k].at[y][x] = sqrtf(rgb[k].at[y][x]);
    for (int y = 0; y < SIDE; y++) {
        int low;
        float weight = share(y, &low);
        row_directions(root, y, row);
        if (low >= 0) add_row(band[low], row, weight);
        if (low + 1 < CELLS) add_row(band[low + 1], row, 1 - weight);
    }
    for (int x = 0; x < SIDE; x++) {
        int low;
        float weight = share(x, &low);
        for (int y = 0; y < CELLS; y++)
            for (int b = 0; b < BINS; b++) {
                if (low >= 0) cell[y][low][b] += weight * band[y][b][x];
                if (low + 1 < CELLS) cell[y][low + 1][b] += (1 - weight) * band[y][b][x];
            }
    }
    normalize_blocks(&cell[0][0][0], even);
    describe_waves(even, BINS, out);
}
