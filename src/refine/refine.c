/* refine.c: a head trained with the method's loss on frozen features. */
#include "base/status.h"
#include "conr.h"

conr_refine_options conr_refine_defaults(void) {
    return (conr_refine_options){.neighbors = conr_neighbors_defaults(), .seed = 1};
}

int conr_refine(conr *c, const float *features, int64_t n, int64_t d, const conr_refine_options *o,
                conr_head **out) {
    (void)c, (void)features, (void)n, (void)d, (void)o, (void)out;
    return fail(CONR_EINVAL, "refine: not built yet; use none");
}

void conr_head_close(conr_head *h) { (void)h; }

void conr_head_about(const conr_head *h, int64_t *d, int64_t *width) { (void)h, *d = *width = 0; }

int conr_head_apply(conr *c, const conr_head *h, const float *features, int64_t n, int64_t d,
                    float *out) {
    (void)c, (void)h, (void)features, (void)n, (void)d, (void)out;
    return fail(CONR_EINVAL, "refine: not built yet; use none");
}

int conr_head_save(const conr_head *h, const char *path) {
    (void)h;
    return fail(CONR_EINVAL, "%s: not built yet; use none", path);
}

int conr_head_open(conr *c, const char *path, conr_head **out) {
    (void)c, (void)out;
    return fail(CONR_EINVAL, "%s: not built yet; use none", path);
}
