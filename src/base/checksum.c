/* checksum.c: see checksum.h; github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
#include "base/checksum.h"

#include "base/file.h"
#include "base/status.h"

#include <inttypes.h>
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

uint64_t checksum(const void *bytes, size_t n, uint64_t seed) {
    const unsigned char *at = bytes;
    size_t left = n;
    uint64_t sum = seed + prime5;
    if (n >= 32) {
        uint64_t a = seed + prime1 + prime2, b = seed + prime2, c = seed, d = seed - prime1;
        for (; left >= 32; left -= 32, at += 32) {
            a = mix(a, word(at));
            b = mix(b, word(at + 8));
            c = mix(c, word(at + 16));
            d = mix(d, word(at + 24));
        }
        sum = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18);
        sum = merge(merge(merge(merge(sum, a), b), c), d);
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

/* "xxh64 DIGITS NAME" for a file as it is. */
static int line_of(const char *folder, const char *name, char *out, size_t size) {
    int rc = 0;
    char path[4096];
    file_bytes file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TRY(file_read_whole(path, &file));
    snprintf(out, size, "xxh64 %016" PRIx64 " %s\n", checksum(file.data, file.n, 0), name);
done:
    file_bytes_free(&file);
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
