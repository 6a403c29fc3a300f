/* conv.h: convolutions on the CPU.
 *
 * Three ways, chosen per shape when the plan is made: implicit GEMM for everything (direct.c);
 * Winograd's forms for 3x3 with enough channels (winograd.c), which need a quarter of the
 * multiplications or a fifth, with stride 2 9/16, and which CONR_WINOGRAD=0 in the environment
 * keeps out; and for one or three channels products straight from the image (stem.c,
 * stem_data.c).  All give the same bits for any number of threads: threads never share a sum.
 */
#ifndef CONR_CPU_CONV_H
#define CONR_CPU_CONV_H

#include "device/device.h"
#include "kernels/gemm.h"

/* Per-channel sums for the norm that follows are taken block by block, where a block of rows (or
 * tiles) belongs to one group and its size depends on the shape alone; then added up in order. */
typedef struct conv_blocks {
    int per_group; /* rows (or tiles) of a group */
    int size;      /* of a block, at most */
    int blocks;    /* of all groups together */
} conv_blocks;

typedef struct cpu_plan {
    conv_plan base; /* first: the seam hands out a pointer to it */
    const gemm_kernel *g;
    bool winograd, stem; /* which way; a stem with a bias goes forward directly */
    int threads;
    conv_blocks rows;  /* forward, direct */
    conv_blocks tiles; /* forward, Winograd: their number alone, tiles are cut by themselves */
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

size_t stem_data_workspace(const cpu_plan *p); /* floats; part of stem_workspace's */
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

size_t winograd_gradient_workspace(const cpu_plan *p); /* floats; part of winograd_workspace's */
void winograd_back_filter(const cpu_plan *p, const float *x, const float *dy, bool add, float *dw,
                          float *work);

#endif
