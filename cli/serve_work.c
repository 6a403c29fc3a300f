/* serve_work.c: what takes long, in threads of its own, and thumbnails, which are made once. */
#include "serve.h"

#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- thumbnails that are kept ---------------------------------------------------------------- */

/* RUN/.open/thumbs holds JPEG files one after another, RUN/.open/index where each is: both may be
 * removed at any time.  The first entry of the index says for what images it is. */
typedef struct place {
    uint64_t at;
    uint32_t size, sum;
} place;

struct kept {
    int pack, index; /* -1: nothing is kept */
    uint64_t end;
    place *place; /* [n] */
    pthread_mutex_t lock;
};

static uint32_t sum_of(const char *bytes, size_t n) { /* FNV-1a */
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    return h;
}

static struct kept *kept_open(const char *run, int64_t n, bool read_only) {
    struct kept *k = calloc(1, sizeof *k);
    if (!k || !(k->place = calloc((size_t)n + 1, sizeof *k->place))) {
        free(k);
        return NULL;
    }
    pthread_mutex_init(&k->lock, NULL);
    char *folder = path_in(run, ".open"), *pack = path_in(folder, "thumbs");
    char *index = path_in(folder, "index");
    place head = {.at = (uint64_t)n, .size = THUMB, .sum = 0x636f6e72}, found = {0};
    int how = (read_only ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC;
    if (!read_only) mkdir(folder, 0700);
    k->pack = open(pack, how, 0600);
    k->index = open(index, how, 0600);
    if (k->pack >= 0 && k->index >= 0) {
        off_t end = lseek(k->pack, 0, SEEK_END);
        k->end = end > 0 ? (uint64_t)end : 0;
        if (pread(k->index, &found, sizeof found, 0) != sizeof found ||
            memcmp(&found, &head, sizeof head)) { /* another run was here, or nothing */
            bool fresh = !ftruncate(k->pack, 0) && !ftruncate(k->index, 0) &&
                         pwrite(k->index, &head, sizeof head, 0) == sizeof head;
            k->end = 0;
            if (!fresh) close(k->pack), k->pack = -1;
        } else if (pread(k->index, k->place, (size_t)n * sizeof *k->place, sizeof head) < 0) {
            memset(k->place, 0, (size_t)n * sizeof *k->place);
        }
    }
    free(folder), free(pack), free(index);
    return k;
}

static void kept_close(struct kept *k) {
    if (!k) return;
    if (k->pack >= 0) close(k->pack);
    if (k->index >= 0) close(k->index);
    pthread_mutex_destroy(&k->lock);
    free(k->place);
    free(k);
}

static bool kept_get(struct kept *k, int64_t i, char **bytes, size_t *n) {
    pthread_mutex_lock(&k->lock);
    place p = k->place[i];
    pthread_mutex_unlock(&k->lock);
    if (k->pack < 0 || p.size == 0 || p.size > (1 << 20)) return false;
    char *out = malloc(p.size);
    bool ok = out && pread(k->pack, out, p.size, (off_t)p.at) == (ssize_t)p.size &&
              sum_of(out, p.size) == p.sum;
    if (!ok) {
        free(out);
        return false;
    }
    *bytes = out, *n = p.size;
    return true;
}

/* If the disk is full, or read-only, it is made again next time. */
static void kept_put(struct kept *k, int64_t i, const char *bytes, size_t n) {
    if (k->pack < 0 || k->index < 0) return;
    pthread_mutex_lock(&k->lock);
    place p = {k->end, (uint32_t)n, sum_of(bytes, n)};
    if (pwrite(k->pack, bytes, n, (off_t)p.at) == (ssize_t)n) {
        k->end += n;
        k->place[i] = p;
        if (pwrite(k->index, &p, sizeof p, (off_t)(sizeof p * ((size_t)i + 1))) < 0) k->index = -1;
    }
    pthread_mutex_unlock(&k->lock);
}

int thumb_of(server *s, int64_t i, char **bytes, size_t *n) {
    unsigned char *made = NULL;
    int64_t size = 0;
    if (s->kept && kept_get(s->kept, i, bytes, n)) return 0;
    if (!work_wait_images(s)) return -1;
    if (s->at[i] < 0 || conr_images_thumb(s->m, s->at[i], THUMB, &made, &size) < 0) return -1;
    *bytes = (char *)made, *n = (size_t)size;
    if (s->kept) kept_put(s->kept, i, *bytes, *n);
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef struct told {
    server *s;
    job *j;
} told;

static int on_progress(const conr_progress *p, void *user) {
    const told *t = user;
    if (p->total > 0) atomic_store(&t->j->percent, (int)(100 * p->done / p->total));
    return atomic_load(&t->s->stopping);
}

static void finish(job *j, bool ok) {
    if (!ok) snprintf(j->why, sizeof j->why, "%s", conr_error());
    atomic_store(&j->ready, ok ? 1 : -1);
}

/* Whoever waits for pictures and answers goes first. */
static void give_way(void) { setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 15); }

static void *be_map(void *user) {
    server *s = user;
    conr *c = NULL;
    told t = {s, &s->map};
    int64_t n = s->first.n, m = n < MAP_POINTS ? n : MAP_POINTS;
    float *rows = malloc((size_t)m * (size_t)s->d * sizeof *rows);
    s->point = malloc((size_t)m * sizeof *s->point);
    s->xy = malloc(2 * (size_t)m * sizeof *s->xy);
    bool ok = rows && s->point && s->xy && conr_open("cpu", s->threads, &c) == 0;
    for (int64_t j = 0; ok && j < m; j++) { /* evenly spread over all */
        s->point[j] = (int64_t)((double)j * (double)n / (double)m);
        memcpy(rows + (size_t)j * (size_t)s->d, s->features + (size_t)s->point[j] * (size_t)s->d,
               (size_t)s->d * sizeof *rows);
    }
    if (ok) {
        conr_set_progress(c, on_progress, &t);
        ok = conr_map(c, rows, m, s->d, 1, s->xy) == 0;
    }
    s->n_points = m;
    finish(&s->map, ok);
    conr_close(c);
    free(rows);
    return NULL;
}

/* The images first: they are waited for. */
static void *be_images(void *user) {
    server *s = user;
    conr *c = NULL;
    int64_t n = 0;
    bool ok = conr_open("cpu", s->threads, &c) == 0 &&
              conr_run_images(c, s->run, s->data, &s->m, &s->at, &n) == 0;
    finish(&s->images, ok && n == s->first.n);
    conr_close(c);
    return NULL;
}

static void *be_features(void *user) {
    server *s = user;
    pthread_mutex_lock(&s->lock);
    bool ok = conr_edits_features(s->edits, &s->features, &s->d) == 0;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < 20 && !atomic_load(&s->stopping); i++) /* the page comes first */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    give_way();
    if (ok) return be_map(s);
    finish(&s->map, false);
    return NULL;
}

static void *be_looks(void *user) {
    server *s = user;
    conr *c = NULL;
    told t = {s, &s->looks};
    give_way();
    bool ok = work_wait_images(s) && conr_open("cpu", s->threads, &c) == 0;
    if (ok) {
        conr_set_progress(c, on_progress, &t);
        ok = conr_looks_make(c, s->m, &s->look) == 0;
    }
    int64_t n = ok ? conr_looks_get(s->look, 0, NULL) : 0;
    conr_duplicate *d = ok ? malloc(((size_t)n + 1) * sizeof *d) : NULL;
    int groups;
    if (ok) ok = d && conr_duplicates(c, s->look, 0.97, d, &groups) == 0; /* pairs are kept */
    finish(&s->looks, ok);
    free(d);
    conr_close(c);
    return NULL;
}

static int start(server *s, job *j, void *(*be)(void *)) {
    if (j->begun) return 0;
    j->begun = pthread_create(&j->thread, NULL, be, s) == 0;
    return j->begun ? 0 : -1;
}

int work_start(server *s) {
    s->kept = kept_open(s->run, s->first.n, s->read_only);
    return start(s, &s->images, be_images) || start(s, &s->map, be_features) ? -1 : 0;
}

int work_start_looks(server *s) {
    pthread_mutex_lock(&s->look_lock);
    int rc = start(s, &s->looks, be_looks);
    pthread_mutex_unlock(&s->look_lock);
    return rc;
}

bool work_wait_images(server *s) {
    for (int i = 0; i < 6000 && !atomic_load(&s->images.ready) && !atomic_load(&s->stopping); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return atomic_load(&s->images.ready) == 1;
}

void work_end(server *s) {
    job *all[] = {&s->images, &s->map, &s->looks};
    atomic_store(&s->stopping, true);
    for (int j = 0; j < 3; j++)
        if (all[j]->begun) pthread_join(all[j]->thread, NULL);
    conr_images_close(s->m);
    conr_free(s->at);
    conr_looks_free(s->look);
    free(s->point), free(s->xy);
    kept_close(s->kept);
}
