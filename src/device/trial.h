/* trial.h: inside a trial (cases.h): its memory, the drawing of its operands (trial.c), and how
 * each group of operations is set up and run (trial_layers.c, trial_rows.c,
 * trial_views.c). */
#ifndef CONR_TRIAL_H
#define CONR_TRIAL_H

#include "device/cases.h"
#include "views/job.h"

enum { SLOTS = 24, OUTPUTS = 6 };

typedef struct output {
    void *p;
    size_t count;
    bool is_act;
} output;

struct trial {
    device *dev;
    op_case c;
    int n;
    void *slot[SLOTS]; /* all device memory of the trial */
    int n_slots;
    act_type type;  /* the inputs are rounded to it */
    uint32_t drawn; /* tensors drawn so far: each has its own stream */
    output out[OUTPUTS];
    int n_outputs;
    size_t out_count[OUTPUTS];
    float *fetched; /* host */

    conv_plan *plan;
    void *work;
    float *w, *bias, *dw, *dbias, *shift, *sums;
    act *x, *y, *z, *dx, *dy, *extra;
    norm_shape shape;
    normed main, shortcut;
    float *gamma, *beta, *dgamma, *dbeta, *running, *stat, *stat2, *finished;
    float *a, *b, *cc, *v, *average;
    float *queue, *logits, *loss;
    int32_t *ids, *label;
    step_values *at;
    views_job job;
    unsigned char *bytes;
    views_row *rows;
};

/* Device memory that is freed with the trial. */
int trial_alloc(trial *t, size_t bytes, void **out);
/* Device floats: normal, with this deviation and mean. */
int trial_floats(trial *t, size_t count, double deviation, double mean, float **out);
/* Device activations: normal, with this deviation and mean 0. */
int trial_acts(trial *t, size_t count, double deviation, act **out);
/* Device integers: uniform from low to high - 1. */
int trial_ints(trial *t, size_t count, int low, int high, int32_t **out);

/* Declares an output, to be compared. */
void trial_is_output(trial *t, void *p, size_t count, bool is_act);
/* Outputs filled with NaN, so that an element that is not written shows. */
int trial_result_floats(trial *t, size_t count, float **out);
int trial_result_acts(trial *t, size_t count, act **out);

/* Draw the operands of a case, and queue its operation once. */
int trial_open_conv(trial *t);
int trial_run_conv(trial *t);
int trial_open_norm(trial *t);
int trial_run_norm(trial *t);
int trial_open_pool(trial *t);
int trial_run_pool(trial *t);
int trial_open_rows(trial *t);
int trial_run_rows(trial *t);
int trial_open_loss(trial *t);
int trial_run_loss(trial *t);
int trial_open_transformer(trial *t);
int trial_run_transformer(trial *t);
int trial_open_noise(trial *t);
int trial_run_noise(trial *t);
int trial_open_confident(trial *t);
int trial_run_confident(trial *t);
int trial_open_views(trial *t);
int trial_run_views(trial *t);

#endif
