/* edits.h: what a person decided about the clusters of a finished run: names, merges, splits, moved
 * and marked images, another K.
 *
 * RUN/edits.json is a journal: the list of all decisions, and how many of them are in force (undo
 * lowers that number, redo raises it).  The state is always that list applied to the clusters that
 * the run found, which stay in RUN/untouched.csv; RUN/labels.csv is written from the state.  Every
 * decision replaces the journal first and labels.csv second, each whole; whoever opens a journal for
 * writing brings labels.csv up to date if a crash came between.
 *
 * Clusters keep their numbers: those of the run are 0 .. K-1, new ones get the next free number, and
 * a merged one leaves a gap.  A part is a region of the embedding: each cluster of the run at first,
 * and each piece of a split; a merged cluster owns several, and images that were moved make one of the
 * cluster that they were moved to.  New images go to the nearest part (parts.c). */
#ifndef CONR_EDITS_H
#define CONR_EDITS_H

#include "base/csv.h"
#include "base/lock.h"
#include "conr.h"
#include "json/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EDITS_NAME = 200,        /* most bytes of a name */
    EDITS_CLUSTERS = 100000, /* most numbers of clusters and parts that a journal may reach */
};

struct conr_edits {
    char *run; /* owned, as all below */
    int64_t n;
    int K; /* of the run */
    csv rows;
    char **cell; /* [n,cells] texts of untouched.csv, held by rows */
    size_t cells;
    uint64_t sum; /* of the bytes of untouched.csv */
    int32_t *untouched;
    /* the state */
    int32_t *cluster;    /* [n], also of marked images */
    int32_t *part;       /* [n] */
    unsigned char *mark; /* [n] CONR_MARK_* */
    int32_t *label;      /* [n] cluster, or -1 if marked */
    int next, n_parts;   /* numbers in use */
    int32_t *owner;      /* [n_parts] a cluster; -1: none, the part was split or clustered again */
    char **name;         /* [next], NULL: none */
    int64_t *size;       /* [next] images that are not marked */
    /* the journal */
    json_t *list; /* decisions */
    size_t at;    /* of which this many are in force */
    int64_t version;
    bool writable, kept; /* kept: edits.json exists */
    folder_lock lock;
    float *features; /* [n,d], once they are needed */
    int64_t d;
};

/* The edits of a run that has some, for reading; *out NULL: it has none. */
int edits_of_run(const char *run, conr_edits **out);

/* The file with the clusters that the run found: "labels.csv", or "untouched.csv" beside edits. */
const char *edits_base(const char *run);

/* The centroids of all parts that a cluster owns, [*P,d], and the clusters that own them, [*P]; both
 * released by free.  centroids: [K,d], those of the run; features: [n,d], its embeddings. */
int edits_parts(const conr_edits *e, const float *centroids, const float *features, int64_t d,
                float **out, int32_t **owner, int *P);

/* ---- between the files of this room ----------------------------------------------------------- */

/* The state before any decision. */
int edits_begin(conr_edits *e);
/* One decision, checked and applied. */
int edits_apply(conr_edits *e, const json_t *decision);
/* The first e->at decisions of the list. */
int edits_replay(conr_edits *e);

/* Images as text, "0-4,9,12-20", and back: calls on_image for each, ascending. */
char *ranges_text(const int64_t *image, int64_t n); /* ascending; NULL: no memory */
int ranges_read(const char *text, int64_t n, int (*on_image)(int64_t i, void *user), void *user);

/* Writes journal and labels.csv. */
int edits_write(conr_edits *e);
/* The journal into e->list and e->at. */
int edits_read_journal(conr_edits *e);
char *edits_path(const conr_edits *e, const char *name); /* owned by the caller; NULL: no memory */
int edits_damaged(const conr_edits *e, const char *why);

#endif
