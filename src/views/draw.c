/* draw.c: the draws for the CPU.  Compiled with contraction off, see CMakeLists.txt. */
#include "views/draw.h"

#include "views/draw_body.h"

void draw_policy_ratio(draw_policy *p, double low, double high) {
    p->ratio_low = (float)low, p->ratio_high = (float)high;
    p->log_ratio_low = (float)log(low), p->log_ratio_high = (float)log(high);
}

draw_policy draw_policy_default(void) {
    draw_policy p = {.scale_low = 0.08f,
                     .scale_high = 1,
                     .flip = 0.5f,
                     .jitter = 0.8f,
                     .brightness = 0.4f,
                     .contrast = 0.4f,
                     .saturation = 0.4f,
                     .hue = 0.1f,
                     .gray = 0.2f,
                     .sigma_low = 0.1f,
                     .sigma_high = 2};
    draw_policy_ratio(&p, 3.0 / 4, 4.0 / 3);
    return p;
}

/* Both sides of a crop are rounded, by at most half a pixel, from sides whose ratio is within the
 * policy's; so is the one side of the fallback. */
void draw_box(const draw_policy *p, int *w, int *h) {
    double wide = ((double)*h + 0.5) * (double)p->ratio_high * 1.00001 + 0.5;
    double tall = ((double)*w + 0.5) / (double)p->ratio_low * 1.00001 + 0.5;
    if (wide < *w) *w = (int)wide;
    if (tall < *h) *h = (int)tall;
}

draw draw_view(const draw_policy *p, uint64_t seed, uint32_t epoch, uint32_t image, uint32_t view,
               int width, int height) {
    return draw_make(p, seed, epoch, image, view, width, height);
}
