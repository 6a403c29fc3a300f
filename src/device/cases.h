/* cases.h: the one list of operations and shapes that are checked against ref and timed.
 *
 * The tests run every case on ref and on another device with the same inputs and compare the
 * outputs; `conr bench ops` does the same and times it.  A new operation, or a shape that once went
 * wrong, gets a row in the list (cases.c). */
#ifndef CONR_CASES_H
#define CONR_CASES_H

#include "device/device.h"

typedef enum case_op {
    /* on activations */
    CASE_CONV_FORWARD,
    CASE_CONV_BACK_DATA,
    CASE_CONV_BACK_FILTER,
    CASE_NORM_FORWARD,
    CASE_NORM_BACKWARD,
    CASE_MAX_POOL,
    CASE_MAX_POOL_BACK,
    CASE_MEAN_POOL,
    CASE_MEAN_POOL_BACK,
    CASE_NOISE,
    CASE_VIEWS,
    CASE_DENSE,
    CASE_LAYER_NORM,
    CASE_ATTENTION,
    CASE_TOKENS,
    /* on floats */
    CASE_GEMM,
    CASE_ROWS,
    CASE_ROWS_BACK,
    CASE_TOP_K,
    CASE_SGD,
    CASE_ROWS_TAKE,
    CASE_RING_PUT,
    CASE_PULL,
    CASE_CONTRAST,
    CASE_PROTOTYPES,
    CASE_PULL_ALIKE,
    CASE_CONFIDENT, /* pull_alike on its result shows which rows it chose */
    CASE_BOUNDARY,
    CASE_AVERAGE
} case_op;

/* What h, w, ... mean depends on the operation; case_shape_text spells it out.
 *
 * variant, by operation:
 *   conv            bits: 1 bias, 2 add
 *   norm            0 plain, 1 residual, 2 shortcut, 3 no norm
 *   pools           1 ties
 *   dense           1, 2, 3: a GELU follows; with 4 also scale and residual
 *   attention       bits: 1 one query for all images, 2 rows start on 16 bytes if d % 8 == 0
 *   gemm            bits: 1 transpose A, 2 transpose B
 *   top_k           1 the own column first
 *   sgd             1 average first
 *   pull, contrast  bits: 1 neighbors, 2 weights
 *   prototypes      1 some rows take no part
 *   boundary        bits: 1 ties, 2 over the batch
 *   views           of images of up to w x h pixels and ci channels, co pixels wide; k: view 0, 1,
 *                   2 (none); stride: the short side; bits: 1 blur, 2 solarize, 4 all images have
 *                   the largest size, 8 crops as in stage 2 */
typedef struct op_case {
    case_op op;
    int check_n, time_n; /* images or rows when checked and when timed */
    int h, w, ci, co, k, stride, groups;
    int variant;
} op_case;

extern const op_case case_list[];
extern const int case_count;

const char *case_name(const op_case *c);
void case_shape_text(const op_case *c, int n, char *out, size_t size);
bool case_has_acts(const op_case *c);
double case_flops(const op_case *c, int n); /* 0 if memory is what limits it */
double case_bytes(const op_case *c, int n); /* each tensor moved once, activations as floats */
/* The largest error that trial_compare may report on a device with activations of this type.  With
 * fp32, rounding grows with the square root of the length of a sum; with bf16, rounding a result
 * once changes it by at most 2^-9 of its value. */
double case_bound(const op_case *c, int n, act_type type);

/* A case on a device, with its inputs drawn and uploaded (trial.c). */
typedef struct trial trial;

int trial_new(device *dev, const op_case *c, int n, trial **out);
/* The same with inputs rounded to what a device of this type can hold, so that two devices start
 * from the same values; trial_new takes the type of dev. */
int trial_new_as(device *dev, act_type type, const op_case *c, int n, trial **out);
void trial_free(trial *t);
int trial_run(trial *t); /* queues the operation once */

/* All outputs as floats on the host, one after the other; valid until the next call. */
int trial_outputs(trial *t, int *n, const float **values, const size_t **counts);

/* The largest error of any output, relative to its norm; NaN counts as infinite. */
int trial_compare(trial *got, trial *want, double *error);

#endif
