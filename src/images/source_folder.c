/* source_folder.c: images in files of their own: folders, Tiny-ImageNet, lists of paths.
 *
 * A class is a subfolder of the root (or of train/, val/, test/ below it), however deep its images
 * are.  Every folder is visited once, whatever links lead to it, so that cycles end.  File names
 * are bytes: line breaks and invalid UTF-8 are allowed. */
#include "images/source_forms.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

bool name_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcasecmp(name + n - m, end);
}

bool name_is_image(const char *name) {
    static const char *const ends[] = {".jpg",  ".jpeg", ".jpe",  ".jfif", ".png",
                                       ".webp", ".bmp",  ".dib",  ".gif",  ".tif",
                                       ".tiff", ".heic", ".heif", ".hif",  ".avif"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (name_ends(name, ends[i])) return true;
    return false;
}

/* Names of images in formats that conr does not read. */
static bool name_is_foreign(const char *name) {
    static const char *const ends[] = {
        ".jxl", ".jp2", ".j2k", ".jpx", ".jxr", ".psd", ".xcf", ".svg", ".svgz",
        ".ico", ".tga", ".pcx", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".exr",
        ".hdr", ".dds", ".dng", ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw",
        ".srf", ".sr2", ".orf", ".rw2", ".raf", ".pef", ".srw", ".x3f", ".dcm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (name_ends(name, ends[i])) return true;
    return false;
}

/* ---- one folder ------------------------------------------------------------------------------ */

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* '/' a folder, '-' a regular file, 'x' anything else. */
static char entry_kind(const char *folder_path, const struct dirent *e) {
    char path[4096];
    struct stat at;
    if (e->d_type == DT_DIR) return '/';
    if (e->d_type == DT_REG) return '-';
    if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN) return 'x';
    int n = snprintf(path, sizeof path, "%s/%s", folder_path, e->d_name);
    if (n < 0 || (size_t)n >= sizeof path || stat(path, &at) < 0)
        return name_is_image(e->d_name) ? '-' : 'x'; /* a broken link is an unreadable image */
    return S_ISDIR(at.st_mode) ? '/' : S_ISREG(at.st_mode) ? '-' : 'x';
}

/* A growing list of names; the names themselves are in the arena. */
typedef struct names {
    const char **name;
    int n, room;
} names;

static int names_add(source *s, names *l, const char *name) {
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 64;
        const char **more = realloc(l->name, (size_t)room * sizeof *more);
        if (!more) return fail_memory("names of files", (double)room * sizeof *more);
        l->name = more, l->room = room;
    }
    l->name[l->n] = arena_text(source_arena(s), name, strlen(name));
    return l->name[l->n++] ? 0 : CONR_ENOMEM;
}

static int names_keep(source *s, names *l, const char ***out, int *n) {
    if (l->n) qsort(l->name, (size_t)l->n, sizeof *l->name, by_bytes);
    *out = l->name, *n = l->n;
    if (!l->name) return 0;
    l->name = NULL;
    return source_keep(s, *out);
}

/* *its_own: whether this one folder is at fault, not the machine. */
static int fail_folder(const char *path, bool *its_own) {
    int why = errno;
    *its_own = file_error_is_its_own(why);
    return fail(CONR_EFILE, "%s: cannot be read: %s; %s", path, strerror(why),
                *its_own ? "check its permissions"
                         : "check the disk, and the limit on open files (ulimit -n)");
}

int folder_read(source *s, const char *path, folder *out) {
    int rc = 0;
    names files = {0}, subs = {0};
    *out = (folder){.path = path};
    DIR *d = opendir(path);
    if (!d) return fail_folder(path, &out->its_own);
    for (struct dirent *e; (errno = 0, e = readdir(d));) {
        if (*e->d_name == '.' || !strcmp(e->d_name, "__MACOSX")) continue;
        char kind = entry_kind(path, e);
        if (kind == '/') TRY(names_add(s, &subs, e->d_name));
        if (kind == '-') TRY(names_add(s, &files, e->d_name));
        out->n_images += kind == '-' && name_is_image(e->d_name);
    }
    if (errno) TRY(fail(CONR_EFILE, "%s: %s; check the disk", path, strerror(errno)));
    TRY(names_keep(s, &files, &out->file, &out->n_files));
    TRY(names_keep(s, &subs, &out->sub, &out->n_subs));
done:
    closedir(d);
    free(files.name);
    free(subs.name);
    return rc;
}

static bool has(const char **name, int n, const char *wanted) {
    return n && bsearch(&wanted, name, (size_t)n, sizeof *name, by_bytes);
}
bool folder_has(const folder *f, const char *file) { return has(f->file, f->n_files, file); }
bool folder_has_sub(const folder *f, const char *sub) { return has(f->sub, f->n_subs, sub); }

/* ---- a tree of folders ----------------------------------------------------------------------- */

/* Folders that were visited, by device and inode: an open hash table. */
typedef struct visited {
    struct {
        dev_t device;
        ino_t node;
        bool used;
    } * slot;
    size_t slots, n;
} visited;

static size_t visited_slot(const visited *v, dev_t device, ino_t node) {
    size_t at = ((size_t)node * 0x9E3779B97F4A7C15u ^ (size_t)device) & (v->slots - 1);
    while (v->slot[at].used && (v->slot[at].node != node || v->slot[at].device != device))
        at = (at + 1) & (v->slots - 1);
    return at;
}

/* 1: the folder is new, 0: it was visited before, negative: an error. */
static int visited_add(visited *v, const char *path, bool *its_own) {
    struct stat at;
    *its_own = false;
    if (stat(path, &at) < 0) return fail_folder(path, its_own);
    if (2 * (v->n + 1) > v->slots) {
        visited more = {.slots = v->slots ? 2 * v->slots : 256};
        more.slot = calloc(more.slots, sizeof *more.slot);
        if (!more.slot) return fail_memory("list of folders", (double)more.slots * sizeof *v->slot);
        for (size_t i = 0; i < v->slots; i++)
            if (v->slot[i].used)
                more.slot[visited_slot(&more, v->slot[i].device, v->slot[i].node)] = v->slot[i];
        more.n = v->n;
        free(v->slot);
        *v = more;
    }
    size_t slot = visited_slot(v, at.st_dev, at.st_ino);
    if (v->slot[slot].used) return 0;
    v->slot[slot].device = at.st_dev, v->slot[slot].node = at.st_ino, v->slot[slot].used = true;
    v->n++;
    return 1;
}

enum { DEPTH = 64 }; /* of nested folders; deeper ones are ignored */

/* A file without the name of an image that we read: an image all the same, by its name or by its
 * first bytes, is counted, so that none vanishes in silence. */
static int look_at_other(source *s, const char *path) {
    char message[512];
    file_bytes file = {0};
    const char *format = NULL;
    if (!path) return CONR_ENOMEM;
    bool foreign = name_is_foreign(path);
    if (!foreign && file_read(path, 64, &file, NULL) == 0)
        format = decode_format(file.data, file.n);
    file_bytes_free(&file);
    if (!foreign && !format) return 0;
    if (foreign)
        snprintf(message, sizeof message, "%s: is of a format that conr does not read; convert it",
                 path);
    else
        snprintf(message, sizeof message,
                 "%s: is %s by its content, but not by its name; rename it to have it read", path,
                 format);
    return source_pass_over(s, message);
}

int folder_look_at_name(source *s, const char *archive, const char *path) {
    char message[512];
    if (!name_is_foreign(path)) return 0;
    snprintf(message, sizeof message, "%s/%s: is of a format that conr does not read; convert it",
             archive, path);
    return source_pass_over(s, message);
}

int folder_look_at_others(source *s, const folder *f) {
    int rc = 0;
    for (int i = 0; i < f->n_files; i++)
        if (!name_is_image(f->file[i])) TRY(look_at_other(s, source_join(s, f->path, f->file[i])));
done:
    return rc;
}

static int add_images(source *s, const folder *f, int label) {
    int rc = 0;
    for (int i = 0; i < f->n_files; i++) {
        if (!name_is_image(f->file[i])) continue;
        const char *path = source_join(s, f->path, f->file[i]);
        TRY(source_add_item(s, path, path, label));
    }
    TRY(folder_look_at_others(s, f));
done:
    return rc;
}

/* All images below a folder get one label. */
static int add_tree(source *s, visited *v, const char *path, int label, int depth) {
    int rc = 0;
    folder f = {0};
    bool its_own;
    if (!path) return CONR_ENOMEM;
    int fresh = visited_add(v, path, &its_own);
    if (fresh > 0 && (rc = folder_read(s, path, &f)) < 0) fresh = rc, its_own = f.its_own;
    if (fresh < 0 && its_own) { /* an unreadable folder counts as one bad image */
        return source_skip(s, conr_error());
    }
    if (fresh <= 0 || rc < 0) return fresh <= 0 ? fresh : rc;
    TRY(add_images(s, &f, label));
    for (int i = 0; i < f.n_subs && depth < DEPTH; i++)
        TRY(add_tree(s, v, source_join(s, path, f.sub[i]), label, depth + 1));
done:
    return rc;
}

bool class_listed(const char *list, const char *name, size_t n) {
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (!strncmp(at, name, n) && (at[n] == ',' || !at[n])) return true;
    }
    return !list;
}

/* Each subfolder is a class; images beside them have none. */
static int add_classes(source *s, const source_options *o, visited *v, const folder *root) {
    int rc = 0;
    if (!o->classes) TRY(add_images(s, root, -1));
    for (int i = 0; i < root->n_subs; i++) {
        int64_t before = s->n;
        if (!class_listed(o->classes, root->sub[i], strlen(root->sub[i]))) continue;
        TRY(add_tree(s, v, source_join(s, root->path, root->sub[i]), -1, 0));
        if (s->n == before) continue; /* a folder without images is not a class */
        int label = source_class(s, root->sub[i], strlen(root->sub[i]));
        if (label < 0) TRY(label);
        for (int64_t k = before; k < s->n; k++) s->item[k].label = label;
    }
done:
    return rc;
}

static const char *const splits[] = {"train", "val", "test"};
enum { N_SPLITS = sizeof splits / sizeof *splits };

/* train/ and val/ or test/, or nothing but folders of these names. */
static bool has_splits(const folder *root) {
    int n = 0;
    for (int i = 0; i < N_SPLITS; i++) n += folder_has_sub(root, splits[i]);
    return n > 0 && root->n_images == 0 &&
           (n == root->n_subs || (n > 1 && folder_has_sub(root, "train")));
}

static int add_split(source *s, const source_options *o, visited *v, const folder *root,
                     const char *name) {
    int rc = 0;
    folder part;
    char *path = source_join(s, root->path, name);
    if (!path) return CONR_ENOMEM;
    TRY(folder_read(s, path, &part));
    TRY(add_classes(s, o, v, &part));
done:
    return rc;
}

static int fail_split(const source *s, const char *split) {
    return fail(CONR_EINVAL, "%s: has no split '%s'; leave it out or name another", s->path, split);
}

void source_forget_lone_class(source *s) {
    if (s->n_classes != 1) return;
    for (int64_t i = 0; i < s->n; i++) s->item[i].label = -1;
    memset(s->memory->class_slot, 0, (size_t)s->memory->slots * sizeof *s->memory->class_slot);
    s->n_classes = 0;
}

/* Without class folders, metadata may know the labels: in the folder, or in those of its splits. */
static int add_metadata(source *s, const source_options *o, const folder *root) {
    int rc = 0;
    TRY(metadata_add(s, root->path));
    for (int i = 0; i < N_SPLITS; i++) {
        if (!split_wanted(o, splits[i]) || !folder_has_sub(root, splits[i])) continue;
        const char *part = source_join(s, root->path, splits[i]);
        TRY(part ? metadata_add(s, part) : CONR_ENOMEM);
    }
    source_forget_lone_class(s);
done:
    return rc;
}

int folder_add(source *s, const source_options *o, const folder *root, bool *found) {
    int rc = 0;
    bool its_own;
    visited v = {0};
    TRY(visited_add(&v, root->path, &its_own));
    if (o->split) {
        if (!folder_has_sub(root, o->split)) TRY(fail_split(s, o->split));
        TRY(add_split(s, o, &v, root, o->split));
    } else if (has_splits(root)) {
        for (int i = 0; i < N_SPLITS; i++)
            if (folder_has_sub(root, splits[i])) TRY(add_split(s, o, &v, root, splits[i]));
    } else {
        TRY(add_classes(s, o, &v, root));
    }
    *found = s->n + s->skipped > 0;
    if (!o->classes) source_forget_lone_class(s);
    if (!o->classes && !s->n_classes) TRY(add_metadata(s, o, root));
    TRY(source_sort_classes(s));
    rc = 0;
done:
    free(v.slot);
    return rc;
}

/* ---- Tiny-ImageNet --------------------------------------------------------------------------- */

/* val_annotations.txt: file, tab, class, tab, box. */
static int add_annotated(source *s, const char *folder_path) {
    int rc = 0;
    file_bytes file = {0};
    char *list = source_join(s, folder_path, "val_annotations.txt");
    char *images = source_join(s, folder_path, "images");
    if (!list || !images) TRY(CONR_ENOMEM);
    TRY(file_read_whole(list, &file));
    TRY(source_uses(s, list));
    const char *at = (const char *)file.data, *end = at + file.n;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        const char *tab = memchr(at, '\t', (size_t)(stop - at));
        if (tab && tab > at) {
            const char *tab2 = memchr(tab + 1, '\t', (size_t)(stop - tab - 1));
            int label = source_class(s, tab + 1, (size_t)((tab2 ? tab2 : stop) - tab - 1));
            if (label < -1) TRY(label);
            char *name = arena_text(source_arena(s), at, (size_t)(tab - at));
            char *path = name ? source_join(s, images, name) : NULL;
            TRY(source_add_item(s, path, path, label));
        }
        at = next;
    }
done:
    file_bytes_free(&file);
    return rc;
}

/* train and val; test, whose classes are secret, only on request. */
int tiny_add(source *s, const source_options *o, const folder *root) {
    int rc = 0;
    visited v = {0};
    bool test = o->split && !strcmp(o->split, "test") && folder_has_sub(root, "test");
    if (o->split && !test && strcmp(o->split, "train") && strcmp(o->split, "val"))
        TRY(fail_split(s, o->split));
    if (split_wanted(o, "train")) TRY(add_split(s, o, &v, root, "train"));
    if (split_wanted(o, "val")) {
        char *val = source_join(s, root->path, "val");
        TRY(val ? add_annotated(s, val) : CONR_ENOMEM);
    }
    if (test) TRY(add_tree(s, &v, source_join(s, root->path, "test"), -1, 0));
    TRY(source_sort_classes(s));
done:
    free(v.slot);
    return rc;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* A line: a path, relative to the folder of the list; then, optionally, a tab and a label. */
static int add_line(source *s, const char *folder_path, const char *line, size_t n) {
    int rc = 0, label = -1;
    const char *tab = memrchr(line, '\t', n);
    size_t length = tab ? (size_t)(tab - line) : n;
    if (tab) {
        size_t left = n - length - 1;
        if (left != 2 || memcmp(tab + 1, "-1", 2)) label = source_class(s, tab + 1, left);
        if (label < -1) TRY(label);
    }
    if (!length)
        TRY(fail(CONR_EFORMAT, "%s: a line has a label but no path; add the path", s->path));
    char *path = arena_text(source_arena(s), line, length);
    if (!path) TRY(CONR_ENOMEM);
    TRY(source_add_item(s, path, *path == '/' ? path : source_join(s, folder_path, path), label));
done:
    return rc;
}

int list_add(source *s, const char *path, const unsigned char *bytes, size_t n) {
    int rc = 0;
    const char *at = (const char *)bytes, *end = at + n, *slash = strrchr(path, '/');
    char *folder_path = slash ? arena_text(source_arena(s), path, (size_t)(slash - path) + 1)
                              : arena_text(source_arena(s), ".", 1);
    if (!folder_path) TRY(CONR_ENOMEM);
    if (n >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3; /* a byte order mark */
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (length && at[length - 1] == '\r') length--;
        if (memchr(at, 0, length))
            TRY(fail(CONR_EFORMAT, "%s: contains a zero byte; is it a list of paths?", path));
        if (length) TRY(add_line(s, folder_path, at, length));
        at = stop ? stop + 1 : end;
    }
    if (s->n == 0) TRY(fail(CONR_EFORMAT, "%s: lists no images; give one path per line", path));
    TRY(source_sort_classes(s));
done:
    return rc;
}
