/* file.h: files read whole, and files replaced whole. */
#ifndef CONR_FILE_H
#define CONR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A read-only mapping of a whole file.  data is NULL for an empty file.  If another program truncates
 * the file meanwhile, SIGBUS is raised: only for files of our own that are larger than memory (the
 * cache of images), and for tests. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
} file_map;

int file_map_open(const char *path, file_map *out); /* refuses folders, pipes and devices */
void file_map_close(file_map *m);

/* A file that is read in pieces, by any number of threads.  fd < 0: not open. */
typedef struct file_reader {
    int fd;
    size_t size; /* when it was opened */
} file_reader;

int file_reader_open(const char *path, file_reader *out); /* refuses folders, pipes and devices */
/* Exactly n bytes from `at` on, which lie within its size.  CONR_EFILE, with one line that names
 * `path`, also if it has become shorter. */
int file_reader_read(const file_reader *f, const char *path, size_t at, size_t n, void *to);
void file_reader_close(file_reader *f); /* may follow a failed open, and may be called twice */

/* A file, or its beginning, in memory.  Unlike a mapping, it cannot be pulled away by a program that
 * truncates the file meanwhile. */
typedef struct file_bytes {
    unsigned char *data; /* [n], then room for a NUL; owned */
    size_t n;
    size_t size; /* of the file when it was opened */
} file_bytes;

/* Reads the first `most` bytes, or all of a smaller file.  Refuses folders, pipes and devices.
 * *its_own (NULL: not wanted): whether a failure is about this one file, as in file_error_is_its_own. */
int file_read(const char *path, size_t most, file_bytes *out, bool *its_own);
/* All of a file; one that becomes shorter meanwhile is an error, not a shorter file. */
int file_read_whole(const char *path, file_bytes *out);
void file_bytes_free(file_bytes *b); /* may be called twice */

/* Whether nothing has this name, in contrast to something that cannot be read. */
bool file_is_gone(const char *path);

/* Whether an error of the system says something about this one file (it is missing, or may not be
 * read), not about the machine (no memory, no file handles, a failing disk). */
bool file_error_is_its_own(int error);

/* A file written under a temporary name and renamed once complete, so that no reader ever sees half
 * of it, not even after a crash or with a full disk.  Use:
 *     file_new f;
 *     TRY(file_new_open(&f, path));
 *     fwrite(..., f.stream);              errors stay in the stream; the commit reports them
 *     TRY(file_new_commit(&f));           flush, sync, rename
 *   done: file_new_drop(&f);              removes the file if it was not committed */
typedef struct file_new {
    FILE *stream;
    char *path, *temporary; /* owned */
} file_new;

int file_new_open(file_new *f, const char *path);
int file_new_commit(file_new *f);
void file_new_drop(file_new *f);

/* Removes the temporary files that writers left in this folder when they were killed: those of
 * processes that no longer exist on this machine.  For whoever holds the folder's lock. */
void file_new_clean(const char *folder);

#endif
