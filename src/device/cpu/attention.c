/* attention.c: softmax(q k') v on the CPU, by the kernel of the matrix product.
 *
 * One image and head at a time, by one thread.  A panel of queries (nr of them) meets the keys in
 * blocks: the kernel writes the scores as [keys][nr], which is the form in which it reads them as
 * weights of the values.  So the softmax works on vectors of queries, and nothing is transposed but
 * the result.  Blocks after the first rescale what is there (the online softmax of Milakov and
 * Gimelshein 2018). */
#include "device/cpu/transformers.h"

#include "base/status.h"
#include "kernels/gemm.h"
#include "kernels/quad_math.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    BLOCK = GEMM_KC, /* keys of a block, at most */
    SMALL = 1 << 15  /* multiply-adds below which waking threads costs more than it saves */
};

/* What a thread needs, in floats. */
typedef struct room {
    size_t keys, values; /* panels of mr keys, and of mr columns of the values */
    size_t query, score; /* one panel of queries; the scores of a block */
    size_t sum;          /* the result of a panel, [columns][nr] */
    size_t all;
} room;

static room room_of(const attention_shape *s) {
    const gemm_kernel *g = gemm_kernel_best();
    size_t nr = (size_t)g->nr;
    room r = {.keys = gemm_panels_size(s->keys, s->d, g->mr),
              .values = gemm_panels_size(s->d, s->keys, g->mr),
              .query = nr * (size_t)s->d,
              .score = nr * (size_t)(BLOCK + g->mr),
              .sum = nr * (size_t)round_up(s->d, g->mr)};
    size_t parts[] = {r.keys, r.values, r.query, r.score, r.sum};
    for (int i = 0; i < 5; i++) r.all += (parts[i] + LINE - 1) / LINE * LINE;
    return r;
}

size_t cpu_attention_bytes(device *dev, const attention_shape *s) {
    return room_of(s).all * sizeof(float) * (size_t)dev->threads;
}

/* The memory of one thread. */
typedef struct head {
    const gemm_kernel *g;
    const attention_shape *s;
    float *keys, *values, *query, *score, *sum;
    float most[GEMM_NR], total[GEMM_NR]; /* of each query */
} head;

static head head_at(const attention_shape *s, float *at) {
    room r = room_of(s);
    head h = {.g = gemm_kernel_best(), .s = s};
    float **to[] = {&h.keys, &h.values, &h.query, &h.score, &h.sum};
    size_t parts[] = {r.keys, r.values, r.query, r.score, r.sum};
    for (int i = 0; i < 5; i++) {
        *to[i] = at;
        at += (parts[i] + LINE - 1) / LINE * LINE;
    }
    return h;
}

static void pack_head(head *h, const float *k, const float *v) {
    const attention_shape *s = h->s;
    int mr = h->g->mr, ld = (int)s->k_row;
    for (int b = 0; b < s->keys; b += mr)
        gemm_pack(true, k + (size_t)b * s->k_row, ld, least(mr, s->keys - b), s->d, mr,
                  h->keys + (size_t)b * s->d);
    for (int j = 0; j < s->d; j += mr)
        gemm_pack(false, v + j, ld, least(mr, s->d - j), s->keys, mr,
                  h->values + (size_t)j * s->keys);
}

/* Scores [n][nr] become e^(score - the largest so far); sums so far are scaled to that. */
static void softmax(head *h, int n, bool first) {
    int nr = h->g->nr;
    for (int c = 0; c < nr; c += 4) {
        quad most = first ? quad_of(-INFINITY) : quad_at(h->most + c), old = most;
        quad total = first ? quad_of(0) : quad_at(h->total + c);
        float *p = h->score + c;
        for (int b = 0; b < n; b++) most = quad_max(most, quad_at(p + (size_t)b * nr));
        if (!first) {
            quad keep = quad_exp(old - most);
            total *= keep;
            for (int j = 0; j < h->s->d; j++) {
                float *sum = h->sum + (size_t)j * nr + c;
                quad_put(sum, quad_at(sum) * keep);
            }
        }
        for (int b = 0; b < n; b++, p += nr) {
            quad e = quad_exp(quad_at(p) - most);
            quad_put(p, e);
            total += e;
        }
        quad_put(h->most + c, most);
        quad_put(h->total + c, total);
    }
}

/* Keys from .. from+n-1, from a multiple of mr. */
static void block(head *h, int from, int n, bool first) {
    const attention_shape *s = h->s;
    int mr = h->g->mr, nr = h->g->nr;
    for (int b = 0; b < n; b += mr)
        for (int l = 0; l < s->d; l += GEMM_KC)
            h->g->run(least(GEMM_KC, s->d - l), h->keys + (size_t)(from + b) * s->d + l * mr,
                      h->query + (size_t)l * nr, h->score + (size_t)b * nr, nr, l > 0);
    softmax(h, n, first);
    for (int j = 0; j < s->d; j += mr)
        h->g->run(n, h->values + (size_t)j * s->keys + (size_t)from * mr, h->score,
                  h->sum + (size_t)j * nr, nr, !first);
}

/* Queries q, rows of the result to. */
static void panel(head *h, const float *q, int rows, float *to) {
    const attention_shape *s = h->s;
    int mr = h->g->mr, nr = h->g->nr;
    int blocks = (s->keys + BLOCK - 1) / BLOCK;
    int size = least(BLOCK, round_up((s->keys + blocks - 1) / blocks, mr));
    size -= size % mr; /* a block starts with a panel */
    gemm_pack(true, q, (int)s->q_row, rows, s->d, nr, h->query);
    for (size_t i = 0; i < (size_t)nr * (size_t)s->d; i += 4)
        quad_put(h->query + i, quad_at(h->query + i) * s->scale);
    for (int from = 0; from < s->keys; from += size)
        block(h, from, least(size, s->keys - from), from == 0);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < s->d; j++)
            to[(size_t)r * s->o_row + j] = h->sum[(size_t)j * nr + r] / h->total[r];
}

int cpu_attention(device *dev, const attention_shape *s, const act *q, const act *k, const act *v,
                  act *out, void *work) {
    size_t all = room_of(s).all;
    int heads = s->n * s->heads;
    bool small = (double)heads * s->queries * s->keys * s->d < SMALL;
#pragma omp parallel num_threads(small ? 1 : dev->threads)
    {
        head h = head_at(s, (float *)work + all * (size_t)omp_get_thread_num());
#pragma omp for schedule(static)
        for (int i = 0; i < heads; i++) {
            size_t image = (size_t)(i / s->heads), at = (size_t)(i % s->heads) * (size_t)s->d;
            const float *queries = (const float *)q + image * s->q_image + at;
            float *to = (float *)out + image * s->o_image + at;
            pack_head(&h, (const float *)k + image * s->k_image + at,
                      (const float *)v + image * s->k_image + at);
            for (int a = 0; a < s->queries; a += h.g->nr)
                panel(&h, queries + (size_t)a * s->q_row, least(h.g->nr, s->queries - a),
                      to + (size_t)a * s->o_row);
        }
    }
    return 0;
}
