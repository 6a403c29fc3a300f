/* ref.c: the reference table.  Plain loops, one thread, sums in double: the definition of every
 * operation, which the other tables are checked against.  Not written for speed.  Here: memory,
 * products, rows and weights; ref_layers.c, ref_transformers.c, ref_losses.c and
 * ref_prototypes.c have the rest. */
#include "device/ref.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static void ref_close(device *dev) { (void)dev; }

/* Large blocks ask for huge pages: their addresses then fit the TLB. */
static int ref_alloc(device *dev, size_t bytes, void **out) {
    (void)dev;
    enum { SMALL = 256, PAGE = 2 << 20 };
    size_t align = bytes < 4 * (size_t)PAGE ? SMALL : PAGE;
    *out = NULL;
    int rc = memory_check("device", (double)bytes);
    if (rc < 0) return rc;
    if (bytes > SIZE_MAX - align) return fail_memory("device", (double)bytes);
    size_t rounded = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, rounded ? rounded : align);
    if (!p) return fail_memory("device", (double)bytes);
#ifdef MADV_HUGEPAGE
    if (align == PAGE) madvise(p, bytes / PAGE * PAGE, MADV_HUGEPAGE); /* a hint; refusal is fine */
#endif
    memset(p, 0, bytes);
    *out = p;
    return 0;
}

static void ref_free(device *dev, void *p) {
    (void)dev;
    free(p);
}

static int ref_copy(device *dev, void *to, const void *from, size_t bytes) {
    (void)dev;
    if (bytes) memcpy(to, from, bytes);
    return 0;
}

static int ref_zero(device *dev, void *p, size_t bytes) {
    (void)dev;
    if (bytes) memset(p, 0, bytes);
    return 0;
}

static int ref_sync(device *dev) {
    (void)dev;
    return 0;
}

/* Nothing is recorded: the body runs each time. */
static int ref_repeat(device *dev, int (*body)(void *arg), void *arg, recording **r) {
    (void)dev, (void)r;
    return body(arg);
}

static void ref_recording_free(device *dev, recording *r) { (void)dev, (void)r; }

static int ref_act_from(device *dev, const float *x, size_t count, act *out) {
    return ref_copy(dev, out, x, count * sizeof *x);
}

static int ref_act_to(device *dev, const act *x, size_t count, float *out) {
    return ref_copy(dev, out, x, count * sizeof *out);
}

/* ---- dense ----------------------------------------------------------------------------------- */

static int ref_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                    int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    (void)dev;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)(ta ? a[(size_t)l * lda + i] : a[(size_t)i * lda + l]) *
                       (tb ? b[(size_t)j * ldb + l] : b[(size_t)l * ldb + j]);
            float *to = c + (size_t)i * ldc + j;
            *to = (float)(alpha * sum + (beta == 0 ? 0 : (double)beta * *to));
        }
    return 0;
}

/* ---- rows, choice ---------------------------------------------------------------------------- */

static int ref_rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm) {
    (void)dev;
    for (int i = 0; i < n; i++, x += d, out += d) {
        double squares = 0;
        for (int j = 0; j < d; j++) squares += (double)x[j] * x[j];
        double size = sqrt(squares);
        if (norm) norm[i] = (float)size;
        for (int j = 0; j < d; j++) out[j] = size > 0 ? (float)(x[j] / size) : 0;
    }
    return 0;
}

static int ref_rows_normalize_back(device *dev, const float *out, const float *norm,
                                   const float *dout, int n, int d, float *dx) {
    (void)dev;
    for (int i = 0; i < n; i++, out += d, dout += d, dx += d) {
        double along = 0;
        for (int j = 0; j < d; j++) along += (double)out[j] * dout[j];
        for (int j = 0; j < d; j++)
            dx[j] = norm[i] > 0 ? (float)((dout[j] - along * out[j]) / norm[i]) : 0;
    }
    return 0;
}

static int ref_rows_take(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                         void *to) {
    for (int i = 0; i < n; i++)
        ref_copy(dev, (char *)to + (size_t)i * row_bytes,
                 (const char *)from + (size_t)ids[i] * row_bytes, row_bytes);
    return 0;
}

static int ref_ring_put(device *dev, const step_values *at, const float *rows, int n, int d,
                        float *ring, int size) {
    ASSERT(n <= size);
    for (int i = 0; i < n; i++) {
        size_t place = (size_t)(((uint64_t)at->step * (uint64_t)n + (uint64_t)i) % (uint64_t)size);
        ref_copy(dev, ring + place * d, rows + (size_t)i * d, (size_t)d * sizeof *ring);
    }
    return 0;
}

static int ref_top_k(device *dev, const float *s, int n, int m, int ld, int self, int k,
                     int32_t *ids, float *values) {
    (void)dev;
    ASSERT(k <= m);
    for (int i = 0; i < n; i++, s += ld, ids += k) {
        int found = 0, own = self < 0 ? -1 : self + i;
        if (own >= 0 && k > 0) ids[found++] = own;
        int fixed = found; /* the own column keeps its place */
        for (int j = 0; j < m; j++) {
            if (j == own || k == fixed) continue;
            if (found == k && !(s[j] > s[ids[k - 1]])) continue;
            int at = found < k ? found++ : k - 1;
            for (; at > fixed && s[j] > s[ids[at - 1]]; at--) ids[at] = ids[at - 1];
            ids[at] = j;
        }
        for (int j = 0; values && j < k; j++) values[(size_t)i * k + j] = s[ids[j]];
    }
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int ref_average(device *dev, const step_values *at, size_t n, const float *w,
                       float *average) {
    (void)dev;
    float m = at->average;
    for (size_t i = 0; i < n; i++) average[i] = m * average[i] + (1 - m) * w[i];
    return 0;
}

static int ref_sgd(device *dev, const step_values *at, int which, bool average_first, float scale,
                   size_t n, float *w, const float *dw, float *v, float *average) {
    (void)dev;
    float m = at->average;
    for (size_t i = 0; i < n; i++) {
        if (average && average_first) average[i] = m * average[i] + (1 - m) * w[i];
        v[i] = at->momentum * v[i] + (scale * dw[i] + at->decay * w[i]);
        w[i] -= at->lr[which] * v[i];
        if (average && !average_first) average[i] = m * average[i] + (1 - m) * w[i];
    }
    return 0;
}

void device_ref_ops(device_ops *op) {
    *op = (device_ops){
        .close = ref_close,
        .alloc = ref_alloc,
        .free = ref_free,
        .put = ref_copy,
        .get = ref_copy,
        .copy = ref_copy,
        .zero = ref_zero,
        .sync = ref_sync,
        .repeat = ref_repeat,
        .recording_free = ref_recording_free,
        .act_from = ref_act_from,
        .act_to = ref_act_to,
        .gemm = ref_gemm,
        .rows_normalize = ref_rows_normalize,
        .rows_normalize_back = ref_rows_normalize_back,
        .rows_take = ref_rows_take,
        .ring_put = ref_ring_put,
        .top_k = ref_top_k,
        .average = ref_average,
        .sgd = ref_sgd,
    };
    ref_layers(op);
    ref_losses(op);
    ref_prototypes(op);
    ref_views_ops(op);
    ref_transformers(op);
}
