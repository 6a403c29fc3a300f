/* conv.c: convolutions on the GPU.
 *
 * A 1x1 convolution is a matrix product, of every second pixel where it is strided.  Everything
 * else is cuDNN's (the graph API, which is C): at the first use of a shape its proposals are timed
 * and the fastest is kept, those that do not give the same bits twice left out.  What no engine
 * takes runs as plain loops.
 *
 * A choice by time may differ from run to run, and so may the last bits.  Where CONR_CUDA_ENGINES
 * names a file, choices are read from it and new ones appended, keyed by cuDNN's version, GPU and
 * shape: the same file gives the same bits, and spares the search. */
#include "device/cuda/own.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum direction { FORWARD, BACK_DATA, BACK_FILTER, DIRECTIONS } direction;

enum {
    DNN_WORK = 64 << 20, /* bytes that any engine may ask for */
    TRIED = 10,          /* proposals of each kind of heuristics that are timed */
    KNOBS = 24,
    KEPT = 16,
    ROUNDS = 10 /* of a timed engine */
};

/* How an engine's result gets where it is wanted. */
typedef enum landing {
    DIRECT, /* written there */
    GROWS,  /* cuDNN adds to what is there */
    APART   /* written to memory aside, then added or converted */
} landing;

typedef struct config {
    int64_t index; /* of the engine, in cuDNN's numbers */
    int n_knobs;
    int64_t type[KNOBS], value[KNOBS];
    landing landing;
} config;

/* What runs one direction of one shape; shared by all plans of that shape. */
typedef struct engine {
    conv_shape s;
    direction direction;
    bool add;
    config c;
    cudnnBackendDescriptor_t kept[KEPT]; /* all that `plan` was made of */
    int n_kept;
    cudnnBackendDescriptor_t plan; /* NULL: plain loops */
    size_t work;
    float us;
    struct engine *next;
} engine;

typedef struct cuda_plan {
    conv_plan p;  /* first: what the caller sees */
    size_t work;  /* bytes that an engine may ask for */
    size_t side;  /* bytes aside, at the start of the workspace */
    bool stem;    /* the first convolution: kernels of its own, but for the data gradient */
    bool narrow;  /* 64 channels: forward and data gradient by a kernel of our own */
    bool product; /* a matrix product */
    engine *engine[DIRECTIONS][2];
} cuda_plan;

/* One call's tensors: result = of a and b.  Forward: x, w, y; data: dy, w, dx; filter: x, dy, dw.
 */
typedef struct tensors {
    const void *a, *b;
    void *result, *side, *work;
} tensors;

static int check(cudnnStatus_t status, const char *what) {
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    return fail(CONR_EDEVICE, "cuDNN, %s: %s; please report it", what, cudnnGetErrorString(status));
}

static bool is_bf16(const device *dev) { return dev->type == ACT_BF16; }

/* ---- plans ----------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static int cuda_conv_plan_new(device *dev, const conv_shape *s, conv_plan **out) {
    ASSERT(s->groups > 0 && s->n % s->groups == 0);
    cuda_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return fail_memory("convolution", sizeof *p);
    p->p = (conv_plan){.s = *s,
                       .oh = (s->h + 2 * s->pad - s->k) / s->stride + 1,
                       .ow = (s->w + 2 * s->pad - s->k) / s->stride + 1};
    /* bf16 products want rows that start on 16 bytes */
    p->product = s->k == 1 && s->pad == 0 && (!is_bf16(dev) || (s->ci % 8 == 0 && s->co % 8 == 0));
    p->stem = cuda_stem_takes(dev, s);
    p->narrow = cuda_conv64_takes(dev, s);
    size_t x = (size_t)s->n * s->h * s->w * s->ci * dev->act_size;
    size_t picked = (size_t)s->n * p->p.oh * p->p.ow * s->ci * dev->act_size;
    size_t dw = (size_t)s->co * s->k * s->k * s->ci * sizeof(float);
    if (p->product) {
        p->side = s->stride > 1 ? round_up(picked) : 0;
        p->p.workspace = p->side;
    } else {
        /* with odd channels also room for copies of x with eight */
        size_t padded = s->ci % 8 ? x / (size_t)s->ci * (8 * (size_t)((s->ci + 7) / 8)) : 0;
        p->side = round_up(x > dw ? x : dw);
        p->work = DNN_WORK + 2 * padded;
        p->p.workspace = p->side + p->work;
    }
    *out = &p->p;
    return 0;
}

static void cuda_conv_plan_free(device *dev, conv_plan *p) {
    (void)dev;
    free(p);
}

/* ---- cuDNN's descriptors --------------------------------------------------------------------- */

/* A new descriptor that e keeps until it goes. */
static int make(engine *e, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    ASSERT(e->n_kept < KEPT);
    int rc = check(cudnnBackendCreateDescriptor(type, out), "descriptor");
    if (rc == 0) e->kept[e->n_kept++] = *out;
    return rc;
}

static int set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    return check(cudnnBackendSetAttribute(d, name, type, n, value), "attribute");
}

static void drop(engine *e) {
    if (e->plan) cudnnBackendDestroyDescriptor(e->plan);
    while (e->n_kept) cudnnBackendDestroyDescriptor(e->kept[--e->n_kept]);
    e->plan = NULL;
}

static int tensor(engine *e, int64_t id, cudnnDataType_t type, const int64_t dims[4],
                  cudnnBackendDescriptor_t *out) {
    int rc = 0;
    int64_t align = 16;
    int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]}; /* NHWC */
    TRY(make(e, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    TRY(set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    TRY(set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    TRY(set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
    TRY(check(cudnnBackendFinalize(*out), "tensor"));
done:
    return rc;
}

enum { ID_A = 1, ID_B, ID_RESULT };

/* The operation as a graph of one node.  a, b, result as in `tensors`. */
static int operation_graph(device *dev, engine *e, const conv_plan *p, landing landing,
                           cudnnBackendDescriptor_t *out) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t a, b, result, conv, alpha, beta;
    } names[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    int rc = 0;
    direction d = e->direction;
    const conv_shape *s = &p->s;
    int64_t x[] = {s->n, s->ci, s->h, s->w}, w[] = {s->co, s->ci, s->k, s->k};
    int64_t y[] = {s->n, s->co, p->oh, p->ow};
    const int64_t *dims[][3] = {{x, w, y}, {y, w, x}, {x, y, w}};
    cudnnDataType_t type = is_bf16(dev) ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT,
                    f32 = CUDNN_DATA_FLOAT;
    cudnnDataType_t result_type = d == BACK_FILTER && landing == DIRECT ? f32 : type;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t two = 2, pads[] = {s->pad, s->pad}, strides[] = {s->stride, s->stride}, ones[] = {1, 1};
    float alpha = 1, beta = landing == GROWS;
    cudnnBackendDescriptor_t a, b, result, conv, op;
    TRY(tensor(e, ID_A, type, dims[d][0], &a));
    TRY(tensor(e, ID_B, type, dims[d][1], &b));
    TRY(tensor(e, ID_RESULT, result_type, dims[d][2], &result));
    TRY(make(e, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &conv));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides));
    TRY(set(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones));
    TRY(check(cudnnBackendFinalize(conv), "convolution"));
    TRY(make(e, names[d].type, &op));
    TRY(set(op, names[d].a, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a));
    TRY(set(op, names[d].b, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b));
    TRY(set(op, names[d].result, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &result));
    TRY(set(op, names[d].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv));
    TRY(set(op, names[d].alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
    TRY(set(op, names[d].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    TRY(check(cudnnBackendFinalize(op), "operation"));
    TRY(make(e, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op));
    TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &own_of(dev)->dnn));
    TRY(check(cudnnBackendFinalize(*out), "graph"));
done:
    return rc;
}

/* The engine of this index with these knobs, as a configuration. */
static int configuration(engine *e, cudnnBackendDescriptor_t graph, const config *c,
                         cudnnBackendDescriptor_t *out) {
    int rc = 0;
    cudnnBackendDescriptor_t found = NULL, knob[KNOBS] = {NULL};
    *out = NULL;
    TRY(make(e, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &found));
    TRY(set(found, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    TRY(set(found, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &c->index));
    TRY(check(cudnnBackendFinalize(found), "engine"));
    TRY(make(e, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, out));
    TRY(set(*out, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found));
    for (int i = 0; i < c->n_knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)c->type[i];
        TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i]),
                  "knob"));
        TRY(set(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
        TRY(set(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &c->value[i]));
        TRY(check(cudnnBackendFinalize(knob[i]), "knob"));
    }
    if (c->n_knobs)
        TRY(set(*out, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, c->n_knobs,
                knob));
    TRY(check(cudnnBackendFinalize(*out), "configuration"));
done:
    for (int i = 0; i < KNOBS; i++)
        if (knob[i]) cudnnBackendDestroyDescriptor(knob[i]);
    return rc;
}

/* e->plan out of a configuration; fails where the engine does not take the shape or wants too much
 * memory. */
static int build(device *dev, engine *e, const conv_plan *p, const config *c) {
    int rc = 0;
    int64_t bytes = 0, count = 0;
    cudnnBackendDescriptor_t graph, cfg, plan = NULL;
    TRY(operation_graph(dev, e, p, c->landing, &graph));
    TRY(configuration(e, graph, c, &cfg));
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan),
              "plan"));
    e->plan = plan;
    TRY(set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &own_of(dev)->dnn));
    TRY(set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &cfg));
    TRY(check(cudnnBackendFinalize(plan), "plan"));
    TRY(check(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &bytes),
              "workspace"));
    e->work = (size_t)bytes;
    e->c = *c;
    if ((size_t)bytes > ((const cuda_plan *)p)->work)
        rc = fail(CONR_EDEVICE, "cuDNN: an engine wants %ld bytes", (long)bytes);
done:
    if (rc < 0) drop(e);
    return rc;
}

/* cuDNN learns of a new stream when it is next at work: calls on features never are. */
static int follow_stream(cuda_own *own) {
    if (own->dnn_stream == own->stream) return 0;
    own->dnn_stream = own->stream;
    return check(cudnnSetStream(own->dnn, own->stream), "stream");
}

static int execute(device *dev, const engine *e, const tensors *t, void *result) {
    int rc = 0;
    int64_t ids[] = {ID_A, ID_B, ID_RESULT};
    void *pointers[] = {(void *)t->a, (void *)t->b, result};
    cudnnBackendDescriptor_t pack = NULL;
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "pack"));
    TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids));
    TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers));
    TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &t->work));
    TRY(check(cudnnBackendFinalize(pack), "pack"));
    TRY(follow_stream(own_of(dev)));
    TRY(check(cudnnBackendExecute(own_of(dev)->dnn, e->plan, pack), "convolution"));
done:
    if (pack) cudnnBackendDestroyDescriptor(pack);
    return rc;
}

/* The engine and what has to follow it. */
static int run_engine(device *dev, const conv_plan *p, const engine *e, bool add,
                      const tensors *t) {
    int rc = 0;
    const conv_shape *s = &p->s;
    bool filter = e->direction == BACK_FILTER, bf16 = e->c.landing == APART && is_bf16(dev);
    bool aside = e->c.landing == APART || (filter && add);
    TRY(execute(dev, e, t, aside ? t->side : t->result));
    if (!aside) goto done;
    size_t count =
        filter ? (size_t)s->co * s->k * s->k * s->ci : (size_t)s->n * s->h * s->w * s->ci;
    TRY(filter ? cuda_grow_floats(dev, t->side, bf16, count, add, t->result)
               : cuda_acts_add(dev, t->side, count, t->result));
done:
    return rc;
}

/* ---- choosing an engine ---------------------------------------------------------------------- */

static bool same_config(const config *a, const config *b) {
    if (a->index != b->index || a->n_knobs != b->n_knobs || a->landing != b->landing) return false;
    for (int i = 0; i < a->n_knobs; i++)
        if (a->type[i] != b->type[i] || a->value[i] != b->value[i]) return false;
    return true;
}

/* To measure what the same bits cost: CONR_CUDA_ANY_ORDER=1 takes engines that sum in any order. */
static bool any_order(void) {
    const char *wish = getenv("CONR_CUDA_ANY_ORDER");
    return wish && *wish == '1';
}

/* Reads what a proposal is; false for one that we do not take. */
static bool read_config(device *dev, cudnnBackendDescriptor_t cfg, config *c) {
    int64_t count = 0, index = 0, n_notes = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t found = NULL, knob[KNOBS] = {NULL};
    bool good = false;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &found)) goto done;
    if (cudnnBackendGetAttribute(cfg, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &count, &found) ||
        cudnnBackendGetAttribute(found, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                 &index) ||
        cudnnBackendGetAttribute(found, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, note))
        goto done;
    for (int i = 0; i < n_notes; i++) {
        bool loose = note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || /* TF32 */
                     note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                     note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
                     note[i] == CUDNN_NUMERICAL_NOTE_FFT;
        if ((note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && !any_order()) ||
            note[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD || (loose && !is_bf16(dev)))
            goto done;
    }
    for (int i = 0; i < KNOBS; i++)
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i])) goto done;
    if (cudnnBackendGetAttribute(cfg, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, &count, knob) ||
        count > KNOBS)
        goto done;
    c->index = index;
    c->n_knobs = (int)count;
    for (int i = 0; i < c->n_knobs; i++) {
        cudnnBackendKnobType_t type;
        if (cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                     CUDNN_TYPE_KNOB_TYPE, 1, &count, &type) ||
            cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
                                     1, &count, &c->value[i]))
            goto done;
        c->type[i] = type;
    }
    good = true;
done:
    for (int i = 0; i < KNOBS; i++)
        if (knob[i]) cudnnBackendDestroyDescriptor(knob[i]);
    if (found) cudnnBackendDestroyDescriptor(found);
    return good;
}

/* Appends what the heuristics propose for a graph. */
static void propose(device *dev, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                    landing landing, config *list, int *n, int room) {
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristics = NULL, cfg[TRIED] = {NULL};
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics)) return;
    for (int i = 0; i < TRIED; i++)
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &cfg[i])) goto done;
    if (cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph) ||
        cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                 &mode) ||
        cudnnBackendFinalize(heuristics) ||
        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, TRIED, &count, cfg))
        goto done;
    if (count > TRIED) count = TRIED;
    for (int i = 0; i < count && *n < room; i++) {
        config c = {.landing = landing};
        bool known = !read_config(dev, cfg[i], &c);
        for (int j = 0; j < *n && !known; j++) known = same_config(&list[j], &c);
        if (!known) list[(*n)++] = c;
    }
done:
    for (int i = 0; i < TRIED; i++)
        if (cfg[i]) cudnnBackendDestroyDescriptor(cfg[i]);
    cudnnBackendDestroyDescriptor(heuristics);
}

/* Microseconds of one run, the best of two series. */
static int time_engine(device *dev, const conv_plan *p, engine *e, const tensors *t) {
    int rc = 0;
    cudaStream_t stream = own_of(dev)->stream;
    cudaEvent_t start = NULL, stop = NULL;
    TRY(cuda_check((int)cudaEventCreate(&start), "event"));
    TRY(cuda_check((int)cudaEventCreate(&stop), "event"));
    e->us = 1e30f;
    TRY(run_engine(dev, p, e, e->add, t)); /* warm */
    for (int series = 0; series < 2; series++) {
        float ms;
        TRY(cuda_check((int)cudaEventRecord(start, stream), "event"));
        for (int i = 0; i < ROUNDS; i++) TRY(run_engine(dev, p, e, e->add, t));
        TRY(cuda_check((int)cudaEventRecord(stop, stream), "event"));
        TRY(cuda_check((int)cudaEventSynchronize(stop), "event"));
        TRY(cuda_check((int)cudaEventElapsedTime(&ms, start, stop), "event"));
        if (1e3f * ms / ROUNDS < e->us) e->us = 1e3f * ms / ROUNDS;
    }
done:
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
    return rc;
}

static void copy_key(engine *to, const engine *from) {
    *to = (engine){.s = from->s, .direction = from->direction, .add = from->add};
}

/* The fastest of all proposals goes into e; none: e->plan stays NULL. */
static int search(device *dev, const conv_plan *p, engine *e, const tensors *t) {
    enum { ROOM = 4 * TRIED };
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    landing ways[2] = {DIRECT, APART};
    int rc = 0, n = 0, n_ways = e->direction == BACK_FILTER && is_bf16(dev) ? 2 : 1;
    config list[ROOM];
    if (e->direction == BACK_DATA && e->add) ways[0] = GROWS, n_ways = 2;
    for (int mode = 0; mode < 3; mode++) {
        if (mode == 2 && n) break; /* fallbacks only where there is nothing better */
        for (int i = 0; i < n_ways; i++) {
            engine trial;
            cudnnBackendDescriptor_t graph;
            copy_key(&trial, e);
            if (operation_graph(dev, &trial, p, ways[i], &graph) == 0)
                propose(dev, graph, modes[mode], ways[i], list, &n, ROOM);
            drop(&trial);
        }
    }
    for (int i = 0; i < n; i++) {
        engine trial;
        copy_key(&trial, e);
        if (build(dev, &trial, p, &list[i]) < 0) continue;
        rc = time_engine(dev, p, &trial, t);
        if (rc < 0 && cudaStreamSynchronize(own_of(dev)->stream)) return rc; /* the GPU is lost */
        if (rc == 0 && (!e->plan || trial.us < e->us)) {
            engine old = *e, *next = e->next;
            *e = trial;
            e->next = next;
            trial = old;
        }
        drop(&trial);
    }
    return 0;
}

/* ---- choices in a file ----------------------------------------------------------------------- */

static const char *engines_file(const device *dev) {
    const char *path = getenv("CONR_CUDA_ENGINES");
    return path && *path ? path : dev->choices;
}

static void key_text(device *dev, const engine *e, char *out, size_t size) {
    static const char *const words[] = {"forward", "data", "filter"};
    const conv_shape *s = &e->s;
    const char *gpu = strchr(own_of(dev)->words, ' ');
    snprintf(out, size, "%zu%s %s%s %dx%dx%dx%d %d %dx%d/%d+%d", cudnnGetVersion(), gpu ? gpu : "",
             words[e->direction], e->add ? "+" : "", s->n, s->h, s->w, s->ci, s->co, s->k, s->k,
             s->stride, s->pad);
}

/* "KEY | engine landing knob=value ... | microseconds": the last line of a key counts. */
static bool read_choice(const char *path, const char *key, config *c) {
    FILE *f = fopen(path, "r");
    char line[1024];
    bool found = false;
    while (f && fgets(line, sizeof line, f)) {
        char *bar = strstr(line, " | ");
        if (!bar || strlen(key) != (size_t)(bar - line) || strncmp(line, key, strlen(key)))
            continue;
        config read = {0};
        int used = 0, way = 0;
        long long index, type, value;
        char *at = bar + 3;
        if (sscanf(at, "%lld %d%n", &index, &way, &used) < 2) continue;
        read.index = index;
        read.landing = (landing)way;
        for (at += used;
             read.n_knobs < KNOBS && sscanf(at, " %lld=%lld%n", &type, &value, &used) == 2;
             at += used) {
            read.type[read.n_knobs] = type;
            read.value[read.n_knobs++] = value;
        }
        *c = read;
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static int write_choice(const char *path, const char *key, const engine *e) {
    FILE *f = fopen(path, "a");
    if (!f) return fail(CONR_EFILE, "%s: cannot be written; check its folder", path);
    fprintf(f, "%s | %lld %d", key, (long long)(e->plan ? e->c.index : -1), (int)e->c.landing);
    for (int i = 0; i < e->c.n_knobs; i++)
        fprintf(f, " %lld=%lld", (long long)e->c.type[i], (long long)e->c.value[i]);
    fprintf(f, " | %.1f\n", e->plan ? (double)e->us : 0);
    return fclose(f) ? fail(CONR_EFILE, "%s: cannot be written; is the disk full?", path) : 0;
}

/* The engine for this direction, chosen at the first use of the shape. */
static int engine_for(device *dev, cuda_plan *p, direction d, bool add, const tensors *t,
                      engine **out) {
    int rc = 0;
    cuda_own *own = own_of(dev);
    engine **slot = &p->engine[d][add], *e = *slot;
    conv_shape key = p->p.s;
    key.groups = 1;
    for (e = e ? e : own->engines; e; e = e->next)
        if (!memcmp(&e->s, &key, sizeof key) && e->direction == d && e->add == add) break;
    if (e) {
        *out = *slot = e;
        return 0;
    }
    ASSERT(!own->recording);
    e = calloc(1, sizeof *e);
    if (!e) return fail_memory("convolution", sizeof *e);
    e->s = key;
    e->direction = d;
    e->add = add;
    char text[256];
    config c;
    const char *path = engines_file(dev);
    void *before = NULL; /* what is added to: timing must not add again and again */
    size_t bytes = (size_t)key.n * key.h * key.w * key.ci * dev->act_size;
    key_text(dev, e, text, sizeof text);
    if (path && read_choice(path, text, &c) && (c.index < 0 || build(dev, e, &p->p, &c) == 0))
        goto done;
    if (d == BACK_DATA && add) {
        TRY(cuda_check((int)cudaMalloc(&before, bytes), "memory for a comparison"));
        TRY(dev->op.copy(dev, before, t->result, bytes));
    }
    TRY(search(dev, &p->p, e, t));
    if (before) TRY(dev->op.copy(dev, t->result, before, bytes));
    TRY(dev->op.sync(dev));
    if (path) TRY(write_choice(path, text, e));
done:
    cudaFree(before);
    if (rc < 0) {
        drop(e);
        free(e);
        return rc;
    }
    e->next = own->engines;
    *out = *slot = own->engines = e;
    return 0;
}

void cuda_engines_free(device *dev) {
    for (engine *e = own_of(dev)->engines, *next; e; e = next) {
        next = e->next;
        drop(e);
        free(e);
    }
    own_of(dev)->engines = NULL;
}

/* ---- the three directions -------------------------------------------------------------------- */

static tensors tensors_of(const cuda_plan *p, const void *a, const void *b, void *result,
                          void *work) {
    return (tensors){a, b, result, work, (char *)work + p->side};
}

/* Weights as the convolution wants them. */
static int weights_of(device *dev, const float *w, const void **out) {
    *out = w;
    return is_bf16(dev) ? cuda_weights(dev, w, (void **)out) : 0;
}

static cudaDataType_t act_kind(const device *dev) {
    return is_bf16(dev) ? CUDA_R_16BF : CUDA_R_32F;
}

/* The input pixels under a 1x1 filter: x itself or, strided, picked into the workspace. */
static int picked_of(device *dev, const cuda_plan *p, const act *x, void *work, const act **out) {
    *out = p->p.s.stride > 1 ? work : x;
    return p->p.s.stride > 1 ? cuda_pick_pixels(dev, &p->p, x, work) : 0;
}

static size_t pixels_of(const conv_plan *p) { return (size_t)p->s.n * p->oh * p->ow; }

static int product_forward(device *dev, const cuda_plan *p, const act *x, const float *w,
                           const float *bias, act *y, void *work) {
    int rc = 0, ci = p->p.s.ci, co = p->p.s.co;
    cudaDataType_t kind = act_kind(dev);
    const void *weights, *biases = NULL;
    const act *in;
    TRY(weights_of(dev, w, &weights));
    if (bias) TRY(weights_of(dev, bias, &biases));
    TRY(picked_of(dev, p, x, work, &in));
    matmul_shape m = {false, true, (int)pixels_of(&p->p), co, ci, ci, ci, co, kind, kind, kind};
    TRY(cuda_matmul(dev, &m, 1, in, weights, 0, y, biases));
done:
    return rc;
}

static int forward(device *dev, const conv_plan *plan, const act *x, const float *w,
                   const float *bias, act *y, const float *shift, float *sums,
                   const norm_rest *rest, void *work) {
    int rc = 0;
    cuda_plan *p = (cuda_plan *)plan;
    const conv_shape *s = &plan->s;
    if (p->stem && !bias) return cuda_stem_forward(dev, plan, x, w, y, shift, rest, sums);
    if (p->product) {
        TRY(product_forward(dev, p, x, w, bias, y, work));
    } else {
        engine *e;
        const void *weights;
        TRY(weights_of(dev, w, &weights));
        if (p->narrow && !bias)
            return cuda_conv64(dev, plan, x, weights, false, false, y, shift, rest, sums);
        tensors t = tensors_of(p, x, weights, y, work);
        TRY(engine_for(dev, p, FORWARD, false, &t, &e));
        TRY(e->plan ? run_engine(dev, plan, e, false, &t)
                    : cuda_plain_forward(dev, plan, x, w, NULL, y));
        if (bias) TRY(cuda_add_bias(dev, y, pixels_of(plan), s->co, bias));
    }
    if (sums)
        TRY(cuda_group_sums(dev, &(norm_shape){s->n, plan->oh * plan->ow, s->co, s->groups}, y,
                            shift, rest, sums));
done:
    return rc;
}

static int cuda_conv_forward(device *dev, const conv_plan *plan, const act *x, const float *w,
                             const float *bias, act *y, const float *shift, float *sums,
                             void *work) {
    return forward(dev, plan, x, w, bias, y, shift, sums, NULL, work);
}

static int cuda_conv_forward_finish(device *dev, const conv_plan *plan, const act *x,
                                    const float *w, const float *bias, act *y, float *sums,
                                    const norm_rest *rest, void *work) {
    return forward(dev, plan, x, w, bias, y, rest->running, sums, rest, work);
}

static int cuda_conv_back_data(device *dev, const conv_plan *plan, const act *dy, const float *w,
                               bool add, act *dx, void *work) {
    int rc = 0, ci = plan->s.ci, co = plan->s.co;
    cuda_plan *p = (cuda_plan *)plan;
    bool strided = plan->s.stride > 1;
    const void *weights;
    TRY(weights_of(dev, w, &weights));
    if (p->product) {
        cudaDataType_t kind = act_kind(dev);
        matmul_shape m = {false, false, (int)pixels_of(plan), ci, co, co, ci, ci, kind, kind, kind};
        TRY(cuda_matmul(dev, &m, 1, dy, weights, add && !strided ? 1 : 0,
                        strided ? work : (void *)dx, NULL));
        if (strided) TRY(cuda_spread_pixels(dev, plan, work, add, dx));
        goto done;
    }
    if (p->narrow) return cuda_conv64(dev, plan, dy, weights, true, add, dx, NULL, NULL, NULL);
    engine *e;
    tensors t = tensors_of(p, dy, weights, dx, work);
    TRY(engine_for(dev, p, BACK_DATA, add, &t, &e));
    TRY(e->plan ? run_engine(dev, plan, e, add, &t)
                : cuda_plain_back_data(dev, plan, dy, w, add, dx));
done:
    return rc;
}

static int cuda_conv_back_filter(device *dev, const conv_plan *plan, const act *x, const act *dy,
                                 bool add, float *dw, float *dbias, void *work) {
    int rc = 0, ci = plan->s.ci, co = plan->s.co;
    cuda_plan *p = (cuda_plan *)plan;
    if (p->stem) {
        TRY(cuda_stem_back_filter(dev, plan, x, dy, add, dw));
    } else if (p->product) {
        const act *in;
        TRY(picked_of(dev, p, x, work, &in));
        matmul_shape m = {true, false,         co,         ci,        (int)pixels_of(plan), co, ci,
                          ci,   act_kind(dev), CUDA_R_32F, CUDA_R_32F};
        TRY(cuda_matmul(dev, &m, 1, dy, in, add ? 1 : 0, dw, NULL));
    } else {
        engine *e;
        tensors t = tensors_of(p, x, dy, dw, work), timed = t;
        if (add) timed.result = t.side; /* a search must not touch what is added to */
        TRY(engine_for(dev, p, BACK_FILTER, false, &timed, &e));
        TRY(e->plan ? run_engine(dev, plan, e, add, &t)
                    : cuda_plain_back_filter(dev, plan, x, dy, add, dw));
    }
    if (dbias) TRY(cuda_column_sums(dev, dy, pixels_of(plan), co, add, dbias));
done:
    return rc;
}

void cuda_conv_ops(device_ops *op) {
    op->conv_plan_new = cuda_conv_plan_new;
    op->conv_plan_free = cuda_conv_plan_free;
    op->conv_forward = cuda_conv_forward;
    op->conv_forward_finish = cuda_conv_forward_finish;
    op->conv_back_data = cuda_conv_back_data;
    op->conv_back_filter = cuda_conv_back_filter;
}
