/* decode_png.c: libpng behind decode.h.
 *
 * As in decode_jpeg.c, an error jumps back to decode_png, after which only the job is accessed. */
#include "images/decode_codecs.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { BYTES_PER_BYTE = 1100 }; /* deflate packs at most 1032 bytes into one */

typedef struct png_job {
    png_structp png;
    png_infop info;
    decode_job *job;
    size_t at;      /* bytes read */
    bool no_memory; /* an allocation failed; libpng may only say that something is wrong */
    char why[128];
} png_job;

static void on_error(png_structp png, png_const_charp why) {
    png_job *j = png_get_error_ptr(png);
    snprintf(j->why, sizeof j->why, "%s", why);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp why) { (void)png, (void)why; }

static png_voidp on_alloc(png_structp png, png_alloc_size_t n) {
    png_job *j = png_get_mem_ptr(png);
    void *p = malloc(n);
    if (!p) j->no_memory = true;
    return p;
}

static void on_free(png_structp png, png_voidp p) {
    (void)png;
    free(p);
}

static void on_read(png_structp png, png_bytep out, size_t n) {
    png_job *j = png_get_io_ptr(png);
    if (j->job->n - j->at < n) png_error(png, "it ends too early");
    memcpy(out, j->job->bytes + j->at, n);
    j->at += n;
}

/* Chunks: length, four letters, the bytes, a checksum.  libpng allocates as much memory for an
 * eXIf as the chunk claims, so it has to ignore that, and profiles and texts as well. */
static int find_orientation(const unsigned char *bytes, size_t n) {
    for (size_t at = 8; at + 12 <= n;) {
        const unsigned char *p = bytes + at;
        size_t size = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (size > n - at - 12 || !memcmp(p + 4, "IDAT", 4)) return 1;
        if (!memcmp(p + 4, "eXIf", 4)) return decode_exif(p + 8, size);
        at += size + 12;
    }
    return 1;
}

static int read_head(png_job *j) {
    decode_job *job = j->job;
    png_set_read_fn(j->png, j, on_read);
    png_set_user_limits(j->png, DECODE_SIDE, DECODE_SIDE);
    png_set_keep_unknown_chunks(j->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(j->png, j->info);
    job->w = (int)png_get_image_width(j->png, j->info);
    job->h = (int)png_get_image_height(j->png, j->info);
    job->gray = !(png_get_color_type(j->png, j->info) & PNG_COLOR_MASK_COLOR);
    job->orientation = find_orientation(job->bytes, job->n);
    double bits = png_get_bit_depth(j->png, j->info) * png_get_channels(j->png, j->info);
    return decode_check_size(job, job->w, job->h, BYTES_PER_BYTE * 8 / bits);
}

static int read_pixels(png_job *j) {
    image *out = j->job->out;
    int c = j->job->gray ? 1 : 3;
    png_set_strip_16(j->png);
    png_set_palette_to_rgb(j->png);
    png_set_expand_gray_1_2_4_to_8(j->png);
    png_set_strip_alpha(j->png);
    int passes = png_set_interlace_handling(j->png);
    png_read_update_info(j->png, j->info);
    size_t row = png_get_rowbytes(j->png, j->info);
    if (row != (size_t)j->job->w * (size_t)c) png_error(j->png, "rows of unexpected length");
    int rc = image_reserve(out, j->job->w, j->job->h, c);
    if (rc < 0) return rc;
    for (; passes > 0; passes--)
        for (int y = 0; y < out->h; y++) png_read_row(j->png, out->pixels + (size_t)y * row, NULL);
    return 0;
}

int decode_png(decode_job *job) {
    png_job j = {.job = job};
    volatile int rc = 0; /* set between setjmp and a jump back */
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, on_alloc,
                                     on_free);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    if (!j.info) {
        rc = fail_memory(job->name, 1 << 16);
    } else if (setjmp(png_jmpbuf(j.png))) {
        rc = j.no_memory ? decode_fail_memory(job) : decode_fail(job, "PNG", j.why);
    } else {
        rc = read_head(&j);
        if (rc == 0 && !job->only_head) rc = read_pixels(&j);
    }
    png_destroy_read_struct(&j.png, &j.info, NULL);
    return rc;
}
