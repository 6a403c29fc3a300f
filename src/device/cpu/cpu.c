/* cpu.c: the table of the CPU: the reference, with faster entries in place of its own. */
#include "base/memory.h"
#include "base/status.h"
#include "device/cpu/conv.h"
#include "device/cpu/losses.h"
#include "device/cpu/passes.h"
#include "device/cpu/pools.h"
#include "device/cpu/transformers.h"
#include "device/device.h"
#include "kernels/gemm.h"
#include "kernels/rows.h"

#include <stdlib.h>

static void cpu_close(device *dev) { free(dev->own); }

/* ---- the kernels as entries of the table ---- */

static int cpu_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                    int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    return gemm(dev->threads, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static int cpu_rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm) {
    rows_normalize(dev->threads, x, n, d, out, norm);
    return 0;
}

static int cpu_rows_normalize_back(device *dev, const float *out, const float *norm,
                                   const float *dout, int n, int d, float *dx) {
    rows_normalize_back(dev->threads, out, norm, dout, n, d, dx);
    return 0;
}

int device_cpu_open(device *dev) {
    device_ops *op = &dev->op;
    dev->own = memory_new("cpu device", 1, sizeof(cpu_own));
    if (!dev->own) return CONR_ENOMEM;
    dev->kernel_bits = true;
    device_ref_ops(op);
    op->close = cpu_close;
    op->gemm = cpu_gemm;
    op->rows_normalize = cpu_rows_normalize;
    op->rows_normalize_back = cpu_rows_normalize_back;
    op->conv_plan_new = cpu_conv_plan_new;
    op->conv_forward = cpu_conv_forward;
    op->conv_back_data = cpu_conv_back_data;
    op->conv_back_filter = cpu_conv_back_filter;
    cpu_passes(op);
    cpu_pools(op);
    cpu_losses(op);
    cpu_transformers(op);
    return 0;
}
