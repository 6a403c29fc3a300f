/* gemm_test.c: the CPU's product against the reference on odd shapes, and its promise: the bits
 * of a dot product depend on the two vectors alone. */
#include "base/test_help.h"

#include "base/rng.h"
#include "kernels/gemm.h"

#include <stdlib.h>
#include <string.h>

static device *ref, *one, *three;

static int open_devices(void **state) {
    (void)state;
    assert_ok(device_open("ref", 0, &ref));
    assert_ok(device_open("cpu", 1, &one));
    assert_ok(device_open("cpu", 3, &three));
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    device_close(ref), device_close(one), device_close(three);
    return 0;
}

static float *noise(size_t n, uint32_t stream) {
    float *x = malloc((n + 1) * sizeof *x);
    rng r = rng_at(1, 0, stream, RNG_TEST);
    for (size_t i = 0; i < n; i++) x[i] = 2 * rng_float(&r) - 1;
    return x;
}

/* One shape, all transposes, rows further apart than they are long; cpu on 1 and 3 threads. */
static void check(int m, int n, int k, float alpha, float beta) {
    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t & 2;
        int lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldc = n + 1;
        float *a = noise((size_t)(ta ? k : m) * lda, 1), *b = noise((size_t)(tb ? n : k) * ldb, 2);
        size_t size = (size_t)m * ldc;
        float *c[3];
        device *dev[3] = {ref, one, three};
        for (int i = 0; i < 3; i++) {
            c[i] = noise(size, 3);
            int (*gemm)(device *, bool, bool, int, int, int, float, const float *, int,
                        const float *, int, float, float *, int) = i ? cpu_gemm : ref->op.gemm;
            assert_ok(gemm(dev[i], ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c[i], ldc));
        }
        /* float sums of k numbers: rounding grows like sqrt(k) */
        assert_close("cpu against ref", c[1], c[0], size, 3e-7 * (1 + k / 64));
        assert_memory_equal(c[1], c[2], size * sizeof(float));
        for (int i = 0; i < m; i++) /* what lies between the rows is not touched */
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
    assert_ok(cpu_gemm(one, false, false, 2, 2, 0, 1, c, 1, c, 1, 0.5f, c, 2));
    assert_true(c[0] == 0.5f && c[3] == 2);
    assert_ok(cpu_gemm(one, false, false, 2, 2, 0, 1, c, 1, c, 1, 0, c, 2));
    assert_true(c[0] == 0 && c[3] == 0);
    assert_ok(cpu_gemm(one, false, false, 0, 5, 3, 1, c, 1, c, 1, 0, c, 2));
}

/* F F^T has the same bits at [i,j] and [j,i], and those of the two rows multiplied alone. */
static void bits_depend_on_the_rows_alone(void **state) {
    (void)state;
    enum { N = 131, D = 515 };
    float *f = noise((size_t)N * D, 4), *s = malloc((size_t)N * N * sizeof *s), alone;
    assert_ok(cpu_gemm(three, false, true, N, N, D, 1, f, D, f, D, 0, s, N));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j += 1 + i % 7) {
            assert_memory_equal(&s[i * N + j], &s[j * N + i], sizeof *s);
            assert_ok(
                cpu_gemm(one, false, true, 1, 1, D, 1, f + i * D, D, f + j * D, D, 0, &alone, 1));
            assert_memory_equal(&s[i * N + j], &alone, sizeof *s);
        }
    free(f), free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(nothing_to_add),
        cmocka_unit_test(bits_depend_on_the_rows_alone),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
