/* principal.c: what is done to a row before it enters a head: a linear map of its principal
 * components (geometry.c chooses it).
 *
 * Unit rows minus their mean are projected onto their first principal directions.  These come from
 * subspace iteration on a sample of rows with a few directions more than wanted.  The last ones
 * need not have converged: within the subspace found, the components are exact. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MORE = 16,           /* directions beyond those wanted */
    ROUNDS = 3,          /* of subspace iteration */
    SWEEPS = 30,         /* of Jacobi, at most; about eight are needed */
    SAMPLE_ROWS = 16384, /* at most, and fewer if rows are long */
    SAMPLE_FLOATS = 1 << 25,
    CHUNK = 1024 /* rows projected at once */
};
static const double LEAST = 1e-4; /* of the largest variance; components below are rounding noise */
static const float OUTLIER = 10;  /* deviations; an unseen row may be anywhere */

int principal_room(int d, int p, principal *s) {
    *s = (principal){.d = d, .p = p};
    s->mean = memory_new("components", (size_t)d, sizeof *s->mean);
    s->basis = memory_new("components", (size_t)p * d, sizeof *s->basis);
    s->deviation = memory_new("components", (size_t)p, sizeof *s->deviation);
    return s->mean && s->basis && s->deviation ? 0 : CONR_ENOMEM;
}

void principal_free(principal *s) {
    free(s->mean), free(s->basis), free(s->deviation);
    *s = (principal){0};
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* x: [n,d] unit rows, in place. */
static void subtract(int threads, float *x, int64_t n, int d, const float *mean) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < d; j++) x[i * d + j] -= mean[j];
}

int principal_rows(device *host, const principal *s, const float *features, int64_t n, bool cut,
                   float *out) {
    int rc = 0, d = s->d, p = s->p;
    float *unit = memory_new("components", (size_t)CHUNK * d, sizeof *unit);
    TRY(unit ? 0 : CONR_ENOMEM);
    for (int64_t first = 0; first < n; first += CHUNK) {
        int count = n - first < CHUNK ? (int)(n - first) : CHUNK;
        float *to = out + first * p;
        TRY(device_report(host, "components", first, n));
        rows_normalize(host->threads, features + first * d, count, d, unit, NULL);
        subtract(host->threads, unit, count, d, s->mean);
        TRY(host->op.gemm(host, false, true, count, p, d, 1, unit, d, s->basis, d, 0, to, p));
        for (int64_t i = 0; cut && i < (int64_t)count * p; i++)
            to[i] = to[i] > OUTLIER ? OUTLIER : to[i] < -OUTLIER ? -OUTLIER : to[i];
    }
done:
    free(unit);
    return rc;
}

/* ---- directions ------------------------------------------------------------------------------ */

/* Rows of v [q,d] become orthonormal, one after the other; those that depend on earlier ones become
 * zero.  Twice, since once leaves rounding errors of the part that was removed. */
static void orthonormalize(float *v, int q, int d) {
    for (int i = 0; i < q; i++) {
        float *own = v + (size_t)i * d;
        double before = 0, after = 0;
        for (int j = 0; j < d; j++) before += (double)own[j] * own[j];
        for (int again = 0; again < 2; again++)
            for (int k = 0; k < i; k++) {
                const float *other = v + (size_t)k * d;
                double dot = 0;
                for (int j = 0; j < d; j++) dot += (double)own[j] * other[j];
                for (int j = 0; j < d; j++) own[j] -= (float)dot * other[j];
            }
        for (int j = 0; j < d; j++) after += (double)own[j] * own[j];
        double by = after > 1e-10 * before ? 1 / sqrt(after) : 0;
        for (int j = 0; j < d; j++) own[j] = (float)(own[j] * by);
    }
}

/* Eigenvalues of the symmetric a [q,q] onto its diagonal, eigenvectors into the rows of e: cyclic
 * Jacobi (Golub and Van Loan, 8.5). */
void jacobi(double *a, int q, double *e) {
    for (int i = 0; i < q * q; i++) e[i] = i % (q + 1) == 0;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, all = 0;
        for (int i = 0; i < q * q; i++) {
            all += a[i] * a[i];
            off += i % (q + 1) ? a[i] * a[i] : 0;
        }
        if (off <= 1e-20 * all) return;
        for (int i = 0; i < q; i++)
            for (int k = i + 1; k < q; k++) {
                if (a[i * q + k] == 0) continue;
                double t, tau = (a[k * q + k] - a[i * q + i]) / (2 * a[i * q + k]);
                t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau));
                double c = 1 / sqrt(1 + t * t), s = t * c;
                for (int j = 0; j < q; j++) { /* columns i and k */
                    double x = a[j * q + i], y = a[j * q + k];
                    a[j * q + i] = c * x - s * y, a[j * q + k] = s * x + c * y;
                }
                for (int j = 0; j < q; j++) { /* rows i and k */
                    double x = a[i * q + j], y = a[k * q + j];
                    a[i * q + j] = c * x - s * y, a[k * q + j] = s * x + c * y;
                    x = e[i * q + j], y = e[k * q + j];
                    e[i * q + j] = c * x - s * y, e[k * q + j] = s * x + c * y;
                }
            }
    }
}

/* A sample of rows, evenly spread: unit rows minus their mean.  *out is freed by the caller. */
static int sample(device *host, const float *features, int64_t n, int d, float *mean, float **out,
                  int *rows) {
    int most = SAMPLE_FLOATS / d < SAMPLE_ROWS ? SAMPLE_FLOATS / d : SAMPLE_ROWS;
    int m = *rows = n < most ? (int)n : most < 1024 ? (int)(n < 1024 ? n : 1024) : most;
    float *x = *out = memory_new("components", (size_t)m * d, sizeof *x);
    double *sum = calloc((size_t)d, sizeof *sum);
    if (!x || !sum) {
        free(sum);
        return fail_memory("components", (double)m * d * sizeof *x);
    }
    for (int i = 0; i < m; i++)
        memcpy(x + (size_t)i * d, features + (size_t)((double)i * (double)n / m) * d,
               (size_t)d * sizeof *x);
    rows_normalize(host->threads, x, m, d, x, NULL);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < d; j++) sum[j] += x[(size_t)i * d + j];
    for (int j = 0; j < d; j++) mean[j] = (float)(sum[j] / m);
    subtract(host->threads, x, m, d, mean);
    free(sum);
    return 0;
}

/* Keeps the components of the subspace v [q,d] that have the largest variance: e, a as jacobi left
 * them.  Fills basis and deviation. */
static void choose(const float *v, int q, const double *a, const double *e, principal *s) {
    int kept = 0;
    double most = 0;
    bool used[REFINE_COMPONENTS + MORE] = {false};
    for (int i = 0; i < q; i++) most = fmax(most, a[i * q + i]);
    for (; kept < s->p; kept++) {
        int best = -1;
        for (int i = 0; i < q; i++)
            if (!used[i] && (best < 0 || a[i * q + i] > a[best * q + best])) best = i;
        double variance = fmax(a[best * q + best], 0);
        if (kept && !(variance > LEAST * most)) break;
        used[best] = true;
        s->deviation[kept] = (float)sqrt(variance);
        for (int j = 0; j < s->d; j++) {
            double sum = 0;
            for (int k = 0; k < q; k++) sum += e[best * q + k] * v[(size_t)k * s->d + j];
            s->basis[(size_t)kept * s->d + j] = (float)sum;
        }
    }
    s->p = kept;
}

int principal_map(device *host, const float *map, int r, const float *deviation, principal *s) {
    int rc = 0;
    float *basis = memory_new("components", (size_t)r * s->d, sizeof *basis);
    float *own = memory_new("components", (size_t)r, sizeof *own);
    TRY(basis && own ? 0 : CONR_ENOMEM);
    TRY(host->op.gemm(host, false, false, r, s->d, s->p, 1, map, s->p, s->basis, s->d, 0, basis,
                      s->d));
    memcpy(own, deviation, (size_t)r * sizeof *own);
    free(s->basis), free(s->deviation);
    s->basis = basis, s->deviation = own, s->p = r;
    basis = own = NULL;
done:
    free(basis), free(own);
    return rc;
}

int principal_measure(device *host, const float *features, int64_t n, int d, uint64_t seed,
                      principal *s) {
    int rc = 0, m = 0, q = d < REFINE_COMPONENTS + MORE ? d : REFINE_COMPONENTS + MORE;
    float *x = NULL, *y = NULL, *v = NULL, *g = NULL;
    double *a = NULL, *e = NULL;
    TRY(principal_room(d, d < REFINE_COMPONENTS ? d : REFINE_COMPONENTS, s));
    TRY(sample(host, features, n, d, s->mean, &x, &m));
    y = memory_new("components", (size_t)m * q, sizeof *y);
    v = memory_new("components", (size_t)q * d, sizeof *v);
    g = memory_new("components", (size_t)q * q, sizeof *g);
    a = memory_new("components", (size_t)q * q, sizeof *a);
    e = memory_new("components", (size_t)q * q, sizeof *e);
    TRY(y && v && g && a && e ? 0 : CONR_ENOMEM);
    rng r = rng_at(seed, 0, 0, RNG_NOISE);
    for (size_t i = 0; i < (size_t)q * d; i++) v[i] = rng_float(&r) - 0.5f;
    orthonormalize(v, q, d);
    for (int round = 0; round <= ROUNDS; round++) {
        TRY(device_report(host, "components", round, ROUNDS + 1));
        TRY(host->op.gemm(host, false, true, m, q, d, 1, x, d, v, d, 0, y, q));
        if (round == ROUNDS || q == d) break; /* a basis of the whole space needs no search */
        TRY(host->op.gemm(host, true, false, q, d, m, 1, y, q, x, d, 0, v, d));
        orthonormalize(v, q, d);
    }
    TRY(host->op.gemm(host, true, false, q, q, m, 1, y, q, y, q, 0, g, q));
    for (int i = 0; i < q; i++)
        for (int k = 0; k < q; k++) a[i * q + k] = ((double)g[i * q + k] + g[k * q + i]) / 2 / m;
    jacobi(a, q, e);
    choose(v, q, a, e, s);
done:
    free(x), free(y), free(v), free(g), free(a), free(e);
    return rc;
}
