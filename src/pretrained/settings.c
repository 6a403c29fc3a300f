/* settings.c: what a caller may set of a pretrained network: KEY=VALUE. */
#include "pretrained/family.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const settings_pools[] = {"class", "mean", "head", NULL};          /* pooling */
const char *const settings_gelus[] = {"none", "exact", "quick", "tanh", NULL}; /* dense_then */
const char *const settings_filters[] = {"bilinear", "bicubic", NULL};          /* pixels_filter */

const pixels_norm settings_imagenet = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

static int wrong(const char *text, const char *why) {
    return fail(CONR_EINVAL, "%s: %s", text, why);
}

static int whole(const char *text, const char *value, int low, int high, int *out) {
    char *end;
    long v = strtol(value, &end, 10);
    if (end == value || *end || v < low || v > high)
        return fail(CONR_EINVAL, "%s: is no number from %d to %d; correct it", text, low, high);
    *out = (int)v;
    return 0;
}

static int word(const char *text, const char *value, const char *const *list, int first, int *out) {
    for (int i = first; list[i]; i++)
        if (!strcmp(value, list[i])) {
            *out = i;
            return 0;
        }
    return wrong(text, "no such word; see docs/encoders.md");
}

/* One number for all channels, or three. */
static int numbers(const char *text, const char *value, bool positive, bool *has, float out[3]) {
    char *end;
    int n = 0;
    for (const char *at = value; n < 3; at = end + 1) {
        out[n] = strtof(at, &end);
        if (end == at || !isfinite(out[n]) || (positive && !(out[n] > 0))) break;
        n++;
        if (*end != ',') break;
    }
    if ((n != 1 && n != 3) || *end)
        return wrong(text, positive ? "is not one or three positive numbers; write 0.5,0.5,0.5"
                                    : "is not one or three numbers; write 0.5,0.5,0.5");
    if (n == 1) out[1] = out[2] = out[0];
    *has = true;
    return 0;
}

static int parse_one(const char *text, encoder_settings *o) {
    const char *value = strchr(text, '=');
    size_t n = value ? (size_t)(value - text) : 0;
    if (!value) return wrong(text, "is no setting of an encoder; write KEY=VALUE");
    value++;
#define IS(key) (n == sizeof key - 1 && !strncmp(text, key, n))
    if (IS("size")) return whole(text, value, 1, 4096, &o->size);
    if (IS("resize")) return whole(text, value, 0, 8192, &o->side);
    if (IS("filter")) return word(text, value, settings_filters, 0, &o->filter);
    if (IS("mean")) return numbers(text, value, false, &o->has_mean, o->mean);
    if (IS("deviation")) return numbers(text, value, true, &o->has_deviation, o->deviation);
    if (IS("pool")) return word(text, value, settings_pools, 0, &o->pool);
    if (IS("gelu")) return word(text, value, settings_gelus, 1, &o->gelu);
    if (IS("heads")) return whole(text, value, 1, 1024, &o->heads);
#undef IS
    return wrong(text, "no such setting of an encoder; size, resize, filter, mean, deviation, "
                       "pool, gelu and heads are");
}

int settings_prepare(const encoder_settings *set, preparation *p) {
    if (set->size) { /* the same part of the image */
        p->side = (int)((int64_t)p->side * set->size / p->size);
        p->size = set->size;
    }
    if (set->side >= 0) p->side = set->side;
    if (p->side && p->side < p->size)
        return fail(CONR_EINVAL, "resize=%d: is less than the size, %d; use 0 to squash", p->side,
                    p->size);
    if (set->filter >= 0) p->filter = (pixels_filter)set->filter;
    if (set->has_mean) memcpy(p->norm.mean, set->mean, sizeof set->mean);
    if (set->has_deviation) memcpy(p->norm.deviation, set->deviation, sizeof set->deviation);
    return 0;
}

int settings_parse(const char *const *texts, encoder_settings *out) {
    int rc = 0;
    *out = (encoder_settings){.side = -1, .filter = -1, .pool = -1, .gelu = -1};
    for (; texts && *texts && rc == 0; texts++) rc = parse_one(*texts, out);
    return rc;
}
