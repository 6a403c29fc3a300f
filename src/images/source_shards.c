/* source_shards.c: several archives named at once, as WebDataset's users write them:
 * "shards/{000..012}.tar", "{train,val}.tar", "a.tar,b.tar". */
#include "images/archive.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096, MOST_BRACES = 8, MOST_SHARDS = 100000 };

typedef struct shards {
    source *s;
    const char **path; /* [n]; owned; the names are in the memory of the source */
    int64_t n, room;
} shards;

static int add_path(shards *l, const char *text, size_t n) {
    int rc = 0;
    if (l->n == MOST_SHARDS)
        TRY(fail(CONR_EINVAL, "%s: names more than 100,000 archives; give fewer", l->s->path));
    TRY(source_grow(&l->path, &l->room, l->n + 1, sizeof *l->path));
    char *path = arena_text(source_arena(l->s), text, n);
    if (!path) TRY(CONR_ENOMEM);
    l->path[l->n++] = path;
done:
    return rc;
}

/* "007..012": *low, *high, and the digits to write (1: as many as the number has). */
static bool is_range(const char *body, size_t n, long *low, long *high, int *digits) {
    size_t a = strspn(body, "0123456789"), b;
    if (a == 0 || a > 9 || strncmp(body + a, "..", 2)) return false;
    b = strspn(body + a + 2, "0123456789");
    if (b == 0 || b > 9 || a + 2 + b != n) return false;
    *low = strtol(body, NULL, 10), *high = strtol(body + a + 2, NULL, 10);
    bool padded = (a > 1 && *body == '0') || (b > 1 && body[a + 2] == '0');
    *digits = padded ? (int)(a > b ? a : b) : 1;
    return *low <= *high;
}

static int expand(shards *l, const char *text, int braces);

/* The text with its first brace, from `open` to `close`, replaced. */
static int replaced(shards *l, const char *text, const char *open, const char *close,
                    const char *with, int n, int braces) {
    char one[LONGEST];
    int length =
        snprintf(one, sizeof one, "%.*s%.*s%s", (int)(open - text), text, n, with, close + 1);
    if (length < 0 || length >= LONGEST)
        return fail(CONR_EINVAL, "%s: names a path of more than 4,096 bytes; shorten it",
                    l->s->path);
    return expand(l, one, braces + 1);
}

static int expand(shards *l, const char *text, int braces) {
    int rc = 0, digits = 1;
    long low = 0, high = 0;
    char number[16];
    const char *open = strchr(text, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!open) return add_path(l, text, strlen(text));
    size_t n = close ? (size_t)(close - open) - 1 : 0;
    bool range = n && is_range(open + 1, n, &low, &high, &digits);
    if (braces == MOST_BRACES || !close || memchr(open + 1, '{', n) ||
        (!range && !memchr(open + 1, ',', n)))
        TRY(fail(CONR_EINVAL,
                 "%s: has braces other than {00..12} and {a,b}, not nested and at most "
                 "8; correct them",
                 l->s->path));
    for (; range && low <= high; low++) {
        int length = snprintf(number, sizeof number, "%0*ld", digits, low);
        TRY(replaced(l, text, open, close, number, length, braces));
    }
    for (const char *at = open + 1; !range && at <= close;) {
        size_t length = strcspn(at, ",}");
        TRY(replaced(l, text, open, close, at, (int)length, braces));
        at += length + 1;
    }
done:
    return rc;
}

/* Commas outside of braces. */
static int split(shards *l, const char *text) {
    int rc = 0, depth = 0;
    char one[LONGEST];
    size_t n = 0;
    for (;; text++) {
        depth += (*text == '{') - (*text == '}');
        if (*text && (*text != ',' || depth > 0)) {
            if (n + 1 == sizeof one)
                TRY(fail(CONR_EINVAL, "%s: names a path of more than 4,096 bytes; shorten it",
                         l->s->path));
            one[n++] = *text;
            continue;
        }
        one[n] = 0;
        if (n) TRY(expand(l, one, 0));
        n = 0;
        if (!*text) break;
    }
done:
    return rc;
}

int shards_add(source *s, const source_options *o, bool *are) {
    int rc = 0;
    shards l = {.s = s};
    int64_t archives = 0, other = 0;
    *are = false;
    if (!strpbrk(s->path, "{,") ||
        !(strstr(s->path, ".tar") || strstr(s->path, ".tgz") || strstr(s->path, ".zip")))
        goto done;
    TRY(split(&l, s->path));
    for (int64_t i = 0; i < l.n; i++)
        if (name_is_archive(l.path[i]))
            archives++;
        else
            other = i;
    if (!archives) goto done; /* something else that is not there */
    if (archives < l.n)
        TRY(fail(CONR_EINVAL, "%s: is not an archive; name .tar or .zip files, or one source alone",
                 l.path[other]));
    *are = true;
    TRY(archives_add(s, o, l.path, (int)l.n));
done:
    free(l.path);
    return rc;
}
