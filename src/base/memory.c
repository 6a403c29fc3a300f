/* memory.c: the arena, aligned host memory, and how much of it there is. */
#include "base/memory.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

struct arena_block {
    struct arena_block *older;
    size_t used, size; /* of the bytes after this header */
    max_align_t bytes[];
};

void *arena_alloc(arena *a, size_t bytes) {
    size_t unit = sizeof(max_align_t);
    if (bytes > SIZE_MAX / 2) return fail_memory("arena", (double)bytes), NULL;
    size_t want = (bytes + unit - 1) / unit * unit;
    struct arena_block *b = a->blocks;
    if (!b || b->size - b->used < want) {
        size_t size = want > BLOCK_BYTES ? want : BLOCK_BYTES;
        b = calloc(1, sizeof *b + size);
        if (!b) return fail_memory("arena", (double)size), NULL;
        b->size = size;
        b->older = a->blocks;
        a->blocks = b;
    }
    void *p = (char *)b->bytes + b->used;
    b->used += want;
    return p;
}

char *arena_text(arena *a, const char *text, size_t n) {
    char *copy = arena_alloc(a, n + 1);
    if (copy) memcpy(copy, text, n);
    return copy;
}

void arena_free(arena *a) {
    while (a->blocks) {
        struct arena_block *older = a->blocks->older;
        free(a->blocks);
        a->blocks = older;
    }
}

size_t span(size_t *at, size_t count, size_t size) {
    size_t unit = MEMORY_ALIGN / size;
    ASSERT(unit > 0 && MEMORY_ALIGN % size == 0);
    size_t start = (*at + unit - 1) / unit * unit;
    *at = start + count;
    return start;
}

void *memory_new(const char *what, size_t count, size_t size) {
    size_t bytes;
    void *p = NULL;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - MEMORY_ALIGN)
        return fail_memory(what, (double)count * (double)size), NULL;
    if (memory_check(what, (double)bytes) < 0) return NULL;
    bytes = (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    p = aligned_alloc(MEMORY_ALIGN, bytes ? bytes : MEMORY_ALIGN);
    if (!p) fail_memory(what, (double)bytes);
    return p;
}

/* ---- how much there is ----------------------------------------------------------------------- */

enum { FILE_PATH = 1024, SMALL = 64 << 20 };

/* The number after `key` in a file, or the only one if key is ""; `otherwise` if there is none. */
static uint64_t number_in(const char *path, const char *key, uint64_t otherwise) {
    char line[256];
    uint64_t value = otherwise;
    size_t n = strlen(key);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && sscanf(line + n, "%" SCNu64, &value) == 1) break;
    if (f) fclose(f);
    return value;
}

/* What a cgroup has left: its limit less what is used, where the file cache, which makes room, does
 * not count.  folder: of the cgroup; the names of its files differ between versions 1 and 2. */
static uint64_t left_in_group(const char *folder, const char *limit_name, const char *used_name,
                              const char *prefix) {
    static const char *const cache[] = {"active_file ", "inactive_file "};
    char path[FILE_PATH], key[64];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    uint64_t limit = number_in(path, "", UINT64_MAX); /* "max": none */
    if (limit >= (uint64_t)INT64_MAX / 2) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, used_name);
    uint64_t used = number_in(path, "", 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, cache[i]);
        uint64_t cached = number_in(path, key, 0);
        used -= cached < used ? cached : used;
    }
    return limit > used ? limit - used : 0;
}

/* The least of the group at `path` below `mount` and of all groups around it. */
static uint64_t left_in_groups(const char *mount, char *path, bool second) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        char folder[FILE_PATH];
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        uint64_t left = second ? left_in_group(folder, "memory.max", "memory.current", "")
                               : left_in_group(folder, "memory.limit_in_bytes",
                                               "memory.usage_in_bytes", "total_");
        if (left < least) least = left;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

uint64_t memory_at_hand_in(const char *root) {
    char path[FILE_PATH], line[FILE_PATH];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t least = number_in(path, "MemAvailable:", UINT64_MAX >> 10) << 10;
    if (least >> 10 != UINT64_MAX >> 10)
        least += number_in(path, "SwapFree:", 0) << 10;
    else
        least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re"); /* lines such as "4:memory:/group" and "0::/group" */
    while (f && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        bool second = !names[1], first = !strcmp(names + 1, "memory");
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, first ? "/memory" : "");
        uint64_t left = first || second ? left_in_groups(path, group, second) : UINT64_MAX;
        if (left < least) least = left;
    }
    if (f) fclose(f);
    return least;
}

/* What ulimit leaves of the address space (-v), or of the data (-d). */
static uint64_t left_by_ulimit(void) {
    unsigned long long size = 0, data = 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), least = UINT64_MAX;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %*u %*u %*u %*u %llu", &size, &data) != 2) size = data = 0;
    if (f) fclose(f);
    for (int i = 0; i < 2; i++) {
        struct rlimit r;
        uint64_t used = page * (i ? data : size);
        if (getrlimit(i ? RLIMIT_DATA : RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY) continue;
        uint64_t left = r.rlim_cur > used ? r.rlim_cur - used : 0;
        if (left < least) least = left;
    }
    return least;
}

uint64_t memory_at_hand(void) {
    uint64_t a = memory_at_hand_in(""), b = left_by_ulimit();
    return a < b ? a : b;
}

int memory_check(const char *what, double bytes) {
    if (bytes < SMALL) return 0;
    double left = (double)memory_at_hand();
    if (bytes <= left) return 0;
    return fail(CONR_ENOMEM,
                "%s: not enough memory for %.1f MiB, %.1f MiB are at hand; close other programs or "
                "ask for less",
                what, bytes / (1 << 20), left / (1 << 20));
}
