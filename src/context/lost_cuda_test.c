/* lost_cuda_test.c: a GPU that stops working in the middle of a program: one line, CONR_EDEVICE, and
 * what was opened can be closed.  A program of its own, as CUDA does not recover from this within a
 * process.  Needs a GPU. */
#include "base/test_help.h"
#include "conr.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 256, D = 16, K = 4 };

static void one_line(void) {
    assert_true(strlen(conr_error()) > 20);
    assert_null(strchr(conr_error(), '\n'));
}

/* A caller's mistake: an array that is far shorter than it says. */
static void a_lost_gpu_is_an_error(void **state) {
    (void)state;
    conr *gpu, *other = NULL, *cpu;
    float x[N * D], centers[K * D], *x_on;
    int32_t labels[N], *labels_on;
    int64_t claimed = (int64_t)1 << 26; /* 4 GiB */
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_neighbors_options no = conr_neighbors_defaults();
    o.clusters = K;
    for (int i = 0; i < N * D; i++) x[i] = sinf(1.7f * (float)i) + (float)(i / D % K);
    assert_ok(conr_open("cuda", 0, &gpu));
    assert_ok(conr_kmeans(gpu, x, N, D, &o, centers, labels, NULL));
    assert_int_equal(cudaMalloc((void **)&x_on, sizeof x), 0);
    assert_int_equal(cudaMalloc((void **)&labels_on, sizeof labels), 0);
    assert_int_equal(cudaMemcpy(x_on, x, sizeof x, cudaMemcpyHostToDevice), 0);
    assert_ok(conr_assign(gpu, x_on, N, D, CONR_EUCLIDEAN, x_on, K, labels_on, NULL));
    alarm(120); /* a call that hangs ends the program */
    /* queued, or the first to notice */
    int rc = conr_assign(gpu, x_on, claimed, D, CONR_EUCLIDEAN, x_on, K, labels_on, NULL);
    if (rc < 0) assert_int_equal(rc, CONR_EDEVICE);
    for (int i = 0; i < 2; i++) {
        assert_fails(CONR_EDEVICE, "cuda", conr_kmeans(gpu, x, N, D, &o, centers, labels, NULL));
        one_line();
        int32_t ids[N * 10];
        assert_fails(CONR_EDEVICE, "cuda", conr_neighbors(gpu, x, N, D, &no, ids));
        one_line();
        /* its memory must not be taken for the host's */
        assert_fails(CONR_EDEVICE, "cuda",
                     conr_assign(gpu, x_on, N, D, CONR_EUCLIDEAN, x_on, K, labels_on, NULL));
        one_line();
    }
    conr_close(gpu);
    assert_fails(CONR_EDEVICE, "cuda", conr_open("cuda", 0, &other)); /* not in this process */
    one_line();
    assert_null(other);
    assert_ok(conr_open("cpu", 0, &cpu)); /* the rest goes on */
    assert_ok(conr_kmeans(cpu, x, N, D, &o, centers, labels, NULL));
    conr_close(cpu);
    alarm(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_lost_gpu_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
