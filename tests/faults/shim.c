/* shim.c: a preloaded library that makes one call fail, or ends the process at it.
 *
 *     FAULT_KIND    alloc, open, read, write, sync, rename, mmap, close, folder, or file (any but
 *                   alloc); unset: only count
 *     FAULT_N       the call to act on, from 1, counted from the start of main
 *     FAULT_ACT     an errno as a number; or kill (SIGKILL, in the middle of a write), stop
 *                   (SIGTERM, and the call goes on), or cut (somebody else truncates the file that is
 *                   read or mapped, to the middle of what was asked for)
 *     FAULT_STICKY  1: all later calls fail too, as on a full disk
 *     FAULT_UNDER   only files below this folder, and standard output, count
 *     FAULT_COUNTS  a file that holds the counts, as text, one fixed-width line a kind; kept in
 *                   shared memory, so it outlives a kill.  Its last lines: the files that were given
 *                   their name by rename without having been synced after their last write, and
 *                   when the first and the last rename were made, in microseconds
 *
 * The C library's streams do not call the public read() and write(), so streams are opened with
 * fopencookie on functions of ours: a failed read sets the error of the stream, as a bad disk does.
 * Nothing reaches the disk for certain: fsync only counts, which is much faster, and SIGKILL does
 * not empty the kernel's cache.
 *
 * Allocations of libgomp are left alone: it prints its own message and exits, which we cannot
 * prevent (docs/reliability.md).  With -DNO_ALLOC (sanitizers) allocations are not touched. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum kind { ALLOC, OPEN, READ, WRITE, SYNC, RENAME, MMAP, CLOSE, FOLDER, FILE_ANY, KINDS };
static const char *const names[KINDS] = {"alloc", "open",  "read",   "write", "sync", "rename",
                                         "mmap",  "close", "folder", "file"};
enum { LINE = 24, FDS = 4096, STREAMS = 256, FIRED = KINDS, UNSYNCED, BEGUN, ENDED, LINES };

enum { CUT = 1 << 20 }; /* among the errnos */
static bool started;
static int want = -1, act, sticky, under_length;
static long want_n;
static const char *under;
static char *counts;               /* shared, LINES lines */
static long count[KINDS];
static unsigned char marked[FDS];  /* 1: below `under`; 2: and written to */
static uintptr_t gomp_low, gomp_high;

/* The next definition of NAME, found once. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

static void put_count(int line, const char *name, long n) {
    char text[LINE + 1];
    if (!counts) return;
    for (int i = LINE - 2; i >= 8; i--, n /= 10) text[i] = n || i == LINE - 2 ? '0' + n % 10 : ' ';
    memset(text, ' ', 8);
    memcpy(text, name, strlen(name));
    text[LINE - 1] = '\n';
    memcpy(counts + line * LINE, text, LINE);
}

/* Counts a call; true if it must fail, with errno set. */
static bool hit_or_cut(enum kind k, bool *dies, bool *cut) {
    if (!started) return false;
    long n = __atomic_add_fetch(&count[k], 1, __ATOMIC_RELAXED);
    put_count(k, names[k], n);
    if (k != ALLOC) {
        long any = __atomic_add_fetch(&count[FILE_ANY], 1, __ATOMIC_RELAXED);
        put_count(FILE_ANY, names[FILE_ANY], any);
        if (want == FILE_ANY) n = any, k = FILE_ANY;
    }
    if ((int)k != want || (sticky ? n < want_n : n != want_n)) return false;
    if (act == CUT && !cut) return false;
    put_count(FIRED, "fired", n);
    if (act == -SIGTERM) {
        raise(SIGTERM);
        return false;
    }
    if (act == -SIGKILL) {
        if (dies) return *dies = true;
        raise(SIGKILL);
    }
    if (act == CUT) return *cut = true, false;
    errno = act;
    return true;
}

static bool hit(enum kind k, bool *dies) { return hit_or_cut(k, dies, NULL); }

/* Another program truncates the file at fd. */
static void cut_file(int fd, off_t length) {
    char path[64];
    int why = errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (truncate(path, length)) abort();
    errno = why;
}

/* ---- start ----------------------------------------------------------------------------------- */

static int find_gomp(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size, (void)user;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libgomp")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t high = low + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)) continue;
        gomp_low = low, gomp_high = high;
    }
    return 1;
}

static FILE *stream_on(int fd, const char *mode);

static void set_up(void) {
    const char *kind = getenv("FAULT_KIND"), *what = getenv("FAULT_ACT");
    const char *n = getenv("FAULT_N"), *path = getenv("FAULT_COUNTS");
    const char *forever = getenv("FAULT_STICKY");
    under = getenv("FAULT_UNDER");
    under_length = under ? (int)strlen(under) : 0;
    for (int i = 0; kind && i < KINDS; i++)
        if (!strcmp(kind, names[i])) want = i;
    want_n = n ? atol(n) : 0;
    sticky = forever && *forever == '1';
    act = !what ? EIO : !strcmp(what, "kill") ? -SIGKILL : !strcmp(what, "stop") ? -SIGTERM
        : !strcmp(what, "cut") ? CUT : atoi(what);
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0 && ftruncate(fd, LINES * LINE) == 0) {
        void *at = mmap(NULL, LINES * LINE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counts = at == MAP_FAILED ? NULL : at;
        for (int i = 0; i < KINDS; i++) put_count(i, names[i], 0);
        put_count(FIRED, "fired", 0);
        put_count(UNSYNCED, "unsynced", 0);
        put_count(BEGUN, "begun", 0);
        put_count(ENDED, "ended", 0);
    }
    if (fd >= 0) close(fd);
    dl_iterate_phdr(find_gomp, NULL);
    marked[1] = 2;
    FILE *out = stream_on(1, "w"); /* standard output can fail too; standard error tells of it */
    if (out) stdout = out;
    started = true;
}

static int (*real_main)(int, char **, char **);
static int our_main(int argc, char **argv, char **environment) {
    set_up();
    return real_main(argc, argv, environment);
}

int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv,
                      int (*begin)(int, char **, char **), void (*end)(void), void (*loader)(void),
                      void *stack) {
    __typeof__(&__libc_start_main) real;
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program;
    return real(our_main, argc, argv, begin, end, loader, stack);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#ifndef NO_ALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

static bool no_memory(void *caller) {
    if ((uintptr_t)caller >= gomp_low && (uintptr_t)caller < gomp_high) return false;
    return hit(ALLOC, NULL);
}
#define CALLER __builtin_return_address(0)

void *malloc(size_t size) { return no_memory(CALLER) ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return no_memory(CALLER) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { return no_memory(CALLER) ? NULL : __libc_realloc(p, size); }
void *memalign(size_t a, size_t size) { return no_memory(CALLER) ? NULL : __libc_memalign(a, size); }
void *aligned_alloc(size_t a, size_t size) {
    return no_memory(CALLER) ? NULL : __libc_memalign(a, size);
}
int posix_memalign(void **out, size_t a, size_t size) {
    if (no_memory(CALLER)) return ENOMEM;
    void *p = __libc_memalign(a, size);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}
#endif

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool counted(const char *path) {
    if (!started || !path) return false;
    return *path != '/' || !under_length || !strncmp(path, under, (size_t)under_length);
}

static bool is_marked(int fd) { return fd >= 0 && fd < FDS && marked[fd]; }

static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < FDS) marked[fd] = !counted(path) ? 0 : flags & (O_WRONLY | O_RDWR) ? 2 : 1;
    return fd;
}

static int our_open(int at, const char *path, int flags, mode_t mode) {
    REAL(openat);
    if (counted(path) && hit(OPEN, NULL)) return -1;
    return opened(real(at, path, flags, mode), path, flags);
}

#define MODE(flags, mode) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list args; \
        va_start(args, flags); \
        mode = (mode_t)va_arg(args, int); \
        va_end(args); \
    }
int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return our_open(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return our_open(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return our_open(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return our_open(at, path, flags, mode);
}

/* The middle of n bytes from `at` on, within the file. */
static off_t middle_of(int fd, off_t at, size_t n) {
    struct stat s;
    if (fstat(fd, &s) || at >= s.st_size) return at;
    return at + (off_t)(n < (size_t)(s.st_size - at) ? n : (size_t)(s.st_size - at)) / 2;
}

ssize_t read(int fd, void *to, size_t n) {
    REAL(read);
    bool cut = false;
    if (is_marked(fd) && hit_or_cut(READ, NULL, &cut)) return -1;
    if (cut) cut_file(fd, middle_of(fd, lseek(fd, 0, SEEK_CUR), n));
    return real(fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    REAL(pread);
    bool cut = false;
    if (is_marked(fd) && hit_or_cut(READ, NULL, &cut)) return -1;
    if (cut) cut_file(fd, middle_of(fd, at, n));
    return real(fd, to, n, at);
}
ssize_t pread64(int fd, void *to, size_t n, off_t at) { return pread(fd, to, n, at); }

/* Files closed with writes that no sync followed, by their inodes; the newest ones. */
static bool unsynced[FDS];
static ino_t careless[64];
static int n_careless;

static void note_close(int fd) {
    struct stat at;
    if (unsynced[fd] && fstat(fd, &at) == 0) careless[n_careless++ % 64] = at.st_ino;
    unsynced[fd] = false;
}

static void note_rename(const char *from) {
    static long n;
    struct stat at;
    for (int i = 0; i < 64 && stat(from, &at) == 0; i++)
        if (careless[i] == at.st_ino) put_count(UNSYNCED, "unsynced", ++n);
}

/* From the first rename on, and until the last, a process counts as a writer. */
static void note_time(bool ends) {
    static bool begun;
    struct timespec t;
    int why = errno;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (!begun) put_count(BEGUN, "begun", now);
    if (ends) put_count(ENDED, "ended", now);
    begun = true;
    errno = why;
}

ssize_t write(int fd, const void *from, size_t n) {
    REAL(write);
    bool dies = false;
    if (is_marked(fd)) unsynced[fd] = true;
    if (!is_marked(fd) || !hit(WRITE, &dies)) return real(fd, from, n);
    int why = errno;
    if (real(fd, from, n / 2) < 0) why = errno; /* as much as there was room for */
    if (dies) raise(SIGKILL);
    errno = why;
    return -1;
}

int fsync(int fd) {
    if (is_marked(fd) && hit(SYNC, NULL)) return -1;
    if (is_marked(fd)) unsynced[fd] = false;
    return 0;
}
int fdatasync(int fd) { return fsync(fd); }

int close(int fd) {
    REAL(close);
    bool ours = is_marked(fd), fails = ours && marked[fd] == 2 && hit(CLOSE, NULL);
    if (ours) note_close(fd), marked[fd] = 0;
    int why = errno, rc = real(fd); /* closed in any case, as Linux does */
    if (fails) errno = why;
    return fails ? -1 : rc;
}

static void *our_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    REAL(mmap);
    bool cut = false;
    if (is_marked(fd) && hit_or_cut(MMAP, NULL, &cut)) return MAP_FAILED;
    void *map = real(at, n, protection, flags, fd, offset);
    if (cut) cut_file(fd, 0); /* a page is the least that can be pulled away */
    return map;
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    return our_mmap(at, n, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    return our_mmap(at, n, protection, flags, fd, offset);
}

/* ---- streams --------------------------------------------------------------------------------- */

typedef struct cookie {
    FILE *stream;
    int fd;
} cookie;
static cookie cookies[STREAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t cookie_read(void *c, char *to, size_t n) { return read(((cookie *)c)->fd, to, n); }
static ssize_t cookie_write(void *c, const char *from, size_t n) {
    ssize_t done = write(((cookie *)c)->fd, from, n);
    return done < 0 ? 0 : done;
}
static int cookie_seek(void *c, off64_t *at, int whence) {
    *at = lseek(((cookie *)c)->fd, *at, whence);
    return *at < 0 ? -1 : 0;
}
static int cookie_close(void *p) {
    cookie *c = p;
    int fd = c->fd;
    pthread_mutex_lock(&lock);
    c->stream = NULL;
    pthread_mutex_unlock(&lock);
    return close(fd);
}

/* NULL, and fd left open, if there is no memory. */
static FILE *stream_on(int fd, const char *mode) {
    static const cookie_io_functions_t calls = {cookie_read, cookie_write, cookie_seek,
                                                cookie_close};
    FILE *stream = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STREAMS && !stream; i++) {
        if (cookies[i].stream) continue;
        cookies[i].fd = fd;
        stream = cookies[i].stream = fopencookie(&cookies[i], mode, calls);
        break;
    }
    pthread_mutex_unlock(&lock);
    return stream;
}

FILE *fopen(const char *path, const char *mode) {
    int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
    if (*mode == 'w') flags |= O_CREAT | O_TRUNC;
    if (*mode == 'a') flags |= O_CREAT | O_APPEND;
    if (strchr(mode, 'x')) flags |= O_EXCL;
    int fd = our_open(AT_FDCWD, path, flags | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : stream_on(fd, mode);
    if (fd >= 0 && !f) close(fd);
    return f;
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }
FILE *fdopen(int fd, const char *mode) { return stream_on(fd, mode); }

int fileno(FILE *f) {
    REAL(fileno);
    int fd = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STREAMS; i++)
        if (cookies[i].stream == f) fd = cookies[i].fd;
    pthread_mutex_unlock(&lock);
    return fd >= 0 ? fd : real(f);
}

/* ---- names and folders ----------------------------------------------------------------------- */

int rename(const char *from, const char *to) {
    REAL(rename);
    if (!counted(to)) return real(from, to);
    note_rename(from);
    if (hit(RENAME, NULL)) return -1;
    note_time(false);
    int rc = real(from, to);
    note_time(true);
    return rc;
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return counted(path) && hit(FOLDER, NULL) ? -1 : real(path, mode);
}

int symlink(const char *to, const char *path) {
    REAL(symlink);
    return counted(path) && hit(FOLDER, NULL) ? -1 : real(to, path);
}

DIR *opendir(const char *path) {
    REAL(opendir);
    return counted(path) && hit(FOLDER, NULL) ? NULL : real(path);
}

struct dirent *readdir(DIR *d) {
    REAL(readdir);
    return started && hit(FOLDER, NULL) ? NULL : real(d);
}
struct dirent64 *readdir64(DIR *d) { return (struct dirent64 *)readdir(d); }

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    return is_marked(fd) && hit(FOLDER, NULL) ? -1 : real(fd, length);
}
int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }
