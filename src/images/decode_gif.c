/* decode_gif.c: giflib behind decode.h.  The first frame, on the canvas of the file: where it does not
 * cover that, the transparent color or color 0, as in Pillow. */
#include "images/decode_codecs.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

enum { PIXELS_PER_BYTE = 4096 }; /* a code of at least 3 bits stands for at most 4096 pixels */

typedef struct gif_job {
    decode_job *job;
    GifFileType *gif;
    size_t at;                     /* bytes read */
    int background;                /* the color around the frame */
    unsigned char palette[256][3]; /* of the frame */
} gif_job;

static int on_read(GifFileType *gif, GifByteType *to, int n) {
    gif_job *g = gif->UserData;
    size_t left = g->job->n - g->at;
    if ((size_t)n > left) n = (int)left;
    memcpy(to, g->job->bytes + g->at, (size_t)n);
    g->at += (size_t)n;
    return n;
}

static int fail_gif(const gif_job *g, int error) {
    const char *why = GifErrorString(error);
    if (error == D_GIF_ERR_NOT_ENOUGH_MEM) return decode_fail_memory(g->job);
    return decode_fail(g->job, "GIF", why ? why : "it ends too early");
}

/* The block of an extension, of which only the transparent color is wanted. */
static int read_extension(gif_job *g) {
    int code;
    GifByteType *block;
    GraphicsControlBlock control;
    int ok = DGifGetExtension(g->gif, &code, &block);
    while (ok == GIF_OK && block) {
        if (code == GRAPHICS_EXT_FUNC_CODE &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            g->background =
                control.TransparentColor == NO_TRANSPARENT_COLOR ? 0 : control.TransparentColor;
        ok = DGifGetExtensionNext(g->gif, &block);
    }
    return ok == GIF_OK ? 0 : fail_gif(g, g->gif->Error);
}

/* Up to the header of the first frame. */
static int find_frame(gif_job *g) {
    int rc = 0;
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(g->gif, &type) != GIF_OK) TRY(fail_gif(g, g->gif->Error));
        if (type == TERMINATE_RECORD_TYPE) TRY(decode_fail(g->job, "GIF", "it has no image"));
        if (type == EXTENSION_RECORD_TYPE) TRY(read_extension(g));
        if (type == IMAGE_DESC_RECORD_TYPE) break;
    }
    if (DGifGetImageDesc(g->gif) != GIF_OK) TRY(fail_gif(g, g->gif->Error));
done:
    return rc;
}

/* Without any palette the numbers of the colors are shades of gray. */
static void read_palette(gif_job *g) {
    const ColorMapObject *map = g->gif->Image.ColorMap ? g->gif->Image.ColorMap : g->gif->SColorMap;
    bool gray = true;
    for (int i = 0; i < 256; i++) {
        if (!map) memset(g->palette[i], i, 3);
        if (!map || i >= map->ColorCount) continue;
        const GifColorType *c = &map->Colors[i];
        g->palette[i][0] = c->Red, g->palette[i][1] = c->Green, g->palette[i][2] = c->Blue;
        gray = gray && c->Red == c->Green && c->Green == c->Blue;
    }
    g->job->gray = gray;
}

static int read_head(gif_job *g) {
    int rc = 0;
    decode_job *j = g->job;
    TRY(find_frame(g));
    const GifImageDesc *f = &g->gif->Image;
    if (f->Left < 0 || f->Top < 0 || f->Width < 1 || f->Height < 1)
        TRY(decode_fail(j, "GIF", "its first frame is empty"));
    TRY(decode_check_size(j, f->Width, f->Height, PIXELS_PER_BYTE));
    long w = (long)f->Left + f->Width, h = (long)f->Top + f->Height;
    if (w < g->gif->SWidth) w = g->gif->SWidth;
    if (h < g->gif->SHeight) h = g->gif->SHeight;
    TRY(decode_check_size(j, w, h, 1e9)); /* the canvas may be larger than the frame */
    j->w = (int)w, j->h = (int)h;
    read_palette(g);
done:
    return rc;
}

static void put_colors(const gif_job *g, const GifByteType *color, size_t n, unsigned char *to) {
    if (g->job->gray)
        for (size_t i = 0; i < n; i++) to[i] = g->palette[color[i]][0];
    else
        for (size_t i = 0; i < n; i++) memcpy(to + 3 * i, g->palette[color[i]], 3);
}

static int read_pixels(gif_job *g) {
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2}; /* of interlaced rows */
    int rc = 0;
    decode_job *j = g->job;
    const GifImageDesc *f = &g->gif->Image;
    GifByteType *line = memory_new("image", (size_t)j->w, 1);
    if (!line) TRY(CONR_ENOMEM);
    TRY(image_reserve(j->out, j->w, j->h, j->gray ? 1 : 3));
    size_t row = (size_t)j->w * (size_t)j->out->c;
    memset(line, g->background, (size_t)j->w);
    if (f->Width < j->w || f->Height < j->h)
        for (int y = 0; y < j->h; y++)
            put_colors(g, line, (size_t)j->w, j->out->pixels + (size_t)y * row);
    for (int pass = 0; pass < (f->Interlace ? 4 : 1); pass++)
        for (int y = f->Interlace ? first[pass] : 0; y < f->Height;
             y += f->Interlace ? step[pass] : 1) {
            if (DGifGetLine(g->gif, line, f->Width) != GIF_OK) TRY(fail_gif(g, g->gif->Error));
            put_colors(g, line, (size_t)f->Width,
                       j->out->pixels + (size_t)(f->Top + y) * row +
                           (size_t)f->Left * (size_t)j->out->c);
        }
done:
    free(line);
    return rc;
}

int decode_gif(decode_job *j) {
    int rc = 0, error = 0;
    gif_job g = {.job = j};
    g.gif = DGifOpen(&g, on_read, &error);
    if (!g.gif) return fail_gif(&g, error);
    TRY(read_head(&g));
    if (!j->only_head) TRY(read_pixels(&g));
done:
    DGifCloseFile(g.gif, &error);
    return rc;
}
