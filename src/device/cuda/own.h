/* own.h: what a CUDA device keeps behind dev->own.  Only C files include it. */
#ifndef CONR_CUDA_OWN_H
#define CONR_CUDA_OWN_H

#include "device/cuda/cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

/* A block of device memory, and its bf16 copy if it has been used as weights. */
typedef struct cuda_block {
    char *base;
    size_t bytes;
    void *shadow; /* [bytes / 4] bf16, or NULL */
    bool stale;   /* the copy is older than the block */
    struct cuda_block *next;
} cuda_block;

/* Memory that `work` hands out. */
typedef struct cuda_workspace {
    void *base; /* from alloc */
    size_t bytes;
    bool captured; /* by a graph of the caller: nothing else may write there */
    struct cuda_workspace *next;
} cuda_workspace;

typedef struct cuda_own {
    int index, processors, generation;
    size_t shared;           /* memory that a block may have */
    cudaStream_t stream;     /* where operations are queued: home, or one of the caller */
    cudaStream_t home;       /* created and destroyed by this device */
    cudaStream_t dnn_stream; /* the one last set for dnn */
    cudaEvent_t moved;       /* the end of what was queued before the stream changed */
    bool recording;
    cudnnHandle_t dnn;
    cublasLtHandle_t lt;
    void *lt_work;              /* [LT_WORK] */
    unsigned *counters;         /* [CUDA_COUNTERS] */
    cuda_block *blocks;         /* all that alloc made; newest first */
    cuda_workspace *workspaces; /* newest first; at most one is not captured */
    void **scratch; /* [n_scratch], the last is the largest; recordings still use the others */
    int n_scratch;
    size_t scratch_bytes; /* of the last */
    cudaEvent_t *events;  /* [n_events of event_capacity] moments */
    int n_events, event_capacity;
    struct matmul *matmuls; /* gemm.c: plans made so far */
    struct engine *engines; /* conv_choose.c: likewise */
    char words[80];
} cuda_own;

enum { LT_WORK = 32 << 20 };

static inline cuda_own *own_of(const device *dev) { return dev->own; }

/* The bf16 copy of the weights at w, made and filled if necessary (never while recording: the plain
 * run before has done it). */
int cuda_weights(device *dev, const float *w, void **out);

/* C = alpha op(A) op(B) + beta C (+ bias along rows), row-major, as gemm of the table. */
typedef struct matmul_shape {
    bool ta, tb;
    int m, n, k, lda, ldb, ldc;
    cudaDataType_t ab, c, bias; /* CUDA_R_32F or CUDA_R_16BF; bias is ignored if there is none */
} matmul_shape;
int cuda_matmul(device *dev, const matmul_shape *s, float alpha, const void *a, const void *b,
                float beta, void *c, const void *bias);
int cuda_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
              int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cuda_matmuls_free(device *dev);

void cuda_engines_free(device *dev);

#endif
