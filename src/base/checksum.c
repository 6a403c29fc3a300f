/* checksum.c: see checksum.h; github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
#include "base/checksum.h"

#include "base/file.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they are");

static const uint64_t prime1 = 0x9E3779B185EBCA87u, prime2 = 0xC2B2AE3D27D4EB4Fu,
                      prime3 = 0x165667B19E3779F9u, prime4 = 0x85EBCA77C2B2AE63u,
                      prime5 = 0x27D4EB2F165667C5u;

static inline uint64_t turn(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t word(const unsigned char *at) {
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline uint64_t mix(uint64_t sum, uint64_t x) { return turn(sum + x * prime2, 31) * prime1; }

static inline uint64_t merge(uint64_t sum, uint64_t x) {
    return (sum ^ mix(0, x)) * prime1 + prime4;
}

/* The sums of all whole stripes of 32 bytes so far. */
typedef struct stripes {
    uint64_t a, b, c, d;
} stripes;

static stripes stripes_begin(uint64_t seed) {
    return (stripes){seed + prime1 + prime2, seed + prime2, seed, seed - prime1};
}

/* n: a multiple of 32 */
static void stripes_add(stripes *s, const unsigned char *at, size_t n) {
    uint64_t a = s->a, b = s->b, c = s->c, d = s->d;
    for (; n; n -= 32, at += 32) {
        a = mix(a, word(at));
        b = mix(b, word(at + 8));
        c = mix(c, word(at + 16));
        d = mix(d, word(at + 24));
    }
    *s = (stripes){a, b, c, d};
}

/* n: all bytes; the last n % 32 of them are at `at`. */
static uint64_t stripes_end(const stripes *s, const unsigned char *at, uint64_t n, uint64_t seed) {
    size_t left = n % 32;
    uint64_t sum = seed + prime5;
    if (n >= 32) {
        sum = turn(s->a, 1) + turn(s->b, 7) + turn(s->c, 12) + turn(s->d, 18);
        sum = merge(merge(merge(merge(sum, s->a), s->b), s->c), s->d);
    }
    sum += n;
    for (; left >= 8; left -= 8, at += 8) sum = turn(sum ^ mix(0, word(at)), 27) * prime1 + prime4;
    if (left >= 4) {
        uint32_t x;
        memcpy(&x, at, sizeof x);
        sum = turn(sum ^ x * prime1, 23) * prime2 + prime3;
        left -= 4, at += 4;
    }
    for (; left; left--, at++) sum = turn(sum ^ *at * prime5, 11) * prime1;
    sum = (sum ^ sum >> 33) * prime2;
    sum = (sum ^ sum >> 29) * prime3;
    return sum ^ sum >> 32;
}

uint64_t checksum(const void *bytes, size_t n, uint64_t seed) {
    stripes s = stripes_begin(seed);
    stripes_add(&s, bytes, n - n % 32);
    return stripes_end(&s, (const unsigned char *)bytes + (n - n % 32), n, seed);
}

int checksum_file(const char *path, size_t most, uint64_t *out) {
    enum { PART = 1 << 20 }; /* whole stripes */
    int rc = 0;
    file_reader file;
    stripes s = stripes_begin(0);
    unsigned char *part = malloc(PART);
    TRY(file_reader_open(path, &file));
    if (!part) TRY(fail_memory(path, PART));
    size_t n = file.size < most ? file.size : most, last = 0;
    for (size_t at = 0; at < n; at += last) {
        last = n - at < PART ? n - at : PART;
        TRY(file_reader_read(&file, path, at, last, part));
        stripes_add(&s, part, last - last % 32);
    }
    *out = stripes_end(&s, part + (last - last % 32), n, 0);
done:
    file_reader_close(&file);
    free(part);
    return rc;
}

/* "xxh64 DIGITS NAME" for a file as it is. */
static int line_of(const char *folder, const char *name, char *out, size_t size) {
    int rc = 0;
    char path[4096];
    uint64_t sum;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TRY(checksum_file(path, SIZE_MAX, &sum));
    snprintf(out, size, "xxh64 %016" PRIx64 " %s\n", sum, name);
done:
    return rc;
}

int checksum_line(FILE *list, const char *folder, const char *name) {
    char line[512];
    int rc = line_of(folder, name, line, sizeof line);
    if (rc == 0) fputs(line, list);
    return rc;
}

int checksum_check(const char *folder, const char *name, const char *list) {
    int rc = 0;
    char path[4096], line[512], want[512];
    snprintf(path, sizeof path, "%s/%s", folder, list);
    FILE *f = fopen(path, "r");
    if (!f && file_is_gone(path)) return 0;
    if (!f) return fail(CONR_EFILE, "%s: cannot be read; check the disk, and ulimit -n", path);
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(line), m = strlen(name);
        if (strncmp(line, "xxh64 ", 6) || n != 6 + 16 + 1 + m + 1 || strncmp(line + 23, name, m))
            continue;
        TRY(line_of(folder, name, want, sizeof want));
        if (strcmp(line, want))
            TRY(fail(CONR_EFORMAT,
                     "%s/%s: is damaged: it does not match its checksum; restore it, or remove it "
                     "from %s if it was edited",
                     folder, name, list));
    }
    if (ferror(f)) TRY(fail(CONR_EFILE, "%s: cannot be read; check the disk", path));
done:
    fclose(f);
    return rc;
}

int conr_check_file(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return checksum_check(slash == path ? "/" : folder, name, "DONE");
}
