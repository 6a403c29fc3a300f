/* device_test.c: cpu against ref on the list of cases that `conr bench ops` times, the same bits
 * for any number of threads, and the properties of devices. */
#include "base/test_help.h"
#include "device/cases.h"
#include "kernels/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static trial *run_case(device *dev, const op_case *c) {
    trial *t;
    assert_ok(trial_new(dev, c, c->check_n, &t));
    assert_ok(trial_run(t));
    assert_ok(dev->op.sync(dev));
    return t;
}

static void cpu_equals_ref(void **state) {
    (void)state;
    device *ref, *cpu;
    int wrong = 0;
    assert_ok(device_open("ref", 1, &ref));
    assert_ok(device_open("cpu", 2, &cpu));
    for (int i = 0; i < case_count; i++) {
        const op_case *c = &case_list[i];
        trial *want = run_case(ref, c), *got = run_case(cpu, c);
        double error, bound = case_bound(c, c->check_n, cpu->type);
        char shape[96];
        case_shape_text(c, c->check_n, shape, sizeof shape);
        assert_ok(trial_compare(got, want, &error));
        if (!(error <= bound)) {
            print_error("%s %s: error %.3g, bound %.3g\n", case_name(c), shape, error, bound);
            wrong++;
        }
        trial_free(want);
        trial_free(got);
    }
    assert_int_equal(wrong, 0);
    device_close(ref);
    device_close(cpu);
}

static void threads_do_not_change_bits(void **state) {
    (void)state;
    device *one, *three;
    assert_ok(device_open("cpu", 1, &one));
    assert_ok(device_open("cpu", 3, &three));
    for (int i = 0; i < case_count; i++) {
        const op_case *c = &case_list[i];
        trial *a = run_case(one, c), *b = run_case(three, c);
        int n, m;
        const float *x, *y;
        const size_t *counts, *others;
        size_t total = 0;
        assert_ok(trial_outputs(a, &n, &x, &counts));
        assert_ok(trial_outputs(b, &m, &y, &others));
        for (int j = 0; j < n; j++) total += counts[j];
        if (memcmp(x, y, total * sizeof *x)) {
            char shape[96];
            case_shape_text(c, c->check_n, shape, sizeof shape);
            fail_msg("%s %s: one and three threads differ", case_name(c), shape);
        }
        trial_free(a);
        trial_free(b);
    }
    device_close(one);
    device_close(three);
}

static void properties(void **state) {
    (void)state;
    enum { N = 40, D = 300 };
    static float f[N * D], by_device[N * N], by_kernel[N * N];
    device *ref, *cpu;
    assert_ok(device_open("ref", 1, &ref));
    assert_ok(device_open("cpu", 2, &cpu));
    assert_true(ref->is_ref && ref->host_memory && !ref->is_gpu && !ref->kernel_bits);
    assert_true(!cpu->is_ref && cpu->host_memory && !cpu->is_gpu && cpu->kernel_bits);
    /* what kernel_bits claims: the device and the kernel give the same product */
    for (int i = 0; i < N * D; i++) f[i] = sinf(1.7f * (float)i);
    assert_ok(cpu->op.gemm(cpu, false, true, N, N, D, 1, f, D, f, D, 0, by_device, N));
    assert_ok(gemm(1, false, true, N, N, D, 1, f, D, f, D, 0, by_kernel, N));
    assert_memory_equal(by_device, by_kernel, sizeof by_kernel);
    device_close(ref);
    device_close(cpu);
}

/* The comparison itself must be able to fail. */
static void a_difference_is_seen(void **state) {
    (void)state;
    device *dev;
    assert_ok(device_open("ref", 1, &dev));
    trial *a = run_case(dev, &case_list[0]), *b;
    double error;
    assert_ok(trial_new(dev, &case_list[0], case_list[0].check_n, &b));
    assert_ok(trial_compare(b, a, &error)); /* b never ran: its outputs are NaN */
    assert_true(error > 1e30);
    assert_ok(trial_run(b));
    assert_ok(trial_compare(b, a, &error));
    assert_true(error == 0);
    trial_free(a);
    trial_free(b);
    device_close(dev);
}

static void refuses_devices(void **state) {
    (void)state;
    device *none, *dev;
    assert_ok(device_open("ref", 1, &dev));
    assert_fails(CONR_EINVAL, "no such device", device_open("gpu", 0, &none));
    assert_null(none);
    assert_fails(CONR_EINVAL, "threads: -1", device_open("cpu", -1, &none));
    /* a GPU that no machine has; the words depend on whether the build and the machine have one */
    assert_int_equal(device_open("cuda:1023", 0, &none), CONR_EDEVICE);
    assert_non_null(strstr(conr_error(), "; use "));
    assert_null(none);
    if (device_open("cuda:0", 0, &none) < 0) {
        assert_non_null(strstr(conr_error(), "use --device cpu"));
    } else {
        assert_true(none->is_gpu && !none->host_memory);
        device_close(none);
    }
    void *p;
    assert_fails(CONR_ENOMEM, "not enough memory", dev->op.alloc(dev, SIZE_MAX, &p));
    assert_fails(CONR_ENOMEM, "not enough memory", dev->op.alloc(dev, (size_t)1 << 60, &p));
    device_close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_equals_ref),  cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(properties),      cmocka_unit_test(a_difference_is_seen),
        cmocka_unit_test(refuses_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
