/* store_cache.h: the cache file behind store.h. */
#ifndef CONR_STORE_CACHE_H
#define CONR_STORE_CACHE_H

#include "base/file.h"
#include "images/store.h"

/* A cache file being made: written through a mapping beside its final name. */
typedef struct cache_file {
    file_new file;
    unsigned char *map, *pixels; /* pixels: [store's bytes] within the map */
    size_t size;
} cache_file;

/* One file for a source and these settings; makes the folder. */
int cache_path(const source *s, const store_options *o, int channels, char *path, size_t size);
/* Changes when a name, size or time of the sources does, or what is made of them. */
uint64_t cache_key(const source *s, const store_options *o, int channels);

/* Maps the file and points the store's images into it, if it is whole and has this key; bad: [n],
 * as it was when the file was made.  threads: that check all sums; 0: trust the pixels. */
bool cache_find(const char *path, uint64_t key, int threads, store *out, unsigned char *bad);

int cache_create(const char *path, const store *plan, cache_file *out);
int cache_commit(cache_file *c, uint64_t key, int threads, const store *s,
                 const unsigned char *bad);
void cache_drop(cache_file *c); /* removes what was not committed; else does nothing */

#endif
