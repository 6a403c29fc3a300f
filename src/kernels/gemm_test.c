/* gemm_test.c: the product against plain loops on odd shapes, and its promise: the bits of a dot
 * product depend only on the two vectors. */
#include "base/test_help.h"

#include "base/rng.h"
#include "kernels/gemm.h"

#include <stdlib.h>
#include <string.h>

static float *noise(size_t n, uint32_t stream) {
    float *x = malloc((n + 1) * sizeof *x);
    rng r = rng_at(1, 0, stream, RNG_TEST);
    for (size_t i = 0; i < n; i++) x[i] = 2 * rng_float(&r) - 1;
    return x;
}

/* The definition: plain loops, sums in double. */
static void plain_gemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
                       const float *b, int ldb, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum +=
                    (double)a[ta ? l * lda + i : i * lda + l] * b[tb ? j * ldb + l : l * ldb + j];
            c[i * ldc + j] = (float)(alpha * sum + (beta == 0 ? 0 : (double)beta * c[i * ldc + j]));
        }
}

/* One shape, all transposes, gaps between the rows; on 1 and 3 threads. */
static void check(int m, int n, int k, float alpha, float beta) {
    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t & 2;
        int lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldc = n + 1;
        float *a = noise((size_t)(ta ? k : m) * lda, 1), *b = noise((size_t)(tb ? n : k) * ldb, 2);
        size_t size = (size_t)m * ldc;
        float *c[3];
        for (int i = 0; i < 3; i++) c[i] = noise(size, 3);
        plain_gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c[0], ldc);
        assert_ok(gemm(1, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c[1], ldc));
        assert_ok(gemm(3, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c[2], ldc));
        /* float sums of k products: rounding grows like sqrt(k) */
        assert_close("against plain loops", c[1], c[0], size, 3e-7 * (1 + k / 64));
        assert_memory_equal(c[1], c[2], size * sizeof(float));
        for (int i = 0; i < m; i++) /* the gaps between rows stay as they were */
            assert_memory_equal(&c[0][(size_t)i * ldc + n], &c[1][(size_t)i * ldc + n],
                                sizeof(float));
        for (int i = 0; i < 3; i++) free(c[i]);
        free(a), free(b);
    }
}

static void odd_shapes(void **state) {
    (void)state;
    static const int shape[][3] = {{1, 1, 1},   {1, 1, 300},   {8, 12, 256}, {9, 13, 257},
                                   {3, 100, 7}, {100, 3, 7},   {65, 33, 1},  {200, 190, 100},
                                   {7, 5, 800}, {385, 25, 20}, {17, 3100, 5}};
    static const float scalars[][2] = {{1, 0}, {1, 1}, {0.5f, 0}, {-2, 0.25f}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int s = 0; s < 4; s++)
            check(shape[i][0], shape[i][1], shape[i][2], scalars[s][0], scalars[s][1]);
}

static void nothing_to_add(void **state) {
    (void)state;
    float c[4] = {1, 2, 3, 4};
    assert_ok(gemm(1, false, false, 2, 2, 0, 1, c, 1, c, 1, 0.5f, c, 2));
    assert_true(c[0] == 0.5f && c[3] == 2);
    assert_ok(gemm(1, false, false, 2, 2, 0, 1, c, 1, c, 1, 0, c, 2));
    assert_true(c[0] == 0 && c[3] == 0);
    assert_ok(gemm(1, false, false, 0, 5, 3, 1, c, 1, c, 1, 0, c, 2));
}

/* F F^T has the same bits at [i,j] and [j,i], and those of the two rows multiplied by
 * themselves. */
static void bits_depend_only_on_the_rows(void **state) {
    (void)state;
    enum { N = 131, D = 515 };
    float *f = noise((size_t)N * D, 4), *s = malloc((size_t)N * N * sizeof *s), alone;
    assert_ok(gemm(3, false, true, N, N, D, 1, f, D, f, D, 0, s, N));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j += 1 + i % 7) {
            assert_memory_equal(&s[i * N + j], &s[j * N + i], sizeof *s);
            assert_ok(gemm(1, false, true, 1, 1, D, 1, f + i * D, D, f + j * D, D, 0, &alone, 1));
            assert_memory_equal(&s[i * N + j], &alone, sizeof *s);
        }
    free(f), free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(nothing_to_add),
        cmocka_unit_test(bits_depend_only_on_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
