/* decode_jpeg.c: libjpeg-turbo behind decode.h.
 *
 * libjpeg reports by callbacks and expects error_exit not to return: it jumps to the setjmp of
 * decode_jpeg, after which only the job is accessed, since a local may have a stale value.  All
 * memory of libjpeg belongs to the decompress object and is released with it. */
#include "images/decode_codecs.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum {
    SCANS = 200,           /* a progressive file has about ten; many more only waste time */
    PIXELS_PER_BYTE = 1024 /* a block of 8 x 8 takes at least a bit; twice that to be safe */
};

typedef struct jpeg_job {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    decode_job *job;
    char why[JMSG_LENGTH_MAX];
} jpeg_job;

static void on_error(j_common_ptr c) {
    jpeg_job *j = c->client_data;
    c->err->format_message(c, j->why);
    longjmp(j->back, 1);
}

/* level < 0: a warning.  Missing bytes count as damage; libjpeg would continue in gray. */
static void on_message(j_common_ptr c, int level) {
    if (level < 0 && (c->err->msg_code == JWRN_JPEG_EOF || c->err->msg_code == JWRN_HIT_MARKER))
        on_error(c);
}

static void on_progress(j_common_ptr c) {
    jpeg_job *j = c->client_data;
    if (j->d.input_scan_number <= SCANS) return;
    snprintf(j->why, sizeof j->why, "more than %d scans", SCANS);
    longjmp(j->back, 1);
}

static int find_orientation(const struct jpeg_decompress_struct *d) {
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
            return decode_exif(m->data + 6, m->data_length - 6);
    return 1;
}

/* Scaling inside the inverse transform is nearly free, and the resize that follows has less to do.
 * 5/8 to 7/8 are not used: libjpeg-turbo has no vector code for them and takes longer than at full
 * size (SPEED.md). */
static void choose_scale(struct jpeg_decompress_struct *d, int least) {
    static const unsigned eighths[] = {1, 2, 3, 4};
    unsigned shorter = d->image_width < d->image_height ? d->image_width : d->image_height;
    d->scale_num = d->scale_denom = 8;
    for (int i = 0; least > 0 && i < 4 && d->scale_num == 8; i++)
        if ((shorter * eighths[i] + 7) / 8 >= (unsigned)least) d->scale_num = eighths[i];
}

/* As in Pillow: stored inverted, as Adobe does. */
static void cmyk_to_rgb(const unsigned char *in, unsigned char *out, int w) {
    for (int x = 0; x < w; x++, in += 4, out += 3)
        for (int i = 0; i < 3; i++) {
            unsigned t = in[i] * in[3] + 128u;
            out[i] = (unsigned char)((t + (t >> 8)) >> 8);
        }
}

static int read_head(jpeg_job *j) {
    int rc = 0;
    decode_job *job = j->job;
    struct jpeg_decompress_struct *d = &j->d;
    jpeg_create_decompress(d);
    j->progress.progress_monitor = on_progress;
    d->progress = &j->progress;
    jpeg_mem_src(d, job->bytes, job->n);
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(d, TRUE);
    job->w = (int)d->image_width, job->h = (int)d->image_height;
    job->gray = d->jpeg_color_space == JCS_GRAYSCALE;
    job->orientation = find_orientation(d);
    choose_scale(d, job->least);
    d->out_color_space = job->gray ? JCS_GRAYSCALE : JCS_RGB;
    if (d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK)
        d->out_color_space = JCS_CMYK;
    jpeg_calc_output_dimensions(d);
    double per_byte = d->arith_code ? 1e9 : PIXELS_PER_BYTE;
    if (d->image_width > DECODE_SIDE || d->image_height > DECODE_SIDE ||
        (double)d->image_width * d->image_height > per_byte * (double)job->whole ||
        jpeg_has_multiple_scans(d)) /* then all coefficients are kept, at any scale */
        TRY(decode_check_size(job, d->image_width, d->image_height, per_byte));
    if (!job->only_head) TRY(decode_check_size(job, d->output_width, d->output_height, per_byte));
done:
    return rc;
}

static int read_pixels(jpeg_job *j) {
    struct jpeg_decompress_struct *d = &j->d;
    image *out = j->job->out;
    int w = (int)d->output_width, c = j->job->gray ? 1 : 3;
    int rc = image_reserve(out, w, (int)d->output_height, c);
    if (rc < 0) return rc;
    /* An image that is shrunk by a fifth or more does not show the last bits of the transform, nor
     * the smoothing of subsampled color. */
    unsigned shorter = d->image_width < d->image_height ? d->image_width : d->image_height;
    if (j->job->least > 0 && 4 * shorter >= 5 * (unsigned)j->job->least) {
        d->do_fancy_upsampling = FALSE;
        d->dct_method = JDCT_IFAST;
    }
    jpeg_start_decompress(d);
    bool cmyk = d->out_color_space == JCS_CMYK;
    JSAMPARRAY four =
        cmyk ? d->mem->alloc_sarray((j_common_ptr)d, JPOOL_IMAGE, d->output_width * 4, 1) : NULL;
    while (d->output_scanline < d->output_height) {
        JSAMPROW row = out->pixels + (size_t)d->output_scanline * (size_t)(w * c);
        jpeg_read_scanlines(d, cmyk ? four : &row, 1);
        if (cmyk) cmyk_to_rgb(four[0], row, w);
    }
    return 0;
}

int decode_jpeg(decode_job *job) {
    jpeg_job j = {.job = job};
    volatile int rc = 0; /* set between setjmp and a jump back */
    j.d.err = jpeg_std_error(&j.errors);
    j.errors.error_exit = on_error;
    j.errors.emit_message = on_message;
    j.d.client_data = &j;
    if (setjmp(j.back)) {
        rc = j.errors.msg_code == JERR_OUT_OF_MEMORY ? decode_fail_memory(job)
                                                     : decode_fail(job, "JPEG", j.why);
    } else {
        rc = read_head(&j);
        if (rc == 0 && !job->only_head) rc = read_pixels(&j);
    }
    jpeg_destroy_decompress(&j.d);
    return rc;
}
