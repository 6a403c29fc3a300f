/* source.h: the images of a SRC, one by one.
 *
 * A SRC is recognized by its content: folders of images (decode.h); the binary files of
 * CIFAR-10, CIFAR-100 and STL-10; the folder of Tiny-ImageNet; IDX files, gzipped or not; .npy
 * arrays; a text file of paths; a single image.  The order of the images is always the same:
 * folders and files sorted by the bytes of their names, data sets with train first.
 * docs/images.md says how each form is recognized.
 *
 * Files whose header cannot be read are skipped and counted; more than 5 % of them are an error.  Files
 * that look like images of formats that conr does not read are counted as well, but do not add to
 * those 5 %: raw photos beside their JPEGs are no reason to stop. */
#ifndef CONR_SOURCE_H
#define CONR_SOURCE_H

#include "base/file.h"
#include "base/memory.h"
#include "images/decode.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum source_kind {
    SOURCE_FOLDER,
    SOURCE_CIFAR10,
    SOURCE_CIFAR100,
    SOURCE_STL10,
    SOURCE_TINY,
    SOURCE_IDX,
    SOURCE_NPY,
    SOURCE_LIST,
    SOURCE_ARCHIVE,
    SOURCE_IMAGE
} source_kind;

/* Long work reports its progress, from any thread but one at a time; a nonzero return value stops
 * it with CONR_ESTOPPED.  on: may be NULL. */
typedef struct progress {
    int (*on)(int64_t done, int64_t total, void *user);
    void *user;
} progress;

typedef struct source_options {
    const char *split;   /* "train", "val", "test", "unlabeled": only this part; NULL: all joined */
    bool coarse;         /* CIFAR-100's 20 superclasses as labels */
    const char *classes; /* "n02056570,n02085936": only these class folders; NULL: all */
    int threads;         /* that read headers; at least 1 */
    progress tell;
} source_options;

/* An image in a file of its own, or in an archive. */
typedef struct source_item {
    const char *path;              /* in messages and results */
    const char *file;              /* to open it, often the same; of an archive: the archive */
    const struct source_bytes *in; /* its bytes lie there; NULL: they are the file */
    uint64_t at;                   /* from here on, item.bytes of them */
    int32_t label;                 /* index into class_name, -1 unknown */
    uint16_t w, h;                 /* orientation applied */
    bool gray, bad;                /* bad: found unreadable */
    uint64_t bytes;                /* of the file */
    int64_t time;                  /* of its last change, nanoseconds */
} source_item;

/* The order of the bytes of an image in an array. */
typedef enum source_layout {
    LAYOUT_HWC,        /* as we store them */
    LAYOUT_CHW,        /* planes of rows: CIFAR */
    LAYOUT_CHW_COLUMNS /* planes of columns: STL-10 */
} source_layout;

/* The bytes of a file that holds an array: in memory, or read when they are needed. */
typedef struct source_bytes {
    const char *path;
    const unsigned char *in_memory; /* [n], not owned; NULL: in the file */
    file_reader file;               /* open as long as the source */
    size_t n;
} source_bytes;

/* Images of equal size in one file. */
typedef struct source_block {
    const char *name; /* of the file, without folders: items are called name#index */
    const char *path;
    source_bytes from;
    size_t at, stride; /* of the first byte of the first image; from image to image */
    int64_t first, n;  /* index of its first image in the source; number of images */
    uint64_t bytes;    /* of the file */
    int64_t time;      /* of its last change, nanoseconds */
} source_block;

enum { SOURCE_REASONS = 1000 }; /* messages kept about images that cannot be read */

/* The set of images.  Owns everything its fields point to; released by source_close. */
typedef struct source {
    source_kind kind;
    const char *path;
    const char *choice;  /* split and classes as text: together with path it identifies the set */
    const char *words;   /* "CIFAR-10 binary files" */
    int64_t n;           /* images whose headers can be read */
    int64_t skipped;     /* images that cannot be read */
    int64_t foreign;     /* of those: files that look like images which conr never reads */
    const char **reason; /* [n_reasons]: the messages about the first of those */
    int n_reasons;       /* at most SOURCE_REASONS */
    source_item *item;   /* [n]; NULL for arrays */
    source_block *block; /* [n_blocks]; NULL for files */
    int64_t *pick;       /* [n]: image i is the blocks' image pick[i]; NULL: i itself */
    int n_blocks;
    source_layout layout;             /* of all blocks */
    int32_t *label;                   /* [n] for arrays; files have theirs in item */
    const char **class_name;          /* [n_classes]; any bytes but NUL */
    int n_classes;                    /* 0: no labels */
    int w_low, w_high, h_low, h_high; /* the range of sizes */
    bool gray;                        /* every image is gray */
    struct source_memory *memory;
} source;

int source_open(const char *path, const source_options *o, source *out);
void source_close(source *s); /* may follow a failed open, and may be called twice */

/* The name of image i: a path, or "name#index".  buffer: used for the latter. */
const char *source_name(const source *s, int64_t i, char *buffer, size_t size);
int source_label(const source *s, int64_t i);
void source_size(const source *s, int64_t i, int *w, int *h);

/* The pixels of image i, channels 1 or 3; `least` as in decode().  May be called by many threads,
 * each with its own image.  CONR_EFORMAT: the image cannot be read; any other failure is not its
 * fault (memory, file handles, the disk). */
int source_read(const source *s, int64_t i, int channels, int least, image *out);

/* The bytes of an image as they are in its file or archive, or the first `most` of them.
 * CONR_EFORMAT: this one image cannot be read and counts as bad; any other failure is the machine's
 * and ends the work, as in source_read. */
int source_item_bytes(const source_item *it, size_t most, file_bytes *out);

/* A hash that tells whether two sets are the same images in the same order: their number; for files
 * the paths below the SRC, the sizes, and the bytes; for arrays the pixels.  If they
 * have more than `most` bytes, then those of every second, third, ... image, so that it stays
 * cheap.  Where the SRC is, how it is spelled, and times do not count. */
int source_identity(const source *s, uint64_t most, uint64_t *out);

/* Thins the labeled images out to a long tail: class c of C keeps the first f^(-c/(C-1)) of its
 * images, so the last class keeps 1/f; images without a label are removed.  f > 1. */
int source_thin(source *s, double f);

/* Whether writing to this path would replace a file of the source: an image, readable or not, an
 * array, its labels, a list. */
bool source_has_file(const source *s, const char *path);

/* The published constants if this is one of the paper's data sets; else false. */
bool source_known_norm(const source *s, float mean[3], float deviation[3]);

#endif
