/* conv.h: convolutions on the CPU.
 *
 * Three algorithms, chosen per shape when the plan is made:
 *   direct     implicit GEMM, for every shape (direct.c)
 *   Winograd   for 3x3 with enough channels (winograd.c): a quarter or a fifth of the
 *              multiplications, 9/16 with stride 2; CONR_WINOGRAD=0 in the environment disables it
 *   stem       for one or three channels, products straight from the image (stem.c, stem_data.c)
 * All give the same bits for any number of threads: threads never share a sum. */
#ifndef CONR_CPU_CONV_H
#define CONR_CPU_CONV_H

#include "device/device.h"
#include "kernels/gemm.h"

/* Per-channel sums for the norm that follows are taken block by block, then added up in order.  A
 * block of rows (or tiles) belongs to one group, and its size depends only on the shape. */
typedef struct conv_blocks {
    int per_group; /* rows (or tiles) of a group */
    int size;      /* of a block; the last of a group may be smaller */
    int blocks;    /* in all groups together */
} conv_blocks;

typedef struct cpu_plan {
    conv_plan base; /* comes first: the seam hands out a pointer to it */
    const gemm_kernel *g;
    bool winograd, stem; /* the algorithm; a stem with a bias uses `direct` forward */
    int threads;
    conv_blocks rows;  /* forward, direct */
    conv_blocks tiles; /* forward, Winograd: only the number of blocks is used */
} cpu_plan;

conv_blocks conv_blocks_make(int groups, int per_group, int size);
/* Block b covers [*first, *last) of all rows. */
void conv_block_range(const conv_blocks *k, int b, int *first, int *last);
/* partial: [blocks][2][c] -> sums: [groups][2][c] */
void conv_fold_sums(const conv_blocks *k, int groups, int c, const float *partial, float *sums,
                    int threads);

int cpu_conv_plan_new(device *dev, const conv_shape *s, conv_plan **out);
int cpu_conv_forward(device *dev, const conv_plan *p, const act *x, const float *w,
                     const float *bias, act *y, const float *shift, float *sums, void *work);
int cpu_conv_back_data(device *dev, const conv_plan *p, const act *dy, const float *w, bool add,
                       act *dx, void *work);
int cpu_conv_back_filter(device *dev, const conv_plan *p, const act *x, const act *dy, bool add,
                         float *dw, float *dbias, void *work);

/* ---- direct.c ---------------------------------------------------------------------------- */

size_t direct_workspace(cpu_plan *p); /* floats */
void direct_forward(const cpu_plan *p, const float *x, const float *w, const float *bias, float *y,
                    const float *shift, float *sums, float *work);
void direct_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                      float *work);
void direct_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                        float *work);

/* ---- stem.c ------------------------------------------------------------------------------ */

bool stem_fits(const cpu_plan *p);
size_t stem_workspace(const cpu_plan *p); /* floats */
void stem_forward(const cpu_plan *p, const float *x, const float *w, float *y, const float *shift,
                  float *sums, float *work);
void stem_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                      float *work);

/* ---- stem_data.c ------------------------------------------------------------------------- */

size_t stem_data_workspace(const cpu_plan *p); /* floats; part of stem_workspace */
void stem_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                    float *work);

/* ---- winograd.c -------------------------------------------------------------------------- */

bool winograd_fits(const cpu_plan *p);
size_t winograd_workspace(cpu_plan *p); /* floats */
void winograd_forward(const cpu_plan *p, const float *x, const float *w, float *y,
                      const float *shift, float *sums, float *work);
void winograd_back_data(const cpu_plan *p, const float *dy, const float *w, bool add, float *dx,
                        float *work);

/* ---- winograd_gradient.c ----------------------------------------------------------------- */

size_t winograd_gradient_workspace(const cpu_plan *p); /* floats; part of winograd_workspace */
void winograd_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                          float *work);

#endif
