/* device.h: the seam between the method and the machine.
 *
 * A device is one table of operations.  There are three tables:
 *   ref    plain loops: the definition of every operation, always built
 *   cpu    starts as ref and replaces what it can do faster
 *   cuda   fills the whole table, the optional entries too
 * Callers never ask which one they have; if they must know what it can do, they ask the properties
 * in struct device.
 *
 * What every operation promises
 * - It may be asynchronous: it is queued in order, allocates nothing and returns only a status to
 *   the host.  Only `get` and `sync` wait (and those entries that say so).
 * - Pointers are device memory (alloc) unless marked "host".  Shapes and structs are host values.
 * - Activations are NHWC blocks of a type that the device chose when it was opened (fp32, or bf16
 *   on cuda): opaque, `act *`.  Weights, statistics, features and losses are always float.
 *   Convolution weights are [co][k][k][ci]; torch's order exists only in files.
 * - Values that change from step to step (learning rate, ...) are read from step_values in device
 *   memory, so that a recorded sequence of operations can be replayed.
 * - Sums have a fixed order: the same bits every time, for any number of threads.
 * - Convolution weights are written only by put, copy, zero, sgd and average, so that a device can
 *   keep a copy of them in the type it computes in.
 *
 * Optional entries may be NULL; each says what the caller does then.
 *
 * Groups.  Batch statistics are taken over `groups` contiguous equal parts of the batch, each with
 * its own mean and variance: 2 for two views in one batch, batch/128 for the per-GPU statistics of
 * the paper's released code, 1 for joint statistics.
 *
 * Letters: n images, h,w,c maps, d features, K clusters, k neighbors or kernel size. */
#ifndef CONR_DEVICE_H
#define CONR_DEVICE_H

#include "conr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct device device;
typedef struct act act; /* activations; never dereferenced outside a backend */

typedef enum act_type { ACT_F32, ACT_BF16 } act_type;

/* What changes from step to step.  Lives in device memory; the host fills one and `put`s it. */
typedef struct step_values {
    float lr[2];    /* [0] encoder and projector, [1] predictor */
    float momentum; /* of SGD */
    float decay;    /* weight decay, added to the gradient */
    float average;  /* m of the moving average: average <- m average + (1-m) weights */
    int32_t keep;   /* rows of a half batch that the boundary filter keeps, at least 1 */
    uint32_t epoch; /* of the views; from 0 */
    uint32_t step;  /* of the whole training; from 0 */
} step_values;

/* A recorded sequence of operations (repeat). */
typedef struct recording recording;

struct views_job; /* views/job.h */
struct views_row;

/* Memory in `slots` equal parts that the host fills while operations run.  Slot i is at i*bytes. */
typedef struct ferry {
    int slots;
    size_t bytes;
    unsigned char *host; /* written by the host */
    unsigned char *on;   /* device memory; the same as `host` if the device has host_memory */
} ferry;

/* ---- convolution ----------------------------------------------------------------------------- */

/* A dense layer is a 1x1 convolution of a 1x1 map. */
typedef struct conv_shape {
    int n, h, w, ci; /* input */
    int co, k, stride, pad;
    int groups; /* of batch statistics; divides n */
} conv_shape;

/* Algorithm and workspace for one shape, made once.  A backend may keep more behind it. */
typedef struct conv_plan {
    conv_shape s;
    int oh, ow;
    size_t workspace; /* bytes that each call needs; the caller owns them, and calls that do not
                         overlap in time may share them */
} conv_plan;

/* ---- batch norm ------------------------------------------------------------------------------ */

typedef struct norm_shape {
    int n, hw, c; /* hw = h*w of the map */
    int groups;
} norm_shape;

/* An operand gamma*(y - mean)*invstd + beta, per group and channel; plain y if stat is NULL. */
typedef struct normed {
    const act *y;              /* [n,hw,c] */
    const float *stat;         /* [groups][2][c]: mean, invstd */
    const float *gamma, *beta; /* [c] */
} normed;

/* The arguments of norm_finish that conv_forward_finish takes beside its own. */
typedef struct norm_rest {
    int passes;
    double count;
    float momentum;
    float *running, *stat;
} norm_rest;

typedef struct pool_shape {
    int n, h, w, c;
} pool_shape;

#define NORM_EPS 1e-5 /* as in torch */

/* ---- transformers ---------------------------------------------------------------------------- */

/* What follows a dense layer.  GELU is x P(a normal number < x):
 *   exact  x (1 + erf(x / sqrt 2)) / 2
 *   quick  x / (1 + e^(-1.702 x))
 *   tanh   x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
typedef enum dense_then { DENSE_PLAIN, DENSE_GELU, DENSE_GELU_QUICK, DENSE_GELU_TANH } dense_then;

typedef struct dense_shape {
    int m, ci, co; /* rows; values of a row before and after */
    dense_then then;
} dense_shape;

/* Heads are adjacent parts of d values of a row.  Rows are `_row` values apart; from image to image
 * it is `_image`, which may be 0: the same for all. */
typedef struct attention_shape {
    int n, queries, keys, heads, d; /* n images; d: values of a head */
    size_t q_row, q_image;
    size_t k_row, k_image; /* of keys and values */
    size_t o_row, o_image; /* of the result */
    float scale;           /* of the products, usually 1 / sqrt d */
} attention_shape;

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct device_ops {
    void (*close)(device *dev); /* frees what the backend keeps in dev->own */

    /* ---- memory ---- */

    int (*alloc)(device *dev, size_t bytes, void **out); /* zeroed, 256-byte aligned */
    void (*free)(device *dev, void *p);                  /* NULL is fine */
    int (*put)(device *dev, void *to, const void *host_from, size_t bytes);
    int (*get)(device *dev, void *host_to, const void *from, size_t bytes); /* waits */
    int (*copy)(device *dev, void *to, const void *from, size_t bytes);     /* no overlap */
    int (*zero)(device *dev, void *p, size_t bytes);
    int (*sync)(device *dev); /* waits; an asynchronous fault surfaces here */

    /* The next three are optional, all or none (NULL: memory is host memory, nothing is queued). */

    /* 1 if p lies in the memory of this device, from alloc or from another library; 0 if it lies in
     * host memory; fails if it lies in the memory of another device. */
    int (*reaches)(device *dev, const void *p);
    /* From now on operations are queued on this stream (cudaStream_t), after all that were queued
     * before; NULL: on the device's own stream.  Does not wait. */
    int (*set_stream)(device *dev, void *stream);
    /* Memory for one public call at a time, at least `bytes`, 256-byte aligned, with whatever the
     * previous call left in it.  It grows if needed, which waits, and is kept until the device is
     * closed: a call no larger than an earlier one only queues operations.  Memory handed out while
     * the stream was being captured stays with the graphs captured then. */
    int (*work)(device *dev, size_t bytes, void **out);

    /* ---- repetition and time ---- */

    /* Runs body(arg), which only queues operations of this device, the same ones with the same
     * pointers every time.  A device that can records them and replays the recording from then on.
     * *r starts as NULL and is released by recording_free. */
    int (*repeat)(device *dev, int (*body)(void *arg), void *arg, recording **r);
    void (*recording_free)(device *dev, recording *r); /* NULL is fine */

    /* Optional (NULL: use the host's clock and sync): a moment in the queue, and the seconds from
     * one to another, which waits for the second.  Moments live as long as the device; take few. */
    int (*moment)(device *dev, void **out);
    int (*seconds)(device *dev, void *from, void *to, double *out);
    /* Optional (NULL: measure the host, peak.h): the peak rates of this device: operations per
     * second of a large matrix product in the type of its activations, and bytes per second of a
     * large copy, read + written. */
    int (*peaks)(device *dev, double *flops, double *bytes);

    /* ---- types and products ---- */

    /* float <-> activations, `count` elements */
    int (*act_from)(device *dev, const float *x, size_t count, act *out);
    int (*act_to)(device *dev, const act *x, size_t count, float *out);

    /* Row-major C = alpha op(A) op(B) + beta C; op transposes if ta or tb.  op(A): [m,k],
     * op(B): [k,n], C: [m,n]; lda, ldb, ldc: floats from one stored row to the next.  beta = 0 does
     * not read C. */
    int (*gemm)(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                int lda, const float *b, int ldb, float beta, float *c, int ldc);

    /* ---- convolution ----
     *
     * x: [n,h,w,ci], y: [n,oh,ow,co], w: [co][k][k][ci], bias: [co] or NULL */

    int (*conv_plan_new)(device *dev, const conv_shape *s, conv_plan **out);
    void (*conv_plan_free)(device *dev, conv_plan *p); /* NULL is fine */
    /* y = conv(x, w) + bias.  Unless sums is NULL, also, for each group g and channel c,
     *   sums[g][0][c] = sum of (y - shift[c])
     *   sums[g][1][c] = sum of (y - shift[c])^2
     * sums: [groups][2][co].  shift: [co], any guess of the mean: it saves digits and does not
     * change the statistics. */
    int (*conv_forward)(device *dev, const conv_plan *p, const act *x, const float *w,
                        const float *bias, act *y, const float *shift, float *sums, void *work);
    /* Optional (NULL: make the two calls): conv_forward with the running mean as shift, followed by
     * norm_finish; for sums that no other rank adds to. */
    int (*conv_forward_finish)(device *dev, const conv_plan *p, const act *x, const float *w,
                               const float *bias, act *y, float *sums, const norm_rest *rest,
                               void *work);
    /* dx = (add ? dx : 0) + transposed convolution of dy */
    int (*conv_back_data)(device *dev, const conv_plan *p, const act *dy, const float *w, bool add,
                          act *dx, void *work);
    /* dw = (add ? dw : 0) + correlation of x and dy; dbias likewise, or NULL */
    int (*conv_back_filter)(device *dev, const conv_plan *p, const act *x, const act *dy, bool add,
                            float *dw, float *dbias, void *work);

    /* ---- batch norm, with the addition and the ReLU that follow it ---- */

    /* stat[g] = mean, invstd from sums over `count` elements per channel (of all ranks together).
     * The running statistics ([2][c]: mean, variance) are the shift of the sums.  If momentum > 0
     * they are then updated once per pass: the groups are `passes` equal parts, and the mean over
     * the groups of a part, of mean and unbiased variance, enters with weight momentum. */
    int (*norm_finish)(device *dev, int c, int groups, int passes, double count, const float *sums,
                       float momentum, float *running, float *stat);
    /* stat for evaluation, from the running statistics; one group */
    int (*norm_from_running)(device *dev, int c, const float *running, float *stat);
    /* z = relu?(y + shortcut + residual).  shortcut and residual may be NULL, not both given; z may
     * be y->y or residual. */
    int (*norm_apply)(device *dev, const norm_shape *s, const normed *y, const normed *shortcut,
                      const act *residual, bool relu, act *z);
    /* The gradient of operand y, first half.  With d = relu ? dz * (z > 0) : dz,
     *   sums[g]       = sum of d, sum of d * xhat          [groups][2][c]
     *   dbeta, dgamma = (add ? old : 0) + their totals over the groups
     *   d_out         = d, unless NULL; may be dz itself
     * z NULL: there was neither shortcut nor residual, and the sign is recomputed from y.
     * y->stat NULL: only d_out is written; sums, dgamma and dbeta are NULL. */
    int (*norm_back_sums)(device *dev, const norm_shape *s, const normed *y, const act *z,
                          bool relu, const act *dz, bool add, float *sums, float *dgamma,
                          float *dbeta, act *d_out);
    /* Second half: dy = gamma*invstd*(d - sums[0]/count - xhat*sums[1]/count).  sums may have been
     * added up over ranks; count is the number of elements per channel and group on all of them.
     * dz, z, relu as above; pass relu = false if dz is d_out of the first half.  dy may be dz or
     * y->y. */
    int (*norm_back_apply)(device *dev, const norm_shape *s, const normed *y, const act *z,
                           bool relu, const act *dz, const float *sums, double count, act *dy);

    /* ---- pools ---- */

    /* max over 3x3, stride 2, pad 1; the gradient goes to the first maximum in row-major order */
    int (*max_pool)(device *dev, const pool_shape *s, const act *x, act *y);
    int (*max_pool_back)(device *dev, const pool_shape *s, const act *x, const act *dy, act *dx);
    /* mean over the whole map */
    int (*mean_pool)(device *dev, const pool_shape *s, const act *x, act *y);
    int (*mean_pool_back)(device *dev, const pool_shape *s, const act *dy, act *dx);

    /* ---- transformers ---- */

    /* y = residual + scale * f(x w' + bias), f by s->then.  x: [m,ci]; w: [co,ci]; bias: [co] or
     * NULL: 0; scale: [co] or NULL: 1; residual: [m,co] or NULL: 0; y: [m,co], not the residual. */
    int (*dense)(device *dev, const dense_shape *s, const act *x, const float *w, const float *bias,
                 const float *scale, const act *residual, act *y);
    /* y = gamma * (x - mean) / sqrt(variance + eps) + beta, mean and variance of each row.  x, y:
     * [n,d], may be the same; gamma, beta: [d]. */
    int (*layer_norm)(device *dev, int n, int d, float eps, const act *x, const float *gamma,
                      const float *beta, act *y);
    /* out = softmax(scale q k') v, for each image and head; a matrix [queries,keys] never exists as
     * a whole.  work: attention_bytes bytes. */
    size_t (*attention_bytes)(device *dev, const attention_shape *s);
    int (*attention)(device *dev, const attention_shape *s, const act *q, const act *k,
                     const act *v, act *out, void *work);
    /* The rows that a transformer starts from: out [n, extra + m, d] = first [extra,d], the same for
     * all images, then x [n,m,d] + place [m,d]. */
    int (*tokens)(device *dev, int n, int extra, int m, int d, const act *x, const float *first,
                  const float *place, act *out);

    /* ---- rows of features, [n,d] ---- */

    /* out[i] = x[i] / |x[i]|, norm[i] = |x[i]|; a zero row stays zero and has no gradient.  out may
     * be x; norm: [n] or NULL. */
    int (*rows_normalize)(device *dev, const float *x, int n, int d, float *out, float *norm);
    int (*rows_normalize_back)(device *dev, const float *out, const float *norm, const float *dout,
                               int n, int d, float *dx); /* dx may be dout */

    /* to[i] = from[ids[i]], rows of row_bytes bytes; ids: [n] */
    int (*rows_take)(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                     void *to);
    /* Row i of rows [n,d] goes to row (step*n + i) mod size of the ring [size,d]; n <= size. */
    int (*ring_put)(device *dev, const step_values *at, const float *rows, int n, int d,
                    float *ring, int size);

    /* The k best columns of each row, best first: column self+i of row i always comes first
     * (self < 0: none does), then the larger value, then the lower column.  k <= m.
     * s: [n,m], rows ld floats apart; ids: [n,k]; values: [n,k] or NULL. */
    int (*top_k)(device *dev, const float *s, int n, int m, int ld, int self, int k, int32_t *ids,
                 float *values);

    /* ---- losses of one half batch ----
     *
     * Unit rows q [n,d] are pulled towards unit rows key [n,d].
     *   near     [n,k], the rows of key that row i is pulled to; NULL with k = 1: row i itself.  Where
     *            it is given, `pull` takes keys of any number of rows
     *   weight   [n], of the rows, adding up to about 1; NULL: 1/n each
     *   factor   multiplies the value and the gradient
     *   *loss    the value is added to it
     *   dq       [n,d], set to the gradient */

    /* value = - sum_i weight_i mean_j <q_i, key_near(i,j)> */
    int (*pull)(device *dev, const float *q, const float *key, int n, int d, const int32_t *near,
                int k, const float *weight, float factor, float *loss, float *dq);
    /* InfoNCE with several positives:
     *   value = - sum_i weight_i mean_j log(e^s_ij / (e^s_ij + sum_m e^l_im))
     *   s_ij  = <q_i, key_near(i,j)> / temperature
     *   l_im  = <q_i, queue_m> / temperature
     * queue: [size,d]; logits: [n,size], scratch memory. */
    int (*contrast)(device *dev, const float *q, const float *key, int n, int d,
                    const int32_t *near, int k, const float *weight, float factor,
                    const float *queue, int size, float temperature, float *logits, float *loss,
                    float *dq);
    /* Pulls together rows of the same label, each label with the same weight: with C labels present
     * among the rows, label c in n_c of them,
     *   value = - 1/C sum_c 1/n_c^2 sum_{i,j of c} <q_i, key_j>
     * label: [n], 0 .. K-1, or -1: the row takes no part.  The gradient is added to dq.  work:
     * prototypes_bytes(n, d, K) bytes (device/prototypes.h). */
    int (*pull_alike)(device *dev, const float *q, const float *key, int n, int d,
                      const int32_t *label, int K, float factor, void *work, float *loss,
                      float *dq);
    /* Prototype scattering (ProPos): keeps the clusters of a batch apart.  rows and key: [n,d] unit
     * rows; label: [all images], 0 .. K-1; row i belongs to image ids[i] (ids NULL: to image i), and
     * takes no part if its label is -1.  For each of the m clusters present,
     *   Q_c, T_c = the sums of its rows and of its keys, scaled to length 1 (a zero sum stays zero
     *              and has no gradient)
     *   s_cc = <Q_c, T_c>/temperature, s_cj = <Q_c, Q_j>/temperature for the others present
     *   value = mean_c (log sum_j e^s_cj - s_cc)
     * With p_cj = e^s_cj / sum_j e^s_cj its gradient by Q_c is, m temperature times,
     *   (p_cc - 1) T_c + sum_{j != c} (p_cj + p_jc) Q_j
     * drows: [n,d], set to the gradient by rows, times factor; 0 if there are fewer than two
     * clusters, as nothing can be kept apart then.  work: prototypes_bytes(n, d, K) bytes
     * (device/prototypes.h). */
    int (*prototypes)(device *dev, const float *rows, const float *key, int n, int d,
                      const int32_t *ids, const int32_t *label, int K, float temperature,
                      float factor, void *work, float *loss, float *drows);

    /* x [n,d] += sigma times standard normal numbers, drawn for (seed, at->step, first + row,
     * column): device/prototypes.h. */
    int (*noise)(device *dev, const step_values *at, uint64_t seed, float sigma, int first, int n,
                 int d, act *x);

    /* ---- which rows to trust ---- */

    /* Confident rows (DCBoost) of a half batch: all their k nearest neighbors have their label.
     *   f       [n,d] unit rows; products of two rows are rounded to float
     *   ids     [n], the images they belong to
     *   label   [all images], 0 and above
     *   kept    [n]: the label of row i if r_i >= k, else -1; where
     *   r_i     of the other rows, ordered by <f_i, f_j>, the larger first, then the lower j: how
     *           many have row i's label before the first that has not; at most `most`
     *   k       of 1 .. most the one with the largest k #{i: r_i >= k}, the smallest of equals
     * most: 1 to CONFIDENT_MOST; work: confident_bytes(n) bytes (device/confident.h). */
    int (*confident)(device *dev, const float *f, int n, int d, const int32_t *ids,
                     const int32_t *label, int most, void *work, int32_t *kept);

    /* The boundary filter of a half batch.
     *   f          [n,d] unit rows
     *   ids        [n], the images they belong to
     *   label      [all images], 0 .. K-1
     *   centroids  [K,d]
     *   ratio      [n], r = 1 - (d_N - d_I)/max(d_I, d_N) with d_I = |f - own centroid| and
     *              d_N = |f - nearest other centroid|; 1 if both are 0, 0 if K = 1
     *   weight     [n]: the `keep` rows with the smallest ratio, and any that tie with the last of
     *              them, get 1/(their number), or 1/n with over_batch; the others get 0 */
    int (*boundary)(device *dev, const step_values *at, const float *f, int n, int d,
                    const int32_t *ids, const int32_t *label, const float *centroids, int K,
                    bool over_batch, float *ratio, float *weight);

    /* Optional (NULL: on the host, neighbors/boundary.c): the two halves of `boundary` for any
     * rows.  label: [n], of the rows; the ratio is NaN if one is not in 0 .. K-1.  kept[i] = 1 for
     * the `keep` smallest ratios (1 to n) and any that tie with the last of them, else 0. */
    int (*boundary_ratio)(device *dev, const float *f, int n, int d, const int32_t *label,
                          const float *centroids, int K, float *ratio);
    int (*boundary_keep)(device *dev, const float *ratio, int n, int keep, unsigned char *kept);

    /* ---- neighborhoods and clusters ----
     *
     * All optional (NULL: on the host, src/neighbors and src/clusters). */

    /* Contextually affinitive or local neighbors of a batch.  f: [n,d] unit rows; o: k, k1, k2
     * between 1 and n; ids: [n,k]; work: neighbors_bytes bytes. */
    size_t (*neighbors_bytes)(device *dev, int n, int d, const conr_neighbors_options *o);
    int (*neighbors)(device *dev, const float *f, int n, int d, const conr_neighbors_options *o,
                     int32_t *ids, void *work);
    /* The k best columns of rows first .. first+rows-1 of F F^T: the row itself first (with value
     * 1), then the larger value, then the lower index.  f: [n,d] unit rows; ids, values: [rows,k];
     * all device memory.  Allocates memory of its own and waits. */
    int (*search)(device *dev, const float *f, int n, int d, int first, int rows, int k,
                  int32_t *ids, float *values);
    /* k-means as in conr_kmeans; its runs are numbered from `first` on.  o has been checked (start:
     * host; with it restarts may be 0).  features: [n,d], finite; centroids: [K,d]; labels: [n];
     * all device memory.  history (host) may be NULL.  Allocates memory of its own and waits. */
    int (*kmeans)(device *dev, const float *features, int n, int d, const conr_kmeans_options *o,
                  int first, float *centroids, int32_t *labels, conr_kmeans_history *history);
    /* conr_assign; all device memory, distances may be NULL.  Takes `work`. */
    int (*assign)(device *dev, const float *features, int n, int d, conr_metric metric,
                  const float *centroids, int K, int32_t *labels, float *distances);

    /* ---- views ---- */

    /* View 0 or 1 of n images in the epoch of `at`, or 2: the images without randomness.
     * views/pixels.h is the definition.  rows: [n], where the images are; out: [n,size,size,c]. */
    int (*views)(device *dev, const step_values *at, const struct views_job *job,
                 const struct views_row *rows, int n, int view, act *out);
    /* Whether it can; if not (views that are very large, or blurred and large), make them on the
     * host.  job->pixels is not looked at. */
    bool (*views_takes)(device *dev, const struct views_job *job);

    /* ---- a ferry ----
     *
     * Brings bytes to the device beside the queue.  Of each slot in turn: fill, send, take, done.
     * fill and send may be called by any thread, but by one at a time for a slot. */

    int (*ferry_new)(device *dev, int slots, size_t bytes, ferry **out);
    void (*ferry_free)(device *dev, ferry *f);          /* NULL is fine */
    int (*ferry_fill)(device *dev, ferry *f, int slot); /* waits until the host may write it */
    int (*ferry_send)(device *dev, ferry *f, int slot, size_t bytes); /* after the operations that
                                                                       `done` marked */
    int (*ferry_take)(device *dev, ferry *f,
                      int slot); /* operations queued from now on see what was
                                                         sent */
    int (*ferry_done)(device *dev, ferry *f, int slot); /* those queued until now were the last */

    /* ---- weights ---- */

    /* average <- m average + (1-m) w, n weights */
    int (*average)(device *dev, const step_values *at, size_t n, const float *w, float *average);
    /* One sweep over a block of n weights:
     *     average <- m average + (1-m) w          if average_first
     *     g = scale dw + decay w
     *     v <- momentum v + g
     *     w <- w - lr[which] v
     *     average <- m average + (1-m) w          unless average_first
     * average may be NULL: none is kept. */
    int (*sgd)(device *dev, const step_values *at, int which, bool average_first, float scale,
               size_t n, float *w, const float *dw, float *v, float *average);
} device_ops;

struct device {
    const char *name;  /* "ref", "cpu", "cuda": for messages; code asks the properties below */
    const char *words; /* a description of the machine, or NULL; owned by the backend */
    act_type type;     /* of activations */
    size_t act_size;   /* bytes of one */
    int threads;
    int local;     /* which of the processes on this machine this is: chooses a GPU */
    size_t memory; /* bytes that may be allocated in all; 0: unknown */
    /* properties */
    bool host_memory; /* alloc returns memory that the host can read and write directly */
    bool is_gpu;      /* a CUDA device: NCCL reaches its memory */
    bool is_ref;      /* the reference itself: there is nothing to check it against */
    bool kernel_bits; /* op.gemm has the bits of kernels/gemm.h, so host algorithms built on those
                         kernels may stand in for it */
    device_ops op;
    void *own;           /* the backend's */
    const char *choices; /* a file that keeps choices made by timing, so that later runs get the
                            same bits; NULL: choose anew.  Owned by whoever sets it. */
    conr_on_progress *on_progress; /* of the library's caller, or NULL */
    void *progress_user;
};

/* name: "auto" (a usable GPU if the build and the machine have one, else the CPU), "ref", "cpu",
 * "cuda", "cuda:1"; "cuda-f32" has fp32 activations, for checks.  threads: 0 for all cores. */
int device_open(const char *name, int threads, device **out);
/* The same for one of several processes on a machine: they divide its cores among them and, unless
 * the name says which, take its GPUs in turn. */
int device_open_shared(const char *name, int threads, int local, int locals, device **out);
void device_close(device *dev); /* NULL is fine */

/* Reports progress to the library's caller; CONR_ESTOPPED if it asks to stop.  Never call it from a
 * parallel region. */
int device_report(device *dev, const char *stage, int64_t done, int64_t total);

/* Element `at` of a block of activations. */
static inline act *act_at(const device *dev, act *block, size_t at) {
    return (act *)((char *)block + at * dev->act_size);
}

/* Each backend fills the table; cpu and cuda also keep memory in dev->own.  A build without CUDA
 * has device/cuda/none.c, which fails. */
void device_ref_ops(device_ops *op);
int device_cpu_open(device *dev);
int device_cuda_open(device *dev, const char *name);

#endif
