/* conv_choose.c: which engine of cuDNN runs a convolution.
 *
 * At the first use of a shape the proposals of cuDNN are timed and the fastest is kept, except
 * those that do not give the same bits twice.
 *
 * A choice by time may differ from run to run, and so may the last bits.  If CONR_CUDA_ENGINES
 * names a file, choices are read from it and new ones appended, keyed by cuDNN version, GPU and
 * shape: the same file gives the same bits, and saves the search. */
#include "device/cuda/conv.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIED = 10, /* proposals of each heuristic that are timed */
    ROUNDS = 10 /* of a timed engine */
};

/* ---- proposals and timings ------------------------------------------------------------------- */

static bool same_config(const config *a, const config *b) {
    if (a->index != b->index || a->n_knobs != b->n_knobs || a->landing != b->landing) return false;
    for (int i = 0; i < a->n_knobs; i++)
        if (a->type[i] != b->type[i] || a->value[i] != b->value[i]) return false;
    return true;
}

/* CONR_CUDA_ANY_ORDER=1 also takes engines that sum in any order, to measure what the same bits
 * cost. */
static bool any_order(void) {
    const char *wish = getenv("CONR_CUDA_ANY_ORDER");
    return wish && *wish == '1';
}

/* Reads a proposal; false for one that we do not take. */
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

/* Appends the proposals of one heuristic for a graph. */
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
    TRY(engine_run(dev, p, e, e->add, t)); /* warm */
    for (int series = 0; series < 2; series++) {
        float ms;
        TRY(cuda_check((int)cudaEventRecord(start, stream), "event"));
        for (int i = 0; i < ROUNDS; i++) TRY(engine_run(dev, p, e, e->add, t));
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

/* Puts the fastest of all proposals into e; e->plan stays NULL if there is none. */
static int search(device *dev, const conv_plan *p, engine *e, const tensors *t) {
    enum { ROOM = 4 * TRIED };
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    landing landings[2] = {DIRECT, APART};
    int rc = 0, n = 0, n_landings = e->direction == BACK_FILTER && is_bf16(dev) ? 2 : 1;
    config list[ROOM];
    if (e->direction == BACK_DATA && e->add) landings[0] = GROWS, n_landings = 2;
    for (int mode = 0; mode < 3; mode++) {
        if (mode == 2 && n) break; /* fallbacks only if there is nothing better */
        for (int i = 0; i < n_landings; i++) {
            engine trial;
            cudnnBackendDescriptor_t graph;
            copy_key(&trial, e);
            if (engine_graph(dev, &trial, p, landings[i], &graph) == 0)
                propose(dev, graph, modes[mode], landings[i], list, &n, ROOM);
            engine_drop(&trial);
        }
    }
    for (int i = 0; i < n; i++) {
        engine trial;
        copy_key(&trial, e);
        if (engine_build(dev, &trial, p, &list[i]) < 0) continue;
        rc = time_engine(dev, p, &trial, t);
        if (rc < 0 && cudaStreamSynchronize(own_of(dev)->stream)) return rc; /* the GPU is lost */
        if (rc == 0 && (!e->plan || trial.us < e->us)) {
            engine old = *e, *next = e->next;
            *e = trial;
            e->next = next;
            trial = old;
        }
        engine_drop(&trial);
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

/* "KEY | engine landing knob=value ... | microseconds"; the last line with a key counts. */
static bool read_choice(const char *path, const char *key, config *c) {
    FILE *f = fopen(path, "r");
    char line[1024];
    bool found = false;
    while (f && fgets(line, sizeof line, f)) {
        char *bar = strstr(line, " | ");
        if (!bar || strlen(key) != (size_t)(bar - line) || strncmp(line, key, strlen(key)))
            continue;
        config read = {0};
        int used = 0, where = 0;
        long long index, type, value;
        char *at = bar + 3;
        if (sscanf(at, "%lld %d%n", &index, &where, &used) < 2) continue;
        read.index = index;
        read.landing = (landing)where;
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

/* ---- the choice ------------------------------------------------------------------------------ */

int engine_for(device *dev, cuda_plan *p, direction d, bool add, const tensors *t, engine **out) {
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
    void *before = NULL; /* a copy of what is added to: timings add again and again */
    size_t bytes = (size_t)key.n * key.h * key.w * key.ci * dev->act_size;
    key_text(dev, e, text, sizeof text);
    if (path && read_choice(path, text, &c) &&
        (c.index < 0 || engine_build(dev, e, &p->p, &c) == 0))
        goto done;
    if (d == BACK_DATA && add) {
        TRY(cuda_check((int)cudaMalloc(&before, bytes), "memory to time convolutions"));
        TRY(dev->op.copy(dev, before, t->result, bytes));
    }
    TRY(search(dev, &p->p, e, t));
    if (before) TRY(dev->op.copy(dev, t->result, before, bytes));
    TRY(dev->op.sync(dev));
    if (path) TRY(write_choice(path, text, e));
done:
    cudaFree(before);
    if (rc < 0) {
        engine_drop(e);
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
        engine_drop(e);
        free(e);
    }
    own_of(dev)->engines = NULL;
}
