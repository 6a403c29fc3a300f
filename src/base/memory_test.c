/* memory_test.c: the arena, spans, allocations that fail, and messages. */
#include "base/memory.h"
#include "base/test_help.h"

#include <stdlib.h>
#include <string.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(too_much_is_an_error),
        cmocka_unit_test(spans_are_aligned_and_disjoint),
        cmocka_unit_test(codes_have_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
