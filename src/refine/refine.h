/* refine.h: a head trained by CoNR on frozen features.
 *
 *     refine.c     conr_refine: options, epochs, pseudo labels and filter
 *     principal.c  rows to principal components
 *     geometry.c   which linear map of these lets clusters stand out
 *     choose.c     how many clusters there are
 *     views.c      what is random in a step: dropped components, neighbors
 *     step.c       networks on the device, and one step
 *     head.c       a finished head: apply, save, open
 *
 * In a step, B rows i of the set have two views a, b each, and each view has a neighbor j drawn from
 * the list of i, seen in a view of its own:
 *
 *     q_a = online(a_i)     key_b = target(b_i), target(b_j)
 *     q_b = online(b_i)     key_a = target(a_i), target(a_j')
 *     loss = - sum_i w_i [ <q_a, mean of key_b> + <q_b, mean of key_a> ]
 *
 * with unit rows q and key; w_i is 1/(rows kept) or, if the boundary filter holds row i back, 0. */
#ifndef CONR_REFINE_H
#define CONR_REFINE_H

#include "context/context.h"
#include "encoder/pass.h"

/* ---- a head ---------------------------------------------------------------------------------- */

/* What is done to a row before it enters the network (principal.c). */
typedef struct principal {
    int d, p;
    float *mean;      /* [d], of unit rows */
    float *basis;     /* [p,d]: row c times (unit row - mean) is component c */
    float *deviation; /* [p], of the components; not saved */
} principal;

struct conr_head {
    principal principal;
    network net;        /* only a projector, on p components */
    float *w, *running; /* host; the blocks of net */
};

enum { REFINE_COMPONENTS = 256 }; /* at most */

/* All arrays and devices of these are the host's. */
int principal_room(int d, int p, principal *s); /* memory only */
/* Orthonormal directions of the largest variance; components whose variance is nearly 0 are left
 * out, but at least one is kept. */
int principal_measure(device *host, const float *features, int64_t n, int d, uint64_t seed,
                      principal *s);
/* Components y = map x instead of x; map: [r,p], deviation: [r], of y. */
int principal_map(device *host, const float *map, int r, const float *deviation, principal *s);
/* The components of features [n,d] into out [n,p]; cut: outliers are, as a head wants it. */
int principal_rows(device *host, const principal *s, const float *features, int64_t n, bool cut,
                   float *out);
void principal_free(principal *s); /* also after a failed measure */

/* Eigenvalues of the symmetric a [q,q] onto its diagonal, eigenvectors into the rows of e. */
void jacobi(double *a, int q, double *e);

/* How well clusters agree with neighborhoods, beyond chance: the share of a row's neighbors (itself
 * not counted) in its own cluster, minus what random lists would have.  ids: [n,k]; label: [n] in
 * 0 .. K-1. */
double agreement(const int32_t *ids, int k, const int32_t *label, int64_t n, int K);

/* A linear map of components x [n,p] that makes clusters easy to find (geometry.c).  ids: [n,k],
 * their neighborhoods.  K: clusters; 0: unknown.  map: [REFINE_COMPONENTS,p] and deviation
 * [REFINE_COMPONENTS], of what it gives, of which *r rows are used. */
int geometry_choose(conr *c, const float *x, int64_t n, int p, const float *of_x,
                    const int32_t *ids, int k, int K, uint64_t seed, float *map, float *deviation,
                    int *r);

/* The number of clusters of features [n,d], from low to high; o: restarts and seed count. */
int refine_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                           const conr_kmeans_options *o, int low, int high, int *chosen);

network_spec head_spec(int d, int hidden, int width);
/* A head that takes over *s; weights are zero.  *out is released by conr_head_close. */
int head_new(principal *s, int hidden, int width, conr_head **out);

/* Runs a network in evaluation mode on any number of rows. */
typedef struct embedder {
    device *dev;
    pass *pass;
    const network *net;
    int rows, width;  /* of a batch; of its output */
    float *host;      /* host: [rows,p] */
    float *in, *flat; /* [rows,p], [rows,width] */
    act *acts;        /* [rows,p] */
} embedder;

/* At most n rows at a time; net: runs up to projector_end. */
int embedder_open(device *dev, const network *net, int64_t n, embedder *out);
/* Unit rows of components x [n,p] into out [n,width], both host. */
int embedder_run(embedder *e, const parameters *at, const float *x, int64_t n, float *out);
void embedder_close(embedder *e); /* also after a failed open */

/* ---- training -------------------------------------------------------------------------------- */

/* The networks in training, and memory for a batch.  Device memory unless it says host. */
typedef struct refiner {
    device *dev;
    network net; /* projector and predictor */
    int n, d;    /* rows of a batch; features of the head's output */
    /* blocks with the network's offsets */
    float *w, *dw, *v, *running, *target_w, *target_running;
    pass *online_pass, *target_pass;
    step_values *at;
    /* rows of a step, in blocks of n: a_i, b_i, b_j, a_i, a_j'.  The online network reads the first
     * two, the target the others from the second on. */
    float *host;             /* host: [5 n, features in] */
    float *in;               /* the same */
    act *acts, *target_acts; /* what each network reads of it */
    float *flat;             /* [4 n,d] */
    float *q, *dq;           /* [2 n,d] */
    float *key;              /* [4 n,d]: of half a, then of half b, each first of i, then of j */
    float *norm;             /* [4 n] */
    float *weight;           /* [n] */
    int32_t *near; /* [n,2]: the rows of a half's keys that row i is pulled towards: i, n + i */
    float *loss;   /* [1], added up */
    recording *recorded;
    void *owned[24];
    int n_owned;
} refiner;

enum { REFINE_BLOCKS = 5 };

/* in: features that enter; batch: at least 2; weights from seed.  deviation: [in], of what enters:
 * the head starts as an identity; NULL: as random layers. */
int refiner_open(device *dev, int in, int hidden, int width, int batch, uint64_t seed,
                 const float *deviation, refiner *out);
void refiner_close(refiner *r); /* also after a failed open */
/* One step on the rows in r->host.  weight: [n], host. */
int refiner_step(refiner *r, const step_values *at, const float *weight);
/* The sum of the losses since the last call; waits. */
int refiner_loss(refiner *r, double *sum);

/* ---- what is random (views.c) ---------------------------------------------------------------- */

typedef struct refine_draw {
    const float *x;     /* [n,d], components of all rows */
    const int32_t *ids; /* [n,k], lists of neighbors, the row itself first */
    int64_t n;
    int d, k, threads;
    double dropout;
    const float *deviation; /* [d], of the components */
    uint64_t seed;
} refine_draw;

/* The rows of a step: row [batch] names the anchors; out: [5 batch, d] as in refiner. */
void refine_views(const refine_draw *v, uint32_t step, const int32_t *row, int batch, float *out);

#endif
