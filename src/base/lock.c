/* lock.c: see lock.h. */
#include "base/lock.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int fail_held(const char *folder, int fd) {
    char host[256] = "";
    char text[300];
    long process = 0;
    ssize_t n = 0;
    /* between taking and signing it a moment passes */
    for (int i = 0; i < 20 && n <= 0; i++) {
        if (i) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        n = pread(fd, text, sizeof text - 1, 0);
    }
    text[n > 0 ? n : 0] = 0;
    if (sscanf(text, "%ld %255s", &process, host) < 1)
        return fail(CONR_EFILE, "%s: another process is writing into it; %s", folder,
                    "wait for it to end, or give another folder");
    return fail(CONR_EFILE, "%s: process %ld%s%s is writing into it; %s", folder, process,
                *host ? " on " : "", host, "wait for it to end, or give another folder");
}

/* Whether fd is still the file of that name: the last holder may have removed it meanwhile. */
static bool is_current(int fd, const char *path) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
}

static void sign(int fd) {
    char host[256] = "", text[300];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    /* on a full disk the message to others is less precise, nothing more */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0) return;
}

int folder_lock_take(const char *folder, folder_lock *out) {
    int rc = 0, fd = -1;
    size_t size = strlen(folder) + sizeof "/.lock";
    *out = (folder_lock){.path = malloc(size)};
    if (!out->path) TRY(fail_memory("lock", (double)size));
    snprintf(out->path, size, "%s/.lock", folder);
    do {
        if (fd >= 0) close(fd);
        fd = open(out->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            TRY(fail(CONR_EFILE, "%s: cannot be written: %s; check the folder", out->path,
                     strerror(errno)));
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            if (errno == EWOULDBLOCK) TRY(fail_held(folder, fd));
            unlink(out->path);
            goto done; /* no locks here */
        }
    } while (!is_current(fd, out->path));
    sign(fd);
    out->held = true;
    out->fd = fd;
    fd = -1;
done:
    if (fd >= 0) close(fd);
    if (!out->held) {
        free(out->path);
        out->path = NULL;
    }
    return rc;
}

int folder_lock_beside(const char *path, const char *mark, folder_lock *out) {
    int rc = 0;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    size_t size = (folder ? strlen(folder) : 0) + strlen(mark) + 2;
    char *marked = malloc(size);
    struct stat at;
    *out = (folder_lock){0};
    if (!folder || !marked) TRY(fail_memory("lock", (double)size));
    snprintf(marked, size, "%s/%s", folder, mark);
    if (stat(marked, &at) == 0) TRY(folder_lock_take(folder, out));
done:
    free(folder);
    free(marked);
    return rc;
}

void folder_lock_drop(folder_lock *l) {
    if (l->held) {
        unlink(l->path); /* while it is locked: whoever has opened it finds out, see is_current */
        close(l->fd);
    }
    free(l->path);
    *l = (folder_lock){0};
}
