/* memory_test.c: the arena, spans, allocations that fail, and messages. */
#include "base/memory.h"
#include "base/test_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void arena_gives_zeroed_aligned_memory(void **state) {
    (void)state;
    arena a = {0};
    char *last = NULL;
    for (int i = 0; i < 1000; i++) {
        size_t n = (size_t)(i * 37 % 500) + 1;
        char *p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        assert_true(p != last);
        for (size_t j = 0; j < n; j++) assert_int_equal(p[j], 0);
        memset(p, 0xff, n); /* the sanitizers see whether it is ours */
        last = p;
    }
    char *large = arena_alloc(&a, 1 << 20);
    assert_non_null(large);
    memset(large, 1, 1 << 20);
    assert_string_equal(arena_text(&a, "hello, world", 5), "hello");
    arena_free(&a);
    assert_null(a.blocks);
    assert_non_null(arena_alloc(&a, 1)); /* usable again */
    arena_free(&a);
    arena_free(&a);
}

static void too_much_is_an_error(void **state) {
    (void)state;
    arena a = {0};
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_non_null(strstr(conr_error(), "not enough memory"));
    assert_null(memory_new("weights", SIZE_MAX / 2, 8));
    assert_non_null(strstr(conr_error(), "weights: not enough memory"));
    assert_null(memory_new("weights", (size_t)1 << 60, 1));
    void *nothing = memory_new("weights", 0, 4);
    assert_non_null(nothing);
    free(nothing);
}

static void spans_are_aligned_and_disjoint(void **state) {
    (void)state;
    size_t at = 0;
    assert_int_equal(span(&at, 5, sizeof(float)), 0);
    assert_int_equal(span(&at, 16, sizeof(float)), 16);
    assert_int_equal(span(&at, 1, sizeof(float)), 32);
    assert_int_equal(span(&at, 1, sizeof(float)), 48);
    assert_int_equal(at, 49);
}

static void codes_have_texts(void **state) {
    (void)state;
    assert_string_equal(conr_error_text(CONR_ENOMEM), "not enough memory");
    assert_string_equal(conr_error_text(0), "no error");
    assert_string_equal(conr_error_text(-99), "unknown error");
    assert_string_equal(conr_version(), CONR_VERSION);
    assert_int_equal(fail(CONR_EINVAL, "%s: %d", "x", 3), CONR_EINVAL);
    assert_string_equal(conr_error(), "x: 3");
    fail(CONR_EFILE, "%s: is odd", "a\nb\x1b[31m");
    assert_string_equal(conr_error(), "a?b?[31m: is odd"); /* one line, whatever a file is called */
}

/* A system as its files describe it. */
static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s", temporary_path(name));
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    temporary_file(name, text, strlen(text));
}

static void memory_at_hand_knows_containers(void **state) {
    enum { MIB = 1 << 20 };
    (void)state;
    assert_true(memory_at_hand_in(temporary_path("nothing")) == UINT64_MAX);
    put("a/proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n"
                          "SwapFree: 1048576 kB\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")) / MIB, 9216);
    /* version 2: "max" is no limit; the tightest group counts; the file cache is not in use */
    put("a/proc/self/cgroup", "0::/outer/inner\n");
    put("a/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("a/sys/fs/cgroup/outer/inner/memory.current", "1\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")) / MIB, 9216);
    put("a/sys/fs/cgroup/outer/memory.max", "2147483648\n");
    put("a/sys/fs/cgroup/outer/memory.current", "2147483648\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")), 0);
    put("a/sys/fs/cgroup/outer/memory.stat",
        "anon 5\ninactive_file 536870912\nactive_file 268435456\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")) / MIB, 768);
    put("a/sys/fs/cgroup/outer/inner/memory.max", "104857600\n"); /* tighter */
    put("a/sys/fs/cgroup/outer/inner/memory.current", "52428800\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")) / MIB, 50);
    put("a/proc/self/cgroup", "0::/\n"); /* as a container sees its own */
    put("a/sys/fs/cgroup/memory.max", "1073741824\n");
    put("a/sys/fs/cgroup/memory.current", "0\n");
    assert_int_equal(memory_at_hand_in(temporary_path("a")) / MIB, 1024);
    /* version 1 */
    put("b/proc/meminfo", "MemAvailable: 8388608 kB\n");
    put("b/proc/self/cgroup", "5:devices:/x\n4:memory:/job\n0::/\n");
    put("b/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(memory_at_hand_in(temporary_path("b")) / MIB, 8192);
    put("b/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    put("b/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "536870912\n");
    put("b/sys/fs/cgroup/memory/job/memory.stat", "cache 7\ntotal_inactive_file 268435456\n");
    assert_int_equal(memory_at_hand_in(temporary_path("b")) / MIB, 768);
}

/* A limit on data, as ulimit -d sets it: a large block is refused before it is taken. */
static void what_is_not_there_is_not_taken(void **state) {
    struct rlimit old;
    (void)state;
    void *block = memory_new("block", 96 << 20, 1);
    assert_non_null(block);
    free(block);
    getrlimit(RLIMIT_DATA, &old);
    struct rlimit small = {.rlim_cur = (rlim_t)256 << 20, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &small), 0);
    block = memory_new("block", 512 << 20, 1);
    int rc = memory_check("block", 1e9), little = memory_check("block", 1e6);
    setrlimit(RLIMIT_DATA, &old);
    assert_null(block);
    assert_int_equal(rc, CONR_ENOMEM);
    assert_int_equal(little, 0);
    assert_non_null(strstr(conr_error(), "are at hand"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(too_much_is_an_error),
        cmocka_unit_test(spans_are_aligned_and_disjoint),
        cmocka_unit_test(codes_have_texts),
        cmocka_unit_test(memory_at_hand_knows_containers),
        cmocka_unit_test(what_is_not_there_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
