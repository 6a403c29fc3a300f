/* file.h: files read whole, and files replaced whole. */
#ifndef CONR_FILE_H
#define CONR_FILE_H

#include <stddef.h>
#include <stdio.h>

/* A read-only mapping of a whole file.  data is NULL for an empty file. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
} file_map;

int file_map_open(const char *path, file_map *out); /* refuses folders, pipes and devices */
void file_map_close(file_map *m);

/* A file written beside its final name and renamed once complete, so that a reader, a crash or a
 * full disk never meets half of it.  Use:
 *     file_new f;
 *     TRY(file_new_open(&f, path));
 *     fwrite(..., f.stream);              errors stay in the stream and are found by the commit
 *     TRY(file_new_commit(&f));           flush, sync, rename
 *   done: file_new_drop(&f);              removes what was not committed; else does nothing */
typedef struct file_new {
    FILE *stream;
    char *path, *temporary; /* owned */
} file_new;

int file_new_open(file_new *f, const char *path);
int file_new_commit(file_new *f);
void file_new_drop(file_new *f);

#endif
