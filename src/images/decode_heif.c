/* decode_heif.c: libheif behind decode.h: HEIC and AVIF, the primary image of the file.
 *
 * libheif turns and mirrors by itself, as the container says; an orientation in the EXIF data is a
 * remark beside that, which no reader applies.  More than 8 bits become 8. */
#include "images/decode_codecs.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

#include <libheif/heif.h>

static int fail_heif(const decode_job *j, struct heif_error e) {
    /* what a file claims beyond libheif's limits has the code of missing memory, too */
    if (e.code == heif_error_Memory_allocation_error &&
        e.subcode != heif_suberror_Security_limit_exceeded)
        return decode_fail_memory(j);
    if (e.subcode == heif_suberror_Unsupported_codec)
        return fail(CONR_EFORMAT,
                    "%s: libheif has no decoder for it; install libheif-plugin-libde265 (HEIC) or "
                    "libheif-plugin-aomdec (AVIF)",
                    j->name);
    return decode_fail(j, decode_format(j->bytes, j->n), e.message);
}

static int read_pixels(decode_job *j, const struct heif_image_handle *handle) {
    int rc = 0, stride = 0;
    struct heif_image *m = NULL;
    /* planes of 16 bits, and the result in 8 */
    TRY(memory_check("image", 9.0 * j->w * j->h));
    struct heif_error e =
        heif_decode_image(handle, &m, heif_colorspace_RGB, heif_chroma_interleaved_RGB, NULL);
    if (e.code) TRY(fail_heif(j, e));
    const unsigned char *in = heif_image_get_plane_readonly(m, heif_channel_interleaved, &stride);
    int w = heif_image_get_width(m, heif_channel_interleaved);
    int h = heif_image_get_height(m, heif_channel_interleaved);
    if (!in || w != j->w || h != j->h)
        TRY(decode_fail(j, decode_format(j->bytes, j->n),
                        "its pixels are not what its header says"));
    TRY(image_reserve(j->out, w, h, 3));
    for (int y = 0; y < h; y++)
        memcpy(j->out->pixels + 3 * (size_t)y * (size_t)w, in + (size_t)y * (size_t)stride,
               3 * (size_t)w);
done:
    heif_image_release(m);
    return rc;
}

int decode_heif(decode_job *j) {
    int rc = 0;
    struct heif_image_handle *handle = NULL;
    struct heif_context *context = heif_context_alloc();
    if (!context) TRY(decode_fail_memory(j));
    struct heif_error e = heif_context_read_from_memory_without_copy(context, j->bytes, j->n, NULL);
    if (e.code) TRY(fail_heif(j, e));
    e = heif_context_get_primary_image_handle(context, &handle);
    if (e.code) TRY(fail_heif(j, e));
    j->w = heif_image_handle_get_width(handle), j->h = heif_image_handle_get_height(handle);
    TRY(decode_check_size(j, j->w, j->h, 1e9)); /* one color takes a few bytes */
    if (!j->only_head) TRY(read_pixels(j, handle));
done:
    heif_image_handle_release(handle);
    heif_context_free(context);
    return rc;
}
