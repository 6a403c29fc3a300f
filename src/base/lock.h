/* lock.h: one writer per folder.
 *
 * The lock is the kernel's (flock on FOLDER/.lock), so a process that is killed gives it up.  The
 * file says who holds it, for the message to the second; it is removed with the lock. */
#ifndef CONR_LOCK_H
#define CONR_LOCK_H

#include <stdbool.h>

typedef struct folder_lock {
    bool held;
    int fd;
    char *path; /* owned */
} folder_lock;

/* Fails if another process, or another lock of this one, holds it.  A file system without locks is
 * no failure: then out->held stays false. */
int folder_lock_take(const char *folder, folder_lock *out);
/* Before writing the file `path`: the lock of its folder if that contains a file named `mark`. */
int folder_lock_beside(const char *path, const char *mark, folder_lock *out);
void folder_lock_drop(folder_lock *l); /* also if it is not held; may be called twice */

#endif
