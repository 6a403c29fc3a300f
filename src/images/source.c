/* source.c: recognizes a SRC, looks at every header, and hands out pixels.
 *
 * Reading each form is left to source_folder.c (folders, Tiny-ImageNet, lists) and source_array.c
 * (CIFAR, STL-10, IDX, .npy). */
#include "images/source_forms.h"

#include "base/npy.h"
#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What the source owns beside its fields. */
struct source_memory {
    arena texts;
    file_map *map;
    void **kept;
    int n_maps, n_kept;
    int64_t items_room, labels_room;
    int classes_room, blocks_room;
    int *class_slot; /* hash of names: index + 1, 0 empty; [slots] */
    int slots;
};

enum { MOST_IMAGES = INT32_MAX }; /* an image's number is a word of the random stream */

arena *source_arena(source *s) { return &s->memory->texts; }

/* *array gets room for `need` elements, doubling. */
static int grow(void *array, int64_t *room, int64_t need, size_t size) {
    void *old, *more;
    memcpy(&old, array, sizeof old);
    if (need <= *room) return 0;
    int64_t want = *room ? 2 * *room : 64;
    while (want < need) want *= 2;
    more = realloc(old, (size_t)want * size);
    if (!more) return fail_memory("list of images", (double)want * (double)size);
    memcpy(array, &more, sizeof more);
    *room = want;
    return 0;
}

char *source_join(source *s, const char *folder, const char *name) {
    size_t a = strlen(folder), b = strlen(name);
    while (a > 1 && folder[a - 1] == '/') a--;
    char *path = arena_alloc(source_arena(s), a + b + 2);
    if (!path) return NULL;
    memcpy(path, folder, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b);
    return path;
}

int source_map(source *s, const char *path, file_map *out) {
    struct source_memory *m = s->memory;
    file_map *more = realloc(m->map, ((size_t)m->n_maps + 1) * sizeof *more);
    if (!more) return fail_memory(path, sizeof *more);
    m->map = more;
    int rc = file_map_open(path, out);
    if (rc == 0) m->map[m->n_maps++] = *out;
    return rc;
}

int source_keep(source *s, void *memory) {
    struct source_memory *m = s->memory;
    void **more = realloc(m->kept, ((size_t)m->n_kept + 1) * sizeof *more);
    if (!more) {
        free(memory);
        return fail_memory("list of memory", sizeof *more);
    }
    m->kept = more;
    m->kept[m->n_kept++] = memory;
    return 0;
}

void source_skip(source *s, const char *message) {
    s->skipped++;
    if (!s->first_skipped) s->first_skipped = strdup(message);
}

bool split_wanted(const source_options *o, const char *name) {
    return !o->split || !strcmp(o->split, name);
}

/* ---- classes --------------------------------------------------------------------------------- */

static uint32_t hash_text(const char *text, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

static bool class_is(const source *s, int class, const char *name, size_t n) {
    return !strncmp(s->class_name[class], name, n) && !s->class_name[class][n];
}

/* The slot of this name, or the empty one where it belongs. */
static int *find_slot(const source *s, const char *name, size_t n) {
    struct source_memory *m = s->memory;
    uint32_t at = hash_text(name, n) & (uint32_t)(m->slots - 1);
    while (m->class_slot[at] && !class_is(s, m->class_slot[at] - 1, name, n))
        at = (at + 1) & (uint32_t)(m->slots - 1);
    return &m->class_slot[at];
}

static int grow_slots(source *s) {
    struct source_memory *m = s->memory;
    int slots = m->slots ? 2 * m->slots : 256;
    int *more = calloc((size_t)slots, sizeof *more);
    if (!more) return fail_memory("classes", (double)slots * sizeof *more);
    free(m->class_slot);
    m->class_slot = more;
    m->slots = slots;
    for (int i = 0; i < s->n_classes; i++)
        *find_slot(s, s->class_name[i], strlen(s->class_name[i])) = i + 1;
    return 0;
}

int source_class(source *s, const char *name, size_t n) {
    int rc = 0;
    struct source_memory *m = s->memory;
    if (n == 0) return -1;
    if (2 * (s->n_classes + 1) > m->slots) TRY(grow_slots(s));
    int *slot = find_slot(s, name, n);
    if (*slot) return *slot - 1;
    int64_t room = m->classes_room;
    TRY(grow(&s->class_name, &room, s->n_classes + 1, sizeof *s->class_name));
    m->classes_room = (int)room;
    char *copy = arena_text(source_arena(s), name, n);
    if (!copy) TRY(CONR_ENOMEM);
    s->class_name[s->n_classes] = copy;
    *slot = s->n_classes + 1;
    return s->n_classes++;
done:
    return rc < -1 ? rc : CONR_ENOMEM; /* -1 would mean "no class" */
}

typedef struct named {
    const char *name;
    long number; /* of names that are all numbers */
    int old;
} named;

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}
static int by_number(const void *a, const void *b) {
    long x = ((const named *)a)->number, y = ((const named *)b)->number;
    return (x > y) - (x < y);
}

/* "17", without sign, leading zero or more than 5 digits; -1 where it is no such number. */
static long plain_number(const char *text) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n] || (n > 1 && *text == '0')) return -1;
    return strtol(text, NULL, 10);
}

int source_sort_classes(source *s) {
    int rc = 0, *new_of = NULL;
    bool numbers = s->kind == SOURCE_LIST; /* a list's numbers stay what they are */
    named *list = calloc((size_t)s->n_classes + 1, sizeof *list);
    new_of = calloc((size_t)s->n_classes + 1, sizeof *new_of);
    if (!list || !new_of) TRY(fail_memory("classes", (double)s->n_classes * sizeof *list));
    for (int i = 0; i < s->n_classes; i++) {
        list[i] = (named){s->class_name[i], plain_number(s->class_name[i]), i};
        numbers = numbers && list[i].number >= 0;
    }
    if (s->n_classes)
        qsort(list, (size_t)s->n_classes, sizeof *list, numbers ? by_number : by_name);
    int n_classes = s->n_classes;
    for (int i = 0; i < n_classes; i++) {
        s->class_name[i] = list[i].name;
        new_of[list[i].old] = numbers ? (int)list[i].number : i;
    }
    if (numbers && n_classes) { /* numbers that no image has are classes too, empty ones */
        int most = (int)list[n_classes - 1].number + 1;
        int64_t room = s->memory->classes_room;
        TRY(grow(&s->class_name, &room, most, sizeof *s->class_name));
        s->memory->classes_room = (int)room;
        for (int i = 0; i < most; i++) {
            char text[16];
            int n = snprintf(text, sizeof text, "%d", i);
            s->class_name[i] = arena_text(source_arena(s), text, (size_t)n);
            if (!s->class_name[i]) TRY(CONR_ENOMEM);
        }
        s->n_classes = most;
    }
    for (int64_t i = 0; i < s->n; i++)
        if (s->item[i].label >= 0) s->item[i].label = new_of[s->item[i].label];
done:
    free(list);
    free(new_of);
    return rc;
}

int source_class_names(source *s, const char *path, int n_classes) {
    int rc = 0, n = 0;
    file_map map = {0};
    if (path && file_map_open(path, &map) == 0) {
        const char *at = (const char *)map.data, *end = at + map.size;
        while (at < end && n < n_classes) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            size_t length = (size_t)((stop ? stop : end) - at);
            while (length && strchr(" \t\r", at[length - 1])) length--; /* also ends at a 0 */
            length = strnlen(at, length);
            if (length && source_class(s, at, length) == n) n++;
            at = stop ? stop + 1 : end;
        }
        file_map_close(&map);
    }
    for (; n < n_classes; n++) { /* a name given twice leaves the rest to numbers */
        char text[24];
        int length = snprintf(text, sizeof text, "%d", n);
        if (source_class(s, text, (size_t)length) != n) {
            length = snprintf(text, sizeof text, "class %d", n);
            TRY(source_class(s, text, (size_t)length) == n ? 0 : CONR_ENOMEM);
        }
    }
done:
    return rc;
}

/* ---- items and blocks ------------------------------------------------------------------------ */

static int check_count(const source *s, int64_t more) {
    if (more <= MOST_IMAGES - s->n) return 0;
    return fail(CONR_EINVAL, "%s: more than %d images; split it", s->path, MOST_IMAGES);
}

int source_add_item(source *s, const char *path, const char *file, int label) {
    int rc = 0;
    if (!path || !file) TRY(CONR_ENOMEM);
    TRY(check_count(s, 1));
    TRY(grow(&s->item, &s->memory->items_room, s->n + 1, sizeof *s->item));
    s->item[s->n++] = (source_item){.path = path, .file = file, .label = label};
done:
    return rc;
}

int source_add_block(source *s, const char *path, const unsigned char *data, size_t stride,
                     int64_t n, const int32_t *labels) {
    int rc = 0;
    struct stat at = {0};
    const char *slash = strrchr(path, '/');
    int64_t room = s->memory->blocks_room;
    TRY(check_count(s, n));
    TRY(grow(&s->block, &room, s->n_blocks + 1, sizeof *s->block));
    s->memory->blocks_room = (int)room;
    TRY(grow(&s->label, &s->memory->labels_room, s->n + n, sizeof *s->label));
    for (int64_t i = 0; i < n; i++) s->label[s->n + i] = labels ? labels[i] : -1;
    if (stat(path, &at) < 0) memset(&at, 0, sizeof at); /* bytes in memory have no file */
    char *copy = arena_text(source_arena(s), path, strlen(path));
    if (!copy) TRY(CONR_ENOMEM);
    s->block[s->n_blocks++] =
        (source_block){.name = slash ? copy + (slash + 1 - path) : copy,
                       .path = copy,
                       .data = data,
                       .stride = stride,
                       .first = s->n,
                       .n = n,
                       .bytes = (uint64_t)at.st_size,
                       .time = (int64_t)at.st_mtim.tv_sec * 1000000000 + at.st_mtim.tv_nsec};
    s->n += n;
done:
    return rc;
}

/* The block of image i, and which of its images that is. */
static const source_block *block_of(const source *s, int64_t i, int64_t *index) {
    int b = 0;
    if (s->pick) i = s->pick[i];
    while (b + 1 < s->n_blocks && i >= s->block[b + 1].first) b++;
    *index = i - s->block[b].first;
    return &s->block[b];
}

const char *source_name(const source *s, int64_t i, char *buffer, size_t size) {
    ASSERT(i >= 0 && i < s->n);
    if (s->item) return s->item[i].path;
    int64_t index;
    const source_block *b = block_of(s, i, &index);
    snprintf(buffer, size, "%s#%lld", b->name, (long long)index);
    return buffer;
}

int source_label(const source *s, int64_t i) { return s->item ? s->item[i].label : s->label[i]; }

void source_size(const source *s, int64_t i, int *w, int *h) {
    *w = s->item ? s->item[i].w : s->w_low;
    *h = s->item ? s->item[i].h : s->h_low;
}

/* ---- headers --------------------------------------------------------------------------------- */

static int probe_item(source_item *it) {
    int rc = 0;
    file_map map = {0};
    decode_head head;
    struct stat at;
    TRY(file_map_open(it->file, &map));
    TRY(decode_probe(it->path, map.data, map.size, &head));
    it->w = (uint16_t)head.w, it->h = (uint16_t)head.h;
    it->gray = head.gray;
    it->bytes = map.size;
    if (stat(it->file, &at) == 0)
        it->time = (int64_t)at.st_mtim.tv_sec * 1000000000 + at.st_mtim.tv_nsec;
done:
    file_map_close(&map);
    return rc;
}

static int check_skipped(const source *s) {
    int64_t all = s->n + s->skipped;
    if (s->n && s->skipped * 20 <= all) return 0;
    /* The first message carries its own remedy, which is cut off here. */
    const char *first = s->first_skipped ? s->first_skipped : "";
    return fail(CONR_EFORMAT,
                "%s: %lld of %lld images cannot be read (the first: %.*s); "
                "repair or remove them, 5 %% may be unreadable",
                s->path, (long long)s->skipped, (long long)all, (int)strcspn(first, ";"), first);
}

int source_drop(source *s, const unsigned char *bad, const char *message) {
    int64_t kept = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (bad[i]) {
            source_skip(s, message ? message : "damaged");
            continue;
        }
        if (s->item) s->item[kept] = s->item[i];
        if (s->label) s->label[kept] = s->label[i];
        kept++;
    }
    ASSERT(s->item || kept == s->n); /* an array's images cannot be damaged one by one */
    s->n = kept;
    return check_skipped(s);
}

int source_thin(source *s, double f) {
    int rc = 0;
    int64_t kept = 0, *seen = calloc((size_t)s->n_classes + 1, sizeof *seen), *most = NULL;
    if (s->n_classes < 2) {
        free(seen);
        return fail(CONR_EINVAL,
                    "%s: a long tail needs labels of two classes or more; leave it "
                    "out",
                    s->path);
    }
    most = calloc((size_t)s->n_classes + 1, sizeof *most);
    if (s->block && !s->pick) s->pick = calloc((size_t)s->n, sizeof *s->pick);
    if (!seen || !most || (s->block && !s->pick))
        TRY(fail_memory("list of images", 8.0 * (double)s->n));
    for (int64_t i = 0; i < s->n; i++)
        if (source_label(s, i) >= 0) most[source_label(s, i)]++;
    for (int c = 0; c < s->n_classes; c++) {
        double share = pow(f, -(double)c / (s->n_classes - 1));
        int64_t count = (int64_t)((double)most[c] * share + 0.5);
        most[c] = count || !most[c] ? count : 1;
    }
    for (int64_t i = 0; i < s->n; i++) {
        int label = source_label(s, i);
        if (label < 0 || seen[label]++ >= most[label]) continue;
        if (s->item) s->item[kept] = s->item[i];
        if (s->label) s->label[kept] = s->label[i];
        if (s->block) s->pick[kept] = i;
        kept++;
    }
    s->n = kept;
done:
    free(seen);
    free(most);
    return rc;
}

static void take_sizes(source *s) {
    s->gray = true;
    s->w_low = s->h_low = INT32_MAX;
    for (int64_t i = 0; i < s->n; i++) {
        const source_item *it = &s->item[i];
        s->gray = s->gray && it->gray;
        if (it->w < s->w_low) s->w_low = it->w;
        if (it->w > s->w_high) s->w_high = it->w;
        if (it->h < s->h_low) s->h_low = it->h;
        if (it->h > s->h_high) s->h_high = it->h;
    }
}

/* Looks at every file's header with all threads; the message kept is that of the first bad file,
 * whoever met it.  (Critical sections have no names: the shared library would export them.) */
static int probe_all(source *s, const source_options *o) {
    int rc = 0;
    char first_message[512] = "";
    int64_t first_bad = s->n, done_count = 0, total = s->n;
    int stop = 0;
    unsigned char *bad = calloc((size_t)s->n + 1, 1);
    if (!bad) return fail_memory("list of images", (double)s->n);
#pragma omp parallel for schedule(dynamic, 16) num_threads(o->threads)
    for (int64_t i = 0; i < total; i++) {
        if (__atomic_load_n(&stop, __ATOMIC_RELAXED)) continue;
        bad[i] = probe_item(&s->item[i]) < 0;
        if (bad[i]) {
#pragma omp critical
            if (i < first_bad) {
                first_bad = i;
                snprintf(first_message, sizeof first_message, "%s", conr_error());
            }
        }
        int64_t seen = __atomic_add_fetch(&done_count, 1, __ATOMIC_RELAXED);
        if (o->tell.on && seen % 256 == 0) {
#pragma omp critical
            if (o->tell.on(seen, total, o->tell.user)) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        }
    }
    if (stop)
        TRY(fail(CONR_ESTOPPED, "%s: stopped while looking at headers; run it again", s->path));
    TRY(source_drop(s, bad, first_message));
    take_sizes(s);
done:
    free(bad);
    return rc;
}

/* ---- what is it? ----------------------------------------------------------------------------- */

static bool any_file(const folder *f, bool (*is)(const char *name)) {
    for (int i = 0; i < f->n_files; i++)
        if (is(f->file[i])) return true;
    return false;
}
static bool is_cifar10(const char *name) {
    return (!strncmp(name, "data_batch_", 11) && name_ends(name, ".bin")) ||
           !strcmp(name, "test_batch.bin");
}
static bool is_stl(const char *name) {
    return !strcmp(name, "train_X.bin") || !strcmp(name, "test_X.bin") ||
           !strcmp(name, "unlabeled_X.bin");
}
static bool is_idx(const char *name) {
    return strstr(name, "images") &&
           (name_ends(name, "idx3-ubyte") || name_ends(name, "idx3-ubyte.gz"));
}

static bool is_tiny(source *s, const folder *f) {
    const char *val = folder_has_sub(f, "train") && folder_has_sub(f, "val")
                          ? source_join(s, f->path, "val/val_annotations.txt")
                          : NULL;
    struct stat at;
    return val && stat(val, &at) == 0 && S_ISREG(at.st_mode);
}

static int open_folder(source *s, const source_options *o, const char *path, int depth) {
    int rc = 0;
    folder f;
    bool found = true;
    TRY(folder_read(s, path, &f));
    s->kind = SOURCE_FOLDER;
    if (any_file(&f, is_cifar10)) {
        s->kind = SOURCE_CIFAR10;
        TRY(cifar_add(s, o, &f));
    } else if (folder_has(&f, "fine_label_names.txt") ||
               (folder_has(&f, "train.bin") && folder_has(&f, "test.bin"))) {
        s->kind = SOURCE_CIFAR100;
        TRY(cifar_add(s, o, &f));
    } else if (any_file(&f, is_stl)) {
        s->kind = SOURCE_STL10;
        TRY(stl_add(s, o, &f));
    } else if (any_file(&f, is_idx)) {
        s->kind = SOURCE_IDX;
        TRY(idx_add(s, o, &f));
    } else if (is_tiny(s, &f)) {
        s->kind = SOURCE_TINY;
        TRY(tiny_add(s, o, &f));
    } else if (f.n_images == 0 && f.n_subs == 1 && depth < 8 &&
               !(o->split && !strcmp(o->split, f.sub[0]))) {
        /* What an archive was unpacked into: the one folder in it is meant. */
        char *inner = source_join(s, path, f.sub[0]);
        TRY(inner ? open_folder(s, o, inner, depth + 1) : CONR_ENOMEM);
    } else {
        TRY(folder_add(s, o, &f, &found));
    }
    if (!found || s->n + s->skipped == 0)
        TRY(fail(CONR_EFILE, "%s: holds no JPEG, PNG or WebP image; give a folder that has some",
                 s->path));
done:
    return rc;
}

/* Text has no 0 byte near its beginning; an empty file is an empty list. */
static bool is_text(const unsigned char *bytes, size_t n) {
    return n > 0 && !memchr(bytes, 0, n < 4096 ? n : 4096);
}

static int open_file(source *s, const source_options *o, const char *path) {
    int rc = 0;
    file_map map = {0};
    decode_head head;
    TRY(file_map_open(path, &map));
    const unsigned char *b = map.data;
    size_t n = map.size;
    if (o->split)
        TRY(fail(CONR_EINVAL, "%s: is one file and has no part '%s'; leave out the split", path,
                 o->split));
    if (n >= 6 && !memcmp(b, "\x93NUMPY", 6)) {
        s->kind = SOURCE_NPY;
        TRY(npy_add_file(s, path));
    } else if (n >= 4 && ((b[0] == 0 && b[1] == 0) || (b[0] == 0x1f && b[1] == 0x8b))) {
        s->kind = SOURCE_IDX;
        TRY(idx_add_file(s, path));
    } else if (name_is_image(path) || (n && decode_probe(path, b, n, &head) == 0)) {
        s->kind = SOURCE_IMAGE;
        TRY(source_add_item(s, s->path, s->path, -1));
    } else if (is_text(b, n)) {
        s->kind = SOURCE_LIST;
        TRY(list_add(s, path, b, n));
    } else {
        TRY(fail(CONR_EFORMAT, "%s: %s; see docs/images.md for what conr reads", path,
                 n ? "is neither an image, IDX, .npy nor a list of paths" : "is empty"));
    }
done:
    file_map_close(&map);
    return rc;
}

static const char *kind_words(source_kind kind) {
    switch (kind) {
    case SOURCE_FOLDER: return "image folder";
    case SOURCE_CIFAR10: return "CIFAR-10 binary files";
    case SOURCE_CIFAR100: return "CIFAR-100 binary files";
    case SOURCE_STL10: return "STL-10 binary files";
    case SOURCE_TINY: return "Tiny-ImageNet";
    case SOURCE_IDX: return "IDX files";
    case SOURCE_NPY: return ".npy array";
    case SOURCE_LIST: return "list of files";
    case SOURCE_IMAGE: return "one image";
    }
    return "";
}

int source_new(const char *path, source *out) {
    *out = (source){0};
    out->memory = calloc(1, sizeof *out->memory);
    if (!out->memory) return fail_memory(path, sizeof *out->memory);
    out->path = arena_text(source_arena(out), path, strlen(path));
    return out->path ? 0 : CONR_ENOMEM;
}

static int keep_choice(source *s, const source_options *o) {
    const char *split = o->split ? o->split : "", *classes = o->classes ? o->classes : "";
    size_t n = strlen(split), m = strlen(classes);
    char *text = arena_alloc(source_arena(s), n + m + 2);
    if (!text) return CONR_ENOMEM;
    memcpy(text, split, n);
    text[n] = ':';
    memcpy(text + n + 1, classes, m);
    s->choice = text;
    return 0;
}

int source_open(const char *path, const source_options *o, source *out) {
    int rc = 0;
    struct stat at;
    TRY(source_new(path, out));
    TRY(keep_choice(out, o));
    if (stat(path, &at) == 0 && S_ISDIR(at.st_mode))
        TRY(open_folder(out, o, out->path, 0));
    else
        TRY(open_file(out, o, out->path));
    out->words = kind_words(out->kind);
    if (o->coarse && out->kind != SOURCE_CIFAR100)
        TRY(fail(CONR_EINVAL, "%s: has no coarse labels, only CIFAR-100 has; leave that out",
                 path));
    if (out->item) TRY(probe_all(out, o));
    if (out->n == 0) TRY(check_skipped(out));
done:
    if (rc < 0) source_close(out);
    return rc;
}

void source_close(source *s) {
    struct source_memory *m = s->memory;
    if (m) {
        for (int i = 0; i < m->n_maps; i++) file_map_close(&m->map[i]);
        for (int i = 0; i < m->n_kept; i++) free(m->kept[i]);
        free(m->map);
        free(m->kept);
        free(m->class_slot);
        arena_free(&m->texts);
        free(m);
    }
    free(s->item);
    free(s->block);
    free(s->pick);
    free(s->label);
    free(s->class_name);
    free(s->first_skipped);
    *s = (source){0};
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* in: planes of w x h bytes, rows or columns first; out: [h,w,c]. */
static void interleave(const unsigned char *in, source_layout layout, int w, int h, int c,
                       unsigned char *out) {
    bool columns = layout == LAYOUT_CHW_COLUMNS;
    size_t step_x = columns ? (size_t)h : 1, step_y = columns ? 1 : (size_t)w;
    size_t plane = (size_t)w * (size_t)h;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                *out++ = in[(size_t)k * plane + (size_t)y * step_y + (size_t)x * step_x];
}

int source_read(const source *s, int64_t i, int channels, int least, image *out) {
    int rc = 0;
    file_map map = {0};
    ASSERT(i >= 0 && i < s->n);
    if (s->item) {
        TRY(file_map_open(s->item[i].file, &map));
        TRY(decode(s->item[i].path, map.data, map.size, channels, least, out));
    } else {
        int64_t index;
        const source_block *b = block_of(s, i, &index);
        const unsigned char *in = b->data + (size_t)index * b->stride;
        int w = s->w_low, h = s->h_low, c = s->gray ? 1 : 3;
        TRY(image_reserve(out, w, h, c));
        if (s->layout == LAYOUT_HWC)
            memcpy(out->pixels, in, (size_t)w * (size_t)h * (size_t)c);
        else
            interleave(in, s->layout, w, h, c, out->pixels);
        TRY(image_convert(out, channels));
    }
done:
    file_map_close(&map);
    return rc;
}

bool source_known_norm(const source *s, float mean[3], float deviation[3]) {
    static const float norms[3][2][3] = {
        {{.4914f, .4822f, .4465f}, {.2023f, .1994f, .2010f}}, /* CIFAR-10 */
        {{.5071f, .4867f, .4408f}, {.2675f, .2565f, .2761f}}, /* CIFAR-100 */
        {{.485f, .456f, .406f}, {.229f, .224f, .225f}},       /* ImageNet and its kin */
    };
    int which = s->kind == SOURCE_CIFAR10                           ? 0
                : s->kind == SOURCE_CIFAR100                        ? 1
                : s->kind == SOURCE_STL10 || s->kind == SOURCE_TINY ? 2
                                                                    : -1;
    if (which < 0) return false;
    memcpy(mean, norms[which][0], 3 * sizeof *mean);
    memcpy(deviation, norms[which][1], 3 * sizeof *deviation);
    return true;
}
