/* describe.h: the built-in descriptor of an image: gradients, colors and texture, nothing learned.
 *
 * The image is squashed to 64 x 64 pixels (bicubic, values cut to [0,1]; gray counts as three equal
 * channels).  Four parts stand one after another:
 *
 *   gradients [9,10]   in 9 directions: per pixel that of the channel where it is strongest, of the
 *                      square root of the values; if shorter than 0.001, it is rounding and
 *                      counts as 0.  A pixel with gradient g gives direction
 *                      u_b = (cos, sin)(b pi/9)
 *                          max(0, |<g,u_b>| - |g| cos(pi/9)) / (1 - cos(pi/9)),
 *                      shared linearly among the 8 x 8 cells around it.  Each cell is divided by
 *                      sqrt(0.01 + squares of 2 x 2 cells) for each of the four such blocks around
 *                      it (at an edge, the nearest), each quotient cut at 0.2, and the four
 *                      averaged.  Of each direction's 8 x 8 values the cosine transform is kept
 *                      where the frequencies add up to at most 3
 *   layout    [3,10]   lightness (r+g+b)/3, red-green 2(r-g) and yellow-blue r+g-2b: their means
 *                      over 8 x 8 squares, transformed likewise
 *   colors    [4,32]   in each quarter of the image, histograms of these three in 8, 12 and 12 bins,
 *                      a pixel shared linearly between two bins, from 0 to 1 and from -1/2 to 1/2;
 *                      square roots
 *   texture   [4,59]   in each quarter, a histogram of which of its 8 neighbors are lighter than a
 *                      pixel by 0.01 (the 58 uniform patterns, and all others); square roots
 *
 * Square roots make the distance of histograms Hellinger's; low frequencies forgive small shifts.
 * Neighboring directions, bins and quarters say much the same, so each part is turned (orthonormal,
 * basis.c): directions to harmonics, bins to a cosine transform, quarters to sums and differences.
 * Then it is scaled to length 1; less its mean over many photographs, since what all images have in
 * common would hide what tells them apart; divided by the square root of its deviation over them,
 * since what varies most would hide the rest (both constants, typical.c); and scaled to its weight
 * as length: 1.3 for gradients and texture, else 1.
 *
 * An image's descriptor depends on nothing else, so new images can be compared with old ones. */
#ifndef CONR_DESCRIBE_H
#define CONR_DESCRIBE_H

#include "images/store.h"
#include "views/pixels.h"

enum {
    DESCRIBE_SIDE = 64,   /* pixels */
    DESCRIBE_STRIDE = 72, /* floats from row to row of a plane: one pixel of border, and room for
                              vectors to read past the end */
    DESCRIBE_CELLS = 8,   /* in a row */
    DESCRIBE_DIRECTIONS = 9,
    DESCRIBE_WAVES = 10, /* coefficients kept of the transform of 8 x 8 values */
    DESCRIBE_GRADIENTS = DESCRIBE_DIRECTIONS * DESCRIBE_WAVES,
    DESCRIBE_LAYOUT = 3 * DESCRIBE_WAVES,
    DESCRIBE_COLORS = 2 * 2 * (8 + 12 + 12),
    DESCRIBE_TEXTURE = 2 * 2 * 59,
    DESCRIBE_SIZE = DESCRIBE_GRADIENTS + DESCRIBE_LAYOUT + DESCRIBE_COLORS + DESCRIBE_TEXTURE
};

/* A plane of an image with a border; pixel (y,x) is at[y + 1][x + 1]. */
typedef struct describe_plane {
    float at[DESCRIBE_SIDE + 2][DESCRIBE_STRIDE];
} describe_plane;

/* The buffers of one thread. */
typedef struct describer describer;

int describer_new(int channels, describer **out);
void describer_free(describer *d); /* NULL is fine */

/* The descriptor of an image [h,w,c].  out: [DESCRIBE_SIZE], the caller's. */
int describe_image(describer *d, const unsigned char *image, int w, int h, float *out);

/* The descriptors of stored images: row i is image id[i] (NULL: image i), n rows.
 * out: [n,DESCRIBE_SIZE]. */
int describe_store(const store *s, const int64_t *id, int64_t n, int threads, float *out);

/* The same for images that are read now; fails if one of them cannot be. */
int describe_ids(const source *s, const int64_t *id, int64_t n, int threads, float *out);

/* ---- the parts: values before they are scaled ------------------------------------------------ */

/* rgb: [3] planes with their border filled.  out: [DESCRIBE_GRADIENTS]. */
void describe_gradients(const describe_plane *rgb, float *out);
/* layout: [DESCRIBE_LAYOUT]; colors: [DESCRIBE_COLORS], without the square root. */
void describe_colors(const describe_plane *rgb, float *layout, float *colors);
/* texture: [DESCRIBE_TEXTURE], without the square root. */
void describe_texture(const describe_plane *rgb, float *texture);

/* The orthonormal cosine transform (DCT-II) of values [8,8,c], c <= DESCRIBE_DIRECTIONS, where the
 * frequencies u, v of row and column add up to at most 3, ordered by u, then v.  out: [c,WAVES]. */
void describe_waves(const float *values, int c, float *out);

/* ---- basis.c --------------------------------------------------------------------------------- */

/* The matrices, [to][from]. */
typedef struct describe_basis {
    float harmonics[DESCRIBE_DIRECTIONS * DESCRIBE_DIRECTIONS], cosines8[8 * 8], cosines12[12 * 12];
} describe_basis;

void describe_basis_make(describe_basis *b);
/* Turns the parts, in place. */
void describe_turn_gradients(const describe_basis *b, float *x);
void describe_turn_colors(const describe_basis *b, float *x);
void describe_turn_texture(float *x);

/* Over many photographs: the mean, and 1 / the square root of the deviation. */
extern const float describe_mean[DESCRIBE_SIZE], describe_scale[DESCRIBE_SIZE];

#endif
