/* source_forms.h: what source.c, source_open.c and source_classes.c share with each other and with
 * the files that read each form. */
#ifndef CONR_SOURCE_FORMS_H
#define CONR_SOURCE_FORMS_H

#include "images/source.h"

#include "base/file.h"

/* The names in a folder, sorted by bytes, without hidden ones. */
typedef struct folder {
    const char *path;
    const char **file, **sub; /* names of regular files, of folders; links are followed */
    int n_files, n_subs;
    int n_images; /* files whose names end like those of images */
    bool its_own; /* if it cannot be read: this folder is at fault, not the machine */
} folder;

int folder_read(source *s, const char *path, folder *out); /* in memory of the source */
bool folder_has(const folder *f, const char *file);
bool folder_has_sub(const folder *f, const char *sub);

/* Counts the files of a folder that are images, but not by a name that we read. */
int folder_look_at_others(source *s, const folder *f);

/* Counts a file in an archive by its name alone. */
int folder_look_at_name(source *s, const char *archive, const char *path);

bool name_is_image(const char *name);
bool name_ends(const char *name, const char *end); /* letters of either case */

/* Each form adds its items or blocks, labels and class names. */
int folder_add(source *s, const source_options *o, const folder *root, bool *found);
int tiny_add(source *s, const source_options *o, const folder *root);
int list_add(source *s, const char *path, const unsigned char *bytes, size_t n);
int cifar_add(source *s, const source_options *o, const folder *root);
int stl_add(source *s, const source_options *o, const folder *root);
int idx_add(source *s, const source_options *o, const folder *root);
int idx_add_file(source *s, const char *path);
int npy_add_file(source *s, const char *path);
int archives_add(source *s, const source_options *o, const char *const *path, int n);
/* Several archives by a pattern or a list; *are: whether the path of the source is one. */
int shards_add(source *s, const source_options *o, bool *are);

/* Labels of images that are in the set already, from metadata.csv or metadata.jsonl in a folder above
 * them; nothing if it has none. */
int metadata_add(source *s, const char *folder_path);
bool folder_has_metadata(const folder *f);

/* Their parsers, for files and for bytes in memory (which must outlive the source).
 * CIFAR: records of label_bytes labels, of which the one at label_at is used (below n_classes), and
 * 32 x 32 x 3 bytes.  STL: images without labels; labels: n_labels bytes 1 .. 10, or NULL. */
int cifar_parse(source *s, const source_bytes *b, int label_bytes, int label_at, int n_classes);
int stl_parse(source *s, const source_bytes *b, const unsigned char *labels, size_t n_labels);
int idx_parse(source *s, const source_bytes *images, const source_bytes *labels);
int metadata_parse(source *s, const char *path, const unsigned char *bytes, size_t n);
int npy_parse_images(source *s, const char *path, const unsigned char *bytes, size_t n);

/* ---- what they share ------------------------------------------------------------------------- */

/* What a source owns beside its fields. */
struct source_memory {
    arena texts;
    file_reader *file;
    void **kept;
    int n_files, n_kept;
    const char **used; /* files other than the items, in texts */
    int n_used;
    bool numbers; /* classes whose names are numbers keep them */
    int64_t items_room, labels_room;
    int classes_room, blocks_room;
    int *class_slot; /* hash of names: index + 1, 0 empty; [slots] */
    int slots;
};

int source_new(const char *path, source *out); /* empty */
arena *source_arena(source *s);
/* Makes room for `need` elements of `size` bytes in *array, doubling *room. */
int source_grow(void *array, int64_t *room, int64_t need, size_t size);
char *source_join(source *s, const char *folder, const char *name); /* NULL with the message set */
int source_open_bytes(source *s, const char *path, source_bytes *out); /* live as long as s */
int source_bytes_read(const source_bytes *b, size_t at, size_t n, void *to);
int source_uses(source *s, const char *path); /* remembers a file that is not an item */
int source_keep(source *s, void *memory); /* will be free()d with s; at once if this call fails */

/* The bytes of image i of an array, in its layout, as many as an image has.  CONR_EFILE: not the
 * fault of this one image. */
int source_pixels(const source *s, int64_t i, unsigned char *to);
size_t source_pixel_bytes(const source *s);

/* The number of the class with this name, or -1 for "".  Final only after source_sort_classes. */
int source_class(source *s, const char *name, size_t n);
int source_sort_classes(source *s);
/* Class names from a text file, one per line; their numbers if it has none. */
int source_class_names(source *s, const char *path, int n_classes);
int source_add_item(source *s, const char *path, const char *file, int label);
/* labels: [n] or NULL for unknown; copied */
int source_add_block(source *s, const source_bytes *from, size_t at, size_t stride, int64_t n,
                     const int32_t *labels);
int source_skip(source *s, const char *message); /* counts it and keeps the first messages */
/* Counts a file that looks like an image and is not read because of its format. */
int source_pass_over(source *s, const char *message);
int source_check_skipped(const source *s); /* fails if no image or more than 5 % were skipped */

/* A single class, perhaps with images beside its folder, means no labels. */
void source_forget_lone_class(source *s);
/* Whether a name of n bytes is one of the comma-separated words; a NULL list has all. */
bool class_listed(const char *list, const char *name, size_t n);
bool split_wanted(const source_options *o, const char *name);

#endif
