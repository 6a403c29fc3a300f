/* store_cache.c: decoded images in a file.
 *
 *     header (64 bytes), entries (24 bytes per image), pixels from the next multiple of 4096 on
 *
 * in the byte order of this machine: it is not an exchange format.  The space is allocated before
 * the first byte is written, so that a full disk is an error and not a signal. */
#include "images/store_cache.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct header {
    char magic[8];
    uint64_t key;
    uint64_t n, bytes;  /* images; bytes of their pixels */
    uint64_t entry_sum; /* of the entries */
    uint64_t channels;
    uint64_t unused, sum; /* sum: of the header up to here */
} header;

typedef struct entry {
    uint64_t at;   /* offset of the first byte in the file */
    uint64_t sum;  /* of its bytes */
    uint16_t w, h; /* as planned, even if bad */
    uint32_t bad;
} entry;

_Static_assert(sizeof(header) == 64 && sizeof(entry) == 24, "no padding in the file");

static const char magic[8] = {'c', 'o', 'n', 'r', 's', 't', '0', '1'};

enum { PAGE = 4096 };

static size_t pixels_at(uint64_t n) {
    return (sizeof(header) + n * sizeof(entry) + PAGE - 1) / PAGE * PAGE;
}

/* A checksum against damage, not against malice: eight bytes at a time, multiplied and folded. */
static uint64_t sum_of(const void *bytes, size_t n, uint64_t sum) {
    const unsigned char *p = bytes;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 29;
    }
    for (; n; n--, p++) sum = (sum ^ *p) * 0x100000001B3u;
    return sum ^ sum >> 32;
}

static uint64_t sum_text(const char *text, uint64_t sum) {
    return sum_of(text, strlen(text) + 1, sum);
}

static size_t image_bytes(const store *s, int64_t i) {
    return (size_t)s->image[i].w * s->image[i].h * (size_t)s->c;
}

/* ---- names and keys -------------------------------------------------------------------------- */

static int make_folders(char *path) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        *slash = '/';
        if (failed)
            return fail(CONR_EFILE, "%s: cannot be created: %s; give another folder for the cache",
                        path, strerror(errno));
    }
    return 0;
}

int cache_path(const source *s, const store_options *o, int channels, char *path, size_t size) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *real = realpath(s->path, NULL);
    int numbers[2] = {o->side, channels}, n;
    uint64_t name = sum_of(numbers, sizeof numbers, sum_text(real ? real : s->path, 1));
    name = sum_text(s->choice ? s->choice : "", name);
    free(real);
    if (o->folder)
        n = snprintf(path, size, "%s/", o->folder);
    else if (xdg && *xdg == '/')
        n = snprintf(path, size, "%s/conr/", xdg);
    else if (home && *home)
        n = snprintf(path, size, "%s/.cache/conr/", home);
    else
        n = snprintf(path, size, "/tmp/conr-%u/", (unsigned)getuid());
    if (n < 0 || (size_t)n + 32 >= size)
        return fail(CONR_EINVAL, "%s: the path of the cache is too long; give a shorter one",
                    s->path);
    int rc = make_folders(path);
    snprintf(path + n, size - (size_t)n, "images-%016llx", (unsigned long long)name);
    return rc;
}

uint64_t cache_key(const source *s, const store_options *o, int channels) {
    int64_t settings[3] = {o->side, channels, s->n};
    uint64_t sum = sum_of(settings, sizeof settings, 2);
    for (int64_t i = 0; s->item && i < s->n; i++) {
        uint64_t stamp[2] = {s->item[i].bytes, (uint64_t)s->item[i].time};
        sum = sum_of(stamp, sizeof stamp, sum_text(s->item[i].path, sum));
    }
    if (s->pick) sum = sum_of(s->pick, (size_t)s->n * sizeof *s->pick, sum);
    for (int b = 0; b < s->n_blocks; b++) {
        uint64_t stamp[2] = {s->block[b].bytes, (uint64_t)s->block[b].time};
        sum = sum_of(stamp, sizeof stamp, sum_text(s->block[b].path, sum));
    }
    return sum;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool header_fits(const header *h, size_t size, uint64_t key, const store *plan) {
    return !memcmp(h->magic, magic, sizeof magic) && h->key == key && h->n == (uint64_t)plan->n &&
           h->bytes == plan->bytes && h->channels == (uint64_t)plan->c &&
           h->sum == sum_of(h, offsetof(header, sum), 3) && size == pixels_at(h->n) + h->bytes;
}

static bool entries_fit(const unsigned char *map, size_t size, const header *h, const store *plan) {
    const entry *e = (const entry *)(map + sizeof *h);
    if (h->entry_sum != sum_of(e, h->n * sizeof *e, 4)) return false;
    for (int64_t i = 0; i < plan->n; i++)
        if (e[i].w != plan->image[i].w || e[i].h != plan->image[i].h || e[i].at > size ||
            size - e[i].at < image_bytes(plan, i))
            return false;
    return true;
}

static bool pixels_whole(const unsigned char *map, const store *plan, int threads) {
    const entry *e = (const entry *)(map + sizeof(header));
    int wrong = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : wrong) schedule(dynamic, 64)
    for (int64_t i = 0; i < plan->n; i++)
        wrong += !e[i].bad && e[i].sum != sum_of(map + e[i].at, image_bytes(plan, i), 5);
    return wrong == 0;
}

bool cache_find(const char *path, uint64_t key, int threads, store *out, unsigned char *bad) {
    file_map m;
    if (access(path, R_OK) || file_map_open(path, &m) < 0) return false;
    const header *h = (const header *)m.data;
    if (m.size < sizeof *h || !header_fits(h, m.size, key, out) ||
        !entries_fit(m.data, m.size, h, out) ||
        (threads > 0 && !pixels_whole(m.data, out, threads))) {
        file_map_close(&m);
        return false;
    }
    const entry *e = (const entry *)(m.data + sizeof *h);
    for (int64_t i = 0; i < out->n; i++) {
        out->image[i].pixels = m.data + e[i].at;
        bad[i] = e[i].bad != 0;
    }
    out->map = (void *)m.data;
    out->map_size = m.size;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

int cache_create(const char *path, const store *plan, cache_file *out) {
    int rc = 0;
    *out = (cache_file){0};
    TRY(file_new_open(&out->file, path));
    size_t size = pixels_at((uint64_t)plan->n) + plan->bytes;
    int fd = fileno(out->file.stream), error = posix_fallocate(fd, 0, (off_t)size);
    if (error)
        TRY(fail(CONR_EFILE, "%s: no room for %.1f GB of images: %s; %s", path, (double)size * 1e-9,
                 strerror(error), "free some space, or give another folder for the cache"));
    /* The stream is open only for writing, but a shared mapping needs both. */
    int both = open(out->file.temporary, O_RDWR | O_CLOEXEC);
    void *map =
        both < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
    if (both >= 0) close(both);
    if (map == MAP_FAILED)
        TRY(fail(CONR_EFILE, "%s: cannot be mapped: %s; give another folder for the cache", path,
                 strerror(errno)));
    out->map = map, out->size = size;
    out->pixels = out->map + pixels_at((uint64_t)plan->n);
done:
    if (rc < 0) cache_drop(out);
    return rc;
}

int cache_commit(cache_file *c, uint64_t key, int threads, const store *s,
                 const unsigned char *bad) {
    int rc = 0;
    header *h = (header *)c->map;
    entry *e = (entry *)(c->map + sizeof *h);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 64)
    for (int64_t i = 0; i < s->n; i++)
        e[i] = (entry){.at = (uint64_t)(s->image[i].pixels - c->map),
                       .sum = sum_of(s->image[i].pixels, image_bytes(s, i), 5),
                       .w = s->image[i].w,
                       .h = s->image[i].h,
                       .bad = bad[i]};
    *h = (header){.key = key,
                  .n = (uint64_t)s->n,
                  .bytes = s->bytes,
                  .entry_sum = sum_of(e, (size_t)s->n * sizeof *e, 4),
                  .channels = (uint64_t)s->c};
    memcpy(h->magic, magic, sizeof magic);
    h->sum = sum_of(h, offsetof(header, sum), 3);
    if (msync(c->map, c->size, MS_SYNC))
        TRY(fail(CONR_EFILE, "%s: cannot be written: %s; check the disk", c->file.path,
                 strerror(errno)));
    munmap(c->map, c->size);
    c->map = NULL;
    TRY(file_new_commit(&c->file));
done:
    cache_drop(c);
    return rc;
}

void cache_drop(cache_file *c) {
    if (c->map) munmap(c->map, c->size);
    c->map = NULL;
    file_new_drop(&c->file);
}
