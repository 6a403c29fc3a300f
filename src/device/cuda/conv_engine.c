/* conv_engine.c: one engine of cuDNN (the graph API, which is C): described, built and run. */
#include "device/cuda/conv.h"

#include "base/status.h"

static int check(cudnnStatus_t status, const char *what) {
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    return fail(CONR_EDEVICE, "cuDNN, %s: %s; please report it", what, cudnnGetErrorString(status));
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* A new descriptor, which e keeps until engine_drop. */
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

void engine_drop(engine *e) {
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

int engine_graph(device *dev, engine *e, const conv_plan *p, landing landing,
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

int engine_build(device *dev, engine *e, const conv_plan *p, const config *c) {
    int rc = 0;
    int64_t bytes = 0, count = 0;
    cudnnBackendDescriptor_t graph, cfg, plan = NULL;
    TRY(engine_graph(dev, e, p, c->landing, &graph));
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
        rc = fail(CONR_EDEVICE, "cuDNN: an engine wants a workspace of %ld bytes", (long)bytes);
done:
    if (rc < 0) engine_drop(e);
    return rc;
}

/* The stream is passed on to cuDNN before its next operation: calls on features never need it. */
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

int engine_run(device *dev, const conv_plan *p, const engine *e, bool add, const tensors *t) {
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
