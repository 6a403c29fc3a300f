/* neighbors.cu: contextually affinitive neighbors of a batch (neighbors/neighbors.h has the
 * definition, neighbors/dense.c the plain version).
 *
 * Four kinds of launches, all matrices in the caller's work memory:
 *     similar   S = F F^T in fp32; each element is one chain of fused multiply-adds in ascending
 *               order, so S is symmetric to the last bit
 *     pick      the best of each row of S, the edges of messages, and the key of its k1-th: with it
 *               membership in the graph is a comparison, and A is never stored
 *     layer     one block makes a row of the next H; a row of a batch has only a few dozen nonzero
 *               elements, but dense rows are read at full width and need no bookkeeping
 *     rank      row i of H H^T from the nonzero columns of row i, its k best, filled up from S
 * Stored values are floats, sums are in double.  Rows of more than IN_REGISTERS elements take the
 * general top_k and one more launch. */
#include "device/cuda/warp.cuh"

#include "base/status.h"

#include <math.h>

typedef struct edge {
    int32_t to;
    float weight;
} edge;

/* The work memory. */
typedef struct graph {
    int n, d, width;
    conr_neighbors_options o;
    float *square[3]; /* [n,n] each */
    float *values;    /* [n,width] of by_s */
    int32_t *by_s;    /* [n,width]: the best of S */
    edge *edges;      /* [n,k2] in ascending order of `to` */
    rank_key *last;   /* [n]: key of the k1-th best of a row of S */
} graph;

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Lays out the work memory; returns its bytes. */
static size_t plan(int n, int d, const conr_neighbors_options *o, void *work, graph *g) {
    char *p = (char *)work;
    size_t at = 0, square = (size_t)n * n * sizeof(float);
    *g = (graph){};
    g->n = n, g->d = d, g->o = *o;
    g->width = o->k > o->k1 ? o->k : o->k1;
    g->width = g->width > o->k2 ? g->width : o->k2;
    size_t list = (size_t)n * g->width;
    for (int i = 0; i < 3; i++, at += rounded(square)) g->square[i] = (float *)(p + at);
    g->values = (float *)(p + at), at += rounded(list * sizeof(float));
    g->by_s = (int32_t *)(p + at), at += rounded(list * sizeof(int32_t));
    g->edges = (edge *)(p + at), at += rounded((size_t)n * o->k2 * sizeof(edge));
    g->last = (rank_key *)(p + at), at += rounded((size_t)n * sizeof(rank_key));
    return at;
}

static size_t neighbors_bytes(device *dev, int n, int d, const conr_neighbors_options *o) {
    graph g;
    (void)dev;
    return plan(n, d, o, NULL, &g);
}

/* ---- S --------------------------------------------------------------------------------------- */

enum { TILE = 16, DEPTH = 256, PAD = 4 };

/* One tile on or above the diagonal, one thread per element, which is written to both its places.
 * fours: rows may be read as float4. */
static __global__ void similar(const float *__restrict__ f, int n, int d, bool fours,
                               float *__restrict__ s) {
    __shared__ __align__(16) float a[TILE][DEPTH + PAD], b[TILE][DEPTH + PAD];
    int tiles = (n + TILE - 1) / TILE, ti = 0, tj = blockIdx.x;
    int tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    while (tj >= tiles - ti) tj -= tiles - ti++; /* row ti has the tiles from its diagonal on */
    tj += ti;
    float sum = 0;
    for (int l0 = 0; l0 < d; l0 += DEPTH) {
        int depth = d - l0 < DEPTH ? d - l0 : DEPTH;
        if (fours) {
#pragma unroll 8
            for (int p = threadIdx.x; p < 2 * TILE * DEPTH / 4; p += TILE * TILE) {
                int r = p / (DEPTH / 4) % TILE, l = p % (DEPTH / 4) * 4;
                bool second = p >= TILE * DEPTH / 4;
                int i = (second ? tj : ti) * TILE + r;
                float4 x = make_float4(0, 0, 0, 0);
                if (i < n && l < depth) x = *(const float4 *)(f + (size_t)i * d + l0 + l);
                *(float4 *)(second ? &b[r][l] : &a[r][l]) = x;
            }
        } else {
            for (int p = threadIdx.x; p < TILE * DEPTH; p += TILE * TILE) {
                int r = p / DEPTH, l = p % DEPTH, i = ti * TILE + r, j = tj * TILE + r;
                a[r][l] = i < n && l < depth ? f[(size_t)i * d + l0 + l] : 0;
                b[r][l] = j < n && l < depth ? f[(size_t)j * d + l0 + l] : 0;
            }
        }
        __syncthreads();
#pragma unroll 8
        for (int l = 0; l < depth; l += 4) {
            float4 x = *(const float4 *)&a[ty][l], y = *(const float4 *)&b[tx][l];
            sum = fmaf(x.x, y.x, sum);
            sum = fmaf(x.y, y.y, sum);
            sum = fmaf(x.z, y.z, sum);
            sum = fmaf(x.w, y.w, sum);
        }
        __syncthreads();
    }
    int i = ti * TILE + ty, j = tj * TILE + tx;
    if (i >= n || j >= n) return;
    s[(size_t)i * n + j] = sum;
    s[(size_t)j * n + i] = sum;
}

void cuda_similar(device *dev, const float *f, int n, int d, float *s) {
    unsigned tiles = blocks_for(n, TILE);
    bool fours = d % 4 == 0 && (size_t)f % 16 == 0;
    similar<<<tiles *(tiles + 1) / 2, TILE * TILE, 0, stream_of(dev)>>>(f, n, d, fours, s);
}

/* ---- picks ----------------------------------------------------------------------------------- */

/* The edges of row i and the key of its k1-th, by one warp. */
static __device__ void finish_pick(const graph &g, int i) {
    const int32_t *ids = g.by_s + (size_t)i * g.width;
    const float *values = g.values + (size_t)i * g.width;
    int k1 = g.o.k1, k2 = g.o.k2;
    for (int e = lane(); e < k2; e += WARP) {
        float s = values[e] > 0 ? values[e] : 0;
        float weight = e == 0 ? 1 : g.o.alpha == 2 ? s * s : (float)pow((double)s, g.o.alpha);
        int place = 0;
        for (int x = 0; x < k2; x++) place += ids[x] < ids[e];
        g.edges[(size_t)i * k2 + place] = edge{ids[e], weight};
    }
    if (lane() == 0) g.last[i] = k1 == 1 ? OWN_KEY : rank_of(values[k1 - 1], ids[k1 - 1]);
}

template <int PER> static __global__ void pick(graph g) {
    int i = blockIdx.x * ROWS + threadIdx.x / WARP;
    if (i >= g.n) return;
    const float *s = g.square[0] + (size_t)i * g.n;
    rank_key key[PER], best = load_keys(s, g.n, i, key);
    for (int at = 0; at < g.width; at++) {
        rank_key won = take_max(key, best);
        int j = won == OWN_KEY ? i : rank_column(won);
        if (lane() != 0) continue;
        g.by_s[(size_t)i * g.width + at] = j;
        g.values[(size_t)i * g.width + at] = won == OWN_KEY ? s[i] : rank_value(won);
    }
    __syncwarp();
    finish_pick(g, i);
}

static __global__ void finish_picks(graph g) {
    int i = blockIdx.x * ROWS + threadIdx.x / WARP;
    if (i < g.n) finish_pick(g, i);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A_ij = (R_ij + R_ji) / 2 */
static __device__ inline float adjacent(const graph &g, int i, int j, rank_key last_i) {
    if (i == j) return 1;
    float s = g.square[0][(size_t)i * g.n + j];
    return 0.5f * (float)(rank_of(s, j) >= last_i) + 0.5f * (float)(rank_of(s, i) >= g.last[j]);
}

enum { FIRST, PLAIN, SYMMETRIC, COPY }; /* where the input of a layer comes from */

/* Row i of the next H, by one block: from -> to, and its transpose to across (or NULL).  COPY: A
 * itself, if there are no layers.  A thread has EACH columns at a time, so that several loads
 * are in flight. */
enum { EACH = 4 };

template <int FROM>
static __global__ void layer(graph g, const float *__restrict__ from, float *__restrict__ to,
                             float *__restrict__ across) {
    __shared__ double part[BLOCK / WARP];
    int i = blockIdx.x, n = g.n, k2 = FROM == COPY ? 1 : g.o.k2;
    const edge *edges = g.edges + (size_t)i * k2;
    float *h = to + (size_t)i * n, kept[EACH];
    double squares = 0;
    for (int c0 = 0; c0 < n; c0 += EACH * BLOCK) {
        double sum[EACH] = {0, 0, 0, 0};
#pragma unroll 2
        for (int e = 0; e < k2; e++) {
            edge x = FROM == COPY ? edge{i, 1} : edges[e];
            rank_key last = FROM == FIRST || FROM == COPY ? g.last[x.to] : 0;
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                int c = c0 + r * BLOCK + threadIdx.x;
                if (c >= n) continue;
                float a;
                if (FROM == FIRST || FROM == COPY)
                    a = adjacent(g, x.to, c, last);
                else if (FROM == PLAIN)
                    a = from[(size_t)x.to * n + c];
                else
                    a = from[(size_t)x.to * n + c] + from[(size_t)c * n + x.to];
                sum[r] += (double)x.weight * a;
            }
        }
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int c = c0 + r * BLOCK + threadIdx.x;
            kept[r] = (float)sum[r];
            squares += (double)kept[r] * kept[r];
            if (n > EACH * BLOCK && c < n) h[c] = kept[r]; /* more than can be kept */
        }
    }
    double size = sqrt(block_sum(squares, part));
    for (int c0 = 0; c0 < n; c0 += EACH * BLOCK)
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int c = c0 + r * BLOCK + threadIdx.x;
            if (c >= n) continue;
            float x = n > EACH * BLOCK ? h[c] : kept[r];
            if (FROM != COPY) x = size > 0 ? (float)(x / size) : 0;
            h[c] = x;
            if (across) across[(size_t)c * n + i] = x;
        }
}

static void launch_layer(device *dev, const graph &g, int which, const float *from, float *to,
                         float *across) {
    unsigned blocks = (unsigned)g.n;
    cudaStream_t stream = stream_of(dev);
    switch (which) {
    case FIRST: layer<FIRST><<<blocks, BLOCK, 0, stream>>>(g, from, to, across); break;
    case PLAIN: layer<PLAIN><<<blocks, BLOCK, 0, stream>>>(g, from, to, across); break;
    case SYMMETRIC: layer<SYMMETRIC><<<blocks, BLOCK, 0, stream>>>(g, from, to, across); break;
    default: layer<COPY><<<blocks, BLOCK, 0, stream>>>(g, from, to, across);
    }
}

/* ---- ranking --------------------------------------------------------------------------------- */

enum { COLUMNS = 1024, AHEAD = 8 }; /* of a row of H, scanned at once; loaded at once */

/* Completes the list of row i: after `affine` entries by H H^T, those by S.  By one thread. */
static __device__ void fill(const graph &g, int i, int affine, int32_t *out) {
    const int32_t *by_s = g.by_s + (size_t)i * g.width;
    int found = affine;
    for (int at = 1; found < g.o.k; at++) {
        bool listed = false;
        for (int e = 0; e < affine; e++) listed |= out[e] == by_s[at];
        if (!listed) out[found++] = by_s[at];
    }
}

/* Row i of H H^T by one block; h, across: H and its transpose.  Short rows stay in shared memory
 * and are ranked at once, long ones (PER = 0) go to `product`, [n,n]. */
template <int PER>
static __global__ void rank(graph g, const float *__restrict__ h, const float *__restrict__ across,
                            float *product, int32_t *ids) {
    enum { EACH_HERE = PER == 0 ? 4 : PER <= 8 ? 1 : PER / 8 }; /* columns per thread */
    __shared__ int32_t column[COLUMNS];
    __shared__ float value[COLUMNS], row[PER > 0 ? WARP * PER : 1];
    __shared__ int before[BLOCK / WARP + 1];
    int i = blockIdx.x, n = g.n, warp = threadIdx.x / WARP;
    float *to = PER > 0 ? row : product + (size_t)i * n;
    h += (size_t)i * n;
    for (int j0 = 0; j0 < n; j0 += EACH_HERE * BLOCK) {
        double sum[EACH_HERE] = {0};
        for (int c0 = 0; c0 < n; c0 += COLUMNS) {
            /* the columns that are not zero, in ascending order */
            int count = 0;
            for (int c1 = c0; c1 < c0 + COLUMNS && c1 < n; c1 += BLOCK) {
                int c = c1 + threadIdx.x;
                float x = c < n ? h[c] : 0;
                unsigned set = __ballot_sync(ALL_LANES, x != 0);
                __syncthreads();
                if (lane() == 0) before[warp + 1] = __popc(set);
                if (threadIdx.x == 0) before[0] = 0;
                __syncthreads();
                int place = count, all = 0;
                for (int w = 0; w < BLOCK / WARP; w++) {
                    if (w < warp) place += before[w + 1];
                    all += before[w + 1];
                }
                if (x != 0) {
                    place += __popc(set & ((1u << lane()) - 1));
                    column[place] = c, value[place] = x;
                }
                count += all;
            }
            __syncthreads();
            for (int e0 = 0; e0 < count; e0 += AHEAD) {
                float line[AHEAD][EACH_HERE]; /* all are loaded before the first is used */
#pragma unroll
                for (int e = 0; e < AHEAD; e++)
#pragma unroll
                    for (int r = 0; r < EACH_HERE; r++) {
                        int j = j0 + r * BLOCK + threadIdx.x;
                        line[e][r] =
                            e0 + e < count && j < n ? across[(size_t)column[e0 + e] * n + j] : 0;
                    }
#pragma unroll
                for (int e = 0; e < AHEAD; e++) {
                    double x = e0 + e < count ? value[e0 + e] : 0;
#pragma unroll
                    for (int r = 0; r < EACH_HERE; r++) sum[r] = fma(x, (double)line[e][r], sum[r]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < EACH_HERE; r++) {
            int j = j0 + r * BLOCK + threadIdx.x;
            if (j < n) to[j] = (float)sum[r];
        }
    }
    if (PER == 0) return;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    rank_key key[PER > 0 ? PER : 1], best = load_keys(row, n, i, key);
    int affine = 1;
    ids += (size_t)i * g.o.k;
    if (lane() == 0) ids[0] = i;
    take_max(key, best);
    for (; affine < g.o.k; affine++) {
        rank_key won = take_max(key, best);
        if (!(rank_value(won) > 0)) break;
        if (lane() == 0) ids[affine] = rank_column(won);
    }
    if (lane() == 0) fill(g, i, affine, ids);
}

/* Lists as top_k left them -> with entries by S in place of zeros.  values: [n,k] */
static __global__ void fill_lists(graph g, const float *values, int32_t *ids) {
    int i = blockIdx.x * BLOCK + threadIdx.x, affine = 1;
    if (i >= g.n) return;
    while (affine < g.o.k && values[(size_t)i * g.o.k + affine] > 0) affine++;
    fill(g, i, affine, ids + (size_t)i * g.o.k);
}

/* ---- all together ---------------------------------------------------------------------------- */

static int neighbors(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                     int32_t *ids, void *work) {
    int rc = 0;
    bool fits = n <= IN_REGISTERS;
    cudaStream_t stream = stream_of(dev);
    graph g;
    plan(n, d, o, work, &g);
    float *s = g.square[0], *h = g.square[1], *next = g.square[2];
    /* S is not needed after the first layer: its memory takes the transpose of H, or H H^T */
    float *across = o->layers > 1 ? s : next, *product = o->layers > 1 ? next : s;
    cuda_similar(dev, f, n, d, s);
    if (o->local) {
        TRY(cuda_top_k(dev, s, n, n, n, 0, o->k, ids, NULL));
        goto done;
    }
    if (fits) {
        BY_WIDTH(n, pick, <<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream>>>(g));
    } else {
        TRY(cuda_top_k(dev, s, n, n, n, 0, g.width, g.by_s, g.values));
        finish_picks<<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream>>>(g);
    }
    launch_layer(dev, g, o->layers > 0 ? FIRST : COPY, NULL, h, o->layers <= 1 ? across : NULL);
    for (int l = 1; l < o->layers; l++) {
        launch_layer(dev, g, o->resymmetrize ? SYMMETRIC : PLAIN, h, next,
                     l == o->layers - 1 ? across : NULL);
        product = h, h = next, next = product;
    }
    if (fits) {
        BY_WIDTH(n, rank, <<<n, BLOCK, 0, stream>>>(g, h, across, NULL, ids));
    } else {
        rank<0><<<n, BLOCK, 0, stream>>>(g, h, across, product, NULL);
        TRY(launched("neighbors"));
        TRY(cuda_top_k(dev, product, n, n, n, 0, o->k, ids, g.values));
        fill_lists<<<blocks_for(n, BLOCK), BLOCK, 0, stream>>>(g, g.values, ids);
    }
    TRY(launched("neighbors"));
done:
    return rc;
}

void cuda_neighbor_ops(device_ops *op) {
    op->neighbors_bytes = neighbors_bytes;
    op->neighbors = neighbors;
}
