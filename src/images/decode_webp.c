/* decode_webp.c: libwebp behind decode.h.  Of an animation the first frame is read, on a black canvas
 * where it does not cover that. */
#include "images/decode_codecs.h"

#include "base/status.h"

#include <stdint.h>
#include <string.h>

#include <webp/decode.h>

static uint32_t little(const unsigned char *p, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)p[i] << 8 * i;
    return value;
}

/* The first chunk of this kind in a RIFF file: four letters, a size, the bytes, padded to an even
 * number.  NULL: there is none. */
static const unsigned char *find_chunk(const unsigned char *bytes, size_t n, const char *kind,
                                       size_t *size) {
    for (size_t at = 12; at + 8 <= n; at += 8 + *size + (*size & 1)) {
        *size = little(bytes + at + 4, 4);
        if (*size > n - at - 8) return NULL;
        if (!memcmp(bytes + at, kind, 4)) return bytes + at + 8;
    }
    return NULL;
}

static int find_orientation(const unsigned char *bytes, size_t n) {
    size_t size = 0;
    const unsigned char *body = find_chunk(bytes, n, "EXIF", &size);
    if (!body) return 1;
    size_t skip = size >= 6 && !memcmp(body, "Exif\0\0", 6) ? 6 : 0;
    return decode_exif(body + skip, size - skip);
}

/* Pixels of a still image, or of a frame, to a place in j->out, which has room. */
static int read_pixels(decode_job *j, const unsigned char *bytes, size_t n, int x, int y, int w,
                       int h) {
    WebPDecoderConfig to;
    image *m = j->out;
    size_t row = 3 * (size_t)m->w;
    if (!WebPInitDecoderConfig(&to)) return decode_fail(j, "WebP", "another version of libwebp");
    to.output.colorspace = MODE_RGB;
    to.output.is_external_memory = 1;
    to.output.u.RGBA = (WebPRGBABuffer){m->pixels + (size_t)y * row + 3 * (size_t)x, (int)row,
                                        row * (size_t)(h - 1) + 3 * (size_t)w};
    VP8StatusCode status = WebPDecode(bytes, n, &to);
    WebPFreeDecBuffer(&to.output);
    /* libwebp also calls missing memory an abort by the user, who never does */
    if (status == VP8_STATUS_OUT_OF_MEMORY || status == VP8_STATUS_USER_ABORT)
        return decode_fail_memory(j);
    return status == VP8_STATUS_OK ? 0 : decode_fail(j, "WebP", "its pixels cannot be decoded");
}

/* A frame: x/2, y/2, w-1, h-1, the time (3 bytes each), flags, then the chunks of its image. */
static int read_frame(decode_job *j) {
    enum { HEAD = 16 };
    size_t size = 0;
    WebPBitstreamFeatures f;
    const unsigned char *p = find_chunk(j->bytes, j->n, "ANMF", &size);
    if (!p || size < HEAD) return decode_fail(j, "WebP", "it has no frame");
    long x = 2 * (long)little(p, 3), y = 2 * (long)little(p + 3, 3);
    long w = 1 + (long)little(p + 6, 3), h = 1 + (long)little(p + 9, 3);
    if (x + w > j->w || y + h > j->h) return decode_fail(j, "WebP", "a frame beyond its edges");
    if (WebPGetFeatures(p + HEAD, size - HEAD, &f) != VP8_STATUS_OK || f.width != w ||
        f.height != h)
        return decode_fail(j, "WebP", "the header of its first frame cannot be read");
    if (w < j->w || h < j->h) memset(j->out->pixels, 0, 3 * (size_t)j->w * (size_t)j->h);
    return read_pixels(j, p + HEAD, size - HEAD, (int)x, (int)y, (int)w, (int)h);
}

int decode_webp(decode_job *j) {
    int rc = 0;
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(j->bytes, j->n, &f) != VP8_STATUS_OK)
        TRY(decode_fail(j, "WebP", "its header cannot be read"));
    j->w = f.width, j->h = f.height;
    j->orientation = find_orientation(j->bytes, j->n);
    TRY(decode_check_size(j, f.width, f.height,
                          1e9)); /* one color takes a few bytes, whatever the size */
    if (j->only_head) goto done;
    TRY(image_reserve(j->out, f.width, f.height, 3));
    TRY(f.has_animation ? read_frame(j) : read_pixels(j, j->bytes, j->n, 0, 0, f.width, f.height));
done:
    return rc;
}
