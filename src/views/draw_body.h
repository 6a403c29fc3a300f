/* draw_body.h: the draws themselves, included by draw.c and by CUDA files, all compiled without
 * fused multiply-add.  Only + - x /, sqrt and our own polynomial: the same bits on both. */
#ifndef CONR_DRAW_BODY_H
#define CONR_DRAW_BODY_H

#include "base/rng.h"
#include "views/draw.h"

#include <math.h>

static inline BOTH_SIDES float draw_between(rng *r, float low, float high) {
    return low + (high - low) * rng_float(r);
}

/* e^x for |x| < 20, to 2 units in the last place: x = k ln 2 + t, Taylor in t, scaled by 2^k. */
static inline BOTH_SIDES float draw_exp(float x) {
    float k = floorf(x * 1.44269504f + 0.5f);
    float t = (x - k * 0.693359375f) + k * 2.12194440e-4f; /* ln 2 in two parts */
    float e = 1.0f / 5040.0f;
    e = e * t + 1.0f / 720.0f;
    e = e * t + 1.0f / 120.0f;
    e = e * t + 1.0f / 24.0f;
    e = e * t + 1.0f / 6.0f;
    e = e * t + 0.5f;
    e = e * t + 1.0f;
    e = e * t + 1.0f;
    float two = k < 0 ? 0.5f : 2.0f;
    for (int i = (int)(k < 0 ? -k : k); i > 0; i--) e *= two;
    return e;
}

static inline BOTH_SIDES int32_t draw_round(float x) { return (int32_t)(x + 0.5f); } /* x >= 0 */

/* RandomResizedCrop: ten tries, then the central fallback. */
static inline BOTH_SIDES void draw_crop(const draw_policy *p, rng *r, int width, int height,
                                        draw *d) {
    float area = (float)width * (float)height;
    for (int attempt = 0; attempt < 10; attempt++) {
        float target = area * draw_between(r, p->scale_low, p->scale_high);
        float ratio = draw_exp(draw_between(r, p->log_ratio_low, p->log_ratio_high));
        d->w = draw_round(sqrtf(target * ratio));
        d->h = draw_round(sqrtf(target / ratio));
        if (d->w <= 0 || d->w > width || d->h <= 0 || d->h > height) continue;
        d->y = (int32_t)rng_below(r, (uint32_t)(height - d->h + 1));
        d->x = (int32_t)rng_below(r, (uint32_t)(width - d->w + 1));
        return;
    }
    float ratio = (float)width / (float)height;
    d->w = width, d->h = height;
    if (ratio < p->ratio_low) d->h = draw_round((float)width / p->ratio_low);
    if (ratio > p->ratio_high) d->w = draw_round((float)height * p->ratio_high);
    d->y = (height - d->h) / 2;
    d->x = (width - d->w) / 2;
}

static inline BOTH_SIDES float draw_factor(rng *r, float half_width) {
    float low = 1.0f - half_width;
    return draw_between(r, low > 0 ? low : 0, 1.0f + half_width);
}

/* Every value is drawn whether it is used or not, so that switching one thing off leaves the others
 * unchanged. */
static inline BOTH_SIDES draw draw_make(const draw_policy *p, uint64_t seed, uint32_t epoch,
                                        uint32_t image, uint32_t view, int width, int height) {
    draw d;
    rng r = rng_at(seed, epoch, image, view);
    d.flip = rng_float(&r) < p->flip;
    d.jitter = rng_float(&r) < p->jitter;
    d.gray = rng_float(&r) < p->gray;
    d.blur = rng_float(&r) < p->blur;
    d.solarize = rng_float(&r) < p->solarize;
    d.brightness = draw_factor(&r, p->brightness);
    d.contrast = draw_factor(&r, p->contrast);
    d.saturation = draw_factor(&r, p->saturation);
    d.hue = draw_between(&r, -p->hue, p->hue);
    d.sigma = draw_between(&r, p->sigma_low, p->sigma_high);
    for (int i = 0; i < 4; i++) d.order[i] = i;
    for (int i = 3; i > 0; i--) {
        int j = (int)rng_below(&r, (uint32_t)i + 1);
        int32_t swap = d.order[i];
        d.order[i] = d.order[j];
        d.order[j] = swap;
    }
    draw_crop(p, &r, width, height, &d);
    return d;
}

#endif
