/* memory.h: host memory.  A growing arena for small objects that are freed together (parsed files,
 * lists of layers); offsets from span() for blocks whose size is known before anything is
 * allocated; aligned arrays. */
#ifndef CONR_MEMORY_H
#define CONR_MEMORY_H

#include <stddef.h>
#include <stdint.h>

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
 * overflows, or if it is large and more than there is); released by free(). */
void *memory_new(const char *what, size_t count, size_t size);

/* Bytes of memory that this process could still take: what the kernel calls available, within the
 * limits of its cgroups (a container's) and of ulimit; UINT64_MAX if none of that is known. */
uint64_t memory_at_hand(void);
/* The same for a system whose files are below `root` ("": this one), without ulimit. */
uint64_t memory_at_hand_in(const char *root);

/* Fails if `bytes` are more than memory_at_hand.  malloc rarely does: Linux promises memory that it
 * does not have and ends the process when it is used.  So whatever a file may claim is checked here
 * before it is taken.  Small blocks always pass. */
int memory_check(const char *what, double bytes);

#endif
