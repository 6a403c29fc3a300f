/* checkpoint.c: blocks of the device to a safetensors file and back. */
#include "run/checkpoint.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/tensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The blocks of floats that make up a training's state. */
typedef struct block {
    const char *name;
    float *on; /* device */
    size_t count;
    bool exact; /* float in the compact form too, not half */
    bool whole; /* not part of the compact form */
} block;

enum { BLOCKS = 6 };

static int blocks_of(const trainer *t, block out[BLOCKS]) {
    int n = 0;
    bool target = t->framework->target;
    out[n++] = (block){.name = "weights", .on = t->w, .count = t->net.n_weights};
    out[n++] =
        (block){.name = "running", .on = t->running, .count = t->net.n_running, .exact = true};
    out[n++] = (block){.name = "momentum", .on = t->v, .count = t->net.n_weights, .whole = true};
    if (target)
        out[n++] = (block){.name = "target.weights", .on = t->target_w, .count = t->net.n_target};
    if (target)
        out[n++] = (block){.name = "target.running",
                           .on = t->target_running,
                           .count = t->net.n_running,
                           .exact = true};
    if (t->framework->queue)
        out[n++] =
            (block){.name = "queue", .on = t->queue, .count = (size_t)t->o.queue * (size_t)t->d};
    return n;
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Metadata: numbers as text that reads back as the same bits. */
typedef struct notes {
    char text[18][40];
    tensor_note note[18];
    int n;
} notes;

static void note_int(notes *s, const char *key, int64_t value) {
    snprintf(s->text[s->n], sizeof s->text[0], "%" PRId64, value);
    s->note[s->n] = (tensor_note){key, s->text[s->n]};
    s->n++;
}

static void note_float(notes *s, const char *key, double value) {
    snprintf(s->text[s->n], sizeof s->text[0], "%.17g", value);
    s->note[s->n] = (tensor_note){key, s->text[s->n]};
    s->n++;
}

static void note_all(const trainer *t, const checkpoint_state *s, notes *out) {
    out->n = 0;
    out->note[out->n++] = (tensor_note){"format", "conr checkpoint 1"};
    note_int(out, "step", t->step);
    note_int(out, "steps", s->steps);
    note_int(out, "closed", s->closed);
    note_int(out, "clustered", t->clustered);
    note_float(out, "objective", t->objective);
    note_int(out, "log_bytes", s->log_bytes);
    note_int(out, "loss_steps", s->loss_steps);
    note_float(out, "loss_sum", s->loss_sum);
    note_float(out, "epoch_sum", s->epoch_sum);
    note_float(out, "seconds", s->seconds);
    note_int(out, "images", (int64_t)s->names);
    note_int(out, "identity", (int64_t)s->images);
    note_int(out, "clusters", s->clusters);
    if (s->summed) note_int(out, "log_sum", (int64_t)s->log_sum);
    if (s->options[0]) out->note[out->n++] = (tensor_note){"options", s->options};
}

static int read_int(const tensors *f, const char *key, int64_t *out) {
    const char *text = tensors_note(f, key);
    char *end = NULL;
    errno = 0;
    if (text) *out = strtoll(text, &end, 10);
    if (!text || end == text || *end || errno)
        return fail(CONR_EFORMAT, "%s: not a checkpoint of conr (%s is missing); give another file",
                    f->path, key);
    return 0;
}

static int read_float(const tensors *f, const char *key, double *out) {
    const char *text = tensors_note(f, key);
    char *end = NULL;
    if (text) *out = strtod(text, &end);
    if (!text || end == text || *end)
        return fail(CONR_EFORMAT, "%s: not a checkpoint of conr (%s is missing); give another file",
                    f->path, key);
    return 0;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int add_labels(const trainer *t, tensor *list) {
    if (!t->K) return 0;
    list[0] = (tensor){.name = "labels",
                       .type = TENSOR_I32,
                       .n_dims = 1,
                       .dim = {t->store->n},
                       .count = (size_t)t->store->n,
                       .data = t->label};
    list[1] = (tensor){.name = "centroids",
                       .type = TENSOR_F32,
                       .n_dims = 2,
                       .dim = {t->K, t->d},
                       .count = (size_t)t->K * (size_t)t->d,
                       .data = t->centroids};
    return 2;
}

int checkpoint_save(trainer *t, const checkpoint_state *s, const char *path) {
    int rc = 0, n = 0;
    block b[BLOCKS];
    tensor list[BLOCKS + 2];
    notes note;
    float *memory[BLOCKS] = {0};
    int count = blocks_of(t, b);
    for (int i = 0; i < count; i++) {
        memory[i] = memory_new("checkpoint", b[i].count, sizeof *memory[i]);
        TRY(memory[i] ? 0 : CONR_ENOMEM);
        TRY(t->dev->op.get(t->dev, memory[i], b[i].on, b[i].count * sizeof *memory[i]));
        list[n++] = (tensor){.name = b[i].name,
                             .type = TENSOR_F32,
                             .n_dims = 1,
                             .dim = {(int64_t)b[i].count},
                             .count = b[i].count,
                             .data = memory[i]};
    }
    n += add_labels(t, list + n);
    note_all(t, s, &note);
    TRY(tensors_write(path, list, n, note.note, note.n));
done:
    for (int i = 0; i < BLOCKS; i++) free(memory[i]);
    return rc;
}

/* ---- the compact form ------------------------------------------------------------------------ */

enum { PIECE_BYTES = 15 << 20 }; /* of data, so that a piece stays under 16 MB */

/* A piece that is being filled.  Slices of blocks are named NAME@OFFSET. */
typedef struct piece {
    const char *folder;
    const notes *note;
    tensor list[2 * BLOCKS + 4];
    char name[2 * BLOCKS + 4][48];
    int n, number;
    size_t bytes;
} piece;

static void piece_path(const char *folder, int number, char *out, size_t size) {
    snprintf(out, size, "%s/part-%02d.safetensors", folder, number);
}

static int piece_write(piece *p) {
    char path[4096];
    int rc = 0;
    if (p->n) {
        piece_path(p->folder, p->number, path, sizeof path);
        TRY(tensors_write(path, p->list, p->n, p->note->note, p->note->n));
        p->number++;
    }
    p->n = 0, p->bytes = 0;
done:
    return rc;
}

static int piece_add(piece *p, const char *name, tensor_type type, const void *data, size_t count) {
    int rc = 0;
    size_t size = tensor_size(type);
    for (size_t at = 0; at < count;) {
        if (p->bytes + size > PIECE_BYTES) TRY(piece_write(p));
        size_t room = (PIECE_BYTES - p->bytes) / size, take = count - at < room ? count - at : room;
        snprintf(p->name[p->n], sizeof p->name[0], "%s@%zu", name, at);
        p->list[p->n] = (tensor){.name = p->name[p->n],
                                 .type = type,
                                 .n_dims = 1,
                                 .dim = {(int64_t)take},
                                 .count = take,
                                 .data = (const char *)data + at * size};
        p->n++;
        p->bytes += take * size;
        at += take;
    }
done:
    return rc;
}

int checkpoint_save_compact(trainer *t, const checkpoint_state *s, const char *folder) {
    int rc = 0;
    block b[BLOCKS];
    notes note;
    piece p = {.folder = folder, .note = &note};
    void *memory[BLOCKS] = {0};
    int count = blocks_of(t, b);
    note_all(t, s, &note);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return fail(CONR_EFILE, "%s: %s; give another folder", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (b[i].whole) continue;
        float *x = memory[i] = memory_new("checkpoint", b[i].count, sizeof *x);
        TRY(x ? 0 : CONR_ENOMEM);
        TRY(t->dev->op.get(t->dev, x, b[i].on, b[i].count * sizeof *x));
        uint16_t *half_of =
            memory[i]; /* in place: a half never overtakes the floats still to be read */
        for (size_t j = 0; !b[i].exact && j < b[i].count; j++) {
            uint16_t h = tensor_half(x[j]);
            memcpy(&half_of[j], &h, sizeof h);
        }
        TRY(piece_add(&p, b[i].name, b[i].exact ? TENSOR_F32 : TENSOR_F16, memory[i], b[i].count));
    }
    if (t->K) {
        TRY(piece_add(&p, "labels", TENSOR_I32, t->label, (size_t)t->store->n));
        TRY(piece_add(&p, "centroids", TENSOR_F32, t->centroids, (size_t)t->K * (size_t)t->d));
    }
    TRY(piece_write(&p));
done:
    for (int i = 0; i < BLOCKS; i++) free(memory[i]);
    return rc;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The elements of `name` into out [count], from a whole file or from slices; adds their number to
 * *found. */
static int take_block(const tensors *f, const char *name, float *out, size_t count, size_t *found) {
    int rc = 0;
    size_t length = strlen(name);
    for (int i = 0; i < f->n; i++) {
        const tensor *x = &f->tensor[i];
        if (strncmp(x->name, name, length) || (x->name[length] && x->name[length] != '@')) continue;
        size_t at = x->name[length] ? strtoull(x->name + length + 1, NULL, 10) : 0;
        if (at > count || x->count > count - at)
            return fail(CONR_EFORMAT,
                        "%s: %s has %zu elements, this network has %zu; use the recipe and "
                        "data it was trained with",
                        f->path, name, x->count, count);
        TRY(tensors_floats(f, x, out + at));
        *found += x->count;
    }
done:
    return rc;
}

typedef struct loading {
    trainer *t;
    block b[BLOCKS];
    int n;
    float *memory[BLOCKS], *labels, *centroids;
    size_t found[BLOCKS], found_labels, found_centroids;
    size_t n_centroids; /* elements, from the first file that has any */
} loading;

/* The elements of all centroids in this file, whole or sliced. */
static size_t count_centroids(const tensors *f) {
    size_t n = 0;
    for (int i = 0; i < f->n; i++)
        if (!strncmp(f->tensor[i].name, "centroids", 9)) n += f->tensor[i].count;
    return n;
}

static int load_file(loading *l, const char *path, checkpoint_state *s) {
    int rc = 0;
    tensors f = {0};
    int64_t value = 0;
    TRY(tensors_open(path, &f));
    TRY(read_int(&f, "step", &l->t->step));
    TRY(read_int(&f, "steps", &s->steps));
    TRY(read_int(&f, "closed", &s->closed));
    TRY(read_int(&f, "clustered", &l->t->clustered));
    TRY(read_float(&f, "objective", &l->t->objective));
    TRY(read_int(&f, "log_bytes", &s->log_bytes));
    TRY(read_int(&f, "loss_steps", &s->loss_steps));
    TRY(read_float(&f, "loss_sum", &s->loss_sum));
    TRY(read_float(&f, "epoch_sum", &s->epoch_sum));
    TRY(read_float(&f, "seconds", &s->seconds));
    TRY(read_int(&f, "images", &value));
    s->names = (uint64_t)value;
    s->identified = tensors_note(&f, "identity") != NULL;
    if (s->identified) TRY(read_int(&f, "identity", &value));
    s->images = (uint64_t)value;
    s->clusters = -1;
    if (tensors_note(&f, "clusters")) TRY(read_int(&f, "clusters", &s->clusters));
    s->summed = tensors_note(&f, "log_sum") != NULL;
    if (s->summed) TRY(read_int(&f, "log_sum", &value));
    s->log_sum = (uint64_t)value;
    const char *options = tensors_note(&f, "options");
    snprintf(s->options, sizeof s->options, "%s", options ? options : "");
    for (int i = 0; i < l->n; i++)
        TRY(take_block(&f, l->b[i].name, l->memory[i], l->b[i].count, &l->found[i]));
    size_t images = (size_t)l->t->store->n, n = count_centroids(&f);
    const tensor *whole = tensors_find(&f, "labels");
    if (!whole) whole = tensors_find(&f, "labels@0");
    if (whole && whole->count == images)
        TRY(take_block(&f, "labels", l->labels, images, &l->found_labels));
    if (n && !l->centroids) { /* always in one piece: they are last, and small */
        l->centroids = memory_new("checkpoint", n, sizeof *l->centroids);
        TRY(l->centroids ? 0 : CONR_ENOMEM);
        l->n_centroids = n;
        TRY(take_block(&f, "centroids", l->centroids, n, &l->found_centroids));
    }
done:
    tensors_close(&f);
    return rc;
}

static int load_pieces(loading *l, const char *folder, checkpoint_state *s) {
    int rc = 0;
    char path[4096];
    struct stat at;
    for (int number = 0;; number++) {
        piece_path(folder, number, path, sizeof path);
        if (number && stat(path, &at)) break; /* the first must exist */
        TRY(load_file(l, path, s));
    }
done:
    return rc;
}

/* Rank 0 broadcasts what it read: other machines may see the folder in an older state. */
static int broadcast(loading *l, checkpoint_state *s) {
    int rc = 0;
    trainer *t = l->t;
    ranks *r = &t->ranks;
    TRY(ranks_broadcast(r, s, sizeof *s));
    TRY(ranks_broadcast(r, &t->step, sizeof t->step));
    TRY(ranks_broadcast(r, &t->clustered, sizeof t->clustered));
    TRY(ranks_broadcast(r, &t->objective, sizeof t->objective));
    TRY(ranks_broadcast(r, l->found, sizeof l->found));
    TRY(ranks_broadcast(r, &l->found_labels, sizeof l->found_labels));
    TRY(ranks_broadcast(r, &l->n_centroids, sizeof l->n_centroids));
    for (int i = 0; i < l->n; i++)
        TRY(ranks_broadcast(r, l->memory[i], l->b[i].count * sizeof *l->memory[i]));
    TRY(ranks_broadcast(r, l->labels, (size_t)t->store->n * sizeof *l->labels));
    if (!l->centroids && l->n_centroids) {
        l->centroids = memory_new("checkpoint", l->n_centroids, sizeof *l->centroids);
        TRY(l->centroids ? 0 : CONR_ENOMEM);
    }
    TRY(ranks_broadcast(r, l->centroids, l->n_centroids * sizeof *l->centroids));
done:
    return rc;
}

/* Onto the device, if everything was found. */
static int upload(loading *l, const char *path) {
    int rc = 0;
    trainer *t = l->t;
    int64_t clustered = t->clustered;
    for (int i = 0; i < l->n; i++) {
        if (l->found[i] != l->b[i].count && !(l->b[i].whole && l->found[i] == 0))
            TRY(fail(CONR_EFORMAT,
                     "%s: %s has %zu elements, this network has %zu; use the recipe and data "
                     "it was trained with",
                     path, l->b[i].name, l->found[i], l->b[i].count));
        TRY(t->dev->op.put(t->dev, l->b[i].on, l->memory[i], l->b[i].count * sizeof *l->memory[i]));
    }
    TRY(t->dev->op.sync(t->dev));
    t->clustered = -1;
    int K = (int)(l->n_centroids / (size_t)t->d);
    if (!K || l->n_centroids % (size_t)t->d || l->found_labels != (size_t)t->store->n) goto done;
    for (int64_t i = 0; i < t->store->n; i++) {
        t->label[i] = (int32_t)l->labels[i];
        if (t->label[i] < 0 || t->label[i] >= K)
            TRY(fail(CONR_EFORMAT, "%s: label %d with %d clusters; the file is damaged", path,
                     t->label[i], K));
    }
    TRY(trainer_set_labels(t, t->label, l->centroids, K));
    t->clustered = clustered;
done:
    return rc;
}

int checkpoint_load(trainer *t, const char *path, checkpoint_state *out) {
    int rc = 0;
    struct stat at;
    loading l = {.t = t};
    *out = (checkpoint_state){0};
    l.n = blocks_of(t, l.b);
    for (int i = 0; i < l.n; i++) {
        l.memory[i] = calloc(l.b[i].count, sizeof *l.memory[i]);
        TRY(l.memory[i] ? 0 : fail_memory("checkpoint", (double)l.b[i].count * 4));
    }
    l.labels = memory_new("checkpoint", (size_t)t->store->n, sizeof *l.labels);
    TRY(l.labels ? 0 : CONR_ENOMEM);
    if (t->ranks.rank == 0) {
        if (stat(path, &at) == 0 && S_ISDIR(at.st_mode))
            TRY(load_pieces(&l, path, out));
        else
            TRY(load_file(&l, path, out));
    }
    TRY(broadcast(&l, out));
    if (out->steps < 1 || t->step < 0)
        TRY(fail(CONR_EFORMAT, "%s: impossible step numbers; the file is damaged", path));
    TRY(upload(&l, path));
    t->featured = -1;
done:
    for (int i = 0; i < BLOCKS; i++) free(l.memory[i]);
    free(l.labels);
    free(l.centroids);
    return rc;
}
