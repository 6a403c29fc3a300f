/* fuzz_image.h: the body of the targets for image files: header, then pixels at full size
 * in color, and reduced in gray. */
#ifndef FUZZ_IMAGE_H
#define FUZZ_IMAGE_H

#include "fuzz.h"

#include "images/decode.h"

#include <stdlib.h>

static inline void fuzz_image(const uint8_t *bytes, size_t n) {
    decode_head head;
    image out = {0};
    int probed = decode_probe("fuzz", bytes, n, n, &head, NULL);
    /* large images only cost time: it is enough to decode them reduced */
    if (probed == 0 && (long)head.w * head.h <= 1 << 20) {
        if (decode("fuzz", bytes, n, 3, 0, &out) == 0 && (out.w != head.w || out.h != head.h))
            abort();
    }
    if (decode("fuzz", bytes, n, 1, 16, &out) == 0 && probed < 0) abort();
    image_free(&out);
}

#endif
