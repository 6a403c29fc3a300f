/* own.h: what a CUDA device keeps behind dev->own.  C alone includes it. */
#ifndef CONR_CUDA_OWN_H
#define CONR_CUDA_OWN_H

#include "device/cuda/cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

/* A block of device memory, and its bf16 copy where it has served as weights. */
typedef struct cuda_block {
    char *base;
    size_t bytes;
    void *shadow; /* [bytes / 4] bf16, or NULL */
    bool stale;   /* the copy is older than the block */
    struct cuda_block *next;
} cuda_block;

/* Memory that `work` hands out. */
typedef struct cuda_room {
    void *base; /* of alloc */
    size_t bytes;
    bool captured; /* in a graph of the caller's: nothing else may write there */
    struct cuda_room *next;
} cuda_room;

typedef struct cuda_own {
    int index, processors, generation;
    cudaStream_t stream;     /* where operations are queued: home, or the caller's */
    cudaStream_t home;       /* made and destroyed by this device */
    cudaStream_t dnn_stream; /* that dnn was told of last */
    cudaEvent_t moved;       /* the end of what was queued before the stream changed */
    bool recording;
    cudnnHandle_t dnn;
    cublasLtHandle_t lt;
    void *lt_work;      /* [LT_WORK] */
    unsigned *counters; /* [CUDA_COUNTERS] */
    cuda_block *blocks; /* all of alloc; newest first */
    cuda_room *rooms;   /* newest first; at most one is not captured */
    void **scratch;     /* [n_scratch], the last is the largest; old ones live in recordings */
    int n_scratch;
    size_t scratch_bytes; /* of the last */
    cudaEvent_t *events;  /* [n_events of room_events] moments */
    int n_events, room_events;
    struct matmul *matmuls; /* gemm.c: plans made so far */
    struct engine *engines; /* conv.c: likewise */
    char words[80];
} cuda_own;

enum { LT_WORK = 32 << 20 };

static inline cuda_own *own_of(const device *dev) { return dev->own; }

/* The bf16 copy of the weights at w, made and filled where that has to be (never while recording:
 * the plain run before has done it). */
int cuda_weights(device *dev, const float *w, void **out);

/* C = alpha op(A) op(B) + beta C (+ bias along rows), row-major, as the table's gemm. */
typedef struct matmul_shape {
    bool ta, tb;
    int m, n, k, lda, ldb, ldc;
    cudaDataType_t ab, c, bias; /* CUDA_R_32F or CUDA_R_16BF; bias is looked at where it is there */
} matmul_shape;
int cuda_matmul(device *dev, const matmul_shape *s, float alpha, const void *a, const void *b,
                float beta, void *c, const void *bias);
int cuda_gemm(device *dev, bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
              int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cuda_matmuls_free(device *dev);

void cuda_engines_free(device *dev);

#endif
