/* conv.h: what the files of the convolutions share.
 *
 *     conv.c          plans, and the three directions: who computes what
 *     conv_engine.c   an engine of cuDNN: built from a configuration, and run
 *     conv_choose.c   which engine: proposals, timings, choices kept in a file */
#ifndef CONR_CUDA_CONV_H
#define CONR_CUDA_CONV_H

#include "device/cuda/own.h"

typedef enum direction { FORWARD, BACK_DATA, BACK_FILTER, DIRECTIONS } direction;

/* How the result of an engine gets where it is wanted. */
typedef enum landing {
    DIRECT, /* written there */
    GROWS,  /* cuDNN adds to what is there */
    APART   /* written to memory aside, then added or converted */
} landing;

enum {
    KNOBS = 24, /* of a configuration, at most */
    KEPT = 16   /* descriptors of an engine, at most */
};

typedef struct config {
    int64_t index; /* of the engine, as cuDNN counts them */
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
    size_t work;                   /* bytes of workspace */
    float us;                      /* microseconds of one run, as measured */
    struct engine *next;
} engine;

typedef struct cuda_plan {
    conv_plan p;  /* first: what the caller sees */
    size_t work;  /* bytes of workspace that an engine may ask for */
    size_t side;  /* bytes aside, at the start of the workspace */
    bool stem;    /* the first convolution: our own kernels, except for the data gradient */
    bool narrow;  /* 64 channels: our own kernel for forward and data gradient */
    bool product; /* a matrix product */
    engine *engine[DIRECTIONS][2];
} cuda_plan;

/* The tensors of one call: result = of a and b.
 *     forward           x,  w  -> y
 *     data gradient     dy, w  -> dx
 *     filter gradient   x,  dy -> dw */
typedef struct tensors {
    const void *a, *b;
    void *result, *side, *work;
} tensors;

static inline bool is_bf16(const device *dev) { return dev->type == ACT_BF16; }

/* The operation as a graph of one node; e keeps its descriptors. */
int engine_graph(device *dev, engine *e, const conv_plan *p, landing landing,
                 cudnnBackendDescriptor_t *out);
/* e->plan from a configuration; fails if the engine does not take the shape or wants too much
 * memory. */
int engine_build(device *dev, engine *e, const conv_plan *p, const config *c);
void engine_drop(engine *e); /* frees what e keeps, not e */
/* The engine, and what has to follow it; add: the result grows. */
int engine_run(device *dev, const conv_plan *p, const engine *e, bool add, const tensors *t);

/* The engine for this direction, chosen at the first use of the shape.  The device owns it. */
int engine_for(device *dev, cuda_plan *p, direction d, bool add, const tensors *t, engine **out);

#endif
