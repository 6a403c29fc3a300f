/* store.c: plans where every image will be, then lets all threads decode into place. */
#include "images/store.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "images/store_cache.h"
#include "images/unreadable.h"
#include "views/pixels_resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int store_side_for(int size) { return size < 160 ? 2 * size : (8 * size + 6) / 7; }

/* ---- the plan -------------------------------------------------------------------------------- */

/* The size that an image is stored at. */
static void stored_size(int w, int h, int side, uint16_t *sw, uint16_t *sh) {
    int shorter = w < h ? w : h;
    if (side <= 0 || shorter <= side) {
        *sw = (uint16_t)w, *sh = (uint16_t)h;
        return;
    }
    double scale = (double)side / shorter;
    *sw = (uint16_t)(w == shorter ? side : lrint(w * scale));
    *sh = (uint16_t)(h == shorter ? side : lrint(h * scale));
}

/* The sizes of all images and the sum of their bytes. */
static int make_plan(const source *s, int side, store *out) {
    uint64_t total = 0;
    out->image = memory_new("list of images", (size_t)s->n, sizeof *out->image);
    if (!out->image) return CONR_ENOMEM;
    out->n = s->n;
    for (int64_t i = 0; i < s->n; i++) {
        int w, h;
        stored *m = &out->image[i];
        source_size(s, i, &w, &h);
        m->pixels = NULL;
        stored_size(w, h, side, &m->w, &m->h);
        total += (uint64_t)m->w * m->h * (uint64_t)out->c;
    }
    out->bytes = total;
    return 0;
}

static void place_images(store *s, const unsigned char *base) {
    size_t at = 0;
    for (int64_t i = 0; i < s->n; i++) {
        s->image[i].pixels = base + at;
        at += (size_t)s->image[i].w * s->image[i].h * (size_t)s->c;
    }
}

/* An array in memory whose bytes are already in the right form is used as it is. */
static bool borrow(const source *s, store *out) {
    for (int b = 0; b < s->n_blocks; b++)
        if (!s->block[b].from.in_memory) return false;
    if (!s->block || s->pick || s->layout != LAYOUT_HWC || (s->gray ? 1 : 3) != out->c ||
        out->image[0].w != s->w_low || out->image[0].h != s->h_low)
        return false;
    for (int b = 0; b < s->n_blocks; b++)
        for (int64_t i = 0; i < s->block[b].n; i++)
            out->image[s->block[b].first + i].pixels =
                s->block[b].from.in_memory + s->block[b].at + (size_t)i * s->block[b].stride;
    return true;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* One image into its place. */
static int decode_one(const source *s, const store *st, int64_t i, int side, image *scratch,
                      resizer *r) {
    int rc = 0;
    const stored *m = &st->image[i];
    unsigned char *to = (unsigned char *)m->pixels; /* ours while we fill it */
    TRY(source_read(s, i, st->c, side, scratch));
    if (scratch->w == m->w && scratch->h == m->h)
        memcpy(to, scratch->pixels, (size_t)m->w * m->h * (size_t)st->c);
    else
        TRY(resizer_bytes(r, PIXELS_BICUBIC, scratch->pixels, scratch->w, scratch->h, st->c, m->w,
                          m->h, to));
done:
    return rc;
}

/* Notes the images that cannot be decoded. */
static int decode_all(const source *s, const store *st, const store_options *o, unreadable *bad) {
    int stop = 0, rc = 0;
    int64_t done_count = 0;
#pragma omp parallel num_threads(o->threads)
    {
        image scratch = {0};
        resizer r = {0};
#pragma omp for schedule(dynamic, 8)
        for (int64_t i = 0; i < st->n; i++) {
            if (__atomic_load_n(&stop, __ATOMIC_RELAXED)) continue;
            int why = decode_one(s, st, i, o->side, &scratch, &r);
            if (why < 0) unreadable_note(bad, i, why);
            if (why < 0 && why != CONR_EFORMAT) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
            int64_t seen = __atomic_add_fetch(&done_count, 1, __ATOMIC_RELAXED);
            if (o->tell.on && (seen % 64 == 0 || seen == st->n)) {
#pragma omp critical
                if (o->tell.on(seen, st->n, o->tell.user))
                    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
            }
        }
        image_free(&scratch);
        resizer_free(&r);
    }
    TRY(unreadable_check(bad));
    if (stop) TRY(fail(CONR_ESTOPPED, "%s: stopped while decoding; run it again", s->path));
done:
    return rc;
}

/* Drops the bad images, here and in the source. */
static int drop_bad(source *s, store *st, const unreadable *bad) {
    int rc = unreadable_drop(bad, s, st->image, sizeof *st->image);
    st->n = s->n;
    return rc;
}

static int fill_memory(source *s, const store_options *o, store *out, unreadable *bad) {
    int rc = 0;
    out->owned = memory_new("images", out->bytes, 1);
    if (!out->owned) TRY(CONR_ENOMEM);
    place_images(out, out->owned);
    TRY(decode_all(s, out, o, bad));
    TRY(drop_bad(s, out, bad));
    out->words = "memory";
done:
    return rc;
}

static int fill_cache(source *s, const store_options *o, store *out, unreadable *bad) {
    int rc = 0;
    char path[4096];
    cache_file c = {0};
    TRY(cache_path(s, o, out->c, path, sizeof path));
    uint64_t key = cache_key(s, o, out->c);
    out->found = cache_find(path, key, o->threads, out, bad->bad);
    if (!out->found) {
        TRY(cache_create(path, out, &c));
        place_images(out, c.pixels);
        TRY(decode_all(s, out, o, bad));
        TRY(cache_commit(&c, key, o->threads, out, bad->bad));
        if (!cache_find(path, key, 0, out, bad->bad))
            TRY(fail(CONR_EFILE, "%s: cannot be read back; check the disk", path));
    }
    TRY(drop_bad(s, out, bad));
    out->words = "cache file";
done:
    cache_drop(&c);
    return rc;
}

int store_open(source *s, const store_options *o, store *out) {
    int rc = 0;
    unreadable bad = {0};
    *out = (store){0};
    ASSERT(o->threads > 0);
    if (s->n == 0) /* all were dropped by an earlier try */
        return fail(CONR_EFORMAT, "images: none of them can be read; open them again");
    out->c = o->channels ? o->channels : s->gray ? 1 : 3;
    TRY(make_plan(s, o->side, out));
    out->words = "source";
    if (o->place == STORE_AUTO && borrow(s, out)) goto done;
    TRY(unreadable_new(s, &bad));
    uint64_t limit = o->memory ? o->memory : memory_at_hand() / 2;
    if (o->place == STORE_MEMORY || (o->place == STORE_AUTO && out->bytes <= limit))
        TRY(fill_memory(s, o, out, &bad));
    else
        TRY(fill_cache(s, o, out, &bad));
done:
    unreadable_free(&bad);
    if (rc < 0) store_close(out);
    return rc;
}

void store_close(store *s) {
    free(s->image);
    free(s->owned);
    if (s->map) munmap(s->map, s->map_size);
    *s = (store){0};
}

/* ---- statistics ------------------------------------------------------------------------------ */

void store_norm(const source *from, const store *s, int threads, pixels_norm *out) {
    uint64_t sum[3] = {0}, square[3] = {0}, count = 0;
    int c = s->c;
    *out = (pixels_norm){{0}, {1, 1, 1}};
    if (c == 3 && source_known_norm(from, out->mean, out->deviation)) return;
        /* integers: the same result in whatever order threads add */
#pragma omp parallel for num_threads(threads) reduction(+ : sum[:3], square[:3], count)
    for (int64_t i = 0; i < s->n; i++) {
        const stored *m = &s->image[i];
        size_t n = (size_t)m->w * m->h;
        for (int k = 0; k < c; k++) {
            uint64_t a = 0, b = 0;
            for (size_t j = 0; j < n; j++) {
                uint32_t v = m->pixels[j * (size_t)c + (size_t)k];
                a += v, b += v * v;
            }
            sum[k] += a, square[k] += b;
        }
        count += n;
    }
    for (int k = 0; k < c; k++) {
        double mean = (double)sum[k] / (double)count / 255;
        double spread = (double)square[k] / (double)count / 65025 - mean * mean;
        out->mean[k] = (float)mean;
        out->deviation[k] = spread > 1e-8 ? (float)sqrt(spread) : 1; /* all one color */
    }
}
