/* cases.h: the one list of operations and shapes that is checked against ref and timed.
 *
 * The tests run every case on ref and on another device with the same inputs and compare what comes
 * out; `conr bench ops` does the same and times it.  A new operation or a shape that once went
 * wrong gets a row here. */
#ifndef CONR_CASES_H
#define CONR_CASES_H

#include "device/device.h"

typedef enum case_op {
    CASE_CONV_FORWARD,
    CASE_CONV_BACK_DATA,
    CASE_CONV_BACK_FILTER,
    CASE_NORM_FORWARD,
    CASE_NORM_BACKWARD,
    CASE_MAX_POOL,
    CASE_MAX_POOL_BACK,
    CASE_MEAN_POOL,
    CASE_MEAN_POOL_BACK,
    CASE_GEMM,
    CASE_ROWS,
    CASE_ROWS_BACK,
    CASE_TOP_K,
    CASE_SGD,
    CASE_ROWS_TAKE,
    CASE_RING_PUT,
    CASE_PULL,
    CASE_CONTRAST,
    CASE_BOUNDARY,
    CASE_AVERAGE
} case_op;

/* What a, b, ... mean depends on the operation; case_shape_text spells it out. */
typedef struct op_case {
    case_op op;
    int check_n, time_n; /* size of the batch (rows) when checked and when timed */
    int h, w, ci, co, k, stride, groups;
    int variant; /* conv: 1 bias, 2 add.  norm: 0 plain, 1 residual, 2 shortcut, 3 no norm.
                    gemm: 1 transpose A, 2 transpose B.  top_k: 1 with own row.  sgd: 1 average
                    first.  pull, contrast: 1 neighbors, 2 weights.  pools, boundary: 1 ties, 2 over
                    the batch */
} op_case;

extern const op_case case_list[];
extern const int case_count;

/* A case on a device, inputs drawn and uploaded. */
typedef struct trial trial;

int trial_new(device *dev, const op_case *c, int n, trial **out);
/* The same with inputs rounded to what a device of this type can hold, so that two devices start
 * from the same numbers; trial_new takes dev's own type. */
int trial_new_as(device *dev, act_type type, const op_case *c, int n, trial **out);
void trial_free(trial *t);
int trial_run(trial *t); /* queues the operation once */

/* All outputs as floats on the host, one after the other; valid until the next call. */
int trial_outputs(trial *t, int *n, const float **values, const size_t **counts);

/* The largest error of any output, relative to its norm; NaN counts as infinite. */
int trial_compare(trial *got, trial *want, double *error);

const char *case_name(const op_case *c);
void case_shape_text(const op_case *c, int n, char *out, size_t size);
double case_flops(const op_case *c, int n); /* 0 where bytes are what counts */
double case_bytes(const op_case *c, int n); /* each tensor moved once, activations as floats */
/* What trial_compare may give on a device with activations of this type.  On fp32 rounding grows
 * with the root of the sum's length; on bf16 one rounding of a result is 2^-9 of it at most. */
double case_bound(const op_case *c, int n, act_type type);

#endif
