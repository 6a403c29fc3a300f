/* kept.c: see kept.h.
 *
 * A checkpoint holds blocks of floats, whole or (compact) in slices over several files; those of the
 * model, encoder and projector, are the beginning of the blocks of the trained network. */
#include "model/kept.h"

#include "base/status.h"
#include "base/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool kept_is(const char *path, char *run, long *epoch) {
    struct stat about;
    const char *at = strrchr(path, '@');
    if (!at || at == path || !at[1] || at[1 + strspn(at + 1, "0123456789")] || strlen(at) > 9)
        return false;
    if (stat(path, &about) == 0) return false; /* a folder of that name */
    snprintf(run, 4096, "%.*s", (int)(at - path), path);
    *epoch = strtol(at + 1, NULL, 10);
    return true;
}

/* The first `count` elements of a block, from a file that has all of it, a slice, or nothing; adds
 * their number to *found. */
static int take(const tensors *f, const char *name, float *out, size_t count, size_t *found) {
    int rc = 0;
    size_t length = strlen(name);
    for (int i = 0; i < f->n; i++) {
        const tensor *x = &f->tensor[i];
        if (strncmp(x->name, name, length) || (x->name[length] && x->name[length] != '@')) continue;
        size_t at = x->name[length] ? strtoull(x->name + length + 1, NULL, 10) : 0;
        if (at >= count) continue;
        tensor first = *x; /* what goes on belongs to the predictor */
        if (first.count > count - at) first.count = count - at;
        TRY(tensors_floats(f, &first, out + at));
        *found += first.count;
    }
done:
    return rc;
}

/* Encoder and projector of one of the networks of a training: the target, which is what is
 * clustered, or the only one there is. */
static int take_file(conr_model *m, const char *path, bool target, size_t found[2]) {
    int rc = 0;
    tensors f = {0};
    TRY(tensors_open(path, &f));
    TRY(take(&f, target ? "target.weights" : "weights", m->w, m->net.n_weights, &found[0]));
    TRY(take(&f, target ? "target.running" : "running", m->running, m->net.n_running, &found[1]));
done:
    tensors_close(&f);
    return rc;
}

/* path: a file, or the folder of a compact checkpoint. */
static int take_network(conr_model *m, const char *path, bool folder, bool target,
                        size_t found[2]) {
    int rc = 0;
    char part[4300];
    struct stat about;
    found[0] = found[1] = 0;
    if (!folder) return take_file(m, path, target, found);
    for (int number = 0;; number++) {
        snprintf(part, sizeof part, "%s/part-%02d.safetensors", path, number);
        if (number && stat(part, &about)) break; /* the first must exist */
        TRY(take_file(m, part, target, found));
    }
done:
    return rc;
}

int kept_load(conr_model *m, const char *run, long epoch) {
    int rc = 0;
    char path[4200];
    struct stat about;
    size_t found[2];
    snprintf(path, sizeof path, "%s/checkpoint-%04ld.safetensors", run, epoch);
    bool folder = stat(path, &about) != 0;
    if (folder) snprintf(path, sizeof path, "%s/compact-%04ld", run, epoch);
    if (folder && stat(path, &about))
        TRY(fail(CONR_EFILE,
                 "%s@%ld: no checkpoint of that epoch was kept; train with keep_every, or use the "
                 "end of stage 1",
                 run, epoch));
    TRY(take_network(m, path, folder, true, found));
    if (found[0] == 0) TRY(take_network(m, path, folder, false, found));
    if (found[0] != m->net.n_weights || found[1] != m->net.n_running)
        TRY(fail(CONR_EFORMAT, "%s: lacks a part of the network; it is damaged, use another one",
                 path));
done:
    return rc;
}
