/* serve.h: conr open: the state of the server, and the parts of it.
 *
 *   open.c          the verb: flags, starting and ending
 *   serve.c         HTTP: who may ask, and what for
 *   serve_read.c    answers that change nothing
 *   serve_write.c   decisions, and what is written elsewhere
 *   serve_work.c    what takes long: opening the images, the map, the looks; thumbnails that are kept */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli.h"
#include "conr.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    TOKEN = 32,          /* characters */
    THUMB = 160,         /* pixels of a side */
    BODY = 16 << 20,     /* most bytes of a request's body */
    MAP_POINTS = 6000,   /* of a sample, if there are more images */
    SEARCH_MOST = 20000, /* images that a search gives */
    CONNECTIONS = 64,
    IDLE_SECONDS = 20
};

/* Work in a thread of its own. */
typedef struct job {
    pthread_t thread;
    bool begun;       /* to be joined */
    atomic_int ready; /* 1: done; -1: failed, see `why` */
    atomic_int percent;
    char why[512];
} job;

typedef struct server {
    const char *run, *data; /* data: --data, or NULL */
    bool read_only;
    char token[TOKEN + 1];
    char host[4][80]; /* what the header Host may be */
    int n_hosts;
    char url[160];
    int threads;
    struct MHD_Daemon *daemon;
    atomic_bool stopping;
    pthread_mutex_t lock; /* of the edits, and of c */
    conr *c;
    conr_edits *edits;
    conr_edits_info first; /* as it was opened: n and found stay */
    /* prepared in the background, and then only read */
    job images, map, looks;
    conr_images *m;
    int64_t *at;           /* [n] image of each row */
    const float *features; /* [n,d], of the edits */
    int64_t d;
    int64_t *point; /* [n_points] images on the map */
    float *xy;
    int64_t n_points;
    conr_looks *look;
    pthread_mutex_t look_lock;
    struct kept *kept; /* thumbnails */
} server;

/* An answer being made. */
typedef struct answer {
    unsigned status;
    const char *type;
    char *bytes; /* owned, by malloc */
    size_t n;
    bool cached;          /* may be kept by the browser */
    const char *download; /* the name of a file; NULL: not one */
} answer;

/* Fills the answer: JSON (taken over), text, or {"error": message}. */
int answer_json(answer *a, json_t *value);
int answer_error(answer *a, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* path: what follows the token; c: for the arguments. */
int serve_read(server *s, struct MHD_Connection *c, const char *path, answer *a);
int serve_write(server *s, const char *path, const json_t *body, answer *a);
json_t *serve_state(server *s); /* under the lock */

int work_start(server *s);        /* the images, then the map */
int work_start_looks(server *s);  /* once */
void work_end(server *s);         /* waits for all of it */
bool work_wait_images(server *s); /* until they are there, or cannot be; false: not */
int thumb_of(server *s, int64_t i, char **bytes, size_t *n);

int serve_run(server *s, const char *address, int port);
void serve_end(server *s);

#endif
