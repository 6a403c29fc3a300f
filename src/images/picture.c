/* picture.c: single images for showing them: small ones as JPEG, whole ones as they are in their
 * file or, from arrays and for formats that browsers do not show, as PNG.  May be called by many
 * threads. */
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "images/images.h"
#include "views/pixels_resize.h"

#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct failing {
    struct jpeg_error_mgr base;
    jmp_buf out;
} failing;

static void on_error(j_common_ptr c) { longjmp(((failing *)c->err)->out, 1); }

static int write_jpeg(const unsigned char *rgb, int w, int h, unsigned char **bytes, int64_t *n) {
    struct jpeg_compress_struct c = {0};
    failing why;
    unsigned char *buffer = NULL;
    unsigned long size = 0;
    c.err = jpeg_std_error(&why.base);
    why.base.error_exit = on_error;
    if (setjmp(why.out)) {
        jpeg_destroy_compress(&c); /* what it has written so far is the codec's own, and lost */
        return fail_memory("picture", 3.0 * w * h);
    }
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &buffer, &size);
    c.image_width = (JDIMENSION)w, c.image_height = (JDIMENSION)h;
    c.input_components = 3, c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 80, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = (JSAMPROW)(rgb + (size_t)c.next_scanline * (size_t)w * 3);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    *bytes = buffer, *n = (int64_t)size;
    return 0;
}

static int check_number(const conr_images *m, int64_t i) {
    return i >= 0 && i < m->source.n
               ? 0
               : fail(CONR_EINVAL, "image: there is no such one; give 0 to n-1");
}

int conr_images_thumb(const conr_images *m, int64_t i, int side, unsigned char **jpeg, int64_t *n) {
    int rc = 0;
    image whole = {0};
    resizer r = {0};
    unsigned char *square = NULL, *small = NULL;
    *jpeg = NULL;
    TRY(check_number(m, i));
    if (side < 1 || side > 2048)
        TRY(fail(CONR_EINVAL, "side: %d is out of range; give 1 to 2048", side));
    TRY(source_read(&m->source, i, 3, side, &whole));
    int s = whole.w < whole.h ? whole.w : whole.h, to = s < side ? s : side;
    int left = (whole.w - s) / 2, top = (whole.h - s) / 2;
    square = memory_new("picture", (size_t)s * (size_t)s, 3);
    small = memory_new("picture", (size_t)to * (size_t)to, 3);
    TRY(square && small ? 0 : CONR_ENOMEM);
    for (int y = 0; y < s; y++)
        memcpy(square + (size_t)y * (size_t)s * 3,
               whole.pixels + ((size_t)(top + y) * (size_t)whole.w + (size_t)left) * 3,
               (size_t)s * 3);
    if (to < s) TRY(resizer_bytes(&r, PIXELS_BILINEAR, square, s, s, 3, to, to, small));
    TRY(write_jpeg(to < s ? small : square, to, to, jpeg, n));
done:
    free(square), free(small);
    resizer_free(&r);
    image_free(&whole);
    return rc;
}

static int write_png(const image *m, unsigned char **bytes, int64_t *n) {
    png_image p = {.version = PNG_IMAGE_VERSION,
                   .width = (png_uint_32)m->w,
                   .height = (png_uint_32)m->h,
                   .format = m->c == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(p);
    unsigned char *out = memory_new("picture", size, 1);
    if (!out) return CONR_ENOMEM;
    if (!png_image_write_to_memory(&p, out, &size, 0, m->pixels, 0, NULL)) {
        free(out);
        return fail(CONR_EFILE, "picture: %s; close other programs", p.message);
    }
    *bytes = out, *n = (int64_t)size;
    return 0;
}

/* What browsers show, by the first bytes. */
static const char *shown_type(const unsigned char *b, size_t n) {
    if (n > 3 && !memcmp(b, "\xff\xd8\xff", 3)) return "image/jpeg";
    if (n > 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8)) return "image/png";
    if (n > 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4)) return "image/webp";
    if (n > 6 && !memcmp(b, "GIF8", 4)) return "image/gif";
    if (n > 26 && !memcmp(b, "BM", 2)) return "image/bmp";
    return NULL;
}

int conr_images_picture(const conr_images *m, int64_t i, unsigned char **bytes, int64_t *n,
                        const char **type) {
    int rc = 0;
    image whole = {0};
    file_bytes file = {0};
    const source *s = &m->source;
    *bytes = NULL, *type = "image/png";
    TRY(check_number(m, i));
    if (s->item) {
        TRY(s->item[i].in ? source_item_bytes(&s->item[i], SIZE_MAX, &file)
                          : file_read_whole(s->item[i].file, &file));
        const char *shown = shown_type(file.data, file.n);
        if (shown) {
            *bytes = file.data, *n = (int64_t)file.n, *type = shown;
            file = (file_bytes){0};
            goto done;
        }
    }
    TRY(source_read(s, i, s->gray ? 1 : 3, 0, &whole));
    TRY(write_png(&whole, bytes, n));
done:
    file_bytes_free(&file);
    image_free(&whole);
    return rc;
}

const char *conr_images_file(const conr_images *m, int64_t i) {
    return i >= 0 && i < m->source.n && m->source.item && !m->source.item[i].in
               ? m->source.item[i].file
               : NULL;
}
