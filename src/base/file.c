/* file.c: reading or mapping a file, and replacing a file in one step.
 *
 * Owns the temporary name, the order flush - sync - rename, and the messages about system errors.
 * The formats are left to npy.c, tensors.c, csv.c and options_yaml.c.
 *
 * Whatever a user or another program may write to is read, not mapped: a mapped file that somebody
 * truncates raises SIGBUS, which would end a whole Python process. */
#include "base/file.h"

#include "base/memory.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *remedy(int error) {
    switch (error) {
    case ENOENT: return "is the path spelled right?";
    case EACCES:
    case EPERM: return "check its permissions";
    case ENOSPC:
    case EDQUOT: return "free some space or choose another disk";
    case EFBIG: return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE: return "raise the limit on open files (ulimit -n)";
    default: return "check the path and the disk";
    }
}

static int fail_system(const char *path, const char *what, int error) {
    return fail(CONR_EFILE, "%s: %s: %s; %s", path, what, strerror(error), remedy(error));
}

static int check_regular(const char *path, mode_t mode) {
    if (S_ISREG(mode)) return 0;
    return fail(CONR_EFILE, "%s: is %s, not a regular file; name a file", path,
                S_ISDIR(mode) ? "a folder" : "a pipe or a device");
}

/* O_NONBLOCK: or a pipe would wait for its writer */
enum { OPEN_TO_READ = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

int file_map_open(const char *path, file_map *out) {
    int rc = 0;
    struct stat s;
    *out = (file_map){0};
    int fd = open(path, OPEN_TO_READ);
    if (fd < 0 || fstat(fd, &s) < 0) TRY(fail_system(path, "cannot be read", errno));
    TRY(check_regular(path, s.st_mode));
    if (s.st_size > 0) {
        void *data = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) TRY(fail_system(path, "cannot be mapped", errno));
        *out = (file_map){data, (size_t)s.st_size};
    }
done:
    if (fd >= 0) close(fd);
    return rc;
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)m->data, m->size);
    *m = (file_map){0};
}

int file_reader_open(const char *path, file_reader *out) {
    int rc = 0;
    struct stat s;
    *out = (file_reader){.fd = open(path, OPEN_TO_READ)};
    if (out->fd < 0 || fstat(out->fd, &s) < 0) TRY(fail_system(path, "cannot be read", errno));
    TRY(check_regular(path, s.st_mode));
    out->size = (size_t)s.st_size;
done:
    if (rc < 0) file_reader_close(out);
    return rc;
}

static int fail_shorter(const char *path) {
    return fail(CONR_EFILE,
                "%s: became shorter while it was read; is another program writing it? Try again "
                "when that has ended",
                path);
}

int file_reader_read(const file_reader *f, const char *path, size_t at, size_t n, void *to) {
    while (n) {
        ssize_t got = pread(f->fd, to, n, (off_t)at);
        if (got == 0) return fail_shorter(path);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_system(path, "cannot be read", errno);
        to = (char *)to + got, at += (size_t)got, n -= (size_t)got;
    }
    return 0;
}

void file_reader_close(file_reader *f) {
    if (f->fd >= 0) close(f->fd);
    *f = (file_reader){.fd = -1};
}

bool file_is_gone(const char *path) {
    struct stat s;
    return stat(path, &s) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool file_error_is_its_own(int error) {
    switch (error) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: return true; /* a socket */
    default: return false;
    }
}

int file_read(const char *path, size_t most, file_bytes *out, bool *its_own) {
    int rc = 0, fd = -1;
    struct stat s;
    bool own = false;
    *out = (file_bytes){0};
    errno = 0;
    if ((fd = open(path, OPEN_TO_READ)) < 0 || fstat(fd, &s) < 0) {
        own = file_error_is_its_own(errno);
        TRY(fail_system(path, "cannot be read", errno));
    }
    if ((rc = check_regular(path, s.st_mode)) < 0) own = true;
    TRY(rc);
    out->size = (size_t)s.st_size;
    size_t want = out->size < most ? out->size : most;
    TRY(memory_check(path, (double)want));
    out->data = malloc(want + 1);
    if (!out->data) TRY(fail_memory(path, (double)want));
    for (ssize_t got = 1; got > 0 && out->n < want;) {
        got = read(fd, out->data + out->n, want - out->n);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            TRY(fail_system(path, "cannot be read", errno));
        else
            out->n += (size_t)got; /* fewer than there were: it has been cut short since */
    }
done:
    if (fd >= 0) close(fd);
    if (rc < 0) file_bytes_free(out);
    if (its_own) *its_own = own;
    return rc;
}

int file_read_whole(const char *path, file_bytes *out) {
    int rc = 0;
    TRY(file_read(path, SIZE_MAX, out, NULL));
    if (out->n < out->size) TRY(fail_shorter(path));
done:
    if (rc < 0) file_bytes_free(out);
    return rc;
}

void file_bytes_free(file_bytes *b) {
    free(b->data);
    *b = (file_bytes){0};
}

/* The length of the folder part of path, including its slash; 0 if it has none. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Not mkstemp: its files have mode 0600, and to fix that, one must read the umask, which means to
 * change it for a moment, also for all other threads.  open() with O_EXCL applies the umask. */
static int open_temporary(file_new *f) {
    size_t folder = folder_length(f->path), size = strlen(f->path) + 64;
    f->temporary = malloc(size);
    if (!f->temporary) return -1;
    int fd = -1;
    for (unsigned i = 0; fd < 0; i++) {
        /* 200 bytes of the name leave room for the rest within the usual 255. */
        snprintf(f->temporary, size, "%.*s.%.200s.%ld-%u.tmp", (int)folder, f->path,
                 f->path + folder, (long)getpid(), i);
        fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) break;
    }
    if (fd < 0) *f->temporary = 0; /* nothing of ours to remove */
    return fd;
}

int file_new_open(file_new *f, const char *path) {
    int rc = 0, fd = -1;
    struct stat old, link;
    *f = (file_new){0};
    if (!path[folder_length(path)])
        TRY(fail(CONR_EFILE, "%s: is not the name of a file; give one", *path ? path : "''"));
    bool exists = stat(path, &old) == 0;
    if (exists) TRY(check_regular(path, old.st_mode)); /* rename() would replace even /dev/null */
    /* A link is followed: the file that it points to is replaced, not the link. */
    bool is_link = exists && lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    f->path = is_link ? realpath(path, NULL) : strdup(path);
    if (!f->path || (fd = open_temporary(f)) < 0)
        TRY(fail_system(path, "cannot be written", errno));
    if (exists) fchmod(fd, old.st_mode & 0777); /* a private file stays private, if permitted */
    f->stream = fdopen(fd, "wb");
    if (!f->stream) TRY(fail_system(path, "cannot be written", errno));
    fd = -1;
done:
    if (fd >= 0) close(fd);
    if (rc < 0) file_new_drop(f);
    return rc;
}

/* After the rename the file is complete under its name, so a file system that cannot sync a folder
 * is no reason to fail. */
static void sync_folder_of(const char *path) {
    size_t n = folder_length(path);
    char *folder = n ? strndup(path, n) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

int file_new_commit(file_new *f) {
    int rc = 0;
    ASSERT(f->stream);
    if (ferror(f->stream)) /* the errno of that write is lost */
        TRY(fail(CONR_EFILE, "%s: a write failed; is the disk full, or the file too large for it?",
                 f->path));
    if (fflush(f->stream)) TRY(fail_system(f->path, "cannot be written", errno));
    /* EINVAL: a file system without fsync. */
    if (fsync(fileno(f->stream)) && errno != EINVAL)
        TRY(fail_system(f->path, "cannot be written", errno));
    FILE *stream = f->stream;
    f->stream = NULL; /* closed even if fclose fails */
    if (fclose(stream)) TRY(fail_system(f->path, "cannot be written", errno));
    if (rename(f->temporary, f->path)) TRY(fail_system(f->path, "cannot be replaced", errno));
    *f->temporary = 0; /* it has become the file */
    sync_folder_of(f->path);
done:
    file_new_drop(f);
    return rc;
}

void file_new_drop(file_new *f) {
    if (f->stream) fclose(f->stream);
    if (f->temporary && *f->temporary) unlink(f->temporary);
    free(f->temporary);
    free(f->path);
    *f = (file_new){0};
}

/* The process that made a temporary file, or 0 if the name is not one of ours: .NAME.PID-N.tmp */
static long writer_of(const char *name) {
    const char *end = strrchr(name, '.'), *dot = end;
    char *rest;
    if (*name != '.' || !end || end == name || strcmp(end, ".tmp")) return 0;
    while (dot > name && *--dot != '.') {}
    long process = strtol(dot + 1, &rest, 10);
    if (dot == name || rest == dot + 1 || *rest != '-' || process <= 0) return 0;
    strtol(rest + 1, &rest, 10);
    return rest == end ? process : 0;
}

void file_new_clean(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        long process = writer_of(e->d_name);
        if (process && kill((pid_t)process, 0) && errno == ESRCH) unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}
