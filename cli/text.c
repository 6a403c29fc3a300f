/* text.c: names, numbers and times as text. */
#include "text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void print_name(const char *name) {
    for (; *name; name++) putchar(iscntrl((unsigned char)*name) ? '?' : *name);
}

const char *time_text(double seconds, char *out) {
    long s = seconds > 0 ? lround(fmin(seconds, 1e9)) : 0;
    if (seconds < 9.95)
        snprintf(out, 32, "%.1f s", seconds > 0 ? seconds : 0);
    else if (s < 100)
        snprintf(out, 32, "%ld s", s);
    else if (s < 100 * 60)
        snprintf(out, 32, "%ld min", (s + 30) / 60);
    else if (s < 48 * 3600)
        snprintf(out, 32, "%ld h %ld min", s / 3600, s % 3600 / 60);
    else
        snprintf(out, 32, "%ld d %ld h", s / 86400, s % 86400 / 3600);
    return out;
}

const char *rate_text(double rate, char *out) {
    if (rate < 1000)
        snprintf(out, 32, rate < 10 ? "%.1f" : "%.0f", rate);
    else
        snprintf(out, 32, rate < 1e5 ? "%.1fk" : "%.0fk", rate / 1000);
    return out;
}

static void *must(void *p) {
    if (p) return p;
    fputs("conr: a path: out of memory; close other programs\n", stderr);
    exit(EXIT_FAILURE);
}

char *shell_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,+@%:";
    char *out = must(malloc(4 * strlen(word) + 3)), *to = out;
    if (*word && strspn(word, plain) == strlen(word)) return strcpy(out, word);
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *word;
    }
    strcpy(to, "'");
    return out;
}

char *path_in(const char *folder, const char *name) {
    size_t n = strlen(folder);
    char *out = must(malloc(n + strlen(name) + 2));
    sprintf(out, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return out;
}
