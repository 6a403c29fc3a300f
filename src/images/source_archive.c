/* source_archive.c: one or several archives as a SRC: their images in the order of folders, with the
 * classes that WebDataset's labels or the folders inside give. */
#include "images/archive.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static size_t part(const char *path) { return strcspn(path, "/"); }

/* As in a folder: at each level files before folders, each sorted by bytes. */
static int by_place(const void *x, const void *y) {
    const char *a = ((const packed_image *)x)->path, *b = ((const packed_image *)y)->path;
    for (;;) {
        size_t n = part(a), m = part(b);
        if (!a[n] != !b[m]) return a[n] ? 1 : -1;
        int order = strncmp(a, b, n < m ? n : m);
        if (order || n != m) return order ? order : n < m ? -1 : 1;
        if (!a[n]) return 0;
        a += n + 1, b += m + 1;
    }
}

static int by_archive_and_place(const void *x, const void *y) {
    int order = strcmp(((const packed_image *)x)->archive, ((const packed_image *)y)->archive);
    return order ? order : by_place(x, y);
}

static bool part_is(const char *path, const char *name) {
    size_t n = part(path);
    return path[n] && strlen(name) == n && !strncmp(path, name, n);
}

static const char *const splits[] = {"train", "val", "test"};
static bool is_split(const char *path) {
    return part_is(path, splits[0]) || part_is(path, splits[1]) || part_is(path, splits[2]);
}

/* The length of the folders that all images lie in, as an archive is often made of one. */
static size_t common_folder(const packed_list *l) {
    size_t skip = 0;
    for (int depth = 0; depth < 8; depth++) {
        const char *first = l->image[0].path + skip;
        size_t n = part(first);
        if (!first[n] || is_split(first)) return skip;
        for (int64_t i = 1; i < l->n; i++) {
            const char *other = l->image[i].path + skip;
            if (strncmp(first, other, n + 1)) return skip;
        }
        skip += n + 1;
    }
    return skip;
}

/* train/ and others beside each other, as for folders. */
static bool has_splits(const packed_list *l, size_t skip) {
    int64_t inside = 0;
    for (int64_t i = 0; i < l->n; i++) inside += is_split(l->image[i].path + skip);
    return inside == l->n;
}

static int add_one(source *s, const packed_image *m, const char *class) {
    int rc = 0;
    int label = class ? source_class(s, class, part(class)) : -1;
    if (m->label) label = source_class(s, m->label, strlen(m->label));
    if (label < -1) TRY(label);
    TRY(source_add_item(s, source_join(s, m->archive, m->path), m->archive, label));
    source_item *it = &s->item[s->n - 1];
    it->in = m->in, it->at = m->at, it->bytes = m->bytes;
done:
    return rc;
}

static int add_images(source *s, const source_options *o, const packed_list *l) {
    int rc = 0;
    size_t skip = common_folder(l);
    bool parts = has_splits(l, skip);
    if (o->split && !parts)
        TRY(fail(CONR_EINVAL, "%s: has no split '%s'; leave it out or name another", s->path,
                 o->split));
    for (int k = 0; k < (parts ? 3 : 1); k++)
        for (int64_t i = 0; i < l->n; i++) {
            const packed_image *m = &l->image[i];
            const char *inside = m->path + skip;
            if (parts && (!part_is(inside, splits[k]) || !split_wanted(o, splits[k]))) continue;
            if (parts) inside += part(inside) + 1;
            const char *class = inside[part(inside)] && !l->labels ? inside : NULL;
            if (o->classes && (!class || !class_listed(o->classes, class, part(class)))) continue;
            TRY(add_one(s, m, class));
        }
    if (o->split && s->n == 0)
        TRY(fail(CONR_EINVAL, "%s: has no split '%s'; leave it out or name another", s->path,
                 o->split));
done:
    return rc;
}

int archives_add(source *s, const source_options *o, const char *const *path, int n) {
    int rc = 0;
    packed_list l = {0};
    s->kind = SOURCE_ARCHIVE;
    for (int i = 0; i < n; i++) TRY(archive_list(s, o, path[i], &l));
    if (l.n == 0 && s->skipped == 0)
        TRY(fail(CONR_EFILE, "%s: contains no images; give an archive that does", s->path));
    if (l.n == 0) goto done;
    qsort(l.image, (size_t)l.n, sizeof *l.image, by_archive_and_place);
    int64_t kept = 0; /* of several files with one name the last counts, as if unpacked */
    for (int64_t i = 0; i < l.n; i++) {
        bool same = kept && !by_archive_and_place(&l.image[kept - 1], &l.image[i]);
        kept -= same;
        l.image[kept++] = l.image[i];
    }
    l.n = kept;
    TRY(add_images(s, o, &l));
    s->memory->numbers = l.labels > 0;
    if (!o->classes && !l.labels) source_forget_lone_class(s);
    TRY(source_sort_classes(s));
done:
    free(l.image);
    return rc;
}
