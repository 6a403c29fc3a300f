/* weights.c: a network's weights in safetensors files, under torch's names and in torch's order.
 *
 * The only file that knows that torch stores a convolution as [co][ci][k][k]; ours are
 * [co][k][k][ci]. */
#include "encoder/network.h"

#include "base/status.h"
#include "encoder/names.h"
#include "encoder/resnet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One tensor of a layer in the file and its place in our blocks. */
typedef struct place {
    char name[FULL_NAME];
    int n_dims;
    int64_t dim[4]; /* torch's: [co,ci,k,k], [co,ci] or [co] */
    bool statistic; /* in the block of running statistics, else of weights */
    size_t at, count;
} place;

enum { PLACES = 6 }; /* weight, bias, norm weight and bias, running mean and variance */

static int part_of(const network *net, int l) {
    return l < net->encoder_end     ? PART_ENCODER
           : l < net->projector_end ? PART_PROJECTOR
                                    : PART_PREDICTOR;
}

static void vector_place(place *p, const char *layer_name, const char *field, int co,
                         bool statistic, size_t at) {
    *p = (place){.n_dims = 1, .dim = {co}, .statistic = statistic, .at = at, .count = (size_t)co};
    snprintf(p->name, sizeof p->name, "%s.%s", layer_name, field);
}

/* The tensors of layer l; returns their number. */
static int places_of(const network *net, int l, place out[PLACES]) {
    const layer *x = &net->layer[l];
    if (x->kind != LAYER_CONV) return 0;
    int n = 0;
    bool dense = part_of(net, l) != PART_ENCODER;
    out[n] = (place){.n_dims = dense ? 2 : 4,
                     .dim = {x->co, x->ci, x->k, x->k},
                     .at = x->w_at,
                     .count = (size_t)x->co * x->ci * x->k * x->k};
    snprintf(out[n].name, sizeof out[n].name, "%s.weight", x->name);
    n++;
    if (x->bias) vector_place(&out[n++], x->name, "bias", x->co, false, x->bias_at);
    if (!x->norm) return n;
    vector_place(&out[n++], x->norm_name, "weight", x->co, false, x->gamma_at);
    vector_place(&out[n++], x->norm_name, "bias", x->co, false, x->beta_at);
    vector_place(&out[n++], x->norm_name, "running_mean", x->co, true, x->running_at);
    vector_place(&out[n++], x->norm_name, "running_var", x->co, true, x->running_at + x->co);
    return n;
}

/* [co][ci][k][k] <-> [co][k][k][ci]; kernel = k*k */
static void from_torch(const float *torch, int co, int ci, int kernel, float *ours) {
    for (int o = 0; o < co; o++)
        for (int c = 0; c < ci; c++)
            for (int t = 0; t < kernel; t++)
                ours[((size_t)o * kernel + t) * ci + c] = torch[((size_t)o * ci + c) * kernel + t];
}

static void to_torch(const float *ours, int co, int ci, int kernel, float *torch) {
    for (int o = 0; o < co; o++)
        for (int c = 0; c < ci; c++)
            for (int t = 0; t < kernel; t++)
                torch[((size_t)o * ci + c) * kernel + t] = ours[((size_t)o * kernel + t) * ci + c];
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A file to load from, and whose names it has. */
typedef struct source {
    tensors file;
    encoder_names names;
} source;

/* A file without an encoder that is known is read as if it had our names. */
static void find_names(source *s) {
    if (!names_find(&s->file, &s->names)) s->names = (encoder_names){.prefix = "encoder."};
}

/* The parts of which the file has any tensor. */
static int parts_in(const network *net, const source *s) {
    int parts = 0;
    place at[PLACES];
    char name[FULL_NAME];
    for (int l = 0; l < net->n_layers; l++)
        for (int i = places_of(net, l, at) - 1; i >= 0; i--) {
            names_in_file(&s->names, at[i].name, name);
            if (tensors_find(&s->file, name)) parts |= part_of(net, l);
        }
    return parts;
}

/* The values of a tensor.  A network computes nonsense from NaN, infinity or a variance below 0, and
 * nothing later would tell. */
static int take(const source *s, const place *p, float *torch) {
    char name[FULL_NAME];
    names_in_file(&s->names, p->name, name);
    size_t n = strlen(name), m = strlen("running_var");
    bool variance = n >= m && !strcmp(name + n - m, "running_var");
    int rc = tensors_take(&s->file, name, p->n_dims, p->dim, torch);
    for (size_t i = 0; rc == 0 && i < p->count; i++)
        if (!isfinite(torch[i]) || (variance && torch[i] < 0))
            rc = fail(CONR_ENUMBER,
                      "%s: tensor '%s' holds %g; the file is damaged, or the training "
                      "went wrong",
                      s->file.path, name, (double)torch[i]);
    return rc;
}

/* The heads of which the file has every tensor in this network's shape. */
static int heads_fitting(const network *net, const tensors *file) {
    int fitting = PART_PROJECTOR | PART_PREDICTOR;
    place at[PLACES];
    for (int l = 0; l < net->n_layers; l++)
        for (int i = places_of(net, l, at) - 1; i >= 0; i--) {
            const tensor *t = tensors_find(file, at[i].name);
            bool fits = t && t->n_dims == at[i].n_dims;
            for (int d = 0; fits && d < t->n_dims; d++) fits = t->dim[d] == at[i].dim[d];
            if (!fits) fitting &= ~part_of(net, l);
        }
    return fitting;
}

/* The named parts into the blocks. */
static int take_parts(const network *net, const source *s, int parts, float *w, float *running) {
    int rc = 0;
    size_t most = 0;
    for (int l = 0; l < net->n_layers; l++) {
        const layer *x = &net->layer[l];
        size_t count = (size_t)x->co * x->k * x->k * x->ci;
        if (x->kind == LAYER_CONV && count > most) most = count;
        if (x->kind == LAYER_CONV && (size_t)x->co > most) most = (size_t)x->co;
    }
    float *torch = memory_new("weights", most + 1, sizeof *torch);
    if (!torch) return CONR_ENOMEM;
    for (int l = 0; l < net->n_layers; l++) {
        place at[PLACES];
        int n = parts & part_of(net, l) ? places_of(net, l, at) : 0;
        for (int i = 0; i < n; i++) {
            TRY(take(s, &at[i], torch));
            const layer *x = &net->layer[l];
            if (at[i].n_dims == 1)
                memcpy((at[i].statistic ? running : w) + at[i].at, torch,
                       at[i].count * sizeof *torch);
            else
                from_torch(torch, x->co, x->ci, x->k * x->k, w + at[i].at);
        }
    }
done:
    free(torch);
    return rc;
}

int network_take(const network *net, const tensors *file, float *w, float *running) {
    source s = {.file = *file}; /* borrowed */
    find_names(&s);
    return take_parts(net, &s, PART_ENCODER, w, running);
}

/* Fails, saying what the file holds, unless that is the network's encoder. */
static int check_kind(const network *net, const tensors *file) {
    resnet_about a;
    const network_spec *s = &net->spec;
    int rc = resnet_recognize(file, &a);
    if (rc <= 0) return rc; /* 0: the tensor that is missing is named later */
    if (a.encoder == s->encoder && a.stem == s->stem && a.width == s->width && a.channels == s->c)
        return 0;
    return fail(CONR_EINVAL,
                "%s: holds a %s (stem %s, width %d, %d channels), the training has a %s (stem %s, "
                "width %d, %d channels); set encoder, stem and width to those of the file",
                file->path, encoder_name(a.encoder), stem_name(a.stem), a.width, a.channels,
                encoder_name(s->encoder), stem_name(s->stem), s->width, s->c);
}

static int load(const network *net, const char *path, bool other_heads, float *w, float *running,
                int *parts) {
    int rc = 0;
    source s = {0};
    /* into copies first: a file that turns out to be bad leaves the blocks unchanged */
    float *new_w = memory_new("weights", net->n_weights, sizeof *w);
    float *new_running = memory_new("statistics", net->n_running, sizeof *running);
    if (!new_w || !new_running) {
        rc = CONR_ENOMEM;
        goto done;
    }
    memcpy(new_w, w, net->n_weights * sizeof *w);
    memcpy(new_running, running, net->n_running * sizeof *running);
    TRY(tensors_open(path, &s.file));
    find_names(&s);
    int found = parts_in(net, &s) | (net->encoder_end ? PART_ENCODER : 0);
    if (other_heads) {
        TRY(check_kind(net, &s.file));
        found &= PART_ENCODER | heads_fitting(net, &s.file);
    }
    TRY(take_parts(net, &s, found, new_w, new_running));
    memcpy(w, new_w, net->n_weights * sizeof *w);
    memcpy(running, new_running, net->n_running * sizeof *running);
    if (parts) *parts = found;
done:
    free(new_w);
    free(new_running);
    tensors_close(&s.file);
    return rc;
}

int network_load(const network *net, const char *path, float *w, float *running, int *parts) {
    return load(net, path, false, w, running, parts);
}

int network_start(const network *net, const char *path, float *w, float *running, int *parts) {
    return load(net, path, true, w, running, parts);
}

/* ---- saving ---------------------------------------------------------------------------------- */

int network_tensors(const network *net, int parts, const float *w, const float *running,
                    arena *memory, tensor **out, int *n) {
    static const int64_t zero; /* torch counts batches, we do not; its loader requires the value */
    tensor *list = arena_alloc(memory, (size_t)net->n_layers * (PLACES + 1) * sizeof *list);
    *out = list, *n = 0;
    if (!list) return CONR_ENOMEM;
    for (int l = 0; l < net->n_layers; l++) {
        const layer *x = &net->layer[l];
        place at[PLACES];
        int places = parts & part_of(net, l) ? places_of(net, l, at) : 0;
        for (int i = 0; i < places; i++) {
            const float *from = (at[i].statistic ? running : w) + at[i].at;
            tensor *t = &list[(*n)++];
            *t = (tensor){.type = TENSOR_F32, .n_dims = at[i].n_dims, .count = at[i].count};
            memcpy(t->dim, at[i].dim, sizeof at[i].dim);
            t->name = arena_text(memory, at[i].name, strlen(at[i].name));
            t->data = from;
            if (at[i].n_dims > 1) {
                float *torch = arena_alloc(memory, at[i].count * sizeof *torch);
                if (!torch) return CONR_ENOMEM;
                to_torch(from, x->co, x->ci, x->k * x->k, torch);
                t->data = torch;
            }
            if (!t->name) return CONR_ENOMEM;
        }
        if (places && x->norm) {
            char name[FULL_NAME];
            snprintf(name, sizeof name, "%s.num_batches_tracked", x->norm_name);
            tensor *t = &list[(*n)++];
            *t = (tensor){.type = TENSOR_I64, .count = 1, .data = &zero};
            if (!(t->name = arena_text(memory, name, strlen(name)))) return CONR_ENOMEM;
        }
    }
    return 0;
}

int network_save(const network *net, const char *path, int parts, const float *w,
                 const float *running, const tensor_note *note, int n_notes) {
    int rc = 0, n;
    arena memory = {0};
    tensor *list;
    TRY(network_tensors(net, parts, w, running, &memory, &list, &n));
    TRY(tensors_write(path, list, n, note, n_notes));
done:
    arena_free(&memory);
    return rc;
}
