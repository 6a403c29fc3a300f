/* memory.h: host memory.  A growing arena for small objects that are freed together (parsed files,
 * lists of layers); offsets from span() for blocks whose size is known before anything is
 * allocated; aligned arrays. */
#ifndef CONR_MEMORY_H
#define CONR_MEMORY_H

#include <stddef.h>

typedef struct arena {
    struct arena_block *blocks; /* owned; newest first */
} arena;

/* `bytes` zeroed bytes, aligned for any type, or NULL with the message set.  They live until
 * arena_free. */
void *arena_alloc(arena *a, size_t bytes);
/* A copy of text (n bytes, then a NUL), or NULL with the message set. */
char *arena_text(arena *a, const char *text, size_t n);
void arena_free(arena *a); /* all at once; the arena is empty and usable afterwards */

/* Alignment of every block in bytes: a cache line, and the widest vector. */
enum { MEMORY_ALIGN = 64 };

/* Reserves count elements of `size` bytes at *at and moves *at past them.  Returns the offset of
 * the first, in elements, aligned to MEMORY_ALIGN bytes. */
size_t span(size_t *at, size_t count, size_t size);

/* count * size aligned bytes, not zeroed, or NULL with the message set (also if the product
 * overflows); released by free(). */
void *memory_new(const char *what, size_t count, size_t size);

#endif
