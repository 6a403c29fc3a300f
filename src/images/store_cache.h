/* store_cache.h: the cache file behind store.h. */
#ifndef CONR_STORE_CACHE_H
#define CONR_STORE_CACHE_H

#include "base/file.h"
#include "images/store.h"

/* A cache file under construction, written through a mapping under a temporary name. */
typedef struct cache_file {
    file_new file;
    unsigned char *map, *pixels; /* pixels: [store's bytes] within the map */
    size_t size;
} cache_file;

/* The path of the cache file for a source and these settings; creates its folder. */
int cache_path(const source *s, const store_options *o, int channels, char *path, size_t size);
/* A key that changes if a name, size or time of the source files changes, or the settings. */
uint64_t cache_key(const source *s, const store_options *o, int channels);

/* Maps the file and points the images of the store into it, if it is complete and has this key;
 * bad: [n], as it was when the file was made.  threads: to verify all checksums; 0: trust them. */
bool cache_find(const char *path, uint64_t key, int threads, store *out, unsigned char *bad);

int cache_create(const char *path, const store *plan, cache_file *out);
int cache_commit(cache_file *c, uint64_t key, int threads, const store *s,
                 const unsigned char *bad);
void cache_drop(cache_file *c); /* removes the file if it was not committed */

#endif
