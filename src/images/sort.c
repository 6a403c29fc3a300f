/* sort.c: puts images into one folder per cluster, as links, copies or, from arrays, PNG files.
 *
 * Everything is made in a temporary folder, which is renamed at the end, so that a failure, a full
 * disk or Ctrl-C leaves nothing behind. */
#include "base/memory.h"
#include "base/status.h"
#include "context/context.h"
#include "images/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, TAKEN = 100 }; /* bytes of a path; names to try if one is taken */

static int fail_file(const char *path) {
    return fail(CONR_EFILE,
                "%s: cannot be written: %s; check the folder and the free space on the disk", path,
                strerror(errno));
}

/* Whether a folder can be made beside this one, where the sorted images are collected before they
 * get their name: tried in the nearest folder above it that exists.  Permissions alone would not
 * tell: a file system may be read-only or full. */
static int try_beside(const char *folder) {
    static const char probe[] = "/.conr-XXXXXX";
    char path[PATH];
    struct stat at;
    size_t n = strlen(folder);
    if (n + sizeof probe + 2 > sizeof path)
        return fail(CONR_EINVAL, "folder: its name has %zu bytes; give a shorter one", n);
    snprintf(path, sizeof path, "%s", folder);
    do { /* cut off the last part */
        while (n > 0 && path[n - 1] == '/') n--;
        while (n > 0 && path[n - 1] != '/') n--;
        while (n > 1 && path[n - 1] == '/') n--;
        path[n] = 0;
    } while (n > 1 && stat(path, &at) < 0 && errno == ENOENT);
    strcpy(path + n, n ? probe : "./.conr-XXXXXX");
    if (!mkdtemp(path)) return fail_file(folder);
    rmdir(path);
    return 0;
}

/* The folder may be empty or missing. */
int conr_sort_check(const char *folder) {
    int rc = 0;
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT) return try_beside(folder);
    if (!d)
        return fail(CONR_EFILE, "%s: %s; give a folder that is empty or does not exist", folder,
                    strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            rc = fail(CONR_EFILE, "%s: is not empty; give a folder that is empty or does not exist",
                      folder);
    closedir(d);
    return rc < 0 ? rc : try_beside(folder);
}

/* ---- one image ------------------------------------------------------------------------------- */

/* How an image is put under a name; fails with EEXIST in errno if the name is taken. */
typedef struct placing {
    const source *from;
    bool copy;
    image pixels; /* reused */
} placing;

/* *copied: how many there were */
static int copy_bytes(int in, int out, off_t *copied) {
    char buffer[1 << 16];
    *copied = 0;
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) != 0; *copied += n) {
        if (n < 0) return -1;
        for (ssize_t done = 0, part; done < n; done += part)
            if ((part = write(out, buffer + done, (size_t)(n - done))) < 0) return -1;
    }
    return 0;
}

/* Copies content and time of the last change. */
static int copy_file(const char *from, const char *to) {
    struct stat at = {0};
    off_t copied = 0;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0 || fstat(in, &at)) {
        int why = errno;
        if (in >= 0) close(in);
        return fail(CONR_EFILE, "%s: cannot be read: %s; is it still there?", from, strerror(why));
    }
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), rc = out < 0 ? -1 : 0;
    if (rc == 0) rc = copy_bytes(in, out, &copied);
    if (rc == 0) futimens(out, (struct timespec[]){at.st_atim, at.st_mtim}); /* may fail */
    if (out >= 0 && close(out)) rc = -1;
    int why = errno;
    close(in);
    errno = why;
    if (rc == 0 && copied < at.st_size)
        return fail(CONR_EFILE, "%s: became shorter while it was copied; is it being written?",
                    from);
    return rc < 0 ? fail_file(to) : 0;
}

static int write_png(const image *m, const char *to) {
    FILE *f = fopen(to, "wxb");
    if (!f) return fail_file(to);
    png_image p = {.version = PNG_IMAGE_VERSION,
                   .width = (png_uint_32)m->w,
                   .height = (png_uint_32)m->h,
                   .format = m->c == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    errno = 0;
    int written = png_image_write_to_stdio(&p, f, 0, m->pixels, 0, NULL);
    if (fclose(f)) written = 0;
    if (written) return 0;
    if (errno) return fail_file(to);
    return fail(CONR_EFILE, "%s: cannot be written: %s; check the disk", to, p.message);
}

/* An image of an archive, as it is there. */
static int write_item(const source_item *it, const char *to) {
    file_bytes bytes = {0};
    int rc = source_item_bytes(it, SIZE_MAX, &bytes);
    FILE *f = rc == 0 ? fopen(to, "wxb") : NULL;
    if (rc == 0 && !f) rc = fail_file(to);
    bool whole = f && fwrite(bytes.data, 1, bytes.n, f) == bytes.n;
    if (f && (fclose(f) || !whole)) rc = fail_file(to);
    file_bytes_free(&bytes);
    return rc;
}

/* The link stays valid if the folder is moved, so it has the absolute path. */
static int link_file(const char *from, const char *to) {
    char whole[PATH];
    if (!realpath(from, whole))
        return fail(CONR_EFILE, "%s: cannot be read: %s; is it still there?", from,
                    strerror(errno));
    return symlink(whole, to) ? fail_file(to) : 0;
}

static int place_image(placing *p, int64_t i, const char *to) {
    const source *s = p->from;
    errno = 0;
    if (!s->item) return write_png(&p->pixels, to);
    if (s->item[i].in) return write_item(&s->item[i], to); /* nothing to link to */
    return p->copy ? copy_file(s->item[i].file, to) : link_file(s->item[i].file, to);
}

/* The name of image i in its folder: "IMG_1.jpg", or "batch-00017.png"; returns where its ending
 * begins. */
static size_t name_of(const source *s, int64_t i, char out[PATH]) {
    char full[PATH];
    const char *name = source_name(s, i, full, sizeof full);
    if (!s->item) {
        const char *number = strrchr(name, '#');
        snprintf(out, PATH, "%.*s-%05lld.png", (int)strcspn(name, ".#"), name,
                 number ? atoll(number + 1) : (long long)i);
        return strlen(out) - 4;
    }
    const char *slash = strrchr(name, '/');
    snprintf(out, PATH, "%s", slash ? slash + 1 : name);
    const char *dot = strrchr(out, '.');
    return dot && dot != out ? (size_t)(dot - out) : strlen(out);
}

/* Images of different folders may share a name: the later ones get their index added. */
static int place(placing *p, int64_t i, const char *folder) {
    int rc = 0;
    char name[PATH], to[2 * PATH];
    size_t stem = name_of(p->from, i, name);
    if (!p->from->item) TRY(source_read(p->from, i, p->from->gray ? 1 : 3, 0, &p->pixels));
    for (int attempt = 0; attempt < TAKEN; attempt++) {
        if (attempt == 0)
            snprintf(to, sizeof to, "%s/%s", folder, name);
        else if (attempt == 1)
            snprintf(to, sizeof to, "%s/%.*s-%lld%s", folder, (int)stem, name, (long long)i,
                     name + stem);
        else
            snprintf(to, sizeof to, "%s/%.*s-%lld-%d%s", folder, (int)stem, name, (long long)i,
                     attempt, name + stem);
        rc = place_image(p, i, to);
        if (rc == 0 || errno != EEXIST) break;
    }
done:
    return rc;
}

/* ---- all images ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *at, int type, struct FTW *where) {
    (void)at, (void)type, (void)where;
    remove(path);
    return 0;
}

static int digits_of(int K) {
    int digits = 2;
    for (int most = 100; K > most && digits < 9; most *= 10) digits++;
    return digits;
}

/* The name of a cluster's folder: somebody's name without what a file name cannot hold, which does
 * not begin with a dot and is not taken by another; else its number. */
static void folder_of(const char *const *names, int clusters, int k, char *out, size_t size) {
    static const char *const marks[] = {"outliers", "wrong"};
    int digits = digits_of(clusters);
    const char *name = k < 0 ? marks[-1 - k] : names ? names[k] : NULL;
    bool taken = k >= 0 && name && (!strcmp(name, marks[0]) || !strcmp(name, marks[1]));
    if (!name || !*name) {
        snprintf(out, size, "cluster-%0*d", digits, k);
        return;
    }
    for (int j = 0; j < k && !taken; j++) taken = names[j] && !strcasecmp(names[j], name);
    snprintf(out, size, "%.200s", name);
    if (k >= 0 && !strncmp(name, "cluster-", 8)) taken = true;
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < 32 || strchr("/\\:*?\"<>|", *at) || (at == out && *at == '.'))
            *at = '_', taken = taken || k >= 0;
    if (taken) snprintf(out + strlen(out), size - strlen(out), "-%0*d", digits, k);
}

int conr_sort_images(conr *c, conr_images *m, const int32_t *labels, int64_t n, int clusters,
                     const char *folder, int copy) {
    return conr_sort_named(c, m, labels, n, NULL, clusters, folder, copy);
}

int conr_sort_named(conr *c, conr_images *m, const int32_t *labels, int64_t n,
                    const char *const *names, int clusters, const char *folder, int copy) {
    int rc = 0;
    const source *s = &m->source;
    placing p = {.from = s, .copy = copy != 0};
    char final[PATH - 64], fresh[PATH] = "", inside[PATH + 300];
    char(*folders)[256] = calloc((size_t)clusters + 2, sizeof *folders); /* once they are needed */
    if (!folders) TRY(fail_memory(folder, 256.0 * clusters));
    if (n != s->n)
        TRY(fail(CONR_EINVAL, "%s: %lld labels for %lld images; give the labels of these images",
                 folder, (long long)n, (long long)s->n));
    TRY(conr_sort_check(folder));
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    if (length == 0 || length + 32 > sizeof final)
        TRY(fail(CONR_EINVAL, "folder: its name has %zu bytes; give a shorter one", length));
    snprintf(final, sizeof final, "%.*s", (int)length, folder);
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", final);
    if (!mkdtemp(fresh)) {
        fresh[0] = 0;
        TRY(fail_file(final));
    }
    chmod(fresh, 0755); /* mkdtemp makes it private */
    for (int64_t i = 0; i < n; i++) {
        if (names && labels[i] < -2) continue;
        if (labels[i] < (names ? -2 : 0) || labels[i] >= clusters)
            TRY(fail(CONR_EINVAL,
                     "labels: image %lld has cluster %d of only %d; give the labels of the run",
                     (long long)i, labels[i], clusters));
        if (i % 64 == 0) TRY(device_report(c->dev, "sorting", i, n));
        char *own = folders[labels[i] + 2];
        if (!*own) folder_of(names, clusters, labels[i], own, sizeof folders[0]);
        snprintf(inside, sizeof inside, "%s/%s", fresh, own);
        if (mkdir(inside, 0777) && errno != EEXIST) TRY(fail_file(inside));
        TRY(place(&p, i, inside));
    }
    if (rename(fresh, final)) TRY(fail_file(final));
    fresh[0] = 0;
done:
    if (fresh[0]) nftw(fresh, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    image_free(&p.pixels);
    free(folders);
    return rc;
}
