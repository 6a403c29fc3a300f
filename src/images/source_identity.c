/* source_identity.c: whether two SRC are the same images: by what they hold, not by how they are
 * spelled or when they were written. */
#include "images/source_forms.h"

#include "base/checksum.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART = 1 << 20 };

/* The path below the SRC, so that the SRC may be moved or spelled differently. */
static const char *relative(const source *s, const char *path) {
    size_t n = strlen(s->path);
    while (n > 1 && s->path[n - 1] == '/') n--;
    if (s->kind == SOURCE_IMAGE) return "";
    if (strncmp(path, s->path, n) || path[n] != '/') return path;
    for (path += n; *path == '/'; path++) {}
    return path;
}

/* buffer: [PART] */
static int sum_file(const char *path, unsigned char *buffer, uint64_t *sum) {
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && ((n = read(fd, buffer, PART)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) *sum = checksum(buffer, (size_t)n, *sum);
    int error = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && n == 0) return 0;
    return fail(CONR_EFILE, "%s: cannot be read: %s; is it still there?", path, strerror(error));
}

static int sum_items(const source *s, uint64_t most, uint64_t *sum) {
    int rc = 0;
    uint64_t total = 0;
    unsigned char *buffer = malloc(PART);
    if (!buffer) TRY(fail_memory("images", PART));
    for (int64_t i = 0; i < s->n; i++) total += s->item[i].bytes;
    int64_t every = 1 + (int64_t)(total / most);
    for (int64_t i = 0; i < s->n; i++) {
        const source_item *at = &s->item[i];
        const char *name = relative(s, at->path);
        *sum = checksum(name, strlen(name), *sum);
        *sum = checksum(&at->bytes, sizeof at->bytes, *sum);
        if (i % every) continue;
        if (!at->in) {
            TRY(sum_file(at->file, buffer, sum));
            continue;
        }
        file_bytes file = {0};
        rc = source_item_bytes(at, SIZE_MAX, &file);
        if (rc == 0) *sum = checksum(file.data, file.n, *sum);
        file_bytes_free(&file);
        TRY(rc);
    }
done:
    free(buffer);
    return rc;
}

static int sum_arrays(const source *s, uint64_t most, uint64_t *sum) {
    int rc = 0;
    size_t bytes = source_pixel_bytes(s);
    int64_t every = 1 + (int64_t)((uint64_t)s->n * bytes / most);
    unsigned char *pixels = malloc(bytes);
    if (!pixels) TRY(fail_memory("images", (double)bytes));
    *sum = checksum(&bytes, sizeof bytes, *sum);
    for (int64_t i = 0; i < s->n; i += every) {
        TRY(source_pixels(s, i, pixels));
        *sum = checksum(pixels, bytes, *sum);
    }
done:
    free(pixels);
    return rc;
}

int source_identity(const source *s, uint64_t most, uint64_t *out) {
    int rc = 0;
    *out = checksum(&s->n, sizeof s->n, 0);
    TRY(s->item ? sum_items(s, most, out) : sum_arrays(s, most, out));
done:
    return rc;
}
