/* archive.c: libarchive behind archive.h.
 *
 * An archive may claim anything: names are taken apart and never used to open or write a file, sizes
 * are believed only as far as bytes follow, and what is kept is held against the memory at hand. */
#include "images/archive.h"

#include "base/memory.h"
#include "base/status.h"
#include "json/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool name_is_archive(const char *name) {
    static const char *const ends[] = {".zip",    ".tar", ".tar.gz",  ".tgz",
                                       ".tar.xz", ".txz", ".tar.zst", ".tar.bz2"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (name_ends(name, ends[i])) return true;
    return false;
}

bool bytes_are_archive(const unsigned char *b, size_t n) {
    return (n >= 4 && (!memcmp(b, "PK\3\4", 4) || !memcmp(b, "PK\5\6", 4))) ||
           (n >= 262 && !memcmp(b + 257, "ustar", 5));
}

#ifndef CONR_ARCHIVE

int archive_list(source *s, const source_options *o, const char *path, packed_list *l) {
    (void)s, (void)o, (void)l;
    return fail(
        CONR_EFORMAT,
        "%s: archives are not built in; install libarchive-dev and build again, or unpack it",
        path);
}

#else

#include <archive.h>
#include <archive_entry.h>

enum {
    LONGEST_NAME = 4096,
    LONGEST_LABEL = 1 << 16, /* bytes of a key.cls or key.json */
    PIECE = 1 << 16
};

/* A label that waits for the image of its key, or the other way round. */
typedef struct side_note {
    const char *key;
    const char *label;
} side_note;

typedef struct reading {
    source *s;
    packed_list *list;
    const char *path;
    struct archive *a;
    const source_bytes *file; /* of a plain .tar; NULL: no random access */
    int64_t first;            /* image of this archive in the list */
    int64_t pending;          /* image whose place follows from the next header; -1: none */
    side_note *note;          /* [n_notes]; owned */
    int64_t n_notes, notes_room;
} reading;

static int fail_archive(const reading *r) {
    const char *why = archive_error_string(r->a);
    if (archive_errno(r->a) == ENOMEM) return fail_memory(r->path, PIECE);
    return fail(CONR_EFORMAT, "%s: damaged archive: %s; pack it again", r->path,
                why ? why : "it ends too early");
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Without leading slashes, "." and double slashes.  NULL, without a message: hidden, or one that
 * leaves the archive.  to: [LONGEST_NAME] */
static const char *plain_name(const char *name, char *to, bool *leaves) {
    size_t at = 0;
    *leaves = false;
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        bool dot = n == 1 && *p == '.';
        if (n == 2 && !strncmp(p, "..", 2)) return *leaves = true, NULL;
        if (n && !dot) {
            if (*p == '.' || (n == 8 && !strncmp(p, "__MACOSX", 8))) return NULL;
            if (at + n + 2 > LONGEST_NAME) return *leaves = true, NULL;
            if (at) to[at++] = '/';
            memcpy(to + at, p, n);
            at += n;
        }
        p += n + (p[n] == '/');
    }
    to[at] = 0;
    return at ? to : NULL;
}

/* The length of what WebDataset calls the key: up to the first dot of the last part. */
static size_t key_length(const char *path) {
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    return (size_t)(last - path) + strcspn(last, ".");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The bytes of an entry, as many as follow, at most `most`: beyond that *too_many. */
static int take_bytes(reading *r, uint64_t most, unsigned char **out, size_t *n, bool *too_many) {
    int rc = 0;
    size_t room = 0;
    *out = NULL, *n = 0, *too_many = false;
    for (;;) {
        if (*n == room) {
            size_t want = room ? 2 * room : PIECE;
            TRY(memory_check(r->path, (double)want));
            unsigned char *more = realloc(*out, want);
            if (!more) TRY(fail_memory(r->path, (double)want));
            *out = more, room = want;
        }
        la_ssize_t got = archive_read_data(r->a, *out + *n, room - *n);
        if (got == ARCHIVE_RETRY) continue;
        if (got < 0) TRY(fail_archive(r));
        if (got == 0) break;
        *n += (size_t)got;
        if (*n > most) {
            *too_many = true;
            break;
        }
    }
done:
    if (rc < 0 || *too_many) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

/* Keeps the bytes of an image in memory. */
static int keep_image(reading *r, packed_image *m) {
    int rc = 0;
    unsigned char *bytes = NULL, *exact;
    size_t n;
    bool too_many;
    packed_list *l = r->list;
    TRY(take_bytes(r, l->most - l->kept, &bytes, &n, &too_many));
    if (too_many)
        TRY(fail(CONR_ENOMEM,
                 "%s: its images do not fit into half of the memory; unpack it, or make it a .tar "
                 "without compression",
                 r->path));
    source_bytes *in = arena_alloc(source_arena(r->s), sizeof *in);
    exact = realloc(bytes, n + 1); /* an empty one is found out later */
    if (exact) bytes = exact;
    if (!in) TRY(CONR_ENOMEM);
    exact = bytes, bytes = NULL;
    TRY(source_keep(r->s, exact));
    *in = (source_bytes){.path = r->path, .in_memory = exact, .n = n, .file = {.fd = -1}};
    m->in = in, m->at = 0, m->bytes = n;
    l->kept += n;
done:
    free(bytes);
    return rc;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* What key.cls says: its text; what key.json says: its "label", "cls" or "class". */
static int read_label(reading *r, const char *path) {
    static const char *const keys[] = {"label", "cls", "class"};
    int rc = 0;
    unsigned char *bytes = NULL;
    size_t n;
    bool too_many, scarce = false;
    json_t *object = NULL;
    char number[32];
    const char *text = NULL;
    TRY(take_bytes(r, LONGEST_LABEL, &bytes, &n, &too_many));
    if (too_many || n == 0 || memchr(bytes, 0, n)) goto done;
    bytes[n] = 0; /* there is room: at most LONGEST_LABEL of at least twice that */
    if (name_ends(path, ".json")) {
        object = json_read((const char *)bytes, &scarce);
        if (scarce) TRY(fail_memory(r->path, (double)n));
        for (int i = 0; i < 3 && !text; i++) {
            const json_t *v = json_object_get(object, keys[i]);
            if (json_is_string(v)) text = json_string_value(v);
            if (json_is_integer(v)) {
                snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
                text = number;
            }
        }
    } else {
        bytes[strcspn((char *)bytes, "\r\n")] = 0;
        text = (const char *)bytes;
    }
    if (!text || !*text || !strcmp(text, "-1")) goto done;
    TRY(source_grow(&r->note, &r->notes_room, r->n_notes + 1, sizeof *r->note));
    side_note *note = &r->note[r->n_notes];
    note->key = arena_text(source_arena(r->s), path, key_length(path));
    note->label = arena_text(source_arena(r->s), text, strlen(text));
    if (!note->key || !note->label) TRY(CONR_ENOMEM);
    r->n_notes++;
done:
    json_decref(object);
    free(bytes);
    return rc;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const side_note *)a)->key, ((const side_note *)b)->key);
}

static void join_labels(reading *r) {
    char key[LONGEST_NAME];
    if (r->n_notes) qsort(r->note, (size_t)r->n_notes, sizeof *r->note, by_key);
    for (int64_t i = r->first; r->n_notes && i < r->list->n; i++) {
        packed_image *m = &r->list->image[i];
        size_t n = key_length(m->path);
        memcpy(key, m->path, n);
        key[n] = 0;
        const side_note *found =
            bsearch(&(side_note){.key = key}, r->note, (size_t)r->n_notes, sizeof *r->note, by_key);
        if (!found) continue;
        m->label = found->label;
        r->list->labels++;
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

/* In a plain .tar the next header follows an image, padded to blocks. */
static void place_pending(reading *r) {
    enum { BLOCK = 512 };
    if (r->pending < 0) return;
    packed_image *m = &r->list->image[r->pending];
    uint64_t padded = (m->bytes + BLOCK - 1) / BLOCK * BLOCK;
    uint64_t next = (uint64_t)archive_read_header_position(r->a);
    m->at = next - padded;
    if (next < padded || m->at > r->file->n || m->bytes > r->file->n - m->at)
        m->at = 0, m->bytes = 0; /* not in the file: cannot be read */
    r->pending = -1;
}

static int add_image(reading *r, struct archive_entry *e, const char *path) {
    int rc = 0;
    packed_list *l = r->list;
    if (l->n == l->room) TRY(memory_check("list of images", 3.0 * (double)l->n * sizeof *l->image));
    TRY(source_grow(&l->image, &l->room, l->n + 1, sizeof *l->image));
    packed_image *m = &l->image[l->n];
    *m = (packed_image){.archive = r->path,
                        .path = arena_text(source_arena(r->s), path, strlen(path))};
    if (!m->path) TRY(CONR_ENOMEM);
    if (r->file && archive_entry_sparse_count(e) == 0) {
        m->in = r->file, m->bytes = (uint64_t)archive_entry_size(e);
        r->pending = l->n;
    } else {
        TRY(keep_image(r, m));
    }
    l->n++;
done:
    return rc;
}

static int add_entry(reading *r, struct archive_entry *e) {
    char plain[LONGEST_NAME], message[512];
    bool leaves = false;
    const char *name = archive_entry_pathname_utf8(e);
    if (!name) name = archive_entry_pathname(e);
    if (archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e)) return 0;
    const char *path = name ? plain_name(name, plain, &leaves) : NULL;
    if ((leaves && name_is_image(name)) || !name) {
        snprintf(message, sizeof message, "%s: '%s' is not allowed as a name; rename it", r->path,
                 name ? name : "");
        int rc = source_skip(r->s, message);
        if (rc < 0) return rc;
    }
    if (!path) return 0;
    if (name_is_image(path)) return add_image(r, e, path);
    if (name_ends(path, ".cls") || name_ends(path, ".json")) return read_label(r, path);
    return folder_look_at_name(r->s, r->path, path);
}

static int read_entries(reading *r, const source_options *o) {
    int rc = 0;
    struct archive_entry *e;
    int64_t seen = 0;
    for (;;) {
        int got = archive_read_next_header(r->a, &e);
        place_pending(r);
        if (got == ARCHIVE_EOF) break;
        if (got == ARCHIVE_RETRY) continue;
        if (got < ARCHIVE_WARN) TRY(fail_archive(r));
        bool tar = (archive_format(r->a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
        if (!tar || archive_filter_code(r->a, 0) != ARCHIVE_FILTER_NONE) r->file = NULL;
        TRY(add_entry(r, e));
        if (++seen % 256 == 0 && o->tell.on && o->tell.on(seen, seen, o->tell.user))
            TRY(fail(CONR_ESTOPPED, "%s: stopped while reading it; run it again", r->path));
    }
    join_labels(r);
done:
    return rc;
}

int archive_list(source *s, const source_options *o, const char *path, packed_list *l) {
    int rc = 0;
    reading r = {.s = s, .list = l, .path = path, .first = l->n, .pending = -1};
    source_bytes *file = arena_alloc(source_arena(s), sizeof *file);
    if (!file) TRY(CONR_ENOMEM);
    TRY(source_open_bytes(s, path, file));
    r.file = file;
    if (!l->most) l->most = memory_at_hand() / 2;
    r.a = archive_read_new();
    if (!r.a) TRY(fail_memory(path, PIECE));
    archive_read_support_format_tar(r.a);
    archive_read_support_format_zip(r.a);
    archive_read_support_filter_gzip(r.a); /* and no others that would start a program */
    archive_read_support_filter_bzip2(r.a);
    archive_read_support_filter_xz(r.a);
    archive_read_support_filter_zstd(r.a);
    if (archive_read_open_filename(r.a, path, PIECE) != ARCHIVE_OK) TRY(fail_archive(&r));
    TRY(read_entries(&r, o));
done:
    if (r.a) archive_read_free(r.a);
    free(r.note);
    return rc;
}

#endif
