/* memory.c: the arena and aligned host memory. */
#include "base/memory.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    bytes = (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    p = aligned_alloc(MEMORY_ALIGN, bytes ? bytes : MEMORY_ALIGN);
    if (!p) fail_memory(what, (double)bytes);
    return p;
}
