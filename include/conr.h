/* conr.h: deep image clustering (CoNR) from C.  The whole public interface of libconr, in one file on
 * purpose: it is also the manual.
 *
 * A complete program: it learns from the images in a folder, groups them into ten clusters, and
 * prints the cluster and the path of each image.
 *
 *     #include <conr.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     int main(int argc, char **argv) {
 *         if (argc != 3) return fprintf(stderr, "usage: %s IMAGES SECONDS\n", argv[0]), 2;
 *         conr *c = NULL;
 *         conr_images *images = NULL;
 *         conr_settings *s = NULL;
 *         conr_images_options all = conr_images_defaults();
 *         conr_train_options o = conr_train_defaults();
 *         int64_t *label = NULL, n = 0;
 *         o.out = "run";               // gets the model, labels.csv, report.html, ...
 *         o.budget = atof(argv[2]);    // train for about this long
 *         if (conr_open("auto", 0, &c) < 0 ||
 *             conr_images_open(c, argv[1], &all, NULL, NULL, &images) < 0 ||
 *             conr_settings_new(&s) < 0 ||
 *             conr_settings_set(s, "clusters", "10") < 0 ||
 *             conr_settings_choose(c, images, o.budget, NULL, s, NULL, NULL) < 0 ||
 *             conr_train(c, images, s, &o, NULL) < 0 ||
 *             conr_read_labels("run/labels.csv", "cluster", &label, &n) < 0)
 *             fprintf(stderr, "%s\n", conr_error());
 *         for (int64_t i = 0; i < n; i++)
 *             printf("%lld %s\n", (long long)label[i], conr_images_path(images, i));
 *         conr_free(label);
 *         conr_settings_free(s);
 *         conr_images_close(images);
 *         conr_close(c);
 *         return n == 0;
 *     }
 *
 * Conventions
 *   - A function that can fail returns 0 or a negative CONR_E* code.  conr_error() then says in one
 *     line what failed, why, and what to do about it.
 *   - The library prints nothing and never exits; long work reports through callbacks.
 *   - A context (conr *) is used by one thread at a time; contexts are independent of each other.
 *   - Options come from a *_defaults() function; change the fields you care about.
 *   - Shapes are written [rows,columns], row-major.  Every array belongs to the caller, unless its
 *     comment says who releases it. */
#ifndef CONR_H
#define CONR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONR_VERSION "0.1.0"

#if defined(__GNUC__)
#define CONR_API __attribute__((visibility("default")))
#else
#define CONR_API
#endif

/* ---- errors: one list defines the codes and their texts -------------------------------------- */

#define CONR_ERRORS(X)                                                                             \
    X(CONR_EINVAL, -1, "a value is outside what is allowed")                                       \
    X(CONR_ENOMEM, -2, "not enough memory")                                                        \
    X(CONR_EFILE, -3, "a file cannot be read or written")                                          \
    X(CONR_EFORMAT, -4, "a file is not what it claims to be")                                      \
    X(CONR_EDEVICE, -5, "the device is missing or has failed")                                     \
    X(CONR_ENUMBER, -6, "a number is NaN or infinite")                                             \
    X(CONR_ESTOPPED, -7, "stopped on request")

enum {
#define CONR_ERROR_CODE(name, code, text) name = code,
    CONR_ERRORS(CONR_ERROR_CODE)
#undef CONR_ERROR_CODE
};

/* The message of the last failure in this thread: "WHAT: WHY; REMEDY".  Never NULL.  Owned by the
 * library; valid until the next failure in the same thread. */
CONR_API const char *conr_error(void);

/* The general meaning of a code, e.g. "not enough memory".  Never NULL. */
CONR_API const char *conr_error_text(int code);

/* The version of the library in use, e.g. "0.1.0"; CONR_VERSION is the version of this header. */
CONR_API const char *conr_version(void);

/* The i-th format of images that conr reads ("JPEG", "TIFF", ...), NULL beyond the last.
 * *built_in: whether its library was there when this library was built; else files of that format are
 * refused with a line that says what to install. */
CONR_API const char *conr_format(int i, int *built_in);

/* ---- a context: an open device --------------------------------------------------------------- */

typedef struct conr conr;

/* Opens a device.  device:
 *   "auto"              the fastest one available
 *   "cpu"               this machine's cores
 *   "cuda", "cuda:1"    an NVIDIA GPU; activations in bf16
 *   "cuda-f32"          the same with activations in fp32: slow, for checking
 *   "ref"               plain loops: the definition of every operation
 * threads: 0 for all cores.  *out is released by conr_close. */
CONR_API int conr_open(const char *device, int threads, conr **out);
CONR_API void conr_close(conr *c); /* NULL is fine */

/* The rank of this process among those that mpirun or srun started for one training (conr_train,
 * conr_bench_train); *count (may be NULL) is the number of processes.  0 of 1 for a process started
 * on its own.  All ranks make the same calls; only rank 0 writes files, and only it should print.
 * A process that exits with a nonzero code brings down the others. */
CONR_API int conr_rank(int *count);

/* With 1, all ranks call conr_neighbors, conr_kmeans and conr_graph together from now on, with the
 * same arrays and options, and share the work; every rank gets the result that one process would compute.
 * With 0, the initial state, each process works on its own.  Reports are always made by one. */
CONR_API void conr_set_together(conr *c, int yes);

/* A description of the device, e.g. "cpu, 2 threads".  Owned by the context. */
CONR_API const char *conr_device(const conr *c);

/* On a GPU: queues the work of this context on `stream` (a cudaStream_t) from now on.  Work that
 * the context queued before comes first; the GPU waits for it, this call does not.
 *   NULL                 the context's own stream, as after conr_open
 *   (cudaStream_t)1      cudaStreamLegacy, CUDA's default stream
 * The stream must live until another one is set or the context is closed.  Makes the GPU of the
 * context current in the calling thread.  CONR_EINVAL on a device without streams. */
CONR_API int conr_set_stream(conr *c, void *stream);

/* ---- progress and stopping ------------------------------------------------------------------- */

typedef struct conr_progress {
    const char *stage; /* what is being done, e.g. "k-means" */
    int64_t done, total;
    const char *message; /* something to show at once, such as a warning; NULL: nothing */
    /* during training steps, else 0: */
    int epoch, epochs; /* from 1 */
    double loss, lr;   /* mean since the last report; learning rate of the encoder */
    double images_per_s, seconds_left;
} conr_progress;

/* Called from time to time during long work, in the thread that called the library.  Return 0 to
 * continue.  Anything else stops the work: the call fails with CONR_ESTOPPED and writes no results
 * (conr_train saves a checkpoint). */
typedef int conr_on_progress(const conr_progress *p, void *user);

/* Sets the callback; NULL: none. */
CONR_API void conr_set_progress(conr *c, conr_on_progress *on_progress, void *user);

/* ---- benchmarks ------------------------------------------------------------------------------ */

/* One operation on one shape.  Rates count the arithmetic of the definition, so an algorithm that
 * needs fewer operations can exceed the peak. */
typedef struct conr_bench_row {
    const char *op;    /* "conv_forward" */
    const char *shape; /* "32x32x32x64 -> 64, 3x3" */
    double seconds;    /* best of the repetitions */
    double flops;      /* of one run; 0 if the operation is bound by memory */
    double bytes;      /* moved at least: each tensor once */
    double share;      /* of this machine's measured peak: of the FMA rate, or of the copy rate */
    double error;      /* against ref, relative to the size of the signal; -1 on ref itself */
    double bound;      /* the largest error allowed */
} conr_bench_row;

typedef void conr_on_bench(const conr_bench_row *row, void *user);

/* Times every operation of the device on the shapes that the tests check, about seconds_per_case
 * each, and checks the results against ref.  Calls on_row once per case.  only: run the cases whose
 * text ("conv_forward 32x32x32x64 -> 64, 3x3") contains this; NULL: all.  Fails with CONR_ENUMBER,
 * after the last row, if an error exceeded its bound. */
CONR_API int conr_bench_ops(conr *c, const char *only, double seconds_per_case,
                            conr_on_bench *on_row, void *user);

/* The peaks that shares refer to, measured at the first call with the context's threads.
 * *flops: FMA operations per second, an FMA counting as two (on a GPU: of a large matrix product).
 * *bytes: bytes per second of a large copy, read + written; NULL: not wanted, and no memory is
 * allocated for the copy. */
CONR_API int conr_bench_peaks(conr *c, double *flops, double *bytes);

/* A training step on synthetic images: forward + backward of an encoder, or a whole step of BYOL or
 * CoNR: views, online and target passes, (CoNR: neighborhoods and filter), loss, backward, update.
 */
typedef struct conr_bench_train_options {
    const char *encoder;       /* "resnet18", "resnet34", "resnet50", "resnet101", "small" */
    const char *stem;          /* "cifar", "imagenet"; the small encoder has its own */
    int width, size, channels; /* channels of the first stage; side in pixels; 1 or 3 */
    int batch;                 /* images */
    int byol, conr;            /* 1: a whole step of stage 1, or of stage 2 */
    int hidden, features;      /* of the heads, with byol or conr */
    int recompute;             /* 1: save memory at a small cost in time */
    double seconds;            /* time to spend */
    int forward;               /* 1: only forward, as for features; not with byol or conr */
} conr_bench_train_options;

/* ResNet-18 with CIFAR stem at 32 pixels, batch 32, forward + backward, 3 seconds */
CONR_API conr_bench_train_options conr_bench_train_defaults(void);

typedef struct conr_bench_train_result {
    double seconds; /* of the best step */
    int steps;
    double images; /* per step, each counted once */
    double flops;  /* per step, by the definition */
    double bytes;  /* device memory of weights, gradients and activations */
    struct {
        const char *name;
        double share; /* of the time of a step */
    } part[12];
    int n_parts;
    /* with several ranks (conr_rank): */
    int ranks;
    double collectives; /* seconds per step spent waiting for collectives */
    double overlap;     /* share of the gradient exchange that the backward pass hides */
} conr_bench_train_result;

CONR_API int conr_bench_train(conr *c, const conr_bench_train_options *o,
                              conr_bench_train_result *out);

/* ---- features: neighborhoods, k-means, scores ------------------------------------------------ */

/* These functions work on any features: host arrays, row-major, owned by the caller.  n rows of d
 * floats each.  All must be finite, else CONR_ENUMBER names the row.
 *
 * On a GPU, conr_neighbors, conr_kmeans, conr_assign, conr_boundary and conr_boundary_filter also
 * take arrays in the memory of that GPU, from cudaMalloc or from another library: all arrays of a
 * call, or none (else CONR_EINVAL).  They are read and written in place, in the order of the
 * context's stream (conr_set_stream); do not touch them before the stream has passed the call.
 *   - conr_neighbors up to 8192 rows, conr_assign, conr_boundary and conr_boundary_filter do not
 *     wait: they return once their work is queued.  So values are not checked: NaN or infinity
 *     gives meaningless neighbors and labels, all within their range.
 *   - The context keeps its workspace, which grows with the largest call (neighbors: three matrices
 *     [n,n]).  Repeating a call allocates nothing, so neighbors, boundary and filter can be
 *     captured in a CUDA graph after they ran once.  Graphs captured with one context share its
 *     workspace: replay them one after another. */

typedef struct conr_neighbors_options {
    int k;            /* neighbors wanted, including the row itself; k, k1, k2 are cut to n */
    int k1;           /* neighbors that form the graph */
    int k2;           /* neighbors that pass messages, including the row itself */
    int layers;       /* of message passing */
    double alpha;     /* exponent of the similarities in message passing */
    int resymmetrize; /* before every layer but the first: A <- A + A^T */
    int local;        /* 1: plain nearest neighbors by cosine instead */
    double recall;    /* share of the nearest neighbors that the search must find, measured on a
                         sample of the rows; 1: all; 0: all up to 100,000 rows, beyond that 0.99.
                         Below 1 it takes much less time on large sets.  A GPU always finds all */
} conr_neighbors_options;

/* k = k1 = 10, k2 = 2, 2 layers, alpha 2, resymmetrized, not local, recall 0 */
CONR_API conr_neighbors_options conr_neighbors_defaults(void);

/* Contextually affinitive (or local) neighbors of every row among all rows, best first; the row
 * itself always comes first.  features: [n,d]; ids: [n, min(k,n)].  Exact unless `recall` is below 1,
 * or 0 and the set is large; memory grows with n.
 * For arrays on a GPU with more than 8192 rows, the GPU searches and the host does the rest: the
 * call then waits, and fails with CONR_ENUMBER on values that are not finite. */
CONR_API int conr_neighbors(conr *c, const float *features, int64_t n, int64_t d,
                            const conr_neighbors_options *o, int32_t *ids);

/* purity[K-1] = the mean share of a row's own class among its first K neighbors, not counting
 * itself, K = 1 .. k-1.
 *   ids     [n,k], as above
 *   labels  [n], -1: unlabeled and left out
 *   kept    [n], rows with 0 are left out as anchors; NULL: all rows count
 *   purity  [k-1], NaN if no row is left */
CONR_API int conr_purity(const int32_t *ids, int64_t n, int k, const int64_t *labels,
                         const unsigned char *kept, double *purity);

/* The distance of two rows: 1 - cos of the angle between them, or the Euclidean distance. */
typedef enum conr_metric { CONR_COSINE, CONR_EUCLIDEAN } conr_metric;

typedef struct conr_kmeans_options {
    int clusters;       /* K, at most n */
    conr_metric metric; /* cosine: rows are first scaled to length 1 */
    int restarts;       /* runs from greedy k-means++ seeds; the best one counts */
    int iterations;     /* of one run, at most */
    double tolerance;   /* a run ends when the squared shifts of the centroids add up to this
                           fraction of the mean variance of the features, or no label changes */
    uint64_t seed;
    const float *start; /* [K,d] centroids of one more run, or NULL; on the host, or where the
                           features are */
} conr_kmeans_options;

/* cosine, 10 restarts of at most 300 iterations, tolerance 1e-4, seed 1 */
CONR_API conr_kmeans_options conr_kmeans_defaults(void);

typedef struct conr_kmeans_step {
    int run;          /* 0 .. restarts-1; restarts: the run from `start`; more: from the best run */
    int iteration;    /* of the run, from 1 */
    double objective; /* sum over rows: squared distance, or 1 - cos, to their cluster's mean */
    double imbalance; /* K * sum of squared shares: from 1 (clusters of equal size) to K */
    int64_t moved;    /* rows that changed cluster */
    int refilled;     /* empty clusters that were given a row */
} conr_kmeans_step;

typedef struct conr_kmeans_history {
    double objective;       /* of the result, with the centroids returned */
    int run;                /* the run that gave the result */
    conr_kmeans_step *step; /* [steps], run by run; released by conr_kmeans_history_free */
    int steps;
} conr_kmeans_history;

/* Clusters rows by k-means.  The same seed gives the same bits for any number of threads.
 * From 2^26 distances n K on, on the host, a row is compared with the centroids around its own only,
 * and with all of them once, for its label; runs start from a sample of 24 K rows, end when a
 * step lowers the objective by less than `tolerance` of it, and are not mended by swaps.
 *   features   [n,d]
 *   centroids  [K,d], plain means (cosine: of the unit rows, themselves not scaled to length 1)
 *   labels     [n], the nearest centroid: conr_assign with these centroids gives the same labels
 *   history    may be NULL
 * Also waits on a GPU, where non-finite features are detected by their effect: CONR_ENUMBER. */
CONR_API int conr_kmeans(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, float *centroids, int32_t *labels,
                         conr_kmeans_history *history);
CONR_API void conr_kmeans_history_free(conr_kmeans_history *h);

/* Whether conr_kmeans takes the way of large sets here, on the host from 2^26 distances on. */
CONR_API int conr_kmeans_is_large(const conr *c, int64_t n, int K);

/* k-means of rows that are spread over the ranks (conr_rank): all ranks call it together, each with
 * its own part, in the order of the ranks.  Always takes the way of large sets, on the host.  The
 * bits of the result are those of one rank with all rows, for any number of ranks.
 *   features   [n,d], of this rank, n at least 1; no rank needs the others
 *   centroids, history  as of conr_kmeans, on every rank
 *   labels     of the rows of all ranks, on every rank */
CONR_API int conr_kmeans_shard(conr *c, const float *features, int64_t n, int64_t d,
                               const conr_kmeans_options *o, float *centroids, int32_t *labels,
                               conr_kmeans_history *history);

/* The nearest centroid of each row; of equally near ones, the lower index.  features: [n,d];
 * centroids: [K,d]; labels: [n]; distances: [n], by the metric, or NULL. */
CONR_API int conr_assign(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                         const float *centroids, int K, int32_t *labels, float *distances);

/* Estimates the number of clusters, low <= K <= high (docs/choosing-k.md).  o->clusters is ignored.
 * score: [high-low+1] or NULL: the criterion of each K, larger is better, -INFINITY if K was not
 * tried. */
CONR_API int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                                  const conr_kmeans_options *o, int low, int high, int *chosen,
                                  double *score);

/* The boundary ratio of each row,
 *
 *     r = 1 - (d_N - d_I) / max(d_I, d_N)    in [0,2],
 *     d_I = |f - own centroid|,  d_N = |f - nearest other centroid|:
 *
 * 0 on the own centroid, 1 halfway to the nearest other one.  With the cosine metric, rows are
 * first scaled to length 1; with normalize_centroids, so are the centroids.
 *   features   [n,d]
 *   centroids  [K,d]; with K = 1 there is no other one, and r = 0
 *   labels     [n], in 0 .. K-1; not checked on a GPU, where any other label gives NaN
 *   ratio      [n] */
CONR_API int conr_boundary(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                           const float *centroids, int K, const int32_t *labels,
                           int normalize_centroids, float *ratio);

/* The boundary filter: kept[i] = ratio[i] <= sigma, where sigma is the largest of the
 * floor(n * fraction) smallest ratios (at least one).  ratio, kept: [n]; sigma may be NULL.
 * Returns the number of rows kept, or a CONR_E* code. */
CONR_API int64_t conr_boundary_keep(const float *ratio, int64_t n, double fraction,
                                    unsigned char *kept, float *sigma);

/* conr_boundary_keep for arrays on the host or on the context's GPU.  It gives only `kept`, so that
 * the host need not wait for a value.  Returns 0 or a CONR_E* code. */
CONR_API int conr_boundary_filter(conr *c, const float *ratio, int64_t n, double fraction,
                                  unsigned char *kept);

/* The fraction of rows that the filter keeps: grows linearly from `first` to 1, which it reaches at
 * epoch `relax_epochs`.  Released code: epochs of stage 2 count from 1, relax_epochs is 50.  Paper:
 * they count from 0, relax_epochs is the length of stage 2. */
CONR_API double conr_boundary_fraction(double first, int epoch, int relax_epochs);

/* Scores of a clustering against true classes.  Labels are any integers; samples whose true label
 * is -1 are unlabeled: left out and counted. */
typedef struct conr_scores {
    double nmi;            /* mutual information over the arithmetic mean of the entropies */
    double acc;            /* accuracy under the best one-to-one match of clusters and classes */
    double ari;            /* adjusted Rand index */
    double balanced_acc;   /* accuracy of each class under that match, averaged over classes */
    int64_t n;             /* labeled samples */
    int64_t unlabeled;     /* samples left out */
    int clusters, classes; /* distinct values among the labeled samples */
} conr_scores;

/* truth, pred: [n]. */
CONR_API int conr_metrics(const int64_t *truth, const int64_t *pred, int64_t n, conr_scores *out);

/* Counts of cluster-class pairs; both in ascending order of their labels. */
typedef struct conr_confusion {
    int clusters, classes;
    int64_t *cluster, *class_; /* [clusters], [classes]: the labels */
    int64_t *count;            /* [clusters, classes] */
    int *match;                /* [clusters]: index of the class that ACC matches to it, or -1 */
    double *purity;            /* [clusters]: share of its largest class */
    int64_t n, unlabeled;      /* as in conr_scores */
} conr_confusion;

/* truth, pred: [n].  The arrays of *out are released by conr_confusion_free. */
CONR_API int conr_confusion_make(const int64_t *truth, const int64_t *pred, int64_t n,
                                 conr_confusion *out);
CONR_API void conr_confusion_free(conr_confusion *m); /* a zeroed struct is fine */

/* The mean silhouette of the rows, in [-1,1].  labels: [n], any integers, at least two distinct.
 * Exact below 20,000 rows; above, the mean over a sample of rows (each against all others) of size
 * *used.  used may be NULL. */
CONR_API int conr_silhouette(conr *c, const float *features, int64_t n, int64_t d,
                             conr_metric metric, const int32_t *labels, uint64_t seed, double *mean,
                             int64_t *used);

/* Weighted k-nearest-neighbor accuracy by cosine: each neighbor votes for its class with weight
 * exp(cos / temperature); k = 20 and temperature = 0.07 are usual.
 *   features, labels     [n,d], [n]: the voters
 *   query, query_labels  [n_query,d], [n_query]: the rows to classify; query NULL: each row of
 *                        features against all the others
 * Unlabeled rows (-1) neither vote nor count; ties go to the lower label. */
CONR_API int conr_knn_accuracy(conr *c, const float *features, const int64_t *labels, int64_t n,
                               const float *query, const int64_t *query_labels, int64_t n_query,
                               int64_t d, int k, double temperature, double *accuracy);

/* Benchmarks on features drawn from 30 clusters, d = 256.
 *   conr_bench_neighbors  batches of 256 and 1024, the whole set of 60,000; share is of the FMA
 *                         peak, counting half of F F^T
 *   conr_bench_kmeans     60,000 rows, K = 10 and 200, 10 restarts; and the matching of ACC
 *                         (200 x 200); share is 0, since the operations depend on the data
 * quick: only the small cases. */
CONR_API int conr_bench_neighbors(conr *c, int quick, conr_on_bench *on_row, void *user);
CONR_API int conr_bench_kmeans(conr *c, int quick, conr_on_bench *on_row, void *user);

/* ---- features: other ways to cluster them ---------------------------------------------------- */

/* Clusters rows by the normalized cut of their graph, whose edges are contextual affinities over the
 * whole set: how many neighbors two rows share.  Follows shapes that k-means cuts through; has no
 * centroids.  The search for neighbors takes nearly all the time; memory grows with n. */
typedef struct conr_graph_options {
    int clusters;                     /* K, at most n; at most 1000 unless it is n */
    conr_neighbors_options neighbors; /* the graph: as in conr_neighbors; k is the number of edges
                                         that start at a row, plus one */
    uint64_t seed;
} conr_graph_options;

/* 10 clusters; k = 30, k1 = 20, k2 = 1, 1 layer; seed 1 */
CONR_API conr_graph_options conr_graph_defaults(void);

/* features: [n,d]; labels: [n], in 0 .. K-1.  Parts of the graph that are not connected are joined
 * where they are most alike; parts much smaller than a cluster (copies of one row, a row like no
 * other) go to what they are most like, unless there are more clusters than larger parts.  The same
 * seed gives the same bits for any number of threads. */
CONR_API int conr_graph(conr *c, const float *features, int64_t n, int64_t d,
                        const conr_graph_options *o, int32_t *labels);

/* Labels of new rows by a vote of their 10 nearest rows by cosine, which is also the weight of a
 * vote.  features, labels: [n,d], [n], the rows that were clustered, labels in 0 .. K-1; query:
 * [m,d]; out: [m]. */
CONR_API int conr_graph_assign(conr *c, const float *features, const int32_t *labels, int64_t n,
                               int64_t d, int K, const float *query, int64_t m, int32_t *out);

/* Whether K clusters by conr_graph (*use_graph = 1) or by conr_kmeans with cosine (0) are likely to
 * be the better ones, by signs that need no labels (docs/choosing-k.md), from at most 6000 rows
 * drawn by the seed.  k-means if K is above half of these rows.  score: [2] or NULL: of k-means, of
 * the graph; the larger one wins. */
CONR_API int conr_choose_method(conr *c, const float *features, int64_t n, int64_t d, int K,
                                uint64_t seed, int *use_graph, double score[2]);

/* A head: a small network trained on frozen features, which gives features whose clusters are
 * easier to tell apart (docs/log/features.md has what it gains).
 *   - Unit rows become principal components, at most 256 of them, times a linear map: components
 *     are divided by a power of their deviation, and Fisher's discriminants of the clusters found
 *     there follow if there are three clusters or more.  Which of these is best is judged without labels, by how well the clusters
 *     agree with the neighborhoods.
 *   - Linear(hidden) - BN - ReLU - Linear(width) starts as the identity and is trained by CoNR,
 *     BYOL's way: rows that lack some components are pulled towards themselves and their neighbors.
 *   - Of all epochs, the one before the first included, the head is the one whose clusters agree
 *     best with the neighborhoods. */
typedef struct conr_head conr_head;

typedef struct conr_refine_options {
    int clusters;   /* K, of the pseudo labels; 0: unknown, then there are neither discriminants nor
                       a boundary filter, and the head is that of the last epoch */
    int epochs;     /* 0: chosen from n */
    int batch;      /* rows in a step, at least 2; cut to n */
    int hidden;     /* units of the inner layers */
    int width;      /* features of the result; 0: as many as enter the network */
    double dropout; /* share of the components that a view lacks */
    double average; /* m of the target network's moving average; rises to 1 */
    double lr;      /* of SGD; falls to 0 */
    double keep;    /* share of the rows that the boundary filter keeps; rises to 1 */
    uint64_t seed;
    conr_neighbors_options neighbors; /* of the whole set */
} conr_refine_options;

/* clusters, epochs and width 0; batch 256, 512 hidden units, dropout 0.1, average 0.99, lr 0.05,
 * keep 0.8, seed 1, and conr_neighbors_defaults */
CONR_API conr_refine_options conr_refine_defaults(void);

/* Trains a head on features [n,d], n at least 2.  The same seed gives the same bits for any number
 * of threads.  *out is released by conr_head_close. */
CONR_API int conr_refine(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_refine_options *o, conr_head **out);
CONR_API void conr_head_close(conr_head *h); /* NULL is fine */

/* d: features that the head takes; *width: features that it gives. */
CONR_API void conr_head_about(const conr_head *h, int64_t *d, int64_t *width);

/* The refined features of any rows, seen or not: unit rows.  features: [n,d]; out: [n,width]. */
CONR_API int conr_head_apply(conr *c, const conr_head *h, const float *features, int64_t n,
                             int64_t d, float *out);

/* A head in a safetensors file; *out is released by conr_head_close. */
CONR_API int conr_head_save(const conr_head *h, const char *path);
CONR_API int conr_head_open(conr *c, const char *path, conr_head **out);

/* ---- arrays in files ------------------------------------------------------------------------- */

/* Reads a matrix from a .npy file of any numeric type and order; NaN and infinity are refused.
 * *features [n,d] is released by conr_free. */
CONR_API int conr_read_features(const char *path, float **features, int64_t *n, int64_t *d);

/* The same for one of `parts` parts of equal size, part 0 .. parts-1: only its rows are read and
 * held.  *total: rows of the file. */
CONR_API int conr_read_features_part(const char *path, int part, int parts, float **features,
                                     int64_t *n, int64_t *d, int64_t *total);

/* Reads integers from a .npy file or a CSV file: from the column named `column`, or if that is NULL
 * from the first of cluster, label, pred that exists, else from the last column.  *labels [n] is
 * released by conr_free. */
CONR_API int conr_read_labels(const char *path, const char *column, int64_t **labels, int64_t *n);

/* Reads the labels of two files about the same samples, each as conr_read_labels does; those of a
 * CSV may also be words, which are then numbered, and an empty true label counts as -1.  If both
 * files are CSV with a column `path`, rows are matched by it (a path that is missing or appears
 * twice is an error), else by their order.  *truth, *pred [n], in the order of the first file, are
 * released by conr_free. */
CONR_API int conr_read_pair(const char *truth_path, const char *truth_column, const char *pred_path,
                            const char *pred_column, int64_t **truth, int64_t **pred, int64_t *n);

/* Write a .npy file [rows,columns], or a vector [rows] if columns is 0.  The file is written
 * completely or not at all, and not into the folder of a training that is running. */
CONR_API int conr_write_ints(const char *path, const int32_t *values, int64_t rows,
                             int64_t columns);
CONR_API int conr_write_floats(const char *path, const float *values, int64_t rows,
                               int64_t columns);
/* Likewise a file of any bytes [n]. */
CONR_API int conr_write_bytes(const char *path, const void *bytes, int64_t n);

/* Fails if writing to `out` would replace the file `input` (NULL: none), or a file that a run or a
 * sweep keeps in its folder, or if a training is writing into that folder now: for use before long
 * work.  Links are followed. */
CONR_API int conr_check_output(const char *out, const char *input);

/* Fails if `path` is a file of a finished run, and not as the run wrote it: its checksum differs from
 * the one in DONE beside it.  Other files pass.  conr_read_features, conr_read_labels,
 * conr_settings_read, conr_model_open and conr_report check by themselves what they read. */
CONR_API int conr_check_file(const char *path);

/* Releases what the library allocated; NULL is fine. */
CONR_API void conr_free(void *p);

/* ---- images ---------------------------------------------------------------------------------- */

/* A source of images (docs/images.md): a folder of JPEG, PNG and WebP files, the binary files of
 * known data sets, IDX, .npy, a list of paths. */
typedef struct conr_images conr_images;

typedef struct conr_images_options {
    const char *split;   /* "train", "val", "test", "unlabeled": only this part; NULL: all joined */
    const char *classes; /* "cat,dog": only these class folders; NULL: all */
    int coarse;          /* 1: label CIFAR-100 with its 20 superclasses */
    double long_tail;    /* f > 1: thin out the classes in geometric steps, the last one to 1/f of
                            the first; needs labels */
} conr_images_options;

/* all parts, all classes, fine labels */
CONR_API conr_images_options conr_images_defaults(void);

/* Progress of long work; called from any thread, one at a time.  Return 0 to continue; anything
 * else stops the work with CONR_ESTOPPED. */
typedef int conr_on_count(int64_t done, int64_t total, void *user);

/* Opens a source.  Reads every header, but no pixels.  Files that cannot be read are skipped and
 * counted; more than 5 % of them is an error, and so is a source without images.  on_count may be
 * NULL.  *out is released by conr_images_close. */
CONR_API int conr_images_open(conr *c, const char *src, const conr_images_options *o,
                              conr_on_count *on_count, void *user, conr_images **out);
CONR_API void conr_images_close(conr_images *m); /* NULL is fine */

/* Strings belong to the conr_images.  File and class names may hold any bytes but 0. */
typedef struct conr_images_info {
    const char *kind;          /* "image folder", "CIFAR-10 binary files", ... */
    int64_t n;                 /* images */
    int64_t labeled;           /* images with a label */
    int64_t skipped;           /* files that cannot be read */
    const char *first_skipped; /* the first such file and the reason; NULL: none */
    int width[2], height[2];   /* least and greatest, in pixels */
    int channels;              /* 1 if every image is gray, else 3 */
    int classes;               /* 0: no labels */
} conr_images_info;

CONR_API void conr_images_about(const conr_images *m, conr_images_info *out);

/* The i-th file that cannot be read and the reason, as first_skipped is the 0th; NULL beyond the last.
 * Of more than 1,000 only the first 1,000 are named. */
CONR_API const char *conr_images_skipped(const conr_images *m, int64_t i);

/* The name of a class, which < classes, and the number of its images in *count (may be NULL). */
CONR_API const char *conr_images_class(const conr_images *m, int which, int64_t *count);

/* The label of image i < n; -1: unknown. */
CONR_API int conr_images_label(const conr_images *m, int64_t i);

/* The path of image i < n, or "name#index" for an item of an array.  Valid until the next call. */
CONR_API const char *conr_images_path(conr_images *m, int64_t i);

/* Decodes every image and drops those that cannot be read, which only then are all known: what is
 * left are the images that every other call uses, in their order.  on_count may be NULL. */
CONR_API int conr_images_check(conr *c, conr_images *m, conr_on_count *on_count, void *user);

/* As conr_check_output, for all files that the images are in, also those that cannot be read. */
CONR_API int conr_images_check_output(const conr_images *m, const char *out);

/* What a training on real images reaches beside the step alone. */
typedef struct conr_bench_feed_options {
    conr_bench_train_options
        train;         /* a step of stage 1; byol, conr and channels are not looked at */
    double blur;       /* probability, as the setting */
    int device_images; /* MiB, as the setting */
} conr_bench_feed_options;

CONR_API conr_bench_feed_options conr_bench_feed_defaults(void); /* of the train options; 0, 0 */

typedef struct conr_bench_feed_result {
    conr_bench_train_result step; /* alone: on noise of the right size, as conr_bench_train */
    double images;                /* in all */
    double load;                  /* seconds to decode them */
    const char *stored;           /* where the host has them: "memory", "cache file", "source" */
    const char *fed; /* how they reach the device: "host" (views are made there), "device
                                     memory", "streamed" */
    double bytes;    /* of device memory that this takes */
    double seconds;  /* per step, the mean of all steps */
    int steps;
    double waited;    /* of them, seconds per step that the trainer waited for images, */
    double queueing;  /* and that its thread was busy otherwise */
    double embedding; /* seconds per image without augmentation; 0: not measured, on the CPU */
    struct {
        const char *name;
        double share; /* of the time of a step, as in step.part */
    } part[12];
    int n_parts;
} conr_bench_feed_result;

/* Decodes the images, times the step alone, then trains on them for train.seconds. */
CONR_API int conr_bench_feed(conr *c, conr_images *images, const conr_bench_feed_options *o,
                             conr_bench_feed_result *out);

/* Image i for showing it; may be called by many threads at once.  All bytes are released by conr_free.
 *   thumb    the center square as JPEG, at most side x side pixels
 *   picture  the whole image: its file as it is, or as PNG if it is an item of an array or of a kind
 *            that browsers do not show; *type is "image/jpeg", ...
 *   file     the path of its file; NULL: an item of an array */
CONR_API int conr_images_thumb(const conr_images *m, int64_t i, int side, unsigned char **jpeg,
                               int64_t *n);
CONR_API int conr_images_picture(const conr_images *m, int64_t i, unsigned char **bytes, int64_t *n,
                                 const char **type);
CONR_API const char *conr_images_file(const conr_images *m, int64_t i);

/* Raw pixels as features, the baseline of any clustering: each image is squashed to size x size and
 * becomes one row, pixel by pixel with channels last.  0 is black and 1 is white, but the scaling is
 * bicubic, so beside sharp edges values may lie a little below 0 or above 1.  Images whose pixels
 * turn out to be unreadable are dropped from m and counted there: call conr_images_about again.
 * *features [n,d] is released by conr_free. */
CONR_API int conr_images_pixels(conr *c, conr_images *m, int size, float **features, int64_t *n,
                                int64_t *d);

/* The built-in descriptor: gradients, colors and texture of each image, without any training.  A row
 * depends on its image alone, and d is the same for all images.  Images whose pixels turn out to be
 * unreadable are dropped from m, as by conr_images_pixels.  *features [n,d] is released by
 * conr_free. */
CONR_API int conr_describe(conr *c, conr_images *m, float **features, int64_t *n, int64_t *d);

/* ---- a glance at each image: copies, blurred and dark images ----------------------------------- */

typedef struct conr_looks conr_looks;

typedef struct conr_look {
    int readable; /* 0: it cannot be decoded, and only width, height and bytes are known */
    int width, height;
    int64_t bytes;              /* of the file; of the pixels in an array */
    float brightness, contrast; /* mean and deviation of the gray values in [0,1] */
    float sharpness; /* 0 and more: how much neighboring pixels differ, beside contrast */
} conr_look;

/* Looks at every image once.  Memory: about 1.4 KB per image.  *out is released by conr_looks_free. */
CONR_API int conr_looks_make(conr *c, conr_images *m, conr_looks **out);
CONR_API void conr_looks_free(conr_looks *l); /* NULL is fine */
/* Image i (out may be NULL); returns the number of images. */
CONR_API int64_t conr_looks_get(const conr_looks *l, int64_t i, conr_look *out);

/* What may be wrong with an image, as bits; 0: nothing. */
enum { CONR_LOOK_BLURRED = 1, CONR_LOOK_DARK = 2, CONR_LOOK_UNIFORM = 4 };
CONR_API int conr_look_reasons(const conr_look *l);

typedef struct conr_duplicate {
    int32_t group;    /* from 0; -1: there is no copy of it */
    int64_t keep;     /* the image to keep of its group: most pixels, then sharpest */
    int identical;    /* 1: another one has the same bytes */
    float similarity; /* to the most similar one of its group, at most 1 */
} conr_duplicate;

/* Finds images with the same bytes, and those that are copies of each other, encoded again, resized
 * or cropped (down to 0.6 of a side).  threshold: the similarity of copies, from 0.9 to 1: the
 * correlation of small gray copies where they overlap; 0.97 is usual, 1: the same bytes only.  Time
 * and memory grow as the number of images.  out: [n]; *groups: how many there are.  The first call
 * compares, further ones with other thresholds are quick. */
CONR_API int conr_duplicates(conr *c, conr_looks *l, double threshold, conr_duplicate *out,
                             int *groups);

/* ---- training -------------------------------------------------------------------------------- */

/* The settings of a training: what a recipe file holds (docs/recipes.md).  conr_setting lists the
 * keys; every key has a default, which is the paper's. */
typedef struct conr_settings conr_settings;

/* All settings at their defaults.  *out is released by conr_settings_free. */
CONR_API int conr_settings_new(conr_settings **out);
CONR_API void conr_settings_free(conr_settings *s); /* NULL is fine */

/* Reads a recipe: flat YAML, keys and values.  Settings that it does not name keep their values. */
CONR_API int conr_settings_read(conr_settings *s, const char *path);

/* Sets one setting from text.  CONR_EINVAL: no such key, or the value is not allowed. */
CONR_API int conr_settings_set(conr_settings *s, const char *key, const char *value);

/* The value of a setting as text that conr_settings_set accepts.  out: size bytes. */
CONR_API int conr_settings_get(const conr_settings *s, const char *key, char *out, int size);

/* Sets encoder, width and stem to those of the ResNet in a safetensors file, under anybody's names, so
 * that conr_train can go on from it (`init`).  CONR_EFORMAT: it holds none. */
CONR_API int conr_settings_encoder(conr_settings *s, const char *path);

/* Fails if settings contradict each other, as conr_train would. */
CONR_API int conr_settings_check(const conr_settings *s);

/* Called once for each setting considered; why is NULL if the caller had fixed it. */
typedef void conr_on_choice(const char *key, const char *value, const char *why, void *user);

/* Chooses settings that suit the images and the device, by simple rules: those that `conr cluster`
 * trains with.  Keys named in `fixed` (separated by blanks; NULL: none) and `clusters` keep their
 * values in s; settings that depend on them follow.  budget: as in conr_train_options.  on_choice
 * may be NULL. */
CONR_API int conr_settings_choose(const conr *c, const conr_images *m, double budget,
                                  const char *fixed, conr_settings *s, conr_on_choice *on_choice,
                                  void *user);

typedef struct conr_setting_info {
    const char *key, *initial;
    const char *allowed; /* "1 to 4096", "byol|simsiam|moco|propos", ... */
    const char *help;
} conr_setting_info;

/* Setting i = 0, 1, ... of the list.  Returns 0 past the last one, else nonzero.  The strings are
 * valid until the next call in the same thread. */
CONR_API int conr_setting(int i, conr_setting_info *out);

typedef struct conr_train_options {
    const char *out;  /* the run folder; created if it does not exist */
    int resume;       /* 1: continue the stopped run in `out`, with its own settings, on the same
                         images; others are refused */
    const char *from; /* "RUN" or "RUN@EPOCH": start from that checkpoint; NULL: from scratch.  May
                         also be the folder of a compact checkpoint. */
    int stage;        /* 2: with `from`, enter stage 2 at once and count the epochs before it as
                         done; 0: continue where the checkpoint is */
    const char *init; /* safetensors file with initial encoder weights under torchvision's names, or
                         NULL */
    double budget;    /* seconds: choose epochs (and stage1_epochs, warmup_epochs in proportion) so
                         that the training takes about this long; 0: as set */
    int no_report;    /* 1: do not write report.html; conr_report can do so later */
} conr_train_options;

CONR_API conr_train_options conr_train_defaults(void); /* nothing set */

/* A clustering of the images that the baseline looks at. */
typedef struct conr_baseline_side {
    conr_scores scores; /* with labels */
    double agreement;   /* share of a row's 10 nearest neighbors that have its label */
    double confirmed;   /* the same with neighbors by the features of the other side, beyond what
                            chance gives, of what it leaves: 0 is chance, 1 is all */
    double silhouette;  /* without labels, else NaN; likewise */
    double stability;   /* share of rows whose label is the same by k-means on either half */
} conr_baseline_side;

/* What a training is worth: its clusters beside those of the built-in descriptor (conr_describe),
 * both of the same sample of the images. */
typedef struct conr_baseline {
    int64_t images;           /* of the sample; 0: there is no baseline */
    int labeled;              /* 1: scores are valid */
    int descriptor_wins;      /* 1: the descriptor's clusters are better: by the labels if there are
                            some, else by `confirmed` */
    int descriptor_confirmed; /* 1: they are by `confirmed`, whatever the labels say */
    conr_baseline_side training, descriptor;
} conr_baseline;

typedef struct conr_train_result {
    int clusters, epochs;
    int64_t steps, images;
    double seconds;      /* of this call */
    double loss;         /* mean over the last epoch; NaN if this call closed none */
    double images_per_s; /* in training steps, each image counted once */
    int labeled;         /* 1: scores and knn are valid */
    conr_scores scores;
    double knn;        /* 20-nearest-neighbor accuracy */
    double silhouette; /* of the final clusters; NaN if there is only one */
    conr_baseline baseline;
} conr_train_result;

/* Trains on the images, clusters them and writes the run folder (docs/training.md): options.yaml,
 * log.jsonl, checkpoint.safetensors, model.safetensors, embeddings.npy, centroids.npy, labels.csv,
 * data.json (what and where the images are), report.html, and DONE last.  Rows of labels.csv and
 * embeddings.npy are in the order of the images.  If the progress callback stops it, the step at
 * hand is finished, a checkpoint is saved, and the call fails with CONR_ESTOPPED.  While it runs,
 * nobody else can write into the folder: CONR_EFILE names the process that does.  Images that turn out to be unreadable are
 * dropped from m and counted there.  result may be NULL. */
CONR_API int conr_train(conr *c, conr_images *m, const conr_settings *s,
                        const conr_train_options *o, conr_train_result *result);

/* ---- a trained model ------------------------------------------------------------------------- */

typedef struct conr_model conr_model;

/* Pointers belong to the model. */
typedef struct conr_model_info {
    const char *encoder, *framework; /* "resnet18"; "byol" */
    int size, channels;              /* of the images it takes */
    int features;                    /* d */
    int clusters;                    /* K; 0: no centroids come with the model */
    const float *centroids;          /* [K,d], or NULL */
} conr_model_info;

/* Opens a run folder, or just a model.safetensors (then without centroids), or RUN@EPOCH: the
 * network of the finished training RUN as its checkpoint of that epoch has it (also without).  *out
 * is released by conr_model_close. */
CONR_API int conr_model_open(conr *c, const char *path, conr_model **out);
CONR_API void conr_model_close(conr_model *m); /* NULL is fine */
CONR_API void conr_model_about(const conr_model *m, conr_model_info *out);

/* Features of all images, scaled to length 1.  Images that turn out to be unreadable are dropped
 * from `images` and counted there.  *features [n,d] is released by conr_free. */
CONR_API int conr_embed(conr *c, const conr_model *m, conr_images *images, float **features,
                        int64_t *n, int64_t *d);

/* Writes the encoder for use elsewhere (docs/export.md).  format:
 *   "safetensors"  weights under torchvision's names; with projector != 0 also the projector, as
 *                  projector.0.weight ...
 *   "onnx"         a graph from `images` [N,c,size,size], values in [0,1], to `features` [N,d], the
 *                  unit rows of conr_embed, and `encoder`, the output of the encoder before the
 *                  projector; the projector argument is ignored. */
CONR_API int conr_export(const conr_model *m, const char *format, int projector, const char *path);

/* Writes a CSV file with one row per image: path,cluster,distance,boundary[,label].  labels,
 * distances (1 - cos to the centroid) and boundary ratios: [n], for the features that conr_embed
 * gave for the same images. */
CONR_API int conr_write_clusters(const char *path, conr_images *images, const int32_t *labels,
                                 const float *distances, const float *boundary, int64_t n);

/* Puts the images into folder/cluster-00, ...: as symbolic links to their files, or as copies if
 * copy != 0; items of arrays become PNG files.  Images of the same name after the first get a
 * number.  labels: [n], in 0 .. clusters-1.  The folder must be empty or not exist; after a failure
 * it is as it was before. */
CONR_API int conr_sort_images(conr *c, conr_images *images, const int32_t *labels, int64_t n,
                              int clusters, const char *folder, int copy);

/* The same with a name for the folder of each cluster: names [clusters], NULL for cluster-07.  What
 * a file name cannot hold becomes '_', and of equal names the later ones get the number of the
 * cluster.  Images with the labels -1 and -2 go into the folders `outliers` and `wrong`; those with
 * lower ones are left out. */
CONR_API int conr_sort_named(conr *c, conr_images *images, const int32_t *labels, int64_t n,
                             const char *const *names, int clusters, const char *folder, int copy);

/* Fails if conr_sort_images would refuse the folder: for use before long work. */
CONR_API int conr_sort_check(const char *folder);

/* ---- pretrained encoders --------------------------------------------------------------------- */

/* A network that somebody trained, read from a safetensors file and recognized by the names of its
 * tensors (docs/encoders.md): vision transformers (timm, DeiT, DINO, DINOv2, CLIP, SigLIP). */
typedef struct conr_encoder conr_encoder;

/* Strings belong to the encoder. */
typedef struct conr_encoder_info {
    const char *path;     /* of the file, absolute if that is known */
    const char *family;   /* "DINOv2" */
    const char *form;     /* whose names the file has: "Hugging Face", "timm", ... */
    const char *network;  /* "ViT-S/14 with 4 registers" */
    const char *type;     /* of most of its numbers: "F32", "F16", "BF16" */
    const char *settings; /* all, as KEY=VALUE separated by blanks; given back, the same result */
    const char *pool, *gelu; /* what becomes the features; "exact", "quick", "tanh" */
    int64_t weights;         /* numbers */
    int features;            /* d */
    int size;                /* of the images it sees, in pixels */
    int resize;              /* their short side is resized to this, and the center cut out; 0: they
                                are squashed */
    const char *filter;      /* "bicubic", "bilinear" */
    float mean[3], deviation[3]; /* of values in [0,1]: (x - mean) / deviation */
    uint64_t checksum;           /* XXH64 of the file */
} conr_encoder_info;

/* Opens a file on the device of c, which must stay open as long.  settings: "KEY=VALUE", ended by
 * NULL, in place of what is known of the family: size, resize, filter, mean, deviation, pool, gelu,
 * heads; NULL: none.  CONR_EFORMAT: it is not a network that is known, or not whole.  *out is
 * released by conr_encoder_close. */
CONR_API int conr_encoder_open(conr *c, const char *path, const char *const *settings,
                               conr_encoder **out);
CONR_API void conr_encoder_close(conr_encoder *e); /* NULL is fine */
CONR_API void conr_encoder_about(const conr_encoder *e, conr_encoder_info *out);

/* 1: the file is a safetensors file that conr did not write as a model; 0: it is something else. */
CONR_API int conr_is_encoder(const char *path);

/* Features of all images, scaled to length 1.  Images that turn out to be unreadable are dropped
 * from `images` and counted there.  *features [n,d] is released by conr_free. */
CONR_API int conr_encode(conr *c, conr_encoder *e, conr_images *images, float **features,
                         int64_t *n, int64_t *d);

/* Writes the network as an ONNX file (docs/export.md): from `images` [N,3,size,size], values in
 * [0,1], to `features` [N,d], the unit rows of conr_encode for images of that size, and `encoder`,
 * the same before they are scaled.  Reads the weights again, on the host. */
CONR_API int conr_encoder_export(conr *c, const conr_encoder *e, const char *path);

/* ---- runs made from features ----------------------------------------------------------------- */

typedef struct conr_features_options {
    const char *out;  /* the run folder; created if it does not exist */
    const char *from; /* the file that the features were read from, for the record; NULL: none */
    const char
        *method; /* "kmeans", "graph" (conr_graph), or "auto": by signs that need no labels */
    const char *refine; /* "conaff": train a head on the features first (conr_refine); "none"; or
                           "auto": conaff if neighbors confirm its clusters better than those of
                           the features as given; none for the descriptor */
    int clusters;       /* K; 0: estimate it (conr_choose_clusters), */
    int low, high;      /* from low to high; a high above n is cut to n */
    int restarts;       /* of k-means */
    conr_neighbors_options neighbors; /* of the head and of the graph; fields that are -1 keep
                                         the defaults of each */
    uint64_t seed;                    /* at most 2147483647 */
    conr_images_options selection;    /* that the images were opened with, for later reports */
    int no_report;                    /* 1: do not write report.html; conr_report can do so later */
    conr_encoder *encoder;            /* in place of features: images go through it; NULL: none */
    const char
        *note; /* a sentence for the log and the report: why it is these features; NULL: none */
} conr_features_options;

/* auto, auto, K estimated from 2 to 50, 10 restarts, neighbors all -1, seed 1, no encoder */
CONR_API conr_features_options conr_features_defaults(void);

typedef struct conr_features_result {
    int clusters;
    const char *method; /* "kmeans" or "graph"; static */
    int64_t n, d;       /* rows, and features per row after refining */
    double seconds;     /* of this call */
    int labeled;        /* 1: scores and knn are valid */
    conr_scores scores;
    double knn;        /* 20-nearest-neighbor accuracy */
    double silhouette; /* of the final clusters; NaN if there is only one */
    double agreement;  /* the share of a row's 20 nearest rows, by the features as they were given,
                          that are in its cluster; NaN for a single row */
} conr_features_result;

/* Clusters features in place of training, and writes a run folder as conr_train does, with
 * head.safetensors (if refined) in place of model and checkpoint.
 *   images    whose features they are, row by row; NULL: none, and a report without pictures.
 *             Their labels score the result.
 *   features  [n,d]; NULL: the images go through o->encoder (conr_encode) or, without one, are
 *             described (conr_describe); unreadable ones are dropped
 *   names     [n], for labels.csv, without images; NULL: FILE#0, FILE#1, ... after o->from
 * A call that fails or is stopped can be repeated with the same folder. */
CONR_API int conr_cluster_features(conr *c, conr_images *images, const float *features, int64_t n,
                                   int64_t d, const char *const *names,
                                   const conr_features_options *o, conr_features_result *result);

/* A training with a budget on a CPU may be worth less than the built-in descriptor.  *kept: the
 * seconds of the budget to hold back for clusters of the descriptor; 0: none, since there is a GPU,
 * or several processes, or no budget.  Fails if OUT/training exists, where the training may have to
 * move. */
CONR_API int conr_budget_keep(const conr *c, const conr_images *images, const char *out,
                              double budget, double *kept);

enum { CONR_NOTE_SIZE = 512 };
/* After such a training, if its baseline has descriptor_confirmed: the run o->out becomes one of the
 * descriptor, with `note` saying why in its log and report, and the training moves to OUT/training.
 * If it fails, all is as it was.  o->note is ignored. */
CONR_API int conr_use_descriptor(conr *c, conr_images *images, const conr_baseline *b,
                                 const conr_features_options *o, conr_features_result *result,
                                 char note[CONR_NOTE_SIZE]);

/* Clusters the embeddings of a finished run again, into another folder: another K, another method,
 * nothing trained.  What embeds new images or features goes along.  o->refine must be "none" or
 * "auto"; o->from and o->selection are ignored. */
CONR_API int conr_cluster_again(conr *c, const char *run, const conr_features_options *o,
                                conr_features_result *result);

/* 1: the folder holds a run made from features; 0: it does not; or a CONR_E* code. */
CONR_API int conr_is_features_run(const char *run);

/* The clusters of a finished run of any kind, for rows and images that it has not seen. */
typedef struct conr_clustering conr_clustering;

/* Strings belong to the clustering. */
typedef struct conr_clustering_info {
    const char *takes;  /* "features": somebody's; "hog", "model", "encoder": images, through the
                           descriptor, the trained model or a pretrained encoder */
    const char *method; /* "kmeans", "graph" */
    const char *refine; /* "none", "conaff" */
    const char *from;   /* the file or the run that it was made from; "": not known */
    int64_t n;          /* rows that were clustered */
    int64_t d, width;   /* features per row that it takes, and that it clusters */
    int clusters;
} conr_clustering_info;

/* *out is released by conr_clustering_close. */
CONR_API int conr_clustering_open(conr *c, const char *run, conr_clustering **out);
CONR_API void conr_clustering_close(conr_clustering *m); /* NULL is fine */
CONR_API void conr_clustering_about(const conr_clustering *m, conr_clustering_info *out);

/* For a run that takes images through a pretrained encoder: where its weights are now.  They are
 * otherwise looked for where they were; in either case they must be the same file, by its checksum.
 * Opened when images are embedded first. */
CONR_API int conr_clustering_set_encoder(conr_clustering *m, const char *path);

/* The name of a cluster, if somebody gave it one (conr_edits_rename); else NULL.  Belongs to the
 * clustering. */
CONR_API const char *conr_clustering_name(const conr_clustering *m, int cluster);

/* Setting i = 0, 1, ... of a run made from features, key and value as in its options.yaml.  Returns
 * 0 past the last one (and for a training), else nonzero.  Valid until the next call in the same
 * thread. */
CONR_API int conr_clustering_setting(const conr_clustering *m, int i, const char **key,
                                     const char **value);

/* Features as the run clusters them: through its head, unit rows.  features: [n,d]; out: [n,width].
 */
CONR_API int conr_clustering_embed(conr *c, const conr_clustering *m, const float *features,
                                   int64_t n, int64_t d, float *out);

/* The same for images, if the run takes images.  Unreadable ones are dropped from `images`.  *out
 * [n,width] is released by conr_free. */
CONR_API int conr_clustering_images(conr *c, conr_clustering *m, conr_images *images, float **out,
                                    int64_t *n);

/* The clusters of embedded rows [n,width], as edited (a merged one by the nearest of its parts): labels, distances (1 - cos to the centroid) and boundary
 * ratios: [n]. */
CONR_API int conr_clustering_assign(conr *c, const conr_clustering *m, const float *rows, int64_t n,
                                    int32_t *labels, float *distances, float *boundary);

/* conr_write_clusters for rows without images.  names: [n], or NULL: from#0, from#1, ...; truth:
 * [n], -1: unknown, or NULL.  distances and boundary: [n], or NULL: without these columns. */
CONR_API int conr_write_rows(const char *path, const char *const *names, const char *from,
                             const int64_t *truth, const int32_t *labels, const float *distances,
                             const float *boundary, int64_t n);

/* The images that a finished run was made of: where they were then, or at `data` (NULL: as then).
 * (*at)[i] is the number in *images of row i of labels.csv, -1: no longer there; *n rows.  *images is
 * released by conr_images_close, *at by conr_free. */
CONR_API int conr_run_images(conr *c, const char *run, const char *data, conr_images **images,
                             int64_t **at, int64_t *n);

/* ---- edits: what a person decided about the clusters ------------------------------------------ */

/* The clusters of a finished run as a person named, merged, split and corrected them (docs/open.md).
 * Each decision is in RUN/edits.json when its call returns, and labels.csv follows it: its `cluster`
 * is the decided one (-1: the image is marked), and the columns name, mark and untouched are added,
 * the last with the cluster that the run found.  A call that fails changes nothing.  Reports,
 * conr_clustering_assign honor the edits.
 *
 * Clusters keep their numbers: new ones get the next free one, merged ones leave a gap. */
typedef struct conr_edits conr_edits;

/* read_only: 1, or 0: to decide; then nobody else can write into the run until it is closed:
 * CONR_EFILE names the process.  A damaged journal is CONR_EFORMAT.  *out is released by
 * conr_edits_close. */
CONR_API int conr_edits_open(const char *run, int read_only, conr_edits **out);
CONR_API void conr_edits_close(conr_edits *e); /* NULL is fine */

typedef struct conr_edits_info {
    int64_t n;        /* images */
    int clusters;     /* that have images */
    int found;        /* K of the run */
    int next;         /* the number that the next new cluster gets: all are below it */
    int done, undone; /* decisions in force; decisions that redo would make again */
    const char *undo,
        *redo;       /* what undo and redo would be about: "rename", "merge", "split", "move",
                                "mark", "clusters"; NULL: nothing.  Valid until the next decision. */
    int64_t version; /* grows with each decision */
} conr_edits_info;

CONR_API void conr_edits_about(const conr_edits *e, conr_edits_info *out);

/* A cluster: its images, not counting marked ones; its name, NULL: none.  Valid until the next
 * decision. */
CONR_API int64_t conr_edits_size(const conr_edits *e, int cluster);
CONR_API const char *conr_edits_name(const conr_edits *e, int cluster);

/* An image marked as outlier belongs to no cluster; one marked as wrong does not belong where it was
 * put. */
enum { CONR_MARK_NONE, CONR_MARK_OUTLIER, CONR_MARK_WRONG };

/* [n], owned by the edits, valid until the next decision: the cluster of each image, -1: marked; the
 * one that the run found; CONR_MARK_*. */
CONR_API const int32_t *conr_edits_labels(const conr_edits *e);
CONR_API const int32_t *conr_edits_untouched(const conr_edits *e);
CONR_API const unsigned char *conr_edits_marks(const conr_edits *e);

/* Image i as labels.csv has it; the path belongs to the edits.  distance and boundary are those of
 * the cluster that the run found. */
typedef struct conr_edits_image {
    const char *path;
    float distance, boundary;
    int64_t label; /* -1: unknown */
} conr_edits_image;

CONR_API int conr_edits_row(const conr_edits *e, int64_t i, conr_edits_image *out);

/* The embeddings of the images [n,d], read at the first call; owned by the edits. */
CONR_API int conr_edits_features(conr_edits *e, const float **features, int64_t *d);

/* The decisions.  Images are numbers from 0 to n-1, in any order.
 *   rename    a name of at most 200 bytes of UTF-8; "": none
 *   merge     all into the first, which keeps its number, and its name if it has one
 *   split     into k clusters by k-means of the members; the largest keeps number and name
 *   move      to a cluster, or to a new one: `to` is then the `next` of conr_edits_info, and may get
 *             a name (else NULL); takes marks off
 *   mark      CONR_MARK_*
 *   clusters  all images again into K clusters by k-means; each keeps number and name of the one
 *             it shares most images with */
CONR_API int conr_edits_rename(conr_edits *e, int cluster, const char *name);
CONR_API int conr_edits_merge(conr_edits *e, const int *clusters, int count);
CONR_API int conr_edits_split(conr *c, conr_edits *e, int cluster, int k, uint64_t seed);
CONR_API int conr_edits_move(conr_edits *e, const int64_t *images, int64_t count, int to,
                             const char *name);
CONR_API int conr_edits_mark(conr_edits *e, const int64_t *images, int64_t count, int mark);
CONR_API int conr_edits_clusters(conr *c, conr_edits *e, int K, uint64_t seed);
CONR_API int conr_edits_undo(conr_edits *e);
CONR_API int conr_edits_redo(conr_edits *e);

/* Takes back all edits of a run, also damaged ones: labels.csv is again what the run wrote. */
CONR_API int conr_edits_reset(const char *run);

/* ---- reports --------------------------------------------------------------------------------- */

typedef struct conr_report_options {
    const char *data; /* the images of the run; NULL: where they were when it was trained */
    const char *out;  /* the file; NULL: RUN/report.html */
} conr_report_options;

CONR_API conr_report_options conr_report_defaults(void); /* nothing set */

typedef struct conr_report_result {
    int64_t images, points; /* in the run; on the map, which shows a sample beyond 20,000 */
    int clusters;
    int pictures; /* 0: the images could not be found, and the report says so */
    int64_t bytes;
} conr_report_result;

/* Writes one self-contained HTML file about a finished run: what was done, every cluster, a map of
 * the images, their neighbors, curves.  result may be NULL. */
CONR_API int conr_report(conr *c, const char *run, const conr_report_options *o,
                         conr_report_result *result);

/* A map of features [n,d], n at most 20,000: positions xy [n,2], centered, the larger side of their
 * box from -1 to 1, by t-SNE. */
CONR_API int conr_map(conr *c, const float *features, int64_t n, int64_t d, uint64_t seed,
                      float *xy);

/* Compares several runs, or the folders of sweeps, in one file: a table of mean and deviation over
 * seeds, scores over the settings that differ, overlaid curves.  runs: [n] paths. */
CONR_API int conr_report_compare(conr *c, const char *const *runs, int n, const char *out);

#ifdef __cplusplus
}
#endif
#endif
