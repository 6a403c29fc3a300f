/* ferry.c: uploads beside the queue: pinned memory on the host, a stream of their own, and two events
 * for each slot: `sent`, the end of its last upload, and `done`, the end of the operations that used
 * it.  An upload waits for `done` on the GPU, operations wait there for `sent`, and the host waits
 * for `sent` before it writes a slot again.  Events that were never recorded count as past. */
#include "device/cuda/own.h"

#include "base/memory.h"
#include "base/status.h"
#include "views/job.h"

#include <stdlib.h>

typedef struct cuda_ferry {
    ferry f; /* first: a ferry * is a cuda_ferry * */
    cudaStream_t stream;
    cudaEvent_t *sent, *done; /* [slots] */
} cuda_ferry;

#define CUDA(call) cuda_check((int)cuda##call, "cuda" #call)

static void ferry_free(device *dev, ferry *f) {
    cuda_ferry *c = (cuda_ferry *)f;
    if (!c) return;
    if (c->stream) cudaStreamSynchronize(c->stream);
    cudaStreamSynchronize(own_of(dev)->stream); /* operations may still read the slots */
    for (int i = 0; i < 2 * c->f.slots; i++)
        if (c->sent && c->sent[i]) cudaEventDestroy(c->sent[i]);
    if (c->stream) cudaStreamDestroy(c->stream);
    if (c->f.host) cudaFreeHost(c->f.host);
    dev->op.free(dev, c->f.on);
    free(c->sent);
    free(c);
}

static int ferry_new(device *dev, int slots, size_t bytes, ferry **out) {
    int rc = 0;
    size_t total = (size_t)slots * bytes;
    *out = NULL;
    cuda_ferry *c = calloc(1, sizeof *c);
    if (!c) return fail_memory("ferry", sizeof *c);
    c->f = (ferry){.slots = slots, .bytes = bytes};
    c->sent = calloc(2 * (size_t)slots, sizeof *c->sent);
    if (!c->sent) TRY(fail_memory("ferry", (double)slots));
    c->done = c->sent + slots;
    TRY(memory_check("streamed images", (double)total));
    TRY(dev->op.alloc(dev, total + VIEWS_PAD, (void **)&c->f.on));
    TRY(CUDA(HostAlloc((void **)&c->f.host, total, cudaHostAllocDefault)));
    TRY(CUDA(StreamCreateWithFlags(&c->stream, cudaStreamNonBlocking)));
    for (int i = 0; i < slots; i++) {
        TRY(CUDA(
            EventCreateWithFlags(&c->sent[i], cudaEventDisableTiming | cudaEventBlockingSync)));
        TRY(CUDA(EventCreateWithFlags(&c->done[i], cudaEventDisableTiming)));
    }
    TRY(dev->op.sync(dev)); /* new memory is zeroed on the other stream */
    *out = &c->f;
done:
    if (rc < 0) ferry_free(dev, &c->f);
    return rc;
}

/* A thread that is new to the device must choose it first. */
static int ferry_fill(device *dev, ferry *f, int slot) {
    int rc = 0;
    TRY(CUDA(SetDevice(own_of(dev)->index)));
    TRY(CUDA(EventSynchronize(((cuda_ferry *)f)->sent[slot])));
done:
    return rc;
}

static int ferry_send(device *dev, ferry *f, int slot, size_t bytes) {
    int rc = 0;
    cuda_ferry *c = (cuda_ferry *)f;
    size_t at = (size_t)slot * f->bytes;
    ASSERT(slot >= 0 && slot < f->slots && bytes <= f->bytes);
    TRY(CUDA(SetDevice(own_of(dev)->index)));
    TRY(CUDA(StreamWaitEvent(c->stream, c->done[slot], 0)));
    TRY(CUDA(MemcpyAsync(f->on + at, f->host + at, bytes, cudaMemcpyHostToDevice, c->stream)));
    TRY(CUDA(EventRecord(c->sent[slot], c->stream)));
done:
    return rc;
}

static int ferry_take(device *dev, ferry *f, int slot) {
    return CUDA(StreamWaitEvent(own_of(dev)->stream, ((cuda_ferry *)f)->sent[slot], 0));
}

static int ferry_done(device *dev, ferry *f, int slot) {
    return CUDA(EventRecord(((cuda_ferry *)f)->done[slot], own_of(dev)->stream));
}

void cuda_ferry_ops(device_ops *op) {
    op->ferry_new = ferry_new;
    op->ferry_free = ferry_free;
    op->ferry_fill = ferry_fill;
    op->ferry_send = ferry_send;
    op->ferry_take = ferry_take;
    op->ferry_done = ferry_done;
}
