/* draw.h: what is random about a view of an image: crop, flip, color, blur.
 *
 * One source (draw_body.h) is compiled for the CPU and for the GPU and gives the same bits on both.
 * It does not touch pixels (pixels.h, device/cuda/views.cu).  The distributions are those of
 * torchvision's RandomResizedCrop, RandomHorizontalFlip, ColorJitter, RandomGrayscale, GaussianBlur
 * and RandomSolarize. */
#ifndef CONR_DRAW_H
#define CONR_DRAW_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The distribution; filled by draw_policy_default and changed by settings. */
typedef struct draw_policy {
    float scale_low, scale_high;                 /* share of the area of the image */
    float log_ratio_low, log_ratio_high;         /* natural logarithm of width / height */
    float ratio_low, ratio_high;                 /* width / height itself */
    float flip;                                  /* probability */
    float jitter;                                /* probability of all four below */
    float brightness, contrast, saturation, hue; /* half widths about 1, 1, 1, 0 */
    float gray;                                  /* probability */
    float blur, sigma_low, sigma_high;           /* probability; pixels */
    float solarize;                              /* probability */
} draw_policy;

enum { DRAW_BRIGHTNESS, DRAW_CONTRAST, DRAW_SATURATION, DRAW_HUE };

typedef struct draw {
    int32_t x, y, w, h;                         /* crop box in the source image */
    int32_t flip, jitter, gray, blur, solarize; /* 0 or 1 */
    int32_t order[4];                           /* of the color operations, DRAW_BRIGHTNESS ... */
    float brightness, contrast, saturation;     /* factors */
    float hue;                                  /* shift, of a full turn */
    float sigma;
} draw;

/* The views of stage 1 of the method: scale [0.08,1], ratio [3/4,4/3], color jitter (.4,.4,.4,.1)
 * with probability .8, gray with .2. */
draw_policy draw_policy_default(void);
void draw_policy_ratio(draw_policy *p, double low, double high);

/* The widest and the tallest crop of an image of *w x *h pixels: no wider or taller than that. */
void draw_box(const draw_policy *p, int *w, int *h);

/* The draw for a view (RNG_VIEW_A or RNG_VIEW_B) of image `image`, which has width x height
 * pixels. */
draw draw_view(const draw_policy *p, uint64_t seed, uint32_t epoch, uint32_t image, uint32_t view,
               int width, int height);

#ifdef __cplusplus
}
#endif
#endif
