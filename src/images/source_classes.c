/* source_classes.c: the classes of a set of images: their names and numbers, and the long tail. */
#include "images/source_forms.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names and numbers ----------------------------------------------------------------------- */

static uint32_t hash_text(const char *text, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

static bool class_is(const source *s, int class, const char *name, size_t n) {
    return !strncmp(s->class_name[class], name, n) && !s->class_name[class][n];
}

/* The slot of this name, or the empty slot for it. */
static int *find_slot(const source *s, const char *name, size_t n) {
    struct source_memory *m = s->memory;
    uint32_t at = hash_text(name, n) & (uint32_t)(m->slots - 1);
    while (m->class_slot[at] && !class_is(s, m->class_slot[at] - 1, name, n))
        at = (at + 1) & (uint32_t)(m->slots - 1);
    return &m->class_slot[at];
}

static int grow_slots(source *s) {
    struct source_memory *m = s->memory;
    int slots = m->slots ? 2 * m->slots : 256;
    int *more = calloc((size_t)slots, sizeof *more);
    if (!more) return fail_memory("classes", (double)slots * sizeof *more);
    free(m->class_slot);
    m->class_slot = more;
    m->slots = slots;
    for (int i = 0; i < s->n_classes; i++)
        *find_slot(s, s->class_name[i], strlen(s->class_name[i])) = i + 1;
    return 0;
}

int source_class(source *s, const char *name, size_t n) {
    int rc = 0;
    struct source_memory *m = s->memory;
    if (n == 0) return -1;
    if (2 * (s->n_classes + 1) > m->slots) TRY(grow_slots(s));
    int *slot = find_slot(s, name, n);
    if (*slot) return *slot - 1;
    int64_t room = m->classes_room;
    TRY(source_grow(&s->class_name, &room, s->n_classes + 1, sizeof *s->class_name));
    m->classes_room = (int)room;
    char *copy = arena_text(source_arena(s), name, n);
    if (!copy) TRY(CONR_ENOMEM);
    s->class_name[s->n_classes] = copy;
    *slot = s->n_classes + 1;
    return s->n_classes++;
done:
    return rc < -1 ? rc : CONR_ENOMEM; /* -1 would mean "no class" */
}

typedef struct named {
    const char *name;
    long number; /* if the name is one, else -1 */
    int old;
} named;

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}
static int by_number(const void *a, const void *b) {
    long x = ((const named *)a)->number, y = ((const named *)b)->number;
    return (x > y) - (x < y);
}

/* A number like "17", without sign, leading zeros or more than 5 digits; -1 for anything else. */
static long plain_number(const char *text) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n] || (n > 1 && *text == '0')) return -1;
    return strtol(text, NULL, 10);
}

int source_sort_classes(source *s) {
    int rc = 0, *new_of = NULL;
    bool numbers = s->kind == SOURCE_LIST || s->memory->numbers; /* those of a list are kept */
    named *list = calloc((size_t)s->n_classes + 1, sizeof *list);
    new_of = calloc((size_t)s->n_classes + 1, sizeof *new_of);
    if (!list || !new_of) TRY(fail_memory("classes", (double)s->n_classes * sizeof *list));
    for (int i = 0; i < s->n_classes; i++) {
        list[i] = (named){s->class_name[i], plain_number(s->class_name[i]), i};
        numbers = numbers && list[i].number >= 0;
    }
    if (s->n_classes)
        qsort(list, (size_t)s->n_classes, sizeof *list, numbers ? by_number : by_name);
    int n_classes = s->n_classes;
    for (int i = 0; i < n_classes; i++) {
        s->class_name[i] = list[i].name;
        new_of[list[i].old] = numbers ? (int)list[i].number : i;
    }
    if (numbers && n_classes) { /* numbers that no image has are empty classes */
        int most = (int)list[n_classes - 1].number + 1;
        int64_t room = s->memory->classes_room;
        TRY(source_grow(&s->class_name, &room, most, sizeof *s->class_name));
        s->memory->classes_room = (int)room;
        for (int i = 0; i < most; i++) {
            char text[16];
            int n = snprintf(text, sizeof text, "%d", i);
            s->class_name[i] = arena_text(source_arena(s), text, (size_t)n);
            if (!s->class_name[i]) TRY(CONR_ENOMEM);
        }
        s->n_classes = most;
    }
    for (int64_t i = 0; i < s->n; i++)
        if (s->item[i].label >= 0) s->item[i].label = new_of[s->item[i].label];
done:
    free(list);
    free(new_of);
    return rc;
}

int source_class_names(source *s, const char *path, int n_classes) {
    int rc = 0, n = 0;
    file_bytes file = {0};
    if (path && !file_is_gone(path)) {
        TRY(file_read_whole(path, &file));
        TRY(source_uses(s, path));
        const char *at = (const char *)file.data, *end = at + file.n;
        while (at < end && n < n_classes) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            size_t length = (size_t)((stop ? stop : end) - at);
            while (length && strchr(" \t\r", at[length - 1]))
                length--; /* strchr also finds a NUL */
            length = strnlen(at, length);
            int class = length ? source_class(s, at, length) : -1;
            if (class < -1) TRY(class);
            if (class == n) n++;
            at = stop ? stop + 1 : end;
        }
    }
    for (; n < n_classes; n++) { /* after a repeated name, the rest are numbers */
        char text[24];
        int length = snprintf(text, sizeof text, "%d", n);
        int class = source_class(s, text, (size_t)length);
        if (class < -1) TRY(class);
        if (class != n) {
            length = snprintf(text, sizeof text, "class %d", n);
            TRY(source_class(s, text, (size_t)length) == n ? 0 : CONR_ENOMEM);
        }
    }
done:
    file_bytes_free(&file);
    return rc;
}

/* ---- the long tail --------------------------------------------------------------------------- */

int source_thin(source *s, double f) {
    int rc = 0;
    int64_t kept = 0, *seen = calloc((size_t)s->n_classes + 1, sizeof *seen), *most = NULL;
    if (s->n_classes < 2) {
        free(seen);
        return fail(CONR_EINVAL, "%s: a long tail needs at least two classes; leave it out",
                    s->path);
    }
    most = calloc((size_t)s->n_classes + 1, sizeof *most);
    if (s->block && !s->pick) s->pick = calloc((size_t)s->n, sizeof *s->pick);
    if (!seen || !most || (s->block && !s->pick))
        TRY(fail_memory("list of images", 8.0 * (double)s->n));
    for (int64_t i = 0; i < s->n; i++)
        if (source_label(s, i) >= 0) most[source_label(s, i)]++;
    for (int c = 0; c < s->n_classes; c++) {
        double share = pow(f, -(double)c / (s->n_classes - 1));
        int64_t count = (int64_t)((double)most[c] * share + 0.5);
        most[c] = count || !most[c] ? count : 1;
    }
    for (int64_t i = 0; i < s->n; i++) {
        int label = source_label(s, i);
        if (label < 0 || seen[label]++ >= most[label]) continue;
        if (s->item) s->item[kept] = s->item[i];
        if (s->label) s->label[kept] = s->label[i];
        if (s->block) s->pick[kept] = i;
        kept++;
    }
    s->n = kept;
done:
    free(seen);
    free(most);
    return rc;
}
