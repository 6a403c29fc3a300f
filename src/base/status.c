/* status.c: the message of each thread, and the abort after a failed ASSERT. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char message[1024] = "no error";

int fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (char *c = message; *c; c++) /* file names may contain anything; a message is one line */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return code;
}

int fail_memory(const char *what, double bytes) {
    return fail(CONR_ENOMEM,
                "%s: not enough memory for %.1f MiB; close other programs or ask for less", what,
                bytes / (1 << 20));
}

const char *conr_error(void) { return message; }

const char *conr_error_text(int code) {
    switch (code) {
#define CONR_ERROR_TEXT(name, number, text)                                                        \
    case name: return text;
        CONR_ERRORS(CONR_ERROR_TEXT)
#undef CONR_ERROR_TEXT
    default: return code >= 0 ? "no error" : "unknown error";
    }
}

const char *conr_version(void) { return CONR_VERSION; }

void assert_broken(const char *promise, const char *file, int line) {
    fprintf(stderr, "conr: %s:%d: assertion failed: %s; this is a bug in conr, please report it\n",
            file, line, promise);
    abort();
}
