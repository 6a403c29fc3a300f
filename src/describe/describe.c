/* describe.c: images to descriptors: the parts put together, and sets of images on all threads. */
#include "describe/describe.h"

#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"
#include "images/images.h"
#include "images/unreadable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = DESCRIBE_SIDE };

struct describer {
    int c;
    describe_basis basis;
    pixels *tools;
    float square[SIDE * SIDE * 3]; /* [SIDE,SIDE,c] */
    describe_plane plane[3];
};

int describer_new(int channels, describer **out) {
    int rc = 0;
    describer *d = calloc(1, sizeof *d);
    if (!d) return fail_memory("descriptors", sizeof *d);
    d->c = channels;
    describe_basis_make(&d->basis);
    TRY(pixels_new(SIDE, channels, &d->tools));
    *out = d;
done:
    if (rc < 0) describer_free(d);
    return rc;
}

void describer_free(describer *d) {
    if (!d) return;
    pixels_free(d->tools);
    free(d);
}

/* Planes from interleaved pixels, cut to [0,1] (bicubic weights overshoot), with a border that
 * repeats the edge. */
static void fill_planes(describer *d) {
    for (int k = 0; k < 3; k++) {
        const float *from = d->square + (d->c == 3 ? k : 0);
        describe_plane *p = &d->plane[k];
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                float v = from[(size_t)(y * SIDE + x) * d->c];
                p->at[y + 1][x + 1] = v < 0 ? 0 : v > 1 ? 1 : v;
            }
        for (int y = 1; y <= SIDE; y++) {
            p->at[y][0] = p->at[y][1];
            p->at[y][SIDE + 1] = p->at[y][SIDE];
        }
        memcpy(p->at[0], p->at[1], sizeof p->at[0]);
        memcpy(p->at[SIDE + 1], p->at[SIDE], sizeof p->at[0]);
    }
}

/* ---- one image ------------------------------------------------------------------------------- */

void describe_waves(const float *values, int c, float *out) {
    enum { n = DESCRIBE_CELLS, KEPT = 4 };
    /* sqrt(1/8), then cos(pi (2 i + 1) u / 16) / 2 */
    static const float wave[KEPT][n] = {
        {0.35355339f, 0.35355339f, 0.35355339f, 0.35355339f, 0.35355339f, 0.35355339f, 0.35355339f,
         0.35355339f},
        {0.49039264f, 0.41573481f, 0.27778512f, 0.09754516f, -0.09754516f, -0.27778512f,
         -0.41573481f, -0.49039264f},
        {0.46193977f, 0.19134172f, -0.19134172f, -0.46193977f, -0.46193977f, -0.19134172f,
         0.19134172f, 0.46193977f},
        {0.41573481f, -0.09754516f, -0.49039264f, -0.27778512f, 0.27778512f, 0.49039264f,
         0.09754516f, -0.41573481f},
    };
    float rows[KEPT][n * DESCRIBE_DIRECTIONS] = {0};
    for (int u = 0; u < KEPT; u++)
        for (int y = 0; y < n; y++)
            for (int i = 0; i < n * c; i++) rows[u][i] += wave[u][y] * values[y * n * c + i];
    for (int k = 0; k < c; k++)
        for (int u = 0; u < KEPT; u++)
            for (int v = 0; u + v < KEPT; v++, out++) {
                *out = 0;
                for (int x = 0; x < n; x++) *out += wave[v][x] * rows[u][x * c + k];
            }
}

/* Scales n values to a length; zeros stay zeros. */
static void scale_to(float length, float *x, int n) {
    double square = 0;
    for (int i = 0; i < n; i++) square += (double)x[i] * x[i];
    float scale = square > 0 ? (float)(length / sqrt(square)) : 0;
    for (int i = 0; i < n; i++) x[i] *= scale;
}

/* The part of n values at `at`, against what is typical of it. */
static void finish(float *out, int at, int n, float weight) {
    float *x = out + at;
    scale_to(1, x, n);
    for (int i = 0; i < n; i++) x[i] = (x[i] - describe_mean[at + i]) * describe_scale[at + i];
    scale_to(weight, x, n);
}

int describe_image(describer *d, const unsigned char *image, int w, int h, float *out) {
    enum { LAYOUT = DESCRIBE_GRADIENTS, COLORS = LAYOUT + DESCRIBE_LAYOUT };
    enum { TEXTURE = COLORS + DESCRIBE_COLORS };
    static const pixels_norm as_they_are = {.deviation = {1, 1, 1}};
    int rc = pixels_plain(d->tools, image, w, h, 0, &as_they_are, d->square);
    if (rc < 0) return rc;
    fill_planes(d);
    describe_gradients(d->plane, out);
    describe_colors(d->plane, out + LAYOUT, out + COLORS);
    describe_texture(d->plane, out + TEXTURE);
    for (int i = COLORS; i < DESCRIBE_SIZE; i++) out[i] = sqrtf(out[i]);
    describe_turn_gradients(&d->basis, out);
    describe_turn_colors(&d->basis, out + COLORS);
    describe_turn_texture(out + TEXTURE);
    finish(out, 0, DESCRIBE_GRADIENTS, 1.3f);
    finish(out, LAYOUT, DESCRIBE_LAYOUT, 1);
    finish(out, COLORS, DESCRIBE_COLORS, 1);
    finish(out, TEXTURE, DESCRIBE_TEXTURE, 1.3f);
    return 0;
}

/* ---- many ------------------------------------------------------------------------------------ */

int describe_store(const store *s, const int64_t *id, int64_t n, int threads, float *out) {
    int failed = 0;
#pragma omp parallel num_threads(threads)
    {
        describer *d = NULL;
        int rc = describer_new(s->c, &d);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) {
            const stored *m = &s->image[id ? id[i] : i];
            if (rc == 0) rc = describe_image(d, m->pixels, m->w, m->h, out + i * DESCRIBE_SIZE);
        }
        describer_free(d);
#pragma omp atomic
        failed |= rc < 0;
    }
    /* the message is in another thread; only memory can have failed */
    return failed ? fail_memory("descriptors", sizeof(describer)) : 0;
}

int describe_ids(const source *s, const int64_t *id, int64_t n, int threads, float *out) {
    int failed = 0;
    char message[512] = "";
#pragma omp parallel num_threads(threads)
    {
        image m = {0};
        describer *d = NULL;
        int rc = describer_new(s->gray ? 1 : 3, &d);
#pragma omp for schedule(dynamic, 8)
        for (int64_t i = 0; i < n; i++) {
            if (rc == 0) rc = source_read(s, id[i], s->gray ? 1 : 3, 2 * SIDE, &m);
            if (rc == 0) rc = describe_image(d, m.pixels, m.w, m.h, out + i * DESCRIBE_SIZE);
        }
        image_free(&m);
        describer_free(d);
#pragma omp critical
        if (rc < 0 && !failed) {
            failed = rc;
            snprintf(message, sizeof message, "%s", conr_error());
        }
    }
    return failed ? fail(failed, "%s", message) : 0;
}

/* The state of conr_describe. */
typedef struct work {
    conr *c;
    source *s;
    int channels;
    unreadable bad;
    float *out;
} work;

/* Images from .. to-1, decoded and described by all threads. */
static void describe_some(work *w, int64_t from, int64_t to) {
#pragma omp parallel num_threads(w->c->dev->threads)
    {
        image m = {0};
        describer *d = NULL;
        int ready = describer_new(w->channels, &d);
        if (ready < 0) unreadable_note(&w->bad, from, ready);
#pragma omp for schedule(dynamic, 8)
        for (int64_t i = from; i < to; i++) {
            if (ready < 0) continue;
            int rc = source_read(w->s, i, w->channels, 2 * SIDE, &m);
            if (rc == 0) rc = describe_image(d, m.pixels, m.w, m.h, w->out + i * DESCRIBE_SIZE);
            if (rc < 0) unreadable_note(&w->bad, i, rc);
        }
        image_free(&m);
        describer_free(d);
    }
}

int conr_describe(conr *c, conr_images *m, float **features, int64_t *n, int64_t *d) {
    enum { AT_ONCE = 1024 }; /* images between two reports */
    int rc = 0;
    source *s = &m->source;
    work w = {.c = c, .s = s, .channels = s->gray ? 1 : 3};
    *features = NULL;
    if (s->n == 0) /* all were dropped by an earlier try */
        return fail(CONR_EFORMAT, "images: none of them can be read; open them again");
    TRY(unreadable_new(s, &w.bad));
    w.out = memory_new("descriptors", (size_t)s->n, DESCRIBE_SIZE * sizeof *w.out);
    TRY(w.out ? 0 : CONR_ENOMEM);
    for (int64_t from = 0; from < s->n; from += AT_ONCE) {
        int64_t to = from + AT_ONCE < s->n ? from + AT_ONCE : s->n;
        describe_some(&w, from, to);
        TRY(unreadable_check(&w.bad));
        TRY(device_report(c->dev, "describing", to, s->n));
    }
    TRY(unreadable_drop(&w.bad, s, w.out, DESCRIBE_SIZE * sizeof *w.out));
    *features = w.out, *n = s->n, *d = DESCRIBE_SIZE;
    w.out = NULL;
done:
    unreadable_free(&w.bad);
    free(w.out);
    return rc;
}
