/* gemm.c: matrix products by cuBLASLt.  A product of one shape is planned once, with the first
 * proposal of the library: it is the same every time, and so are the bits. */
#include "device/cuda/own.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct matmul {
    matmul_shape s;
    bool has_bias;
    unsigned align[3]; /* of A, B and C in bytes, up to 256: some algorithms ask for it */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    struct matmul *next;
} matmul;

static int check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return fail(CONR_EDEVICE, "cuBLASLt, %s: %s; please report it", what,
                cublasLtGetStatusString(status));
}

static unsigned alignment(const void *p) {
    unsigned bytes = 1;
    while (bytes < 256 && ((uintptr_t)p & bytes) == 0) bytes *= 2;
    return bytes;
}

static void matmul_free(matmul *m) {
    if (m->a) cublasLtMatrixLayoutDestroy(m->a);
    if (m->b) cublasLtMatrixLayoutDestroy(m->b);
    if (m->c) cublasLtMatrixLayoutDestroy(m->c);
    if (m->op) cublasLtMatmulDescDestroy(m->op);
    free(m);
}

void cuda_matmuls_free(device *dev) {
    for (matmul *m = own_of(dev)->matmuls, *next; m; m = next) {
        next = m->next;
        matmul_free(m);
    }
    own_of(dev)->matmuls = NULL;
}

/* The library is column-major, so it is asked for C' = op(B)' op(A)', which row by row is C. */
static int describe(matmul *m) {
    int rc = 0;
    const matmul_shape *s = &m->s;
    cublasOperation_t turn_b = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t turn_a = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(check(cublasLtMatmulDescCreate(&m->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description"));
    TRY(check(
        cublasLtMatmulDescSetAttribute(m->op, CUBLASLT_MATMUL_DESC_TRANSA, &turn_b, sizeof turn_b),
        "description"));
    TRY(check(
        cublasLtMatmulDescSetAttribute(m->op, CUBLASLT_MATMUL_DESC_TRANSB, &turn_a, sizeof turn_a),
        "description"));
    if (m->has_bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        TRY(check(cublasLtMatmulDescSetAttribute(m->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                 sizeof epilogue),
                  "bias"));
        TRY(check(cublasLtMatmulDescSetAttribute(m->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                 &s->bias, sizeof s->bias),
                  "bias"));
    }
    TRY(check(cublasLtMatrixLayoutCreate(&m->b, s->ab, (uint64_t)(s->tb ? s->k : s->n),
                                         (uint64_t)(s->tb ? s->n : s->k), s->ldb),
              "layout"));
    TRY(check(cublasLtMatrixLayoutCreate(&m->a, s->ab, (uint64_t)(s->ta ? s->m : s->k),
                                         (uint64_t)(s->ta ? s->k : s->m), s->lda),
              "layout"));
    TRY(check(cublasLtMatrixLayoutCreate(&m->c, s->c, (uint64_t)s->n, (uint64_t)s->m, s->ldc),
              "layout"));
done:
    return rc;
}

static int choose(device *dev, matmul *m) {
    int rc = 0, found = 0;
    size_t work = LT_WORK;
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t result = {0};
    static const cublasLtMatmulPreferenceAttributes_t align[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    TRY(check(cublasLtMatmulPreferenceCreate(&wish), "preference"));
    TRY(check(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &work, sizeof work),
              "preference"));
    for (int i = 0; i < 3; i++) { /* A is B to the library */
        uint32_t bytes = m->align[i];
        TRY(check(cublasLtMatmulPreferenceSetAttribute(wish, align[i], &bytes, sizeof bytes),
                  "preference"));
    }
    uint32_t bytes = m->align[2];
    TRY(check(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                   &bytes, sizeof bytes),
              "preference"));
    TRY(check(cublasLtMatmulAlgoGetHeuristic(own_of(dev)->lt, m->op, m->b, m->a, m->c, m->c, wish,
                                             1, &result, &found),
              "choice of an algorithm"));
    if (!found)
        rc = fail(CONR_EDEVICE, "cuBLASLt: no algorithm for %dx%dx%d; please report it", m->s.m,
                  m->s.n, m->s.k);
    m->algo = result.algo;
done:
    if (wish) cublasLtMatmulPreferenceDestroy(wish);
    return rc;
}

static int set_bias(matmul *m, const void *bias) {
    return check(cublasLtMatmulDescSetAttribute(m->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                sizeof bias),
                 "bias");
}

/* A new plan for the product that `key` describes; the device owns it. */
static int plan(device *dev, const matmul *key, const void *bias, matmul **out) {
    int rc = 0;
    matmul *m = malloc(sizeof *m);
    if (!m) return fail_memory("matrix product", sizeof *m);
    *m = *key;
    TRY(describe(m));
    if (bias) TRY(set_bias(m, bias));
    TRY(choose(dev, m));
    m->next = own_of(dev)->matmuls;
    *out = own_of(dev)->matmuls = m;
done:
    if (rc < 0) matmul_free(m);
    return rc;
}

int cuda_matmul(device *dev, const matmul_shape *s, float alpha, const void *a, const void *b,
                float beta, void *c, const void *bias) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    matmul key, *m;
    memset(&key, 0, sizeof key); /* compared as bytes */
    key.s.ta = s->ta, key.s.tb = s->tb;
    key.s.m = s->m, key.s.n = s->n, key.s.k = s->k;
    key.s.lda = s->lda, key.s.ldb = s->ldb, key.s.ldc = s->ldc;
    key.s.ab = s->ab, key.s.c = s->c, key.s.bias = bias ? s->bias : s->c;
    key.has_bias = bias != NULL;
    key.align[0] = alignment(a), key.align[1] = alignment(b), key.align[2] = alignment(c);
    for (m = own->matmuls; m; m = m->next)
        if (!memcmp(&m->s, &key.s, sizeof key.s) && m->has_bias == key.has_bias &&
            !memcmp(m->align, key.align, sizeof key.align))
            break;
    if (!m) TRY(plan(dev, &key, bias, &m));
    if (bias) TRY(set_bias(m, bias));
    TRY(check(cublasLtMatmul(own->lt, m->op, &alpha, b, m->b, a, m->a, &beta, c, m->c, c, m->c,
                             &m->algo, own->lt_work, LT_WORK, own->stream),
              "product"));
done:
    return rc;
}

int cuda_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
              int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    if (m == 0 || n == 0) return 0;
    matmul_shape s = {ta, tb, m, n, k, lda, ldb, ldc, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F};
    return cuda_matmul(dev, &s, alpha, a, b, beta, c, NULL);
}
