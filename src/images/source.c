/* source.c: the set of images of a SRC: its items (files) or blocks (arrays), their names, sizes
 * and pixels, and the memory that they share.
 *
 * source_open.c recognizes a SRC and fills the set; source_classes.c numbers its classes; the files
 * source_folder.c and source_array.c read each form. */
#include "images/source_forms.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_IMAGES = INT32_MAX }; /* the index of an image is one word of the random stream */

int source_new(const char *path, source *out) {
    *out = (source){0};
    out->memory = calloc(1, sizeof *out->memory);
    if (!out->memory) return fail_memory(path, sizeof *out->memory);
    out->path = arena_text(source_arena(out), path, strlen(path));
    return out->path ? 0 : CONR_ENOMEM;
}

void source_close(source *s) {
    struct source_memory *m = s->memory;
    if (m) {
        for (int i = 0; i < m->n_files; i++) file_reader_close(&m->file[i]);
        for (int i = 0; i < m->n_kept; i++) free(m->kept[i]);
        free(m->file);
        free(m->kept);
        free(m->used);
        free(m->class_slot);
        arena_free(&m->texts);
        free(m);
    }
    free(s->item);
    free(s->block);
    free(s->pick);
    free(s->label);
    free(s->class_name);
    free(s->reason);
    *s = (source){0};
}

arena *source_arena(source *s) { return &s->memory->texts; }

int source_grow(void *array, int64_t *room, int64_t need, size_t size) {
    void *old, *more;
    memcpy(&old, array, sizeof old);
    if (need <= *room) return 0;
    int64_t want = *room ? 2 * *room : 64;
    while (want < need) want *= 2;
    more = realloc(old, (size_t)want * size);
    if (!more) return fail_memory("list of images", (double)want * (double)size);
    memcpy(array, &more, sizeof more);
    *room = want;
    return 0;
}

char *source_join(source *s, const char *folder, const char *name) {
    size_t a = strlen(folder), b = strlen(name);
    while (a > 1 && folder[a - 1] == '/') a--;
    char *path = arena_alloc(source_arena(s), a + b + 2);
    if (!path) return NULL;
    memcpy(path, folder, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b);
    return path;
}

int source_open_bytes(source *s, const char *path, source_bytes *out) {
    struct source_memory *m = s->memory;
    *out = (source_bytes){.path = path};
    file_reader *more = realloc(m->file, ((size_t)m->n_files + 1) * sizeof *more);
    if (!more) return fail_memory(path, sizeof *more);
    m->file = more;
    int rc = file_reader_open(path, &out->file);
    if (rc < 0) return rc;
    m->file[m->n_files++] = out->file;
    out->n = out->file.size;
    return source_uses(s, path);
}

int source_bytes_read(const source_bytes *b, size_t at, size_t n, void *to) {
    ASSERT(at <= b->n && n <= b->n - at);
    if (!b->in_memory) return file_reader_read(&b->file, b->path, at, n, to);
    memcpy(to, b->in_memory + at, n);
    return 0;
}

int source_uses(source *s, const char *path) {
    struct source_memory *m = s->memory;
    const char **more = realloc(m->used, ((size_t)m->n_used + 1) * sizeof *more);
    if (!more) return fail_memory(path, sizeof *more);
    m->used = more;
    more[m->n_used] = arena_text(source_arena(s), path, strlen(path));
    return more[m->n_used] ? (m->n_used++, 0) : CONR_ENOMEM;
}

int source_keep(source *s, void *memory) {
    struct source_memory *m = s->memory;
    void **more = realloc(m->kept, ((size_t)m->n_kept + 1) * sizeof *more);
    if (!more) {
        free(memory);
        return fail_memory("list of memory", sizeof *more);
    }
    m->kept = more;
    m->kept[m->n_kept++] = memory;
    return 0;
}

int source_skip(source *s, const char *message) {
    s->skipped++;
    if (s->n_reasons == SOURCE_REASONS) return 0;
    if (!s->reason) s->reason = calloc(SOURCE_REASONS, sizeof *s->reason);
    if (!s->reason) return fail_memory("list of images", SOURCE_REASONS * sizeof *s->reason);
    const char *text = arena_text(source_arena(s), message, strlen(message));
    if (!text) return CONR_ENOMEM;
    s->reason[s->n_reasons++] = text;
    return 0;
}

int source_pass_over(source *s, const char *message) {
    s->foreign++;
    return source_skip(s, message);
}

bool split_wanted(const source_options *o, const char *name) {
    return !o->split || !strcmp(o->split, name);
}

/* ---- items and blocks ------------------------------------------------------------------------ */

static int check_count(const source *s, int64_t more) {
    if (more <= MOST_IMAGES - s->n) return 0;
    return fail(CONR_EINVAL, "%s: has more than %d images; split it", s->path, MOST_IMAGES);
}

int source_add_item(source *s, const char *path, const char *file, int label) {
    int rc = 0;
    if (!path || !file) TRY(CONR_ENOMEM);
    TRY(check_count(s, 1));
    TRY(source_grow(&s->item, &s->memory->items_room, s->n + 1, sizeof *s->item));
    s->item[s->n++] = (source_item){.path = path, .file = file, .label = label};
done:
    return rc;
}

int source_add_block(source *s, const source_bytes *from, size_t at, size_t stride, int64_t n,
                     const int32_t *labels) {
    int rc = 0;
    struct stat file = {0};
    const char *path = from->path, *slash = strrchr(path, '/');
    int64_t room = s->memory->blocks_room;
    TRY(check_count(s, n));
    TRY(source_grow(&s->block, &room, s->n_blocks + 1, sizeof *s->block));
    s->memory->blocks_room = (int)room;
    TRY(source_grow(&s->label, &s->memory->labels_room, s->n + n, sizeof *s->label));
    for (int64_t i = 0; i < n; i++) s->label[s->n + i] = labels ? labels[i] : -1;
    if (stat(path, &file) < 0) memset(&file, 0, sizeof file); /* bytes in memory have none */
    char *copy = arena_text(source_arena(s), path, strlen(path));
    if (!copy) TRY(CONR_ENOMEM);
    s->block[s->n_blocks++] =
        (source_block){.name = slash ? copy + (slash + 1 - path) : copy,
                       .path = copy,
                       .from = *from,
                       .at = at,
                       .stride = stride,
                       .first = s->n,
                       .n = n,
                       .bytes = (uint64_t)file.st_size,
                       .time = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec};
    s->block[s->n_blocks - 1].from.path = copy;
    s->n += n;
done:
    return rc;
}

/* The block of image i, and the index in it. */
static const source_block *block_of(const source *s, int64_t i, int64_t *index) {
    int b = 0;
    if (s->pick) i = s->pick[i];
    while (b + 1 < s->n_blocks && i >= s->block[b + 1].first) b++;
    *index = i - s->block[b].first;
    return &s->block[b];
}

size_t source_pixel_bytes(const source *s) {
    return (size_t)s->w_low * (size_t)s->h_low * (s->gray ? 1 : 3);
}

int source_pixels(const source *s, int64_t i, unsigned char *to) {
    int64_t index;
    const source_block *b = block_of(s, i, &index);
    size_t at = b->at + (size_t)index * b->stride;
    return source_bytes_read(&b->from, at, source_pixel_bytes(s), to);
}

const char *source_name(const source *s, int64_t i, char *buffer, size_t size) {
    ASSERT(i >= 0 && i < s->n);
    if (s->item) return s->item[i].path;
    int64_t index;
    const source_block *b = block_of(s, i, &index);
    snprintf(buffer, size, "%s#%lld", b->name, (long long)index);
    return buffer;
}

int source_label(const source *s, int64_t i) { return s->item ? s->item[i].label : s->label[i]; }

void source_size(const source *s, int64_t i, int *w, int *h) {
    *w = s->item ? s->item[i].w : s->w_low;
    *h = s->item ? s->item[i].h : s->h_low;
}

/* ---- images that cannot be read -------------------------------------------------------------- */

int source_check_skipped(const source *s) {
    int64_t all = s->n + s->skipped, damaged = s->skipped - s->foreign;
    if (s->n && damaged * 20 <= s->n + damaged) return 0;
    /* The first message ends with its own remedy, which is cut off. */
    const char *first = s->n_reasons ? s->reason[0] : "";
    return fail(CONR_EFORMAT,
                "%s: %lld of %lld images cannot be read (the first: %.*s); "
                "repair or remove them until at most 5 %% are unreadable",
                s->path, (long long)s->skipped, (long long)all, (int)strcspn(first, ";"), first);
}

/* Images that cannot be read are no longer in the list: so within a folder of images, whatever is
 * called like one counts. */
static bool lies_within(const char *folder, const char *path) {
    char *root = realpath(folder, NULL), *real = realpath(path, NULL);
    size_t n = root ? strlen(root) : 0;
    bool within = root && real && !strncmp(real, root, n) && real[n] == '/';
    free(root), free(real);
    return within;
}

bool source_has_file(const source *s, const char *path) {
    struct stat out, at;
    if (stat(path, &out) < 0) return false;
    if (s->kind == SOURCE_FOLDER || s->kind == SOURCE_TINY)
        if (name_is_image(path) && lies_within(s->path, path)) return true;
    const struct source_memory *m = s->memory;
    int64_t items = s->item ? s->n : 0;
    for (int64_t i = -1 - m->n_used; i < items; i++) {
        if (i >= 0 && s->item[i].in) break; /* an archive is among those used */
        const char *one = i >= 0 ? s->item[i].file : i == -1 ? s->path : m->used[-2 - i];
        if (stat(one, &at) == 0 && at.st_dev == out.st_dev && at.st_ino == out.st_ino) return true;
    }
    return false;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* in: planes of w x h bytes, by rows or by columns; out: [h,w,c]. */
static void interleave(const unsigned char *in, source_layout layout, int w, int h, int c,
                       unsigned char *out) {
    bool columns = layout == LAYOUT_CHW_COLUMNS;
    size_t step_x = columns ? (size_t)h : 1, step_y = columns ? 1 : (size_t)w;
    size_t plane = (size_t)w * (size_t)h;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                *out++ = in[(size_t)k * plane + (size_t)y * step_y + (size_t)x * step_x];
}

int source_item_bytes(const source_item *it, size_t most, file_bytes *out) {
    bool its_own;
    if (it->in) { /* in an archive */
        size_t n = it->bytes < most ? (size_t)it->bytes : most;
        *out = (file_bytes){.n = n, .size = (size_t)it->bytes};
        int failed = memory_check(it->path, (double)n);
        if (failed < 0) return failed;
        out->data = malloc(n + 1);
        if (!out->data) return fail_memory(it->path, (double)n);
        return source_bytes_read(it->in, (size_t)it->at, n, out->data);
    }
    int rc = file_read(it->file, most, out, &its_own);
    return rc < 0 && its_own ? CONR_EFORMAT : rc;
}

int source_read(const source *s, int64_t i, int channels, int least, image *out) {
    int rc = 0;
    file_bytes file = {0};
    unsigned char *planes = NULL;
    ASSERT(i >= 0 && i < s->n);
    if (s->item) {
        TRY(source_item_bytes(&s->item[i], SIZE_MAX, &file));
        TRY(decode(s->item[i].path, file.data, file.n, channels, least, out));
    } else {
        int w = s->w_low, h = s->h_low, c = s->gray ? 1 : 3;
        TRY(image_reserve(out, w, h, c));
        if (s->layout == LAYOUT_HWC) {
            TRY(source_pixels(s, i, out->pixels));
        } else {
            planes = malloc(source_pixel_bytes(s));
            if (!planes) TRY(fail_memory(s->path, (double)source_pixel_bytes(s)));
            TRY(source_pixels(s, i, planes));
            interleave(planes, s->layout, w, h, c, out->pixels);
        }
        TRY(image_convert(out, channels));
    }
done:
    file_bytes_free(&file);
    free(planes);
    return rc;
}

bool source_known_norm(const source *s, float mean[3], float deviation[3]) {
    static const float norms[3][2][3] = {
        {{.4914f, .4822f, .4465f}, {.2023f, .1994f, .2010f}}, /* CIFAR-10 */
        {{.5071f, .4867f, .4408f}, {.2675f, .2565f, .2761f}}, /* CIFAR-100 */
        {{.485f, .456f, .406f}, {.229f, .224f, .225f}},       /* ImageNet and its subsets */
    };
    int which = s->kind == SOURCE_CIFAR10                           ? 0
                : s->kind == SOURCE_CIFAR100                        ? 1
                : s->kind == SOURCE_STL10 || s->kind == SOURCE_TINY ? 2
                                                                    : -1;
    if (which < 0) return false;
    memcpy(mean, norms[which][0], 3 * sizeof *mean);
    memcpy(deviation, norms[which][1], 3 * sizeof *deviation);
    return true;
}
