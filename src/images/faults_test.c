/* faults_test.c: what is the fault of the machine is not blamed on an image: no memory, no file
 * handles, a failing disk; and a file that shrinks while it is being decoded.
 *
 * open, read and the allocators are replaced by ones that can be told to fail.  Sanitizers have
 * allocators of their own, so those cases are left out there. */
#include "images/source.h"

#include "base/file.h"
#include "base/test_help.h"
#include "images/decode.h"
#include "images/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
#elif defined(__has_feature)
#define OWN_ALLOCATOR (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define OWN_ALLOCATOR 1
#endif

/* ---- faults ---------------------------------------------------------------------------------- */

static int open_error, read_error;        /* errno of files named *.png or *.jpg; 0: none */
static int64_t allocations, fail_at = -1; /* the count so far, and which one fails */
static const char *shrink;                /* a file to empty at the next aligned allocation */

static bool is_image(const char *path) {
    size_t n = strlen(path);
    return n > 4 && (!strcmp(path + n - 4, ".png") || !strcmp(path + n - 4, ".jpg"));
}

static int image_file = -1; /* the last image that was opened */

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    int mode = flags & O_CREAT ? va_arg(list, int) : 0;
    va_end(list);
    if (open_error && is_image(path)) return errno = open_error, -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (is_image(path)) image_file = fd;
    return fd;
}

ssize_t read(int fd, void *to, size_t n) {
    if (read_error && fd == image_file) return errno = read_error, -1;
    return syscall(SYS_read, fd, to, n);
}

#if OWN_ALLOCATOR
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t align, size_t n);

static bool fails(void) { return fail_at >= 0 && allocations++ == fail_at; }

/* visible: the codecs are shared libraries */
#define SHARED __attribute__((visibility("default")))
SHARED void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
SHARED void *calloc(size_t count, size_t n) { return fails() ? NULL : __libc_calloc(count, n); }
SHARED void *realloc(void *old, size_t n) { return fails() ? NULL : __libc_realloc(old, n); }
SHARED void *aligned_alloc(size_t align, size_t n) {
    if (shrink) assert_int_equal(truncate(shrink, 0), 0), shrink = NULL;
    return fails() ? NULL : __libc_memalign(align, n);
}
#endif

/* ---- images ---------------------------------------------------------------------------------- */

static void put(const char *folder, const char *name, const char *golden) {
    char path[512];
    file_map m;
    snprintf(path, sizeof path, "images/%s", golden);
    assert_ok(file_map_open(golden_path(path), &m));
    mkdir(temporary_path(folder), 0777);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    temporary_file(path, m.data, m.size);
    file_map_close(&m);
}

static const source_options one = {.threads = 1};

static void a_failing_machine_ends_the_work(void **state) {
    static const struct {
        int *where, error;
        const char *says;
    } faults[] = {{&open_error, EMFILE, "ulimit -n"},
                  {&open_error, ENFILE, "ulimit -n"},
                  {&open_error, ENOMEM, "allocate memory"},
                  {&read_error, EIO, "Input/output error"}};
    source s;
    store st;
    store_options so = {.side = 32, .threads = 1, .place = STORE_MEMORY};
    (void)state;
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof name, "%02d.%s", i, i % 2 ? "png" : "jpg");
        put("many", name, i % 2 ? "rgb.png" : "rgb.jpg");
    }
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        *faults[f].where = faults[f].error; /* while headers are read */
        int rc = source_open(temporary_path("many"), &one, &s);
        *faults[f].where = 0;
        assert_true(rc < 0 && rc != CONR_EFORMAT);
        if (!strstr(conr_error(), faults[f].says) || strstr(conr_error(), "5 %"))
            fail_msg("not about the machine: %s", conr_error());
        assert_ok(source_open(temporary_path("many"), &one, &s));
        *faults[f].where = faults[f].error; /* while pixels are */
        rc = store_open(&s, &so, &st);
        *faults[f].where = 0;
        assert_true(rc < 0 && rc != CONR_EFORMAT);
        if (!strstr(conr_error(), faults[f].says)) fail_msg("not its words: %s", conr_error());
        assert_int_equal(s.skipped, 0);
        source_close(&s);
    }
    /* but what only this file has is this file's fault */
    put("many", "99.png", "rgb.png");
    assert_int_equal(truncate(temporary_path("many/99.png"), 40), 0);
    assert_ok(source_open(temporary_path("many"), &one, &s));
    assert_int_equal(s.n, 30);
    assert_int_equal(s.skipped, 1);
    source_close(&s);
}

#if OWN_ALLOCATOR
/* Fails every allocation of a decoding in turn: an image is whole or memory is short.  (Lossless
 * WebP is left out: libwebp 1.2 frees memory twice there.) */
static void no_memory_is_no_damage(void **state) {
    static const char *const names[] = {"rgb.png", "palette.png", "rgb.jpg", "progressive.jpg",
                                        "lossy.webp"};
    (void)state;
    int tried = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[256];
        file_map m;
        image whole = {0};
        snprintf(path, sizeof path, "images/%s", names[k]);
        assert_ok(file_map_open(golden_path(path), &m));
        assert_ok(decode(names[k], m.data, m.size, 3, 0, &whole));
        for (int at = 0;; at++) {
            image out = {0};
            allocations = 0, fail_at = at;
            int rc = decode(names[k], m.data, m.size, 3, 0, &out);
            fail_at = -1;
            bool reached = allocations > at;
            if (rc < 0 && rc != CONR_ENOMEM)
                fail_msg("%s, allocation %d: %s", names[k], at, conr_error());
            if (rc == 0)
                assert_memory_equal(out.pixels, whole.pixels, (size_t)whole.w * whole.h * 3);
            image_free(&out);
            if (!reached) break;
            tried++;
        }
        image_free(&whole);
        file_map_close(&m);
    }
    assert_true(tried > 30);
}

static void a_file_may_shrink(void **state) {
    char path[512];
    (void)state;
    image out = {0};
    source s;
    put("shrinks", "a.png", "rgb.png");
    put("shrinks", "b.jpg", "rgb.jpg");
    snprintf(path, sizeof path, "%s", temporary_path("shrinks/a.png"));
    assert_ok(source_open(temporary_path("shrinks"), &one, &s));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s", temporary_path(i ? "shrinks/b.jpg" : "shrinks/a.png"));
        image_free(&out);
        shrink = path;
        int rc = source_read(&s, i, 3, 0, &out); /* it was read before: no matter */
        assert_null(shrink);
        assert_true(rc == 0 || rc == CONR_EFORMAT);
        assert_fails(CONR_EFORMAT, "is empty", source_read(&s, i, 3, 0, &out));
    }
    image_free(&out);
    source_close(&s);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_machine_ends_the_work),
#if OWN_ALLOCATOR
        cmocka_unit_test(no_memory_is_no_damage),
        cmocka_unit_test(a_file_may_shrink),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
