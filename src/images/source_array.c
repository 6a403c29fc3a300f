/* source_array.c: many images of one size in one file: CIFAR, STL-10, IDX, .npy.
 *
 * Images stay in their file and are read one at a time; only gzipped IDX files, and .npy arrays that
 * are not in C's order, take memory.  Every length is checked against the file before it is used. */
#include "images/source_forms.h"

#include "base/npy.h"
#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

/* All blocks of a source have one shape. */
static int set_shape(source *s, const char *path, int64_t h, int64_t w, int64_t c,
                     source_layout layout) {
    if (h < 1 || w < 1 || h > DECODE_SIDE || w > DECODE_SIDE || h * w > DECODE_PIXELS ||
        (c != 1 && c != 3))
        return fail(CONR_EFORMAT, "%s: images of %lld x %lld x %lld bytes; give [h,w] or [h,w,3]",
                    path, (long long)h, (long long)w, (long long)c);
    if (s->n_blocks && (s->w_low != w || s->h_low != h || s->gray != (c == 1)))
        return fail(CONR_EFORMAT,
                    "%s: its images differ in size from those in %s; give one at a time", path,
                    s->block[0].path);
    s->w_low = s->w_high = (int)w;
    s->h_low = s->h_high = (int)h;
    s->gray = c == 1;
    s->layout = layout;
    return 0;
}

static int fail_length(const char *path, size_t n, size_t unit, const char *what) {
    return fail(CONR_EFORMAT, "%s: has %zu bytes, not a multiple of a %s of %zu; was it cut short?",
                path, n, what, unit);
}

static int fail_split(const source *s, const char *split) {
    return fail(CONR_EINVAL, "%s: has no split '%s'; leave it out or name another", s->path, split);
}

/* ---- CIFAR ----------------------------------------------------------------------------------- */

int cifar_parse(source *s, const source_bytes *b, int label_bytes, int label_at, int n_classes) {
    enum { PIXELS = 32 * 32 * 3, AT_ONCE = 256 };
    int rc = 0;
    int32_t *labels = NULL;
    unsigned char *records = NULL;
    size_t record = (size_t)label_bytes + PIXELS, count = b->n / record;
    if (b->n == 0 || b->n % record) TRY(fail_length(b->path, b->n, record, "record"));
    TRY(set_shape(s, b->path, 32, 32, 3, LAYOUT_CHW));
    labels = memory_new("labels", count, sizeof *labels);
    records = memory_new("labels", AT_ONCE, record);
    if (!labels || !records) TRY(CONR_ENOMEM);
    for (size_t i = 0; i < count; i++) {
        if (i % AT_ONCE == 0) {
            size_t n = count - i < AT_ONCE ? count - i : AT_ONCE;
            TRY(source_bytes_read(b, i * record, n * record, records));
        }
        labels[i] = records[i % AT_ONCE * record + (size_t)label_at];
        if (labels[i] >= n_classes)
            TRY(fail(CONR_EFORMAT, "%s: record %zu has label %d of only %d; is it damaged?",
                     b->path, i, (int)labels[i], n_classes));
    }
    TRY(source_add_block(s, b, (size_t)label_bytes, record, (int64_t)count, labels));
done:
    free(labels);
    free(records);
    return rc;
}

static int cifar_file(source *s, const folder *root, const char *name, bool hundred, bool coarse) {
    int rc = 0;
    source_bytes b;
    char *path = source_join(s, root->path, name);
    if (!path) return CONR_ENOMEM;
    TRY(source_open_bytes(s, path, &b));
    TRY(hundred ? cifar_parse(s, &b, 2, coarse ? 0 : 1, coarse ? 20 : 100)
                : cifar_parse(s, &b, 1, 0, 10));
done:
    return rc;
}

int cifar_add(source *s, const source_options *o, const folder *root) {
    int rc = 0;
    bool hundred = s->kind == SOURCE_CIFAR100;
    const char *names = !hundred    ? "batches.meta.txt"
                        : o->coarse ? "coarse_label_names.txt"
                                    : "fine_label_names.txt";
    char *names_path = source_join(s, root->path, names);
    if (!names_path) TRY(CONR_ENOMEM);
    if (o->split && strcmp(o->split, "train") && strcmp(o->split, "test"))
        TRY(fail_split(s, o->split));
    TRY(source_class_names(s, names_path, !hundred ? 10 : o->coarse ? 20 : 100));
    for (int part = 0; part < 2; part++) { /* train files first */
        if (!split_wanted(o, part == 0 ? "train" : "test")) continue;
        for (int i = 0; i < root->n_files; i++) {
            const char *name = root->file[i];
            bool train = hundred ? !strcmp(name, "train.bin")
                                 : !strncmp(name, "data_batch_", 11) && name_ends(name, ".bin");
            bool test = !strcmp(name, hundred ? "test.bin" : "test_batch.bin");
            if (part == 0 ? train : test) TRY(cifar_file(s, root, name, hundred, o->coarse));
        }
    }
    if (!s->n) TRY(fail_split(s, o->split ? o->split : "train"));
done:
    return rc;
}

/* ---- STL-10 ---------------------------------------------------------------------------------- */

int stl_parse(source *s, const source_bytes *b, const unsigned char *labels, size_t n_labels) {
    enum { SIDE = 96, PIXELS = SIDE * SIDE * 3 };
    int rc = 0;
    int32_t *from_zero = NULL;
    const char *path = b->path;
    size_t count = b->n / PIXELS;
    if (b->n == 0 || b->n % PIXELS) TRY(fail_length(path, b->n, PIXELS, "image"));
    TRY(set_shape(s, path, SIDE, SIDE, 3, LAYOUT_CHW_COLUMNS));
    if (labels) {
        if (n_labels != count)
            TRY(fail(CONR_EFORMAT, "%s: has %zu images but %zu labels; was a file cut short?", path,
                     count, n_labels));
        from_zero = memory_new("labels", count, sizeof *from_zero);
        if (!from_zero) TRY(CONR_ENOMEM);
        for (size_t i = 0; i < count; i++) {
            from_zero[i] = labels[i] - 1; /* the files count from 1 */
            if (labels[i] < 1 || labels[i] > 10)
                TRY(fail(CONR_EFORMAT, "%s: image %zu has label %d, not 1 to 10; is it damaged?",
                         path, i, labels[i]));
        }
    }
    TRY(source_add_block(s, b, 0, PIXELS, (int64_t)count, from_zero));
done:
    free(from_zero);
    return rc;
}

int stl_add(source *s, const source_options *o, const folder *root) {
    static const char *const parts[][3] = {{"train", "train_X.bin", "train_y.bin"},
                                           {"test", "test_X.bin", "test_y.bin"},
                                           {"unlabeled", "unlabeled_X.bin", NULL}};
    int rc = 0;
    file_bytes y = {0};
    char *names = source_join(s, root->path, "class_names.txt");
    if (!names) TRY(CONR_ENOMEM);
    TRY(source_class_names(s, names, 10));
    for (int i = 0; i < 3; i++) {
        source_bytes x;
        if (!split_wanted(o, parts[i][0]) || !folder_has(root, parts[i][1])) continue;
        char *path = source_join(s, root->path, parts[i][1]);
        TRY(path ? source_open_bytes(s, path, &x) : CONR_ENOMEM);
        if (parts[i][2] && folder_has(root, parts[i][2])) {
            char *labels = source_join(s, root->path, parts[i][2]);
            TRY(labels ? source_uses(s, labels) : CONR_ENOMEM);
            TRY(file_read_whole(labels, &y));
        }
        TRY(stl_parse(s, &x, y.data, y.n));
        file_bytes_free(&y);
    }
    if (!s->n) TRY(fail_split(s, o->split ? o->split : "train"));
done:
    file_bytes_free(&y);
    return rc;
}

/* ---- IDX ------------------------------------------------------------------------------------- */

/* 0, 0, type, number of dimensions, the dimensions (big-endian), the elements. */
typedef struct idx {
    int n_dims;
    int64_t dim[4];
    source_bytes from; /* unpacked */
    size_t at;         /* of the elements in it */
} idx;

enum { IDX_UBYTE = 8, IDX_HEAD = 4 + 4 * 4 };

/* Reads the header; *need: the bytes that the whole file must have. */
static int idx_head(const char *path, const unsigned char *b, size_t n, idx *out, size_t *need) {
    if (n < 4 || b[0] || b[1])
        return fail(CONR_EFORMAT, "%s: is not an IDX file; see docs/images.md", path);
    if (b[2] != IDX_UBYTE || b[3] < 1 || b[3] > 4)
        return fail(CONR_EFORMAT,
                    "%s: is IDX of type %d with %d dimensions; give bytes in 1 to 4 dimensions",
                    path, b[2], b[3]);
    out->n_dims = b[3];
    size_t head = 4 + 4 * (size_t)out->n_dims, count;
    if (n < head) return fail(CONR_EFORMAT, "%s: ends within its header; was it cut short?", path);
    for (int i = 0; i < out->n_dims; i++) {
        const unsigned char *p = b + 4 + 4 * i;
        out->dim[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
    }
    if (!npy_count(out->dim, out->n_dims, 1, &count) || count > SIZE_MAX / 2)
        return fail(CONR_EFORMAT, "%s: its shape is larger than any memory; is it damaged?", path);
    *need = head + count;
    return 0;
}

/* Unpacks exactly as much as the packed header announces.  *out: owned by the source.  bytes: all of
 * the packed file. */
static int idx_unpack(source *s, const char *path, const unsigned char *bytes, size_t n,
                      const unsigned char **out, size_t *size) {
    int rc = 0, z_rc = Z_OK;
    idx head;
    unsigned char first[IDX_HEAD], *all = NULL;
    z_stream z = {.next_in = (unsigned char *)bytes, .next_out = first, .avail_out = IDX_HEAD};
    if (inflateInit2(&z, 15 + 16) != Z_OK) return fail_memory(path, 1 << 16);
    size_t left = n, have = 0;
    *size = IDX_HEAD;
    while (have < *size && z_rc == Z_OK) {
        size_t step = left < INT_MAX ? left : INT_MAX, room = *size - have;
        z.avail_in = (unsigned)step;
        z.avail_out = room < INT_MAX ? (unsigned)room : INT_MAX;
        unsigned asked = z.avail_out;
        z_rc = inflate(&z, Z_NO_FLUSH);
        left -= step - z.avail_in;
        have += asked - z.avail_out;
        if (asked == z.avail_out && step == z.avail_in) break; /* no progress: it ends here */
        if (all || (have < IDX_HEAD && z_rc == Z_OK)) continue;
        TRY(idx_head(path, first, have, &head, size));
        if (*size / 1100 > n) /* deflate packs at most 1032 bytes into one */
            TRY(fail(CONR_EFORMAT, "%s: claims %zu bytes in %zu; is it damaged?", path, *size, n));
        all = memory_new(path, *size < have ? have : *size, 1);
        if (!all) TRY(CONR_ENOMEM);
        memcpy(all, first, have);
        z.next_out = all + have;
    }
    if (!all || have < *size || z_rc < 0)
        TRY(fail(CONR_EFORMAT, "%s: its gzip data is truncated or damaged; download it again",
                 path));
    *out = all;
    *size = have;
    TRY(source_keep(s, all));
    all = NULL;
done:
    inflateEnd(&z);
    if (rc < 0 && all) free(all);
    return rc;
}

/* The packed file is read as a whole, and not kept. */
static int idx_unpack_file(source *s, const source_bytes *b, source_bytes *out) {
    int rc = 0;
    unsigned char *packed = memory_new(b->path, b->n, 1);
    *out = (source_bytes){.path = b->path};
    if (!packed) TRY(CONR_ENOMEM);
    TRY(source_bytes_read(b, 0, b->n, packed));
    TRY(idx_unpack(s, b->path, packed, b->n, &out->in_memory, &out->n));
done:
    free(packed);
    return rc;
}

static int idx_open(source *s, const source_bytes *b, idx *out) {
    int rc = 0;
    size_t need;
    unsigned char head[IDX_HEAD] = {0};
    out->from = *b;
    TRY(source_bytes_read(b, 0, b->n < IDX_HEAD ? b->n : IDX_HEAD, head));
    if (b->n >= 2 && head[0] == 0x1f && head[1] == 0x8b) {
        TRY(idx_unpack_file(s, b, &out->from));
        TRY(source_bytes_read(&out->from, 0, out->from.n < IDX_HEAD ? out->from.n : IDX_HEAD,
                              head));
    }
    TRY(idx_head(b->path, head, out->from.n, out, &need));
    if (out->from.n != need)
        TRY(fail(CONR_EFORMAT, "%s: has %zu bytes, expected %zu; was it cut short?", b->path,
                 out->from.n, need));
    out->at = 4 + 4 * (size_t)out->n_dims;
done:
    return rc;
}

int idx_parse(source *s, const source_bytes *images, const source_bytes *labels) {
    int rc = 0, most = -1;
    idx x, y;
    int32_t *label = NULL;
    unsigned char *bytes = NULL;
    TRY(idx_open(s, images, &x));
    if (x.n_dims < 3 || !x.dim[0])
        TRY(fail(CONR_EFORMAT,
                 "%s: has %d dimensions, which is not an array of images; give the images file",
                 images->path, x.n_dims));
    TRY(set_shape(s, images->path, x.dim[1], x.dim[2], x.n_dims == 4 ? x.dim[3] : 1, LAYOUT_HWC));
    if (labels) {
        TRY(idx_open(s, labels, &y));
        if (y.n_dims != 1 || y.dim[0] != x.dim[0])
            TRY(fail(CONR_EFORMAT,
                     "%s: has %lld labels for %lld images; do the files belong together?",
                     labels->path, (long long)y.dim[0], (long long)x.dim[0]));
        label = memory_new("labels", (size_t)y.dim[0], sizeof *label);
        bytes = memory_new("labels", (size_t)y.dim[0], 1);
        if (!label || !bytes) TRY(CONR_ENOMEM);
        TRY(source_bytes_read(&y.from, y.at, (size_t)y.dim[0], bytes));
        for (int64_t i = 0; i < y.dim[0]; i++) {
            label[i] = bytes[i];
            if (label[i] > most) most = label[i];
        }
    }
    size_t stride = (size_t)(x.dim[1] * x.dim[2]) * (x.n_dims == 4 ? (size_t)x.dim[3] : 1);
    TRY(source_add_block(s, &x.from, x.at, stride, x.dim[0], label));
    for (int i = s->n_classes; i <= most; i++) TRY(source_class_names(s, NULL, most + 1));
done:
    free(label);
    free(bytes);
    return rc;
}

/* "train-images-idx3-ubyte.gz" -> "train-labels-idx1-ubyte", with or without ".gz"; NULL if there
 * is none. */
static int idx_labels_of(source *s, const char *path, char **out) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *images = strstr(name, "images"), *three = images ? strstr(images, "idx3") : NULL;
    *out = NULL;
    if (!images) return 0;
    char *other = arena_alloc(source_arena(s), strlen(path) + 4);
    if (!other) return CONR_ENOMEM;
    strcpy(other, path);
    memcpy(other + (images - path), "labels", 6);
    if (three) other[three - path + 3] = '1';
    if (file_is_gone(other)) {
        if (name_ends(other, ".gz"))
            other[strlen(other) - 3] = 0;
        else
            strcat(other, ".gz");
    }
    if (!file_is_gone(other)) *out = other;
    return 0;
}

int idx_add_file(source *s, const char *path) {
    int rc = 0;
    source_bytes x, y;
    char *labels;
    TRY(idx_labels_of(s, path, &labels));
    TRY(source_open_bytes(s, path, &x));
    if (labels) TRY(source_open_bytes(s, labels, &y));
    TRY(idx_parse(s, &x, labels ? &y : NULL));
done:
    return rc;
}

/* Train files, then the others; of a file with and without .gz, only the plain one. */
int idx_add(source *s, const source_options *o, const folder *root) {
    int rc = 0;
    if (o->split && strcmp(o->split, "train") && strcmp(o->split, "test"))
        TRY(fail_split(s, o->split));
    for (int part = 0; part < 2; part++) {
        if (!split_wanted(o, part == 0 ? "train" : "test")) continue;
        for (int i = 0; i < root->n_files; i++) {
            const char *name = root->file[i];
            bool gz = name_ends(name, ".idx3-ubyte.gz") || name_ends(name, "-idx3-ubyte.gz");
            bool is = strstr(name, "images") && (gz || name_ends(name, "idx3-ubyte"));
            if (!is || !strncmp(name, "train", 5) != (part == 0)) continue;
            if (gz && i > 0 && !strncmp(name, root->file[i - 1], strlen(name) - 3)) continue;
            char *path = source_join(s, root->path, name);
            TRY(path ? idx_add_file(s, path) : CONR_ENOMEM);
        }
    }
    if (!s->n) TRY(fail_split(s, o->split ? o->split : "train"));
done:
    return rc;
}

/* ---- .npy ------------------------------------------------------------------------------------ */

/* Images in the bytes from `at` on. */
static int npy_take(source *s, const npy *a, const source_bytes *b, size_t at) {
    int rc = 0;
    if (a->kind != 'u' || a->size != 1)
        TRY(fail(CONR_EFORMAT, "%s: holds %s of %d bytes, images are uint8; convert it", b->path,
                 a->kind == 'f' ? "floats" : "integers", a->size));
    if ((a->n_dims != 3 && a->n_dims != 4) || !a->dim[0])
        TRY(fail(CONR_EFORMAT, "%s: has %d dimensions, images are [n,h,w] or [n,h,w,3]; reshape it",
                 b->path, a->n_dims));
    TRY(set_shape(s, b->path, a->dim[1], a->dim[2], a->n_dims == 4 ? a->dim[3] : 1, LAYOUT_HWC));
    TRY(source_add_block(s, b, at, a->count / (size_t)a->dim[0], a->dim[0], NULL));
done:
    return rc;
}

/* An array in memory, which the source takes over. */
static int npy_take_memory(source *s, const char *path, npy *a) {
    int rc = 0;
    source_bytes b = {.path = path, .in_memory = a->data, .n = a->count * (size_t)a->size};
    TRY(npy_take(s, a, &b, 0));
    a->data = NULL;
    TRY(source_keep(s, (void *)b.in_memory));
done:
    npy_free(a);
    return rc;
}

int npy_parse_images(source *s, const char *path, const unsigned char *bytes, size_t n) {
    npy a;
    int rc = npy_parse(path, bytes, n, &a);
    return rc < 0 ? rc : npy_take_memory(s, path, &a);
}

int npy_add_file(source *s, const char *path) {
    int rc = 0;
    npy a;
    source_bytes b;
    size_t at;
    TRY(source_open_bytes(s, path, &b));
    TRY(npy_head(&b.file, path, &a, &at));
    if (!at) {
        TRY(npy_read(path, &a));
        return npy_take_memory(s, path, &a);
    }
    TRY(npy_take(s, &a, &b, at));
done:
    return rc;
}
