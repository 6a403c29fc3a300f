/* status.h: how functions of conr fail.
 *
 * A function that can fail returns 0, or a negative CONR_E* code after it has set the thread's
 * message with fail().  A broken promise between our own functions is not a failure but a bug: it
 * is checked by ASSERT, in every build. */
#ifndef CONR_STATUS_H
#define CONR_STATUS_H

#include "conr.h"

/* Sets this thread's message, "WHAT: WHY; REMEDY" (no newline), and returns code. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* fail(CONR_ENOMEM, ...) for an allocation of `bytes` bytes. */
int fail_memory(const char *what, double bytes);

/* For functions with `int rc = 0;` and a label `done:` that frees everything and returns rc. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((rc = (call)) < 0) goto done;                                                          \
    } while (0)

#define ASSERT(promise)                                                                            \
    do {                                                                                           \
        if (!(promise)) assert_broken(#promise, __FILE__, __LINE__);                               \
    } while (0)

_Noreturn void assert_broken(const char *promise, const char *file, int line);

#endif
