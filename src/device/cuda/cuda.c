/* cuda.c: an NVIDIA GPU as a device: opening it, memory, streams, recordings.  conv.c has the
 * convolutions, gemm.c the matrix products, the .cu files the kernels.
 *
 * Everything is queued on one stream, either that of the device or one that the caller has set.
 * Activations are bf16, or fp32 if the name asks for it ("cuda-f32"), which is for checks: no TF32
 * anywhere.  Weights, statistics and sums are fp32. */
#include "device/cuda/own.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_check(int error, const char *what) {
    if (!error) return 0;
    cudaGetLastError(); /* it is reported here: the next launch shall not find it again */
    return fail(error == cudaErrorMemoryAllocation ? CONR_ENOMEM : CONR_EDEVICE, "cuda, %s: %s; %s",
                what, cudaGetErrorString((cudaError_t)error),
                error == cudaErrorMemoryAllocation ? "use a smaller batch or free memory on the GPU"
                                                   : "use --device cpu, and please report it");
}

#define CUDA(call) cuda_check((int)cuda##call, "cuda" #call)

void *cuda_stream(device *dev) { return own_of(dev)->stream; }
int cuda_processors(device *dev) { return own_of(dev)->processors; }
int cuda_generation(device *dev) { return own_of(dev)->generation; }
size_t cuda_shared_memory(device *dev) { return own_of(dev)->shared; }
unsigned *cuda_counters(device *dev) { return own_of(dev)->counters; }

/* ---- memory ---------------------------------------------------------------------------------- */

static int cuda_alloc(device *dev, size_t bytes, void **out) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    *out = NULL;
    cuda_block *b = calloc(1, sizeof *b);
    if (!b) return fail_memory("device", sizeof *b);
    b->bytes = bytes ? bytes : 1;
    TRY(CUDA(Malloc((void **)&b->base, b->bytes)));
    TRY(CUDA(MemsetAsync(b->base, 0, b->bytes, own->stream)));
    b->next = own->blocks;
    own->blocks = b;
    *out = b->base;
    return 0;
done:
    free(b);
    return rc;
}

static void free_block(cuda_block *b) {
    cudaFree(b->base);
    cudaFree(b->shadow);
    free(b);
}

static void cuda_free(device *dev, void *p) {
    for (cuda_block **at = &own_of(dev)->blocks; p && *at; at = &(*at)->next)
        if ((*at)->base == p) {
            cuda_block *b = *at;
            *at = b->next;
            free_block(b);
            return;
        }
}

static cuda_block *block_of(const device *dev, const void *p) {
    for (cuda_block *b = own_of(dev)->blocks; b; b = b->next)
        if ((const char *)p >= b->base && (const char *)p < b->base + b->bytes) return b;
    return NULL;
}

/* The block at p was written by something that does not keep its bf16 copy up to date. */
static void written(device *dev, const void *p) {
    cuda_block *b = block_of(dev, p);
    if (b) b->stale = true;
}

static int cuda_put(device *dev, void *to, const void *host_from, size_t bytes) {
    written(dev, to);
    return CUDA(MemcpyAsync(to, host_from, bytes, cudaMemcpyHostToDevice, own_of(dev)->stream));
}

static int cuda_get(device *dev, void *host_to, const void *from, size_t bytes) {
    int rc = CUDA(MemcpyAsync(host_to, from, bytes, cudaMemcpyDeviceToHost, own_of(dev)->stream));
    return rc < 0 ? rc : CUDA(StreamSynchronize(own_of(dev)->stream));
}

static int cuda_copy(device *dev, void *to, const void *from, size_t bytes) {
    written(dev, to);
    return CUDA(MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, own_of(dev)->stream));
}

static int cuda_zero(device *dev, void *p, size_t bytes) {
    written(dev, p);
    return CUDA(MemsetAsync(p, 0, bytes, own_of(dev)->stream));
}

static int cuda_sync(device *dev) { return CUDA(StreamSynchronize(own_of(dev)->stream)); }

int cuda_scratch(device *dev, size_t bytes, void **out) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    if (bytes > own->scratch_bytes) {
        ASSERT(!own->recording);
        size_t size = bytes < (1 << 20) ? 1 << 20 : bytes;
        void **more = realloc(own->scratch, (size_t)(own->n_scratch + 1) * sizeof *more);
        if (!more) return fail_memory("device", sizeof *more);
        own->scratch = more;
        TRY(CUDA(Malloc(&own->scratch[own->n_scratch], size)));
        own->n_scratch++;
        own->scratch_bytes = size;
        TRY(CUDA(MemsetAsync(own->scratch[own->n_scratch - 1], 0, size, own->stream)));
    }
    *out = own->scratch[own->n_scratch - 1];
done:
    return rc;
}

/* ---- memory and streams of the caller -------------------------------------------------------- */

static int cuda_reaches(device *dev, const void *p) {
    struct cudaPointerAttributes about;
    cudaError_t e = cudaPointerGetAttributes(&about, p);
    if (e) cudaGetLastError();
    /* CUDA does not know it: host memory.  On a GPU that is lost it knows none: that is no answer,
     * as the host would read where it cannot. */
    if (e && e != cudaErrorInvalidValue) return cuda_check((int)e, "cudaPointerGetAttributes");
    if (e || about.type != cudaMemoryTypeDevice) return 0;
    if (about.device == own_of(dev)->index) return 1;
    return fail(CONR_EINVAL,
                "array: lies in the memory of cuda:%d, this context works on cuda:%d; open one for "
                "that GPU",
                about.device, own_of(dev)->index);
}

/* Whether what is queued goes into a graph of the caller. */
static bool is_captured(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status)) cudaGetLastError(); /* the next call will fail */
    return status != cudaStreamCaptureStatusNone;
}

static int cuda_set_stream(device *dev, void *stream) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    cudaStream_t next = stream ? stream : own->home;
    ASSERT(!own->recording);
    TRY(CUDA(SetDevice(own->index))); /* this thread may be new to the context */
    if (next == own->stream) goto done;
    /* A graph waits for nothing outside itself; it has its own memory (work), and its operations
     * touch nothing else that the device keeps. */
    if (!is_captured(own->stream) && !is_captured(next)) {
        TRY(CUDA(EventRecord(own->moved, own->stream)));
        TRY(CUDA(StreamWaitEvent(next, own->moved, 0)));
    }
    own->stream = next;
done:
    return rc;
}

/* The workspace for a call, out of those that are large enough: a captured call prefers one that
 * graphs already use (they are replayed one after the other), any other call takes one that none
 * uses. */
static cuda_workspace *find_workspace(const cuda_own *own, size_t bytes, bool captured) {
    cuda_workspace *found = NULL;
    for (cuda_workspace *r = own->workspaces; r; r = r->next)
        if (r->bytes >= bytes && (captured || !r->captured) && (!found || r->captured)) found = r;
    return found;
}

/* Replaces the workspace that no graph uses. */
static int new_workspace(device *dev, size_t bytes, cuda_workspace **out) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    for (cuda_workspace **at = &own->workspaces; *at;)
        if ((*at)->captured) {
            at = &(*at)->next;
        } else {
            cuda_workspace *old = *at;
            TRY(CUDA(StreamSynchronize(own->stream)));
            *at = old->next;
            cuda_free(dev, old->base);
            free(old);
        }
    cuda_workspace *r = *out = calloc(1, sizeof *r);
    if (!r) return fail_memory("device", sizeof *r);
    r->bytes = bytes;
    if ((rc = cuda_alloc(dev, bytes, &r->base)) < 0) {
        free(r);
        goto done;
    }
    r->next = own->workspaces;
    own->workspaces = r;
done:
    return rc;
}

static int cuda_work(device *dev, size_t bytes, void **out) {
    int rc = 0;
    bool captured = is_captured(own_of(dev)->stream);
    cuda_workspace *r = find_workspace(own_of(dev), bytes, captured);
    if (!r && captured)
        return fail(CONR_EINVAL,
                    "cuda: the stream is being captured, and memory cannot be allocated "
                    "meanwhile; make the same call once before the capture");
    if (!r) TRY(new_workspace(dev, bytes, &r));
    if (captured) r->captured = true;
    *out = r->base;
done:
    return rc;
}

/* ---- bf16 copies of weights ------------------------------------------------------------------ */

static int refresh(device *dev, cuda_block *b) {
    b->stale = false;
    return cuda_to_bf16(dev, (const float *)b->base, b->bytes / sizeof(float), b->shadow);
}

static void *shadow_at(const cuda_block *b, const float *w) {
    return (char *)b->shadow + ((const char *)w - b->base) / 2;
}

void *cuda_shadow(device *dev, const float *w) {
    cuda_block *b = w ? block_of(dev, w) : NULL;
    return b && b->shadow ? shadow_at(b, w) : NULL;
}

int cuda_weights(device *dev, const float *w, void **out) {
    int rc = 0;
    cuda_block *b = block_of(dev, w);
    ASSERT(b);
    if (!b->shadow) {
        ASSERT(!own_of(dev)->recording);
        TRY(CUDA(Malloc(&b->shadow, b->bytes / 2 + 16)));
        b->stale = true;
    }
    if (b->stale) TRY(refresh(dev, b));
    *out = shadow_at(b, w);
done:
    return rc;
}

/* ---- recordings ------------------------------------------------------------------------------ */

/* A recording is a CUDA graph.  The first call runs the body plainly: engines are chosen, kernels
 * loaded, scratch memory and copies of weights made.  The second call records it and launches the
 * graph. */
struct recording {
    cudaGraphExec_t graph;
};

static void cuda_recording_free(device *dev, recording *r) {
    if (!r) return;
    cudaStreamSynchronize(own_of(dev)->stream);
    if (r->graph) cudaGraphExecDestroy(r->graph);
    free(r);
}

static int record(device *dev, int (*body)(void *arg), void *arg, recording *r) {
    int rc = 0, ended;
    cuda_own *own = own_of(dev);
    cudaGraph_t graph = NULL;
    TRY(CUDA(StreamBeginCapture(own->stream, cudaStreamCaptureModeThreadLocal)));
    own->recording = true;
    rc = body(arg);
    own->recording = false;
    ended = CUDA(StreamEndCapture(own->stream, &graph));
    if (rc == 0) rc = ended;
    if (rc == 0) rc = CUDA(GraphInstantiate(&r->graph, graph, 0));
    if (graph) cudaGraphDestroy(graph);
done:
    return rc;
}

static int cuda_repeat(device *dev, int (*body)(void *arg), void *arg, recording **r) {
    int rc = 0;
    if (own_of(dev)->stream == cudaStreamLegacy) return body(arg); /* cannot be recorded */
    if (!*r) {
        *r = calloc(1, sizeof **r);
        if (!*r) return fail_memory("recording", sizeof **r);
        return body(arg);
    }
    /* weights that were put since: the graph does not refresh their copies */
    for (cuda_block *b = own_of(dev)->blocks; b; b = b->next)
        if (b->shadow && b->stale) TRY(refresh(dev, b));
    if (!(*r)->graph) TRY(record(dev, body, arg, *r));
    TRY(CUDA(GraphLaunch((*r)->graph, own_of(dev)->stream)));
done:
    return rc;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int cuda_moment(device *dev, void **out) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    cudaEvent_t event = NULL;
    if (own->n_events == own->event_capacity) {
        int capacity = 2 * own->event_capacity + 64;
        cudaEvent_t *more = realloc(own->events, (size_t)capacity * sizeof *more);
        if (!more) return fail_memory("moments", (double)capacity * sizeof *more);
        own->events = more;
        own->event_capacity = capacity;
    }
    TRY(CUDA(EventCreate(&event)));
    own->events[own->n_events++] = event;
    TRY(CUDA(EventRecord(event, own->stream)));
    *out = event;
done:
    return rc;
}

static int cuda_seconds(device *dev, void *from, void *to, double *out) {
    int rc = 0;
    float ms;
    (void)dev;
    TRY(CUDA(EventSynchronize(to)));
    TRY(CUDA(EventElapsedTime(&ms, from, to)));
    *out = 1e-3 * ms;
done:
    return rc;
}

/* Random-looking values: zeros would run faster than real data does. */
static int fill(device *dev, void *p, size_t floats) {
    int rc = 0;
    uint32_t seed = 1;
    float *host = malloc(floats * sizeof *host);
    if (!host) return fail_memory("peaks", (double)floats * sizeof *host);
    for (size_t i = 0; i < floats; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    TRY(cuda_put(dev, p, host, floats * sizeof *host));
    TRY(cuda_sync(dev));
done:
    free(host);
    return rc;
}

static int cuda_peaks(device *dev, double *flops, double *bytes) {
    enum { SIDE = 8192, ROUNDS = 5 };
    int rc = 0;
    size_t count = (size_t)SIDE * SIDE;
    void *drawn = NULL, *a = NULL, *b = NULL, *from, *to;
    cudaDataType_t kind = dev->type == ACT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    matmul_shape s = {false, true, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, kind, kind, kind};
    *flops = *bytes = 0;
    TRY(cuda_alloc(dev, count * sizeof(float), &drawn));
    TRY(cuda_alloc(dev, count * sizeof(float), &a));
    TRY(cuda_alloc(dev, count * sizeof(float), &b));
    TRY(fill(dev, drawn, count));
    TRY(cuda_act_from(dev, drawn, count, a));
    for (int i = 0; i < ROUNDS; i++) {
        double took;
        TRY(cuda_moment(dev, &from));
        TRY(cuda_matmul(dev, &s, 1, a, a, 0, b, NULL));
        TRY(cuda_moment(dev, &to));
        TRY(cuda_seconds(dev, from, to, &took));
        if (2.0 * SIDE * SIDE * SIDE / took > *flops) *flops = 2.0 * SIDE * SIDE * SIDE / took;
        TRY(cuda_moment(dev, &from));
        TRY(cuda_copy(dev, b, drawn, count * sizeof(float)));
        TRY(cuda_moment(dev, &to));
        TRY(cuda_seconds(dev, from, to, &took));
        double rate = 2.0 * sizeof(float) * (double)count / took;
        if (rate > *bytes) *bytes = rate;
    }
done:
    cuda_free(dev, drawn);
    cuda_free(dev, a);
    cuda_free(dev, b);
    return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void cuda_close(device *dev) {
    cuda_own *own = own_of(dev);
    if (!own) return;
    cudaSetDevice(own->index);
    if (own->stream) cudaStreamSynchronize(own->stream);
    cuda_engines_free(dev);
    cuda_matmuls_free(dev);
    while (own->blocks) cuda_free(dev, own->blocks->base);
    for (int i = 0; i < own->n_scratch; i++) cudaFree(own->scratch[i]);
    free(own->scratch);
    for (int i = 0; i < own->n_events; i++) cudaEventDestroy(own->events[i]);
    free(own->events);
    if (own->moved) cudaEventDestroy(own->moved);
    for (cuda_workspace *r = own->workspaces, *next; r; r = next) {
        next = r->next;
        free(r); /* its memory is one of the blocks */
    }
    cudaFree(own->counters);
    cudaFree(own->lt_work);
    if (own->dnn) cudnnDestroy(own->dnn);
    if (own->lt) cublasLtDestroy(own->lt);
    if (own->home) cudaStreamDestroy(own->home);
    free(own);
}

/* "cuda", "cuda:1", "cuda-f32", "cuda-f32:1"; *index is -1 if none is named. */
static int parse_name(const char *name, bool *f32, int *index) {
    const char *at = name + strlen("cuda");
    *f32 = !strncmp(at, "-f32", 4);
    if (*f32) at += 4;
    *index = -1;
    if (!*at) return 0;
    char *end;
    long value = *at == ':' ? strtol(at + 1, &end, 10) : -1;
    if (value < 0 || value > 1023 || end == at + 1 || *end)
        return fail(CONR_EINVAL, "%s: no such device; use cuda, cuda:0, cuda:1, ...", name);
    *index = (int)value;
    return 0;
}

/* A GPU that exists and that this build has code for; *chosen < 0: by `local`. */
static int find_device(int local, int *chosen, struct cudaDeviceProp *found) {
    int rc = 0, count = 0, index = *chosen;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count == 0)
        return fail(CONR_EDEVICE, "cuda: no usable GPU (%s); use --device cpu",
                    e ? cudaGetErrorString(e) : "none found");
    if (index < 0) index = *chosen = local % count; /* Slurm may show each process only one */
    if (index >= count)
        return fail(CONR_EDEVICE, "cuda:%d: there are %d GPUs; use cuda:0%s", index, count,
                    count > 1 ? " and up" : "");
    TRY(CUDA(SetDevice(index)));
    TRY(CUDA(GetDeviceProperties(found, index)));
    if (found->major < 8)
        rc = fail(CONR_EDEVICE,
                  "cuda:%d: %s is too old, compute capability 8.0 is required; use "
                  "--device cpu",
                  index, found->name);
done:
    return rc;
}

int device_cuda_open(device *dev, const char *name) {
    int rc = 0;
    bool f32;
    int index;
    size_t available, total;
    struct cudaDeviceProp found;
    rc = parse_name(name, &f32, &index);
    if (rc < 0 || (rc = find_device(dev->local, &index, &found)) < 0) return rc;
    cuda_own *own = dev->own = calloc(1, sizeof *own);
    if (!own) return fail_memory("cuda device", sizeof *own);
    own->index = index;
    own->processors = found.multiProcessorCount;
    own->generation = 10 * found.major + found.minor;
    own->shared = found.sharedMemPerBlockOptin;
    snprintf(own->words, sizeof own->words, "cuda:%d, %.40s, %s", index, found.name,
             f32 ? "fp32" : "bf16");
    dev->name = "cuda";
    dev->is_gpu = true;
    dev->words = own->words;
    dev->type = f32 ? ACT_F32 : ACT_BF16;
    dev->act_size = f32 ? 4 : 2;
    dev->op = (device_ops){.close = cuda_close,
                           .alloc = cuda_alloc,
                           .free = cuda_free,
                           .put = cuda_put,
                           .get = cuda_get,
                           .copy = cuda_copy,
                           .zero = cuda_zero,
                           .sync = cuda_sync,
                           .reaches = cuda_reaches,
                           .set_stream = cuda_set_stream,
                           .work = cuda_work,
                           .repeat = cuda_repeat,
                           .recording_free = cuda_recording_free,
                           .moment = cuda_moment,
                           .seconds = cuda_seconds,
                           .peaks = cuda_peaks,
                           .gemm = cuda_gemm};
    cuda_basic_ops(&dev->op);
    cuda_norm_ops(&dev->op);
    cuda_conv_ops(&dev->op);
    cuda_transformer_ops(&dev->op);
    cuda_feature_ops(&dev->op);
    cuda_ferry_ops(&dev->op);
    TRY(CUDA(StreamCreateWithFlags(&own->home, cudaStreamNonBlocking)));
    own->stream = own->home;
    TRY(CUDA(EventCreateWithFlags(&own->moved, cudaEventDisableTiming)));
    TRY(CUDA(MemGetInfo(&available, &total)));
    dev->memory = available;
    TRY(CUDA(Malloc((void **)&own->counters, CUDA_COUNTERS * sizeof *own->counters)));
    TRY(CUDA(MemsetAsync(own->counters, 0, CUDA_COUNTERS * sizeof *own->counters, own->stream)));
    TRY(CUDA(Malloc(&own->lt_work, LT_WORK)));
    own->dnn_stream = own->stream;
    if (cublasLtCreate(&own->lt) || cudnnCreate(&own->dnn) || cudnnSetStream(own->dnn, own->stream))
        rc = fail(CONR_EDEVICE,
                  "cuda: cuBLASLt or cuDNN %zu does not start; do they match the CUDA "
                  "release of the driver?",
                  cudnnGetVersion());
done:
    if (rc < 0) {
        cuda_close(dev);
        dev->own = NULL;
    }
    return rc;
}
