/* network.c: the table of encoders, the list of layers and their offsets, initial weights. */
#include "encoder/network.h"

#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- encoders and stems ---------------------------------------------------------------------- */

/* The convolutions of a block, in order.  Strides are torchvision's ("v1.5"): a bottleneck has its
 * stride in the 3x3. */
typedef struct block_shape {
    int n; /* convolutions */
    struct {
        int k;
        bool strided; /* has the stride of the block */
        int times;    /* channels, as a multiple of the stage's width */
    } conv[3];
} block_shape;

static const block_shape basic = {2, {{3, true, 1}, {3, false, 1}}};
static const block_shape bottleneck = {3, {{1, false, 1}, {3, true, 1}, {1, false, 4}}};

static const struct encoder_shape {
    const char *name;
    const block_shape *block;
    int blocks[4]; /* of each stage */
} encoders[] = {
#define ENCODER_SHAPE(id, name, block, ...) [ENCODER_##id] = {name, &block, {__VA_ARGS__}},
    ENCODERS(ENCODER_SHAPE, )};

static const struct stem_shape {
    const char *name;
    int k, stride;
    bool pool;
} stems[] = {
#define STEM_SHAPE(id, ...) [STEM_##id] = {__VA_ARGS__},
    STEMS(STEM_SHAPE, )};

const char *encoder_name(encoder_kind encoder) { return encoders[encoder].name; }
const char *stem_name(stem_kind stem) { return stems[stem].name; }

bool encoder_find(const char *name, encoder_kind *out) {
    for (int i = 0; i < ENCODER_NONE; i++)
        if (!strcmp(encoders[i].name, name)) return *out = (encoder_kind)i, true;
    return false;
}

bool stem_find(const char *name, stem_kind *out) {
    for (int i = 0; i < STEM_KINDS; i++)
        if (!strcmp(stems[i].name, name)) return *out = (stem_kind)i, true;
    return false;
}

bool encoder_of_blocks(bool bottlenecks, const int blocks[4], encoder_kind *out) {
    for (int i = 0; i < ENCODER_NONE; i++)
        if ((encoders[i].block == &bottleneck) == bottlenecks &&
            !memcmp(encoders[i].blocks, blocks, sizeof encoders[i].blocks))
            return *out = (encoder_kind)i, true;
    return false;
}

stem_kind stem_usual(encoder_kind encoder, int size) {
    return encoder == ENCODER_SMALL ? STEM_SMALL : size <= 32 ? STEM_CIFAR : STEM_IMAGENET;
}

/* ---- building -------------------------------------------------------------------------------- */

enum { MAX_LAYERS = 128 }; /* ResNet-101 with two heads has 112 */

/* Layers under construction; h, w, c are those of the last output. */
typedef struct builder {
    layer list[MAX_LAYERS];
    int n, h, w, c;
} builder;

static int out_side(int side, int k, int stride, int pad) {
    return (side + 2 * pad - k) / stride + 1;
}

static layer *append(builder *b, layer l) {
    ASSERT(b->n < MAX_LAYERS);
    b->h = l.oh, b->w = l.ow, b->c = l.co;
    b->list[b->n] = l;
    return &b->list[b->n++];
}

/* A convolution of layer `in`'s output (-1: the images of this builder's first size). */
static layer *conv(builder *b, int in, int co, int k, int stride) {
    layer l = {.kind = LAYER_CONV, .in = in, .add = -1, .co = co, .k = k, .stride = stride};
    l.pad = k / 2;
    l.h = in < 0 ? b->h : b->list[in].oh;
    l.w = in < 0 ? b->w : b->list[in].ow;
    l.ci = in < 0 ? b->c : b->list[in].co;
    l.oh = out_side(l.h, k, stride, l.pad);
    l.ow = out_side(l.w, k, stride, l.pad);
    return append(b, l);
}

static void pool(builder *b, layer_kind kind) {
    bool max = kind == LAYER_MAX_POOL;
    append(b, (layer){.kind = kind,
                      .in = b->n - 1,
                      .add = -1,
                      .h = b->h,
                      .w = b->w,
                      .ci = b->c,
                      .oh = max ? out_side(b->h, 3, 2, 1) : 1,
                      .ow = max ? out_side(b->w, 3, 2, 1) : 1,
                      .co = b->c});
}

static void name_conv(layer *l, const char *block, const char *conv_name, const char *norm_name) {
    snprintf(l->name, sizeof l->name, "encoder.%s%s", block, conv_name);
    snprintf(l->norm_name, sizeof l->norm_name, "encoder.%s%s", block, norm_name);
    l->norm = true;
}

/* A block of torchvision's ResNets: convolutions and a shortcut, projected if shapes differ.  The
 * projection stands behind the first convolution, which reads the same input. */
static void add_block(builder *b, const char *name, const block_shape *shape, int width,
                      int stride) {
    int in = b->n - 1, add = in, before = in, co = width * shape->conv[shape->n - 1].times;
    bool project = stride != 1 || b->c != co;
    for (int i = 0; i < shape->n; i++) {
        char conv_name[16], norm_name[16];
        snprintf(conv_name, sizeof conv_name, "conv%d", i + 1);
        snprintf(norm_name, sizeof norm_name, "bn%d", i + 1);
        layer *l = conv(b, before, width * shape->conv[i].times, shape->conv[i].k,
                        shape->conv[i].strided ? stride : 1);
        name_conv(l, name, conv_name, norm_name);
        l->relu = true;
        if (i == shape->n - 1) l->add = add;
        before = b->n - 1;
        if (i > 0 || !project) continue;
        layer *shortcut = conv(b, in, co, 1, stride);
        name_conv(shortcut, name, "downsample.0", "downsample.1");
        shortcut->joined = true;
        add = b->n - 1;
    }
}

static void resnet(builder *b, const network_spec *spec) {
    const struct encoder_shape *shape = &encoders[spec->encoder];
    const struct stem_shape *stem = &stems[spec->stem];
    layer *first = conv(b, -1, spec->width, stem->k, stem->stride);
    name_conv(first, "", "conv1", "bn1");
    first->relu = true;
    /* the stems that replace torchvision's keep torch's default */
    first->init = spec->stem == STEM_IMAGENET ? INIT_KAIMING : INIT_TORCH;
    if (stem->pool) pool(b, LAYER_MAX_POOL);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < shape->blocks[stage]; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d.", stage + 1, i);
            add_block(b, name, shape->block, spec->width << stage, stage > 0 && i == 0 ? 2 : 1);
        }
    pool(b, LAYER_MEAN_POOL);
}

/* Dense layers are 1x1 convolutions of a 1x1 map.  Names count positions as nn.Sequential does. */
static void mlp(builder *b, const char *part, const mlp_spec *spec) {
    for (int i = 0, position = 0; i < spec->n; i++) {
        layer *l = conv(b, b->n - 1, spec->layer[i].out, 1, 1);
        l->init = spec->init;
        l->bias = spec->layer[i].bias;
        l->norm = spec->layer[i].norm;
        l->relu = spec->layer[i].relu;
        snprintf(l->name, sizeof l->name, "%s.%d", part, position++);
        if (l->norm) snprintf(l->norm_name, sizeof l->norm_name, "%s.%d", part, position++);
        if (l->relu) position++;
    }
}

mlp_spec mlp_byol_projector(int hidden, int out) {
    return (mlp_spec){.n = 2,
                      .layer = {{.out = hidden, .bias = true, .norm = true, .relu = true},
                                {.out = out, .bias = true}},
                      .init = INIT_TORCH};
}

mlp_spec mlp_byol_predictor(int hidden, int out) {
    mlp_spec m = mlp_byol_projector(hidden, out);
    m.init = INIT_NORMAL;
    return m;
}

static int check_mlp(const char *part, const mlp_spec *m) {
    if (m->n < 0 || m->n > MLP_LAYERS)
        return fail(CONR_EINVAL, "%s: %d layers; use 0 to %d", part, m->n, MLP_LAYERS);
    for (int i = 0; i < m->n; i++)
        if (m->layer[i].out < 1 || m->layer[i].out > 1 << 20)
            return fail(CONR_EINVAL, "%s: a layer of %d outputs; use 1 to 1048576", part,
                        m->layer[i].out);
    return 0;
}

static int check_spec(const network_spec *s) {
    int rc = check_mlp("projector", &s->projector);
    if (rc < 0 || (rc = check_mlp("predictor", &s->predictor)) < 0) return rc;
    if (s->encoder == ENCODER_NONE) {
        ASSERT(s->h == 1 && s->w == 1 && s->c > 0);
        return 0;
    }
    if (s->h < NETWORK_SIDE || s->w < NETWORK_SIDE || s->h > 4096 || s->w > 4096)
        return fail(CONR_EINVAL,
                    "image size %dx%d: the encoder takes sides of 16 to 4096 pixels; "
                    "choose a size in between",
                    s->h, s->w);
    if (s->c != 1 && s->c != 3)
        return fail(CONR_EINVAL,
                    "%d channels: the encoder takes 1 (gray) or 3 (color); convert "
                    "the images",
                    s->c);
    if (s->width < 1 || s->width > 1024)
        return fail(CONR_EINVAL, "width %d: channels of the first stage; use 1 to 1024", s->width);
    if ((s->encoder == ENCODER_SMALL) != (s->stem == STEM_SMALL))
        return fail(CONR_EINVAL, "stem: the small encoder has its own stem, the ResNets have "
                                 "cifar or imagenet; choose accordingly");
    return 0;
}

/* Assigns every tensor its offset in the blocks. */
static void place(network *net) {
    size_t at = 0, running = 0;
    for (int i = 0; i < net->n_layers; i++) {
        layer *l = &net->layer[i];
        if (i == net->projector_end) net->n_target = at;
        if (l->kind != LAYER_CONV) continue;
        l->w_at = span(&at, (size_t)l->co * l->k * l->k * l->ci, sizeof(float));
        if (l->bias) l->bias_at = span(&at, l->co, sizeof(float));
        if (!l->norm) continue;
        l->gamma_at = span(&at, l->co, sizeof(float));
        l->beta_at = span(&at, l->co, sizeof(float));
        l->running_at = span(&running, 2 * (size_t)l->co, sizeof(float));
    }
    net->n_weights = at;
    net->n_running = running;
    if (net->projector_end == net->n_layers) net->n_target = at;
}

int network_new(const network_spec *spec, network *out) {
    *out = (network){.spec = *spec};
    int rc = check_spec(spec);
    if (rc < 0) return rc;
    builder *b = arena_alloc(&out->memory, sizeof *b);
    if (!b) return CONR_ENOMEM;
    b->h = spec->h, b->w = spec->w, b->c = spec->c;
    if (spec->encoder != ENCODER_NONE) resnet(b, spec);
    out->encoder_end = b->n;
    mlp(b, "projector", &spec->projector);
    out->projector_end = b->n;
    mlp(b, "predictor", &spec->predictor);
    out->predictor_end = b->n;
    out->layer = b->list;
    out->n_layers = b->n;
    place(out);
    return 0;
}

void network_free(network *net) {
    arena_free(&net->memory);
    *net = (network){0};
}

size_t network_numbers(const network *net) {
    size_t sum = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layer[i];
        if (l->kind != LAYER_CONV) continue;
        size_t co = (size_t)l->co;
        sum += co * l->k * l->k * l->ci + (l->bias ? co : 0) + (l->norm ? 4 * co : 0);
    }
    return sum;
}

double network_work(const network *net) {
    double sum = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layer[i];
        if (l->kind == LAYER_CONV) sum += (double)l->oh * l->ow * l->co * l->k * l->k * l->ci;
    }
    return sum;
}

/* ---- initial weights ------------------------------------------------------------------------- */

static void fill(float *x, size_t n, float value) {
    for (size_t i = 0; i < n; i++) x[i] = value;
}

static void draw_uniform(rng *r, float *x, size_t n, double bound) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((2.0 * rng_float(r) - 1) * bound);
}

static void draw_normal(rng *r, float *x, size_t n, double deviation) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(rng_normal(r) * deviation);
}

void network_init(const network *net, uint64_t seed, float *w, float *running) {
    memset(w, 0, net->n_weights * sizeof *w);
    memset(running, 0, net->n_running * sizeof *running);
    for (int i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layer[i];
        if (l->kind != LAYER_CONV) continue;
        rng r = rng_at(seed, 0, (uint32_t)i, RNG_WEIGHTS);
        size_t fan_in = (size_t)l->k * l->k * l->ci, count = l->co * fan_in;
        switch (l->init) {
        case INIT_KAIMING:
            draw_normal(&r, w + l->w_at, count, sqrt(2.0 / ((double)l->k * l->k * l->co)));
            break;
        case INIT_TORCH:
            draw_uniform(&r, w + l->w_at, count, 1 / sqrt((double)fan_in));
            if (l->bias) draw_uniform(&r, w + l->bias_at, l->co, 1 / sqrt((double)fan_in));
            break;
        case INIT_NORMAL: draw_normal(&r, w + l->w_at, count, 0.01); break;
        }
        if (!l->norm) continue;
        fill(w + l->gamma_at, l->co, 1);
        fill(running + l->running_at + l->co, l->co, 1); /* mean 0, variance 1 */
    }
}
