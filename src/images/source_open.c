/* source_open.c: recognizes what a SRC is, has it read by the file for that form, and reads the
 * header of every image.
 *
 * The forms are in source_folder.c (folders, Tiny-ImageNet, lists) and source_array.c (CIFAR,
 * STL-10, IDX, .npy). */
#include "images/archive.h"

#include "base/status.h"
#include "images/unreadable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- headers --------------------------------------------------------------------------------- */

enum { BEGINNING = 1 << 16 }; /* bytes that hold the headers of nearly every file */

static int probe_item(source_item *it) {
    int rc = 0;
    file_bytes file = {0};
    decode_head head;
    struct stat at;
    bool more;
    TRY(source_item_bytes(it, BEGINNING, &file));
    rc = decode_probe(it->path, file.data, file.n, file.size, &head, &more);
    if (rc < 0 && more) {
        file_bytes_free(&file);
        TRY(source_item_bytes(it, SIZE_MAX, &file));
        rc = decode_probe(it->path, file.data, file.n, file.n, &head, NULL);
    }
    TRY(rc);
    it->w = (uint16_t)head.w, it->h = (uint16_t)head.h;
    it->gray = head.gray;
    it->bytes = file.size;
    if (stat(it->file, &at) == 0)
        it->time = (int64_t)at.st_mtim.tv_sec * 1000000000 + at.st_mtim.tv_nsec;
done:
    file_bytes_free(&file);
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

/* Reads the header of every file, with all threads.  (Critical sections have no names: the shared
 * library would export them.) */
static int probe_all(source *s, const source_options *o) {
    int rc = 0;
    int64_t done_count = 0, total = s->n;
    int stop = 0;
    unreadable bad;
    TRY(unreadable_new(s, &bad));
#pragma omp parallel for schedule(dynamic, 16) num_threads(o->threads)
    for (int64_t i = 0; i < total; i++) {
        if (__atomic_load_n(&stop, __ATOMIC_RELAXED)) continue;
        int why = probe_item(&s->item[i]);
        if (why < 0) unreadable_note(&bad, i, why);
        if (why < 0 && why != CONR_EFORMAT) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        int64_t seen = __atomic_add_fetch(&done_count, 1, __ATOMIC_RELAXED);
        if (o->tell.on && seen % 256 == 0) {
#pragma omp critical
            if (o->tell.on(seen, total, o->tell.user)) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        }
    }
    TRY(unreadable_check(&bad));
    if (stop) TRY(fail(CONR_ESTOPPED, "%s: stopped while reading headers; run it again", s->path));
    TRY(unreadable_drop(&bad, s, NULL, 0));
    take_sizes(s);
done:
    unreadable_free(&bad);
    return rc;
}

/* ---- recognizing ----------------------------------------------------------------------------- */

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

/* A folder of nothing but archives, as WebDataset has them. */
static int add_shards(source *s, const source_options *o, const folder *f) {
    int rc = 0, n = 0;
    const char **path = calloc((size_t)f->n_files, sizeof *path);
    if (!path) return fail_memory(f->path, (double)f->n_files * sizeof *path);
    for (int i = 0; i < f->n_files; i++)
        if (name_is_archive(f->file[i]))
            TRY((path[n++] = source_join(s, f->path, f->file[i])) ? 0 : CONR_ENOMEM);
    TRY(archives_add(s, o, path, n));
done:
    free(path);
    return rc;
}

static int fail_parquet(const char *path) {
    return fail(CONR_EFORMAT,
                "%s: Parquet is not read; save its images as files, e.g. in Python: for i, r in "
                "enumerate(datasets.load_dataset(...)['train']): r['image'].save(f'{i}.png')",
                path);
}

static bool is_parquet(const char *name) { return name_ends(name, ".parquet"); }

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
    } else if (f.n_images == 0 && f.n_subs == 0 && any_file(&f, name_is_archive)) {
        TRY(add_shards(s, o, &f));
    } else if (f.n_images == 0 && f.n_subs == 1 && depth < 8 && !folder_has_metadata(&f) &&
               !(o->split && !strcmp(o->split, f.sub[0]))) {
        /* An unpacked archive: the only folder in it is meant. */
        TRY(folder_look_at_others(s, &f));
        char *inner = source_join(s, path, f.sub[0]);
        TRY(inner ? open_folder(s, o, inner, depth + 1) : CONR_ENOMEM);
    } else {
        TRY(folder_add(s, o, &f, &found));
    }
    if ((!found || s->n + s->skipped == 0) && any_file(&f, is_parquet)) TRY(fail_parquet(path));
    if (!found || s->n + s->skipped == 0)
        TRY(fail(CONR_EFILE, "%s: contains no images; give a folder that does", s->path));
done:
    return rc;
}

/* Text has no NUL near its beginning. */
static bool is_text(const unsigned char *bytes, size_t n) {
    return n > 0 && !memchr(bytes, 0, n < 4096 ? n : 4096);
}

static int open_file(source *s, const source_options *o, const char *path) {
    int rc = 0;
    file_bytes file = {0};
    decode_head head;
    TRY(file_read(path, BEGINNING, &file, NULL));
    const unsigned char *b = file.data;
    size_t n = file.n;
    if (name_is_archive(path) || bytes_are_archive(b, n)) {
        TRY(archives_add(s, o, &path, 1));
        goto done;
    }
    if (n >= 4 && !memcmp(b, "PAR1", 4)) TRY(fail_parquet(path));
    if (o->split)
        TRY(fail(CONR_EINVAL, "%s: is a single file without a split '%s'; leave out the split",
                 path, o->split));
    if (n >= 6 && !memcmp(b, "\x93NUMPY", 6)) {
        s->kind = SOURCE_NPY;
        TRY(npy_add_file(s, path));
    } else if (n >= 4 && ((b[0] == 0 && b[1] == 0) || (b[0] == 0x1f && b[1] == 0x8b))) {
        s->kind = SOURCE_IDX;
        TRY(idx_add_file(s, path));
    } else if (name_is_image(path) ||
               (n && decode_probe(path, b, n, file.size, &head, NULL) == 0)) {
        s->kind = SOURCE_IMAGE;
        TRY(source_add_item(s, s->path, s->path, -1));
    } else if (is_text(b, n)) {
        s->kind = SOURCE_LIST;
        file_bytes_free(&file);
        TRY(file_read_whole(path, &file));
        TRY(list_add(s, path, file.data, file.n));
    } else {
        TRY(fail(CONR_EFORMAT, "%s: %s; see docs/images.md for what conr reads", path,
                 n ? "is not an image, IDX, .npy or a list of paths" : "is empty"));
    }
done:
    file_bytes_free(&file);
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
    case SOURCE_ARCHIVE: return "archive of images";
    case SOURCE_IMAGE: return "one image";
    }
    return "";
}

/* ---- opening --------------------------------------------------------------------------------- */

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
    bool several = false;
    TRY(source_new(path, out));
    TRY(keep_choice(out, o));
    bool there = stat(path, &at) == 0;
    if (!there) TRY(shards_add(out, o, &several));
    if (there && S_ISDIR(at.st_mode))
        TRY(open_folder(out, o, out->path, 0));
    else if (!several)
        TRY(open_file(out, o, out->path));
    out->words = kind_words(out->kind);
    if (o->coarse && out->kind != SOURCE_CIFAR100)
        TRY(fail(CONR_EINVAL, "%s: has no coarse labels, which only CIFAR-100 has; leave that out",
                 path));
    if (out->item) TRY(probe_all(out, o));
    if (out->n == 0) TRY(source_check_skipped(out));
done:
    if (rc < 0) source_close(out);
    return rc;
}
