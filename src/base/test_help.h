/* test_help.h: what every test program needs in addition to cmocka. */
#ifndef CONR_TEST_HELP_H
#define CONR_TEST_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* cmocka's fail() conflicts with ours in status.h. */
#undef fail
#undef fail_msg
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error("ERROR: " __VA_ARGS__);                                                        \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#include "base/status.h"

/* The call succeeds; else the test fails and shows the message. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) < 0) fail_msg("%s: %s", #call, conr_error());                                   \
    } while (0)

/* The call fails with this code, and the message contains this text. */
#define assert_fails(code, text, call) check_fails((call), code, text, #call, __FILE__, __LINE__)
void check_fails(int rc, int code, const char *text, const char *call, const char *file, int line);

/* |a - b| / |b| over n values (Euclidean norms); |a| if b is all zero.  NaN gives infinity. */
double relative_error(const float *a, const float *b, size_t n);

/* relative_error(a, b, n) <= bound, else the test fails and names `what`. */
#define assert_close(what, a, b, n, bound) check_close(what, a, b, n, bound, __FILE__, __LINE__)
void check_close(const char *what, const float *a, const float *b, size_t n, double bound,
                 const char *file, int line);

/* The path of a file in a fresh folder, which is made for this test program and removed at exit
 * (static memory, valid for the last four calls). */
const char *temporary_path(const char *name);

/* The path of a committed golden file (static memory, as above). */
const char *golden_path(const char *name);

/* Writes bytes to a file in the temporary folder and returns its path. */
const char *temporary_file(const char *name, const void *bytes, size_t n);

#endif
