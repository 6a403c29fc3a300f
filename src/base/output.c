/* output.c: see output.h.
 *
 * A file is replaced by renaming another one over it, so a name is what counts: that of the file a
 * link leads to, in the folder that the path leads to. */
#include "base/output.h"

#include "base/lock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What writing to a path would replace: its folder, without links, and the name there.  Both are
 * released by free(*folder). */
typedef struct place {
    char *folder;
    const char *name; /* in the same block */
} place;

/* False: there is no such folder, so nothing is there to be replaced; or no memory. */
static bool find_place(const char *path, place *out) {
    char *real = realpath(path, NULL); /* of an existing file, through links */
    const char *slash = strrchr(path, '/');
    *out = (place){0};
    if (!real) {
        char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
        char *there = folder ? realpath(folder, NULL) : NULL;
        const char *name = slash ? slash + 1 : path;
        size_t n = there ? strlen(there) : 0;
        real = there ? malloc(n + strlen(name) + 2) : NULL;
        if (real) sprintf(real, "%s/%s", there, name);
        free(folder), free(there);
        if (!real) return false;
    }
    char *last = strrchr(real, '/');
    *last = 0;
    *out = (place){real, last + 1};
    return true;
}

bool output_is(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    place p = {0}, q = {0};
    bool same = find_place(a, &p) && find_place(b, &q) && !strcmp(p.name, q.name) &&
                !strcmp(p.folder, q.folder);
    free(p.folder), free(q.folder);
    return same;
}

static bool has_file(const char *folder, const char *name) {
    struct stat at;
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    if (!path) return true; /* rather refused than lost */
    sprintf(path, "%s/%s", folder, name);
    bool has = stat(path, &at) == 0;
    free(path);
    return has;
}

static bool is_listed(const char *name, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(name, *list)) return true;
    return false;
}

/* Whether a run or a sweep keeps a file of this name. */
static bool is_kept(const char *folder, const char *name) {
    static const char *const of_run[] = {"options.yaml",
                                         "log.jsonl",
                                         "model.safetensors",
                                         "head.safetensors",
                                         "embeddings.npy",
                                         "centroids.npy",
                                         "labels.csv",
                                         "data.json",
                                         "edits.json",
                                         "untouched.csv",
                                         "report.html",
                                         "DONE",
                                         NULL};
    static const char *const of_sweep[] = {"sweep.json", "table.md", "report.html", NULL};
    bool run = is_listed(name, of_run) || !strncmp(name, "checkpoint", 10);
    return (run && has_file(folder, "options.yaml")) ||
           (is_listed(name, of_sweep) && has_file(folder, "sweep.json"));
}

int output_check(const char *out, const char *input, const char *report_of) {
    int rc = 0;
    place p = {0};
    if (find_place(out, &p) && is_kept(p.folder, p.name)) {
        bool wanted = !strcmp(p.name, "report.html") && report_of && output_is(p.folder, report_of);
        if (!wanted) rc = fail(CONR_EINVAL, "%s: is a file of a run; write to another one", out);
    } else if (input && output_is(out, input)) {
        rc = fail(CONR_EINVAL, "%s: is the input as well; write to another file", out);
    }
    free(p.folder);
    return rc;
}

int conr_check_output(const char *out, const char *input) {
    folder_lock lock;
    int rc = output_check(out, input, NULL);
    if (rc < 0) return rc;
    rc = folder_lock_beside(out, "options.yaml", &lock); /* whoever writes takes it again */
    folder_lock_drop(&lock);
    return rc;
}
