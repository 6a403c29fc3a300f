/* cuda.h: what the files of the CUDA table share.  C and CUDA C++ both include it. */
#ifndef CONR_CUDA_H
#define CONR_CUDA_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream (cudaStream_t) on which every operation of this device is queued; while a recording
 * is made, the one that is captured. */
void *cuda_stream(device *dev);

/* fail(CONR_EDEVICE, ...), or CONR_ENOMEM, if a CUDA call or launch failed.  error: cudaError_t,
 * 0 is success. */
int cuda_check(int error, const char *what);

/* Multiprocessors (SMs) of the device, and its compute capability: 90 for 9.0. */
int cuda_processors(device *dev);
int cuda_generation(device *dev);
/* Bytes of shared memory that a block may have. */
size_t cuda_shared_memory(device *dev);

/* `bytes` of device memory for one operation at a time, zeroed when new.  It grows on demand; the
 * plain run that precedes a recording makes it large enough.  What was handed out stays valid. */
int cuda_scratch(device *dev, size_t bytes, void **out);

/* Counters in device memory, zero before and after every kernel.  They let the block that finishes
 * last know that it is the last. */
enum { CUDA_COUNTERS = 1 << 16 };
unsigned *cuda_counters(device *dev);

/* If activations are bf16, convolutions want bf16 weights too: the device keeps a bf16 copy of
 * every block of floats that was used as weights, at the same offsets.  sgd and average write it
 * as they go; put, copy and zero make it stale, and it is refreshed before its next use. Returns
 * the copy of the weights at w, or NULL if there is none. */
void *cuda_shadow(device *dev, const float *w);

/* ---- kernels that several files use; all are queued on the stream ---------------------------- */

/* Floats <-> activations of either type. */
int cuda_act_from(device *dev, const float *x, size_t count, act *out);
int cuda_act_to(device *dev, const act *x, size_t count, float *out);
/* to_bf16[i] = from[i] */
int cuda_to_bf16(device *dev, const float *from, size_t count, void *to_bf16);
/* to = factor * from; for means over ranks */
int cuda_scale(device *dev, const float *from, size_t count, float factor, float *to);
/* out = (add ? out : 0) + from, where from is bf16 or float */
int cuda_grow_floats(device *dev, const void *from, bool from_bf16, size_t count, bool add,
                     float *out);
/* to += from */
int cuda_acts_add(device *dev, const act *from, size_t count, act *to);
/* Every `stride`-th pixel of the rows and columns of x [n,h,w,c], packed; and back: added to those
 * pixels of dx or, if !add, written with zeros in between. */
int cuda_pick_pixels(device *dev, const conv_plan *p, const act *x, act *picked);
int cuda_spread_pixels(device *dev, const conv_plan *p, const act *picked, bool add, act *dx);

/* sums[g] of y about shift: [groups][2][c]; does the work of norm_finish, too, if rest is not
 * NULL */
int cuda_group_sums(device *dev, const norm_shape *s, const act *y, const float *shift,
                    const norm_rest *rest, float *sums);
/* dbias = (add ? dbias : 0) + sum over the rows of dy [rows,c] */
int cuda_column_sums(device *dev, const act *dy, size_t rows, int c, bool add, float *dbias);

/* y += bias, row by row */
int cuda_add_bias(device *dev, act *y, size_t rows, int c, const float *bias);

/* y = residual + scale * f(y + bias): what follows the product of a dense layer */
int cuda_dense_finish(device *dev, const dense_shape *s, const float *bias, const float *scale,
                      const act *residual, act *y);

/* The first convolution of small images, and whether its kernels take the shape. */
bool cuda_stem_takes(device *dev, const conv_shape *s);
int cuda_stem_forward(device *dev, const conv_plan *p, const act *x, const float *w, act *y,
                      const float *shift, const norm_rest *rest, float *sums);
int cuda_stem_back_filter(device *dev, const conv_plan *p, const act *x, const act *dy, bool add,
                          float *dw);

/* 3x3 convolutions of 64 channels with 32 pixels per row, and their data gradient (turned), on
 * Hopper.  w: the bf16 copy.  sums NULL: none. */
bool cuda_conv64_takes(device *dev, const conv_shape *s);
int cuda_conv64(device *dev, const conv_plan *p, const act *x, const void *w, bool turned, bool add,
                act *y, const float *shift, const norm_rest *rest, float *sums);

/* Convolutions of any shape as plain loops, for what no library takes.  Slow. */
int cuda_plain_forward(device *dev, const conv_plan *p, const act *x, const float *w,
                       const float *bias, act *y);
int cuda_plain_back_data(device *dev, const conv_plan *p, const act *dy, const float *w, bool add,
                         act *dx);
int cuda_plain_back_filter(device *dev, const conv_plan *p, const act *x, const act *dy, bool add,
                           float *dw);

/* Each fills its part of the table. */
void cuda_conv_ops(device_ops *op);        /* convolutions */
void cuda_norm_ops(device_ops *op);        /* batch norm */
void cuda_basic_ops(device_ops *op);       /* activations, pools, weights */
void cuda_ferry_ops(device_ops *op);       /* uploads beside the queue */
void cuda_transformer_ops(device_ops *op); /* layer norm, attention; not the dense layer */
void cuda_attention_ops(device_ops *op);   /* called by it */
void cuda_feature_ops(device_ops *op);     /* rows, choice, losses, neighborhoods, views */

#ifdef __cplusplus
}
#endif
#endif
